/* test_outliers.c - channels kept as half floats: which, what values they get, the product with
 * them, the bytes, and what both decoders refuse. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "formats/base/size.h"
#include "formats/dialect/dialect.h"
#include "formats/num/half.h"
#include "kernels/blas.h"
#include "kernels/rows.h"
#include "quant/search/outliers.h"
#include "tests/support/toys/random.h"
#include "tests/support/toys/st_build.h"
#include "verify/decoders/decode_spec.h"

#define N 96
#define K 128
#define TOKENS 512
#define KEPT 4

static const int32_t loud[KEPT] = {3, 64, 65, 127}; /* inputs thirty times the others */

static sw_qspec spec_of(int bits, bool is_symmetric, int64_t group, int64_t n_outliers)
{
    return (sw_qspec){.num = sw_num_by_bits(bits), .is_symmetric = is_symmetric,
                      .group_elems = group, .scale_dtype = SW_DTYPE_F16,
                      .n_outliers = n_outliers};
}

typedef struct problem {
    float w[N * K];
    sw_factor factor;
} problem;

static void make_problem(problem *p)
{
    static float x[TOKENS * K];
    test_rng rng = {11};
    sw_hessian h;
    sw_factor_options o = {SW_ORDER_STATIC, 0, 0.01};
    sw_err err = {0};

    for (int i = 0; i < N * K; i++) p->w[i] = (float)test_gauss(&rng);
    for (int t = 0; t < TOKENS; t++) {
        double common = test_gauss(&rng); /* channels go together: there is what to spread */
        for (int k = 0; k < K; k++) x[t * K + k] = (float)(test_gauss(&rng) + common);
        for (int i = 0; i < KEPT; i++) x[t * K + loud[i]] *= 30.0f;
    }
    assert_int_equal(sw_hessian_new(&h, K, false, 0, 1, &err), SW_OK);
    assert_int_equal(sw_hessian_add(&h, x, NULL, NULL, TOKENS, &err), SW_OK);
    sw_hessian_finish(&h);
    if (sw_factor_new(&p->factor, &h, &o, &err) != SW_OK) fail_msg("%s", err.text);
    sw_hessian_free(&h);
}

static void solve(sw_qtensor *q, sw_solve_report *report, const problem *p, sw_solve_fn fn,
                  int64_t n_outliers, const double *shift, int n_threads)
{
    sw_solve_problem s = {.w = p->w, .n_out = N, .k_in = K,
                          .spec = spec_of(2, false, 32, n_outliers), .factor = &p->factor,
                          .target_shift = shift, .refine_rounds = 2, .n_threads = n_threads};
    sw_err err = {0};

    memset(report, 0, sizeof *report);
    assert_int_equal(sw_qtensor_alloc(q, &s.spec, N, K, &err), SW_OK);
    if ((n_outliers ? sw_outliers_solve(q, &s, fn, report, &err) : fn(q, &s, report, &err)) !=
        SW_OK)
        fail_msg("%s", err.text);
    if (sw_qtensor_check(q, &err) != SW_OK) fail_msg("%s", err.text);
}

/* sum of e H e^T with e = decoded - (w + shift); shift [N, K] or NULL. */
static double loss_against(const sw_qtensor *q, const problem *p, const double *shift)
{
    static float values[N * K];
    static double e[N * K];
    double sum = 0;

    sw_qtensor_decode(values, q);
    for (int i = 0; i < N * K; i++)
        e[i] = (double)values[i] - (double)p->w[i] - (shift ? shift[i] : 0.0);
    for (int n = 0; n < N; n++)
        for (int i = 0; i < K; i++)
            for (int j = 0; j < K; j++)
                sum += e[n * K + i] * p->factor.h[i * K + j] * e[n * K + j];
    return sum;
}

static double loss_of(const sw_qtensor *q, const problem *p) { return loss_against(q, p, NULL); }

static void the_loud_channels_are_kept(void **state)
{
    static const sw_solve_fn methods[] = {sw_gptq_solve, sw_rtn_solve};
    problem *p = test_malloc(sizeof *p);

    (void)state;
    make_problem(p);
    for (int m = 0; m < 2; m++) {
        sw_qtensor q, plain;
        sw_solve_report report, without;
        solve(&plain, &without, p, methods[m], 0, NULL, 1);
        solve(&q, &report, p, methods[m], KEPT, NULL, 1);
        assert_memory_equal(q.outlier_cols, loud, sizeof loud);
        /* the figures are of the whole weight, and it is much less than it was */
        double want = loss_of(&q, p) / report.power;
        assert_true(fabs(report.error - want) <= 1e-9 + 1e-6 * want);
        if (!(report.error < (m ? 0.1 : 0.4) * without.error)) /* GPTQ makes up for much */
            fail_msg("method %d: %g kept, %g not", m, report.error, without.error);
        sw_qtensor_free(&q);
        sw_qtensor_free(&plain);
    }
    sw_factor_free(&p->factor);
    test_free(p);
}

/* No single kept value can be moved by an F16 step for the better. */
static void kept_values_are_the_optimum(void **state)
{
    problem *p = test_malloc(sizeof *p);
    sw_qtensor q;
    sw_solve_report report;
    int n_better = 0;

    (void)state;
    make_problem(p);
    solve(&q, &report, p, sw_gptq_solve, KEPT, NULL, 1);
    double least = loss_of(&q, p);
    for (int i = 0; i < 3 * KEPT; i++) /* three rows */
        for (int sign = -1; sign <= 1; sign += 2) {
            float was = q.outlier_values[i];
            q.outlier_values[i] = was + (float)sign * 4 * 0x1p-10f * fabsf(was);
            n_better += loss_of(&q, p) < least;
            q.outlier_values[i] = was;
        }
    assert_int_equal(n_better, 0);
    sw_qtensor_free(&q);
    sw_factor_free(&p->factor);
    test_free(p);
}

/* A target aimed at moves kept channels too, and threads change nothing. */
static void targets_and_threads(void **state)
{
    static double shift[N * K];
    problem *p = test_malloc(sizeof *p);
    sw_qtensor one, three;
    sw_solve_report report, again;

    (void)state;
    make_problem(p);
    for (int n = 0; n < N; n++) shift[n * K + loud[1]] = 2;
    solve(&one, &report, p, sw_gptq_solve, KEPT, shift, 1);
    solve(&three, &again, p, sw_gptq_solve, KEPT, shift, 3);
    for (int n = 0; n < N; n++) {
        double moved = (double)one.outlier_values[n * KEPT + 1] - (double)p->w[n * K + loud[1]];
        assert_true(fabs(moved - 2) < 0.5);
    }
    assert_memory_equal(one.codes, three.codes, N * K);
    assert_memory_equal(one.outlier_values, three.outlier_values,
                        N * KEPT * sizeof *one.outlier_values);
    assert_true(report.error <= again.error && report.error >= again.error);
    /* the move that was aimed at is no error, and plain rounding lacks it */
    double want = loss_against(&one, p, shift) / report.power;
    assert_true(fabs(report.error / want - 1) < 1e-6);
    assert_true(report.error < 0.01 * report.error_rtn);
    sw_qtensor_free(&one);
    sw_qtensor_free(&three);
    sw_factor_free(&p->factor);
    test_free(p);
}

/* Small integers: every order of adding gives the same. */
static void the_product_is_exact_on_integers(void **state)
{
    static const int64_t rows[] = {1, 3, 17};
    static float x[17 * K], ref[17 * N], have[17 * N];
    static uint16_t values[N * KEPT];
    sw_tiles t = {.spec = spec_of(2, true, 32, KEPT), .n_out = N, .k_in = K,
                  .outlier_cols = loud, .outlier_values = values};
    sw_weight w = {.n_out = N, .k_in = K, .tiles = &t};
    test_rng rng = {5};

    (void)state;
    for (int i = 0; i < 17 * K; i++) x[i] = (float)(int)(test_u64(&rng) % 17) - 8;
    for (int i = 0; i < N * KEPT; i++)
        values[i] = sw_f16_encode((float)(int)(test_u64(&rng) % 33) - 16);
    for (int r = 0; r < 3; r++)
        for (int threads = 1; threads <= 3; threads += 2) {
            sw_gemm p = {rows[r], x, K, ref, N, &w, threads};
            void *workspace = NULL;
            assert_int_equal(sw_mem_get(&workspace, (int64_t)sw_outliers_workspace_bytes(&p), 1,
                                        "w", NULL), SW_OK);
            for (int i = 0; i < 17 * N; i++) ref[i] = have[i] = (float)(i % 7);
            sw_outliers_add_ref(&p);
            p.y = have;
            sw_outliers_add(&p, workspace);
            assert_memory_equal(have, ref, sizeof ref);
            assert_true(fabsf(ref[1] - 1) > 0 || fabsf(ref[2] - 2) > 0);
            sw_mem_put(workspace);
        }
}

/* Stored, mapped, and run by whichever kernel takes it: as the decoded weight times x. */
typedef struct stored {
    sw_qtensor q;
    st_build built;
    sw_spec_scheme scheme;
} stored;

static void store(stored *s, bool is_symmetric)
{
    const sw_dialect *d = sw_dialect_find("swage");
    sw_qspec spec = spec_of(3, is_symmetric, 32, KEPT);
    sw_qconfig config = {.spec = spec};
    test_rng rng = {9};
    cJSON *object = NULL;
    sw_err err = {0};

    memset(s, 0, sizeof *s);
    assert_int_equal(sw_qtensor_alloc(&s->q, &spec, N, K, &err), SW_OK);
    memcpy(s->q.outlier_cols, loud, sizeof loud);
    for (int i = 0; i < N * 4; i++) {
        s->q.scales[i] = sw_num_round_to(0.01f + (float)test_uniform(&rng), SW_DTYPE_F16);
        if (s->q.zeros) s->q.zeros[i] = (uint8_t)(test_u64(&rng) % 8);
    }
    for (int i = 0; i < N * K; i++) s->q.codes[i] = (uint8_t)(test_u64(&rng) % 8);
    for (int n = 0; n < N; n++)
        for (int i = 0; i < KEPT; i++) {
            s->q.codes[n * K + loud[i]] = s->q.zeros ? s->q.zeros[n * 4 + loud[i] / 32] : 4;
            s->q.outlier_values[n * KEPT + i] = sw_num_round_to((float)test_gauss(&rng),
                                                                SW_DTYPE_F16);
        }
    assert_int_equal(sw_qtensor_check(&s->q, &err), SW_OK);
    st_build_encode(&s->built, d, "p", &s->q);
    (void)st_build_open(&s->built);
    assert_int_equal(d->write_config(&object, &config, &err), SW_OK);
    assert_int_equal(sw_spec_scheme_read(&s->scheme, object, &err), SW_OK);
    assert_int_equal(s->scheme.n_outliers, KEPT);
    cJSON_Delete(object);
}

static void drop(stored *s)
{
    sw_qtensor_free(&s->q);
    st_build_free(&s->built);
}

static const void *part(const stored *s, const char *name)
{
    const sw_st_tensor *t = sw_st_find(s->built.st, name);

    assert_non_null(t);
    return t->view.data;
}

static sw_code map(sw_tiles *out, const stored *s, sw_err *err)
{
    bool with_zeros = s->q.zeros != NULL;
    const void *parts[6] = {part(s, "p.tiles"), part(s, "p.tile_scales"), part(s, "p.tile_shape")};

    if (with_zeros) parts[3] = part(s, "p.tile_zeros");
    parts[3 + with_zeros] = part(s, "p.outlier_index");
    parts[4 + with_zeros] = part(s, "p.outlier_values");
    return sw_dialect_find("swage")->map_tiles(out, &s->q.spec, N, K, parts, err);
}

static void what_is_stored_is_read_and_run(void **state)
{
    static float x[5 * K], y[5 * N], values[N * K];
    test_rng rng = {21};

    (void)state;
    sw_blas_single_thread();
    for (int sym = 0; sym < 2; sym++) {
        stored s;
        sw_spec_weight w = {0};
        sw_tiles tiles;
        sw_weight weight = {.n_out = N, .k_in = K, .tiles = &tiles};
        sw_gemm p = {5, x, K, y, N, &weight, 2};
        sw_scratch scratch = {NULL, 0};
        sw_err err = {0};
        store(&s, sym == 1);
        sw_qtensor_decode(values, &s.q);
        if (sw_spec_decode(&w, &s.scheme, s.built.st, "p", N, K, &err) != SW_OK)
            fail_msg("%s", err.text);
        assert_memory_equal(w.values, values, sizeof values);
        for (int i = 0; i < 5 * K; i++) x[i] = (float)test_gauss(&rng);
        if (map(&tiles, &s, &err) != SW_OK) fail_msg("%s", err.text);
        assert_int_equal(sw_gemm_run(&p, &scratch, &err), SW_OK);
        for (int m = 0; m < 5; m++)
            for (int n = 0; n < N; n++) {
                double want = 0, size = 0;
                for (int k = 0; k < K; k++) {
                    double term = (double)x[m * K + k] * (double)values[n * K + k];
                    want += term;
                    size += fabs(term);
                }
                assert_true(fabs((double)y[m * N + n] - want) <= 1e-5 * size);
            }
        sw_scratch_free(&scratch);
        sw_spec_weight_free(&w);
        drop(&s);
    }
}

static void broken_outliers_are_refused_by_all(void **state)
{
    static const struct { const char *tensor; int at; uint8_t byte; const char *says; } faults[] = {
        {"p.outlier_index", 4, 2, "rise"},           /* 3, 2, ... */
        {"p.outlier_index", 12, 128, "below 128"},
        {"p.outlier_values", 1, 0x7e, "outlier_values"}, /* not a number */
    };

    (void)state;
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        stored s;
        sw_spec_weight w = {0};
        sw_tiles tiles;
        sw_err err = {0}, second = {0};
        store(&s, true);
        ((uint8_t *)(uintptr_t)part(&s, faults[i].tensor))[faults[i].at] = faults[i].byte;
        assert_int_equal(map(&tiles, &s, &err), SW_E_FORMAT);
        assert_int_equal(sw_spec_decode(&w, &s.scheme, s.built.st, "p", N, K, &second),
                         SW_E_FORMAT);
        if (!strstr(err.text, faults[i].says) || !strstr(second.text, faults[i].says))
            fail_msg("%zu: \"%s\", \"%s\"", i, err.text, second.text);
        drop(&s);
    }
    /* a code beside the zero point would be added twice: the judge reads every code */
    stored s;
    sw_spec_weight w = {0};
    sw_err err = {0};
    store(&s, true);
    ((uint8_t *)(uintptr_t)part(&s, "p.tiles"))[4] ^= 7; /* channels 0 and 8, input 2, 3... */
    memset((uint8_t *)(uintptr_t)part(&s, "p.tiles"), 0x55, 64);
    assert_int_equal(sw_spec_decode(&w, &s.scheme, s.built.st, "p", N, K, &err), SW_E_FORMAT);
    assert_non_null(strstr(err.text, "is an outlier"));
    drop(&s);
}

static void other_dialects_say_no(void **state)
{
    static const char *const names[] = {"gptq", "gptq_v2", "compressed-tensors"};
    sw_qspec spec = spec_of(4, true, 32, 1);

    (void)state;
    for (int i = 0; i < 3; i++) {
        sw_err err = {0};
        assert_int_equal(sw_dialect_find(names[i])->can_hold(&spec, N, K, &err),
                         SW_E_UNSUPPORTED);
        assert_non_null(strstr(err.text, "--format swage"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_loud_channels_are_kept),
        cmocka_unit_test(kept_values_are_the_optimum),
        cmocka_unit_test(targets_and_threads),
        cmocka_unit_test(the_product_is_exact_on_integers),
        cmocka_unit_test(what_is_stored_is_read_and_run),
        cmocka_unit_test(broken_outliers_are_refused_by_all),
        cmocka_unit_test(other_dialects_say_no),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
