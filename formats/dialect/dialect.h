/* dialect.h - what an ecosystem's quantized checkpoint looks like, as table rows.
 *
 * A dialect turns one logical weight into named tensors and back, and writes and reads
 * the quantization_config object. It has nothing to do with algorithms, and opens no files.
 */
#ifndef SW_FORMATS_DIALECT_DIALECT_H
#define SW_FORMATS_DIALECT_DIALECT_H

#include "formats/base/json.h"
#include "formats/base/mem.h"
#include "formats/num/num.h"
#include "formats/pack/tiles.h"

#define SW_DIALECT_TENSORS_MAX 8

/* One stored tensor of a quantized linear, e.g. suffix "qweight". */
typedef struct sw_part {
    const char *suffix; /* joined to the module path by '.' */
    bool is_scale;      /* dtype is the spec's scale_dtype; a stored file may differ in it */
    bool is_input;      /* the scale of the inputs: F32 is written, BF16 and F16 are read as well */
    bool is_optional;   /* always written; a file without it is read as if it held the default */
    bool is_g_idx;      /* I32 [k_in], group of each column; any below 0: never filled in */
    bool is_shape;      /* I64 [2], sw_shape_store: nothing that the weight's shape does not say */
    sw_dtype dtype;
    int32_t n_dims;
    int64_t shape[SW_DIMS_MAX];
} sw_part;

/* One rule of a mixed checkpoint: the first that fits a module path decides its scheme. */
typedef struct sw_qrule {
    const char *pattern; /* a module path; or PCRE2, to match from the first character on */
    bool is_exact;
    sw_qspec spec;
} sw_qrule;

/* What the whole checkpoint says about its scheme. */
#define SW_EXTRA_HEADS_MAX 64

typedef struct sw_qconfig {
    sw_qspec spec;             /* the scheme of every quantized linear that no rule names */
    bool desc_act;             /* gptq: some g_idx scatters groups over columns (act-order without
                                  static groups); with static groups it stays false */
    const char *const *ignore; /* full module paths of linears left unquantized */
    int64_t n_ignore;
    const char *const *extra_heads; /* modules ("mtp") that predict further tokens, left as a
                                  whole. For writing: of what is read, ignore has all entries */
    int64_t n_extra_heads;
    const char *const *whole_experts; /* modules ("...mlp.experts") none of whose experts is
                                  quantized: engines ask for them as one. For writing */
    int64_t n_whole_experts;
    bool has_head;             /* the head is quantized as well. For writing; what is stored decides
                                  when reading */
    const sw_num *kv_num;      /* every layer has k_scale and v_scale, for a cache in these codes,
                                  E4M3 or INT8. NULL: none has, or nothing says for which */
    bool has_new_kv;           /* for writing: the caller puts the scales of kv_num, and those of
                                  the source stay behind; false: those of the source are copied */
    double damp;               /* smallest damping used; recorded where the dialect has a key */
    const sw_qrule *rules;     /* none: one scheme for all. Writing takes exact rules alone, one
                                  for every quantized linear */
    int64_t n_rules;
    bool decodes_rest;         /* for writing: what a quantized source has in codes, and no claim
                                  takes, becomes floats; false: only if the target is dense */
    bool has_no_default;       /* a linear that no rule names is not quantized; spec is unused */
} sw_qconfig;

typedef struct sw_dialect {
    const char *name;
    const char *summary;         /* one line for `swage list formats` and the README */
    bool is_known_by_scale;      /* quantized linears are told by their scale, since codes have the
                                    name of a dense weight; false: by the first declared part */
    bool is_stacked;             /* experts alone, all of a layer in one tensor a part: see
                                    expert_stack.h */
    bool holds_kv_scales;        /* loaders look for k_scale and v_scale of attention, */
    bool names_kv_codes;         /* and the config says for which codes; false: for E4M3 */
    bool is_dense;               /* "weight" in floats of scale_dtype: written, never detected */
    const char *side_config;     /* file beside config.json that says the scheme too, or NULL */
    const char *const *metadata; /* key, value, ..., NULL for the container's metadata; or NULL */
    int zero_min;                /* for sw_qspec.zero_min; can_hold refuses a smaller one */
    sw_dtype (*scale_dtype)(sw_dtype model_dtype); /* what scales are stored as */
    /* SW_E_UNSUPPORTED with the reason and a remedy when the dialect cannot hold this weight. */
    sw_code (*can_hold)(const sw_qspec *spec, int64_t n_out, int64_t k_in, sw_err *err);
    /* Whether the values of an asymmetric weight of a scheme that it holds let it; NULL: any do. */
    sw_code (*check_values)(const sw_qtensor *q, sw_err *err);
    /* The tensors a weight becomes; returns how many of out[] are set. Pure. */
    int (*declare)(sw_part out[SW_DIALECT_TENSORS_MAX], const sw_qspec *spec, int64_t n_out,
                   int64_t k_in);
    /* Fill the declared tensors, in declare's order; buffers have exactly the declared sizes and
     * start zeroed. SW_E_UNSUPPORTED: a zero point below zero_min. */
    sw_code (*encode)(void *const parts[], const sw_qtensor *q, sw_err *err);
    /* Rebuild the logical weight from stored tensors: parts[i] belongs to declare's i-th tensor
     * and has already been checked against its dtype and shape; it is NULL for an absent optional
     * one, and aligned to its dtype. q is allocated by the caller, with the scale dtype of the
     * file. SW_E_FORMAT: the tensors contradict each other or the scheme. */
    sw_code (*decode)(sw_qtensor *q, const void *const parts[], sw_err *err);
    /* A view of stored tensors that kernels can read directly, after a check of shape and scales.
     * NULL for a dialect whose bytes must be repacked. */
    sw_code (*map_tiles)(sw_tiles *out, const sw_qspec *spec, int64_t n_out, int64_t k_in,
                         const void *const parts[], sw_err *err);
    bool maps_marlin; /* what map_tiles gives has is_marlin set */
    /* Build the quantization_config object; owned by the caller. */
    sw_code (*write_config)(cJSON **out, const sw_qconfig *config, sw_err *err);
    /* What side_config holds instead, where it does not repeat that object; or NULL. */
    sw_code (*write_side)(cJSON **out, const sw_qconfig *config, sw_err *err);
    /* Read one back; ignore[] is allocated from the arena and holds what can be told as exact
     * paths. spec.scale_dtype is left alone: only the stored tensors know it.
     * SW_E_UNSUPPORTED: not a scheme of ours, with the reason. */
    sw_code (*read_config)(sw_qconfig *out, const cJSON *object, sw_arena *arena, sw_err *err);
    /* true when this quantization_config is of this dialect. */
    bool (*is_mine)(const cJSON *object);
} sw_dialect;

extern const sw_dialect *const sw_dialects[]; /* ends with NULL */
const sw_dialect *sw_dialect_find(const char *name);            /* NULL when unknown */
const sw_dialect *sw_dialect_detect(const cJSON *quant_config); /* NULL when no dialect claims it */
/* Whether it has a place for the scales of a cache in codes of `num`. */
bool sw_dialect_holds_kv(const sw_dialect *dialect, const sw_num *num);
/* The dialects of the table of conversions (sw_conversion_exact): these and "gguf". */
extern const sw_dialect *const sw_conversion_dialects[]; /* ends with NULL */
/* "bf16", "f16", "f32": plain floats, as targets of a conversion; see dialect_dense.c. */
extern const sw_dialect *const sw_dense_dialects[]; /* ends with NULL */
const sw_dialect *sw_dense_find(const char *name);  /* NULL when unknown */
/* What the dialect decides of a scheme: the dtype of scales that no format fixes, and zero_min. */
void sw_dialect_fit_spec(sw_qspec *spec, const sw_dialect *dialect, sw_dtype model_dtype);

#endif
