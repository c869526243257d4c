/* test_stats_schemes.c - what needs more of a statistics file than its Hessians: transforms, scales
 * of inputs and of the cache, sensitivities. Each against the same from the text itself.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "quant/method/algo.h"
#include "quant/run/scheme.h"
#include "quant/search/sensitivity.h"
#include "tests/support/cases/stats_case.h"
#include "tests/support/toys/patched_model.h"
#include "tests/support/toys/random.h"

enum { LINEARS_MAX = 64, TRANSFORMS_MAX = 32 };

/* What a run handed out. */
typedef struct take {
    int n, n_transforms, n_kv;
    int64_t n_done; /* blocks not to be done again */
    uint64_t hash[LINEARS_MAX];
    float input_scale[LINEARS_MAX];
    char path[LINEARS_MAX][96];
    double error[LINEARS_MAX];
    sw_transform_report transforms[TRANSFORMS_MAX];
    float k_scale[8], v_scale[8];
} take;

static sw_code put(void *self, const sw_linear_ref *ref, const char *path, const sw_qtensor *q,
                   const sw_solve_report *report, sw_err *err)
{
    take *k = self;

    (void)err;
    assert_true(k->n < LINEARS_MAX);
    (void)snprintf(k->path[k->n], sizeof k->path[0], "%s", path);
    k->input_scale[k->n] = q->input_scale;
    k->error[k->n] = report->error;
    for (int64_t i = 0; i < ref->n_out * ref->k_in; i++)
        k->hash[k->n] = (k->hash[k->n] ^ q->codes[i]) * UINT64_C(1099511628211);
    k->n++;
    return SW_OK;
}

static sw_code transformed(void *self, const sw_transform_report *report, sw_err *err)
{
    take *k = self;

    (void)err;
    assert_true(k->n_transforms < TRANSFORMS_MAX);
    k->transforms[k->n_transforms++] = *report;
    return SW_OK;
}

static sw_code put_kv(void *self, int64_t layer, float k_scale, float v_scale, sw_err *err)
{
    take *k = self;

    (void)err;
    k->k_scale[layer] = k_scale;
    k->v_scale[layer] = v_scale;
    k->n_kv++;
    return SW_OK;
}

static int64_t n_done(void *self) { return ((const take *)self)->n_done; }

static take *run(stats_case *t, const sw_zpack *z, const sw_quant_options *o, int64_t done)
{
    take *k = calloc(1, sizeof *k);
    sw_quant_sink sink = {.self = k, .put = put, .is_selected = takes_all,
                          .change = takes_no_change, .transformed = transformed,
                          .put_kv = put_kv, .n_done = n_done};
    const sw_model *m = &t->ckpt.model;
    sw_err err = {0};
    sw_code rc;

    assert_non_null(k);
    k->n_done = done;
    rc = z ? sw_quant_run_stats(m, t->ckpt.st, z, o, &sink, NULL, &err)
           : sw_quant_run(m, t->ckpt.st, &t->calib, o, &sink, NULL, &err);
    if (rc != SW_OK) fail_msg("%s", err.text);
    return k;
}

static sw_quant_options options_of(const char *scheme, const char *method)
{
    sw_quant_options o = stats_case_options(SW_EXPERTS_SHRINK, 1);

    o.spec = sw_scheme_spec(sw_scheme_find(scheme));
    if (o.spec.num->kind == SW_NUM_INT && o.spec.group_elems) o.spec.group_elems = 32;
    o.algo = sw_algo_find(method);
    o.refine_rounds = 0;
    return o;
}

/* H of divided inputs is the division of H, and a largest magnitude the division of the largest:
 * against rows that were really divided. */
static void test_divided_statistics(void **state)
{
    enum { K = 24, N = 40 };
    sw_site_stats stats = {.layer = 0};
    sw_site_scales scales = {0};
    sw_hessian *h = &stats.site[SW_SITE_MLP_IN], want = {0};
    float x[N * K], divided[N * K];
    double scale[K], half[K], power = 0, error = 0;
    test_rng rng = {4};
    sw_err err = {0};

    (void)state;
    for (int j = 0; j < K; j++) scale[j] = exp2(test_gauss(&rng)), half[j] = 0.5;
    for (int i = 0; i < N * K; i++) {
        x[i] = (float)test_gauss(&rng);
        divided[i] = (float)((double)x[i] / (0.5 * scale[i % K]));
    }
    assert_int_equal(sw_hessian_new(h, K, false, 0, 1, &err), SW_OK);
    assert_int_equal(sw_hessian_new(&want, K, false, 0, 1, &err), SW_OK);
    assert_int_equal(sw_hessian_add(h, x, NULL, NULL, N, &err), SW_OK);
    assert_int_equal(sw_hessian_add(&want, divided, NULL, NULL, N, &err), SW_OK);
    sw_hessian_finish(h);
    sw_hessian_finish(&want);
    assert_int_equal(sw_site_scales_add(&scales, SW_SITE_MLP_IN, -1, 3, scale, K, &err), SW_OK);
    assert_int_equal(sw_site_scales_add(&scales, SW_SITE_MLP_IN, -1, 3, half, K, &err), SW_OK);
    assert_int_equal(sw_site_scales_add(&scales, SW_SITE_DOWN_IN, 1, 3, scale, K, &err), SW_OK);
    assert_null(sw_site_scales_of(&scales, SW_SITE_O_IN, -1));
    assert_null(sw_site_scales_of(&scales, SW_SITE_DOWN_IN, -1));
    assert_true(sw_site_scales_of(&scales, SW_SITE_DOWN_IN, 0)[3] == 1.0);
    assert_true(sw_site_scales_of(&scales, SW_SITE_DOWN_IN, 1)[3] == scale[3]);
    assert_true(sw_site_scales_of(&scales, SW_SITE_MLP_IN, 2)[3] == 0.5 * scale[3]);
    sw_site_scales_apply(&stats, &scales);
    for (int i = 0; i < K * K; i++) {
        power += want.h[i] * want.h[i];
        error += (want.h[i] - h->h[i]) * (want.h[i] - h->h[i]);
    }
    assert_true(sqrt(error) < 1e-6 * sqrt(power));
    sw_hessian_free(&want);
    sw_site_stats_free(&stats);
    sw_site_scales_free(&scales);
}

/* The windows in the file are those that a direct run searches and is judged on. */
static void test_windows_are_those_of_a_direct_run(void **state)
{
    enum { MANY = 9000, LENGTH = 16 };
    uint32_t *ids = malloc(MANY * LENGTH * sizeof *ids);
    sw_calib calib = {ids, MANY, LENGTH};
    uint8_t *parts = calloc(MANY, 1);
    sw_zpack_writer *w = NULL;
    sw_stats_windows windows;
    int64_t at = 0, n_part[SW_BLOCK_PROBE_PARTS] = {0}, n_lead = 0;
    sw_zpack *z = NULL;
    stats_case t;
    sw_err err = {0};

    (void)state;
    stats_case_open(&t, "llama");
    for (int i = 0; i < MANY * LENGTH; i++) ids[i] = (uint32_t)(i / LENGTH % t.ckpt.model.vocab);
    assert_int_equal(sw_zpack_writer_new(&w, scratch_path(&t.s, "w"), true, &err), SW_OK);
    assert_int_equal(sw_stats_put_windows(w, &calib, &err), SW_OK);
    assert_int_equal(sw_zpack_writer_commit(w, &err), SW_OK);
    sw_zpack_writer_free(w);
    assert_int_equal(sw_zpack_open(&z, scratch_path(&t.s, "w"), &err), SW_OK);
    assert_int_equal(sw_stats_windows_read(&windows, z, &t.ckpt.model, SW_STATS_PROBES, "", &err),
                     SW_OK);
    assert_int_equal(windows.calib.seq_len, LENGTH);
    sw_block_probe_parts(parts, MANY, LENGTH);
    for (int64_t i = 0; i < MANY; i++) {
        if (!parts[i]) continue;
        assert_int_equal(windows.parts[at] & SW_STATS_PROBES, parts[i]);
        assert_int_equal(windows.ids[at * LENGTH], ids[i * LENGTH]);
        for (int part = 0; part < SW_BLOCK_PROBE_PARTS; part++)
            n_part[part] += parts[i] >> part & 1;
        at++;
    }
    assert_int_equal(windows.calib.n_seqs, at);
    assert_int_equal(n_part[SW_BLOCK_PROBE_SEARCH] * LENGTH, 16384);
    assert_int_equal(n_part[SW_BLOCK_PROBE_HELD] * LENGTH, 4096);
    sw_stats_windows_free(&windows);
    assert_int_equal(sw_stats_windows_read(&windows, z, &t.ckpt.model, SW_STATS_LEAD, "", &err),
                     SW_OK);
    for (; n_lead < windows.calib.n_seqs; n_lead++)
        assert_int_equal(windows.ids[n_lead * LENGTH], ids[n_lead * LENGTH]);
    assert_int_equal(n_lead * LENGTH, 1024);
    sw_stats_windows_free(&windows);
    sw_zpack_close(z);
    stats_case_close(&t);
    free(parts);
    free(ids);
}

/* Up to the first solved linear a run from the file sees what a run from the text sees. */
static void test_transforms_search_alike(void **state)
{
    static const struct {
        const char *arch, *scheme, *method;
    } cases[] = {{"llama", "W4A16", "awq+gptq"},
                 {"qwen3_moe", "W4A16", "awq"},
                 {"llama", "W8A8", "smoothquant+gptq"}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sw_quant_options o = options_of(cases[i].scheme, cases[i].method);
        stats_case t;
        sw_zpack *z;
        take *direct, *stored, *rest;
        stats_case_open(&t, cases[i].arch);
        z = stats_case_collect(&t, "stats", &o, true);
        direct = run(&t, NULL, &o, 0);
        stored = run(&t, z, &o, 0);
        assert_int_equal(direct->n, stored->n);
        assert_int_equal(direct->n_transforms, stored->n_transforms);
        assert_true(direct->n_transforms > 0);
        for (int r = 0; r < direct->n_transforms; r++) {
            const sw_transform_report *a = &direct->transforms[r], *b = &stored->transforms[r];
            assert_string_equal(a->producer, b->producer);
            if (r) continue; /* the attention input of the first layer: nothing is quantized yet */
            assert_string_equal(a->choice, b->choice);
            assert_true(a->loss == b->loss && a->loss_before == b->loss_before);
            assert_true(a->scale_min == b->scale_min && a->scale_max == b->scale_max);
        }
        /* a run that continues gives the same codes */
        rest = run(&t, z, &o, 1);
        for (int l = 0; l < rest->n; l++) {
            int at = stored->n - rest->n + l;
            assert_string_equal(rest->path[l], stored->path[at]);
            assert_true(rest->hash[l] == stored->hash[at]);
        }
        assert_true(rest->n > 0 && rest->n < stored->n);
        free(direct);
        free(stored);
        free(rest);
        sw_zpack_close(z);
        stats_case_close(&t);
    }
}

static bool is_near(double have, double want, double factor)
{
    return have < factor * want && want < factor * have;
}

/* Outliers that folds divide by far: solved with what was stored before, all is as well as with
 * what is observed after, and stored scales of inputs are those of the divided ones. In the first
 * layer, that is: what its errors do to the next is in one of the two alone. */
static void test_solved_for_divided_inputs(void **state)
{
    static const char *const archs[] = {"llama", "mixtral"};
    const sw_act int8_tensor = {&sw_nums[SW_NUM_INT8], SW_ACT_TENSOR, 0, SW_DTYPE_F32};

    (void)state;
    for (int i = 0; i < 3; i++) {
        sw_quant_options o = options_of("W8A8", "smoothquant+gptq");
        double most = 1;
        scratch dir;
        char source[64];
        take *direct, *stored;
        stats_case t;
        sw_zpack *z;
        if (i) o.spec.act = int8_tensor; /* counts come from the windows then */
        scratch_open(&dir);
        (void)snprintf(source, sizeof source, "tests/golden/arch/%s", archs[i / 2]);
        outlier_model_make(scratch_path(&dir, "m"), source, 4, 30, 7);
        stats_case_open_dir(&t, scratch_path(&dir, "m"));
        z = stats_case_collect(&t, "stats", &o, true);
        o.experts = SW_EXPERTS_ROUTED; /* their own statistics alone */
        direct = run(&t, NULL, &o, 0);
        stored = run(&t, z, &o, 0);
        for (int r = 0; r < stored->n_transforms; r++)
            if (stored->transforms[r].is_accepted)
                most = fmax(most, stored->transforms[r].scale_max);
        assert_true(most > 3);
        for (int l = 0; strstr(direct->path[l], "layers.0"); l++) {
            if (strstr(direct->path[l], "w2")) continue; /* whether a fold pays is close there */
            assert_true(is_near(stored->error[l], direct->error[l], 1.15));
            if (i)
                assert_true(is_near((double)stored->input_scale[l],
                                    (double)direct->input_scale[l], 1.15));
        }
        free(direct);
        free(stored);
        sw_zpack_close(z);
        stats_case_close(&t);
        scratch_close(&dir);
    }
}

/* One scale for a layer's inputs of a kind: from the file what the text gives, up to what earlier
 * layers' errors move; in the first layer exactly. */
static void test_input_scales(void **state)
{
    static const char *const archs[] = {"llama", "qwen3_moe"};

    (void)state;
    for (int i = 0; i < 2; i++) {
        sw_quant_options o = options_of("FP8", "rtn");
        take *direct, *stored;
        stats_case t;
        sw_zpack *z;
        o.kv_num = &sw_nums[SW_NUM_E4M3];
        stats_case_open(&t, archs[i]);
        z = stats_case_collect(&t, "stats", &o, true);
        direct = run(&t, NULL, &o, 0);
        stored = run(&t, z, &o, 0);
        assert_int_equal(direct->n, stored->n);
        assert_true(direct->input_scale[0] == stored->input_scale[0]);
        for (int l = 0; l < direct->n; l++) {
            double ratio = (double)stored->input_scale[l] / (double)direct->input_scale[l];
            assert_string_equal(direct->path[l], stored->path[l]);
            assert_true(direct->hash[l] == stored->hash[l]); /* rounding alone */
            assert_true(ratio > 0.8 && ratio < 1.25);
        }
        assert_int_equal(stored->n_kv, t.ckpt.model.n_layers);
        for (int64_t l = 0; l < t.ckpt.model.n_layers; l++) {
            assert_true(fabs((double)stored->k_scale[l] / (double)direct->k_scale[l] - 1) < 0.1);
            assert_true(fabs((double)stored->v_scale[l] / (double)direct->v_scale[l] - 1) < 0.1);
        }
        free(direct);
        free(stored);
        sw_zpack_close(z);
        stats_case_close(&t);
    }
}

/* Losses of every linear under two schemes. */
typedef struct losses {
    double loss[LINEARS_MAX][2];
    int n;
} losses;

static sw_code put_losses(void *self, const sw_linear_ref *ref, const char *path,
                          const double *loss, sw_err *err)
{
    losses *k = self;

    (void)ref, (void)path, (void)err;
    memcpy(k->loss[k->n++], loss, sizeof k->loss[0]);
    return SW_OK;
}

static void test_sensitivities(void **state)
{
    static const char *const archs[] = {"llama", "qwen3_moe"};

    (void)state;
    for (int i = 0; i < 2; i++) {
        sw_quant_options o = options_of("W4A16", "gptq");
        sw_qspec specs[2] = {o.spec, o.spec};
        losses direct = {.n = 0}, stored = {.n = 0};
        sw_sensitivity_sink sink = {&direct, takes_all, put_losses};
        sw_sensitivity_options so = {.algo = o.algo, .specs = specs, .n_specs = 2, .damp = 0.01,
                                     .n_threads = 1};
        sw_stats_windows lead;
        sw_err err = {0};
        stats_case t;
        sw_zpack *z;
        specs[0].num = sw_num_by_bits(3);
        stats_case_open(&t, archs[i]);
        z = stats_case_collect(&t, "stats", &o, true);
        assert_int_equal(sw_stats_windows_read(&lead, z, &t.ckpt.model, SW_STATS_LEAD, "", &err),
                         SW_OK);
        assert_int_equal(sw_sensitivity_run(&t.ckpt.model, t.ckpt.st, &t.calib, &so, &sink, NULL,
                                            &err), SW_OK);
        sink.self = &stored;
        so.stats = z;
        assert_int_equal(sw_sensitivity_run(&t.ckpt.model, t.ckpt.st, &lead.calib, &so, &sink,
                                            NULL, &err), SW_OK);
        assert_int_equal(direct.n, stored.n);
        for (int l = 0; l < direct.n; l++)
            for (int s = 0; s < 2; s++)
                assert_true(fabs(stored.loss[l][s] - direct.loss[l][s]) <=
                            1e-3 * direct.loss[l][s]);
        sw_stats_windows_free(&lead);
        sw_zpack_close(z);
        stats_case_close(&t);
    }
}

static void test_without_text(void **state)
{
    sw_quant_options o = options_of("W4A16", "awq");
    take k = {0};
    sw_quant_sink sink = {.self = &k, .put = put, .is_selected = takes_all};
    sw_err err = {0};
    stats_case t;
    sw_zpack *z;

    (void)state;
    stats_case_open(&t, "llama");
    z = stats_case_collect(&t, "stats", &o, false);
    assert_int_equal(sw_quant_run_stats(&t.ckpt.model, t.ckpt.st, z, &o, &sink, NULL, &err),
                     SW_E_USAGE);
    assert_non_null(strstr(err.text, "method awq tries candidates"));
    assert_non_null(strstr(err.text, "--no-text"));
    assert_int_equal(k.n, 0);
    sw_zpack_close(z);
    stats_case_close(&t);
}

/* A file of one window list and one list of parts, as they are given. */
static sw_code read_windows(stats_case *t, const uint32_t *ids, int64_t n_ids, const uint8_t *parts,
                            int64_t n_parts, sw_err *err)
{
    sw_zpack_writer *w = NULL;
    sw_stats_windows windows = {.ids = NULL};
    sw_zpack *z = NULL;
    sw_code rc;

    assert_int_equal(sw_zpack_writer_new(&w, scratch_path(&t->s, "w"), true, err), SW_OK);
    if (n_ids >= 0)
        assert_int_equal(sw_zpack_writer_put(w, "windows.ids", SW_DTYPE_U32, 1, &n_ids, ids,
                                             (size_t)n_ids * 4, err), SW_OK);
    assert_int_equal(sw_zpack_writer_put(w, "windows.parts", SW_DTYPE_U8, 1, &n_parts, parts,
                                         (size_t)n_parts, err), SW_OK);
    assert_int_equal(sw_zpack_writer_commit(w, err), SW_OK);
    sw_zpack_writer_free(w);
    assert_int_equal(sw_zpack_open(&z, scratch_path(&t->s, "w"), err), SW_OK);
    rc = sw_stats_windows_read(&windows, z, &t->ckpt.model, SW_STATS_LEAD, "it", err);
    sw_stats_windows_free(&windows);
    sw_zpack_close(z);
    return rc;
}

static void test_windows_that_cannot_be(void **state)
{
    static const uint8_t parts[] = {SW_STATS_LEAD, 1, 2};
    static const struct {
        uint32_t last;
        int64_t n_ids, n_parts, first_part;
        const char *says; /* NULL: sound */
    } cases[] = {{5, 6, 3, 0, NULL},
                 {5, 6, 2, 1, "no window for what is asked"},
                 {4000000000u, 6, 3, 0, "beyond the vocabulary"},
                 {5, 5, 3, 0, "not whole windows"},
                 {5, 0, 3, 0, "not whole windows"},
                 {5, 6, 0, 0, "not whole windows"},
                 {5, -1, 3, 0, "not whole windows"}};
    uint32_t ids[6] = {0, 1, 2, 3, 4, 5};
    stats_case t;

    (void)state;
    stats_case_open(&t, "llama");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sw_err err = {0};
        sw_code rc;
        ids[5] = cases[i].last;
        rc = read_windows(&t, ids, cases[i].n_ids, parts + cases[i].first_part, cases[i].n_parts,
                          &err);
        assert_int_equal(rc, cases[i].says ? SW_E_FORMAT : SW_OK);
        if (cases[i].says) assert_non_null(strstr(err.text, cases[i].says));
    }
    stats_case_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_divided_statistics),
        cmocka_unit_test(test_windows_are_those_of_a_direct_run),
        cmocka_unit_test(test_transforms_search_alike),
        cmocka_unit_test(test_solved_for_divided_inputs),
        cmocka_unit_test(test_input_scales),
        cmocka_unit_test(test_sensitivities),
        cmocka_unit_test(test_without_text),
        cmocka_unit_test(test_windows_that_cannot_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
