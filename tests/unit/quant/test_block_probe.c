/* test_block_probe.c - windows of searches by pieces of the text: what each rank runs and in which
 * batches, and that any number of ranks ends with the figures of one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "quant/search/block_probe.h"
#include "tests/support/cases/ranks_case.h"
#include "tests/support/toys/random.h"

enum { TEXT = 43, LEN = 512, CHUNK = 8, PIECES = 5, K = 6, EXPERTS = 3, ROWS = 100 };

#define CHECK(condition)                                                    \
    do {                                                                    \
        if (!(condition)) {                                                 \
            (void)fprintf(stderr, "line %d: %s\n", __LINE__, #condition);   \
            return SW_E_BUG;                                                \
        }                                                                   \
    } while (0)
#define TRY(call)                         \
    do {                                  \
        sw_code tried = (call);           \
        if (tried != SW_OK) return tried; \
    } while (0)

/* --- a backend that runs no block: what it sees is a function of the piece --- */

/* Sums of such numbers depend on their order. */
static float value_of(int64_t piece, int64_t i)
{
    test_rng rng = {(uint64_t)(1000 * piece + i + 1)};

    return (float)test_gauss(&rng) * (i % 3 ? 1e-3f : 1e3f);
}

static int64_t rows_of_piece(int64_t piece) { return piece == 3 ? 0 : 4 + piece; }

static sw_code add_piece(sw_site_stats *stats, int64_t piece, sw_err *err)
{
    float x[16 * K];

    for (int64_t e = -1; e < EXPERTS; e++) {
        const sw_site site = e < 0 ? SW_SITE_MLP_IN : SW_SITE_DOWN_IN;
        const int64_t n = e == 1 && piece > 0 ? 0 : rows_of_piece(piece); /* 1 is rare */
        sw_hessian *sum = sw_block_probe_sum(stats, site, e);

        CHECK(sum && !sw_block_probe_sum(stats, SW_SITE_ATTN_IN, e));
        for (int64_t i = 0; i < n * K; i++) x[i] = value_of(piece, i + 100 * e);
        if (n) TRY(sw_hessian_add(sum, x, NULL, NULL, n, err));
    }
    return SW_OK;
}

static sw_code see_hessians(sw_sums *sums, const sw_block_probe *probe, sw_block_probe_part part,
                            const sw_block *block, sw_site site, sw_err *err)
{
    (void)part;
    (void)block;
    (void)site;
    for (int64_t piece = probe->here.begin; piece < probe->here.end; piece++) {
        sw_site_stats *stats = NULL;

        TRY(sw_sums_begin(&stats, sums, piece, err));
        TRY(add_piece(stats, piece, err));
        TRY(sw_site_stats_settle(stats, err));
        TRY(sw_sums_end(sums, err));
    }
    return SW_OK;
}

static sw_code see_rows(sw_probe_rows *rows, const sw_block_probe *probe, sw_block_probe_part part,
                        const sw_block *block, sw_err *err)
{
    (void)block;
    (void)err;
    for (int64_t piece = probe->here.begin; piece < probe->here.end; piece++) {
        sw_probe_rows_begin(rows, probe, part, piece);
        CHECK(rows->n_until - rows->n_rows >= rows_of_piece(piece));
        rows->n_rows += rows_of_piece(piece);
        sw_probe_rows_end(rows, piece);
        for (int64_t j = 0; j < rows->k; j++) {
            const float size = value_of(piece, j);
            if (size > rows->amax[j]) rows->amax[j] = size;
        }
    }
    return SW_OK;
}

static sw_backend backend;

/* Streams of a text of which a rank has some pieces; no window of them is ever run. */
static sw_streams streams_of(sw_team *team)
{
    sw_streams s = {.n_text_seqs = TEXT, .seq_len = LEN, .chunk_seqs = CHUNK, .n_pieces = PIECES,
                    .carrier = {.team = team}, .place = {.n_threads = 1}};
    const sw_piece_run here = sw_streams_pieces(&s, sw_team_rank(team));

    backend = sw_backend_cpu;
    backend.probe_hessians = see_hessians;
    backend.probe_rows = see_rows;
    s.place.backend = &backend;
    s.first_seq = sw_streams_piece_seq(&s, here.begin);
    s.n_seqs = sw_streams_piece_seq(&s, here.end) - s.first_seq;
    return s;
}

/* --- what each rank finds, against one rank --- */

static sw_code stats_new(sw_site_stats *stats, const sw_place *at, sw_err *err)
{
    memset(stats, 0, sizeof *stats);
    stats->is_wanted[SW_SITE_MLP_IN] = stats->is_wanted[SW_SITE_DOWN_IN] = true;
    TRY(sw_hessian_new_at(&stats->site[SW_SITE_MLP_IN], at, K, false, 0, err));
    TRY(SW_MEM_GET(&stats->experts, EXPERTS, "experts", err));
    stats->n_experts = EXPERTS;
    for (int e = 0; e < EXPERTS; e++)
        TRY(sw_hessian_new_at(&stats->experts[e].down.all, at, K, false, 0, err));
    return SW_OK;
}

static sw_code same_sums(sw_site_stats *a, sw_site_stats *b)
{
    for (int64_t e = -1; e < EXPERTS; e++) {
        const sw_site site = e < 0 ? SW_SITE_MLP_IN : SW_SITE_DOWN_IN;
        const sw_hessian *x = sw_block_probe_sum(a, site, e), *y = sw_block_probe_sum(b, site, e);

        CHECK(x->n_tokens == y->n_tokens && x->n_tokens > 0);
        CHECK(memcmp(x->h, y->h, sizeof *x->h * K * K) == 0);
    }
    return SW_OK;
}

static sw_code find_sums(sw_site_stats *stats, sw_team *team, sw_err *err)
{
    sw_streams s = streams_of(team);
    sw_block_probe p;

    TRY(stats_new(stats, &s.place, err));
    TRY(sw_block_probe_new(&p, &s, err));
    TRY(sw_block_probe_hessians(stats, &p, SW_BLOCK_PROBE_SEARCH, NULL, SW_SITE_DOWN_IN, err));
    sw_block_probe_free(&p);
    return SW_OK;
}

static sw_code sums_are_those_of_one(sw_team *team, sw_err *err)
{
    sw_site_stats one, many;

    TRY(find_sums(&one, NULL, err));
    TRY(find_sums(&many, team, err));
    TRY(same_sums(&one, &many));
    sw_site_stats_free(&one);
    sw_site_stats_free(&many);
    return SW_OK;
}

/* Every window of a part is at one rank, where its place in the text says. */
static sw_code windows_are_cut(sw_team *team, sw_err *err)
{
    sw_streams s = streams_of(team), whole = streams_of(NULL);
    sw_block_probe p, all;

    TRY(sw_block_probe_new(&p, &s, err));
    TRY(sw_block_probe_new(&all, &whole, err));
    for (int i = 0; i < SW_BLOCK_PROBE_PARTS; i++) {
        const sw_block_probe_part part = (sw_block_probe_part)i;
        const int64_t first = sw_block_probe_tokens_before(&p, part) / LEN;
        double figures[TEXT * LEN] = {0};

        CHECK(sw_block_probe_windows(&p, part) == all.n_here[part] && all.n_here[part] > 0);
        for (int64_t at = 0; at < p.n_here[part]; at++) {
            CHECK(p.seqs[part][at] >= 0 && p.seqs[part][at] < s.n_seqs);
            CHECK(p.seqs[part][at] + s.first_seq == all.seqs[part][first + at]);
        }
        for (int64_t t = 0; t < sw_block_probe_tokens_here(&p, part); t++)
            figures[first * LEN + t] = (double)(first * LEN + t + 1);
        TRY(sw_block_probe_gather(figures, &p, part, err));
        for (int64_t t = 0; t < sw_block_probe_tokens(&p, part); t++)
            CHECK(figures[t] == (double)(t + 1));
    }
    sw_block_probe_free(&p);
    sw_block_probe_free(&all);
    return SW_OK;
}

static sw_code rows_are_put_together(sw_team *team, sw_err *err)
{
    sw_streams s = streams_of(team);
    float amax[K] = {0};
    sw_probe_rows rows = {.k = K, .every = 1, .n_max = ROWS, .amax = amax};
    double figures[ROWS] = {0};
    int64_t n = 0;
    sw_block_probe p;

    TRY(sw_block_probe_new(&p, &s, err));
    TRY(sw_block_probe_rows(&rows, &p, SW_BLOCK_PROBE_SEARCH, NULL, err));
    for (int64_t piece = 0; piece < PIECES; piece++) {
        CHECK(rows.of_piece[piece] == rows_of_piece(piece));
        CHECK(sw_probe_rows_before(&rows, piece) == n);
        for (int64_t i = 0; i < rows_of_piece(piece); i++, n++)
            if (piece >= p.here.begin && piece < p.here.end) figures[n] = (double)(n + 1);
        for (int64_t j = 0; j < K; j++) CHECK(amax[j] >= value_of(piece, j));
    }
    CHECK(sw_probe_rows_before(&rows, SW_PIECES_MAX) == n);
    TRY(sw_probe_rows_gather(figures, &rows, &p, err));
    for (int64_t i = 0; i < n; i++) CHECK(figures[i] == (double)(i + 1));
    sw_block_probe_free(&p);
    return SW_OK;
}

/* --- ranks --- */

static sw_code work(sw_team *team, const void *ctx, sw_err *err)
{
    sw_code rc = windows_are_cut(team, err);

    (void)ctx;
    if (rc == SW_OK) rc = rows_are_put_together(team, err);
    return rc == SW_OK ? sums_are_those_of_one(team, err) : rc;
}

static void test_any_number_of_ranks(void **state)
{
    static const int n_ranks[] = {1, 2, 3, 5, 7};

    (void)state;
    for (size_t i = 0; i < sizeof n_ranks / sizeof *n_ranks; i++)
        ranks_check(n_ranks[i], work, NULL, "probes");
}

/* --- batches and shares, on one rank --- */

static void test_no_batch_mixes_pieces(void **state)
{
    sw_streams s = streams_of(NULL);
    sw_block_probe p;
    sw_err err = {0};

    (void)state;
    assert_int_equal(sw_block_probe_new(&p, &s, &err), SW_OK);
    for (int i = 0; i < SW_BLOCK_PROBE_PARTS; i++) {
        const sw_block_probe_part part = (sw_block_probe_part)i;
        int64_t n = 0;

        for (int64_t at = 0; at < p.n_here[part]; at += n) {
            n = sw_block_probe_batch(&p, part, at);
            assert_in_range(n, 1, CHUNK);
            assert_true(p.seqs[part][at + n - 1] < sw_streams_piece_end(&s, p.seqs[part][at]));
        }
    }
    /* windows 7, 15, 23, 31 and 39; the last piece begins with window 32 */
    assert_int_equal(p.before[SW_BLOCK_PROBE_HELD][PIECES], 5);
    assert_int_equal(p.before[SW_BLOCK_PROBE_HELD][4], 4);
    sw_block_probe_free(&p);
}

static void test_rows_by_share(void **state)
{
    sw_streams s = streams_of(NULL);
    sw_probe_rows rows = {.k = K, .every = 1, .n_max = ROWS};
    sw_block_probe p;
    sw_err err = {0};

    (void)state;
    assert_int_equal(sw_block_probe_new(&p, &s, &err), SW_OK);
    for (int64_t piece = 0; piece < PIECES; piece++) {
        const int64_t *before = p.before[SW_BLOCK_PROBE_SEARCH];
        const int64_t n = before[piece + 1] - before[piece];

        sw_probe_rows_begin(&rows, &p, SW_BLOCK_PROBE_SEARCH, piece);
        assert_in_range(rows.n_until - rows.n_rows, ROWS * n / before[PIECES],
                        ROWS * n / before[PIECES] + 1);
        rows.n_rows = rows.n_until;
        sw_probe_rows_end(&rows, piece);
    }
    assert_int_equal(rows.n_rows, ROWS); /* all of them, and no more */
    assert_int_equal(sw_probe_rows_before(&rows, PIECES), ROWS);
    sw_block_probe_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_number_of_ranks),
        cmocka_unit_test(test_no_batch_mixes_pieces),
        cmocka_unit_test(test_rows_by_share),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
