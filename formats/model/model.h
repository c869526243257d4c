/* model.h - a decoder-only model described as data.
 *
 * config.json selects an architecture row; the row brings the block program (a list of
 * operations on named buffers), the tensor names of every weight slot, and which config keys
 * it reads. The engine runs programs, the quantizer walks slots; neither knows an architecture
 * by name. Adding one is a row, its program and its name table.
 */
#ifndef SW_FORMATS_MODEL_MODEL_H
#define SW_FORMATS_MODEL_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/json.h"
#include "formats/base/mem.h"
#include "formats/base/view.h"
#include "formats/file/safetensors.h"

#define SW_LAYERS_MAX 1024
#define SW_EXPERTS_MAX 4096
#define SW_EOS_MAX 16

/* Weight slots of a block. Linears come first: they are what quantization is about. */
typedef enum sw_slot {
    SW_SLOT_Q, SW_SLOT_K, SW_SLOT_V, SW_SLOT_O,
    SW_SLOT_GATE, SW_SLOT_UP, SW_SLOT_DOWN, /* per expert in a sparse layer */
    SW_SLOT_ROUTER,                         /* linear, never quantized */
    SW_SLOT_NORM_ATTN, SW_SLOT_NORM_MLP, SW_SLOT_NORM_Q, SW_SLOT_NORM_K,
    SW_SLOT_COUNT
} sw_slot;

/* Inputs that several linears share: one Hessian each. */
typedef enum sw_site {
    SW_SITE_ATTN_IN, SW_SITE_O_IN, SW_SITE_MLP_IN, SW_SITE_DOWN_IN, SW_SITE_COUNT
} sw_site;

/* Buffers of a block program; all are [n_tokens, width]. */
typedef enum sw_buf {
    SW_BUF_X, SW_BUF_N, SW_BUF_Q, SW_BUF_K, SW_BUF_V, SW_BUF_A, SW_BUF_G, SW_BUF_U, SW_BUF_T,
    SW_BUF_COUNT
} sw_buf;

typedef enum sw_op_kind {
    SW_OP_RMS_NORM,  /* dst = norm(src) * slot */
    SW_OP_LINEAR,    /* dst = src * slot^T + bias; `site` is the site src is observed at */
    SW_OP_HEAD_NORM, /* dst = per-head rms norm of dst with slot */
    SW_OP_ROPE,      /* rotate dst */
    SW_OP_ATTENTION, /* dst = attention(Q, K, V) with the cache */
    SW_OP_SWIGLU,    /* dst = silu(dst) * src */
    SW_OP_ADD,       /* dst += src */
    SW_OP_MOE        /* dst = routed experts of src; only in sparse layers */
} sw_op_kind;

typedef struct sw_op {
    sw_op_kind kind;
    sw_buf dst, src;
    sw_slot slot;
    sw_site site;
} sw_op;

typedef enum sw_rope_kind {
    SW_ROPE_DEFAULT, SW_ROPE_LINEAR, SW_ROPE_DYNAMIC, SW_ROPE_LLAMA3, SW_ROPE_YARN
} sw_rope_kind;

typedef struct sw_rope {
    sw_rope_kind kind;
    double theta, factor;
    double low_freq_factor, high_freq_factor;        /* llama3 */
    double beta_fast, beta_slow, attention_factor;   /* yarn; attention_factor < 0: derive it */
    double mscale, mscale_all_dim;                   /* yarn; 0: absent */
    bool truncate;                                   /* yarn */
    int64_t original_max_positions;
} sw_rope;

typedef struct sw_arch sw_arch;

typedef struct sw_model {
    const sw_arch *arch;
    sw_dtype dtype;           /* what config.json says weights are: BF16, F16 or F32 */
    int64_t hidden, intermediate, n_layers, n_heads, n_kv_heads, head_dim, vocab, max_positions;
    int64_t n_experts, n_experts_used, moe_intermediate; /* 0 in a dense model */
    bool norm_topk;           /* router weights are renormalized over the chosen experts */
    int64_t sparse_step;      /* layer l is sparse when (l+1) % sparse_step == 0 ... */
    bool is_dense_layer[SW_LAYERS_MAX]; /* ... and not listed as dense */
    int64_t sliding_window;   /* 0: none */
    bool is_window_layer[SW_LAYERS_MAX];
    double norm_eps;
    bool is_tied, has_qkv_bias, has_o_bias, has_mlp_bias;
    int64_t bos_id, eos_id;   /* -1: none; eos_id is eos_ids[0] */
    int64_t eos_ids[SW_EOS_MAX];
    int64_t n_eos;
    sw_rope rope;
} sw_model;

struct sw_arch {
    const char *name;         /* config.json model_type */
    const char *hf_class;     /* architectures[0] */
    const char *notes;        /* one line for `swage list` */
    double default_theta;     /* what the family's config classes assume when a key is absent */
    double default_eps;
    int64_t default_head_dim; /* 0: hidden / n_heads */
    const sw_op *dense_ops;   /* block program of a dense layer; n_dense_ops entries */
    int n_dense_ops;
    const sw_op *sparse_ops;  /* of a sparse layer, or NULL */
    int n_sparse_ops;
    /* Name of each slot inside "model.layers.L.", without ".weight"; "%d" is the expert. */
    const char *slot_names[SW_SLOT_COUNT];
    const char *expert_names[3]; /* gate, up, down inside a sparse layer, or NULL */
    sw_code (*read_extra)(sw_model *model, const cJSON *config, sw_err *err); /* or NULL */
};

extern const sw_arch sw_archs[];
extern const int sw_n_archs;
const sw_arch *sw_arch_find(const char *model_type); /* NULL when unknown */

/* config.json of either style into a checked description.
 * SW_E_UNSUPPORTED: an architecture or rope type without a row (lists what there is).
 * SW_E_FORMAT: missing or senseless sizes, naming the key. */
sw_code sw_model_read(sw_model *out, const cJSON *config, sw_err *err) SW_MUST_USE;

bool sw_model_is_sparse(const sw_model *m, int64_t layer);
const sw_op *sw_model_ops(const sw_model *m, int64_t layer, int *n_ops);
/* Output and input widths of a linear slot in a layer. */
void sw_model_slot_shape(const sw_model *m, int64_t layer, sw_slot slot, int64_t *n_out,
                         int64_t *k_in);
/* Module path, e.g. "model.layers.3.mlp.experts.5.gate_proj"; expert -1 when not per expert.
 * NULL slot name (this architecture lacks it): returns false. */
bool sw_model_slot_path(char out[256], const sw_model *m, int64_t layer, sw_slot slot,
                        int64_t expert);
bool sw_model_slot_has_bias(const sw_model *m, sw_slot slot);

/* The linears of a block that quantization may touch, in block order; experts one by one. */
typedef struct sw_linear_ref {
    int64_t layer;
    sw_slot slot;
    int64_t expert; /* -1: not an expert */
    sw_site site;
    int64_t n_out, k_in;
} sw_linear_ref;
/* Fills at most `max` of out[] and returns how many there are. */
int64_t sw_model_linears(const sw_model *m, int64_t layer, sw_linear_ref *out, int64_t max);

/* The rope keys of either style into *out; max_positions and head_dim must be known.
 * SW_E_UNSUPPORTED: another rope type, partial rotation, or layer types that disagree. */
sw_code sw_rope_read(sw_rope *out, const cJSON *config, double default_theta,
                     int64_t max_positions, int64_t head_dim, sw_err *err) SW_MUST_USE;
const char *sw_rope_kind_name(sw_rope_kind kind);

/* inv_freq[head_dim / 2] (float arithmetic as the original models use) and the factor on cos and
 * sin. seq_len, the number of positions in use, matters to `dynamic` only. */
void sw_rope_frequencies(float *inv_freq, float *cos_sin_scale, const sw_model *m,
                         int64_t seq_len);

#endif
