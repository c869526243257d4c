/* test_pipeline.c - whole runs of the quantizer on a toy model: what reaches the sink. */
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
#include "tests/support/toys/random.h"

enum { SEQS = 40, LEN = 128, LINEARS_MAX = 64 };

typedef struct toy {
    cJSON *config;
    sw_model model;
    sw_st *st;
    uint32_t ids[SEQS * LEN];
    sw_calib calib;
} toy;

/* What the sink got: codes and scales one after the other, and a figure or two. */
typedef struct take {
    int n;
    char path[LINEARS_MAX][256];
    double error[LINEARS_MAX], error_rtn[LINEARS_MAX];
    bool is_fallback[LINEARS_MAX];
    int64_t n_routed[LINEARS_MAX];
    double shared_weight[LINEARS_MAX];
    uint8_t *bytes;
    size_t n_bytes;
    const char *skip; /* paths that contain this are not selected */
} take;

static void toy_open(toy *t, const char *arch)
{
    char path[256];
    test_rng rng = {17};
    sw_err err = {0};

    memset(t, 0, sizeof *t);
    sw_blas_single_thread();
    (void)snprintf(path, sizeof path, "tests/golden/arch/%s/config.json", arch);
    assert_int_equal(sw_json_read(&t->config, path, &sw_json_caps_config, &err), SW_OK);
    assert_int_equal(sw_model_read(&t->model, t->config, &err), SW_OK);
    (void)snprintf(path, sizeof path, "tests/golden/arch/%s", arch);
    assert_int_equal(sw_st_open(&t->st, path, &err), SW_OK);
    for (int i = 0; i < SEQS * LEN; i++)
        t->ids[i] = (uint32_t)(test_uniform(&rng) * test_uniform(&rng) * (double)t->model.vocab);
    t->calib = (sw_calib){t->ids, SEQS, LEN};
}

static void toy_close(toy *t)
{
    cJSON_Delete(t->config);
    sw_st_close(t->st);
}

static sw_code put(void *self, const sw_linear_ref *ref, const char *path, const sw_qtensor *q,
                   const sw_solve_report *report, sw_err *err)
{
    take *k = self;
    size_t n_codes = (size_t)(q->n_out * q->k_in);
    size_t n_scales = (size_t)(q->n_out * q->n_groups) * sizeof *q->scales;

    assert_int_equal(q->n_out, ref->n_out);
    assert_int_equal(sw_qtensor_check(q, err), SW_OK);
    (void)snprintf(k->path[k->n], sizeof k->path[0], "%s", path);
    k->error[k->n] = report->error;
    k->error_rtn[k->n] = report->error_rtn;
    k->n_routed[k->n] = report->n_routed;
    k->shared_weight[k->n] = report->shared_weight;
    k->is_fallback[k->n++] = report->is_fallback;
    k->bytes = realloc(k->bytes, k->n_bytes + n_codes + n_scales);
    memcpy(k->bytes + k->n_bytes, q->codes, n_codes);
    memcpy(k->bytes + k->n_bytes + n_codes, q->scales, n_scales);
    k->n_bytes += n_codes + n_scales;
    return SW_OK;
}

static bool is_selected(void *self, const sw_linear_ref *ref, const char *path)
{
    const take *k = self;

    (void)ref;
    return !k->skip || !strstr(path, k->skip);
}

static sw_quant_options options_of(const char *method, int n_threads)
{
    sw_quant_options o = sw_quant_defaults();

    o.algo = sw_algo_find(method);
    o.spec.group_elems = 32;
    o.n_threads = n_threads;
    return o;
}

static sw_code run(take *k, const toy *t, const sw_quant_options *o, bool with_calib, sw_err *err)
{
    sw_quant_sink sink = {.self = k, .put = put, .is_selected = is_selected};

    return sw_quant_run(&t->model, t->st, with_calib ? &t->calib : NULL, o, &sink, NULL, err);
}

static void test_every_linear_once_in_block_order(void **state)
{
    static const char *const want[] = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                                       "self_attn.o_proj", "mlp.gate_proj",    "mlp.up_proj",
                                       "mlp.down_proj"};
    sw_quant_options o = options_of("gptq", 2);
    take k = {0};
    sw_err err = {0};
    toy t;

    (void)state;
    toy_open(&t, "llama");
    assert_int_equal(run(&k, &t, &o, true, &err), SW_OK);
    assert_int_equal(k.n, 15);
    for (int i = 0; i < k.n; i++) {
        char path[256] = "lm_head";
        if (i < 14)
            (void)snprintf(path, sizeof path, "model.layers.%d.%s", i / 7, want[i % 7]);
        assert_string_equal(k.path[i], path);
        assert_false(k.is_fallback[i]);
        assert_true(k.error[i] < 0.9 * k.error_rtn[i]);
    }
    free(k.bytes);
    toy_close(&t);
}

static void test_threads_and_runs_give_the_same_bytes(void **state)
{
    static const char *const archs[] = {"llama", "qwen3_moe"};
    sw_err err = {0};
    toy t;

    (void)state;
    for (int a = 0; a < 2; a++) {
        sw_quant_options one = options_of("gptq", 1), three = options_of("gptq", 3);
        take x = {0}, y = {0};
        toy_open(&t, archs[a]);
        assert_int_equal(run(&x, &t, &one, true, &err), SW_OK);
        assert_int_equal(run(&y, &t, &three, true, &err), SW_OK);
        assert_int_equal(x.n_bytes, y.n_bytes);
        assert_memory_equal(x.bytes, y.bytes, x.n_bytes);
        free(x.bytes);
        free(y.bytes);
        toy_close(&t);
    }
}

static void test_streams_on_disk_give_the_same_bytes(void **state)
{
    sw_quant_options in_memory = options_of("gptq", 2), on_disk = in_memory, nowhere = in_memory;
    take x = {0}, y = {0}, z = {0};
    sw_err err = {0};
    toy t;

    (void)state;
    toy_open(&t, "llama");
    on_disk.spill_dir = ".";
    nowhere.spill_dir = "/nonexistent";
    assert_int_equal(run(&x, &t, &in_memory, true, &err), SW_OK);
    assert_int_equal(run(&y, &t, &on_disk, true, &err), SW_OK);
    assert_int_equal(x.n_bytes, y.n_bytes);
    assert_memory_equal(x.bytes, y.bytes, x.n_bytes);
    assert_int_equal(run(&z, &t, &nowhere, true, &err), SW_E_IO);
    assert_non_null(strstr(err.text, "/nonexistent"));
    assert_int_equal(z.n, 0);
    free(x.bytes);
    free(y.bytes);
    toy_close(&t);
}

static void test_each_mode_differs_and_serves(void **state)
{
    sw_quant_options a = options_of("gptq", 2), b = a, c = a;
    take x = {0}, y = {0}, z = {0};
    sw_err err = {0};
    toy t;

    (void)state;
    toy_open(&t, "qwen2");
    b.sequential = SW_SEQUENTIAL_LAYER;
    c.cap.input = c.cap.residual = 0;
    assert_int_equal(run(&x, &t, &a, true, &err), SW_OK);
    assert_int_equal(run(&y, &t, &b, true, &err), SW_OK);
    assert_int_equal(run(&z, &t, &c, true, &err), SW_OK);
    assert_int_equal(x.n, 14);
    assert_int_equal(y.n, 14);
    assert_memory_not_equal(x.bytes, y.bytes, x.n_bytes); /* o sees quantized q, k, v or not */
    assert_memory_not_equal(x.bytes, z.bytes, x.n_bytes);
    free(x.bytes);
    free(y.bytes);
    free(z.bytes);
    toy_close(&t);
}

static void test_rtn_needs_no_text_and_gptq_does(void **state)
{
    sw_quant_options rtn = options_of("rtn", 1), gptq = options_of("gptq", 1);
    take k = {0};
    sw_err err = {0};
    toy t;

    (void)state;
    toy_open(&t, "mistral");
    assert_int_equal(run(&k, &t, &rtn, false, &err), SW_OK);
    assert_int_equal(k.n, 15);
    assert_int_equal(run(&k, &t, &gptq, false, &err), SW_E_USAGE);
    free(k.bytes);
    toy_close(&t);
}

static void test_unselected_linears_stay(void **state)
{
    sw_quant_options o = options_of("rtn", 1);
    take k = {.skip = "mlp"};
    sw_err err = {0};
    toy t;

    (void)state;
    toy_open(&t, "llama");
    assert_int_equal(run(&k, &t, &o, false, &err), SW_OK);
    assert_int_equal(k.n, 9);
    free(k.bytes);
    toy_close(&t);
}

/* 256 inputs of down want 64 tokens; an expert gets about half of 80. Alone it falls back, and
 * says so; leaning on all tokens it never does. */
static void test_starved_experts_lean_on_all_tokens(void **state)
{
    sw_quant_options o = options_of("gptq", 1);
    sw_err err = {0};
    toy t;

    (void)state;
    toy_open(&t, "mixtral");
    t.calib.n_seqs = 1;
    t.calib.seq_len = 80;
    for (int policy = 0; policy < SW_EXPERTS_COUNT; policy++) {
        int n_fallback = 0;
        take k = {0};
        o.experts = (sw_experts)policy;
        assert_int_equal(run(&k, &t, &o, true, &err), SW_OK);
        assert_int_equal(k.n, 2 * (4 + 3 * 4) + 1);
        for (int i = 0; i < k.n; i++) {
            if (!k.is_fallback[i]) continue;
            n_fallback++;
            assert_non_null(strstr(k.path[i], ".experts."));
        }
        assert_true(policy == SW_EXPERTS_ROUTED ? n_fallback > 0 : n_fallback == 0);
        free(k.bytes);
    }
    toy_close(&t);
}

/* One word over and over goes to the same two of four experts; the others have no token at all,
 * and are still solved, better than by rounding. */
static void test_experts_without_a_token(void **state)
{
    sw_quant_options o = options_of("gptq", 1);
    int n_unreached = 0, n_reached = 0;
    take k = {0};
    sw_err err = {0};
    toy t;

    (void)state;
    toy_open(&t, "mixtral");
    for (int i = 0; i < SEQS * LEN; i++) t.ids[i] = 5;
    t.calib.n_seqs = 4;
    assert_int_equal(run(&k, &t, &o, true, &err), SW_OK);
    for (int i = 0; i < k.n; i++) {
        bool is_expert = strstr(k.path[i], ".experts.") != NULL;
        assert_false(k.is_fallback[i]);
        assert_int_equal(k.n_routed[i] >= 0, is_expert);
        if (is_expert) assert_true(k.error[i] <= k.error_rtn[i]);
        n_reached += k.n_routed[i] == 4 * LEN;
        if (k.n_routed[i] != 0) continue;
        n_unreached++;
        assert_true(k.shared_weight[i] == 1.0);
    }
    assert_int_equal(n_unreached, 2 * 2 * 3);
    assert_int_equal(n_reached, 2 * 2 * 3);
    free(k.bytes);
    toy_close(&t);
}

/* With much text of its own an expert is hardly pulled, and the three ways differ. */
static void test_expert_policies_differ(void **state)
{
    take k[SW_EXPERTS_COUNT] = {{0}};
    sw_err err = {0};
    toy t;

    (void)state;
    toy_open(&t, "qwen3_moe");
    t.calib.n_seqs = 16;
    for (int i = 0; i < SEQS * LEN; i++) t.ids[i] %= 8; /* few words: experts get different ones */
    for (int policy = 0; policy < SW_EXPERTS_COUNT; policy++) {
        sw_quant_options o = options_of("gptq", 1);
        int64_t n_layer = 0;
        int n_own = 0;
        take *x = &k[policy];
        o.experts = (sw_experts)policy;
        assert_int_equal(run(x, &t, &o, true, &err), SW_OK);
        for (int i = 0; i < x->n; i++) {
            if (x->n_routed[i] < 0) continue;
            assert_true(policy != SW_EXPERTS_ROUTED || x->shared_weight[i] == 0.0);
            assert_true(policy != SW_EXPERTS_ALL || x->shared_weight[i] == 1.0);
            n_own += policy == SW_EXPERTS_SHRINK && x->shared_weight[i] < 1.0;
            if (strstr(x->path[i], "layers.0") && strstr(x->path[i], "down"))
                n_layer += x->n_routed[i];
        }
        assert_int_equal(n_layer, t.calib.n_seqs * LEN * t.model.n_experts_used);
        assert_true(policy != SW_EXPERTS_SHRINK || n_own > 0);
    }
    for (int a = 0; a < SW_EXPERTS_COUNT; a++)
        for (int b = 0; b < a; b++)
            assert_memory_not_equal(k[a].bytes, k[b].bytes, k[a].n_bytes);
    for (int a = 0; a < SW_EXPERTS_COUNT; a++) free(k[a].bytes);
    toy_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_linear_once_in_block_order),
        cmocka_unit_test(test_threads_and_runs_give_the_same_bytes),
        cmocka_unit_test(test_streams_on_disk_give_the_same_bytes),
        cmocka_unit_test(test_each_mode_differs_and_serves),
        cmocka_unit_test(test_rtn_needs_no_text_and_gptq_does),
        cmocka_unit_test(test_unselected_linears_stay),
        cmocka_unit_test(test_starved_experts_lean_on_all_tokens),
        cmocka_unit_test(test_experts_without_a_token),
        cmocka_unit_test(test_expert_policies_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
