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
#define COST_LIMIT 3e-2 /* relative L2 of logits: E4M3 keeps four bits of a number */
#define COST_LEAST 1e-4 /* but does not keep all of it */

static void must(sw_code rc, const sw_err *err)
{
    if (rc != SW_OK) fail_msg("%s", err->text);
}

static void keep(open_model *m, bool is_e4m3, float k_scale, float v_scale)
{
    for (int64_t l = 0; l < m->model.n_layers; l++)
        m->lm.blocks[l].kv = (sw_kv_form){is_e4m3, k_scale, v_scale};
}

static void make_ids(uint32_t *ids, const open_model *m)
{
    for (int i = 0; i < SEQ_LEN; i++) ids[i] = (uint32_t)((i * 37 + 11) % m->model.vocab);
}

/* Relative L2 of the logits from those with a cache of floats. */
static double cost_of(open_model *m, float k_scale, float v_scale)
{
    uint32_t ids[SEQ_LEN];
    float *want, *have;
    double error;

    make_ids(ids, m);
    keep(m, false, 0, 0);
    want = model_logits(m, 2, ids, 1, SEQ_LEN);
    keep(m, true, k_scale, v_scale);
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
    plain = cost_of(&m, 1, 1);
    fine = cost_of(&m, 0x1p-4f, 0x1p-6f);
    coarse = cost_of(&m, 0x1p12f, 0x1p12f); /* most codes are zero */
    cut = cost_of(&m, 0x1p-12f, 0x1p-12f);  /* most codes are the largest */
    print_message("scale 1: %.2e, small scales: %.2e; too large: %.2e, too small: %.2e\n", plain,
                  fine, coarse, cut);
    assert_true(plain <= COST_LIMIT && plain >= COST_LEAST);
    assert_true(fine <= COST_LIMIT && fine >= COST_LEAST);
    assert_true(coarse > COST_LIMIT && cut > COST_LIMIT);
    open_model_close(&m);
}

static void test_steps(void **state)
{
    uint32_t ids[SEQ_LEN];
    sw_session *s = NULL;
    sw_engine *e;
    open_model m;
    sw_err err = {0};
    float *want, *logits;
    int64_t vocab;

    (void)state;
    open_model_dir(&m, MODEL);
    vocab = m.model.vocab;
    keep(&m, true, 0.5f, 0.25f);
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

/* s/cached: the model of s/source with `n` values under its second layer's k_scale. */
static void write_scaled(const scratch *s, const sw_checkpoint *from, const float *k_scale,
                         int64_t n)
{
    static const char name[] = "model.layers.1.self_attn.k_scale";
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
    must(sw_st_writer_declare(w, name, SW_DTYPE_F32, 1, &n, &err), &err);
    must(sw_st_writer_begin(w, &err), &err);
    for (int64_t i = 0; i < sw_st_count(from->st); i++) {
        const sw_st_tensor *t = sw_st_at(from->st, i);

        must(sw_st_writer_put(w, t->name, t->view.data, t->view.size_bytes, &err), &err);
    }
    must(sw_st_writer_put(w, name, k_scale, 4 * (size_t)n, &err), &err);
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
        const char *complaint; /* NULL: none */
    } rows[] = {{{0.125f}, 1, NULL}, {{0}, 1, "must be above zero"}, {{-1}, 1, "above zero"},
                {{1, 1}, 2, "2 elements"}};
    const sw_lm_options options = {.n_threads = 1, .keeps_e4m3 = true};
    sw_checkpoint source;
    sw_err err = {0};

    (void)state;
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        sw_checkpoint ckpt;
        sw_lm lm = {0};
        sw_err why = {0};
        scratch s;
        sw_code rc;

        scratch_open(&s);
        ckpt_source(&s, "llama");
        assert_int_equal(mkdir(scratch_path(&s, "cached"), 0700), 0);
        must(sw_checkpoint_open(&source, scratch_path(&s, "source"), &err), &err);
        write_scaled(&s, &source, rows[r].values, rows[r].n);
        must(sw_checkpoint_open(&ckpt, scratch_path(&s, "cached"), &err), &err);
        rc = sw_lm_open(&lm, &ckpt, &options, &why);
        if (rows[r].complaint) {
            assert_int_equal(rc, SW_E_FORMAT);
            assert_non_null(strstr(why.text, rows[r].complaint));
            assert_non_null(strstr(why.text, "k_scale"));
        } else {
            must(rc, &why);
            assert_true(lm.blocks[0].kv.is_e4m3 && lm.blocks[0].kv.k_scale == 1.0f);
            assert_true(lm.blocks[1].kv.k_scale == 0.125f && lm.blocks[1].kv.v_scale == 1.0f);
        }
        sw_lm_free(&lm);
        sw_checkpoint_close(&ckpt);
        sw_checkpoint_close(&source);
        scratch_close(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cost), cmocka_unit_test(test_steps),
                                       cmocka_unit_test(test_scales)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
