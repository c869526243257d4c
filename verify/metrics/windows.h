/* windows.h - the evaluation protocol's cut of a text, and running a model over it.
 *
 * The whole text is tokenized once and cut into non-overlapping windows of `length` tokens; what
 * does not fill a last window is left out. With BOS, each window is BOS and length - 1 tokens.
 */
#ifndef SW_VERIFY_METRICS_WINDOWS_H
#define SW_VERIFY_METRICS_WINDOWS_H

#include "formats/base/progress.h"
#include "kernels/engine/spread/device_spread.h"

typedef struct sw_windows {
    const uint32_t *ids; /* borrowed */
    int64_t n, length;   /* windows, tokens in each */
    int64_t stride;      /* tokens of the text in each */
    bool has_bos;
    uint32_t bos;
} sw_windows;

/* length 0: min(2048, max positions); a text shorter than that is one window of its own.
 * max_windows 0: all. SW_E_USAGE: fewer than 2 tokens, a length below 2 or beyond the model's
 * positions, BOS asked of a model that has none. */
sw_code sw_windows_cut(sw_windows *out, const uint32_t *ids, int64_t n_ids, int64_t length,
                       int64_t max_windows, bool with_bos, const sw_model *model,
                       sw_err *err) SW_MUST_USE;
/* Windows first .. first + n - 1 into dst [n * length]. */
void sw_windows_copy(uint32_t *dst, const sw_windows *w, int64_t first, int64_t n);

/* Tokens run side by side, so that weights are read once for many; at least one window. */
static inline int64_t sw_windows_batch(const sw_windows *w)
{
    int64_t n = 2048 / w->length;

    return n < 1 ? 1 : n < w->n ? n : w->n;
}

/* The first window of one of several ranks, and n for the rank after the last: ranks have whole
 * batches, so that each is multiplied as one process would. */
int64_t sw_windows_of_rank(const sw_windows *w, int rank, int n_ranks);

/* A model with room to run batches of windows, on the CPU or on a device. */
typedef struct sw_runner {
    const sw_lm *lm;
    sw_engine *engine;
    float *x; /* [batch * length, hidden] */
    sw_device_model on_gpus; /* in place of engine and x; */
    sw_device_lm *gpu_lm;    /* that one's, NULL: it is here */
} sw_runner;

/* On a device, or (gpus not NULL) on as many of those as it needs, of which it is the first: the
 * weights are copied there, and sw_runner_head is the only way to the logits. `progress` is told
 * where they lie, if on several. */
sw_code sw_runner_new_on(sw_runner *out, sw_device *gpu, sw_device_set *gpus, const sw_lm *lm,
                         const sw_windows *w, const sw_progress *progress,
                         sw_err *err) SW_MUST_USE;
sw_code sw_runner_new(sw_runner *out, const sw_lm *lm, const sw_windows *w, int n_threads,
                      sw_err *err) SW_MUST_USE;
void sw_runner_free(sw_runner *r); /* accepts a zeroed one */
/* x = hidden rows of n_seqs windows after the last block. */
sw_code sw_runner_blocks(sw_runner *r, const uint32_t *ids, int64_t n_seqs, int64_t length,
                         sw_err *err) SW_MUST_USE;
/* logits [n, vocab] of rows row0 .. row0 + n - 1 of the last sw_runner_blocks. */
sw_code sw_runner_head(sw_runner *r, float *logits, int64_t row0, int64_t n,
                       sw_err *err) SW_MUST_USE;
/* Can rows of both (ref: or NULL) be scored without their logits coming here? They are on one
 * device then, and no metric reads logits. */
bool sw_runner_can_score(const sw_runner *have, const sw_runner *ref);
/* scores [n], targets [n] of the first n rows of the last sw_runner_blocks of both: see
 * sw_device_lm_scores. */
sw_code sw_runner_scores(sw_runner *have, sw_runner *ref, sw_lm_score *scores,
                         const uint32_t *targets, int64_t n, sw_err *err) SW_MUST_USE;
/* Rows of logits that fit 32 MB at a time, 8 .. 512. */
int64_t sw_runner_head_rows(int64_t vocab);

#endif
