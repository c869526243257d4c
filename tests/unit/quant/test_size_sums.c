/* test_size_sums.c - sizes of channels over the pieces of a text: any number of ranks adds them to
 * the bits of one, and those who are to have them do.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "quant/stats/size_sums.h"
#include "tests/support/cases/ranks_case.h"
#include "tests/support/toys/random.h"

enum { N_PIECES = 8, N_EXPERTS = 5, WIDTH = 37, SITE = 2, FIRST_EXPERT = 3 };

static void open_stats(sw_site_stats *stats)
{
    sw_err err = {0};
    sw_code rc = sw_channels_new(&stats->sizes[SITE], WIDTH, &err);

    if (rc == SW_OK) rc = SW_MEM_GET(&stats->experts, N_EXPERTS, "experts", &err);
    stats->n_experts = rc == SW_OK ? N_EXPERTS : 0;
    stats->expert_begin = FIRST_EXPERT;
    for (int e = 0; e < N_EXPERTS && rc == SW_OK; e++)
        rc = sw_channels_new(e % 2 ? &stats->experts[e].in.sizes : &stats->experts[e].down.sizes,
                             WIDTH, &err);
    if (rc != SW_OK) _exit(SW_E_NOMEM);
}

/* What a piece sees, with magnitudes so far apart that the order of a sum is in its bits. */
static void fill(sw_site_stats *part, int64_t piece)
{
    for (int64_t i = 0; i < sw_site_stats_n_sizes(part); i++) {
        sw_channels *c = sw_site_stats_sizes(part, i);
        test_rng rng = {(uint64_t)(100 * piece + i + 1)};

        for (int64_t j = 0; j < c->k_in; j++) {
            c->abs_max[j] = (float)test_uniform(&rng);
            c->abs_sum[j] = test_uniform(&rng) * (double)(1 << (piece * 7 % 5 * 6));
        }
        c->n_tokens = c->k_in ? piece + 1 : 0;
    }
}

static bool is_same(const sw_channels *a, const sw_channels *b)
{
    const size_t n = (size_t)a->k_in;

    if (a->k_in != b->k_in || a->n_tokens != b->n_tokens) return false;
    return !n || (!memcmp(a->abs_max, b->abs_max, n * sizeof *a->abs_max) &&
                  !memcmp(a->abs_sum, b->abs_sum, n * sizeof *a->abs_sum));
}

/* Those of a site everywhere, those of an expert at its owner. */
static sw_code compare(sw_site_stats *have, sw_site_stats *want, const sw_team *team, sw_err *err)
{
    for (int64_t i = 0; i < sw_site_stats_n_sizes(want); i++) {
        const int64_t expert = sw_site_stats_sizes_expert(want, i);
        if (expert >= 0 && sw_sums_owner(expert, sw_team_size(team)) != sw_team_rank(team))
            continue;
        if (!is_same(sw_site_stats_sizes(have, i), sw_site_stats_sizes(want, i)))
            return SW_FAIL(err, SW_E_BUG, "sizes %d differ", (int)i);
    }
    return SW_OK;
}

static sw_code work(sw_team *team, const void *ctx, sw_err *err)
{
    const int rank = sw_team_rank(team), n_ranks = sw_team_size(team);
    sw_site_stats alone = {0}, shared = {0};
    sw_sums all = {.stats = &alone, .n_pieces = N_PIECES};
    sw_sums own = {.stats = &shared, .n_pieces = N_PIECES};
    sw_code rc;

    (void)ctx;
    open_stats(&alone);
    open_stats(&shared);
    rc = pieces_sum(&all, 0, N_PIECES, fill, err);
    if (rc == SW_OK)
        rc = pieces_sum(&own, sw_piece_of_rank(N_PIECES, rank, n_ranks),
                        sw_piece_of_rank(N_PIECES, rank + 1, n_ranks), fill, err);
    if (rc == SW_OK) rc = sw_sizes_gather(&own, team, err);
    if (rc == SW_OK) rc = compare(&shared, &alone, team, err);
    sw_sums_free(&all);
    sw_sums_free(&own);
    sw_site_stats_free(&alone);
    sw_site_stats_free(&shared);
    return rc;
}

/* Also of more ranks than there are pieces. */
static void test_every_number_of_ranks(void **state)
{
    (void)state;
    for (int n_ranks = 1; n_ranks <= N_PIECES + 1; n_ranks++)
        ranks_check(n_ranks, work, NULL, "sizes");
}

static void test_which_sizes_there_are(void **state)
{
    sw_site_stats stats = {0};

    (void)state;
    open_stats(&stats);
    assert_int_equal(sw_site_stats_n_sizes(&stats), SW_SITE_COUNT + 2 * N_EXPERTS);
    assert_int_equal(sw_site_stats_sizes_expert(&stats, SITE), -1);
    assert_int_equal(sw_site_stats_sizes_expert(&stats, SW_SITE_COUNT + 3), FIRST_EXPERT + 1);
    assert_ptr_equal(sw_site_stats_sizes(&stats, SITE), &stats.sizes[SITE]);
    assert_ptr_equal(sw_site_stats_sizes(&stats, SW_SITE_COUNT + 2), &stats.experts[1].in.sizes);
    assert_ptr_equal(sw_site_stats_sizes(&stats, SW_SITE_COUNT + 3), &stats.experts[1].down.sizes);
    sw_site_stats_free(&stats);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_which_sizes_there_are),
        cmocka_unit_test(test_every_number_of_ranks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
