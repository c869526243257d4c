/* test_followed.c - which windows the original model is followed through, and what becomes of
 * the sums of those alone. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "quant/backend/cpu/cpu.h"
#include "quant/stats/streams.h"
#include "tests/support/cases/stats_case.h"
#include "tests/support/toys/random.h"

enum { LEN = 64, CHUNK = SW_STREAM_CHUNK_TOKENS / LEN, SEQS = 16 * CHUNK };

static const sw_place memory = {.backend = &sw_backend_cpu, .n_threads = 2};

static void test_a_long_text_is_halved(void **state)
{
    const int64_t half = SW_FOLLOW_HALF_TOKENS;

    (void)state;
    assert_int_equal(sw_follow_settled(SW_FOLLOW_AUTO, half, 256), SW_FOLLOW_HALF);
    assert_int_equal(sw_follow_settled(SW_FOLLOW_AUTO, half - 1, 256), SW_FOLLOW_ALL);
    assert_int_equal(sw_follow_settled(SW_FOLLOW_ALL, half, 256), SW_FOLLOW_ALL);
    assert_int_equal(sw_follow_settled(SW_FOLLOW_HALF, 16 * 4096, 16), SW_FOLLOW_HALF);
    assert_int_equal(sw_follow_settled(SW_FOLLOW_HALF, 16 * 4096, 15), SW_FOLLOW_ALL);
    assert_int_equal(sw_follow_settled(SW_FOLLOW_NONE, half, 256), SW_FOLLOW_NONE);
}

/* Of any text about half is followed, an eighth of that is kept back, and every rank of two and
 * four has its share. */
static void test_half_is_half(void **state)
{
    (void)state;
    for (int64_t n_chunks = SW_FOLLOW_HALF_CHUNKS; n_chunks < 300; n_chunks++)
        for (int64_t n_pieces = 2; n_pieces <= SW_PIECES_MAX; n_pieces *= 2) {
            const sw_text_cut cut = {n_chunks, n_pieces, SW_FOLLOW_HALF};
            int64_t n = 0, n_held = 0, of_rank[2] = {0, 0};

            for (int64_t c = 0; c < n_chunks; c++) {
                assert_int_equal(sw_followed_before(&cut, c), n);
                assert_true(sw_is_followed(&cut, c) || !sw_is_held(&cut, c));
                n += sw_is_followed(&cut, c);
                n_held += sw_is_held(&cut, c);
                of_rank[c >= sw_piece_chunk(n_chunks, n_pieces, n_pieces / 2)] +=
                    sw_is_followed(&cut, c);
            }
            assert_in_range(2 * n, n_chunks - n_pieces, n_chunks + n_pieces);
            assert_int_equal(n_held, n / SW_HELD_EVERY);
            assert_true(n_held > 0);
            assert_true(llabs(of_rank[0] - of_rank[1]) <= n_pieces / 2);
        }
}

/* What was kept back before there was a choice. */
static void test_all_keeps_every_eighth(void **state)
{
    (void)state;
    for (int64_t n_chunks = 1; n_chunks < 40; n_chunks++) {
        const sw_text_cut all = {n_chunks, n_chunks < 8 ? n_chunks : 8, SW_FOLLOW_ALL};
        const sw_text_cut none = {n_chunks, all.n_pieces, SW_FOLLOW_NONE};

        for (int64_t c = 0; c < n_chunks; c++) {
            assert_true(sw_is_followed(&all, c));
            assert_int_equal(sw_is_held(&all, c),
                             n_chunks < 8 ? n_chunks > 1 && c == n_chunks - 1 : c % 8 == 7);
            assert_false(sw_is_followed(&none, c) || sw_is_held(&none, c));
        }
    }
}

/* Every window twice, once in a piece that is followed and once in the next, which is not. */
static uint32_t *doubled_text(int64_t vocab)
{
    uint32_t *ids = malloc(sizeof *ids * SEQS * LEN);
    const int64_t piece = SEQS / SW_PIECES_MAX * LEN;
    test_rng rng = {3};

    for (int64_t i = 0; i < SEQS * LEN; i++)
        ids[i] = i / piece % 2 ? ids[i - piece]
                               : (uint32_t)(test_uniform(&rng) * (double)vocab);
    return ids;
}

typedef struct observed {
    sw_site_stats stats;
    float *x0; /* where the original stream is in the end */
} observed;

/* Sums of the inputs of O in the first block, whose V and O are quantized coarsely. */
static observed observe(const stats_case *t, const sw_calib *calib, sw_follow follow)
{
    bool wanted[SW_SITE_COUNT] = {[SW_SITE_O_IN] = true};
    const sw_model *m = &t->ckpt.model;
    const int64_t n = SEQS * LEN * m->hidden;
    sw_block original = {0}, quantized = {0};
    sw_streams s = {0};
    observed o = {.x0 = malloc(sizeof(float) * (size_t)n)};
    sw_err err = {0};
    sw_weight *v;
    float *values;

    assert_int_equal(sw_streams_new(&s, &memory, m, t->ckpt.st, calib, follow, NULL, &err), SW_OK);
    assert_int_equal(sw_block_load(&original, m, t->ckpt.st, 0, &err), SW_OK);
    assert_int_equal(sw_block_load(&quantized, m, t->ckpt.st, 0, &err), SW_OK);
    v = sw_block_weight(&quantized, SW_SLOT_V, -1);
    values = malloc(sizeof *values * (size_t)(v->n_out * v->k_in));
    assert_int_equal(sw_float_decode_n(values, v->dense, v->dense_dtype, v->n_out * v->k_in, &err),
                     SW_OK);
    for (int64_t i = 0; i < v->n_out * v->k_in; i++) values[i] = roundf(values[i] * 64) / 64;
    v->dense = values;
    v->dense_dtype = SW_DTYPE_F32;
    assert_int_equal(sw_site_stats_new(&o.stats, m, 0, wanted, true, SW_EXPERTS_COUNT, &memory,
                                       &err), SW_OK);
    assert_int_equal(sw_streams_observe(&s, &o.stats, &quantized, &original, NULL, &err), SW_OK);
    assert_int_equal(sw_streams_advance(&s, &quantized, &original, SW_HALF_BOTH, NULL, &err),
                     SW_OK);
    memcpy(o.x0, ((const sw_cpu_streams *)s.own)->x0, sizeof(float) * (size_t)n);
    free(values);
    sw_block_free(&original);
    sw_block_free(&quantized);
    sw_streams_free(&s);
    return o;
}

/* Of a text whose second half repeats the first the sums of D are half, those of H are whole. */
static void test_sums_of_half_a_text(void **state)
{
    stats_case t;
    sw_calib calib = {NULL, SEQS, LEN};
    observed all, half;
    uint32_t *ids;

    (void)state;
    stats_case_open(&t, "llama");
    calib.ids = ids = doubled_text(t.ckpt.model.vocab);
    all = observe(&t, &calib, SW_FOLLOW_ALL);
    half = observe(&t, &calib, SW_FOLLOW_HALF);
    {
        const sw_hessian *a = &all.stats.site[SW_SITE_O_IN], *b = &half.stats.site[SW_SITE_O_IN];
        const sw_hessian *c = &all.stats.held[SW_SITE_O_IN], *d = &half.stats.held[SW_SITE_O_IN];
        double size = 0;

        assert_int_equal(b->n_tokens + d->n_tokens, SEQS * LEN);
        assert_int_equal(b->n_cross_tokens + d->n_cross_tokens, SEQS * LEN / 2);
        assert_int_equal(d->n_cross_tokens, d->n_tokens);
        assert_int_equal(a->n_cross_tokens, a->n_tokens);
        for (int64_t i = 0; i < a->k_in * a->k_in; i++) {
            const double h = a->h[i] + c->h[i], cross = a->d[i] + c->d[i];

            size += fabs(cross);
            assert_true(fabs(b->h[i] + d->h[i] - h) < 1e-4 * (1 + fabs(h)));
            assert_true(fabs(2 * (b->d[i] + d->d[i]) - cross) < 1e-4 * (1 + fabs(cross)));
        }
        assert_true(size > 1); /* there is something to be repaired */
        for (int64_t i = 0; i < a->n_out_residual * a->k_in; i++)
            assert_true(fabs(2 * (b->r[i] + d->r[i]) - (a->r[i] + c->r[i])) < 1e-4);
    }
    /* the original stream moved in the first piece and stayed behind in the second */
    {
        const int64_t piece = SEQS / SW_PIECES_MAX * LEN * t.ckpt.model.hidden;

        assert_memory_equal(all.x0, half.x0, sizeof(float) * (size_t)piece);
        assert_memory_not_equal(all.x0 + piece, half.x0 + piece, sizeof(float) * (size_t)piece);
    }
    sw_site_stats_free(&all.stats);
    sw_site_stats_free(&half.stats);
    free(all.x0);
    free(half.x0);
    free(ids);
    stats_case_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_long_text_is_halved),
        cmocka_unit_test(test_half_is_half),
        cmocka_unit_test(test_all_keeps_every_eighth),
        cmocka_unit_test(test_sums_of_half_a_text),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
