/* engine_ops.h - the device kernels of a decoder block, as C functions; inside cuda/.
 *
 * Rows are tokens. Activations are BF16 in rows `stride` elements apart, so that q, k and v may be
 * columns of one product; the residual stream is FP32, dense. Arithmetic is FP32, reductions run
 * in a fixed order: the same call gives the same bytes. All enqueue on `stream` (a cudaStream_t)
 * and may start before the kernel ahead has ended where the device can (sw_launch.overlaps); all
 * wait for it before they read. Callers check cudaGetLastError through what is returned.
 */
#ifndef SW_KERNELS_CUDA_OPS_ENGINE_OPS_H
#define SW_KERNELS_CUDA_OPS_ENGINE_OPS_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/status.h"
#include "formats/pack/tiles.h"
#include "kernels/device.h"
#include "kernels/engine/kv_form.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef uint16_t sw_bf16;

/* How kernels of a call are launched. */
typedef struct sw_launch {
    void *stream;
    bool overlaps; /* programmatic dependent launch: from compute capability 9.0 on */
} sw_launch;

typedef struct sw_bf16_rows {
    sw_bf16 *d;
    int64_t stride;
} sw_bf16_rows;

/* x [n, hidden] = embed[ids] * scale + positions[first_row + position]. `positions` may be NULL.
 * No kernel behind starts before all that are ahead have ended.
 * Position of row t: first[t / seq_len] + t % seq_len, with `first` on the device; NULL: 0. */
typedef struct sw_embed_args {
    float *x;
    const sw_bf16 *embed, *positions;
    const uint32_t *ids;
    const int32_t *first;
    int64_t n, hidden, seq_len, first_row;
    float scale;
} sw_embed_args;
sw_code sw_cuda_embed(const sw_embed_args *a, sw_launch how, sw_err *err) SW_MUST_USE;

/* dst = norm of rows of x, or of src: rms norm, layer norm with a bias. With `add`, x += factor *
 * add comes first and x keeps the sum. Without dst.d only that sum is made. */
typedef struct sw_norm_args {
    sw_bf16_rows dst;
    float *x;           /* [n, width], or NULL: the rows are src */
    sw_bf16_rows src, add;
    const float *weight, *bias;
    int64_t n, width;
    float eps, factor;
} sw_norm_args;
sw_code sw_cuda_norm(const sw_norm_args *a, sw_launch how, sw_err *err) SW_MUST_USE;

/* What comes before attention, a warp to a head: q and k get their head norm (weights may be NULL)
 * and are turned in place; with a cache k and v go there instead. */
typedef struct sw_heads_args {
    sw_bf16_rows q, k, v;      /* q.d NULL: no queries; v.d NULL: no values */
    void *k_cache, *v_cache;   /* [n_seqs, capacity, n_kv_heads * dim] as `kv` says, or NULL */
    sw_kv_form kv;
    const float *q_norm, *k_norm;
    const float *cos, *sin;    /* [position, rope_dim / 2], or NULL: nothing turns */
    const int32_t *first;      /* as for embed */
    int64_t n, seq_len, capacity;
    int n_heads, n_kv_heads, head_dim, v_head_dim;
    int rope_dim, rope_at;     /* what turns, and where in a head it begins */
    bool is_paired;
    float eps;
} sw_heads_args;
sw_code sw_cuda_heads(const sw_heads_args *a, sw_launch how, sw_err *err) SW_MUST_USE;

/* Latent attention: K and V out of KV_B by head, the turned part of K for all heads. */
typedef struct sw_latent_args {
    sw_bf16_rows k, v, kv_b, turned;
    int64_t n;
    int n_heads, head_dim, v_head_dim, rope_dim;
} sw_latent_args;
sw_code sw_cuda_latent_kv(const sw_latent_args *a, sw_launch how, sw_err *err) SW_MUST_USE;

/* g = act(g) * u, or act(g) alone with u.d NULL; `act` is an sw_mlp_act. */
typedef struct sw_act_args {
    sw_bf16_rows g, u;
    int64_t n, width;
    int act;
    float limit;
} sw_act_args;
sw_code sw_cuda_act(const sw_act_args *a, sw_launch how, sw_err *err) SW_MUST_USE;

/* y += bias, rows of BF16 or (is_f32) dense FP32. */
sw_code sw_cuda_bias(void *y, int64_t stride, bool is_f32, const float *bias, int64_t n,
                     int64_t width, sw_launch how, sw_err *err) SW_MUST_USE;
/* x = cap * tanh(x / cap) over n floats. */
sw_code sw_cuda_softcap(float *x, float cap, int64_t n, sw_launch how, sw_err *err) SW_MUST_USE;

/* out [n] = what rows of logits [n, vocab] say about the tokens `targets` [n], ids below vocab, and
 * beside it those of a reference (NULL: there is none), all on the device: see sw_lm_score. */
sw_code sw_cuda_score_logits(sw_lm_score *out, const float *have, const float *ref,
                             const uint32_t *targets, int64_t n, int64_t vocab, sw_launch how,
                             sw_err *err) SW_MUST_USE;

/* dst [n_out, k_in] BF16 = the weights of device tiles: scale * (code - zero), rounded. Outliers
 * are not looked at. SW_E_UNSUPPORTED: a scale dtype that tiles do not have. */
sw_code sw_cuda_tiles_decode(sw_bf16 *dst, const sw_tiles *d_tiles, sw_launch how,
                             sw_err *err) SW_MUST_USE;
/* dst [n, k_in] = rows of src as the activation quantization leaves them, rounded to BF16. */
sw_code sw_cuda_act_round(sw_bf16_rows dst, sw_bf16_rows src, int64_t n, int64_t k_in,
                          const sw_act *act, float input_scale, sw_launch how,
                          sw_err *err) SW_MUST_USE;
/* The same of floats, dense; dst may be src. */
sw_code sw_cuda_act_round_f32(float *dst, const float *src, int64_t n, int64_t k_in,
                              const sw_act *act, float input_scale, sw_launch how,
                              sw_err *err) SW_MUST_USE;

/* ---- attention ---- */

#define SW_HEAD_DIM_MAX 512
#define SW_DECODE_DIM_MAX 256

typedef struct sw_attn_args {
    sw_bf16_rows q, out;
    sw_bf16_rows k, v;           /* position 0 of sequence 0; codes of kv.kind are bytes */
    sw_kv_form kv;
    int chunk;                   /* unless 0: a query sees its own chunk of so many positions */
    int64_t k_seq, v_seq;        /* elements from one sequence to the next */
    const float *sinks;          /* [n_heads] or NULL */
    const int32_t *first;        /* position of each sequence's first query, NULL: 0 */
    int64_t n_seqs, seq_len;
    int64_t capacity;            /* of a cache: positions there may be, */
    int64_t end;                 /* and before which all of the call lie; 0: not known */
    int n_heads, n_kv_heads, head_dim, v_head_dim;
    int64_t window;
    float scale, cap;
    bool cache_is_there;         /* decode with heads: `first`, keys and values but for the newest
                                  * were there before the kernel ahead could start */
    void *scratch;               /* decode: sw_cuda_decode_scratch_bytes, zeroed at first; of many
                                  * queries sw_attention_wide_bytes (attention_wgmma.h), or NULL */
    int64_t scratch_bytes;       /* of many queries */
    int n_sms, sm;               /* of the device; sm as in sw_cuda_device, 0: any */
} sw_attn_args;

/* Heads of up to SW_HEAD_DIM_MAX, a multiple of 8. Causal; keys 0 .. first + seq_len - 1 are
 * there. slopes [n_heads], or NULL: scores fall by them with the distance. */
sw_code sw_cuda_attention(const sw_attn_args *a, const float *slopes, sw_launch how,
                          sw_err *err) SW_MUST_USE;
/* The same by the kernel of any device, which sw_cuda_attention takes where attention_wgmma.h has
 * none. */
sw_code sw_cuda_attention_mma(const sw_attn_args *a, const float *slopes, sw_launch how,
                              sw_err *err) SW_MUST_USE;
/* seq_len 1: one query a sequence, keys cut over the device; heads of up to
 * SW_DECODE_DIM_MAX. With `heads` (else NULL) first what
 * sw_cuda_heads does: q as it came from its product, the new k and v into the cache. */
sw_code sw_cuda_attention_decode(const sw_attn_args *a, const sw_heads_args *heads, sw_launch how,
                                 sw_err *err) SW_MUST_USE;
/* The same by the kernel of any device, which sw_cuda_attention_decode takes where
 * attention_decode.h has none. */
sw_code sw_cuda_attention_decode_any(const sw_attn_args *a, const sw_heads_args *heads,
                                     sw_launch how, sw_err *err) SW_MUST_USE;
int64_t sw_cuda_decode_scratch_bytes(const sw_attn_args *a);

/* ---- products of few tokens ---- */

/* One expert's weights, among others of the same shape and format; all on the device. */
typedef struct sw_expert {
    const void *codes, *scales, *zeros; /* codes: of tiles, or dense BF16 rows */
    const float *bias;                  /* [n_out] or NULL */
    float input_scale;
    float global_scale;                 /* as in sw_qtensor; 0: none */
} sw_expert;

typedef enum sw_fused_out {
    SW_FUSED_STORE, /* y = product */
    SW_FUSED_ADD,   /* sum += product */
    SW_FUSED_GLU    /* y = act(first half of the channels) * second half */
} sw_fused_out;

/* A product of one token, where every kernel more costs as much as a small product, with what
 * stands around it in a block: the rms norm of the residual stream before it, the quantization of
 * its inputs, its addition to the stream or the gate behind it. */
typedef struct sw_fused_args {
    const float *x, *norm; /* input: norm(x [k_in]) * norm, or */
    sw_bf16_rows rows;     /* this, when x is NULL */
    float eps;
    sw_tiles tiles;        /* of 4-bit integers, or of bytes with quantized inputs */
    const float *bias;     /* [n_out] or NULL */
    sw_fused_out out;
    sw_bf16_rows y;
    float *sum;            /* [n_out] */
    int act;               /* an sw_mlp_act */
    float limit;
    int64_t n;
    int n_sms, sm;         /* of the device; sm as in sw_cuda_device */
    sw_act act_of_x;       /* inputs are quantized so first */
    float input_scale;
    /* Experts: pair i of a token and one it chose reads row i / pairs_per_row and writes row i of
     * y. `tiles` is then the first expert's, for shape and format. */
    const struct sw_expert *experts; /* [n_experts], or NULL: one product */
    const int32_t *chosen;           /* [n_pairs] */
    int64_t n_pairs, pairs_per_row;
} sw_fused_args;
/* Inputs in whole units of 128, n 1. */
bool sw_cuda_one_can(const sw_fused_args *a);
sw_code sw_cuda_one(const sw_fused_args *a, sw_launch how, sw_err *err) SW_MUST_USE;

/* ---- experts ---- */

typedef struct sw_route_args {
    const float *logits;   /* [n, n_experts]; not read where w is set, which takes their place: */
    sw_bf16_rows x;        /* [n, k_in] */
    const sw_bf16 *w;      /* [n_experts, k_in] or NULL */
    const float *bias;     /* [n_experts] or NULL */
    int64_t k_in;
    const float *shift;    /* [n_experts] on what experts are chosen by, or NULL */
    const float *expert_scale; /* [n_experts] on shares, or NULL */
    int32_t *chosen;       /* [n, n_used] */
    float *share;          /* [n, n_used] of what experts put out */
    float *in_share;       /* likewise of what they read, unless NULL: chosen by logits, shares are
                            * sigmoids, and those in `share` 1 */
    int64_t n;
    const int32_t *table;  /* [ids, n_used] experts of a token by its id, or NULL: by scores */
    const float *ids;      /* of the tokens, ids_stride apart, as the bits of integers */
    int64_t ids_stride;
    int n_experts, n_used, n_groups, n_groups_used;
    int router;            /* an sw_router_kind */
    bool norm_topk;
    float logit_scale, share_floor, route_scale; /* share_floor: on the sum that divides */
} sw_route_args;
/* May w be set for so many tokens, on this device? One kernel then takes the place of a product and
 * a choice. */
bool sw_cuda_route_can_multiply(int64_t n_tokens, int64_t k_in);
sw_code sw_cuda_route(const sw_route_args *a, sw_launch how, sw_err *err) SW_MUST_USE;
/* Pairs of a token and one of its experts, sorted by expert, then by the half of the text that the
 * token lies in, then by token. */
typedef struct sw_list_args {
    const int32_t *chosen;  /* [n_pairs], n_used of each token, all different */
    const float *share;     /* likewise */
    int32_t *tokens;        /* [n_pairs] of the sorted pairs */
    float *token_share;
    int32_t *counts;        /* [n_experts, 2] pairs of each half */
    int64_t n_pairs, first_token, stretch; /* tokens of a half in a row; 0: all are in the first */
    int n_used, n_experts;
} sw_list_args;
sw_code sw_cuda_list(const sw_list_args *a, sw_launch how, sw_err *err) SW_MUST_USE;
/* rows [n, width] = share[i] * src rows tokens[i], share NULL: 1; and dst rows tokens[i] (float)
 * += share[i] * rows. */
sw_code sw_cuda_gather(sw_bf16_rows dst, sw_bf16_rows src, const int32_t *tokens,
                       const float *share, int64_t n, int64_t width, sw_launch how,
                       sw_err *err) SW_MUST_USE;
/* dst [n * n_used, width] = share[i] * src row i / n_used. */
sw_code sw_cuda_spread(sw_bf16_rows dst, sw_bf16_rows src, const float *share, int n_used,
                       int64_t n, int64_t width, sw_launch how, sw_err *err) SW_MUST_USE;
/* dst [n, width] = src * sigmoid(logits[i * stride]). */
sw_code sw_cuda_scale_by_logit(sw_bf16_rows dst, sw_bf16_rows src, const float *logits,
                               int64_t stride, int64_t n, int64_t width, sw_launch how,
                               sw_err *err) SW_MUST_USE;
sw_code sw_cuda_scatter(float *dst, sw_bf16_rows src, const int32_t *tokens, const float *share,
                        int64_t n, int64_t width, sw_launch how, sw_err *err) SW_MUST_USE;
/* Products of experts of few tokens, chosen on the device: `experts` and what belongs to it is set,
 * n is 1, `out` no addition. Without tiles.codes the weights are dense BF16 [tiles.n_out, k_in]. */
bool sw_cuda_experts_can(const sw_fused_args *a);
sw_code sw_cuda_experts(const sw_fused_args *a, sw_launch how, sw_err *err) SW_MUST_USE;
/* dst [n, width] = the sum of share * rows over the experts of each token in their order, and with
 * `adds` what dst was; rows, chosen and share have n_used for each. */
typedef struct sw_combine_args {
    sw_bf16_rows dst, rows;
    const int32_t *chosen;
    const float *share;
    int64_t n, width;
    int n_used;
    bool adds;
} sw_combine_args;
sw_code sw_cuda_combine(const sw_combine_args *a, sw_launch how, sw_err *err) SW_MUST_USE;
/* dst (BF16) = src (FP32, dense) + add (BF16), the latter may be absent. */
sw_code sw_cuda_to_bf16(sw_bf16_rows dst, const float *src, sw_bf16_rows add, int64_t n,
                        int64_t width, sw_launch how, sw_err *err) SW_MUST_USE;

/* ---- sampling ---- */

/* Next id of each sequence from its logits: the largest, or drawn. Also advances what a decode
 * graph lives on: ids, positions, the log of drawn ids. */
typedef struct sw_pick_args {
    const float *logits;   /* [n_seqs, vocab] */
    uint32_t *ids;         /* [n_seqs] out: the token to feed next */
    int32_t *first;        /* [n_seqs] position of the token to feed next, or NULL */
    uint32_t *log;         /* [n_seqs, log_capacity] drawn ids, or NULL */
    int32_t *n_logged;     /* [n_seqs] */
    uint64_t *state;       /* [n_seqs] of SplitMix64 */
    int32_t *not_finite;   /* set to 1 + sequence when a logit is NaN or +infinity */
    int64_t n_seqs, vocab, log_capacity;
    float temperature;     /* 0: the largest */
    int64_t top_k;         /* 0: all */
    double top_p;          /* 1: all */
} sw_pick_args;
sw_code sw_cuda_pick(const sw_pick_args *a, sw_launch how, sw_err *err) SW_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
