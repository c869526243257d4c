/* test_library.c - the C interface against what it wraps: the same bits, and wrong arguments
 * refused with nothing handed out. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "formats/dialect/dialect.h"
#include "quant/method/algo.h"
#include "quant/run/pipeline.h"
#include "quant/run/scheme.h"
#include "tests/support/cases/quantized_dir.h"
#include "tests/support/scratch.h"
#include "tests/support/toys/random.h"
#include "tools/library/library.h"

#define SOURCE "tests/golden/arch/llama"
#define MODULE "model.layers.1.mlp.up_proj"

enum { K = 128, OUT = 70 };

typedef struct toy {
    float w[OUT * K];
    double h[K * K];
} toy;

static toy *make_toy(void)
{
    toy *t = calloc(1, sizeof *t);
    test_rng rng = {5};

    for (int i = 0; i < OUT * K; i++) t->w[i] = 0.02f * (float)test_gauss(&rng);
    for (int n = 0; n < 400; n++) {
        double x[K], shared = test_gauss(&rng);
        for (int i = 0; i < K; i++) x[i] = shared + test_gauss(&rng) * (1 + i % 5);
        for (int i = 0; i < K; i++)
            for (int j = 0; j < K; j++) t->h[i * K + j] += x[i] * x[j];
    }
    return t;
}

/* The call fails with this code and text, and hands nothing out. */
static void refuses(int code, const char *text, const toy *t, const sw_quantize_options *o)
{
    sw_matrix *m = NULL;
    sw_error error = {0, ""};

    assert_int_equal(sw_matrix_quantize(&m, NULL, t->w, OUT, K, o, &error), code);
    assert_int_equal(error.code, code);
    if (!strstr(error.text, text)) fail_msg("want \"%s\", have \"%s\"", text, error.text);
    assert_null(m);
}

static void test_quantizes_as_the_method(void **state)
{
    const sw_factor_options fo = {SW_ORDER_STATIC, 64, 0.01};
    sw_quantize_options o = SW_QUANTIZE_OPTIONS_INIT;
    sw_solve_problem p = {.n_out = OUT, .k_in = K, .refine_rounds = 2, .n_threads = 1};
    sw_solve_report report = {0};
    sw_quantize_report have;
    sw_hessian hess = {.k_in = K, .n_tokens = 400};
    toy *t = make_toy();
    sw_factor factor = {0};
    sw_matrix *m = NULL;
    sw_qtensor q;
    sw_error error;
    sw_err err = {0};

    (void)state;
    hess.h = t->h;
    p.w = t->w;
    p.spec = sw_scheme_spec(sw_scheme_find("W4A16_ASYM"));
    p.spec.group_elems = 64;
    assert_int_equal(sw_factor_new(&factor, &hess, &fo, &err), SW_OK);
    p.factor = &factor;
    assert_int_equal(sw_qtensor_alloc(&q, &p.spec, OUT, K, &err), SW_OK);
    assert_int_equal(sw_gptq_solve(&q, &p, &report, &err), SW_OK);
    o.scheme = "w4a16_asym";
    o.group_elems = 64;
    o.hessian = t->h;
    o.n_tokens = 400;
    if (sw_matrix_quantize(&m, &have, t->w, OUT, K, &o, &error)) fail_msg("%s", error.text);
    assert_memory_equal(sw_matrix_codes(m), q.codes, OUT * K);
    assert_memory_equal(sw_matrix_scales(m), q.scales, OUT * 2 * sizeof *q.scales);
    assert_memory_equal(sw_matrix_zeros(m), q.zeros, OUT * 2);
    assert_int_equal(sw_matrix_n_groups(m), 2);
    assert_true(have.error == report.error && have.error_rtn == report.error_rtn);
    assert_true(have.error < have.error_rtn);
    sw_matrix_free(m);
    sw_qtensor_free(&q);
    sw_factor_free(&factor);
    free(t);
}

static void test_refuses_options(void **state)
{
    sw_quantize_options o = SW_QUANTIZE_OPTIONS_INIT;
    toy *t = make_toy();

    (void)state;
    o.size_bytes = 0;
    refuses(SW_ERROR_USAGE, "set size_bytes", t, &o);
    o.size_bytes = sizeof o + 8;
    refuses(SW_ERROR_USAGE, "as new as the header", t, &o);
    o = (sw_quantize_options)SW_QUANTIZE_OPTIONS_INIT;
    o.scheme = "W5A16";
    refuses(SW_ERROR_USAGE, "no scheme \"W5A16\"", t, &o);
    o.scheme = "W4A16";
    o.method = "awq"; /* changes other weights too */
    refuses(SW_ERROR_USAGE, "no method \"awq\"", t, &o);
    o.method = "gptq";
    refuses(SW_ERROR_USAGE, "needs a Hessian", t, &o);
    o.method = NULL;
    o.group_elems = -2;
    refuses(SW_ERROR_USAGE, "groups of -2", t, &o);
    o.group_elems = 0;
    o.format = "fp8";
    refuses(SW_ERROR_UNSUPPORTED, "e4m3", t, &o);
    o.format = "nothing";
    refuses(SW_ERROR_USAGE, "compressed-tensors", t, &o);
    o.format = NULL;
    o.scheme = "FP8";
    refuses(SW_ERROR_USAGE, "input_scale", t, &o);
    free(t);
}

static void test_refuses_values(void **state)
{
    sw_quantize_options o = SW_QUANTIZE_OPTIONS_INIT;
    toy *t = make_toy();

    (void)state;
    o.hessian = t->h;
    t->h[3 * K + 4] += 1e3;
    refuses(SW_ERROR_USAGE, "not symmetric at 4, 3", t, &o);
    t->h[3 * K + 4] = NAN;
    refuses(SW_ERROR_USAGE, "at 4, 3", t, &o);
    t->h[3 * K + 4] = t->h[4 * K + 3];
    t->h[7 * K + 7] = -1;
    refuses(SW_ERROR_USAGE, "at 7, 7", t, &o);
    o.hessian = NULL;
    t->w[9] = INFINITY;
    refuses(SW_ERROR_FORMAT, "weight 9", t, &o);
    assert_int_equal(sw_matrix_quantize(NULL, NULL, t->w, 0, K, NULL, NULL), SW_ERROR_USAGE);
    assert_int_equal(sw_matrix_quantize(NULL, NULL, NULL, OUT, K, NULL, NULL), SW_ERROR_USAGE);
    free(t);
}

static void test_reads_what_the_reader_reads(void **state)
{
    sw_source *source = NULL;
    sw_matrix *m = NULL;
    sw_checkpoint ckpt;
    sw_linear_info linear;
    sw_error error = {77, "untouched"};
    float *have, *want;
    sw_qtensor q;
    sw_err err = {0};
    scratch s;

    (void)state;
    scratch_open(&s);
    quantized_dir_make(scratch_path(&s, "q"), SOURCE, "awq", 4, false, 64);
    assert_int_equal(sw_source_open(&source, scratch_path(&s, "q"), &error), 0);
    assert_string_equal(sw_source_format(source), "awq");
    assert_string_equal(sw_source_architecture(source), "llama");
    assert_int_equal(sw_source_linear(&linear, source, 0, &error), 0);
    assert_int_equal(linear.scheme.is_symmetric, 0);
    assert_int_equal(sw_checkpoint_open(&ckpt, scratch_path(&s, "q"), &err), SW_OK);
    assert_int_equal(sw_checkpoint_qtensor(&q, &ckpt, MODULE, 256, 128, &err), SW_OK);
    have = malloc(2 * 256 * 128 * sizeof *have);
    want = have + 256 * 128;
    sw_qtensor_decode(want, &q);
    assert_int_equal(sw_source_decode(have, 256 * 128, source, MODULE, &error), 0);
    assert_memory_equal(have, want, 256 * 128 * sizeof *have);
    assert_int_equal(sw_source_matrix(&m, source, MODULE, &error), 0);
    assert_memory_equal(sw_matrix_codes(m), q.codes, 256 * 128);
    assert_true(error.code == 77 && !strcmp(error.text, "untouched"));
    sw_source_close(source); /* which the matrix outlives */
    assert_int_equal(sw_matrix_decode(have, m, 250, 6, &error), 0);
    assert_memory_equal(have, want + 250 * 128, 6 * 128 * sizeof *have);
    assert_int_equal(sw_matrix_decode(have, m, 251, 6, &error), SW_ERROR_USAGE);
    assert_int_equal(sw_matrix_decode(have, m, -1, 2, &error), SW_ERROR_USAGE);
    sw_matrix_free(m);
    sw_qtensor_free(&q);
    sw_checkpoint_close(&ckpt);
    free(have);
    scratch_close(&s);
}

static void test_refuses_names(void **state)
{
    static const char *const names[] = {"model.layers.1.mlp", "model.layers.2.mlp.up_proj", "",
                                        NULL};
    sw_source *source = NULL;
    sw_matrix *m = NULL;
    sw_tensor_info tensor;
    sw_error error;
    float v[4];

    (void)state;
    assert_int_equal(sw_source_open(&source, "", &error), SW_ERROR_USAGE);
    assert_int_equal(sw_source_open(&source, NULL, NULL), SW_ERROR_USAGE);
    assert_null(source);
    assert_int_equal(sw_source_open(&source, SOURCE, &error), 0);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        assert_int_equal(sw_source_decode(v, 4, source, names[i], &error), SW_ERROR_USAGE);
        assert_int_equal(sw_source_matrix(&m, source, names[i], &error), SW_ERROR_USAGE);
    }
    assert_int_equal(sw_source_matrix(&m, source, MODULE, &error), SW_ERROR_USAGE);
    assert_non_null(strstr(error.text, "not quantized"));
    assert_int_equal(sw_source_decode(v, 4, source, MODULE, &error), SW_ERROR_USAGE);
    assert_non_null(strstr(error.text, "32768 values, there is room for 4"));
    assert_int_equal(sw_source_tensor(&tensor, source, -1, &error), SW_ERROR_USAGE);
    assert_int_equal(sw_source_tensor(&tensor, source, sw_source_n_tensors(source), &error),
                     SW_ERROR_USAGE);
    assert_null(m);
    sw_source_close(source);
}

/* What a format stores is decoded by its own reader to the same weight. */
static void test_encodes_for_the_reader(void **state)
{
    sw_quantize_options o = SW_QUANTIZE_OPTIONS_INIT;
    toy *t = make_toy();
    const void *parts[SW_DIALECT_TENSORS_MAX] = {0};
    sw_tensor_info info;
    sw_encoded *e = NULL;
    sw_matrix *m = NULL;
    sw_qtensor q;
    sw_error error;
    sw_err err = {0};

    (void)state;
    o.group_elems = 64;
    o.format = "compressed-tensors";
    assert_int_equal(sw_matrix_quantize(&m, NULL, t->w, OUT, K, &o, &error), 0);
    if (sw_encoded_new(&e, m, "compressed-tensors", &error)) fail_msg("%s", error.text);
    for (int i = 0; i < sw_encoded_n_tensors(e); i++) parts[i] = sw_encoded_tensor(&info, e, i);
    assert_null(sw_encoded_tensor(&info, e, sw_encoded_n_tensors(e)));
    assert_int_equal(sw_qtensor_alloc(&q, &m->q.spec, OUT, K, &err), SW_OK);
    assert_int_equal(sw_dialect_find("compressed-tensors")->decode(&q, parts, &err), SW_OK);
    assert_memory_equal(q.codes, sw_matrix_codes(m), OUT * K);
    assert_memory_equal(q.scales, sw_matrix_scales(m), OUT * 2 * sizeof *q.scales);
    sw_encoded_free(e);
    e = NULL;
    assert_int_equal(sw_encoded_new(&e, m, "mxfp4", &error), SW_ERROR_UNSUPPORTED);
    assert_null(e);
    sw_qtensor_free(&q);
    sw_matrix_free(m);
    free(t);
}

static void test_multiplies(void **state)
{
    sw_quantize_options o = SW_QUANTIZE_OPTIONS_INIT;
    toy *t = make_toy();
    float y[2 * OUT], want[OUT * K];
    sw_product *p = NULL;
    sw_matrix *m = NULL;
    sw_error error;

    (void)state;
    o.group_elems = -1;
    assert_int_equal(sw_matrix_quantize(&m, NULL, t->w, OUT, K, &o, &error), 0);
    assert_int_equal(sw_matrix_decode(want, m, 0, OUT, &error), 0);
    assert_int_equal(sw_product_new(&p, m, "w4a16_ref", &error), 0);
    assert_string_equal(sw_product_kernel(p, 2), "w4a16_ref");
    assert_int_equal(sw_product_run(y, p, t->w, 2, 0, &error), 0);
    for (int n = 0; n < 2 * OUT; n++) {
        double sum = 0;
        for (int k = 0; k < K; k++)
            sum += (double)t->w[n / OUT * K + k] * (double)want[n % OUT * K + k];
        assert_true(fabs(sum - (double)y[n]) < 1e-6);
    }
    assert_int_equal(sw_product_run(y, p, NULL, 2, 0, &error), SW_ERROR_USAGE);
    assert_int_equal(sw_product_run(y, p, t->w, -1, 0, &error), SW_ERROR_USAGE);
    sw_product_free(p);
    sw_matrix_free(m);
    free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quantizes_as_the_method),
        cmocka_unit_test(test_refuses_options),
        cmocka_unit_test(test_refuses_values),
        cmocka_unit_test(test_reads_what_the_reader_reads),
        cmocka_unit_test(test_refuses_names),
        cmocka_unit_test(test_encodes_for_the_reader),
        cmocka_unit_test(test_multiplies),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
