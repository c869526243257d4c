/* test_engine_chosen.c - keys that are chosen one by one, on the device: scores against plain sums
 * and choices against the CPU engine's, which integers make exact, ties among them; attention over
 * chosen keys against the CPU's. Sequences begin at different positions. Exit 77 without a GPU.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "formats/num/half.h"
#include "kernels/cuda/ops/engine_chosen.h"
#include "kernels/engine/attention.h"
#include "kernels/engine/sparse/key_choice.h"
#include "kernels/engine/sparse/key_digits.h"
#include "tests/gpu/support/device_case.h"
#include "tests/support/toys/open_model.h"
#include "tests/support/toys/random.h"

#define FAR 4e-3 /* relative L2 of what is rounded to BF16 once */
#define FAR_CODES 1e-2 /* of queries in BF16 and codes */
enum { SEQS_MAX = 3 };

static sw_device *gpu;
static sw_launch how;

static void *poison(int64_t n_bytes)
{
    void *d = NULL;

    MUST(sw_device_take(&d, gpu, n_bytes, 1, "test", err));
    MUST(sw_device_fill(gpu, d, 0xff, n_bytes, err));
    return d;
}

/* Small integers, so that sums are exact and many of them equal; their copy in BF16. */
static float *integers(sw_bf16 **d_rounded, int64_t n, int most, uint64_t seed)
{
    float *x = malloc((size_t)n * sizeof *x);
    uint16_t *rounded = malloc((size_t)n * sizeof *rounded);
    test_rng rng = {seed};

    for (int64_t i = 0; i < n; i++) {
        x[i] = (float)((int)(test_uniform(&rng) * (2 * most + 1)) - most);
        rounded[i] = sw_bf16_encode(x[i]);
    }
    if (d_rounded) *d_rounded = device_copy(gpu, rounded, n * 2);
    free(rounded);
    return x;
}

/* ---- scores and choices ---- */

typedef struct choice_case {
    const char *name;
    int64_t n_seqs, seq_len, capacity, n_heads, dim, top_k;
    int32_t first[SEQS_MAX]; /* positions at which the sequences begin */
    int most;                /* largest weight; 0: all scores are alike */
    int64_t n_at_once;       /* queries of a launch */
} choice_case;

static const choice_case choice_cases[] = {
    {"one key", 1, 1, 9, 3, 8, 1, {0}, 3, 1},
    {"as many as there are", 1, 40, 40, 3, 8, 40, {0}, 3, 40},
    {"more than there are", 2, 30, 64, 3, 8, 50, {0, 5}, 3, 60},
    {"ragged", 3, 21, 800, 5, 40, 64, {0, 60, 700}, 2, 17},
    {"whole text", 1, 150, 150, 4, 16, 1, {0}, 2, 150},
    {"wide heads", 1, 3, 300, 70, 136, 100, {290}, 1, 3},
    {"many equal", 2, 4, 1500, 64, 128, 512, {1400, 1000}, 1, 8},
    {"all equal", 1, 2, 1100, 3, 8, 520, {1090}, 0, 2},
#ifndef SW_CHECKED /* a checker follows every access */
    {"long", 1, 1, 70001, 2, 16, 2048, {70000}, 2, 1},
#endif
};
#define N_CHOICES ((int)(sizeof choice_cases / sizeof *choice_cases))

typedef struct choice_data {
    const choice_case *c;
    float *q, *weights, *keys;
    sw_choice_args args;
} choice_data;

static void choice_open(choice_data *d, const choice_case *c)
{
    const int64_t n = c->n_seqs * c->seq_len;
    sw_bf16 *d_q, *d_keys;

    d->c = c;
    d->q = integers(&d_q, n * c->n_heads * c->dim, 2, 1);
    d->weights = integers(NULL, n * c->n_heads, c->most, 2);
    d->keys = integers(&d_keys, c->n_seqs * c->capacity * c->dim, 1, 3);
    d->args = (sw_choice_args){.q = {d_q, c->n_heads * c->dim},
                               .weights = device_copy(gpu, d->weights, n * c->n_heads * 4),
                               .keys = d_keys, .ranks = poison(c->n_at_once * c->capacity * 4),
                               .chosen = {poison(n * (c->top_k + 3) * 4), c->top_k + 3},
                               .first = device_copy(gpu, c->first, SEQS_MAX * 4),
                               .seq_len = c->seq_len, .capacity = c->capacity,
                               .n_heads = c->n_heads, .dim = c->dim, .top_k = c->top_k};
}

static float score_of(const choice_data *d, int64_t t, int64_t key)
{
    const choice_case *c = d->c;
    const float *k = d->keys + (t / c->seq_len * c->capacity + key) * c->dim;
    float sum = 0;

    for (int64_t h = 0; h < c->n_heads; h++) {
        const float *q = d->q + (t * c->n_heads + h) * c->dim;
        float product = 0;

        for (int64_t i = 0; i < c->dim; i++) product += q[i] * k[i];
        sum += d->weights[t * c->n_heads + h] * (product > 0 ? product : 0);
    }
    return sum;
}

/* Ranks of queries row0 .. row0 + n as they have just been made. */
static void check_ranks(const choice_data *d)
{
    const choice_case *c = d->c;
    const sw_choice_args *a = &d->args;
    uint32_t *ranks = malloc((size_t)(a->n * c->capacity) * 4);

    MUST(sw_device_download(gpu, ranks, a->ranks, a->n * c->capacity * 4, err));
    for (int64_t row = 0; row < a->n; row++) {
        const int64_t t = a->row0 + row, n = c->first[t / c->seq_len] + t % c->seq_len + 1;

        for (int64_t key = 0; key < n && n > c->top_k; key += 1 + n / 2000)
            if (ranks[row * c->capacity + key] != sw_key_rank(score_of(d, t, key)))
                fail_msg("%s: rank of query %d, key %d", c->name, (int)t, (int)key);
    }
    free(ranks);
}

/* Sequence by sequence, which on the CPU begin at one position. */
static int32_t *choose_on_cpu(const choice_data *d)
{
    const choice_case *c = d->c;
    int32_t *chosen = malloc((size_t)(c->n_seqs * c->seq_len * c->top_k) * 4);

    for (int64_t s = 0; s < c->n_seqs; s++) {
        const int64_t t = s * c->seq_len;
        sw_key_choice cpu = {.q = d->q + t * c->n_heads * c->dim,
                             .weights = d->weights + t * c->n_heads,
                             .keys = d->keys + s * c->capacity * c->dim,
                             .chosen = chosen + t * c->top_k, .n_seqs = 1, .seq_len = c->seq_len,
                             .first = c->first[s], .n_keys = c->first[s] + c->seq_len,
                             .tokens_per_key = 1, .n_heads = c->n_heads, .head_dim = c->dim,
                             .top_k = c->top_k, .n_threads = 1};

        cpu.scratch = malloc((size_t)sw_key_choice_scratch(c->n_heads, cpu.n_keys, 1) * 4);
        sw_key_choice_run(&cpu);
        free(cpu.scratch);
    }
    return chosen;
}

static void check_choice(const choice_case *c)
{
    const int64_t n = c->n_seqs * c->seq_len, stride = c->top_k + 3;
    int32_t *have = malloc((size_t)(n * stride) * 4), *want;
    choice_data d;

    choice_open(&d, c);
    for (; d.args.row0 < n; d.args.row0 += c->n_at_once) {
        d.args.n = c->n_at_once < n - d.args.row0 ? c->n_at_once : n - d.args.row0;
        MUST(sw_cuda_key_ranks(&d.args, how, err));
        MUST(sw_cuda_key_choose(&d.args, how, err));
        check_ranks(&d);
    }
    MUST(sw_device_download(gpu, have, d.args.chosen.d, n * stride * 4, err));
    want = choose_on_cpu(&d);
    for (int64_t t = 0; t < n; t++)
        for (int64_t i = 0; i < stride; i++)
            if (have[t * stride + i] != (i < c->top_k ? want[t * c->top_k + i] : -1))
                fail_msg("%s: query %d, place %d: %d, not %d", c->name, (int)t, (int)i,
                         have[t * stride + i], i < c->top_k ? want[t * c->top_k + i] : -1);
    free(d.q), free(d.weights), free(d.keys), free(have), free(want);
}

static void test_choice(void **state)
{
    (void)state;
    for (int i = 0; i < N_CHOICES; i++) check_choice(&choice_cases[i]);
}

/* ---- attention ---- */

typedef struct chosen_case {
    int64_t n_seqs, seq_len, capacity, n_heads, n_kv_heads, dim, v_dim, top_k;
    int32_t first[SEQS_MAX];
    sw_kv_kind kind;
} chosen_case;

static const chosen_case chosen_cases[] = {
    {1, 1, 5, 2, 2, 8, 8, 1, {0}, SW_KV_FLOATS},
    {2, 30, 30, 3, 3, 32, 24, 11, {0, 0}, SW_KV_FLOATS},
    {3, 5, 700, 4, 2, 192, 128, 300, {0, 290, 690}, SW_KV_FLOATS},
    {1, 2, 600, 2, 1, 64, 256, 513, {590}, SW_KV_FLOATS},
    {1, 2, 90, 1, 1, 512, 512, 40, {80}, SW_KV_FLOATS},
    {2, 3, 400, 2, 2, 192, 128, 64, {10, 390}, SW_KV_E4M3},
    {2, 3, 400, 2, 2, 192, 128, 64, {10, 390}, SW_KV_INT8},
};
#define N_CHOSEN ((int)(sizeof chosen_cases / sizeof *chosen_cases))

/* top_k of the keys that a query sees, rising; all where there are no more. */
static int32_t *draw_chosen(const chosen_case *c)
{
    int32_t *chosen = malloc((size_t)(c->n_seqs * c->seq_len * c->top_k) * 4);
    test_rng rng = {9};

    for (int64_t t = 0; t < c->n_seqs * c->seq_len; t++) {
        const int64_t n = c->first[t / c->seq_len] + t % c->seq_len + 1;
        int64_t n_out = 0;

        for (int64_t key = 0; key < n && n_out < c->top_k; key++)
            if (test_uniform(&rng) * (double)(n - key) < (double)(c->top_k - n_out))
                chosen[t * c->top_k + n_out++] = (int32_t)key;
        for (; n_out < c->top_k; n_out++) chosen[t * c->top_k + n_out] = -1;
    }
    return chosen;
}

/* Keys or values in a cache: as BF16, or as codes times a scale; `values` become what they are. */
static void *make_cache(float *values, int64_t n, sw_kv_kind kind, float scale, uint64_t seed)
{
    (void)device_random_rows(gpu, values, n, 1, seed);
    return device_cached(gpu, values, n, kind, scale);
}

static void attend_on_cpu(float *out, const chosen_case *c, const float *q, const float *k,
                          const float *v, const int32_t *chosen, double scale)
{
    float *scratch = malloc(sw_attention_scratch_bytes(1));

    for (int64_t s = 0; s < c->n_seqs; s++) {
        const int64_t t = s * c->seq_len, kv = s * c->capacity * c->n_kv_heads;
        const sw_attention a = {.q = q + t * c->n_heads * c->dim, .k = k + kv * c->dim,
                                .v = v + kv * c->v_dim, .out = out + t * c->n_heads * c->v_dim,
                                .n_seqs = 1, .seq_len = c->seq_len, .first = c->first[s],
                                .n_heads = c->n_heads, .n_kv_heads = c->n_kv_heads,
                                .head_dim = c->dim, .v_head_dim = c->v_dim, .scale = scale,
                                .chosen = chosen + t * c->top_k, .n_chosen = c->top_k,
                                .vec = sw_vec_best(), .scratch = scratch, .n_threads = 1};

        sw_attention_run(&a);
    }
    free(scratch);
}

static void check_attention(const chosen_case *c)
{
    const int64_t n = c->n_seqs * c->seq_len, n_keys = c->n_seqs * c->capacity * c->n_kv_heads;
    const int64_t n_q = n * c->n_heads * c->dim, n_out = n * c->n_heads * c->v_dim;
    const sw_kv_form form = {c->kind, 0.0625f, 0.03125f};
    float *q = malloc((size_t)n_q * 4), *k = malloc((size_t)(n_keys * c->dim) * 4);
    float *v = malloc((size_t)(n_keys * c->v_dim) * 4), *want = malloc((size_t)n_out * 4), *have;
    int32_t *chosen = draw_chosen(c);
    sw_attn_args a = {.q = {device_random_rows(gpu, q, n_q, 1, 4), c->n_heads * c->dim},
                      .out = {poison(n_out * 2), c->n_heads * c->v_dim}, .kv = form,
                      .first = device_copy(gpu, c->first, SEQS_MAX * 4), .n_seqs = c->n_seqs,
                      .seq_len = c->seq_len, .capacity = c->capacity, .n_heads = (int)c->n_heads,
                      .n_kv_heads = (int)c->n_kv_heads, .head_dim = (int)c->dim,
                      .v_head_dim = (int)c->v_dim, .scale = 0.3f};
    const sw_chosen_rows rows = {device_copy(gpu, chosen, n * c->top_k * 4), c->top_k};

    a.k = (sw_bf16_rows){make_cache(k, n_keys * c->dim, c->kind, form.k_scale, 5),
                         c->n_kv_heads * c->dim};
    a.v = (sw_bf16_rows){make_cache(v, n_keys * c->v_dim, c->kind, form.v_scale, 6),
                         c->n_kv_heads * c->v_dim};
    a.k_seq = c->capacity * a.k.stride;
    a.v_seq = c->capacity * a.v.stride;
    MUST(sw_cuda_chosen_attention(&a, rows, c->top_k, how, err));
    have = device_fetch(gpu, a.out.d, n_out);
    attend_on_cpu(want, c, q, k, v, chosen, (double)a.scale);
    if (!(relative_l2(have, want, n_out) <= (c->kind ? FAR_CODES : FAR)))
        fail_msg("heads of %d and %d, %d keys: %.3g", (int)c->dim, (int)c->v_dim, (int)c->top_k,
                 relative_l2(have, want, n_out));
    free(q), free(k), free(v), free(want), free(have), free(chosen);
}

static void test_attention(void **state)
{
    (void)state;
    for (int i = 0; i < N_CHOSEN; i++) check_attention(&chosen_cases[i]);
}

/* What the kernel does not have is said, not left out. */
static void test_refusals(void **state)
{
    const sw_attn_args windowed = {.window = 8, .head_dim = 8, .v_head_dim = 8};
    const sw_attn_args wide = {.head_dim = 520, .v_head_dim = 8};
    sw_err err = {0};

    (void)state;
    assert_int_equal(sw_cuda_chosen_attention(&windowed, (sw_chosen_rows){0}, 1, how, &err),
                     SW_E_BUG);
    assert_int_equal(sw_cuda_chosen_attention(&wide, (sw_chosen_rows){0}, 1, how, &err),
                     SW_E_UNSUPPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_choice),
        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_refusals),
    };
    int failed = device_open(&gpu);

    if (failed) return failed;
    how = device_launch(gpu);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    sw_device_close(gpu);
    return failed;
}
