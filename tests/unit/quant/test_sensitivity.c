/* test_sensitivity.c - measured losses: what a probe says against running the changed model whole,
 * order of widths, and the same bytes for any number of threads. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "formats/checkpoint/checkpoint.h"
#include "kernels/engine/engine.h"
#include "quant/method/algo.h"
#include "quant/search/sensitivity.h"
#include "tests/support/toys/random.h"

#define N_SEQS 2
#define SEQ_LEN 24
#define N_SPECS 4
#define ROWS_MAX 64

typedef struct kept {
    const char *only; /* piece of a path, or NULL for all */
    double loss[ROWS_MAX][N_SPECS];
    char paths[ROWS_MAX][256];
    int64_t n;
} kept;

static bool is_selected(void *self, const sw_linear_ref *ref, const char *path)
{
    const kept *k = self;

    (void)ref;
    return !k->only || strstr(path, k->only) != NULL;
}

static sw_code put(void *self, const sw_linear_ref *ref, const char *path, const double *loss,
                   sw_err *err)
{
    kept *k = self;

    (void)ref;
    (void)err;
    assert_in_range(k->n, 0, ROWS_MAX - 1);
    memcpy(k->loss[k->n], loss, sizeof k->loss[0]);
    (void)snprintf(k->paths[k->n++], sizeof k->paths[0], "%s", path);
    return SW_OK;
}

static void make_specs(sw_qspec specs[N_SPECS])
{
    static const int widths[N_SPECS] = {2, 3, 4, 8};

    for (int i = 0; i < N_SPECS; i++)
        specs[i] = (sw_qspec){.num = sw_num_by_bits(widths[i]), .is_symmetric = true,
                              .group_elems = 32, .scale_dtype = SW_DTYPE_F16};
}

static void draw_ids(uint32_t *ids, int64_t vocab)
{
    test_rng rng = {3};

    for (int i = 0; i < N_SEQS * SEQ_LEN; i++)
        ids[i] = (uint32_t)(test_u64(&rng) % (uint64_t)vocab);
}

static void measure(kept *out, const char *arch, const char *algo, const char *only, int n_threads)
{
    static uint32_t ids[N_SEQS * SEQ_LEN];
    sw_qspec specs[N_SPECS];
    sw_checkpoint ckpt;
    sw_calib calib = {ids, N_SEQS, SEQ_LEN};
    sw_sensitivity_options o = {.algo = sw_algo_find(algo), .specs = specs, .n_specs = N_SPECS,
                                .probe = 1, .damp = 0.01, .n_threads = n_threads};
    sw_sensitivity_sink sink = {out, is_selected, put};
    sw_err err = {0};

    memset(out, 0, sizeof *out);
    out->only = only;
    make_specs(specs);
    if (sw_checkpoint_open(&ckpt, arch, &err) != SW_OK) fail_msg("%s", err.text);
    draw_ids(ids, ckpt.model.vocab);
    if (sw_sensitivity_run(&ckpt.model, ckpt.st, &calib, &o, &sink, NULL, &err) != SW_OK)
        fail_msg("%s", err.text);
    sw_checkpoint_close(&ckpt);
}

static double kl_of(const float *ref, const float *have, int64_t n)
{
    double a = 0, b = 0, kl = 0;

    for (int64_t i = 0; i < n; i++) {
        a += exp((double)ref[i]);
        b += exp((double)have[i]);
    }
    for (int64_t i = 0; i < n; i++) {
        double p = exp((double)ref[i]) / a, q = exp((double)have[i]) / b;
        kl += p * log(p / q);
    }
    return kl;
}

/* Round one linear, run the whole model with and without, compare. */
static double whole_model_kl(const char *arch, int64_t layer, sw_slot slot)
{
    static uint32_t ids[N_SEQS * SEQ_LEN];
    float *w = NULL, *ref = NULL, *have = NULL;
    sw_qspec specs[N_SPECS];
    sw_checkpoint ckpt;
    sw_engine *engine = NULL;
    sw_lm lm;
    sw_qtensor q;
    sw_solve_report report = {0};
    sw_err err = {0};
    double kl = 0;

    make_specs(specs);
    memset(&lm, 0, sizeof lm);
    assert_int_equal(sw_checkpoint_open(&ckpt, arch, &err), SW_OK);
    assert_int_equal(sw_lm_load(&lm, &ckpt.model, ckpt.st, &err), SW_OK);
    draw_ids(ids, ckpt.model.vocab);
    sw_weight *dense = sw_block_weight(&lm.blocks[layer], slot, -1);
    int64_t n = dense->n_out * dense->k_in, n_logits = N_SEQS * SEQ_LEN * ckpt.model.vocab;
    assert_int_equal(SW_MEM_GET(&w, n, "w", &err), SW_OK);
    assert_int_equal(SW_MEM_GET(&ref, n_logits, "ref", &err), SW_OK);
    assert_int_equal(SW_MEM_GET(&have, n_logits, "have", &err), SW_OK);
    assert_int_equal(sw_engine_new(&engine, &ckpt.model, N_SEQS * SEQ_LEN, SEQ_LEN, 1, &err),
                     SW_OK);
    assert_int_equal(sw_engine_logits(engine, &lm, ref, ids, N_SEQS, SEQ_LEN, &err), SW_OK);
    assert_int_equal(sw_float_decode_n(w, dense->dense, dense->dense_dtype, n, &err), SW_OK);
    sw_solve_problem p = {.w = w, .n_out = dense->n_out, .k_in = dense->k_in, .spec = specs[1],
                          .n_threads = 1};
    assert_int_equal(sw_qtensor_alloc(&q, &specs[1], p.n_out, p.k_in, &err), SW_OK);
    assert_int_equal(sw_rtn_solve(&q, &p, &report, &err), SW_OK);
    sw_qtensor_decode(w, &q);
    dense->dense = w;
    dense->dense_dtype = SW_DTYPE_F32;
    assert_int_equal(sw_engine_logits(engine, &lm, have, ids, N_SEQS, SEQ_LEN, &err), SW_OK);
    for (int64_t t = 0; t < N_SEQS * SEQ_LEN; t++)
        kl += kl_of(ref + t * ckpt.model.vocab, have + t * ckpt.model.vocab, ckpt.model.vocab);
    sw_qtensor_free(&q);
    sw_mem_put(w);
    sw_mem_put(ref);
    sw_mem_put(have);
    sw_engine_free(engine);
    sw_lm_free(&lm);
    sw_checkpoint_close(&ckpt);
    return kl / (N_SEQS * SEQ_LEN);
}

static void a_probe_is_the_divergence_of_the_changed_model(void **state)
{
    static const struct { int64_t layer; sw_slot slot; const char *path; } rows[] = {
        {0, SW_SLOT_O, "layers.0.self_attn.o_proj"}, {1, SW_SLOT_DOWN, "layers.1.mlp.down_proj"},
        {0, SW_SLOT_DOWN, "layers.0.mlp.down_proj"}};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        kept k;
        measure(&k, "tests/golden/arch/llama", "rtn", rows[i].path, 1);
        assert_int_equal(k.n, 1);
        double want = whole_model_kl("tests/golden/arch/llama", rows[i].layer, rows[i].slot);
        if (!(fabs(k.loss[0][1] - want) <= 1e-3 * want))
            fail_msg("%s: have %.9g, want %.9g", rows[i].path, k.loss[0][1], want);
    }
}

static void more_bits_lose_less(void **state)
{
    static const char *const archs[] = {"tests/golden/arch/llama", "tests/golden/arch/qwen3_moe"};
    static const char *const algos[] = {"gptq", "rtn"};

    (void)state;
    for (int i = 0; i < 4; i++) {
        kept k;
        measure(&k, archs[i % 2], algos[i / 2], i % 2 ? "layers.1" : NULL, 2);
        assert_true(k.n >= 14);
        for (int64_t r = 0; r < k.n; r++)
            for (int s = 1; s < N_SPECS; s++)
                if (!(k.loss[r][s] < k.loss[r][s - 1]) || !(k.loss[r][s] > 0))
                    fail_msg("%s: spec %d loses %g, the one before %g", k.paths[r], s,
                             k.loss[r][s], k.loss[r][s - 1]);
    }
}

static void threads_do_not_matter(void **state)
{
    static kept one, three;

    (void)state;
    measure(&one, "tests/golden/arch/llama", "gptq", NULL, 1);
    measure(&three, "tests/golden/arch/llama", "gptq", NULL, 3);
    assert_int_equal(one.n, 14);
    assert_memory_equal(one.loss, three.loss, sizeof one.loss);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_probe_is_the_divergence_of_the_changed_model),
        cmocka_unit_test(more_bits_lose_less),
        cmocka_unit_test(threads_do_not_matter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
