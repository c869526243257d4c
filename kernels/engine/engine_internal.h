/* engine_internal.h - the engine's state, shared by the files of kernels/engine alone. */
#ifndef SW_KERNELS_ENGINE_ENGINE_INTERNAL_H
#define SW_KERNELS_ENGINE_ENGINE_INTERNAL_H

#include "kernels/engine/engine.h"
#include "kernels/engine/vec/vec.h"

#define SW_TOKENS_PER_TASK 16 /* fixed chunk of the row-wise steps */

/* Cosines and sines of positions [0, n_filled), a row of rope_dim / 2 each. */
typedef struct sw_angles {
    float *cos, *sin, *inv_freq;
    int64_t n_filled, capacity;
} sw_angles;

typedef struct sw_moe_scratch {
    float *probs;      /* [max_tokens, n_experts] */
    float *ranks;      /* likewise, what experts are chosen by; a sigmoid router's alone */
    float *groups;     /* [max_tokens, n_expert_groups] likewise */
    float *rows, *out; /* [max_tokens, hidden] one expert's tokens */
    float *gate, *up;  /* [max_tokens, moe_intermediate] likewise */
    int32_t *chosen;   /* [max_tokens, n_experts_used] */
    float *share;      /* likewise: the weight of each chosen expert */
    int32_t *tokens;   /* [max_tokens * n_experts_used] by expert, then by token */
    float *token_share;
    int64_t *starts;   /* [n_experts + 1] into tokens */
} sw_moe_scratch;

/* Of what chooses keys; taken when a sequence is first longer than all keys that are seen. */
typedef struct sw_index_scratch {
    float *k;        /* [max_tokens, head_dim] */
    float *q;        /* [max_tokens, n_heads * head_dim] */
    float *weights;  /* [max_tokens, n_heads] */
    int32_t *chosen; /* [max_tokens, top_k] */
    float *scores;   /* sw_key_choice_scratch of n_keys */
    int64_t n_keys;
} sw_index_scratch;

struct sw_engine {
    const sw_model *m;
    const sw_vec *vec;
    int n_threads;
    int64_t max_tokens, max_positions;
    float *buf[SW_BUF_COUNT]; /* [max_tokens, sw_model_buf_width]; X on first use, for a copy */
    float *hidden;            /* [max_tokens, hidden] of whole-model calls, on first use */
    float *attention_scratch;
    float *side;              /* [max_tokens, sw_model_side_width], or NULL */
    float *recurrent_scratch; /* sw_recurrent_scratch floats */
    float *ones;              /* [largest head]: the weight of norms that have none */
    float *slopes;            /* [n_heads] where scores fall with the distance, else NULL */
    sw_angles angles, window_angles; /* the second where window layers turn differently */
    sw_moe_scratch moe;
    sw_index_scratch index;
    double noise;             /* share of outputs, and what the next is drawn from */
    uint64_t noise_seed;
    sw_scratch gemm;
};

/* One call of sw_engine_block on its way. */
typedef struct sw_run {
    sw_engine *e;
    const sw_block *block;
    float *x;
    int64_t n_seqs, seq_len, n_tokens, first;
    sw_kv *kv;
    sw_kv *const *caches;         /* [n_seqs] of a step of several sequences, whose first kv is */
    const sw_tap *tap;
    sw_site stop_at;
    sw_sizes sizes;               /* of the block's layer, */
    int64_t width[SW_BUF_COUNT];  /* and the rows of its buffers */
    bool is_seen[SW_SITE_COUNT], has_stopped;
    bool is_routed;               /* the router has read something of its own */
    bool is_kv_taken;             /* keys and values are another layer's */
    const int32_t *chosen;        /* keys that attention sees, [n_tokens, top_k]; NULL: all */
} sw_run;

static inline float *sw_run_buf(const sw_run *run, sw_buf b)
{
    return b == SW_BUF_X ? run->x : run->e->buf[b];
}

/* Operations of some families, see program.h; in ops.c. */
sw_code sw_op_head_layer_norm(sw_run *run, const sw_op *op, sw_err *err) SW_MUST_USE;
sw_code sw_op_split_groups(sw_run *run, const sw_op *op, sw_err *err) SW_MUST_USE;
sw_code sw_op_copy(sw_run *run, const sw_op *op, sw_err *err) SW_MUST_USE;
sw_code sw_op_split_heads(sw_run *run, const sw_op *op, sw_err *err) SW_MUST_USE;
sw_code sw_op_gate(sw_run *run, const sw_op *op, sw_err *err) SW_MUST_USE;
sw_code sw_op_factor(sw_run *run, const sw_op *op, sw_err *err) SW_MUST_USE;
sw_code sw_op_clip(sw_run *run, const sw_op *op, sw_err *err) SW_MUST_USE;
sw_code sw_op_temper(sw_run *run, const sw_op *op, sw_err *err) SW_MUST_USE;
sw_code sw_op_scale(sw_run *run, const sw_op *op, sw_err *err) SW_MUST_USE;
sw_code sw_op_row_gate(sw_run *run, const sw_op *op, sw_err *err) SW_MUST_USE;
sw_code sw_op_keep_kv(sw_run *run, const sw_op *op, sw_err *err) SW_MUST_USE;
sw_code sw_op_take_kv(sw_run *run, const sw_op *op, sw_err *err) SW_MUST_USE;
sw_code sw_op_side_input(sw_run *run, const sw_op *op, sw_err *err) SW_MUST_USE;
sw_code sw_op_predict(sw_run *run, const sw_op *op, sw_err *err) SW_MUST_USE;
sw_code sw_op_correct(sw_run *run, const sw_op *op, sw_err *err) SW_MUST_USE;
sw_code sw_op_add_copies(sw_run *run, const sw_op *op, sw_err *err) SW_MUST_USE;
sw_code sw_op_index(sw_run *run, const sw_op *op, sw_err *err) SW_MUST_USE;
sw_code sw_op_take_index(sw_run *run, const sw_op *op, sw_err *err) SW_MUST_USE;
sw_code sw_op_near_far(sw_run *run, const sw_op *op, sw_err *err) SW_MUST_USE;
sw_code sw_op_group_linear(sw_run *run, const sw_op *op, sw_err *err) SW_MUST_USE;
sw_code sw_op_mix_streams(sw_run *run, const sw_op *op, sw_err *err) SW_MUST_USE;
sw_code sw_op_add_streams(sw_run *run, const sw_op *op, sw_err *err) SW_MUST_USE;
sw_code sw_op_merge_streams(sw_run *run, const sw_op *op, sw_err *err) SW_MUST_USE;
void sw_index_scratch_free(sw_index_scratch *index);
sw_code sw_op_merge(sw_run *run, const sw_op *op, sw_err *err) SW_MUST_USE;
sw_code sw_op_low_rank(sw_run *run, const sw_op *op, sw_err *err) SW_MUST_USE;
sw_code sw_op_cut(sw_run *run, const sw_op *op, sw_err *err) SW_MUST_USE;
sw_code sw_op_halve(sw_run *run, const sw_op *op, sw_err *err) SW_MUST_USE;
sw_code sw_op_mul_vector(sw_run *run, const sw_op *op, sw_err *err) SW_MUST_USE;
sw_code sw_op_route(sw_run *run, const sw_op *op, sw_err *err) SW_MUST_USE;

/* Attention of every sequence over its own cache, into which this call's keys and values go first
 * (session.c); `all` has everything but the caches. */
struct sw_attention;
void sw_attend_caches(const sw_run *run, const struct sw_attention *all);
/* A whole block of a call of sw_engine_step, checked as one of sw_engine_block is. */
sw_code sw_engine_run_step(sw_run *run, sw_err *err) SW_MUST_USE;
/* Show x [n_tokens, k_in] to the tap once per site; sets has_stopped when the run ends here. */
sw_code sw_run_reach(sw_run *run, sw_site site, const float *x, int64_t k_in,
                     sw_err *err) SW_MUST_USE;
/* y [n, w->n_out] = x [n, w->k_in] * w^T + bias, dense rows. */
sw_code sw_run_linear(sw_engine *e, float *y, const float *x, int64_t n, const sw_weight *w,
                      sw_err *err) SW_MUST_USE;
/* dst += routed experts of src, [n_tokens, hidden]. */
sw_code sw_run_moe(sw_run *run, float *dst, const float *src, sw_err *err) SW_MUST_USE;
/* The operations of recurrent mixers (recurrent.c), and floats of scratch space that they need. */
sw_code sw_run_ungroup(sw_run *run, const sw_op *op, sw_err *err) SW_MUST_USE;
sw_code sw_run_gated_delta(sw_run *run, const sw_op *op, sw_err *err) SW_MUST_USE;
sw_code sw_run_kimi_delta(sw_run *run, const sw_op *op, sw_err *err) SW_MUST_USE;
sw_code sw_run_ssd(sw_run *run, const sw_op *op, sw_err *err) SW_MUST_USE;
sw_code sw_run_short_conv(sw_run *run, const sw_op *op, sw_err *err) SW_MUST_USE;
int64_t sw_recurrent_scratch(const sw_model *m, int n_threads);
/* The engine's noise on rows [n_rows, width] that a linear has made. */
void sw_add_noise(sw_engine *e, float *x, int64_t n_rows, int64_t width);
sw_code sw_moe_scratch_new(sw_moe_scratch *out, const sw_model *m, int64_t max_tokens,
                           sw_err *err) SW_MUST_USE;
void sw_moe_scratch_free(sw_moe_scratch *moe);

/* The inputs that layers have for themselves, of n tokens whose embedding rows are in x. */
sw_code sw_side_embed(sw_engine *e, const sw_lm *lm, const float *x, const uint32_t *ids, int64_t n,
                      sw_err *err) SW_MUST_USE;

/* The copies of the residual stream at first, likewise. */
sw_code sw_copies_embed(sw_engine *e, const sw_lm *lm, const float *x, int64_t n,
                        sw_err *err) SW_MUST_USE;

/* The residual streams at first. */
void sw_streams_embed(sw_engine *e, const float *x, int64_t n);

/* Angles of positions [first, end) in their rows, by one of the model's ropes. */
sw_code sw_angles_fill(sw_angles *angles, const sw_model *m, const sw_rope *rope, int64_t first,
                       int64_t end, sw_err *err) SW_MUST_USE;
void sw_angles_free(sw_angles *angles);
/* Slopes of n_heads heads whose scores fall with the distance. */
void sw_slopes_fill(float *slopes, int64_t n_heads);

/* g [n, width] = act(g) * u, or act(g) alone without u; the activation is the model's. */
void sw_act_rows(const sw_engine *e, float *g, const float *u, int64_t n, int64_t width);
/* dst = x / sqrt(mean(x^2) + eps) * w, or with a bias dst = (x - mean) / deviation * w + bias. */
void sw_norm_rows(const sw_engine *e, float *dst, const float *x, const float *w,
                  const float *bias, int64_t n, int64_t width, double eps);
sw_code sw_engine_hidden(sw_engine *e, float **out, sw_err *err) SW_MUST_USE;

#endif
