/* gguf_nvfp4.c - weights of NVFP4 as blocks of GGUF: the same codes and scales in another order of
 * bytes, with the factor of the whole weight in a tensor beside it, as loaders look for it.
 */
#include <stdio.h>
#include <string.h>

#include "formats/checkpoint/writer/gguf_export_internal.h"

#define GROUP 16

bool sw_gguf_holds_nvfp4(const sw_qspec *spec, int64_t k_in)
{
    return spec->num == &sw_nums[SW_NUM_E2M1] && spec->is_symmetric && spec->group_elems == GROUP &&
           spec->scale_dtype == SW_DTYPE_F8_E4M3 && spec->has_global && !spec->is_scattered &&
           !spec->n_outliers && k_in % sw_block_sizes[SW_BLOCK_NVFP4].elems == 0;
}

/* A block has four scales, and for each eight bytes: element j in the low half of byte j, j + 8 in
 * the high one. */
void sw_gguf_nvfp4_row(unsigned char *to, const sw_qtensor *q, int64_t row)
{
    const uint8_t *codes = q->codes + row * q->k_in;

    for (int64_t g = 0; g < q->n_groups; g++, codes += GROUP) {
        unsigned char *block = to + g / 4 * sw_block_sizes[SW_BLOCK_NVFP4].bytes;
        unsigned char *halves = block + 4 + g % 4 * (GROUP / 2);

        (void)!sw_float_encode_n(block + g % 4, SW_DTYPE_F8_E4M3,
                                 &q->scales[row * q->n_groups + g], 1, NULL);
        for (int j = 0; j < GROUP / 2; j++)
            halves[j] = (unsigned char)(codes[j] | codes[j + GROUP / 2] << 4);
    }
}

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
