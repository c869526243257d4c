/* test_smooth.c - SmoothQuant on a model with outliers in its activations: what plain W8A8 loses
 * there through the integer kernel, and how much of it comes back. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "formats/base/size.h"
#include "quant/run/pipeline.h"
#include "quant/search/transform.h"
#include "tests/support/scratch.h"
#include "tests/support/toys/open_model.h"
#include "tests/support/toys/patched_model.h"
#include "verify/base/metrics.h"

#define MODEL "calib_data/tiny-llama"
enum { SEQS = 4, LEN = 96, TOKENS = SEQS * LEN, EVAL = 192, REPORTS_MAX = 64, LINEARS_MAX = 64 };

/* A model whose linears are what the quantizer put, packed for the kernel. */
typedef struct served {
    open_model m;
    sw_tiles tiles[LINEARS_MAX];
    void *bytes[2 * LINEARS_MAX];
    int n_linears, n_reports, n_accepted, n_changed;
    sw_transform_report reports[REPORTS_MAX];
} served;

/* Tiles for the integer kernel; scales are floats of whatever the spec says. */
static sw_code put(void *self, const sw_linear_ref *ref, const char *path, const sw_qtensor *q,
                   const sw_solve_report *report, sw_err *err)
{
    served *s = self;
    sw_weight *w = sw_block_weight(&s->m.lm.blocks[ref->layer], ref->slot, ref->expert);
    sw_tiles *t = &s->tiles[s->n_linears];
    void *codes = NULL, *scales = NULL;

    (void)path;
    (void)report;
    assert_true(s->n_linears < LINEARS_MAX);
    assert_int_equal(sw_mem_get(&codes, sw_tiles_codes_bytes(q->spec.num, q->n_out, q->k_in), 1,
                                "codes", err), SW_OK);
    assert_int_equal(sw_mem_get(&scales, sw_tiles_scales_bytes(q->spec.scale_dtype, q->n_out,
                                                               q->n_groups), 1, "scales", err),
                     SW_OK);
    s->bytes[2 * s->n_linears] = codes;
    s->bytes[2 * s->n_linears++ + 1] = scales;
    if (sw_tiles_pack(codes, scales, NULL, q, err) != SW_OK) fail_msg("%s", err->text);
    *t = (sw_tiles){.spec = q->spec, .n_out = q->n_out, .k_in = q->k_in, .n_groups = q->n_groups,
                    .container_bits = sw_tiles_container_bits(q->spec.num), .codes = codes,
                    .scales = scales, .input_scale = q->input_scale};
    w->dense = NULL;
    w->tiles = t;
    w->act = q->spec.act;
    w->input_scale = q->input_scale;
    assert_int_equal(sw_gemm_op_of(w), SW_GEMM_W8A8);
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
    served *s = self;
    long layer = strtol(name + strlen("model.layers."), NULL, 10);
    sw_slot slot = strstr(name, "input_layernorm") ? SW_SLOT_NORM_ATTN : SW_SLOT_NORM_MLP;

    (void)err;
    memcpy(s->m.lm.blocks[layer].norm[slot], values, (size_t)n * sizeof *values);
    s->n_changed++;
    return SW_OK;
}

static sw_code transformed(void *self, const sw_transform_report *report, sw_err *err)
{
    served *s = self;

    (void)err;
    s->n_accepted += report->is_accepted;
    if (s->n_reports < REPORTS_MAX) s->reports[s->n_reports++] = *report;
    return SW_OK;
}

/* rows_max: of a reader that trials look at; 0: as the method has it. */
static void serve(served *s, const char *dir, const char *method, int64_t rows_max,
                  sw_act_scope scope)
{
    sw_quant_options o = sw_quant_defaults();
    sw_transform transform = sw_transform_smooth;
    sw_algo algo = *sw_algo_find(method);
    sw_quant_sink sink = {.self = s, .put = put, .is_selected = is_selected, .change = change,
                          .transformed = transformed};
    uint32_t ids[TOKENS];
    sw_calib calib = {ids, SEQS, LEN};
    sw_err err = {0};

    memset(s, 0, sizeof *s);
    read_ids(ids, "calib_data/calib.u16", TOKENS);
    open_model_dir(&s->m, dir);
    transform.rows_max = rows_max;
    if (rows_max) algo.transform = &transform;
    o.algo = &algo;
    o.spec.num = sw_num_by_bits(8);
    o.spec.group_elems = 0;
    o.spec.scale_dtype = SW_DTYPE_F16;
    o.spec.act = (sw_act){.num = sw_num_by_bits(8), .scope = scope, .scale_dtype = SW_DTYPE_F32};
    o.cap = (sw_strengths){0, 0};
    o.n_threads = 2;
    if (sw_quant_run(&s->m.model, s->m.st, &calib, &o, &sink, NULL, &err) != SW_OK)
        fail_msg("%s", err.text);
    assert_int_equal(s->n_linears, 7 * s->m.model.n_layers);
}

static void served_free(served *s)
{
    for (int i = 0; i < 2 * s->n_linears; i++) sw_mem_put(s->bytes[i]);
    open_model_close(&s->m);
}

static float *eval_logits(const open_model *m)
{
    uint32_t ids[EVAL];

    read_ids(ids, "calib_data/eval.u16", EVAL);
    return model_logits(m, 2, ids, 2, EVAL / 2);
}

static double mean_kl(const float *want, const open_model *m)
{
    float *have = eval_logits(m);
    double *room = malloc((size_t)m->model.vocab * sizeof *room), kl = 0;

    for (int i = 0; i < EVAL; i++) {
        sw_position p;
        sw_position_compare(&p, want + i * m->model.vocab, have + i * m->model.vocab,
                            m->model.vocab, 0, room);
        kl += p.kl / EVAL;
    }
    free(room);
    sw_mem_put(have);
    return kl;
}

/* Mean KL to the float model of W8A8 by a method. */
static double loss_of(const char *dir, const char *method, int64_t rows_max, sw_act_scope scope,
                      const float *want)
{
    served *s = calloc(1, sizeof *s);
    double kl;

    assert_non_null(s);
    serve(s, dir, method, rows_max, scope);
    kl = mean_kl(want, &s->m);
    if (strstr(method, "smooth")) {
        assert_true(s->n_accepted > 0);
        assert_true(s->n_changed > 0);
    }
    served_free(s);
    free(s);
    return kl;
}

static void test_outliers(void **state)
{
    scratch dir;
    const char *hard;
    open_model plain, same;
    float *want, *again;
    double lost, smooth, sampled, refined_sampled;

    (void)state;
    scratch_open(&dir);
    hard = scratch_path(&dir, "outliers");
    outlier_model_make(hard, MODEL, 12, 30, 7);
    open_model_dir(&plain, MODEL);
    open_model_dir(&same, hard);
    want = eval_logits(&plain);
    again = eval_logits(&same);
    assert_true(relative_l2(again, want, EVAL * plain.model.vocab) < 1e-5);
    lost = loss_of(hard, "rtn", 0, SW_ACT_TENSOR, want);
    smooth = loss_of(hard, "smoothquant", 0, SW_ACT_TENSOR, want);
    sampled = loss_of(hard, "smoothquant", 32, SW_ACT_TENSOR, want);
    refined_sampled = loss_of(hard, "smoothquant+gptq", 32, SW_ACT_TENSOR, want);
    print_message("  KL of per-tensor W8A8 %.4f, smoothed %.4f, by 32 rows a linear %.4f and with "
                  "GPTQ %.4f\n", lost, smooth, sampled, refined_sampled);
    assert_true(lost > 1);
    assert_true(lost - smooth >= 0.9 * lost);
    assert_true(lost - sampled >= 0.9 * lost);
    assert_true(lost - refined_sampled >= 0.9 * lost);
    sw_mem_put(want);
    sw_mem_put(again);
    open_model_close(&plain);
    open_model_close(&same);
    scratch_close(&dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_outliers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
