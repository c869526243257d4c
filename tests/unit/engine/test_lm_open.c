/* test_lm_open.c - models loaded from quantized checkpoints: near the original at 8 bits, the
 * same from every dialect, and the integer kernels near the dequantized weights. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "formats/base/mem.h"
#include "kernels/engine/lm_open.h"
#include "tests/support/cases/ckpt_case.h"
#include "tests/support/toys/open_model.h"
#include "tests/support/toys/qtensor_gen.h"

#define SEQ_LEN 24

static void must(sw_code rc, const sw_err *err)
{
    if (rc != SW_OK) fail_msg("%s", err->text);
}

/* Logits of one fixed sequence through the checkpoint at `dir`; freed by sw_mem_put. */
static float *logits_of(const char *dir, bool dequantize, int n_threads, int64_t *n_logits)
{
    sw_lm_options options = {.dequantize = dequantize, .n_threads = n_threads};
    uint32_t ids[SEQ_LEN];
    sw_checkpoint ckpt;
    open_model m = {0};
    sw_err err = {0};

    must(sw_checkpoint_open(&ckpt, dir, &err), &err);
    must(sw_lm_open(&m.lm, &ckpt, &options, &err), &err);
    m.model = ckpt.model;
    m.st = ckpt.st;
    for (int i = 0; i < SEQ_LEN; i++) ids[i] = (uint32_t)((i * 37 + 11) % ckpt.model.vocab);
    float *logits = model_logits(&m, n_threads, ids, 1, SEQ_LEN);
    *n_logits = SEQ_LEN * ckpt.model.vocab;
    sw_lm_free(&m.lm);
    sw_checkpoint_close(&ckpt);
    return logits;
}

static void expect_near(const char *what, const float *have, const float *want, int64_t n,
                        double limit)
{
    double error = relative_l2(have, want, n);

    if (!(error <= limit)) fail_msg("%s: relative L2 error %.3g, at most %.3g", what, error, limit);
}

static void try_arch(const char *arch, int bits, bool is_symmetric, int64_t group, double limit)
{
    float *original, *first = NULL;
    int64_t n;
    scratch s;
    ckpt_case c;
    sw_err err = {0};

    scratch_open(&s);
    ckpt_source(&s, arch);
    ckpt_open(&c, &s, sw_dialect_find("gptq"), bits, is_symmetric, group);
    if (!c.source.model.is_tied) ckpt_add_head(&c, sw_dialect_find("gptq"));
    ckpt_round(&c);
    original = logits_of(scratch_path(&s, "source"), false, 1, &n);
    for (const sw_dialect *const *d = sw_dialects; *d; d++) {
        if (!sw_gen_holds_integers(*d)) continue; /* tests of its own */
        must(ckpt_write(&c, &s, (*d)->name, *d, false, 0, false, &err), &err);
        const char *dir = scratch_path(&s, (*d)->name);
        float *tiles = logits_of(dir, false, 1, &n), *floats = logits_of(dir, true, 1, &n);
        float *threaded = logits_of(dir, false, 2, &n);
        expect_near((*d)->name, floats, original, n, limit);
        expect_near((*d)->name, tiles, floats, n, 1e-4);
        assert_memory_equal(threaded, tiles, (size_t)n * sizeof *tiles);
        if (first) assert_memory_equal(tiles, first, (size_t)n * sizeof *tiles);
        if (!first) first = tiles;
        else sw_mem_put(tiles);
        sw_mem_put(floats);
        sw_mem_put(threaded);
    }
    sw_mem_put(first);
    sw_mem_put(original);
    ckpt_close(&c);
    scratch_close(&s);
}

static void quantized_models_answer_like_the_original(void **state)
{
    (void)state;
    try_arch("llama", 8, true, 32, 0.06);
    try_arch("qwen2", 8, false, 0, 0.06);
    try_arch("qwen3_moe", 8, true, 32, 0.06);
    try_arch("llama", 4, false, 64, 0.7);
}

static void tiles_are_read_where_they_lie(void **state)
{
    sw_lm_options options = {.n_threads = 1};
    scratch s;
    ckpt_case c;
    sw_checkpoint ckpt;
    sw_lm lm;
    sw_err err = {0};

    (void)state;
    scratch_open(&s);
    ckpt_source(&s, "llama");
    ckpt_open(&c, &s, sw_dialect_find("swage"), 4, false, 32);
    must(ckpt_write(&c, &s, "out", sw_dialect_find("swage"), false, 0, false, &err), &err);
    must(sw_checkpoint_open(&ckpt, scratch_path(&s, "out"), &err), &err);
    must(sw_lm_open(&lm, &ckpt, &options, &err), &err);
    const sw_tiles *tiles = lm.blocks[1].linear[SW_SLOT_DOWN].tiles;
    assert_non_null(tiles);
    assert_ptr_equal(tiles->codes,
                     sw_st_find(ckpt.st, "model.layers.1.mlp.down_proj.tiles")->view.data);
    assert_ptr_equal(tiles->zeros,
                     sw_st_find(ckpt.st, "model.layers.1.mlp.down_proj.tile_zeros")->view.data);
    sw_lm_free(&lm);
    options.dequantize = true;
    must(sw_lm_open(&lm, &ckpt, &options, &err), &err);
    assert_null(lm.blocks[1].linear[SW_SLOT_DOWN].tiles);
    assert_int_equal(lm.blocks[1].linear[SW_SLOT_DOWN].dense_dtype, SW_DTYPE_F32);
    sw_lm_free(&lm);
    sw_checkpoint_close(&ckpt);
    ckpt_close(&c);
    scratch_close(&s);
}

typedef struct decoded {
    ckpt_case *c;
    float *w[CKPT_LINEARS_MAX];
} decoded;

static bool put_decoded(void *ctx, const char *name, sw_cview *view)
{
    decoded *d = ctx;

    for (int64_t i = 0; i < d->c->n; i++) {
        size_t n = strlen(d->c->paths[i]);
        const sw_qtensor *q = &d->c->q[i];
        sw_err err = {0};
        if (strncmp(name, d->c->paths[i], n) || strcmp(name + n, ".weight")) continue;
        if (!d->w[i]) {
            must(SW_MEM_GET(&d->w[i], q->n_out * q->k_in, "w", &err), &err);
            sw_qtensor_decode(d->w[i], q);
        }
        view->dtype = SW_DTYPE_F32;
        view->data = d->w[i];
        view->size_bytes = (size_t)(q->n_out * q->k_in) * sizeof(float);
    }
    return true;
}

static void scattered_groups_run_dequantized_only(void **state)
{
    sw_lm_options options = {.n_threads = 1};
    scratch s;
    ckpt_case c;
    sw_checkpoint ckpt;
    sw_lm lm;
    sw_err err = {0};
    int64_t n;

    (void)state;
    scratch_open(&s);
    ckpt_source(&s, "llama");
    ckpt_open(&c, &s, sw_dialect_find("gptq"), 8, true, 32);
    ckpt_round(&c);
    c.config.desc_act = true;
    for (int64_t i = 0; i < c.n; i++) {
        must(SW_MEM_GET(&c.q[i].g_idx, c.q[i].k_in, "g_idx", &err), &err);
        for (int64_t k = 0; k < c.q[i].k_in; k++)
            c.q[i].g_idx[k] = (int32_t)(k * 7 % c.q[i].n_groups);
    }
    must(ckpt_write(&c, &s, "out", sw_dialect_find("gptq"), false, 0, false, &err), &err);
    must(sw_checkpoint_open(&ckpt, scratch_path(&s, "out"), &err), &err);
    assert_int_equal(sw_lm_open(&lm, &ckpt, &options, &err), SW_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, c.paths[0]));
    assert_non_null(strstr(err.text, "g_idx"));
    sw_checkpoint_close(&ckpt);
    /* exactly the floats that the logical weights mean */
    decoded d = {.c = &c};
    ckpt_rewrite(&s, "source", put_decoded, &d);
    float *want = logits_of(scratch_path(&s, "source"), false, 1, &n);
    float *have = logits_of(scratch_path(&s, "out"), true, 1, &n);
    assert_memory_equal(have, want, (size_t)n * sizeof *have);
    sw_mem_put(want);
    sw_mem_put(have);
    for (int64_t i = 0; i < c.n; i++) sw_mem_put(d.w[i]);
    ckpt_close(&c);
    scratch_close(&s);
}

typedef struct poke {
    const char *name[2];
    uint8_t bytes[1 << 16];
    uint8_t more[1 << 16];
} poke;

static bool spoil(void *ctx, const char *name, sw_cview *view)
{
    poke *p = ctx;

    for (int i = 0; i < 2; i++) {
        uint8_t *to = i ? p->more : p->bytes;
        if (strcmp(name, p->name[i])) continue;
        assert_in_range(view->size_bytes, 16, sizeof p->bytes);
        memcpy(to, view->data, view->size_bytes);
        memset(to + 8, 0xff, 2); /* a NaN in F16 */
        view->data = to;
    }
    return true;
}

static void the_lowest_broken_layer_is_named(void **state)
{
    static poke p = {.name = {"model.layers.1.self_attn.o_proj.scales",
                              "model.layers.0.mlp.down_proj.scales"}};

    (void)state;
    for (int threads = 1; threads <= 2; threads++) {
        sw_lm_options options = {.n_threads = threads};
        scratch s;
        ckpt_case c;
        sw_checkpoint ckpt;
        sw_lm lm, untouched;
        sw_err err = {0};
        memset(&lm, 0x5a, sizeof lm);
        untouched = lm;
        scratch_open(&s);
        ckpt_source(&s, "llama");
        ckpt_open(&c, &s, sw_dialect_find("gptq"), 4, true, 32);
        must(ckpt_write(&c, &s, "out", sw_dialect_find("gptq"), false, 0, false, &err), &err);
        ckpt_rewrite(&s, "out", spoil, &p);
        must(sw_checkpoint_open(&ckpt, scratch_path(&s, "out"), &err), &err);
        assert_int_equal(sw_lm_open(&lm, &ckpt, &options, &err), SW_E_FORMAT);
        if (!strstr(err.text, "model.layers.0.mlp.down_proj: scale")) fail_msg("%s", err.text);
        assert_memory_equal(&lm, &untouched, sizeof lm);
        sw_checkpoint_close(&ckpt);
        ckpt_close(&c);
        scratch_close(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantized_models_answer_like_the_original),
        cmocka_unit_test(tiles_are_read_where_they_lie),
        cmocka_unit_test(scattered_groups_run_dequantized_only),
        cmocka_unit_test(the_lowest_broken_layer_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
