/* cuda_engine_internal.h - the state of the engine on the device, shared by the files of
 * cuda/engine. */
#ifndef SW_KERNELS_CUDA_ENGINE_CUDA_ENGINE_INTERNAL_H
#define SW_KERNELS_CUDA_ENGINE_CUDA_ENGINE_INTERNAL_H

#include "kernels/cuda/decode/dense_few.h"
#include "kernels/cuda/decode/quantize_made.h"
#include "kernels/cuda/gemm/cublaslt/cublaslt.h"
#include "kernels/cuda/ops/engine_chosen.h"
#include "kernels/cuda/ops/engine_streams.h"
#include "kernels/cuda_gemm.h"
#include "kernels/engine/device_engine.h"
#include "kernels/engine/engine_internal.h"
#include "kernels/engine/launch_plan.h"

/* Device memory of one lifetime: freed all at once. Zero-initialise. With d_place it is all taken
 * from there, in order, and nothing is freed. */
typedef struct sw_device_store {
    sw_device *gpu;
    sw_arena arena; /* the list of what was taken */
    struct sw_device_taken *last;
    char *d_place;
    int64_t place_bytes, used_bytes;
    const struct sw_device_block *like; /* holds the dense linears of like_of; or NULL */
    const sw_block *like_of;
} sw_device_store;
sw_code sw_device_store_take(void **out, sw_device_store *store, int64_t n_elems,
                             int64_t elem_bytes, const char *what, sw_err *err) SW_MUST_USE;
/* The same with a copy of host memory in it. */
sw_code sw_device_store_copy(void **out, sw_device_store *store, const void *from,
                             int64_t size_bytes, const char *what, sw_err *err) SW_MUST_USE;
void sw_device_store_free(sw_device_store *store);
#define SW_STORE_TAKE(out_ptr, store, n_elems, what, err)                                          \
    sw_device_store_take((void **)(out_ptr), (store), (int64_t)(n_elems), sizeof **(out_ptr),      \
                         (what), (err))

/* A linear on the device, perhaps several that share their input, one below the other. */
typedef struct sw_device_weight {
    int64_t n_out, k_in; /* n_out 0: not there */
    sw_bf16 *d_dense;    /* or */
    sw_tiles tiles;      /* with device pointers, when tiles.codes is set */
    sw_act act;
    float input_scale;
    float *d_bias;
    int n_coded, n_decoded; /* quantized linears in it: multiplied as codes, or as BF16 */
} sw_device_weight;

/* n stored elements to BF16 on the device, for what its stream does afterwards; `from` is not read
 * any more. */
sw_code sw_device_copy_as_bf16(sw_device *gpu, sw_bf16 *d_to, const void *from, sw_dtype dtype,
                               int64_t n, sw_err *err) SW_MUST_USE;
/* The values of a dense linear, from memory or from the block that is like the store's. */
sw_code sw_device_dense_load(sw_bf16 *d_to, const sw_device_store *store, const sw_weight *w,
                             sw_err *err) SW_MUST_USE;
/* `parts` (1 to 3 with the same k_in) as one weight. SW_OK with out->n_out 0 when they cannot be
 * put together; one part always can. */
sw_code sw_device_weight_load(sw_device_weight *out, sw_device_engine *e, sw_device_store *store,
                              const sw_weight *const *parts, int n_parts, sw_err *err) SW_MUST_USE;
/* The same with codes of 2 and 3 bits in a container of 4, as kernels of experts read them. */
sw_code sw_device_expert_load(sw_device_weight *out, sw_device_engine *e, sw_device_store *store,
                              const sw_weight *const *parts, int n_parts, sw_err *err) SW_MUST_USE;
/* One part, decoded if it is quantized: for products whose output is FP32. */
sw_code sw_device_weight_load_dense(sw_device_weight *out, sw_device_engine *e,
                                    sw_device_store *store, const sw_weight *part,
                                    sw_err *err) SW_MUST_USE;
/* Parts that can be put together, in tiles though no product of a single linear reads such. */
sw_code sw_device_weight_load_tiles(sw_device_weight *out, sw_device_engine *e,
                                    sw_device_store *store, const sw_weight *const *parts,
                                    int n_parts, sw_err *err) SW_MUST_USE;
/* Device bytes of `w` as sw_device_weight_load and as sw_device_expert_load would take it; and in
 * tiles whatever it is. */
int64_t sw_device_weight_bytes(const sw_device_engine *e, const sw_weight *w);
int64_t sw_device_expert_bytes(const sw_device_engine *e, const sw_weight *w);
int64_t sw_device_tiles_bytes(const sw_weight *w);

struct sw_device_block {
    sw_device_engine *e;
    int64_t layer;
    sw_device_weight
        linear[SW_SLOT_COUNT]; /* Q holds q, k and v, and GATE gate and up, when fused */
    bool is_qkv_fused, is_gate_fused;
    sw_device_weight *experts[3]; /* gate (with up when is_expert_fused), up, down */
    bool is_expert_fused, is_expert_ungated; /* of the latter experts[0] are the ups */
    sw_expert *d_experts[2];             /* gates with ups, and downs, where all are alike */
    sw_device_weight *copies_out;        /* [n_copies - 1] in the last block, or NULL */
    float *merge[3];                     /* as in sw_block, */
    int32_t *token_experts;              /* likewise */
    float *norm[SW_SLOT_COUNT], *norm_bias[SW_SLOT_COUNT];
    sw_kv_form kv;
    sw_sizes sizes;                      /* of the layer: */
    int64_t width[SW_BUF_COUNT];         /* rows of its buffers, */
    sw_bf16_rows buf[SW_BUF_COUNT];      /* and where in the engine's they lie */
    sw_device_store store;
};

/* sw_device_block_load into a place of place_bytes; *n_bytes of it, from its beginning, are the
 * block, at these addresses only. */
sw_code sw_device_block_load_at(sw_device_block **out, sw_device_engine *e, const sw_block *block,
                                void *d_place, int64_t place_bytes, int64_t *n_bytes,
                                sw_err *err) SW_MUST_USE;
/* Room that is enough for that. */
int64_t sw_device_block_bytes(const sw_device_engine *e, const sw_block *block);

/* A rope's angles: filled on the host as the CPU engine does, copied as far as they are new. */
typedef struct sw_device_angles {
    sw_angles host;
    float *d_cos, *d_sin;
    int64_t n_copied;
} sw_device_angles;

typedef struct sw_device_moe {
    float *d_logits;              /* [max_tokens, n_experts] */
    int32_t *d_chosen, *d_tokens; /* [max_tokens * n_used] */
    float *d_share, *d_token_share, *d_sum; /* sum: [max_tokens, moe_hidden] */
    float *d_in_share;            /* [max_tokens * n_used] on what experts read, or NULL */
    sw_bf16 *d_scaled;            /* [max_tokens, moe_hidden] where that is shown, or NULL */
    sw_bf16 *d_rows, *d_gate, *d_out;       /* [max_tokens * n_used, ...] by expert */
    int32_t *d_flags;                       /* of experts/routed.h */
    int32_t *d_counts, *counts;             /* [n_experts, 2] of sw_list_args, there and here */
    sw_moe_scratch host;                    /* tokens, starts */
} sw_device_moe;

/* Of models with far keys, per token or per pair of a token and what its row says. */
typedef struct sw_device_far {
    sw_bf16 *d_made;    /* [max_tokens, row] rows of a call, */
    sw_bf16 *d_place;   /* which lie here where there is no cache, with their far keys */
    sw_bf16 *d_q;       /* [max_tokens, n_heads * head_dim] of the indexer, */
    float *d_weights;   /* [max_tokens, n_heads] likewise */
    float *d_products;  /* [some queries * n_heads, keys] */
    uint32_t *d_ranks;  /* [some queries, keys] */
    int32_t *d_chosen;  /* [max_tokens, top_k] */
    int64_t n_products; /* floats there are */
} sw_device_far;

/* Of models that choose single keys, where sequences may be longer than all keys that are seen. */
typedef struct sw_device_choice {
    sw_bf16 *d_q;          /* [max_tokens, n_heads * head_dim] of the indexer, */
    sw_bf16 *d_keys;       /* [max_tokens, head_dim] */
    float *d_weights;      /* [max_tokens, n_heads] likewise */
    uint32_t *d_ranks;     /* [some queries, keys] */
    sw_chosen_rows chosen; /* [max_tokens, top_k]; in the side rows where layers share a choice */
    int64_t n_ranks;       /* there are */
} sw_device_choice;

struct sw_device_engine {
    sw_device *gpu;
    const sw_model *m;
    sw_cublaslt *lt;
    sw_cuda_device device;
    sw_launch how;
    int64_t max_tokens, max_positions;
    sw_bf16_rows buf[SW_BUF_COUNT]; /* X excepted */
    int64_t width[SW_BUF_COUNT];
    float *d_x;                     /* [max_tokens, hidden] of whole-model calls, on first use */
    float *d_side;                  /* [max_tokens, sw_model_side_width], or NULL */
    float *d_slopes;                /* [n_heads] where scores fall with the distance, or NULL */
    sw_device_angles angles, window_angles;
    sw_device_moe moe;
    sw_device_far far;
    sw_device_choice choice;
    float *d_stream_coefs;          /* [max_tokens, n_copies * (n_copies + 1)], or NULL */
    uint32_t *d_mixer_counters;     /* of ops/mixers/mixers.h, where the model has mixers */
    void *d_gemm_work; /* grows; addresses in a graph hold as long as work_generation stays */
    int64_t gemm_work_bytes, work_generation;
    sw_device_store store;
};

/* The experts of a block, see cuda_experts.c, and their bytes on the device, with `beside` more for
 * each linear. */
sw_code sw_device_experts_load(sw_device_block *b, const sw_block *from, sw_err *err) SW_MUST_USE;
int64_t sw_device_experts_bytes(const sw_device_engine *e, const sw_block *from, int64_t beside);

/* Keys and values of a layer: [n_seqs, capacity, width] as the layer's block keeps them. */
typedef struct sw_device_kv {
    void *d_k, *d_v;
    float *d_state;   /* [n_seqs, sw_device_state_floats] of a recurrent mixer, or NULL */
    sw_bf16 *d_far;   /* [n_seqs, sw_device_far_elems] of near and far keys, or of what keys are
                       * chosen by, or NULL */
    int64_t capacity;
    sw_kv_form form;
} sw_device_kv;
static inline int64_t sw_device_kv_bytes(const sw_kv_form *form)
{
    return form->kind ? 1 : (int64_t)sizeof(sw_bf16);
}

/* Floats that a layer's recurrent mixer remembers of a sequence. What they hold before its first
 * token does not matter. */
int64_t sw_device_state_floats(const sw_model *m, int64_t layer);

typedef struct sw_device_run {
    sw_device_engine *e;
    const sw_device_block *block;
    float *d_x;
    int64_t n_seqs, seq_len, n_tokens;
    const int32_t *d_first; /* [n_seqs] or NULL */
    int64_t end;            /* all positions of the call lie before it; 0: not known */
    bool has_chosen;        /* attention sees e->choice.chosen alone */
    const sw_device_kv *kv; /* or NULL */
    bool is_decode;         /* one query a sequence against the cache, */
    void *d_decode_scratch; /* which needs this */
    bool follows_embedding; /* whose kernel, ahead of all blocks, waits for what came before */
    void *d_wide;           /* of sw_device_lm, or NULL */
    int64_t wide_bytes;
    sw_half half;
    sw_site from;           /* begin at the linear that reads it, */
    const void *d_given;    /* with these rows; NULL: begin at the beginning */
    const sw_device_tap *tap;
    sw_site stop_at;
    bool awaits_sum;        /* the block before has left X += T to this one, */
    bool may_leave_sum;     /* and this one may leave it to the next */
    bool is_fused;          /* one token: products take in what stands around them */
} sw_device_run;

/* The block program of run->block. Sets run->awaits_sum for the block after it. */
sw_code sw_device_run_block(sw_device_run *run, sw_err *err) SW_MUST_USE;
/* One launch of a plan. */
sw_code sw_device_launch(sw_device_run *run, const sw_planned_launch *l, sw_err *err) SW_MUST_USE;
/* A launch of kind SW_LAUNCH_OP, in cuda_ops.c. */
sw_code sw_device_run_op(sw_device_run *run, const sw_planned_launch *l, sw_err *err) SW_MUST_USE;
/* What is left of a row of side rows from column `at` on. */
static inline sw_f32_rows sw_device_side_rows(const sw_device_engine *e, int64_t at)
{
    return (sw_f32_rows){e->d_side + at, sw_model_side_width(e->m)};
}
/* The SW_LAUNCH_FUSABLE bits of a product of the run's tokens with the weight in a slot. */
uint8_t sw_device_fusable(const sw_device_run *run, sw_slot slot);
/* Of the linear of gates and ups in that slot: whether its product for this run's tokens leaves
 * what GLU makes of them, and that product, into y [n_tokens, n_out / 2];
 * has_codes: of what lies where sw_device_codes_for says. */
bool sw_device_takes_glu(const sw_device_run *run, sw_slot slot);
sw_code sw_device_gated_linear(const sw_device_run *run, sw_bf16_rows y, sw_bf16_rows x,
                               bool has_codes, const sw_device_weight *w,
                               sw_err *err) SW_MUST_USE;
/* Whether a product of the run's tokens with it takes codes that what comes before leaves. */
bool sw_device_takes_codes(const sw_device_run *run, sw_slot slot);
/* Where those of n tokens belong until the product with `w`, which must be the next to use the
 * engine's workspace. */
sw_code sw_device_codes_for(sw_made_codes *out, sw_device_engine *e, int64_t n,
                            const sw_device_weight *w, sw_err *err) SW_MUST_USE;
/* sw_device_linear of what lies there. */
sw_code sw_device_coded_linear(sw_device_engine *e, sw_bf16_rows y, int64_t n,
                               const sw_device_weight *w, sw_err *err) SW_MUST_USE;
/* Of a dense weight and n rows; the output is left to the caller. */
sw_dense_args sw_device_dense_args(const sw_device_engine *e, sw_bf16_rows x, int64_t n,
                                   const sw_device_weight *w);
/* y = x w^T + bias, n rows; y_is_f32 (dense weights only): y is dense FP32. */
sw_code sw_device_linear(sw_device_engine *e, void *d_y, int64_t y_stride, bool y_is_f32,
                         sw_bf16_rows x, int64_t n, const sw_device_weight *w,
                         sw_err *err) SW_MUST_USE;
/* Recurrent mixers, see cuda_mixers.c. */
sw_code sw_device_run_gated_delta(sw_device_run *run, const sw_planned_launch *l,
                                  sw_err *err) SW_MUST_USE;
sw_code sw_device_run_kimi_delta(sw_device_run *run, const sw_planned_launch *l,
                                 sw_err *err) SW_MUST_USE;
sw_code sw_device_run_ssd(sw_device_run *run, const sw_planned_launch *l, sw_err *err) SW_MUST_USE;
sw_code sw_device_run_short_conv(sw_device_run *run, const sw_planned_launch *l,
                                 sw_err *err) SW_MUST_USE;
/* Residual streams, see cuda_hyper.c: scratch of the engine, tensors of a block and the room that
 * is enough for them, operations, and what tokens begin with, whose embedding rows are in d_x. */
sw_code sw_device_hyper_new(sw_device_engine *e, sw_err *err) SW_MUST_USE;
sw_code sw_device_hyper_load(sw_device_block *b, const sw_block *from, sw_err *err) SW_MUST_USE;
int64_t sw_device_hyper_bytes(const sw_model *m, const sw_block *from);
sw_code sw_device_hyper_begin(const sw_device_engine *e, float *d_x, const uint32_t *d_ids,
                              int64_t n, sw_err *err) SW_MUST_USE;
sw_code sw_device_mix_streams(sw_device_run *run, const sw_planned_launch *l,
                              sw_err *err) SW_MUST_USE;
sw_code sw_device_add_streams(sw_device_run *run, const sw_planned_launch *l,
                              sw_err *err) SW_MUST_USE;
sw_code sw_device_merge_streams(sw_device_run *run, const sw_planned_launch *l,
                                sw_err *err) SW_MUST_USE;
/* Keys that are chosen one by one, see cuda_chosen.c. Elements that a layer keeps of a sequence of
 * at most so many tokens; whether a sequence of the run may have more keys than are seen. */
int64_t sw_device_index_elems(const sw_model *m, int64_t layer, int64_t capacity);
bool sw_device_run_may_choose(const sw_device_run *run);
sw_code sw_device_choice_new(sw_device_engine *e, sw_err *err) SW_MUST_USE;
sw_code sw_device_index(sw_device_run *run, const sw_planned_launch *l, sw_err *err) SW_MUST_USE;
sw_code sw_device_take_index(sw_device_run *run, const sw_planned_launch *l,
                             sw_err *err) SW_MUST_USE;
/* Near and far keys, see cuda_near_far.c. Elements that a layer keeps of a sequence of at most so
 * many tokens, or sw_device_index_elems; 0: it has no such keys. */
int64_t sw_device_far_elems(const sw_model *m, int64_t layer, int64_t capacity);
sw_code sw_device_far_new(sw_device_engine *e, sw_err *err) SW_MUST_USE;
sw_code sw_device_near_far(sw_device_run *run, const sw_planned_launch *l,
                           sw_err *err) SW_MUST_USE;
sw_code sw_device_group_linear(sw_device_run *run, const sw_planned_launch *l,
                               sw_err *err) SW_MUST_USE;
/* Whether a step of n_tokens lists its experts on the device: then a graph can have it. Also of a
 * block without any. */
bool sw_device_moe_stays(const sw_device_block *b, int64_t n_tokens);
/* The logits of the router, of rows that the experts need not read. */
sw_code sw_device_run_router(sw_device_run *run, sw_bf16_rows src, sw_err *err) SW_MUST_USE;
/* dst = routed experts of src; with is_routed the logits are there. */
sw_code sw_device_run_moe(sw_device_run *run, sw_bf16_rows dst, sw_bf16_rows src, bool adds,
                          bool is_routed, sw_err *err) SW_MUST_USE;
/* e->d_gemm_work of at least so many bytes. */
sw_code sw_device_grow_work(sw_device_engine *e, int64_t size_bytes, sw_err *err) SW_MUST_USE;
/* Whether a block's experts have grouped products; and what they give for the rows that have been
 * routed. */
bool sw_device_routed_can(const sw_device_block *b);
sw_code sw_device_run_routed(sw_device_run *run, sw_bf16_rows dst, sw_bf16_rows src, bool adds,
                             sw_err *err) SW_MUST_USE;
sw_code sw_device_moe_new(sw_device_engine *e, sw_err *err) SW_MUST_USE;
/* Sizes, widths and buffers of the block's layer. */
void sw_device_block_measure(sw_device_block *b);
/* Angles of positions [first, end) on the device, by the rope of this kind of layer. */
sw_code sw_device_angles_fill(sw_device_engine *e, int64_t first, int64_t end,
                              sw_err *err) SW_MUST_USE;

#endif
