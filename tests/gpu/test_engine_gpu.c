/* test_engine_gpu.c - whole models on the device: logits against the references of test_logits.c,
 * decoding against prefill, NLL against the CPU engine. Exit 77 without a GPU.
 *
 * Bounds are of BF16 arithmetic with sums in FP32: activations are rounded to 8 bits some dozen
 * times a layer. What was measured is printed.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "kernels/engine/device_engine.h"
#include "tests/gpu/support/device_case.h"
#include "tests/support/toys/open_model.h"
#include "verify/base/metrics.h"

#define LOGITS_LIMIT 2e-2  /* relative L2 from float32 logits, over all tokens, */
#define ROUTED_LIMIT 1e-1  /* or, where rounding may send a token to other experts, this and */
#define ROUTED_SHARE 0.5   /* at most so many tokens above the other: toy routers are near ties */
#define NLL_LIMIT 4e-3     /* nats a token, of trained models; over 48 tokens, a text has 2e-3 */
#define PROMPT 20
#define STEPS 12

#define ARCH(name) "tests/golden/arch/" name, "tests/golden/arch/" name, "reference.safetensors"
#define MODEL(name) "tests/golden/models/" name, "tests/golden/models/" name, "exact.safetensors"

static const char *const models[][3] = { /* the last three are trained */
    {ARCH("llama")}, {ARCH("llama3")}, {ARCH("mistral")}, {ARCH("qwen2")}, {ARCH("qwen3")},
    {ARCH("gemma2")}, {ARCH("gemma3_text")}, {ARCH("phi3")}, {ARCH("olmo2")}, {ARCH("opt")},
    {ARCH("gpt2")}, {ARCH("qwen3_moe")}, {ARCH("mixtral")}, {ARCH("gpt_oss")},
    {ARCH("deepseek_v3")},
    {"calib_data/tiny-llama", "tests/golden/tiny-llama", "exact.safetensors"},
    {MODEL("small-llama")}, {MODEL("tiny-moe")},
};
#define N_MODELS (sizeof models / sizeof models[0])
#define N_TRAINED 3

static sw_device *gpu;

typedef struct on_device {
    sw_device_engine *engine;
    sw_device_lm *lm;
} on_device;

static void on_device_new(on_device *c, const open_model *m, int64_t max_tokens, int64_t max_seq)
{
    MUST(sw_device_engine_new(&c->engine, gpu, &m->model, max_tokens, max_seq, err));
    MUST(sw_device_lm_new(&c->lm, c->engine, &m->lm, err));
}

static void on_device_free(on_device *c)
{
    sw_device_lm_free(c->lm);
    sw_device_engine_free(c->engine);
}

static double nll_of(const float *logits, int64_t vocab, uint32_t id)
{
    double top = -INFINITY, sum = 0;

    for (int64_t i = 0; i < vocab; i++) top = fmax(top, (double)logits[i]);
    for (int64_t i = 0; i < vocab; i++) sum += exp((double)logits[i] - top);
    return top + log(sum) - (double)logits[id];
}

static double mean_nll(const float *logits, const reference_logits *ref)
{
    double sum = 0;
    int64_t n = 0;

    for (int64_t s = 0; s < ref->n_seqs; s++)
        for (int64_t t = 0; t + 1 < ref->seq_len; t++, n++) {
            const int64_t row = s * ref->seq_len + t;

            sum += nll_of(logits + row * ref->vocab, ref->vocab, ref->ids[row + 1]);
        }
    return sum / (double)n;
}

/* Tokens that went to other experts are few; the rest is as near as in a dense model. */
static void check_tokens(const float *have, const reference_logits *ref)
{
    const int64_t n = ref->n_seqs * ref->seq_len, vocab = ref->vocab;
    int64_t n_far = 0;

    for (int64_t t = 0; t < n; t++)
        n_far += !(relative_l2(have + t * vocab, ref->logits + t * vocab, vocab) <= LOGITS_LIMIT);
    print_message("  %lld of %lld tokens above %g\n", (long long)n_far, (long long)n,
                  LOGITS_LIMIT);
    if ((double)n_far > ROUTED_SHARE * (double)n) fail_msg("%lld tokens are off", (long long)n_far);
}

/* Prompt, then greedy steps (the last ones from a graph), against whole sequences at once. */
static void check_decode(const open_model *m, on_device *c, const reference_logits *ref)
{
    const sw_sampling greedy = {0, 0, 1, 0};
    const int64_t vocab = ref->vocab, n = PROMPT + STEPS;
    uint32_t *ids = malloc(4 * (size_t)(2 * STEPS)), *all = malloc(4 * (size_t)(2 * n));
    float *have = malloc(4 * (size_t)(2 * vocab)), *want = malloc(4 * (size_t)(2 * n * vocab));
    sw_device_session *s = NULL;

    MUST(sw_device_session_new(&s, c->lm, 2, n, &greedy, err));
    for (int i = 0; i < 2; i++) { /* the second one in two pieces */
        const uint32_t *prompt = ref->ids + i * 3;

        MUST(sw_device_session_feed(s, i, prompt, i ? 7 : PROMPT, err));
        if (i) MUST(sw_device_session_feed(s, i, prompt + 7, PROMPT - 7, err));
        memcpy(all + i * n, prompt, 4 * PROMPT);
    }
    MUST(sw_device_session_step(s, ids, STEPS, err));
    MUST(sw_device_session_logits(s, have, err));
    for (int i = 0; i < 2; i++)
        for (int t = 0; t < STEPS; t++) all[i * n + PROMPT + t] = ids[t * 2 + i];
    MUST(sw_device_lm_forward(c->lm, all, 2, n, err));
    MUST(sw_device_lm_head(c->lm, want, 0, 2 * n, err));
    for (int i = 0; i < 2; i++) {
        const double error = relative_l2(have + i * vocab, want + ((i + 1) * n - 1) * vocab, vocab);

        print_message("  sequence %d decoded: %.2e from prefill\n", i, error);
        if (!(error <= (m->model.n_experts ? ROUTED_LIMIT : LOGITS_LIMIT)))
            fail_msg("decode: %g", error);
        /* and not those of the step before */
        assert_true(relative_l2(have + i * vocab, want + ((i + 1) * n - 2) * vocab, vocab) >
                    LOGITS_LIMIT);
    }
    assert_int_equal(sw_device_session_room(s), 0);
    sw_device_session_free(s);
    free(ids), free(all), free(have), free(want);
}

/* Logits of the whole sequences as the device makes them of `m`. */
static float *logits_of(const open_model *m, const reference_logits *ref)
{
    const int64_t n_rows = ref->n_seqs * ref->seq_len;
    float *have = malloc(4 * (size_t)(n_rows * ref->vocab));
    on_device c;

    on_device_new(&c, m, n_rows < 64 ? 64 : n_rows, ref->seq_len < 64 ? 64 : ref->seq_len);
    MUST(sw_device_lm_forward(c.lm, ref->ids, ref->n_seqs, ref->seq_len, err));
    MUST(sw_device_lm_head(c.lm, have, 0, n_rows, err));
    on_device_free(&c);
    return have;
}

static void expect_far(const float *have, const reference_logits *ref, double limit,
                       const char *what)
{
    const double error = relative_l2(have, ref->logits, ref->n_seqs * ref->seq_len * ref->vocab);

    print_message("  %s: %.2e\n", what, error);
    if (error <= limit) fail_msg("%s is not seen: %g", what, error);
}

/* Faults that the limits must tell: another token in the text, a norm that is left out, and where
 * a block has both, keys for values. */
static void check_faults(open_model *m, const reference_logits *ref, double limit)
{
    sw_block *b = &m->lm.blocks[0];
    sw_weight k = b->linear[SW_SLOT_K], v = b->linear[SW_SLOT_V];
    float *const norm = m->lm.final_norm;
    float *have, *halves = malloc(4 * (size_t)m->model.hidden);

    for (int64_t s = 0; s < ref->n_seqs; s++) ref->ids[s * ref->seq_len + 1] ^= 1;
    have = logits_of(m, ref);
    for (int64_t s = 0; s < ref->n_seqs; s++) ref->ids[s * ref->seq_len + 1] ^= 1;
    expect_far(have, ref, limit, "another token");
    free(have);
    for (int64_t i = 0; i < m->model.hidden; i++) halves[i] = i % 8 ? norm[i] : 0;
    m->lm.final_norm = halves;
    have = logits_of(m, ref);
    m->lm.final_norm = norm;
    free(halves);
    expect_far(have, ref, limit, "every eighth channel lost");
    free(have);
    if (!k.n_out || k.n_out != v.n_out || !v.dense) return;
    b->linear[SW_SLOT_K].dense = v.dense;
    b->linear[SW_SLOT_V].dense = k.dense;
    have = logits_of(m, ref);
    b->linear[SW_SLOT_K] = k;
    b->linear[SW_SLOT_V] = v;
    expect_far(have, ref, limit, "keys for values");
    free(have);
}

/* What the device says about positions, beside what the host makes of its logits. The reference
 * is the model itself. */
static void check_scores(const on_device *c, const reference_logits *ref, const float *logits,
                         int64_t n_rows)
{
    sw_lm_score *scores = malloc(sizeof *scores * (size_t)n_rows);
    double worst = 0;
    sw_err beyond = {0};

    MUST(sw_device_lm_scores(c->lm, c->lm, scores, ref->ids, 1, n_rows - 1, err));
    for (int64_t i = 0; i < n_rows - 1; i++) {
        const double nll = sw_nll(logits + (i + 1) * ref->vocab, ref->vocab, ref->ids[i]);

        worst = fmax(worst, fabs(scores[i].nll - nll) / (1 + nll));
        assert_true(scores[i].nll_ref == scores[i].nll && scores[i].kl == 0);
        assert_true(scores[i].top == scores[i].top_ref);
    }
    print_message("  NLL by the device: %.1e from the host's\n", worst);
    assert_true(worst < 1e-12);
    assert_int_equal(sw_device_lm_scores(c->lm, NULL, scores, ref->ids, 1, n_rows, &beyond),
                     SW_E_BUG);
    free(scores);
}

static void test_model(void **state)
{
    const char *const *paths = *state;
    char path[256];
    reference_logits ref;
    open_model m;
    on_device c;
    int64_t n, n_rows;
    float *have, *again;
    double error, nll;

    open_model_dir(&m, paths[0]);
    (void)snprintf(path, sizeof path, "%s/%s", paths[1], paths[2]);
    reference_open(&ref, path);
    n_rows = ref.n_seqs * ref.seq_len;
    n = n_rows * ref.vocab;
    have = malloc(4 * (size_t)n), again = malloc(4 * (size_t)n);
    on_device_new(&c, &m, n_rows < 64 ? 64 : n_rows, ref.seq_len < 64 ? 64 : ref.seq_len);
    MUST(sw_device_lm_forward(c.lm, ref.ids, ref.n_seqs, ref.seq_len, err));
    MUST(sw_device_lm_head(c.lm, have, 0, n_rows, err));
    MUST(sw_device_lm_forward(c.lm, ref.ids, ref.n_seqs, ref.seq_len, err));
    MUST(sw_device_lm_head(c.lm, again, 0, n_rows, err));
    error = relative_l2(have, ref.logits, n);
    nll = mean_nll(have, &ref) - mean_nll(ref.logits, &ref);
    print_message("%s: logits %.2e, NLL %+.1e from float32\n", paths[0], error, nll);
    assert_memory_equal(have, again, 4 * (size_t)n);
    if (!(error <= (m.model.n_experts ? ROUTED_LIMIT : LOGITS_LIMIT)))
        fail_msg("%s: %g", paths[0], error);
    if (m.model.n_experts) check_tokens(have, &ref);
    if (paths >= models[N_MODELS - N_TRAINED] && !(fabs(nll) <= NLL_LIMIT))
        fail_msg("%s: NLL %g", paths[0], nll);
    check_scores(&c, &ref, again, n_rows);
    check_decode(&m, &c, &ref);
    check_faults(&m, &ref, m.model.n_experts ? ROUTED_LIMIT : LOGITS_LIMIT);
    on_device_free(&c);
    free(have), free(again);
    reference_close(&ref);
    open_model_close(&m);
}

/* One argument: the models whose name it matches (* and ? as in a shell). */
int main(int argc, char **argv)
{
    struct CMUnitTest tests[N_MODELS];
    int failed = device_open(&gpu);
    size_t n = 0;

    if (failed) return failed;
    for (size_t i = 0; i < N_MODELS; i++)
        if (open_model_is_there(models[i][0]))
            tests[n++] = (struct CMUnitTest){.name = models[i][0], .test_func = test_model,
                                             .initial_state = (void *)(uintptr_t)models[i]};
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    failed = _cmocka_run_group_tests("engine on the device", tests, n, NULL, NULL);
    sw_device_close(gpu);
    return failed;
}
