/* test_kv_form.c - keys and values kept in eight bits: what it costs, that steps and whole
 * sequences see the same, and where the scales come from. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "formats/base/mem.h"
#include "kernels/engine/lm_open.h"
#include "tests/support/cases/ckpt_case.h"
#include "tests/support/toys/open_model.h"

#define MODEL "calib_data/tiny-llama"
#define SEQ_LEN 48
#define COST_LIMIT 3e-2 /* relative L2 of logits: E4M3 keeps four bits of a number, int8 seven of
                         * the largest */
#define COST_LEAST 1e-4 /* but does not keep all of it */

static void must(sw_code rc, const sw_err *err)
{
    if (rc != SW_OK) fail_msg("%s", err->text);
}

static void keep(open_model *m, sw_kv_kind kind, float k_scale, float v_scale)
{
    for (int64_t l = 0; l < m->model.n_layers; l++)
        m->lm.blocks[l].kv = (sw_kv_form){kind, k_scale, v_scale};
}

static void make_ids(uint32_t *ids, const open_model *m)
{
    for (int i = 0; i < SEQ_LEN; i++) ids[i] = (uint32_t)((i * 37 + 11) % m->model.vocab);
}

/* Relative L2 of the logits from those with a cache of floats. */
static double cost_of(open_model *m, sw_kv_kind kind, float k_scale, float v_scale)
{
    uint32_t ids[SEQ_LEN];
    float *want, *have;
    double error;

    make_ids(ids, m);
    keep(m, SW_KV_FLOATS, 0, 0);
    want = model_logits(m, 2, ids, 1, SEQ_LEN);
    keep(m, kind, k_scale, v_scale);
    have = model_logits(m, 2, ids, 1, SEQ_LEN);
    error = relative_l2(have, want, SEQ_LEN * m->model.vocab);
    sw_mem_put(want);
    sw_mem_put(have);
    return error;
}

static void test_cost(void **state)
{
    open_model m;
    double plain, fine, coarse, cut;

    (void)state;
    open_model_dir(&m, MODEL);
    plain = cost_of(&m, SW_KV_E4M3, 1, 1);
    fine = cost_of(&m, SW_KV_E4M3, 0x1p-4f, 0x1p-6f);
    coarse = cost_of(&m, SW_KV_E4M3, 0x1p12f, 0x1p12f); /* most codes are zero */
    cut = cost_of(&m, SW_KV_E4M3, 0x1p-12f, 0x1p-12f); /* most codes are the largest */
    print_message("scale 1: %.2e, small scales: %.2e; too large: %.2e, too small: %.2e\n", plain,
                  fine, coarse, cut);
    assert_true(plain <= COST_LIMIT && plain >= COST_LEAST);
    assert_true(fine <= COST_LIMIT && fine >= COST_LEAST);
    assert_true(coarse > COST_LIMIT && cut > COST_LIMIT);
    open_model_close(&m);
}

/* Codes of int8 are evenly apart: scales must fit what there is. */
static void test_cost_of_int8(void **state)
{
    open_model m;
    double fine, coarse, cut;

    (void)state;
    open_model_dir(&m, MODEL);
    fine = cost_of(&m, SW_KV_INT8, 0x1p-3f, 0x1p-5f);
    coarse = cost_of(&m, SW_KV_INT8, 1, 1);
    cut = cost_of(&m, SW_KV_INT8, 0x1p-8f, 0x1p-10f);
    print_message("int8: %.2e; too large: %.2e, too small: %.2e\n", fine, coarse, cut);
    assert_true(fine <= COST_LIMIT && fine >= COST_LEAST);
    assert_true(coarse > COST_LIMIT && cut > COST_LIMIT);
    open_model_close(&m);
}

static void check_steps(sw_kv_kind kind)
{
    uint32_t ids[SEQ_LEN];
    sw_session *s = NULL;
    sw_engine *e;
    open_model m;
    sw_err err = {0};
    float *want, *logits;
    int64_t vocab;

    open_model_dir(&m, MODEL);
    vocab = m.model.vocab;
    keep(&m, kind, 0.0625f, 0.015625f);
    make_ids(ids, &m);
    want = model_logits(&m, 1, ids, 1, SEQ_LEN);
    e = open_engine(&m, SEQ_LEN, 2);
    must(SW_MEM_GET(&logits, vocab, "logits", &err), &err);
    must(sw_session_new(&s, e, &m.lm, SEQ_LEN, &err), &err);
    for (int at = 0, n = 20; at < SEQ_LEN; at += n, n = 1) {
        must(sw_session_feed(s, logits, ids + at, n, &err), &err);
        assert_true(relative_l2(logits, want + (at + n - 1) * vocab, vocab) < 1e-4);
    }
    sw_session_free(s);
    sw_engine_free(e);
    sw_mem_put(logits);
    sw_mem_put(want);
    open_model_close(&m);
}

static void test_steps(void **state)
{
    (void)state;
    check_steps(SW_KV_E4M3);
    check_steps(SW_KV_INT8);
}

/* The last is there in all tests, the others where all layers have scales. */
static const char *const scale_names[] = {
    "model.layers.0.self_attn.k_scale", "model.layers.0.self_attn.v_scale",
    "model.layers.1.self_attn.v_scale", "model.layers.1.self_attn.k_scale"};

/* s/cached: the model of s/source with `n` values under its second layer's k_scale, or `all`. */
static void write_scaled(const scratch *s, const sw_checkpoint *from, const float *scale,
                         int64_t n, bool all)
{
    sw_st_writer *w = NULL;
    sw_err err = {0};
    char *config;
    size_t n_bytes;

    must(sw_st_writer_new(&w, scratch_path(s, "cached"), 0, &err), &err);
    for (int64_t i = 0; i < sw_st_count(from->st); i++) {
        const sw_st_tensor *t = sw_st_at(from->st, i);

        must(sw_st_writer_declare(w, t->name, t->view.dtype, t->view.n_dims, t->view.shape, &err),
             &err);
    }
    for (int i = all ? 0 : 3; i < 4; i++)
        must(sw_st_writer_declare(w, scale_names[i], SW_DTYPE_F32, 1, &n, &err), &err);
    must(sw_st_writer_begin(w, &err), &err);
    for (int64_t i = 0; i < sw_st_count(from->st); i++) {
        const sw_st_tensor *t = sw_st_at(from->st, i);

        must(sw_st_writer_put(w, t->name, t->view.data, t->view.size_bytes, &err), &err);
    }
    for (int i = all ? 0 : 3; i < 4; i++)
        must(sw_st_writer_put(w, scale_names[i], scale, 4 * (size_t)n, &err), &err);
    must(sw_st_writer_commit(w, &err), &err);
    sw_st_writer_free(w);
    config = ckpt_text(s, "source", "config.json", &n_bytes);
    scratch_write(s, "cached/config.json", config, n_bytes);
    sw_mem_put(config);
}

static void test_scales(void **state)
{
    static const struct {
        float values[2];
        int64_t n;
        sw_kv_kind kind;
        bool all;
        sw_code code;
        const char *complaint;  /* NULL: none, but these k_scales: */
        float k_scales[2];
    } rows[] = {{{0.125f}, 1, SW_KV_E4M3, false, SW_OK, NULL, {1.0f, 0.125f}},
                {{0}, 1, SW_KV_E4M3, false, SW_E_FORMAT, "must be above zero", {0}},
                {{-1}, 1, SW_KV_E4M3, false, SW_E_FORMAT, "above zero", {0}},
                {{1, 1}, 2, SW_KV_E4M3, false, SW_E_FORMAT, "2 elements", {0}},
                {{0.125f}, 1, SW_KV_INT8, false, SW_E_UNSUPPORTED, "layer 0 has no k_scale", {0}},
                /* found for E4M3: the same range */
                {{127}, 1, SW_KV_INT8, true, SW_OK, NULL, {448, 448}}};
    sw_checkpoint source;
    sw_err err = {0};

    (void)state;
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        const sw_lm_options options = {.n_threads = 1, .kv_kind = rows[r].kind};
        sw_checkpoint ckpt;
        sw_lm lm = {0};
        sw_err why = {0};
        scratch s;
        sw_code rc;

        scratch_open(&s);
        ckpt_source(&s, "llama");
        assert_int_equal(mkdir(scratch_path(&s, "cached"), 0700), 0);
        must(sw_checkpoint_open(&source, scratch_path(&s, "source"), &err), &err);
        write_scaled(&s, &source, rows[r].values, rows[r].n, rows[r].all);
        must(sw_checkpoint_open(&ckpt, scratch_path(&s, "cached"), &err), &err);
        rc = sw_lm_open(&lm, &ckpt, &options, &why);
        if (rows[r].complaint) {
            assert_int_equal(rc, rows[r].code);
            assert_non_null(strstr(why.text, rows[r].complaint));
            assert_non_null(strstr(why.text, "k_scale"));
        } else {
            must(rc, &why);
            for (int l = 0; l < 2; l++) {
                assert_true(lm.blocks[l].kv.kind == rows[r].kind);
                assert_float_equal(lm.blocks[l].kv.k_scale, rows[r].k_scales[l], 1e-4);
            }
            assert_true(rows[r].all || lm.blocks[1].kv.v_scale == 1.0f);
        }
        sw_lm_free(&lm);
        sw_checkpoint_close(&ckpt);
        sw_checkpoint_close(&source);
        scratch_close(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cost), cmocka_unit_test(test_cost_of_int8),
        cmocka_unit_test(test_steps), cmocka_unit_test(test_scales)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
