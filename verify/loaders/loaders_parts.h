/* loaders_parts.h - what the files of the loader rules share. Not for others. */
#ifndef SW_VERIFY_LOADERS_LOADERS_PARTS_H
#define SW_VERIFY_LOADERS_LOADERS_PARTS_H

#include "formats/file/gguf.h"
#include "verify/loaders/loaders.h"

typedef struct sw_load_linear {
    const char *path;
    sw_linear_ref ref;
    bool is_quantized;
    sw_qspec spec; /* as stored, when quantized; num NULL: not readable */
} sw_load_linear;

typedef struct sw_load_ctx {
    const sw_checkpoint *ckpt;
    const cJSON *quant; /* quantization_config, or NULL */
    const sw_gguf *gguf; /* the file, where it is one, or NULL */
    sw_load_linear *linears;
    int64_t n_linears;
    sw_load_finding finding; /* of the rule being asked */
    sw_arena *arena;
    sw_err *err;
} sw_load_ctx;

/* One more subject breaks the rule; the first is kept, with the detail. */
sw_code sw_load_found(sw_load_ctx *ctx, const char *subject, const char *fmt, ...)
    SW_PRINTF(3, 4) SW_MUST_USE;

typedef sw_code (*sw_load_check)(sw_load_ctx *ctx);
#define SW_LOAD_RULE(id, engines, effect, check, consequence, remedy) \
    sw_code sw_load_##check(sw_load_ctx *ctx) SW_MUST_USE;
#include "verify/loaders/loaders.def"
#undef SW_LOAD_RULE

#endif
