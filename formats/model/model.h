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
#include "formats/model/mixer.h"
#include "formats/model/program.h"

#define SW_LAYERS_MAX 1024
#define SW_EXPERTS_MAX 4096
#define SW_EOS_MAX 16
#define SW_ROPE_PAIRS_MAX 256 /* where each has a factor of its own */

typedef enum sw_rope_kind {
    SW_ROPE_DEFAULT, SW_ROPE_LINEAR, SW_ROPE_DYNAMIC, SW_ROPE_LLAMA3, SW_ROPE_YARN,
    SW_ROPE_LONGROPE, SW_ROPE_PROPORTIONAL
} sw_rope_kind;

typedef struct sw_rope {
    sw_rope_kind kind;
    int64_t dim; /* elements of a head that turn; 0: sw_model.rope_dim */
    double theta, factor;
    double low_freq_factor, high_freq_factor;        /* llama3 */
    double beta_fast, beta_slow, attention_factor;   /* yarn; attention_factor < 0: derive it */
    double mscale, mscale_all_dim;                   /* yarn; 0: absent */
    bool truncate;                                   /* yarn */
    double part;                                     /* proportional: of the pairs, from the first
                                                      * on, that turn at all */
    float short_factors[SW_ROPE_PAIRS_MAX];          /* longrope: of each pair, within the */
    float long_factors[SW_ROPE_PAIRS_MAX];           /* trained length and beyond it */
    int64_t original_max_positions;
} sw_rope;

typedef struct sw_arch sw_arch;

/* What an MLP does to its gate (or to its only branch). */
typedef enum sw_mlp_act {
#define SW_ACTIVATION(id, symbol) SW_MLP_##id,
#define SW_ACTIVATION_NAME(name, id)
#include "formats/model/activations.def"
#undef SW_ACTIVATION
#undef SW_ACTIVATION_NAME
    SW_MLP_SILU_CLAMPED,  /* g = min(g, limit), u within +-limit: silu(g) u */
    SW_MLP_SWIGLU_CLAMPED /* g = min(g, limit), u within +-limit: g sigmoid(1.702 g) (u + 1) */
} sw_mlp_act;

typedef enum sw_router_kind {
    SW_ROUTER_SOFTMAX, /* softmax over all experts, the largest are used */
    SW_ROUTER_SIGMOID, /* sigmoid; chosen by groups after a shift that the weights do not see */
    SW_ROUTER_SQRT_SOFTPLUS, /* as that, of the root of ln(1 + exp(logit)) */
    SW_ROUTER_INPUT    /* the largest logits; their sigmoids scale what the experts read */
} sw_router_kind;

/* What surrounds the blocks, and what comes before a layer's number ("model.layers"). */
typedef enum sw_end {
    SW_END_LAYERS, SW_END_EMBED, SW_END_POSITIONS, SW_END_EMBED_NORM, SW_END_SIDE_TABLE,
    SW_END_SIDE_PROJECTION, SW_END_SIDE_NORM, SW_END_COPIES_IN, SW_END_COPIES_OUT,
    SW_END_STREAMS, SW_END_STREAMS_BASE, SW_END_STREAMS_SCALE, SW_END_NORM, SW_END_HEAD,
    SW_END_COUNT
} sw_end;
#define SW_END_BYTES 128 /* of such a name, without ".weight" */

/* Sizes of a layer's attention and dense MLP, as sw_model has them for most layers. */
typedef struct sw_sizes {
    int64_t n_heads, n_kv_heads, head_dim, v_head_dim, rope_dim, intermediate;
} sw_sizes;
#define SW_SIZES_MAX 8

/* What chooses the keys that attention sees (SW_OP_INDEX). */
typedef struct sw_indexer {
    int64_t top_k;    /* up to so many tokens attention sees all; 0: always */
    int64_t n_heads, head_dim;
    bool is_paired;   /* its rotation, as sw_model.is_rope_paired */
    bool is_shared;   /* some layers see what the layer before has chosen */
} sw_indexer;

/* A linear of a decoder that no row describes, told by its tensor's name and shape. */
typedef struct sw_found_linear {
    const char *path;   /* of the module, as it is written */
    const char *tensor; /* that holds its floats: its own, or one of all experts */
    int64_t layer, n_out, k_in;
    int32_t n_dims;     /* of that tensor, and its shape */
    int64_t shape[3];
    int64_t first, row_step, col_step; /* as in sw_stored */
} sw_found_linear;

/* A tensor that may hold linears, in an order that neither shape nor config tells. */
typedef struct sw_unclear {
    const char *name, *why;
} sw_unclear;

/* All that could be found without a row: see unknown/found.h. */
typedef struct sw_found {
    sw_found_linear *linears;   /* by layer, then by path */
    int64_t n;
    const int64_t *first_of;    /* [n_layers + 1] the first linear of each layer */
    const char *const *kept;    /* modules of matrices that stay as engines keep such: routers,
                                 * gates; sorted */
    int64_t n_kept;
    const sw_unclear *unclear;  /* in the file's order */
    int64_t n_unclear;
} sw_found;

typedef struct sw_model {
    const sw_arch *arch;
    bool is_like;             /* model_type has no row; that of arch stands in for it */
    const sw_found *found;    /* linears where arch is sw_arch_unknown; else NULL */
    sw_dtype dtype;           /* what config.json says weights are: BF16, F16 or F32 */
    bool is_dtype_open;       /* says nothing, or null: F32 until sw_model_fit_names looks */
    int64_t hidden, intermediate, n_layers, n_heads, n_kv_heads, head_dim, vocab, max_positions;
    int64_t v_head_dim;       /* head_dim but in latent attention */
    int64_t q_rank, kv_rank;  /* latent attention: widths of the low-rank factors; 0: none (q_rank
                               * alone: queries are made by one linear) */
    int64_t rope_dim;         /* rotated part of a head, at its start; in latent attention at its */
    bool is_rope_last;        /* end, or where this says so; neighbours may turn together */
    bool is_rope_paired;      /* instead of halves */
    int64_t n_experts, n_experts_used, moe_intermediate; /* 0 in a dense model */
    int64_t moe_hidden;       /* what routed experts read and write: hidden, or less */
    int64_t shared_intermediate; /* width of the shared expert, 0: none */
    sw_router_kind router;
    int64_t n_expert_groups, n_groups_used; /* sigmoid router; 1, 1: no groups */
    double route_scale;       /* on the weights of the chosen experts */
    double route_floor;       /* their sum counts as at least this where it divides */
    double router_scale;      /* on the router's logits */
    bool norm_topk;           /* router weights are renormalized over the chosen experts */
    int64_t sparse_step;      /* layer l is sparse when (l+1) % sparse_step == 0 ... */
    bool is_dense_layer[SW_LAYERS_MAX]; /* ... and not listed as dense */
    int64_t sliding_window;   /* 0: none */
    bool is_window_layer[SW_LAYERS_MAX];
    double norm_eps;
    double rank_norm_eps;     /* of the norms between low-rank factors */
    double norm_offset;       /* 1: norm weights are stored less one */
    sw_mlp_act act;
    double act_limit;         /* of SW_MLP_SWIGLU_CLAMPED and SW_MLP_SILU_CLAMPED */
    double attention_scale;   /* on the products of queries and keys */
    double attention_cap;     /* scores become cap * tanh(score / cap); 0: they stay */
    double logits_cap;        /* likewise the logits */
    double embed_scale;       /* on embedding rows */
    double residual_scale;    /* on what is added to the residual stream */
    double logits_scale;      /* on logits, before their cap */
    double qkv_clip;          /* of SW_OP_CLIP */
    double factor[SW_BUF_COUNT]; /* of SW_OP_FACTOR, by the buffer it writes */
    double temper_beta;       /* of SW_OP_TEMPER, on queries */
    int64_t temper_every, temper_shift;
    sw_indexer indexer;
    int64_t attention_chunk;  /* window layers see their own chunk of so many positions; 0: they
                               * have a sliding window */
    bool has_alibi;           /* scores get a slope times the distance instead of a rotation */
    bool has_embed_norm;      /* a layer norm on embedding rows */
    bool has_bare_layer_norms; /* without a bias */
    int64_t n_position_rows;  /* rows of the table of learned positions, 0: none ... */
    int64_t first_position_row; /* ... and the row of position 0 */
    bool has_query_gate;      /* q makes a gate beside each head of queries */
    sw_mixer mixer;           /* of layers that have a recurrent one */
    bool is_tied, has_qkv_bias, has_o_bias, has_mlp_bias, has_router_bias;
    int64_t bos_id, eos_id;   /* -1: none; eos_id is eos_ids[0] */
    int64_t eos_ids[SW_EOS_MAX];
    int64_t n_eos;
    sw_rope rope;
    bool has_two_ropes;       /* that differ, in the config: see sw_rope_check_once */
    bool has_window_rope;     /* window layers turn by another table: */
    sw_rope window_rope;
    int64_t side_inputs;      /* width of the input that every layer has for itself, beside the
                               * residual stream; 0: none */
    int64_t n_copies;         /* of the residual stream, itself the first; 0: it is alone */
    int64_t hyper_rounds;     /* of balancing how streams are mixed, which the copies then are */
    double hyper_eps;
    bool keeps_token_ids;     /* some layers ask for them */
    int64_t compress_rates[2]; /* tokens to a key: where windows overlap and keys are chosen, and
                                * where neither is so */
    int64_t o_groups, o_rank; /* of the linear behind attention; 0, 0: there is none */
    int64_t low_rank;         /* of the path beside attention */
    double gate_cut;          /* of SW_OP_CUT */
    bool is_cut_layer[SW_LAYERS_MAX];
    int16_t shares_kv[SW_LAYERS_MAX]; /* 1 + the layer whose keys and values are read; 0: its own */
    uint8_t kind[SW_LAYERS_MAX];     /* of each layer, in arch->kinds */
    sw_sizes other_sizes[SW_SIZES_MAX]; /* of layers that differ from the rest: */
    uint8_t sizes_of[SW_LAYERS_MAX]; /* 0: as above, i: other_sizes[i - 1] */
    char ends[SW_END_COUNT][SW_END_BYTES]; /* as this checkpoint has them; "": as arch says */
} sw_model;

/* How one tensor holds the gate and up channels of an expert. Files of a family come both ways
 * round; the shapes of the two tensors tell which, and this is what is published. */
typedef enum sw_fused_order {
    SW_FUSED_TURNS,   /* [experts, k_in, 2 n_out], gate and up in turns; always this way round */
    SW_FUSED_COLUMNS, /* [experts, k_in, 2 n_out], gate channels first */
    SW_FUSED_ROWS     /* [experts, 2 n_out, k_in], gate channels first */
} sw_fused_order;

/* Where an architecture keeps what is not in a slot; NULL: it has no such tensor. */
typedef struct sw_arch_ends {
    const char *prefix;       /* "model.": what all names but the head's begin with; checkpoints
                               * may have another one, or none (sw_model_fit_names) */
    const char *names[SW_END_COUNT];
    bool has_norm_bias;       /* of the final norm, which then is a layer norm */
} sw_arch_ends;

struct sw_arch {
    const char *name;         /* config.json model_type */
    const char *hf_class;     /* architectures[0] */
    const char *notes;        /* one line for `swage list` */
    double default_theta;     /* what the family's config classes assume when a key is absent */
    double default_eps;
    int64_t default_head_dim; /* 0: hidden / n_heads */
    int64_t default_mlp_factor; /* intermediate / hidden when no key says; 0: one must */
    sw_mlp_act default_act;
    bool is_tied_by_default;
    bool has_transposed_linears; /* stored [k_in, n_out] */
    sw_arch_ends ends;
    const sw_kinds *kinds;
    /* Name of each slot inside "<ends.layers>.L.", without ".weight"; "%d" is the expert. */
    const char *slot_names[SW_SLOT_COUNT];
    const char *expert_names[3]; /* gate, up, down inside a sparse layer, or NULL; experts without
                                  * a gate apply the activation to up */
    const char *fused_experts[2]; /* tensors of all experts' gate and up, and down; or NULL */
    sw_fused_order fused_order;
    sw_code (*read_extra)(sw_model *model, const cJSON *config, sw_err *err); /* or NULL */
};

extern const sw_arch sw_archs[];
extern const int sw_n_archs;
const sw_arch *sw_arch_find(const char *model_type); /* NULL when unknown */

/* A family without a row: nothing of it can be computed, but its weights can be told by their
 * names and shapes. */
extern const sw_arch sw_arch_unknown;
/* Both for the whole program, to be said before models are opened. The family whose row serves
 * every model_type without one, NULL: none; SW_E_USAGE: `family` has no row itself. */
sw_code sw_arch_stand_in(const char *family, sw_err *err) SW_MUST_USE;
/* true when a model has been read by that row. */
bool sw_arch_stood_in(void);
/* Whether a model_type without a row is read as sw_arch_unknown instead of refused. */
void sw_arch_allow_unknown(bool is_allowed);
/* The row that serves a model_type or class, or its stand-in; NULL: there is none. */
const sw_arch *sw_arch_for(const char *model_type, bool *is_like);
/* model_type of the config, or of the family that stands in for it. */
const char *sw_arch_family(const char *model_type);
/* SW_E_UNSUPPORTED: names the nearest families and what can be done; or SW_OK where such models are
 * read without a row. */
sw_code sw_arch_refuse(const char *model_type, sw_err *err) SW_MUST_USE;
/* Of such a model: sizes that the config gives, each as far as it can be read. */
void sw_model_read_unknown(sw_model *m, const cJSON *config);
/* Whether a model that another row describes is as that row says: every matrix and norm of a layer
 * is there with its shape, and no tensor of a layer is unknown. SW_E_UNSUPPORTED names the first
 * tensor that is not so. Linears in codes are not looked at. */
sw_code sw_model_check_like(const sw_model *m, const sw_st *st, sw_err *err) SW_MUST_USE;
/* true when a slot of a layer, or an end, has the name of this tensor; `module` is its name without
 * the last part. */
bool sw_model_names(const sw_model *m, const char *module, const char *tensor);

/* config.json of either style into a checked description.
 * SW_E_UNSUPPORTED: an architecture or rope type without a row (lists what there is).
 * SW_E_FORMAT: missing or senseless sizes, naming the key. */
sw_code sw_model_read(sw_model *out, const cJSON *config, sw_err *err) SW_MUST_USE;

/* A quantization_config (or compression_config) that stands in the decoder's object of a wrapper is
 * moved beside that object, where all others have it; nothing happens where one is there already.
 * SW_E_NOMEM, and nothing has changed. */
sw_code sw_config_lift_scheme(cJSON *config, sw_err *err) SW_MUST_USE;

/* Checkpoints call the same decoder differently: most of gpt2 leave out "transformer.", wrappers
 * with a vision tower put "model.language_model." or "language_model.model." before everything.
 * Look which `st` has, and call everything like that; and let layers be of the kind that their
 * tensors make them; and let a dtype that the config leaves open be that of most floats. */
void sw_model_fit_names(sw_model *m, const sw_st *st);
/* A name, without ".weight", as this checkpoint has it; NULL: the family has no such thing. */
const char *sw_model_end(const sw_model *m, sw_end end);

bool sw_model_is_sparse(const sw_model *m, int64_t layer);
sw_sizes sw_model_sizes(const sw_model *m, int64_t layer);
/* Floats beside each row of the residual stream: inputs of single layers, keys and values that
 * later layers share, copies of the stream, the token's id (int32), the numbers of keys that later
 * layers see too (int32). And where in them, -1 when not at all: the layer's own input; its keys,
 * with its values behind them; the copies; the id; the numbers. */
int64_t sw_model_side_width(const sw_model *m);
int64_t sw_model_side_of_input(const sw_model *m, int64_t layer);
int64_t sw_model_side_of_kv(const sw_model *m, int64_t layer);
int64_t sw_model_side_of_copies(const sw_model *m);
int64_t sw_model_side_of_token(const sw_model *m);
int64_t sw_model_side_of_index(const sw_model *m);
const sw_op *sw_model_ops(const sw_model *m, int64_t layer, int *n_ops);
/* Output and input widths of a linear slot in a layer. */
void sw_model_slot_shape(const sw_model *m, int64_t layer, sw_slot slot, int64_t *n_out,
                         int64_t *k_in);
/* Module path, e.g. "model.layers.3.mlp.experts.5.gate_proj"; expert -1 when not per expert.
 * NULL slot name (this architecture lacks it): returns false. */
bool sw_model_slot_path(char out[256], const sw_model *m, int64_t layer, sw_slot slot,
                        int64_t expert);
/* Module path of a layer's attention; false when it has none, or caches keys and values as a
 * latent. */
bool sw_model_attention_path(char out[256], const sw_model *m, int64_t layer);
/* The module of a tensor that engines take for the matrix of a linear, wherever in the model: of
 * two axes, named `path`.weight. false: of another kind, a table that is looked up, or the head,
 * which each dialect treats in its own way. */
bool sw_model_matrix_path(char path[256], const sw_model *m, const char *tensor, int n_dims);
/* false for a tensor that is no part of the decoder: of a tower, of a projector, of a head that
 * predicts further tokens. */
bool sw_model_owns(const sw_model *m, const char *tensor);
/* The module around such a tensor that stands beside the decoder ("model.visual", "mtp") ... */
void sw_model_part_of(char out[256], const sw_model *m, const char *tensor);
/* ... and whether it predicts further tokens: "mtp", or a layer beyond the last. */
bool sw_model_is_extra_head(const sw_model *m, const char *part);
bool sw_model_slot_has_bias(const sw_model *m, sw_slot slot);

/* A site whose input can be divided by a factor per channel, with nothing else changed, once the
 * linears reading it are multiplied: the factor goes into what makes the channels. */
typedef enum sw_fold_kind {
    SW_FOLD_NORM, /* the weight (and bias) of a norm */
    SW_FOLD_ROWS  /* the rows (and bias) of a linear */
} sw_fold_kind;
typedef struct sw_fold {
    sw_fold_kind kind;
    sw_slot producer;
    sw_site producer_site; /* of SW_FOLD_ROWS: where the producer reads */
    sw_site site;          /* every linear that reads it is a consumer, a router too */
    bool is_per_expert;    /* producer and consumer are one expert's */
    /* Of SW_FOLD_ROWS, which row makes a channel (sw_fold_row): runs of `width` rows, one every
     * `stride` rows from `first` on, each making n_sharing runs of channels. Heads of values that
     * several heads of queries share are such runs, and so is a part of a fused linear. */
    int64_t first, stride, width, n_sharing;
} sw_fold;
#define SW_FOLDS_MAX 8
/* The folds of a layer, in block order; returns how many. They follow from the block program: a
 * factor above 0 passes through what is linear in it (up through a gated activation, v through
 * attention) and through relu; what anything else reads has none, be it a producer or a part of
 * one. Channels that come from one row must have one factor. */
int sw_model_folds(sw_fold out[SW_FOLDS_MAX], const sw_model *m, int64_t layer);
/* The producer's row behind a channel of the site; for a norm, the channel. */
int64_t sw_fold_row(const sw_fold *fold, int64_t channel);

/* Without a row: true when the name lies in a numbered list of layers of the decoder: its layer,
 * and in *at where the layer's own part of the name begins. Towers and heads for further tokens
 * have lists too, which do not count. */
bool sw_found_in_layer(int64_t *layer, size_t *at, const char *name);
/* A linear of a family without a row; NULL: the layer has not so many. */
const sw_found_linear *sw_found_at(const sw_model *m, int64_t layer, int64_t index);

/* The linears of a block that quantization may touch, in block order; experts one by one. After the
 * last block comes one more "layer", n_layers: the final norm and, at SW_SITE_ATTN_IN, the head. It
 * is empty in a model whose head is the embedding. Every question about a layer may be asked of it;
 * it can be loaded and run as a block up to its only site, and has no folds. */
typedef struct sw_linear_ref {
    int64_t layer;
    sw_slot slot;
    int64_t expert; /* -1: not an expert; of SW_SLOT_FOUND, which linear of the layer */
    sw_site site;
    int64_t n_out, k_in;
} sw_linear_ref;
/* Fills at most `max` of out[] and returns how many there are. */
int64_t sw_model_linears(const sw_model *m, int64_t layer, sw_linear_ref *out, int64_t max);
/* Width of the rows that the linears at a site read; 0 where the layer has none. */
int64_t sw_model_site_width(const sw_model *m, int64_t layer, sw_site site);
/* true when what a linear at this site puts out is added to the residual stream as it is (by one
 * linear for all tokens: not by experts, not through another norm). */
bool sw_model_site_writes_residual(const sw_model *m, int64_t layer, sw_site site);
/* true for a linear that closes a half of a block: engines on several devices cut its inputs, and
 * the outputs of all others. */
bool sw_slot_is_row_cut(sw_slot slot);
/* The linears of a block that quantization never touches, as engines keep them in floats: routers
 * and what sets the pace of a recurrent mixer. Fills at most `max` of out[], returns how many. */
int sw_model_kept_linears(const sw_model *m, int64_t layer, sw_slot *out, int max);
#define SW_KEPT_MAX 8
/* Does the layer cache keys and values? Floats of the state it keeps of a sequence; 0: none. */
bool sw_model_has_attention(const sw_model *m, int64_t layer);
int64_t sw_model_state_elems(const sw_model *m, int64_t layer);
/* Floats that the layer caches of each token beside keys and values: what keys are chosen by. */
int64_t sw_model_cache_width(const sw_model *m, int64_t layer);
/* Tokens to a compressed key of the layer, 0: it has none; and whether it chooses among them. */
int64_t sw_model_compress_rate(const sw_model *m, int64_t layer);
bool sw_model_chooses_far_keys(const sw_model *m, int64_t layer);
/* Row width of a buffer in a layer, and the largest in any; 0 where no program uses it. */
int64_t sw_model_layer_buf_width(const sw_model *m, int64_t layer, sw_buf buf);
int64_t sw_model_buf_width(const sw_model *m, sw_buf buf);

/* The rope keys of either style into *m: rope, rope_dim, window_rope; the sizes must be known.
 * SW_E_UNSUPPORTED: another rope type, or layer types that disagree and are not the two known. */
sw_code sw_rope_read(sw_model *m, const cJSON *config, sw_err *err) SW_MUST_USE;
/* SW_E_FORMAT where rope_scaling and rope_parameters are both there and make different ropes: no
 * reading of such a config is that of every engine. m->rope is then what transformers makes of it,
 * by which a checkpoint can be judged nevertheless. */
sw_code sw_rope_check_once(const sw_model *m, sw_err *err) SW_MUST_USE;
const char *sw_rope_kind_name(sw_rope_kind kind);

/* true when frequencies at this length are not those of shorter sequences: dynamic and longrope
 * beyond the trained length. */
bool sw_rope_depends_on(const sw_model *m, const sw_rope *rope, int64_t seq_len);
/* inv_freq[rope_dim / 2] (float arithmetic as the original models use) and the factor on cos and
 * sin, of m->rope or m->window_rope. seq_len, the number of positions in use, matters where
 * sw_rope_depends_on says so. */
void sw_rope_frequencies(float *inv_freq, float *cos_sin_scale, const sw_model *m,
                         const sw_rope *rope, int64_t seq_len);

#endif
