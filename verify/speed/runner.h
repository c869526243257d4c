/* runner.h - one model as it is served, on the CPU or on a device: what is timed.
 *
 * A table of calls, so that what decides about figures can be tested with models that do nothing
 * and a clock of the test's own. Every call returns when its work is done. Tokens are made up, the
 * same for every model: which they are changes nothing but the experts that they reach.
 */
#ifndef SW_VERIFY_SPEED_RUNNER_H
#define SW_VERIFY_SPEED_RUNNER_H

#include "kernels/device.h"
#include "kernels/engine/engine.h"

typedef struct sw_speed_runner {
    void *self;
    /* `batch` sequences with `context` tokens each, and room for n_steps more: of one call of
     * `decode` where that rewinds, else of all. */
    sw_code (*decode_begin)(void *self, int64_t batch, int64_t context, int64_t n_steps,
                            sw_err *err);
    /* Each step is a token of every sequence. */
    sw_code (*decode)(void *self, int64_t n_steps, sw_err *err);
    void (*decode_end)(void *self); /* also after a decode_begin that failed */
    /* n_seqs prompts of n_tokens, to the logits of the last token of each. */
    sw_code (*prefill)(void *self, int64_t n_seqs, int64_t n_tokens, sw_err *err);
    /* Products of m tokens with `n` weights of one shape, which are borrowed until linear_end, one
     * weight after the other; a pass is *per_pass products. */
    sw_code (*linear_begin)(void *self, int64_t *per_pass, const sw_weight *const *weights,
                            int64_t n, int64_t m, sw_err *err);
    sw_code (*linear)(void *self, int64_t n_passes, sw_err *err);
    void (*linear_end)(void *self);
    const char *(*kernel)(void *self); /* of the linear that was begun */
    void (*close)(void *self);
    bool rewinds;         /* every `decode` begins at `context` tokens again */
    bool is_in_turns;     /* sequences of a batch decode one after the other */
    int64_t n_streamed;   /* blocks that a device does not hold */
    double weight_bytes;  /* what a device has made of the weights; 0: they lie as they are */
    double kv_elem_bytes; /* of the cache */
} sw_speed_runner;

/* max_tokens: of one call; max_seq: of a sequence. `lm` is borrowed. */
sw_code sw_speed_runner_on_cpu(sw_speed_runner *out, const sw_lm *lm, int64_t max_tokens,
                               int64_t max_seq, int n_threads, sw_err *err) SW_MUST_USE;
/* SW_E_UNSUPPORTED: as sw_device_engine_new. */
sw_code sw_speed_runner_on_device(sw_speed_runner *out, sw_device *gpu, const sw_lm *lm,
                                  int64_t max_tokens, int64_t max_seq, sw_err *err) SW_MUST_USE;
/* Accepts a zeroed one. */
void sw_speed_runner_free(sw_speed_runner *r);

/* The made-up token `t` of sequence `seq`. */
uint32_t sw_speed_runner_token(const sw_lm *lm, int64_t seq, int64_t t);

#endif
