/* test_expert_sums.c - sums of experts over the pieces of a text: any number of ranks adds them to
 * the bits of one, each those of its own experts.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "tests/support/cases/ranks_case.h"
#include "tests/support/toys/random.h"

/* WIDE: more elements than move at a time. */
enum { FIRST_EXPERT = 3, WIDTH = 7, WIDE = 2053 };

typedef struct text {
    int64_t n_pieces, n_experts, width;
} text;

static void open_stats(sw_site_stats *stats, const text *t)
{
    sw_err err = {0};
    sw_code rc = SW_MEM_GET(&stats->experts, t->n_experts, "experts", &err);

    stats->n_experts = t->n_experts;
    stats->expert_begin = FIRST_EXPERT;
    for (int64_t e = 0; e < t->n_experts && rc == SW_OK; e++) {
        sw_expert_stats *x = &stats->experts[e];

        rc = sw_hessian_new(&x->in.half[0], t->width, false, 0, 1, &err);
        if (rc == SW_OK && t->width == WIDTH)
            rc = sw_hessian_new(&x->down.all, WIDTH - 2, false, 0, 1, &err);
    }
    if (rc != SW_OK) _exit(SW_E_NOMEM);
}

/* What a piece sees, with magnitudes so far apart that the order of a sum is in its bits; of some
 * sums nothing. */
static void fill(sw_site_stats *part, int64_t piece)
{
    for (int64_t i = 0; i < sw_site_stats_n_sums(part); i++) {
        sw_hessian *sum = sw_site_stats_sum(part, i);
        test_rng rng = {(uint64_t)(1000 * piece + i + 1)};

        if (!sum->k_in || (piece + i) % 3 == 1) continue;
        sum->n_tokens = piece + 1;
        for (int64_t j = 0; j < sum->k_in * sum->k_in; j++)
            sum->h[j] =
                (test_uniform(&rng) - 0.5) * (double)((int64_t)1 << (piece * 7 % 5 * 6));
    }
    for (int64_t e = 0; e < part->n_experts; e++) part->experts[e].n_tokens = e + piece;
}

static bool is_same(const sw_hessian *a, const sw_hessian *b)
{
    const size_t n = (size_t)(a->k_in * a->k_in);

    if (a->k_in != b->k_in || a->n_tokens != b->n_tokens) return false;
    return !n || !memcmp(a->h, b->h, n * sizeof *a->h);
}

/* At its owner; the others have dropped what they had of it. Counts are everywhere. */
static sw_code compare(sw_site_stats *have, sw_site_stats *want, const sw_team *team, sw_err *err)
{
    for (int64_t i = 0; i < sw_site_stats_n_sums(want); i++) {
        const int64_t expert = sw_site_stats_sum_expert(want, i);
        const sw_hessian none = {.k_in = 0};

        if (expert < 0) continue;
        if (!is_same(sw_site_stats_sum(have, i),
                     sw_sums_owner(expert, sw_team_size(team)) == sw_team_rank(team)
                         ? sw_site_stats_sum(want, i)
                         : &none))
            return SW_FAIL(err, SW_E_BUG, "sum %d differs", (int)i);
    }
    for (int64_t e = 0; e < want->n_experts; e++)
        if (have->experts[e].n_tokens != want->experts[e].n_tokens)
            return SW_FAIL(err, SW_E_BUG, "tokens of expert %d differ", (int)e);
    return SW_OK;
}

static sw_code work(sw_team *team, const void *ctx, sw_err *err)
{
    const text *t = ctx;
    const int rank = sw_team_rank(team), n_ranks = sw_team_size(team);
    sw_site_stats alone = {0}, shared = {0};
    sw_sums all = {.stats = &alone, .n_pieces = t->n_pieces};
    sw_sums own = {.stats = &shared, .n_pieces = t->n_pieces};
    sw_carrier carrier = {.team = team};
    sw_code rc;

    open_stats(&alone, t);
    open_stats(&shared, t);
    rc = pieces_sum(&all, 0, t->n_pieces, fill, err);
    if (rc == SW_OK)
        rc = pieces_sum(&own, sw_piece_of_rank(t->n_pieces, rank, n_ranks),
                        sw_piece_of_rank(t->n_pieces, rank + 1, n_ranks), fill, err);
    if (rc == SW_OK) rc = sw_sums_gather(&own, &carrier, err);
    if (rc == SW_OK) rc = compare(&shared, &alone, team, err);
    sw_carrier_end(&carrier, rc == SW_OK);
    sw_sums_free(&all);
    sw_sums_free(&own);
    sw_site_stats_free(&alone);
    sw_site_stats_free(&shared);
    return rc;
}

static void check(int n_ranks, const text *t)
{
    char what[64];

    (void)snprintf(what, sizeof what, "%d pieces", (int)t->n_pieces);
    ranks_check(n_ranks, work, t, what);
}

/* Also of more ranks than there are pieces, or experts. */
static void test_every_number_of_ranks(void **state)
{
    (void)state;
    for (int n_ranks = 1; n_ranks <= SW_PIECES_MAX + 1; n_ranks++)
        for (int64_t n_pieces = 1; n_pieces <= SW_PIECES_MAX; n_pieces++)
            check(n_ranks, &(text){n_pieces, 5, WIDTH});
}

static void test_slices(void **state)
{
    (void)state;
    check(2, &(text){2, 1, WIDE});
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_number_of_ranks),
                                       cmocka_unit_test(test_slices)};

    return cmocka_run_group_tests_name("sums of experts", tests, NULL, NULL);
}
