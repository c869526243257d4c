/* generate.h - from prompt ids to a stream of new ids. */
#ifndef SW_KERNELS_ENGINE_GENERATE_H
#define SW_KERNELS_ENGINE_GENERATE_H

#include "kernels/engine/engine.h"

typedef struct sw_generate_options {
    sw_sampling sampling;
    int64_t max_new;   /* at most this many tokens after the prompt */
    bool ignores_eos;  /* go on past the model's end tokens */
} sw_generate_options;

/* Gets each new token as it comes; anything but SW_OK ends the run with that code, which is how
 * a caller stops it (SW_E_CANCELLED). */
typedef struct sw_token_sink {
    void *self;
    sw_code (*take)(void *self, uint32_t id, sw_err *err);
} sw_token_sink;

bool sw_is_eos(const sw_model *m, uint32_t id);

typedef struct sw_generate_result {
    int64_t n_new;      /* tokens handed out */
    bool met_eos;       /* ended by an end token, which is not handed out */
    uint32_t eos;       /* which one */
} sw_generate_result;

/* Feed the prompt and draw until max_new tokens, an end token, or a full session. The session may
 * hold earlier text. `result` (or NULL) is set however the run ends.
 * SW_E_USAGE: an empty prompt, or one that does not fit. */
sw_code sw_generate(sw_session *session, const sw_lm *lm, const uint32_t *prompt,
                    int64_t n_prompt, const sw_generate_options *options,
                    const sw_token_sink *sink, sw_generate_result *result,
                    sw_err *err) SW_MUST_USE;

#endif
