/* test_row_share.c - how rows of a site's linears are cut over ranks: all of them once, at
 * multiples of their units, and no rank with more than need be; and how far ranks can speed up the
 * solving of blocks of known sizes by it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "kernels/solver.h"
#include "quant/method/row_share.h"
#include "quant/method/slab.h"
#include "quant/stats/sums.h"

enum { LINEARS_MAX = 6 };

/* --- the rule --- */

/* All rows once, in order, cut at units; the longest stretch is what the cut says. */
static void check_cut(const sw_share_linear *linears, int64_t n, int n_ranks)
{
    const sw_site_share share = sw_site_share_of(linears, n, n_ranks);
    int64_t longest = 0;

    for (int64_t i = 0; i < n; i++) {
        int64_t at = 0;

        for (int rank = 0; rank < n_ranks; rank++) {
            const sw_rows rows = sw_site_share_rows(&share, i, rank);

            assert_true(rows.begin <= rows.end);
            if (rows.begin == rows.end) continue;
            assert_int_equal(rows.begin, at);
            assert_true(rows.end == linears[i].n_out || rows.end % linears[i].unit == 0);
            if (at == 0) assert_int_equal(sw_site_share_first(&share, i), rank);
            at = rows.end;
        }
        assert_int_equal(at, linears[i].n_out);
    }
    for (int rank = 0; rank < n_ranks; rank++) {
        int64_t own = 0;

        for (int64_t i = 0; i < n; i++) {
            const sw_rows rows = sw_site_share_rows(&share, i, rank);
            own += rows.end - rows.begin;
        }
        longest = own > longest ? own : longest;
    }
    assert_int_equal(longest, share.most);
}

static void test_all_rows_once(void **state)
{
    (void)state;
    for (int trial = 0; trial < 2000; trial++) {
        sw_share_linear linears[LINEARS_MAX];
        const int64_t n = 1 + trial % LINEARS_MAX;
        unsigned seed = (unsigned)trial * 2654435761u + 1;

        for (int64_t i = 0; i < n; i++) {
            seed = seed * 1664525u + 1013904223u;
            linears[i].n_out = seed >> 29 ? (seed >> 20) % 700 : 0; /* none of some */
            linears[i].unit = linears[i].n_out ? (int64_t[]){1, 64, 128, 1000}[seed >> 10 & 3] : 0;
        }
        for (int n_ranks = 1; n_ranks <= 9; n_ranks++) check_cut(linears, n, n_ranks);
    }
}

/* Every way to lay stretches of whole pieces: none has a shorter longest one than is chosen. */
static int64_t best_of(const int64_t *pieces, int n, int n_ranks)
{
    int64_t sum = 0, best = INT64_MAX;

    if (n_ranks == 1) {
        for (int i = 0; i < n; i++) sum += pieces[i];
        return sum;
    }
    for (int cut = 0; cut <= n; cut++) {
        int64_t rest = best_of(pieces + cut, n - cut, n_ranks - 1);

        rest = rest > sum ? rest : sum;
        best = rest < best ? rest : best;
        if (cut < n) sum += pieces[cut];
    }
    return best;
}

static void test_the_longest_is_the_shortest(void **state)
{
    static const sw_share_linear linears[] = {{300, 128}, {64, 64}, {500, 128}, {0, 64}, {90, 90}};
    static const int64_t pieces[] = {128, 128, 44, 64, 128, 128, 128, 116, 90};

    (void)state;
    for (int n_ranks = 1; n_ranks <= 6; n_ranks++) {
        const sw_site_share share = sw_site_share_of(linears, 5, n_ranks);
        const int64_t best = best_of(pieces, 9, n_ranks);

        assert_true(share.is_by_linear ? share.most <= best : share.most == best);
    }
}

/* Gates and ups: a part of both where that is as even, or else a stretch of both. */
static void test_linears_side_by_side(void **state)
{
    static const sw_share_linear even[] = {{14 * 1024, 1024}, {14 * 1024, 1024}};
    static const sw_share_linear keys[] = {{4096, 1024}, {1024, 1024}, {1024, 1024}};

    (void)state;
    for (int rank = 0; rank < 2; rank++) {
        const sw_site_share both = sw_site_share_of(even, 2, 2);
        const sw_site_share some = sw_site_share_of(keys, 3, 2);

        for (int i = 0; i < 2; i++) {
            const sw_rows rows = sw_site_share_rows(&both, i, rank);
            assert_int_equal(rows.begin, 7 * 1024 * rank);
            assert_int_equal(rows.end, 7 * 1024 * (rank + 1));
        }
        assert_int_equal(some.most, 3072);
        assert_int_equal(sw_site_share_rows(&some, 2, rank).end, rank == 1 ? 1024 : 0);
    }
}

/* --- what it is good for --- */

typedef struct site {
    int64_t k, rows[3];
    int64_t n_experts; /* that have the site each for itself, whole */
} site;

typedef struct block {
    const char *name;
    site sites[4];
} block;

static const block blocks[] = {
    {"8B", {{4096, {4096, 1024, 1024}, 0}, {4096, {4096}, 0}, {4096, {14336, 14336}, 0},
            {14336, {4096}, 0}}},
    {"70B", {{8192, {8192, 1024, 1024}, 0}, {8192, {8192}, 0}, {8192, {28672, 28672}, 0},
             {28672, {8192}, 0}}},
    {"30B-A3B", {{2048, {4096, 512, 512}, 0}, {4096, {2048}, 0}, {2048, {768, 768}, 128},
                 {768, {2048}, 128}}},
};

/* Work of rows, and of factors (a third of k^3), that lies in a row for n_ranks: sites wait for
 * each other, an expert has one owner, and what is not an expert's every rank factorizes. */
typedef struct work {
    double rows, factors;
} work;

static work work_of(const block *b, int n_ranks, int64_t unit)
{
    work sum = {0, 0};

    for (int s = 0; s < 4; s++) {
        const site *one = &b->sites[s];
        const double k = (double)one->k, times = (double)(one->n_experts ? one->n_experts : 1);
        sw_share_linear linears[3];
        sw_site_share share;
        double alone, most_experts = 0;

        for (int i = 0; i < 3; i++) linears[i] = (sw_share_linear){one->rows[i], unit};
        share = sw_site_share_of(linears, 3, one->n_experts ? 1 : n_ranks);
        alone = (double)share.most * k * k;
        for (int64_t e = 0; e < one->n_experts; e++) most_experts += sw_sums_owner(e, n_ranks) == 0;
        sum.rows += alone * (one->n_experts ? most_experts : 1);
        sum.factors += k * k * k / 3 * (one->n_experts ? most_experts : times);
    }
    return sum;
}

/* At least so many times as fast by 2, 4 and 8 ranks: rows alone, and with the factors. On a device
 * pieces are what one product has (solver.h): were they the 4096 rows that are worked on at a time,
 * the down projection of 8B, more than half of its rows' work, would be one, and 2 ranks 1.23 times
 * as fast as one. */
static const struct bound {
    int block;
    int64_t unit;
    double rows[3], all[3];
} bounds[] = {
    {0, SW_SLAB_ROWS, {2, 4, 8}, {1.42, 1.79, 2.06}},
    {1, SW_SLAB_ROWS, {2, 4, 8}, {1.41, 1.78, 2.05}},
    {2, SW_SLAB_ROWS, {2, 4, 8}, {1.96, 3.80, 7.11}},
    {0, SW_SOLVER_PRODUCT_ROWS, {2, 3.91, 4.77}, {1.42, 1.78, 1.87}},
    {1, SW_SOLVER_PRODUCT_ROWS, {2, 3.95, 7.73}, {1.41, 1.77, 2.04}},
    {2, SW_SOLVER_PRODUCT_ROWS, {1.99, 3.83, 7.19}, {1.96, 3.68, 6.64}},
};

static void test_blocks_of_known_sizes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++) {
        const struct bound *want = &bounds[i];
        const block *b = &blocks[want->block];
        const work one = work_of(b, 1, want->unit);

        for (int e = 0; e < 3; e++) {
            const int n_ranks = 2 << e;
            const work have = work_of(b, n_ranks, want->unit);
            const double rows = one.rows / have.rows;
            const double all = (one.rows + one.factors) / (have.rows + have.factors);

            print_message("%-8s unit %4d, %d ranks: rows %.2f, with factors %.2f times as fast\n",
                          b->name, (int)want->unit, n_ranks, rows, all);
            if (rows < want->rows[e] - 0.005 || all < want->all[e] - 0.005)
                fail_msg("%s by %d ranks: %.3f and %.3f, want %.3f and %.3f", b->name, n_ranks,
                         rows, all, want->rows[e], want->all[e]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_rows_once),
        cmocka_unit_test(test_the_longest_is_the_shortest),
        cmocka_unit_test(test_linears_side_by_side),
        cmocka_unit_test(test_blocks_of_known_sizes),
    };

    return cmocka_run_group_tests_name("rows of ranks", tests, NULL, NULL);
}
