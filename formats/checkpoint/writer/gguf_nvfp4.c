/* gguf_nvfp4.c - the factor of a whole weight of NVFP4, which its blocks do not hold: a tensor
 * beside it, as loaders look for it. The blocks are those of formats/dialect/dialect_gguf.c.
 */
#include <stdio.h>
#include <string.h>

#include "formats/checkpoint/writer/gguf_export_internal.h"

/* "blk.0.attn_q.scale" of "blk.0.attn_q.weight". */
static void factor_name(char out[128], const sw_gguf_name *name)
{
    (void)snprintf(out, 128, "%.*sscale", (int)(strlen(name->gguf) - strlen("weight")),
                   name->gguf);
}

sw_code sw_gguf_declare_factor(sw_gguf_writer *w, const sw_gguf_name *name, sw_err *err)
{
    const int64_t n = name->expert >= 0 ? name->file_shape[0] : 1;
    char text[128];

    factor_name(text, name);
    return sw_gguf_declare(w, text, SW_BLOCK_F32, 1, &n, err);
}

sw_code sw_gguf_put_factor(sw_gguf_writer *w, const sw_gguf_name *name, float factor, sw_err *err)
{
    char text[128];

    factor_name(text, name);
    return sw_gguf_put(w, text, name->expert > 0 ? 4 * (uint64_t)name->expert : 0, &factor,
                       sizeof factor, err);
}
