/* gguf_names.h - which tensor of a GGUF is which of a model, and how its values differ.
 *
 * Made from a model description by walking its block programs, so that reading and writing agree
 * by construction. What may differ besides the name:
 *   - rows of q and k of the llama family are stored as interleaved pairs: row 2 i + j of a head
 *     is row j D/2 + i of the model (D = head_dim);
 *   - norms stored less one by the model are stored whole;
 *   - all experts of a layer lie in one tensor [n_experts, n_out, k_in].
 */
#ifndef SW_FORMATS_GGUF_GGUF_NAMES_H
#define SW_FORMATS_GGUF_GGUF_NAMES_H

#include "formats/model/model.h"

typedef struct sw_gguf_arch {
    const char *gguf;       /* general.architecture */
    const char *model_type; /* of config.json */
    bool is_moe;            /* the row of this model_type that has experts */
    bool has_paired_rows;   /* q and k, see above */
} sw_gguf_arch;

/* SW_E_UNSUPPORTED lists what there is. */
sw_code sw_gguf_arch_of_model(const sw_gguf_arch **out, const char *model_type,
                              sw_err *err) SW_MUST_USE;
sw_code sw_gguf_arch_of_file(const sw_gguf_arch **out, const char *gguf, bool has_experts,
                             sw_err *err) SW_MUST_USE;

typedef struct sw_gguf_name {
    const char *hf;   /* "model.layers.3.self_attn.q_proj.weight" */
    const char *gguf; /* "blk.3.attn_q.weight" */
    int32_t n_dims;
    int64_t shape[2];            /* of the model's tensor */
    int64_t paired_rows;         /* rows of a head whose halves are interleaved; 0: none */
    double offset;               /* stored = value + offset */
    int64_t expert, n_experts;   /* -1, 0: a tensor of its own */
    bool is_linear;              /* in a block, so that it may be written quantized */
    bool is_table;               /* embedding or head */
} sw_gguf_name;

typedef struct sw_gguf_names {
    sw_gguf_name *names; /* experts of a tensor are neighbours, in their order */
    int64_t n;
} sw_gguf_names;

/* Taken from the arena. SW_E_UNSUPPORTED: the model has a tensor that GGUF has no name for. */
sw_code sw_gguf_names_new(sw_gguf_names *out, const sw_model *m, const sw_gguf_arch *arch,
                          sw_arena *arena, sw_err *err) SW_MUST_USE;

/* dst[row] = src[where row `row` of the model lies in the file]; rows of row_bytes. to_file: the
 * other way. n_rows is a multiple of paired_rows. */
void sw_gguf_pair_rows(void *dst, const void *src, int64_t n_rows, int64_t row_bytes,
                       int64_t paired_rows, bool to_file);

#endif
