/* linear_kinds.h - the linears of a model by kind and shape, each with the original's beside it. */
#ifndef SW_VERIFY_SPEED_LINEAR_KINDS_H
#define SW_VERIFY_SPEED_LINEAR_KINDS_H

#include "kernels/engine/engine.h"
#include "verify/base/speed_report.h"

#define SW_KIND_HELD 32  /* weights of a kind that are timed: of the first layers */
#define SW_LINEAR_KINDS_MAX 48

typedef struct sw_linear_kind {
    char name[64];       /* its path behind the layer's number, experts as "*" */
    bool is_routed;      /* of experts that get a part of the tokens */
    bool is_head;        /* prefill runs it on the last token alone */
    int64_t n_out, k_in;
    int64_t count;       /* in the model */
    int64_t n_held;
    const sw_weight *held[SW_SPEED_SIDES][SW_KIND_HELD]; /* borrowed from the models */
} sw_linear_kind;

typedef struct sw_linear_kinds {
    sw_linear_kind *at; /* [n], in the arena */
    int n;
} sw_linear_kinds;

/* Those that quantization may touch. With an original, linears that both store alike are left out:
 * they run the same kernel on as many bytes. Kinds beyond SW_LINEAR_KINDS_MAX are left out. */
sw_code sw_linear_kinds_of(sw_linear_kinds *out, sw_arena *arena, const sw_lm *lm,
                           const sw_lm *original, sw_err *err) SW_MUST_USE;

#endif
