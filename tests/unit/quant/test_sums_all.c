/* test_sums_all.c - a sum that every rank gets: any number of ranks adds the pieces of a text to
 * the bits of one, and all of them have it, also those that saw nothing of the text.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "tests/support/cases/ranks_case.h"
#include "tests/support/toys/random.h"

enum { WIDTH = 13, N_OUT = 5 };

/* Runs of a rank, or of a text that is in one place. */
typedef struct runs {
    sw_hessian sums[SW_PIECES_MAX + 1];
    sw_piece_run runs[SW_PIECES_MAX + 1];
    int n;
} runs;

static void fill_array(double *to, int64_t n, int64_t piece, uint64_t seed)
{
    test_rng rng = {seed};

    for (int64_t i = 0; i < n; i++)
        to[i] = (test_uniform(&rng) - 0.5) * (double)((int64_t)1 << (piece * 7 % 5 * 6));
}

/* What a piece sees, with magnitudes so far apart that the order of a sum is in its bits; every
 * third piece nothing. */
static void fill(sw_hessian *sum, int64_t piece)
{
    const uint64_t seed = (uint64_t)(10 * piece + 1);

    if (piece % 3 == 1) return;
    sum->n_tokens = piece + 1;
    fill_array(sum->h, WIDTH * WIDTH, piece, seed);
    fill_array(sum->d, WIDTH * WIDTH, piece, seed + 1);
    fill_array(sum->r, N_OUT * WIDTH, piece, seed + 2);
}

static sw_code add(sw_hessian *into, const sw_hessian *from, sw_err *err)
{
    sw_code rc = sw_hessian_merge_inputs(into, from, err);

    return rc == SW_OK ? sw_hessian_merge_cross(into, from, err) : rc;
}

/* As sums.c does it on one rank. */
static sw_code sum(runs *r, int64_t begin, int64_t end, int64_t n_pieces, sw_err *err)
{
    sw_code rc = SW_OK;

    for (int64_t piece = begin; piece < end && rc == SW_OK; piece++) {
        rc = sw_hessian_new(&r->sums[r->n], WIDTH, true, N_OUT, 1, err);
        if (rc != SW_OK) break;
        fill(&r->sums[r->n], piece);
        r->runs[r->n++] = (sw_piece_run){piece, piece + 1};
        while (rc == SW_OK && r->n > 1 &&
               sw_pieces_join(r->runs[r->n - 2], r->runs[r->n - 1], n_pieces)) {
            const int last = --r->n;

            rc = add(&r->sums[last - 1], &r->sums[last], err);
            r->runs[last - 1].end = r->runs[last].end;
            sw_hessian_free(&r->sums[last]);
        }
    }
    return rc;
}

static bool is_same(const sw_hessian *a, const sw_hessian *b)
{
    return a->n_tokens == b->n_tokens && !memcmp(a->h, b->h, 8 * WIDTH * WIDTH) &&
           !memcmp(a->d, b->d, 8 * WIDTH * WIDTH) && !memcmp(a->r, b->r, 8 * N_OUT * WIDTH);
}

/* The first of a rank's runs is the sum that it keeps; one without a run keeps an empty one. */
static sw_code work(sw_team *team, const void *ctx, sw_err *err)
{
    const int64_t n_pieces = *(const int64_t *)ctx;
    const int rank = sw_team_rank(team), n_ranks = sw_team_size(team);
    sw_carrier c = {.team = team};
    const sw_place memory = {.backend = &sw_backend_cpu, .n_threads = 1};
    sw_hessian *mine[SW_PIECES_MAX];
    runs alone = {.n = 0}, own = {.n = 0};
    sw_code rc = sum(&alone, 0, n_pieces, n_pieces, err);

    if (rc == SW_OK)
        rc = sum(&own, sw_piece_of_rank(n_pieces, rank, n_ranks),
                 sw_piece_of_rank(n_pieces, rank + 1, n_ranks), n_pieces, err);
    if (rc == SW_OK && !own.n) rc = sw_hessian_new(&own.sums[0], WIDTH, true, N_OUT, 1, err);
    if (rc == SW_OK) rc = sw_carrier_for(&c, &memory, err);
    for (int i = 0; i < own.n; i++) mine[i] = &own.sums[i];
    if (rc == SW_OK) rc = sw_sum_for_all(&own.sums[0], mine, own.n, n_pieces, &c, err);
    sw_carrier_end(&c, rc == SW_OK);
    if (rc == SW_OK && !is_same(&own.sums[0], &alone.sums[0]))
        rc = SW_FAIL(err, SW_E_BUG, "rank %d has another sum", rank);
    for (int i = 0; i <= SW_PIECES_MAX; i++) {
        if (alone.sums[i].k_in) sw_hessian_free(&alone.sums[i]);
        if (own.sums[i].k_in) sw_hessian_free(&own.sums[i]);
    }
    return rc;
}

static void check(int n_ranks, int64_t n_pieces)
{
    char what[64];

    (void)snprintf(what, sizeof what, "%d pieces", (int)n_pieces);
    ranks_check(n_ranks, work, &n_pieces, what);
}

/* Also of more ranks than there are pieces. */
static void test_every_number_of_ranks(void **state)
{
    (void)state;
    for (int n_ranks = 1; n_ranks <= SW_PIECES_MAX + 1; n_ranks++)
        for (int64_t n_pieces = 1; n_pieces <= SW_PIECES_MAX; n_pieces++)
            check(n_ranks, n_pieces);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_number_of_ranks)};

    return cmocka_run_group_tests_name("sums for all ranks", tests, NULL, NULL);
}
