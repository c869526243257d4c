/* test_engine_schemes.c - every scheme of quant/run/schemes.def on the device: a trained model
 * rounded to it gives the logits and the divergence from the original that the CPU's kernels give,
 * and faults are seen. Exit 77 without a GPU.
 *
 * Single linears get the very rows that the CPU gets, so their outputs may differ by the rounding
 * to BF16 alone. In whole models BF16 tips codes of quantized inputs, and after a few layers the
 * errors of the device's inputs are others than the CPU's, but of the same size: so logits may be
 * the square root of two apart of what quantizing inputs changes, and rounding; and divergences
 * from the original three standard errors of their paired difference, and rounding.
 */
#include <math.h>
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
#include "tests/support/toys/random.h"
#include "verify/base/metrics.h"

#define MODEL "calib_data/tiny-llama"
#define SEQS 8
#define SEQ_LEN 128
#define ROWS (SEQS * SEQ_LEN)
#define LOGITS_LIMIT 2e-2 /* of BF16: some dozen roundings to 8 bits a layer */
#define OUTPUT_LIMIT 4e-3 /* one rounding, and the decoded weights of which some have one too */
#define SCHEMES_MAX 64

static sw_device *gpu;
static uint32_t calib_ids[ROWS], eval_ids[ROWS];
static open_model original;
static float *wanted;     /* logits of the original, on the CPU */
static double noise_kl;   /* of BF16 in the original */

/* Schemes that a product of the device takes as they are; the device decodes the others. */
static const char *const coded[] = {"W4A16", "W4A16_ASYM", "W8A16", "W3A16", "W2A16", "W8A8",
                                    "W4A8", "W4AFP8", "FP8", "FP8_DYNAMIC", "FP8_BLOCK"};

static bool is_coded(const char *name)
{
    for (size_t i = 0; i < sizeof coded / sizeof *coded; i++)
        if (!strcmp(coded[i], name)) return true;
    return false;
}

static float *on_device(const open_model *m, sw_device_lm_linears *linears)
{
    float *logits = malloc(sizeof *logits * (size_t)(ROWS * m->model.vocab));
    sw_device_engine *engine = NULL;
    sw_device_lm *lm = NULL;

    MUST(sw_device_engine_new(&engine, gpu, &m->model, ROWS, SEQ_LEN, err));
    MUST(sw_device_lm_new(&lm, engine, &m->lm, err));
    sw_device_lm_count(linears, lm);
    MUST(sw_device_lm_forward(lm, eval_ids, SEQS, SEQ_LEN, err));
    MUST(sw_device_lm_head(lm, logits, 0, ROWS, err));
    sw_device_lm_free(lm);
    sw_device_engine_free(engine);
    return logits;
}

/* kl [ROWS] = KL(original || have) of each position; the mean. */
static double divergence(double *kl, const float *have)
{
    const int64_t vocab = original.model.vocab;
    double *scratch = malloc(sizeof *scratch * (size_t)vocab), sum = 0;

    for (int64_t t = 0; t < ROWS; t++) {
        sw_position p;

        sw_position_compare(&p, wanted + t * vocab, have + t * vocab, vocab, 0, scratch);
        kl[t] = p.kl;
        sum += p.kl;
    }
    free(scratch);
    return sum / ROWS;
}

static double distance(const float *have, const float *want)
{
    return relative_l2(have, want, ROWS * original.model.vocab);
}

static void test_noise(void **state)
{
    sw_device_lm_linears linears;
    double kl[ROWS], error;
    float *have;

    (void)state;
    have = on_device(&original, &linears);
    error = distance(have, wanted);
    noise_kl = divergence(kl, have);
    print_message("bf16: logits %.2e, KL %.2e\n", error, noise_kl);
    if (!(error <= LOGITS_LIMIT)) fail_msg("bf16 is %g off", error);
    assert_int_equal(linears.n_coded + linears.n_decoded, 0);
    free(have);
}

typedef struct agreement {
    double logits, limit; /* of the device from the CPU; what it may be */
    double kl, kl_limit;  /* the device's divergence less the CPU's; what its size may be */
} agreement;

static bool is_good(const agreement *a)
{
    return a->logits <= a->limit && fabs(a->kl) <= a->kl_limit;
}

/* The CPU's logits of a scheme, what quantizing its inputs changes, and its divergence. */
typedef struct expectation {
    float *logits;
    double of_inputs, mean_kl, kl[ROWS];
} expectation;

static void expect(expectation *e, const open_model *m, const sw_qspec *spec, const sw_calib *calib)
{
    quantized_lm plain;
    float *logits;

    e->logits = model_logits(m, 4, eval_ids, SEQS, SEQ_LEN);
    e->mean_kl = divergence(e->kl, e->logits);
    e->of_inputs = 0;
    if (spec->act.scope == SW_ACT_NONE) return;
    quantized_lm_open(&plain, MODEL, spec, calib);
    quantized_lm_drop_acts(&plain);
    logits = model_logits(&plain.m, 4, eval_ids, SEQS, SEQ_LEN);
    e->of_inputs = distance(e->logits, logits);
    sw_mem_put(logits);
    quantized_lm_close(&plain);
}

static agreement compare(const open_model *m, const expectation *e, sw_device_lm_linears *linears)
{
    float *have = on_device(m, linears);
    double kl[ROWS], square = 0;
    agreement a = {distance(have, e->logits), LOGITS_LIMIT + sqrt(2) * e->of_inputs,
                   divergence(kl, have) - e->mean_kl, 0};

    for (int t = 0; t < ROWS; t++)
        square += (kl[t] - e->kl[t] - a.kl) * (kl[t] - e->kl[t] - a.kl);
    a.kl_limit = 3 * (sqrt(square) / ROWS + noise_kl);
    free(have);
    return a;
}

/* ---- single linears ---- */

/* n values that BF16 holds, as floats and as bits. */
static void make_rows(float *values, uint16_t *bits, int64_t n)
{
    test_rng rng = {77};

    for (int64_t i = 0; i < n; i++) values[i] = (float)test_gauss(&rng);
    MUST(sw_float_encode_n(bits, SW_DTYPE_BF16, values, n, err));
    MUST(sw_float_decode_n(values, bits, SW_DTYPE_BF16, n, err));
}

static void *copy_to_device(const void *from, int64_t size_bytes)
{
    void *d = NULL;

    MUST(sw_device_take(&d, gpu, size_bytes, 1, "test", err));
    MUST(sw_device_upload(gpu, d, from, size_bytes, err));
    return d;
}

static const struct {
    const char *name;
    sw_slot slot;
    sw_half half;
    sw_site site;
} singles[] = {{"o", SW_SLOT_O, SW_HALF_ATTENTION, SW_SITE_O_IN},
               {"down", SW_SLOT_DOWN, SW_HALF_MLP, SW_SITE_DOWN_IN}};

/* The relative error of linear i of block 1 over n rows, the device from the CPU with `want`. */
static double error_of(const open_model *m, int i, int64_t n, const sw_weight *want)
{
    const sw_block *b = &m->lm.blocks[1];
    const int64_t k_in = want->k_in, n_out = want->n_out;
    float *x = malloc(4 * (size_t)(n * k_in)), *y = malloc(4 * (size_t)(n * n_out));
    float *have = calloc((size_t)(n * n_out), 4);
    uint16_t *bits = malloc(2 * (size_t)(n * k_in));
    const sw_gemm p = {n, x, k_in, y, n_out, want, 4};
    void *d_rows, *d_x;
    sw_device_engine *engine = NULL;
    sw_device_block *block = NULL;
    sw_scratch scratch = {0};
    double error;

    make_rows(x, bits, n * k_in);
    MUST(sw_gemm_run(&p, &scratch, err));
    MUST(sw_device_engine_new(&engine, gpu, &m->model, n, SEQ_LEN, err));
    MUST(sw_device_block_load(&block, engine, b, err));
    d_rows = copy_to_device(bits, 2 * n * k_in);
    d_x = copy_to_device(have, 4 * n * n_out); /* the stream that it is added to: zeros */
    MUST(sw_device_engine_rest(engine, block, d_x, 1, n, singles[i].half, singles[i].site, d_rows,
                               err));
    MUST(sw_device_download(gpu, have, d_x, 4 * n * n_out, err));
    error = relative_l2(have, y, n * n_out);
    sw_device_put(gpu, d_rows), sw_device_put(gpu, d_x);
    sw_device_block_free(block);
    sw_device_engine_free(engine);
    sw_scratch_free(&scratch);
    free(x), free(y), free(have), free(bits);
    return error;
}

/* For one row and for many: the kernels differ. Against a CPU that leaves its inputs as they are
 * the same output must fail. */
static void check_linears(const quantized_lm *q, const char *name)
{
    static const int64_t rows[] = {1, 5, 120};

    for (int i = 0; i < 2; i++)
        for (int r = 0; r < 3; r++) {
            sw_weight w = q->m.lm.blocks[1].linear[singles[i].slot];
            const double error = error_of(&q->m, i, rows[r], &w);

            print_message("  %s of %lld: %.2e\n", singles[i].name, (long long)rows[r], error);
            if (!(error <= OUTPUT_LIMIT))
                fail_msg("%s: %s is %g off", name, singles[i].name, error);
            if (w.act.scope == SW_ACT_NONE) continue;
            w.act = (sw_act){0};
            assert_true(error_of(&q->m, i, rows[r], &w) > OUTPUT_LIMIT);
        }
}

/* A fault that must not pass: keys for values in one block. */
static void check_faults(quantized_lm *q, const expectation *e, const char *name)
{
    sw_weight *linear = q->m.lm.blocks[1].linear, k = linear[SW_SLOT_K];
    sw_device_lm_linears linears;
    agreement a;

    linear[SW_SLOT_K] = linear[SW_SLOT_V];
    linear[SW_SLOT_V] = k;
    a = compare(&q->m, e, &linears);
    if (is_good(&a)) fail_msg("%s: keys for values pass: %g", name, a.logits);
    linear[SW_SLOT_V] = linear[SW_SLOT_K];
    linear[SW_SLOT_K] = k;
}

/* Codes of 2 and 3 bits: those of this device's products take what is stored, and the container of
 * 4 bits, which those of other devices take, gives the same. */
static void check_widened(quantized_lm *q, const expectation *e, const char *name)
{
    const sw_weight *w = &q->m.lm.blocks[1].linear[SW_SLOT_DOWN];
    const int bits = w->tiles->container_bits;
    sw_device_lm_linears linears;
    sw_device_engine *engine = NULL;
    int64_t stored_bytes, widened_bytes;
    bool is_hopper;
    agreement a;

    if (bits >= 4) return;
    MUST(sw_device_engine_new(&engine, gpu, &q->m.model, 1, SEQ_LEN, err));
    stored_bytes = sw_device_block_bytes(engine, &q->m.lm.blocks[1]);
    quantized_lm_widen(q);
    widened_bytes = sw_device_block_bytes(engine, &q->m.lm.blocks[1]);
    is_hopper = engine->device.sm == 90;
    sw_device_engine_free(engine);
    print_message("  a block: %lld bytes, in 4 bits %lld\n", (long long)stored_bytes,
                  (long long)widened_bytes);
    assert_true(!is_hopper || stored_bytes * 4 < widened_bytes * (bits + 1));
    a = compare(&q->m, e, &linears);
    if (!is_good(&a)) fail_msg("%s in 4 bits: logits %g; KL %g", name, a.logits, a.kl);
}

static void test_scheme(void **state)
{
    const sw_scheme *scheme = *state;
    const sw_qspec spec = sw_scheme_spec(scheme);
    const sw_calib calib = {calib_ids, SEQS, SEQ_LEN};
    sw_device_lm_linears linears;
    expectation e;
    quantized_lm q;
    agreement a;

    quantized_lm_open(&q, MODEL, &spec, &calib);
    expect(&e, &q.m, &spec, &calib);
    a = compare(&q.m, &e, &linears);
    print_message("%s: logits %.2e (limit %.2e; inputs change %.2e), KL %.5f %+.1e (limit %.1e); "
                  "%lld as codes, %lld decoded, %lld rounded\n", scheme->name, a.logits, a.limit,
                  e.of_inputs, e.mean_kl, a.kl, a.kl_limit, (long long)linears.n_coded,
                  (long long)linears.n_decoded, (long long)linears.n_rounded);
    if (!is_good(&a))
        fail_msg("%s: logits %g, limit %g; KL %g, limit %g", scheme->name, a.logits, a.limit, a.kl,
                 a.kl_limit);
    assert_int_equal(linears.n_coded + linears.n_decoded, 7 * q.m.model.n_layers);
    assert_true(is_coded(scheme->name) ? linears.n_decoded == 0 : linears.n_coded == 0);
    assert_int_equal(linears.n_rounded, spec.act.scope == SW_ACT_NONE ? 0 : linears.n_decoded);
    check_linears(&q, scheme->name);
    if (is_coded(scheme->name)) steps_check(gpu, &q.m, eval_ids, a.limit, scheme->name);
    check_faults(&q, &e, scheme->name);
    check_widened(&q, &e, scheme->name);
    sw_mem_put(e.logits);
    quantized_lm_close(&q);
}

static int open_all(void **state)
{
    (void)state;
    read_ids(calib_ids, "calib_data/calib.u16", ROWS);
    read_ids(eval_ids, "calib_data/eval.u16", ROWS);
    open_model_dir(&original, MODEL);
    wanted = model_logits(&original, 4, eval_ids, SEQS, SEQ_LEN);
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    sw_mem_put(wanted);
    open_model_close(&original);
    return 0;
}

int main(void)
{
    struct CMUnitTest tests[1 + SCHEMES_MAX] = {cmocka_unit_test(test_noise)};
    int n = 1, failed = device_open(&gpu);

    if (failed) return failed;
    for (; n <= sw_n_schemes && n <= SCHEMES_MAX; n++)
        tests[n] = (struct CMUnitTest){.name = sw_schemes[n - 1].name, .test_func = test_scheme,
                                       .initial_state = (void *)(uintptr_t)&sw_schemes[n - 1]};
    failed = _cmocka_run_group_tests("schemes on the "
                                     "device", tests, (size_t)n, open_all, close_all);
    sw_device_close(gpu);
    return failed;
}
