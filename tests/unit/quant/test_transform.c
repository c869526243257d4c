/* test_transform.c - what AWQ and SmoothQuant decide on toy models: gains alone are taken, any
 * number of threads decides alike, and statistics that say nothing are said to say nothing. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "formats/io/file_content.h"
#include "kernels/blas.h"
#include "quant/run/pipeline.h"
#include "quant/search/transform.h"
#include "tests/support/toys/random.h"
#include "tests/support/toys/st_build.h"

enum { SEQS = 9, LEN = 48, REPORTS_MAX = 64 };

typedef struct toy {
    sw_model model;
    st_build built;
    const sw_st *st;
    uint32_t ids[SEQS * LEN];
    sw_calib calib;
    int n_reports, n_accepted, n_changed, n_put;
    sw_transform_report reports[REPORTS_MAX];
    double error, error_rtn;
    uint64_t digest;
} toy;

/* A fixture's tensors, which a test may change before toy_open. */
static toy *toy_new(const char *arch)
{
    toy *t = calloc(1, sizeof *t);
    cJSON *config = NULL;
    sw_st *st = NULL;
    sw_err err = {0};
    char path[256];
    test_rng rng = {17};

    assert_non_null(t);
    sw_blas_single_thread();
    (void)snprintf(path, sizeof path, "tests/golden/arch/%s/config.json", arch);
    assert_int_equal(sw_json_read(&config, path, &sw_json_caps_config, &err), SW_OK);
    assert_int_equal(sw_model_read(&t->model, config, &err), SW_OK);
    cJSON_Delete(config);
    (void)snprintf(path, sizeof path, "tests/golden/arch/%s", arch);
    assert_int_equal(sw_st_open(&st, path, &err), SW_OK);
    for (int64_t i = 0; i < sw_st_count(st); i++) {
        const sw_st_tensor *s = sw_st_at(st, i);
        st_build_add(&t->built, s->name, s->view.dtype, s->view.n_dims, s->view.shape,
                     s->view.data);
    }
    sw_st_close(st);
    for (int i = 0; i < SEQS * LEN; i++)
        t->ids[i] = (uint32_t)(test_uniform(&rng) * test_uniform(&rng) * (double)t->model.vocab);
    t->calib = (sw_calib){t->ids, SEQS, LEN};
    return t;
}

static void toy_free(toy *t)
{
    st_build_free(&t->built);
    free(t);
}

static void mix(toy *t, const void *bytes, size_t n)
{
    const uint8_t *at = bytes;

    for (size_t i = 0; i < n; i++) t->digest = (t->digest ^ at[i]) * 0x100000001b3u;
}

static sw_code put(void *self, const sw_linear_ref *ref, const char *path, const sw_qtensor *q,
                   const sw_solve_report *report, sw_err *err)
{
    toy *t = self;

    (void)ref;
    (void)path;
    assert_int_equal(sw_qtensor_check(q, err), SW_OK);
    mix(t, q->codes, (size_t)(q->n_out * q->k_in));
    mix(t, q->scales, (size_t)(q->n_out * q->n_groups) * sizeof *q->scales);
    t->n_put++;
    t->error += report->error;
    t->error_rtn += report->error_rtn;
    return SW_OK;
}

static bool is_selected(void *self, const sw_linear_ref *ref, const char *path)
{
    (void)self;
    (void)path;
    return ref->slot != SW_SLOT_HEAD;
}

static sw_code change(void *self, const char *name, const float *values, int64_t n, sw_err *err)
{
    toy *t = self;

    (void)name;
    (void)err;
    for (int64_t i = 0; i < n; i++) assert_true(isfinite(values[i]));
    mix(t, values, (size_t)n * sizeof *values);
    t->n_changed++;
    return SW_OK;
}

static sw_code transformed(void *self, const sw_transform_report *r, sw_err *err)
{
    toy *t = self;

    (void)err;
    t->n_accepted += r->is_accepted;
    assert_true(t->n_reports < REPORTS_MAX);
    t->reports[t->n_reports++] = *r;
    return SW_OK;
}

static sw_code run(toy *t, const char *method, sw_act_scope scope, int n_threads, sw_err *err)
{
    sw_quant_options o = sw_quant_defaults();
    sw_quant_sink sink = {.self = t, .put = put, .is_selected = is_selected, .change = change,
                          .transformed = transformed};

    t->n_reports = t->n_accepted = t->n_changed = t->n_put = 0;
    t->error = t->error_rtn = 0;
    t->digest = 0xcbf29ce484222325u;
    t->st = st_build_open(&t->built);
    o.algo = sw_algo_find(method);
    assert_non_null(o.algo);
    o.spec.group_elems = 32;
    o.n_threads = n_threads;
    if (scope != SW_ACT_NONE) {
        o.spec.num = sw_num_by_bits(8);
        o.spec.act =
            (sw_act){.num = sw_num_by_bits(8), .scope = scope, .scale_dtype = SW_DTYPE_F32};
    }
    return sw_quant_run(&t->model, t->st, &t->calib, &o, &sink, NULL, err);
}

static void must_run(toy *t, const char *method, sw_act_scope scope, int n_threads)
{
    sw_err err = {0};

    if (run(t, method, scope, n_threads, &err) != SW_OK) fail_msg("%s", err.text);
}

/* Channels of what a norm makes grow or shrink by powers of two, the more the further. */
static void roughen(toy *t, const char *name)
{
    uint16_t *norm = (uint16_t *)(void *)st_build_data(&t->built, name);

    assert_non_null(norm);
    for (int j = 0; j < 128; j += 9) norm[j] = (uint16_t)(norm[j] + (3 << 7)); /* times 8 */
}

static void expect_gains_alone(const toy *t, int n_reports)
{
    assert_int_equal(t->n_reports, n_reports);
    for (int i = 0; i < n_reports; i++) {
        const sw_transform_report *r = &t->reports[i];
        if (r->is_accepted) assert_true(r->loss < r->loss_before && r->scale_min < r->scale_max);
        else assert_true(r->why_not[0] != '\0');
    }
}

static void test_awq_takes_gains_alone(void **state)
{
    static const char *const archs[] = {"llama", "gemma2"};
    static const int n_groups[] = {8, 8};

    (void)state;
    for (int a = 0; a < 2; a++) {
        toy *t = toy_new(archs[a]);
        roughen(t, "model.layers.0.input_layernorm.weight");
        roughen(t, "model.layers.1.input_layernorm.weight");
        must_run(t, "awq", SW_ACT_NONE, 1);
        expect_gains_alone(t, n_groups[a]);
        assert_true(t->n_accepted > 0);
        assert_true(t->error <= t->error_rtn); /* ranges are clipped where that is better */
        must_run(t, "awq+gptq", SW_ACT_NONE, 1);
        expect_gains_alone(t, n_groups[a]);
        toy_free(t);
    }
}

static void test_experts(void **state)
{
    toy *t = toy_new("mixtral");

    (void)state;
    must_run(t, "awq", SW_ACT_NONE, 1);
    expect_gains_alone(t, 2 * (3 + (int)t->model.n_experts));
    for (int i = 0; i < t->n_reports; i++) /* the router stays in floats */
        assert_int_equal(t->reports[i].is_pow2,
                         strstr(t->reports[i].producer, "post_attention") != NULL);
    toy_free(t);
}

static void test_threads_decide_alike(void **state)
{
    static const char *const methods[] = {"awq+gptq", "smoothquant"};

    (void)state;
    for (int m = 0; m < 2; m++) {
        toy *t = toy_new("llama");
        sw_act_scope scope = m < 1 ? SW_ACT_NONE : SW_ACT_TOKEN;
        uint64_t one;
        roughen(t, "model.layers.0.input_layernorm.weight");
        must_run(t, methods[m], scope, 1);
        one = t->digest;
        must_run(t, methods[m], scope, 3);
        assert_true(t->digest == one);
        toy_free(t);
    }
}

static void test_smoothing_by_scope(void **state)
{
    static const sw_act_scope scopes[] = {SW_ACT_TOKEN, SW_ACT_TENSOR};

    (void)state;
    for (int i = 0; i < 2; i++) {
        toy *t = toy_new("llama");
        roughen(t, "model.layers.0.input_layernorm.weight");
        must_run(t, "smoothquant", scopes[i], 1);
        expect_gains_alone(t, 8);
        assert_true(t->reports[0].is_accepted);
        assert_non_null(strstr(t->reports[0].choice, "alpha"));
        assert_true(t->n_changed > 0);
        toy_free(t);
    }
}

static void test_nothing_is_held_out(void **state)
{
    static const char *const methods[] = {"awq", "awq+gptq", "smoothquant"};

    (void)state;
    for (int m = 0; m < 3; m++) {
        toy *t = toy_new("llama");
        t->calib.n_seqs = 1;
        must_run(t, methods[m], m == 2 ? SW_ACT_TOKEN : SW_ACT_NONE, 1);
        assert_int_equal(t->n_accepted, 0);
        assert_int_equal(t->n_changed, 0);
        assert_int_equal(t->n_put, 14);
        assert_non_null(strstr(t->reports[0].why_not, "single calibration window"));
        toy_free(t);
    }
}

/* A norm of zeros: its readers see nothing but zeros. */
static void test_inputs_without_a_range(void **state)
{
    static const char *const methods[] = {"awq", "awq+gptq", "smoothquant", "smoothquant+gptq"};

    (void)state;
    for (int m = 0; m < 4; m++) {
        toy *t = toy_new("llama");
        memset(st_build_data(&t->built, "model.layers.1.input_layernorm.weight"), 0, 128 * 2);
        must_run(t, methods[m], m >= 2 ? SW_ACT_TENSOR : SW_ACT_NONE, 1);
        assert_int_equal(t->n_put, 14);
        for (int i = 0; i < t->n_reports; i++)
            if (strstr(t->reports[i].producer, "layers.1.input")) {
                assert_false(t->reports[i].is_accepted);
                if (m >= 2) assert_non_null(strstr(t->reports[i].why_not, "no range"));
            }
        toy_free(t);
    }
}

static void test_inputs_that_are_not_finite(void **state)
{
    static const char *const methods[] = {"awq", "awq+gptq", "smoothquant", "smoothquant+gptq"};

    (void)state;
    for (int m = 0; m < 4; m++) {
        toy *t = toy_new("llama");
        uint16_t *norm =
            (uint16_t *)(void *)st_build_data(&t->built, "model.layers.1.input_layernorm.weight");
        sw_err err = {0};
        norm[3] = 0x7f80; /* infinity */
        assert_int_equal(run(t, methods[m], m >= 2 ? SW_ACT_TENSOR : SW_ACT_NONE, 1, &err),
                         SW_E_FORMAT);
        assert_non_null(strstr(err.text, "activations hold a NaN or an infinity"));
        toy_free(t);
    }
}

static void test_smoothing_wants_rounded_activations(void **state)
{
    toy *t = toy_new("llama");
    sw_err err = {0};

    (void)state;
    assert_int_equal(run(t, "smoothquant", SW_ACT_NONE, 1, &err), SW_E_USAGE);
    assert_non_null(strstr(err.text, "smoothquant"));
    toy_free(t);
}

static void test_rows_of_trials(void **state)
{
    const sw_transform *some = &sw_transform_smooth, *all = &sw_transform_awq;
    sw_qspec spec = {.num = sw_num_by_bits(8), .is_symmetric = true, .scale_dtype = SW_DTYPE_F16};

    (void)state;
    assert_int_equal(sw_transform_rows(some, &spec, 14336), 1024);
    assert_int_equal(sw_transform_rows(some, &spec, 1024), 1024);
    assert_int_equal(sw_transform_rows(some, &spec, 1000), 1000);
    assert_int_equal(sw_transform_rows(all, &spec, 14336), 14336);
    spec.scale_rows = 128;
    assert_int_equal(sw_transform_rows(some, &spec, 14336), 1024);
    spec.scale_rows = 96; /* whole runs of rows */
    assert_int_equal(sw_transform_rows(some, &spec, 14336), 960);
    spec.scale_rows = SW_ROWS_ALL;
    assert_int_equal(sw_transform_rows(some, &spec, 14336), 14336);
    spec.scale_rows = 0;
    spec.has_global = true;
    assert_int_equal(sw_transform_rows(some, &spec, 14336), 14336);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_of_trials),
        cmocka_unit_test(test_awq_takes_gains_alone),
        cmocka_unit_test(test_experts),
        cmocka_unit_test(test_threads_decide_alike),
        cmocka_unit_test(test_smoothing_by_scope),
        cmocka_unit_test(test_nothing_is_held_out),
        cmocka_unit_test(test_inputs_without_a_range),
        cmocka_unit_test(test_inputs_that_are_not_finite),
        cmocka_unit_test(test_smoothing_wants_rounded_activations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
