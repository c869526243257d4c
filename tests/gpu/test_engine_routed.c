/* test_engine_routed.c - quantized experts in the engine on the device: a trained sparse model
 * rounded to each format that has grouped products, and a random one whose experts have biases and
 * another activation, give the CPU's logits, step by step what they give at once, and the same
 * bytes twice; faults are seen. Exit 77 without a GPU that has them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "kernels/cuda/engine/cuda_engine_internal.h"
#include "quant/run/scheme.h"
#include "tests/gpu/support/device_case.h"
#include "tests/gpu/support/steps_case.h"
#include "tests/support/cases/quantized_dir.h"
#include "tests/support/toys/open_model.h"
#include "tests/support/toys/random.h"

#define TINY_MOE "tests/golden/models/tiny-moe"
#define GPT_OSS "tests/golden/arch/gpt_oss"
#define SEQS 8
#define SEQ_LEN 128
#define ROWS (SEQS * SEQ_LEN)
/* Of the token in the middle, as those that go to other experts are few: BF16 tips codes of
 * quantized inputs, so that a few layers on the errors of the device's inputs are others than the
 * CPU's. */
#define W4A16_LIMIT 2e-2
#define FP8_LIMIT 6e-2
#define RANDOM_LIMIT 5e-2 /* weights are random, so that routers often nearly tie */

static sw_device *gpu;
static uint32_t calib_ids[ROWS], eval_ids[ROWS]; /* below any vocabulary where a test has them */

typedef struct routed_test {
    const char *dir, *scheme;
    double limit;
} routed_test;

static float *on_device(const open_model *m)
{
    float *logits = malloc(sizeof *logits * (size_t)(ROWS * m->model.vocab));
    sw_device_engine *engine = NULL;
    sw_device_lm *lm = NULL;

    MUST(sw_device_engine_new(&engine, gpu, &m->model, ROWS, SEQ_LEN, err));
    MUST(sw_device_lm_new(&lm, engine, &m->lm, err));
    MUST(sw_device_lm_forward(lm, eval_ids, SEQS, SEQ_LEN, err));
    MUST(sw_device_lm_head(lm, logits, 0, ROWS, err));
    sw_device_lm_free(lm);
    sw_device_engine_free(engine);
    return logits;
}

static bool has_products(const open_model *m)
{
    sw_device_engine *engine = NULL;
    sw_device_block *block = NULL;
    bool has;

    MUST(sw_device_engine_new(&engine, gpu, &m->model, ROWS, SEQ_LEN, err));
    MUST(sw_device_block_load(&block, engine, &m->lm.blocks[1], err));
    has = sw_device_routed_can(block);
    sw_device_block_free(block);
    sw_device_engine_free(engine);
    return has;
}

/* A scale of 2^43, which the products would multiply to an infinity, leaves them out. */
static void check_large_scale(const quantized_lm *q)
{
    const sw_tiles *down = q->m.lm.blocks[1].experts[2][1].tiles;
    uint16_t *scale = (uint16_t *)(uintptr_t)down->scales, was = *scale;

    *scale = 0x5500;
    assert_false(has_products(&q->m));
    *scale = 0xd4ff; /* the largest that they take, with a sign */
    assert_true(has_products(&q->m));
    *scale = was;
}

/* Every expert of two blocks with the `down` of the next one. */
static void check_fault(quantized_lm *q, const float *want, double limit)
{
    const int64_t n = q->m.model.n_experts;
    const int first_block = q->m.model.n_layers > 2;
    float *have;

    for (int block = first_block; block < first_block + 2; block++) {
        sw_weight *downs = q->m.lm.blocks[block].experts[2], first = downs[0];

        memmove(downs, downs + 1, (size_t)(n - 1) * sizeof *downs);
        downs[n - 1] = first;
    }
    have = on_device(&q->m);
    assert_true(relative_l2_median(have, want, ROWS, q->m.model.vocab) > limit);
    free(have);
}

/* Tiles that grouped products alone read give one linear what the same weight gives outside of
 * experts: values in BF16, or codes in the order in which they are stored. */
static void check_alone(const quantized_lm *q)
{
    const sw_weight *down = &q->m.lm.blocks[1].experts[2][1];
    const bool is_e2m1 = down->tiles->spec.num == &sw_nums[SW_NUM_E2M1];
    const int64_t n = 5, n_y = n * down->n_out, n_x = n * down->k_in;
    sw_device_engine *engine = NULL;
    sw_device_block *block = NULL;
    sw_device_weight plain;
    sw_device_store store = {.gpu = gpu};
    sw_bf16 *d_x = NULL, *d_y = NULL, *x = malloc((size_t)n_x * 2), *y[2];
    test_rng rng = {5};

    for (int64_t i = 0; i < n_x; i++) x[i] = (sw_bf16)(0x3f00 + test_u64(&rng) % 0x100);
    MUST(sw_device_engine_new(&engine, gpu, &q->m.model, ROWS, SEQ_LEN, err));
    MUST(sw_device_block_load(&block, engine, &q->m.lm.blocks[1], err));
    if (is_e2m1) MUST(sw_device_weight_load_dense(&plain, engine, &store, down, err));
    else MUST(sw_device_weight_load(&plain, engine, &store, &down, 1, err));
    assert_true(is_e2m1 ? block->experts[2][1].tiles.is_e2m1_spread
                        : block->experts[2][1].tiles.in_columns && !plain.tiles.in_columns);
    MUST(sw_device_store_copy((void **)&d_x, &store, x, n_x * 2, "inputs", err));
    MUST(SW_STORE_TAKE(&d_y, &store, n_y, "outputs", err));
    for (int i = 0; i < 2; i++) {
        const sw_device_weight *w = i ? &plain : &block->experts[2][1];

        assert_true(!w->tiles.codes == (is_e2m1 && i == 1));
        MUST(sw_device_linear(engine, d_y, down->n_out, false,
                              (sw_bf16_rows){d_x, down->k_in}, n, w, err));
        y[i] = malloc((size_t)n_y * 2);
        MUST(sw_device_download(gpu, y[i], d_y, n_y * 2, err));
    }
    assert_memory_equal(y[0], y[1], (size_t)n_y * 2);
    for (int i = 0; i < 2; i++) free(y[i]);
    sw_device_store_free(&store);
    sw_device_block_free(block);
    sw_device_engine_free(engine);
    free(x);
}

static void test_scheme(void **state)
{
    const routed_test *test = *state;
    const sw_scheme *scheme = sw_scheme_find(test->scheme);
    sw_qspec spec = sw_scheme_spec(scheme);
    const double limit = test->limit;
    const sw_calib calib = {calib_ids, SEQS, SEQ_LEN};
    quantized_lm q;
    float *want, *have, *again;
    double error;

    /* as checkpoints of BF16 models have them */
    if (spec.scale_dtype == SW_DTYPE_F16) spec.scale_dtype = SW_DTYPE_BF16;
    read_ids(calib_ids, "calib_data/calib.u16", ROWS);
    read_ids(eval_ids, "calib_data/eval.u16", ROWS);
    for (int i = 0; i < ROWS && !strcmp(test->dir, GPT_OSS); i++)
        calib_ids[i] %= 320, eval_ids[i] %= 320;
    quantized_lm_open(&q, test->dir, &spec, &calib);
    assert_true(has_products(&q.m));
    if (spec.num == &sw_nums[SW_NUM_INT4]) check_large_scale(&q);
    if (spec.num == &sw_nums[SW_NUM_E2M1] || !strcmp(test->scheme, "FP8_DYNAMIC")) check_alone(&q);
    want = model_logits(&q.m, 4, eval_ids, SEQS, SEQ_LEN);
    have = on_device(&q.m);
    again = on_device(&q.m);
    error = relative_l2_median(have, want, ROWS, q.m.model.vocab);
    print_message("%s of %s: %.2e in the middle, %.2e over all\n", scheme->name, test->dir, error,
                  relative_l2(have, want, ROWS * q.m.model.vocab));
    if (!(error <= limit)) fail_msg("%s: %g off", scheme->name, error);
    assert_memory_equal(have, again, sizeof *have * (size_t)(ROWS * q.m.model.vocab));
    steps_check(gpu, &q.m, eval_ids, 2 * limit, scheme->name);
    check_fault(&q, want, limit);
    sw_mem_put(want);
    free(have), free(again);
    quantized_lm_close(&q);
}

int main(void)
{
    static const routed_test cases[] = {
        {TINY_MOE, "W4A16", W4A16_LIMIT},    {TINY_MOE, "FP8_DYNAMIC", FP8_LIMIT},
        {TINY_MOE, "FP8_BLOCK", FP8_LIMIT},  {TINY_MOE, "MXFP4A16", W4A16_LIMIT},
        {TINY_MOE, "NVFP4A16", W4A16_LIMIT}, {GPT_OSS, "MXFP4A16", RANDOM_LIMIT},
    };
    struct CMUnitTest tests[sizeof cases / sizeof *cases];
    int failed = device_open(&gpu);
    size_t n = 0;

    if (failed) return failed;
    if (sw_device_about(gpu)->arch != 90) {
        printf("skipped: no GPU of compute capability 9.0\n");
        sw_device_close(gpu);
        return 77;
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (open_model_is_there(cases[i].dir))
            tests[n++] = (struct CMUnitTest){cases[i].scheme, test_scheme, NULL, NULL,
                                             (void *)(uintptr_t)&cases[i]};
    failed = _cmocka_run_group_tests("quantized experts on the device", tests, n, NULL, NULL);
    sw_device_close(gpu);
    return failed;
}
