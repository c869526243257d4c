/* test_streams.c - the original stream, which may move while its last look is taken, on a device.
 * Exit 77 without a GPU.
 *
 * A block is observed twice from the same streams: once so that they stay, once so that the
 * original one moves. Sums, W D and where both streams arrive have to agree. In between a linear
 * gets other values, as it does when it is solved: the first time all of the block is copied again,
 * the second time what has changed. Where a scale has gone from what a site reads into its linear,
 * the original stream is seen in a block with the scale, or in one without it that is told of it:
 * powers of two, so that both have to come to the same. Experts that are held from observing
 * to moving, and an original block that was loaded beside solving, move the streams as blocks do
 * that are loaded then. Streams begin with the bytes of the engine on the host, wherever they are
 * looked up.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "quant/backend/cuda/cuda_streams.h"
#include "tests/gpu/support/emulated.h"
#include "tests/gpu/support/solver_case.h"
#include "tests/support/cases/stats_case.h"
#include "tests/support/toys/random.h"

enum { SEQS = 80, LEN = 128 };

static sw_device *gpu;
static sw_solver *solver;

#define MUST(call) \
    do { sw_err err = {0}; if ((call) != SW_OK) fail_msg("%s: %s", #call, err.text); } while (0)

/* What came of one way of observing; rows in memory. */
typedef struct seen {
    sw_site_stats stats;
    double *wd[2];   /* [n_out, k_in] W D, of tokens seen and of those kept back */
    double *r[2];    /* [n_out, k_in] */
    float *x, *x0;   /* both streams, once they have moved */
    int64_t n_out, k_in;
    bool is_weighed;
} seen;

static void *fetch(const void *d, int64_t size_bytes)
{
    void *host = malloc((size_t)size_bytes);

    MUST(sw_device_download(gpu, host, d, size_bytes, &err));
    return host;
}

static double distance(const double *have, const double *want, int64_t n)
{
    double wrong = 0, size = 0;

    for (int64_t i = 0; i < n; i++) {
        wrong += (have[i] - want[i]) * (have[i] - want[i]);
        size += want[i] * want[i];
    }
    if (wrong == 0) return 0; /* the first block has no residual to repair */
    return isfinite(wrong) ? sqrt(wrong / size) : (double)INFINITY;
}

static double rows_apart(const float *have, const float *want, int64_t n)
{
    double wrong = 0, size = 0;

    for (int64_t i = 0; i < n; i++) {
        const double d = (double)have[i] - (double)want[i];
        wrong += d * d;
        size += (double)want[i] * (double)want[i];
    }
    return isfinite(wrong) ? sqrt(wrong / size) : (double)INFINITY;
}

/* A linear of the block with other values; the caller frees them. */
static float *disturb(sw_block *block, sw_slot slot, double size)
{
    sw_weight *w = sw_block_weight(block, slot, -1);
    const int64_t n = w->n_out * w->k_in;
    float *values = malloc(sizeof *values * (size_t)n);
    test_rng rng = {41};

    MUST(sw_float_decode_n(values, w->dense, w->dense_dtype, n, &err));
    for (int64_t i = 0; i < n; i++)
        values[i] = sw_num_round_to((float)((double)values[i] * (1 + size * test_gauss(&rng))),
                                    SW_DTYPE_BF16);
    w->dense = values;
    w->dense_dtype = SW_DTYPE_F32;
    return values;
}

/* W D in memory, of sums that are of D or of W D. */
static double *weigh(const sw_hessian *h, const sw_block *block, sw_slot slot)
{
    const sw_weight *w = sw_block_weight((sw_block *)(uintptr_t)block, slot, -1);
    const int64_t n = h->n_out_residual, k = h->k_in;
    double *d = fetch(h->d, sw_hessian_d_elems(h) * 8), *wd;
    float *values;

    if (h->is_weighed) return d;
    wd = calloc((size_t)(n * k), sizeof *wd);
    values = malloc(sizeof *values * (size_t)(n * k));
    MUST(sw_float_decode_n(values, w->dense, w->dense_dtype, n * k, &err));
    for (int64_t i = 0; i < n; i++)
        for (int64_t l = 0; l < k; l++) {
            const double v = (double)sw_num_round_to(values[i * k + l], SW_DTYPE_BF16);
            for (int64_t j = 0; j < k; j++) wd[i * k + j] += v * d[l * k + j];
        }
    free(values);
    free(d);
    return wd;
}

typedef struct look {
    const char *arch;
    sw_site site;
    sw_slot slot;
    sw_half half;
    bool has_products; /* W D comes from what the original stream gains */
    bool is_scaled;
} look;

/* Of a site's inputs: each row of V has all heads that read it. */
static double *scales_of(const look *l, const sw_model *m)
{
    const int64_t k = sw_model_site_width(m, 0, l->site), d = m->head_dim;
    const int64_t per_kv = l->site == SW_SITE_O_IN ? m->n_heads / m->n_kv_heads : 1;
    double *scale = malloc(sizeof *scale * (size_t)k);

    for (int64_t j = 0; j < k; j++) {
        const int64_t row = l->site == SW_SITE_O_IN ? j / d / per_kv * d + j % d : j;
        scale[j] = ldexp(1, (int)(row * 5 % 7) - 3);
    }
    return scale;
}

/* Columns of what reads the site times the scale, rows of what makes it divided by it. The values
 * are the caller's. */
static void fold(float *values[2], sw_block *block, const look *l, const sw_model *m,
                 const double *scale)
{
    const bool is_attention = l->half == SW_HALF_ATTENTION;
    sw_weight *made = sw_block_weight(block, is_attention ? SW_SLOT_V : SW_SLOT_UP, -1);
    sw_weight *read = sw_block_weight(block, l->slot, -1);
    const int64_t d = m->head_dim, per_kv = is_attention ? m->n_heads / m->n_kv_heads : 1;

    values[0] = disturb(block, is_attention ? SW_SLOT_V : SW_SLOT_UP, 0);
    values[1] = disturb(block, l->slot, 0);
    for (int64_t i = 0; i < made->n_out * made->k_in; i++) {
        const int64_t row = i / made->k_in;
        values[0][i] /= (float)scale[is_attention ? row / d * per_kv * d + row % d : row];
    }
    for (int64_t i = 0; i < read->n_out * read->k_in; i++)
        values[1][i] *= (float)scale[i % read->k_in];
}

/* The first block, whose quantized twin makes other values of attention and of its MLP. With
 * is_told the original block lacks the scale. */
static void observe(seen *out, const look *l, bool is_last_look, bool is_told)
{
    const sw_place at = {.backend = &sw_backend_cuda, .device = solver, .n_threads = 4};
    bool wanted[SW_SITE_COUNT] = {false};
    sw_block original = {0}, quantized = {0};
    float *v = NULL, *up, *solved, *folded[4] = {NULL};
    uint32_t *ids = malloc(sizeof *ids * SEQS * LEN);
    double *scale;
    test_rng rng = {17};
    sw_streams s = {0};
    sw_cuda_streams *on;
    int64_t n_bytes;
    stats_case c;

    stats_case_open(&c, l->arch);
    for (int i = 0; i < SEQS * LEN; i++)
        ids[i] = (uint32_t)(test_uniform(&rng) * test_uniform(&rng) * (double)c.ckpt.model.vocab);
    c.calib = (sw_calib){ids, SEQS, LEN};
    MUST(sw_streams_new(&s, &at, &c.ckpt.model, c.ckpt.st, &c.calib, true, NULL, &err));
    on = s.own;
    MUST(sw_block_load(&original, &c.ckpt.model, c.ckpt.st, 0, &err));
    MUST(sw_block_load(&quantized, &c.ckpt.model, c.ckpt.st, 0, &err));
    scale = scales_of(l, &c.ckpt.model);
    if (l->is_scaled) fold(folded, &quantized, l, &c.ckpt.model, scale);
    if (l->is_scaled && !is_told) fold(folded + 2, &original, l, &c.ckpt.model, scale);
    if (l->half == SW_HALF_MLP) v = disturb(&quantized, SW_SLOT_O, 0.05);
    up = disturb(&quantized, l->half == SW_HALF_ATTENTION ? SW_SLOT_V : SW_SLOT_UP, 0.05);
    if (l->half == SW_HALF_MLP)
        MUST(sw_streams_advance(&s, &quantized, &original, SW_HALF_ATTENTION, NULL, &err));
    wanted[l->site] = true;
    MUST(sw_site_stats_new(&out->stats, &c.ckpt.model, 0, wanted, true, SW_EXPERTS_COUNT, &at,
                           &err));
    s.is_last_look = is_last_look;
    if (is_told) out->stats.scale[l->site] = scale;
    MUST(sw_streams_observe(&s, &out->stats, &quantized, &original, NULL, &err));
    s.is_last_look = false;
    for (int i = 0; i < 2; i++) {
        const sw_hessian *h = i ? &out->stats.held[l->site] : &out->stats.site[l->site];
        out->wd[i] = weigh(h, &quantized, l->slot);
        out->r[i] = fetch(h->r, h->n_out_residual * h->k_in * 8);
        out->n_out = h->n_out_residual;
        out->k_in = h->k_in;
        out->is_weighed = h->is_weighed;
    }
    assert_int_equal(on->is_original_ahead, is_last_look);
    solved = disturb(&quantized, l->slot, 0.1);
    if (!is_last_look) sw_streams_forget(&s);
    else on->n_kept /= 2; /* as where there is no room for all: the others are run again */
    MUST(sw_streams_advance(&s, &quantized, &original,
                            l->half == SW_HALF_ATTENTION ? l->half : SW_HALF_BOTH, NULL, &err));
    assert_false(on->is_original_ahead);
    n_bytes = SEQS * LEN * c.ckpt.model.hidden * 4;
    out->x = fetch(on->d_x, n_bytes);
    out->x0 = fetch(on->d_x0, n_bytes);
    sw_block_free(&original);
    sw_block_free(&quantized);
    sw_streams_free(&s);
    stats_case_close(&c);
    for (int i = 0; i < 4; i++) free(folded[i]);
    free(v), free(up), free(solved), free(ids), free(scale);
}

static void seen_free(seen *s)
{
    for (int i = 0; i < 2; i++) free(s->wd[i]), free(s->r[i]);
    free(s->x), free(s->x0);
    sw_site_stats_free(&s->stats);
}

static void check_look(const look *l)
{
    seen stays = {0}, moves = {0};
    int64_t n;

    observe(&stays, l, false, false);
    observe(&moves, l, true, l->is_scaled);
    n = stays.n_out * stays.k_in;
    printf("%s site %d: W D %.1e and %.1e apart, R %.1e, streams %.1e and %.1e; they are %.1e of "
           "each other\n", l->arch, (int)l->site, distance(moves.wd[0], stays.wd[0], n),
           distance(moves.wd[1], stays.wd[1], n), distance(moves.r[0], stays.r[0], n),
           rows_apart(moves.x, stays.x, SEQS * LEN * 128),
           rows_apart(moves.x0, stays.x0, SEQS * LEN * 128),
           rows_apart(stays.x, stays.x0, SEQS * LEN * 128));
    assert_int_equal(moves.is_weighed, l->has_products || stays.is_weighed);
    assert_int_equal(moves.stats.site[l->site].n_tokens, stays.stats.site[l->site].n_tokens);
    for (int i = 0; i < 2; i++) {
        /* W x0 is rounded to BF16, of some thousand tokens */
        assert_true(distance(moves.wd[i], stays.wd[i], n) < 0.03);
        assert_true(distance(moves.r[i], stays.r[i], n) < 1e-6);
    }
    assert_true(rows_apart(moves.x, stays.x, SEQS * LEN * 128) < 1e-6);
    assert_true(rows_apart(moves.x0, stays.x0, SEQS * LEN * 128) < 1e-6);
    assert_true(rows_apart(stays.x, stays.x0, SEQS * LEN * 128) > 1e-3);
    seen_free(&stays);
    seen_free(&moves);
}

/* All of them, or where a tool follows every access this one. */
static void check_looks(const look *looks, size_t n, size_t followed)
{
    for (size_t i = 0; i < n; i++)
        if (!DEVICE_IS_FOLLOWED || i == followed) check_look(&looks[i]);
}

static void original_moves_while_it_is_seen(void **state)
{
    static const look looks[] = {
        {"llama", SW_SITE_O_IN, SW_SLOT_O, SW_HALF_ATTENTION, true, false},
        {"llama", SW_SITE_DOWN_IN, SW_SLOT_DOWN, SW_HALF_MLP, true, false},
        /* a norm comes after it */
        {"gemma2", SW_SITE_O_IN, SW_SLOT_O, SW_HALF_ATTENTION, false, false},
        {"gemma2", SW_SITE_DOWN_IN, SW_SLOT_DOWN, SW_HALF_MLP, false, false},
    };

    (void)state;
    check_looks(looks, sizeof looks / sizeof *looks, 0);
}

static void scales_are_divided_out(void **state)
{
    static const look looks[] = {
        {"llama", SW_SITE_O_IN, SW_SLOT_O, SW_HALF_ATTENTION, true, true},
        {"llama", SW_SITE_DOWN_IN, SW_SLOT_DOWN, SW_HALF_MLP, true, true},
        {"gemma2", SW_SITE_O_IN, SW_SLOT_O, SW_HALF_ATTENTION, false, true},
        {"gemma2", SW_SITE_DOWN_IN, SW_SLOT_DOWN, SW_HALF_MLP, false, true},
    };

    (void)state;
    check_looks(looks, sizeof looks / sizeof *looks, 3);
}

/* Weights of some experts with other values; freed with the block. */
static void disturb_experts(sw_block *block, sw_slot slot, int64_t n_experts)
{
    const int part = (int)slot - SW_SLOT_GATE;

    for (int64_t e = 0; e < n_experts; e += 2) {
        sw_weight *w = &block->experts[part][e];
        const int64_t n = w->n_out * w->k_in;
        test_rng rng = {(uint64_t)(53 + e)};
        float *values = NULL;

        MUST(SW_ARENA_TAKE(&values, &block->arena, n, &err));
        MUST(sw_float_decode_n(values, w->dense, w->dense_dtype, n, &err));
        for (int64_t i = 0; i < n; i++) values[i] *= (float)(1 + 0.2 * test_gauss(&rng));
        w->dense = values;
        w->dense_dtype = SW_DTYPE_F32;
    }
}

/* The second half of a sparse block, its experts observed on the way. */
static void pass_experts(float *out[2], bool is_held)
{
    const sw_place at = {.backend = &sw_backend_cuda, .device = solver, .n_threads = 4};
    const bool wanted[SW_SITE_COUNT] = {[SW_SITE_DOWN_IN] = true};
    sw_block original = {0}, quantized = {0};
    uint32_t *ids = malloc(sizeof *ids * SEQS * LEN);
    test_rng rng = {19};
    const sw_model *m;
    sw_site_stats stats;
    sw_streams s = {0};
    const sw_cuda_streams *on;
    int64_t n_bytes;
    stats_case c;

    stats_case_open(&c, "qwen3_moe");
    m = &c.ckpt.model;
    for (int i = 0; i < SEQS * LEN; i++)
        ids[i] = (uint32_t)(test_uniform(&rng) * (double)m->vocab);
    c.calib = (sw_calib){ids, SEQS, LEN};
    MUST(sw_streams_new(&s, &at, m, c.ckpt.st, &c.calib, true, NULL, &err));
    on = s.own;
    MUST(sw_block_load(&original, m, c.ckpt.st, 1, &err));
    MUST(sw_block_load(&quantized, m, c.ckpt.st, 1, &err));
    MUST(sw_streams_advance(&s, &quantized, &original, SW_HALF_ATTENTION, NULL, &err));
    disturb_experts(&quantized, SW_SLOT_UP, m->n_experts);
    MUST(sw_site_stats_new_experts(&stats, m, 1, wanted, SW_EXPERTS_SHRINK, 0, m->n_experts, &at,
                                   &err));
    MUST(sw_streams_observe(&s, &stats, &quantized, &original, NULL, &err));
    assert_true(on->held && on->held_has_experts);
    disturb_experts(&quantized, SW_SLOT_DOWN, m->n_experts);
    if (is_held) sw_backend_cuda.streams_expect(&s, &original);
    else sw_streams_forget(&s);
    assert_int_equal(on->ahead != NULL, is_held);
    MUST(sw_streams_advance(&s, &quantized, &original, SW_HALF_BOTH, NULL, &err));
    n_bytes = SEQS * LEN * m->hidden * 4;
    out[0] = fetch(on->d_x, n_bytes);
    out[1] = fetch(on->d_x0, n_bytes);
    sw_site_stats_free(&stats);
    sw_block_free(&original);
    sw_block_free(&quantized);
    sw_streams_free(&s);
    stats_case_close(&c);
    free(ids);
}

static void held_experts_move_the_streams(void **state)
{
    float *held[2], *anew[2];

    (void)state;
    pass_experts(held, true);
    pass_experts(anew, false);
    for (int i = 0; i < 2; i++)
        assert_memory_equal(held[i], anew[i], sizeof **held * SEQS * LEN * 128);
    assert_memory_not_equal(held[0], held[1], sizeof **held * SEQS * LEN * 128);
    for (int i = 0; i < 2; i++) free(held[i]), free(anew[i]);
}

/* --- where they begin --- */

/* What the engine on the host makes of the tokens. */
static float *embedded(const stats_case *c)
{
    const int64_t n = c->calib.n_seqs * c->calib.seq_len;
    float *x = malloc(sizeof *x * (size_t)(n * c->ckpt.model.hidden));
    sw_engine *engine = NULL;
    sw_lm ends = {0};

    MUST(sw_engine_new(&engine, &c->ckpt.model, n, c->calib.seq_len, 2, &err));
    MUST(sw_lm_load_tables(&ends, &c->ckpt.model, c->ckpt.st, &err));
    MUST(sw_engine_embed(engine, &ends, x, c->calib.ids, c->calib.n_seqs, c->calib.seq_len, 0,
                         &err));
    sw_lm_free(&ends);
    sw_engine_free(engine);
    return x;
}

/* Both streams again, which hold something else before: by a look-up on the device, or not. */
static void begin_anew(bool *is_done, sw_streams *s, const stats_case *c, const uint32_t *ids)
{
    const sw_cuda_streams *on = s->own;
    const int64_t n_bytes = c->calib.n_seqs * c->calib.seq_len * c->ckpt.model.hidden * 4;
    sw_lm ends = {0};

    MUST(sw_device_fill(gpu, on->d_x, 0xff, n_bytes, &err));
    MUST(sw_device_fill(gpu, on->d_x0, 0xff, n_bytes, &err));
    MUST(sw_lm_load_tables(&ends, &c->ckpt.model, c->ckpt.st, &err));
    MUST(sw_backend_cuda.streams_embed(is_done, s, &ends, ids, &err));
    sw_lm_free(&ends);
}

static void check_begin(const sw_streams *s, const float *want, int64_t n_bytes)
{
    const sw_cuda_streams *on = s->own;
    float *have[] = {fetch(on->d_x, n_bytes), fetch(on->d_x0, n_bytes)};

    for (int i = 0; i < 2; i++) {
        assert_memory_equal(have[i], want, (size_t)n_bytes);
        free(have[i]);
    }
}

/* n_seqs windows of a model: those whose embedding is a look-up have it on the device, where the
 * table is less than the rows; all begin with the bytes of the engine on the host. */
static void begin(const char *arch, int64_t n_seqs, bool looks_up)
{
    const sw_place at = {.backend = &sw_backend_cuda, .device = solver, .n_threads = 2};
    uint32_t *ids = malloc(sizeof *ids * SEQS * LEN);
    bool is_done = !looks_up;
    sw_streams s = {0};
    test_rng rng = {29};
    sw_err refusal = {0};
    int64_t n_bytes;
    stats_case c;
    float *want;

    stats_case_open(&c, arch);
    for (int i = 0; i < SEQS * LEN; i++)
        ids[i] = (uint32_t)(test_uniform(&rng) * (double)c.ckpt.model.vocab);
    ids[1] = (uint32_t)c.ckpt.model.vocab - 1;
    c.calib = (sw_calib){ids, n_seqs, LEN};
    n_bytes = n_seqs * LEN * c.ckpt.model.hidden * 4;
    want = embedded(&c);
    MUST(sw_streams_new(&s, &at, &c.ckpt.model, c.ckpt.st, &c.calib, true, NULL, &err));
    check_begin(&s, want, n_bytes);
    begin_anew(&is_done, &s, &c, ids);
    assert_int_equal(is_done, looks_up);
    if (looks_up) check_begin(&s, want, n_bytes);
    ids[2] = (uint32_t)c.ckpt.model.vocab;
    begin_anew(&is_done, &s, &c, ids);
    assert_false(is_done);
    sw_streams_free(&s);
    assert_int_equal(sw_streams_new(&s, &at, &c.ckpt.model, c.ckpt.st, &c.calib, true, NULL,
                                    &refusal),
                     SW_E_FORMAT);
    stats_case_close(&c);
    free(want);
    free(ids);
}

static void streams_begin_with_rows_of_the_table(void **state)
{
    (void)state;
    begin("llama", SEQS, true);
    begin("gemma2", SEQS, true);  /* scaled */
    begin("opt", SEQS, false);    /* positions */
    begin("llama", 1, false);     /* fewer tokens than it takes */
}

static int open_all(void **state)
{
    (void)state;
    return solver_pair_open(&gpu, &solver);
}

static int close_all(void **state)
{
    (void)state;
    return solver_pair_close(gpu, solver);
}

int main(int argc, char *argv[])
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(scales_are_divided_out),
                                       cmocka_unit_test(original_moves_while_it_is_seen),
                                       cmocka_unit_test(held_experts_move_the_streams),
                                       cmocka_unit_test(streams_begin_with_rows_of_the_table)};

    if (sw_device_count() < 1) {
        printf("no CUDA device: nothing was tested\n");
        return 77;
    }
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, open_all, close_all);
}
