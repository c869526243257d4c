/* test_engine_streams.c - residual streams and far keys on the device: streams against sums in
 * double precision, far keys, the choice among them and attention against the CPU's functions,
 * whole sequences and in pieces into a cache. Exit 77 without a GPU.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "kernels/cuda/ops/engine_streams.h"
#include "kernels/engine/sparse/compress.h"
#include "kernels/engine/sparse/key_choice.h"
#include "kernels/engine/sparse/near_far.h"
#include "tests/gpu/support/device_case.h"
#include "tests/support/toys/open_model.h"
#include "tests/support/toys/random.h"

#define FAR 3e-3        /* relative L2 of what is rounded to BF16 once */
#define FAR_STREAMS 1e-5 /* of floats */

static sw_device *gpu;
static sw_launch how;

static float *random_floats(int64_t n, double center, double size, uint64_t seed)
{
    float *x = malloc((size_t)n * sizeof *x);
    test_rng rng = {seed};

    for (int64_t i = 0; i < n; i++) x[i] = (float)(center + size * test_gauss(&rng));
    return x;
}

static void *poison(int64_t n_bytes)
{
    void *d = NULL;

    MUST(sw_device_take(&d, gpu, n_bytes, 1, "test", err));
    MUST(sw_device_fill(gpu, d, 0xff, n_bytes, err));
    return d;
}

static void near_enough(const char *what, const float *have, const float *want, int64_t n,
                        double limit)
{
    const double far = relative_l2(have, want, n);

    if (!(far <= limit)) fail_msg("%s: %.3g", what, far);
}

/* ---- residual streams ---- */

enum { STREAMS_MAX = 5, ROUNDS = 20 };
#define EPS 1e-6

typedef struct stream_case {
    int64_t n, width;
    int n_streams;
    double *streams; /* [n, n_streams, width] */
    float *fn, *base, *scale;
} stream_case;

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

static void project(double *out, const stream_case *c, int64_t t, int n_out)
{
    const int64_t wide = c->n_streams * c->width;
    const double *x = c->streams + t * wide;
    double squares = 0;

    for (int64_t i = 0; i < wide; i++) squares += x[i] * x[i];
    for (int o = 0; o < n_out; o++) {
        double sum = 0;

        for (int64_t i = 0; i < wide; i++) sum += x[i] * (double)c->fn[o * wide + i];
        sum /= sqrt(squares / (double)wide + EPS);
        out[o] = sum * (double)c->scale[o < 2 * c->n_streams ? o / c->n_streams : 2] +
                 (double)c->base[o];
    }
}

/* Rows of a softmax, then columns and rows by turns, the columns first. */
static void make_mixture(double x[STREAMS_MAX][STREAMS_MAX], int n)
{
    for (int i = 0; i < n; i++) {
        double sum = 0;

        for (int k = 0; k < n; k++) sum += exp(x[i][k]);
        for (int k = 0; k < n; k++) x[i][k] = exp(x[i][k]) / sum + EPS;
    }
    for (int r = 0; r < 2 * ROUNDS - 1; r++)
        for (int i = 0; i < n; i++) {
            double sum = EPS;

            for (int k = 0; k < n; k++) sum += r % 2 ? x[i][k] : x[k][i];
            for (int k = 0; k < n; k++) *(r % 2 ? &x[i][k] : &x[k][i]) /= sum;
        }
}

/* read [width] and the streams after a half that has made `made`. */
static void walk_token(float *read, float *after, const stream_case *c, int64_t t,
                       const float *made)
{
    const int n = c->n_streams;
    const double *x = c->streams + t * n * c->width;
    double out[STREAMS_MAX * (STREAMS_MAX + 2)], mixture[STREAMS_MAX][STREAMS_MAX];

    project(out, c, t, n * (n + 2));
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n; k++) mixture[i][k] = out[2 * n + i * n + k];
    make_mixture(mixture, n);
    for (int64_t d = 0; d < c->width; d++) {
        double sum = 0;

        for (int i = 0; i < n; i++) sum += (sigmoid(out[i]) + EPS) * x[i * c->width + d];
        read[d] = (float)sum;
        for (int k = 0; k < n; k++) {
            sum = 2 * sigmoid(out[n + k]) * (double)made[d];
            for (int i = 0; i < n; i++) sum += mixture[i][k] * x[i * c->width + d];
            after[k * c->width + d] = (float)sum;
        }
    }
}

static void merge_token(float *read, const stream_case *c, int64_t t)
{
    double out[STREAMS_MAX];

    project(out, c, t, c->n_streams);
    for (int64_t d = 0; d < c->width; d++) {
        double sum = 0;

        for (int i = 0; i < c->n_streams; i++)
            sum += (sigmoid(out[i]) + EPS) *
                   c->streams[(t * c->n_streams + i) * c->width + d];
        read[d] = (float)sum;
    }
}

/* The streams as the device has them, the first in x, others behind a column of their own. */
static void fetch_streams(float *to, const sw_streams_args *a)
{
    const int64_t n = a->n_streams, rest = a->streams.stride;
    float *x = malloc((size_t)(a->n * a->width) * 4), *others = malloc((size_t)(a->n * rest) * 4);

    MUST(sw_device_download(gpu, x, a->x, a->n * a->width * 4, err));
    MUST(sw_device_download(gpu, others, a->streams.d, a->n * rest * 4, err));
    for (int64_t t = 0; t < a->n; t++) {
        memcpy(to + t * n * a->width, x + t * a->width, (size_t)a->width * 4);
        memcpy(to + (t * n + 1) * a->width, others + t * rest + a->width,
               (size_t)((n - 1) * a->width) * 4);
    }
    free(x), free(others);
}

static void check_merge(const sw_streams_args *a, const stream_case *c)
{
    const size_t n_bytes = (size_t)(c->n * c->width) * 4;
    float *want = malloc(n_bytes), *have = malloc(n_bytes);

    for (int64_t t = 0; t < c->n; t++) merge_token(want + t * c->width, c, t);
    MUST(sw_cuda_streams_merge(a, how, err));
    MUST(sw_device_download(gpu, have, a->x, c->n * c->width * 4, err));
    near_enough("merged", have, want, c->n * c->width, FAR_STREAMS);
    free(want), free(have);
}

static void check_streams(int64_t n, int64_t width, int n_streams)
{
    const int n_out = n_streams * (n_streams + 2);
    const int64_t wide = n_streams * width, rest = wide + 1;
    stream_case c = {n, width, n_streams, malloc((size_t)(n * wide) * 8),
                     random_floats(n_out * wide, 0, 0.1, 2), random_floats(n_out, 0, 1, 3),
                     random_floats(3, 1, 0.2, 4)};
    float *x = random_floats(n * width, 0, 1, 5), *made = malloc((size_t)(n * width) * 4), *have;
    float *read = malloc((size_t)(n * width) * 4), *after = malloc((size_t)(n * wide) * 4);
    float *before = malloc((size_t)(n * wide) * 4);
    const sw_bf16_rows dst = {poison(n * width * 2), width};
    const sw_bf16_rows src = {device_random_rows(gpu, made, n * width, 1, 6), width};
    const sw_streams_args a = {.x = device_copy(gpu, x, n * width * 4),
                               .streams = {poison(n * rest * 4), rest},
                               .fn = device_copy(gpu, c.fn, n_out * wide * 4),
                               .base = device_copy(gpu, c.base, n_out * 4),
                               .scale = device_copy(gpu, c.scale, 12),
                               .coefs = poison(n * n_out * 4), .n = n, .width = width,
                               .n_streams = n_streams, .n_rounds = ROUNDS,
                               .norm_eps = (float)EPS, .eps = (float)EPS};

    MUST(sw_cuda_streams_begin(&a, how, err));
    for (int round = 0; round < 2; round++) { /* streams alike, then as that has left them */
        fetch_streams(before, &a);
        for (int64_t i = 0; i < n * wide; i++) c.streams[i] = (double)before[i];
        for (int64_t t = 0; t < n; t++)
            walk_token(read + t * width, after + t * wide, &c, t, made + t * width);
        MUST(sw_cuda_streams_mix(&a, dst, how, err));
        MUST(sw_cuda_streams_add(&a, src, how, err));
        have = device_fetch(gpu, dst.d, n * width);
        near_enough("read", have, read, n * width, FAR);
        fetch_streams(before, &a);
        near_enough("streams", before, after, n * wide, FAR_STREAMS);
        free(have);
    }
    for (int64_t i = 0; i < n * wide; i++) c.streams[i] = (double)before[i];
    check_merge(&a, &c);
    free(c.streams), free(c.fn), free(c.base), free(c.scale);
    free(x), free(made), free(read), free(after), free(before);
}

static void test_streams(void **state)
{
    (void)state;
    check_streams(6, 40, 4);
    check_streams(3, 1000, 2);
    check_streams(9, 264, 5);
}

/* ---- far keys and attention ---- */

typedef struct far_case {
    int64_t n_seqs, n_tokens, n_heads, dim, index_dim, rate, window, half;
    bool overlaps;
} far_case;

static const far_case far_cases[] = {
    {2, 39, 4, 32, 16, 4, 8, 8, true},
    {1, 140, 20, 512, 64, 4, 128, 32, true},
    {2, 70, 17, 64, 0, 16, 24, 16, false},
    {1, 45, 3, 40, 0, 0, 12, 4, false},
};
#define N_FAR ((int)(sizeof far_cases / sizeof *far_cases))

/* Rows, queries and tables of a case. */
typedef struct far_data {
    const far_case *c;
    sw_far_place place;
    float *rows, *q, *positions, *norm, *index_positions, *index_norm, *sinks, *cos, *sin;
    sw_bf16 *d_rows, *d_q;
    sw_far_make make, index;
    sw_near_far_args attend;
} far_data;

static void far_tables(far_data *d)
{
    const far_case *c = d->c;
    const int64_t most = c->rate ? c->rate : 1, n_turns = c->n_tokens * c->half;

    d->positions = random_floats(most * 2 * c->dim, 0, 1, 11);
    d->norm = random_floats(c->dim, 1, 0.2, 12);
    d->index_positions = random_floats(most * 2 * (c->index_dim + 1), 0, 1, 13);
    d->index_norm = random_floats(c->index_dim + 1, 1, 0.2, 14);
    d->sinks = random_floats(c->n_heads, 0, 1, 15);
    d->cos = random_floats(n_turns, 0, 3, 16);
    d->sin = malloc((size_t)n_turns * 4);
    for (int64_t i = 0; i < n_turns; i++) {
        d->sin[i] = sinf(d->cos[i]);
        d->cos[i] = cosf(d->cos[i]);
    }
    d->make = (sw_far_make){.positions = device_copy(gpu, d->positions, most * 8 * c->dim),
                            .norm = device_copy(gpu, d->norm, c->dim * 4),
                            .cos = device_copy(gpu, d->cos, n_turns * 4),
                            .sin = device_copy(gpu, d->sin, n_turns * 4), .half = c->half,
                            .eps = 1e-6f};
    d->index = d->make;
    d->index.is_index = true;
    d->index.positions = device_copy(gpu, d->index_positions, most * 8 * (c->index_dim + 1));
    d->index.norm = device_copy(gpu, d->index_norm, (c->index_dim + 1) * 4);
}

static void far_open(far_data *d, const far_case *c)
{
    const int64_t wide = c->overlaps ? 2 : 1, parts = c->rate ? 2 : 0;
    const int64_t row = c->dim * (1 + parts * wide) + parts * wide * c->index_dim;
    const int64_t n = c->n_seqs * c->n_tokens;

    memset(d, 0, sizeof *d);
    d->c = c;
    d->place = (sw_far_place){.row = row, .dim = c->dim, .index_dim = c->index_dim, .rate = c->rate,
                              .overlaps = c->overlaps};
    d->rows = malloc((size_t)(n * row) * 4);
    d->q = malloc((size_t)(n * c->n_heads * c->dim) * 4);
    d->d_rows = device_random_rows(gpu, d->rows, n * row, 1, 7);
    d->d_q = device_random_rows(gpu, d->q, n * c->n_heads * c->dim, 1, 8);
    far_tables(d);
    d->attend = (sw_near_far_args){.sinks = device_copy(gpu, d->sinks, c->n_heads * 4),
                                   .cos = d->make.cos, .sin = d->make.sin, .n_heads = c->n_heads,
                                   .window = c->window, .half = c->half,
                                   .scale = (float)(2 / sqrt((double)c->dim))};
}

static void far_close(far_data *d)
{
    free(d->rows), free(d->q), free(d->positions), free(d->norm), free(d->index_positions);
    free(d->index_norm), free(d->sinks), free(d->cos), free(d->sin);
}

/* The call's tokens, which begin at row `at` of what the case has, into the place and through. */
static void run_far(const far_data *d, const sw_far_place *p, int64_t at, sw_bf16 *d_out)
{
    const far_case *c = d->c;
    const int64_t width = c->n_heads * c->dim;
    sw_far_make make = d->make, index = d->index;
    sw_near_far_args attend = d->attend;
    const sw_bf16_rows rows = {d->d_rows + at * p->row, p->row};

    make.place = index.place = attend.place = *p;
    attend.q = (sw_bf16_rows){d->d_q + at * width, width};
    attend.out = (sw_bf16_rows){d_out + at * width, width};
    MUST(sw_cuda_far_keep(p, rows, rows, how, err));
    if (c->rate) MUST(sw_cuda_far_make(&make, how, err));
    if (c->index_dim) MUST(sw_cuda_far_make(&index, how, err));
    MUST(sw_cuda_near_far(&attend, how, err));
}

/* The CPU's far keys of one kind, [n_seqs * n_far, dim]. */
static float *make_on_cpu(const far_data *d, bool is_index)
{
    const far_case *c = d->c;
    const int64_t dim = is_index ? c->index_dim : c->dim, wide = c->overlaps ? 2 * dim : dim;
    const int64_t at = is_index ? d->place.row - 2 * wide : c->dim;
    const int64_t n_far = c->n_tokens / c->rate;
    const sw_compress job = {.values = d->rows + at, .gates = d->rows + at + wide,
                             .stride = d->place.row,
                             .positions = is_index ? d->index_positions : d->positions,
                             .norm = is_index ? d->index_norm : d->norm, .eps = 1e-6f,
                             .out = malloc((size_t)(c->n_seqs * n_far * dim) * 4),
                             .n_seqs = c->n_seqs, .n_tokens = c->n_tokens, .rate = c->rate,
                             .dim = dim, .overlaps = c->overlaps, .cos = d->cos, .sin = d->sin,
                             .half = c->half, .vec = sw_vec_best(), .n_threads = 2};

    sw_compress_run(&job);
    return job.out;
}

/* What the place holds of far keys, against the CPU's; returns the place's. */
static float *check_keys(const far_data *d, const sw_far_place *p, const sw_bf16 *d_place,
                         bool is_index)
{
    const far_case *c = d->c;
    const int64_t dim = is_index ? c->index_dim : c->dim, n_far = c->n_tokens / c->rate;
    const int64_t at = p->capacity * p->row + (is_index ? p->capacity / p->rate * c->dim : 0);
    float *want = make_on_cpu(d, is_index);
    float *all = malloc((size_t)(c->n_seqs * n_far * dim) * 4);

    for (int64_t s = 0; s < c->n_seqs; s++) {
        float *have = device_fetch(gpu, d_place + s * p->seq_stride + at, n_far * dim);

        near_enough(is_index ? "keys of the choice" : "far keys", have, want + s * n_far * dim,
                    n_far * dim, FAR);
        memcpy(all + s * n_far * dim, have, (size_t)(n_far * dim) * 4);
        free(have);
    }
    free(want);
    return all;
}

/* Against attention on the CPU over the keys that the device has made. */
static void check_attention(const far_data *d, const float *far, const sw_bf16 *d_out)
{
    const far_case *c = d->c;
    const int64_t n = c->n_seqs * c->n_tokens * c->n_heads * c->dim;
    float *want = malloc((size_t)n * 4), *have = device_fetch(gpu, d_out, n);
    sw_near_far a = {.q = d->q, .near = d->rows, .stride = d->place.row, .far = far,
                     .n_far = c->rate ? c->n_tokens / c->rate : 0, .rate = c->rate, .out = want,
                     .sinks = d->sinks, .window = c->window, .scale = (double)d->attend.scale,
                     .n_seqs = c->n_seqs, .seq_len = c->n_tokens, .n_heads = c->n_heads,
                     .dim = c->dim, .cos = d->cos, .sin = d->sin, .half = c->half,
                     .vec = sw_vec_best(), .n_threads = 2};

    a.scratch = malloc((size_t)sw_near_far_scratch(&a) * 4);
    sw_near_far_run(&a);
    near_enough("attention", have, want, n, FAR);
    free(a.scratch), free(want), free(have);
}

static void check_far(const far_data *d, const sw_far_place *p, const sw_bf16 *d_place,
                      const sw_bf16 *d_out)
{
    float *far = d->c->rate ? check_keys(d, p, d_place, false) : NULL;

    if (d->c->index_dim) free(check_keys(d, p, d_place, true));
    check_attention(d, far, d_out);
    free(far);
}

/* All sequences at once; then one after the other, in pieces that end within windows. */
static void check_case(const far_case *c)
{
    static const int64_t pieces[] = {1, 2, 17, 1, 30, 9};
    const int64_t n_out = c->n_seqs * c->n_tokens * c->n_heads * c->dim;
    sw_bf16 *d_out = poison(n_out * 2), *d_place;
    sw_far_place p;
    far_data d;

    far_open(&d, c);
    p = d.place;
    p.capacity = p.seq_len = c->n_tokens;
    p.n_seqs = c->n_seqs;
    p.seq_stride = sw_far_elems(&p);
    p.d = d_place = poison(c->n_seqs * p.seq_stride * 2);
    run_far(&d, &p, 0, d_out);
    check_far(&d, &p, d_place, d_out);
    MUST(sw_device_fill(gpu, d_out, 0xff, n_out * 2, err));
    p.capacity += 7;
    p.n_seqs = 1;
    p.seq_stride = sw_far_elems(&p);
    d_place = poison(c->n_seqs * p.seq_stride * 2);
    for (int64_t s = 0; s < c->n_seqs; s++) {
        p.d = d_place + s * p.seq_stride;
        for (int64_t at = 0, i = 0; at < c->n_tokens; at += p.seq_len, i++) {
            const int32_t first = (int32_t)at;

            p.seq_len = pieces[i % 6] < c->n_tokens - at ? pieces[i % 6] : c->n_tokens - at;
            p.first = device_copy(gpu, &first, 4);
            run_far(&d, &p, s * c->n_tokens + at, d_out);
        }
    }
    check_far(&d, &p, d_place, d_out);
    far_close(&d);
}

static void test_far(void **state)
{
    (void)state;
    for (int i = 0; i < N_FAR; i++) check_case(&far_cases[i]);
}

/* ---- the choice ---- */

/* Small integers: scores are exact, and many are equal. */
static float *integers(int64_t n, int most, uint64_t seed)
{
    float *x = malloc((size_t)n * 4);
    test_rng rng = {seed};

    for (int64_t i = 0; i < n; i++)
        x[i] = (float)((int)(test_uniform(&rng) * (2 * most + 1)) - most);
    return x;
}

static void test_choice(void **state)
{
    enum { TOKENS = 150, KEYS = TOKENS / 2, HEADS = 3, DIM = 8, TOP = 20, STRIDE = KEYS + 1 };
    static float products[TOKENS][HEADS][STRIDE];
    static int32_t have[TOKENS * TOP], want[TOKENS * TOP];
    float *q = integers(TOKENS * HEADS * DIM, 2, 21), *keys = integers(KEYS * DIM, 1, 22);
    float *weights = integers(TOKENS * HEADS, 3, 23);
    sw_key_choice cpu = {.q = q, .weights = weights, .keys = keys, .chosen = want, .n_seqs = 1,
                         .seq_len = TOKENS, .n_keys = KEYS, .tokens_per_key = 2,
                         .n_heads = HEADS, .head_dim = DIM, .top_k = TOP, .n_threads = 1};
    sw_far_choice a = {.place = {.rate = 2, .n_seqs = 1, .seq_len = TOKENS},
                       .weights = device_copy(gpu, weights, TOKENS * HEADS * 4),
                       .ranks = poison(TOKENS * KEYS * 4), .chosen = poison(sizeof have),
                       .n_keys = KEYS, .stride = STRIDE, .n_heads = HEADS, .top_k = TOP};

    (void)state;
    for (int t = 0; t < TOKENS; t++)
        for (int h = 0; h < HEADS; h++)
            for (int k = 0; k < KEYS; k++)
                for (int i = 0; i < DIM; i++)
                    products[t][h][k] += q[(t * HEADS + h) * DIM + i] * keys[k * DIM + i];
    for (a.row0 = 0; a.row0 < TOKENS; a.row0 += a.n) {
        a.n = a.row0 ? TOKENS - a.row0 : 47;
        a.products = device_copy(gpu, products[a.row0], a.n * HEADS * STRIDE * 4);
        MUST(sw_cuda_far_choose(&a, how, err));
    }
    MUST(sw_device_download(gpu, have, a.chosen, sizeof have, err));
    cpu.scratch = malloc((size_t)sw_key_choice_scratch(HEADS, KEYS, 1) * 4);
    sw_key_choice_run(&cpu);
    assert_memory_equal(have, want, sizeof have);
    free(cpu.scratch), free(q), free(keys), free(weights);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_streams),
        cmocka_unit_test(test_far),
        cmocka_unit_test(test_choice),
    };
    int failed = device_open(&gpu);

    if (failed) return failed;
    how = device_launch(gpu);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    sw_device_close(gpu);
    return failed;
}
