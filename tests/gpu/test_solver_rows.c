/* test_solver_rows.c - rows of a weight get the same bytes whole, in halves, in pieces, in uneven
 * cuts, with memory for one piece at a time and in a lane: codes, scales, values and what each row
 * costs. Ranks cut weights so (quant/method/row_share.h). Exit 77 without a GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "kernels/solver_sizes.h"
#include "tests/gpu/support/emulated.h"
#include "tests/gpu/support/solver_case.h"
#include "tests/support/toys/random.h"

#define MUST(call) \
    do { sw_err err = {0}; if ((call) != SW_OK) fail_msg("%s: %s", #call, err.text); } while (0)

enum {
    PIECE = SW_SOLVER_PRODUCT_ROWS,
    ROWS = DEVICE_IS_EMULATED ? PIECE + 70 : 5 * PIECE + 300, /* a tail, and more than a chunk */
    N_CUTS = 4,
    N_ENDS = 7
};

/* Where ranks' stretches end, in rows; 0: no further one. */
static const int64_t cuts[N_CUTS][N_ENDS] = {
    {ROWS},
    {(ROWS / PIECE + 1) / 2 * PIECE, ROWS},                                       /* two ranks */
    {PIECE, 2 * PIECE, 3 * PIECE, 4 * PIECE, 5 * PIECE, ROWS},                    /* one each */
    {3 * PIECE, 4 * PIECE, ROWS}};                                                /* unevenly */

static sw_device *gpu;
static sw_solver *solver, *small; /* small: memory for as few rows as there may be */

static int open_all(void **state)
{
    (void)state;
    if (solver_pair_open(&gpu, &solver)) return -1;
    MUST(sw_solver_open(&small, gpu, 1, &err));
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    sw_solver_close(small);
    return solver_pair_close(gpu, solver);
}

static int64_t end_of(int cut, int i)
{
    return cuts[cut][i] < ROWS ? cuts[cut][i] : ROWS;
}

static double *doubles_new(int64_t n, double size, uint64_t seed)
{
    double *v = malloc(sizeof *v * (size_t)n);
    test_rng rng = {seed};

    for (int64_t i = 0; i < n; i++) v[i] = size * test_gauss(&rng);
    return v;
}

static double *doubles_sent(int64_t n, double size, uint64_t seed)
{
    double *v = doubles_new(n, size, seed), *d = NULL;

    MUST(sw_device_take((void **)&d, gpu, n, 8, "rows", &err));
    MUST(sw_device_upload(gpu, d, v, n * 8, &err));
    free(v);
    return d;
}

/* What a weight's way leaves, in memory. */
typedef struct result {
    sw_qtensor q;
    float *values;
    sw_device_sums *by_row;
} result;

static void result_free(result *r)
{
    sw_qtensor_free(&r->q);
    free(r->values), free(r->by_row);
}

/* Rows [begin, end) of q as a tensor; borrows. */
static sw_qtensor rows_of(const sw_qtensor *q, int64_t begin, int64_t end)
{
    sw_qtensor part = *q;

    part.n_out = end - begin;
    part.codes += begin * q->k_in;
    part.scales += begin * q->n_groups;
    if (part.zeros) part.zeros += begin * q->n_groups;
    return part;
}

/* Solve `whole` as its ranks would, one after the other. */
static result solve_cut(const sw_device_problem *whole, int cut, sw_solver *on)
{
    const int64_t k = whole->k_in;
    int64_t begin = 0;
    float *d_values = NULL;
    result r = {.values = malloc(4 * ROWS * (size_t)k), .by_row = calloc(ROWS, sizeof *r.by_row)};

    MUST(sw_qtensor_alloc(&r.q, &whole->spec, ROWS, k, &err));
    MUST(sw_device_take((void **)&d_values, gpu, ROWS * k, 4, "values", &err));
    for (int i = 0; begin < ROWS; i++) {
        const int64_t end = end_of(cut, i);
        sw_qtensor part = rows_of(&r.q, begin, end);
        sw_device_problem mine = *whole;
        sw_device_sums sums;

        mine.w += begin * k;
        mine.n_out = end - begin;
        if (mine.d_shift) mine.d_shift += begin * k;
        mine.d_values = d_values + begin * k;
        mine.by_row = r.by_row + begin;
        MUST(sw_solver_solve(&part, &sums, on, &mine, NULL, &err));
        begin = end;
    }
    MUST(sw_device_download(gpu, r.values, d_values, 4 * ROWS * k, &err));
    sw_device_put(gpu, d_values);
    return r;
}

static int64_t first_apart(const void *a, const void *b, int64_t n, int64_t row_bytes)
{
    for (int64_t row = 0; row < n; row++)
        if (memcmp((const char *)a + row * row_bytes, (const char *)b + row * row_bytes,
                   (size_t)row_bytes))
            return row;
    return -1;
}

static void assert_same(const result *have, const result *want, const char *how)
{
    const int64_t k = want->q.k_in, n_groups = want->q.n_groups;
    const struct {
        const char *what;
        int64_t row;
    } found[] = {
        {"codes", first_apart(have->q.codes, want->q.codes, ROWS, k)},
        {"scales", first_apart(have->q.scales, want->q.scales, ROWS, 4 * n_groups)},
        {"zeros", want->q.zeros ? first_apart(have->q.zeros, want->q.zeros, ROWS, n_groups) : -1},
        {"values", first_apart(have->values, want->values, ROWS, 4 * k)},
        {"figures", first_apart(have->by_row, want->by_row, ROWS,
                                (int64_t)sizeof *want->by_row)}};

    for (size_t i = 0; i < sizeof found / sizeof *found; i++)
        if (found[i].row >= 0)
            fail_msg("%s, %lld inputs: %s of row %lld are not those of the whole", how,
                     (long long)k, found[i].what, (long long)found[i].row);
}

static void check_solve(const sw_device_problem *whole)
{
    static const char *const names[N_CUTS] = {"whole", "two ranks", "piece by piece", "unevenly"};
    result want = solve_cut(whole, 0, solver), have;
    sw_solver *lane = NULL;

    for (int cut = 1; cut < (DEVICE_IS_EMULATED ? 2 : N_CUTS); cut++) {
        have = solve_cut(whole, cut, solver);
        assert_same(&have, &want, names[cut]);
        result_free(&have);
    }
    have = solve_cut(whole, 0, small);
    assert_same(&have, &want, "with little memory");
    result_free(&have);
    if (!DEVICE_IS_EMULATED) {
        MUST(sw_solver_lane(&lane, solver, 0, &err));
        have = solve_cut(whole, 1, lane);
        assert_same(&have, &want, "in a lane");
        result_free(&have);
    }
    result_free(&want);
}

static void check_width(int64_t k, int64_t group_elems)
{
    const sw_qspec spec = {.num = sw_num_by_bits(4), .is_symmetric = group_elems != 64,
                           .group_elems = group_elems, .scale_dtype = SW_DTYPE_F16};
    double *d_shift = doubles_sent(ROWS * k, 0.002, 3), *w64 = doubles_new(ROWS * k, 0.02, 9);
    float *w = malloc(4 * ROWS * (size_t)k);
    sw_device_problem p = {.w = w, .n_out = ROWS, .k_in = k, .spec = spec};
    solver_case c;

    for (int64_t i = 0; i < ROWS * k; i++) w[i] = (float)(w64[i] * (i % 97 ? 1 : 6));
    solver_case_new(&c, gpu, solver, k, 2 * k, 23);
    solver_case_factor(&c, SW_ORDER_STATIC, group_elems);
    p.factor = &c.device;
    for (int method = 0; method < (DEVICE_IS_EMULATED ? 2 : 3); method++) {
        p.method = (sw_device_method[]){SW_DEVICE_GPTQ, SW_DEVICE_CLIP, SW_DEVICE_RTN}[method];
        p.refine_rounds = method == 0 ? 2 : 0;
        p.d_shift = method == 0 ? d_shift : NULL;
        check_solve(&p);
    }
    if (!DEVICE_IS_EMULATED) { /* scales fitted on the way, which wants groups in one piece */
        solver_case_factor(&c, SW_ORDER_GAR, group_elems);
        p.method = SW_DEVICE_GPTQ;
        p.refit = true;
        check_solve(&p);
    }
    solver_case_free(&c);
    sw_device_put(gpu, d_shift);
    free(w), free(w64);
}

/* Whole groups and a rest; more than one block of 512 columns where that is quick. */
static void doubles(void **state)
{
    (void)state;
    check_width(DEVICE_IS_EMULATED ? 72 : 640, 64);
    if (!DEVICE_IS_EMULATED) check_width(1160, 128);
}

/* Products by halves, systems by their kernel and without it. */
static void halves(void **state)
{
    (void)state;
    if (DEVICE_IS_EMULATED) skip();
    check_width(SW_SPLIT_INPUTS_MIN + 256, 128);
    check_width(SW_SPLIT_INPUTS_MIN + 40, 64);
}

/* ---- what targets are made of: rows through H and its inverse ---- */

enum { TARGET_ROWS = DEVICE_IS_EMULATED ? PIECE + 70 : 3 * PIECE + 300 };

/* Rows through H, added to themselves, and through its inverse: [2, rows, k]. */
static double *multiply_cut(const solver_case *c, const double *d_rows, int64_t step)
{
    const int64_t k = c->k_in, n = TARGET_ROWS * k;
    double *d[2] = {NULL}, *d_scratch = NULL, *out = malloc(2 * 8 * (size_t)n);

    MUST(sw_device_take((void **)&d_scratch, gpu, n, 8, "rows", &err));
    for (int i = 0; i < 2; i++) {
        MUST(sw_device_take((void **)&d[i], gpu, n, 8, "rows", &err));
        MUST(sw_solver_copy(solver, d[i], d_rows, 8 * n, &err));
    }
    for (int64_t row = 0; row < TARGET_ROWS; row += step) {
        const int64_t some = step < TARGET_ROWS - row ? step : TARGET_ROWS - row, at = row * k;

        MUST(sw_solver_times(solver, d[0] + at, 1.0, 0.5, d_rows + at, c->device.d_h, some, k,
                             &err));
        MUST(sw_solver_times_inverse(solver, d[1] + at, d_scratch, &c->device, some, &err));
    }
    for (int i = 0; i < 2; i++) {
        MUST(sw_device_download(gpu, out + i * n, d[i], 8 * n, &err));
        sw_device_put(gpu, d[i]);
    }
    sw_device_put(gpu, d_scratch);
    return out;
}

static void check_targets(int64_t k)
{
    double *d_rows = doubles_sent(TARGET_ROWS * k, 1.0, 41), *want, *have;
    solver_case c;

    solver_case_new(&c, gpu, solver, k, 2 * k, 29);
    solver_case_factor(&c, SW_ORDER_STATIC, 64);
    want = multiply_cut(&c, d_rows, TARGET_ROWS);
    for (int64_t step = PIECE; step < TARGET_ROWS; step += PIECE) {
        have = multiply_cut(&c, d_rows, step);
        if (first_apart(have, want, 2 * TARGET_ROWS, 8 * k) >= 0)
            fail_msg("%lld inputs, %lld rows at a time: row %lld is not that of the whole",
                     (long long)k, (long long)step,
                     (long long)first_apart(have, want, 2 * TARGET_ROWS, 8 * k));
        free(have);
    }
    free(want);
    sw_device_put(gpu, d_rows);
    solver_case_free(&c);
}

static void targets(void **state)
{
    (void)state;
    check_targets(DEVICE_IS_EMULATED ? 72 : 1032);
    check_targets(DEVICE_IS_EMULATED ? SW_SPLIT_INPUTS_MIN : SW_SPLIT_INPUTS_MIN + 40);
}

/* One argument: the tests whose name it matches (* and ? as in a shell). */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(doubles), cmocka_unit_test(halves),
                                       cmocka_unit_test(targets)};

    if (sw_device_count() == 0) {
        printf("skipped: no GPU\n");
        return 77;
    }
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests_name("rows of the solver", tests, open_all, close_all);
}
