/* test_verify_ranks.c - windows cut over ranks: what rank 0 gathers is what one process has.
 * Ranks run one after the other here, the last first, and leave what they send in a box. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/support/toys/open_model.h"
#include "verify/metrics/perplexity.h"

enum { LENGTH = 256, BATCH = 2048 / LENGTH, N_WINDOWS = 2 * BATCH + 3, N_IDS = N_WINDOWS * LENGTH,
       RANKS_MAX = 5, BOX_BYTES = 1 << 18 };

typedef struct box {
    int rank;
    size_t at[RANKS_MAX], end[RANKS_MAX];
    char bytes[RANKS_MAX][BOX_BYTES];
} box;

static sw_code meet(void *self, sw_code code, sw_err *err)
{
    (void)self;
    (void)err;
    return code;
}

static sw_code send(void *self, int to, const void *data, size_t n_bytes, sw_err *err)
{
    box *b = self;
    size_t *end = &b->end[b->rank];

    (void)err;
    assert_int_equal(to, 0);
    assert_true(*end + n_bytes <= BOX_BYTES);
    memcpy(b->bytes[b->rank] + *end, data, n_bytes);
    *end += n_bytes;
    return SW_OK;
}

static sw_code receive(void *self, int from, void *data, size_t n_bytes, sw_err *err)
{
    box *b = self;

    if (b->at[from] + n_bytes > b->end[from])
        return SW_FAIL(err, SW_E_BUG, "rank %d has sent less", from);
    memcpy(data, b->bytes[from] + b->at[from], n_bytes);
    b->at[from] += n_bytes;
    return SW_OK;
}

static sw_report_eval evaluate(const sw_eval_job *job, const sw_judge_ranks *ranks)
{
    sw_eval_job mine = *job;
    sw_report_eval out = {0};
    sw_err err = {0};

    mine.ranks = ranks;
    if (sw_evaluate(&out, &mine, &err) != SW_OK) fail_msg("%s", err.text);
    return out;
}

static void expect_same(const sw_report_eval *have, const sw_report_eval *want)
{
    assert_int_equal(have->n_windows, want->n_windows);
    assert_int_equal(have->n_predictions, want->n_predictions);
    assert_memory_equal(&have->nll, &want->nll, sizeof want->nll);
    assert_memory_equal(&have->nll_original, &want->nll_original, sizeof want->nll);
    assert_memory_equal(&have->nll_diff, &want->nll_diff, sizeof want->nll);
    assert_memory_equal(&have->kl, &want->kl, sizeof want->kl);
    assert_true(want->kl.at > 0 && want->kl.low < want->kl.high);
    assert_memory_equal(&have->kl_p99, &want->kl_p99, sizeof want->kl_p99);
    assert_memory_equal(&have->kl_max, &want->kl_max, sizeof want->kl_max);
#define SW_METRIC(id, field, key, line, shown, reads)                                              \
    assert_memory_equal(&have->field, &want->field, sizeof want->field);
#include "verify/base/metrics.def"
#undef SW_METRIC
}

static void test_figures_of_one(void **state)
{
    static uint32_t ids[N_IDS];
    static box b;
    open_model have, want;
    sw_report_eval one;
    sw_eval_job job = {.windows = {.ids = ids, .n = N_WINDOWS, .length = LENGTH, .stride = LENGTH},
                       .bootstrap = {.n_samples = 50, .level = 0.95}, .n_threads = 1};

    (void)state;
    for (int i = 0; i < N_IDS; i++) ids[i] = (uint32_t)(i * i % 251);
    open_model_dir(&have, "tests/golden/arch/llama");
    open_model_dir(&want, "tests/golden/arch/qwen3");
    job.checkpoint = &have.lm;
    job.original = &want.lm;
    one = evaluate(&job, NULL);
    for (int size = 2; size <= RANKS_MAX; size++) {
        sw_report_eval all = {0};

        memset(&b, 0, sizeof b);
        for (b.rank = size - 1; b.rank >= 0; b.rank--) {
            const sw_judge_ranks ranks = {.self = &b, .rank = b.rank, .size = size,
                                          .meet = meet, .send = send, .receive = receive};
            all = evaluate(&job, &ranks);
            if (b.rank == size - 1) assert_true(b.end[b.rank] > 0); /* the last has the rest */
        }
        expect_same(&all, &one);
        for (int r = 1; r < size; r++) assert_int_equal(b.at[r], b.end[r]);
    }
    open_model_close(&have);
    open_model_close(&want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_figures_of_one)};

    return cmocka_run_group_tests_name("windows of ranks", tests, NULL, NULL);
}
