/* engine_streams.h - the device kernels of several residual streams and of compressed keys, as C
 * functions; inside cuda/. What engine_ops.h says of rows, arithmetic and launches holds here too.
 *
 * kernels/engine/operations/hyper.c and near_far_op.c compute the same on the CPU and name the
 * papers.
 */
#ifndef SW_KERNELS_CUDA_OPS_ENGINE_STREAMS_H
#define SW_KERNELS_CUDA_OPS_ENGINE_STREAMS_H

#include "kernels/cuda/ops/engine_family.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- residual streams ---- */

#define SW_STREAMS_MAX 16

/* Stream 0 of token t is x [t, width], stream i of the others lies at streams [t] + i * width. */
typedef struct sw_streams_args {
    float *x;
    sw_f32_rows streams;
    const float *fn;    /* [n_out, n_streams * width]; n_out: n_streams * (n_streams + 2), or */
    const float *base;  /* n_streams where they are merged; base: [n_out] */
    const float *scale; /* [3], where they are merged [1] */
    float *coefs;       /* [n, n_streams * (n_streams + 1)]: shares of the output, the mixture */
    int64_t n, width;
    int n_streams, n_rounds;
    float norm_eps, eps;
} sw_streams_args;
/* dst [n, width] = the streams by their shares; coefs for sw_cuda_streams_add. */
sw_code sw_cuda_streams_mix(const sw_streams_args *a, sw_bf16_rows dst, sw_launch how,
                            sw_err *err) SW_MUST_USE;
/* Streams are mixed, and each gets its share of src. */
sw_code sw_cuda_streams_add(const sw_streams_args *a, sw_bf16_rows src, sw_launch how,
                            sw_err *err) SW_MUST_USE;
/* x = the streams by their shares. */
sw_code sw_cuda_streams_merge(const sw_streams_args *a, sw_launch how, sw_err *err) SW_MUST_USE;
/* All streams = x. */
sw_code sw_cuda_streams_begin(const sw_streams_args *a, sw_launch how, sw_err *err) SW_MUST_USE;
/* A column of side rows = the ids of the tokens, as the bits of integers. */
sw_code sw_cuda_keep_ids(sw_f32_rows column, const uint32_t *ids, int64_t n, sw_launch how,
                         sw_err *err) SW_MUST_USE;

/* ---- near and far keys ---- */

/* What a layer keeps of a sequence, one part behind the other: rows [capacity, row], of which the
 * first `dim` elements are the token's key and the rest is what far keys are made of; far keys
 * [capacity / rate, dim]; keys that those are chosen by [capacity / rate, index_dim], or none. */
typedef struct sw_far_place {
    sw_bf16 *d;
    int64_t seq_stride;      /* elements from one sequence to the next */
    int64_t capacity, row, dim, index_dim;
    int64_t rate;            /* 0: there are no far keys */
    bool overlaps;           /* windows of tokens do, and far keys are chosen */
    const int32_t *first;    /* [n_seqs] position of the call's first token, or NULL: 0 */
    int64_t n_seqs, seq_len; /* of the call */
} sw_far_place;
/* Elements of a sequence: a multiple of 8 where the widths are. */
static inline int64_t sw_far_elems(const sw_far_place *p)
{
    const int64_t n_far = p->rate ? p->capacity / p->rate : 0;

    return p->capacity * p->row + n_far * (p->dim + p->index_dim);
}

/* The call's keys k [n, dim], and the rest of the rows from `made` [n, row], into their places. */
sw_code sw_cuda_far_keep(const sw_far_place *p, sw_bf16_rows k, sw_bf16_rows made, sw_launch how,
                         sw_err *err) SW_MUST_USE;

/* The far keys of windows that the call's tokens complete: of attention, or of the choice. */
typedef struct sw_far_make {
    sw_far_place place;
    bool is_index;
    const float *positions;   /* [rate, width], width as in sparse/compress.h */
    const float *norm;        /* [dim of the keys] */
    const float *cos, *sin;   /* [position, half]: neighbours among the last 2 half turn */
    int64_t half;
    float eps;
} sw_far_make;
sw_code sw_cuda_far_make(const sw_far_make *a, sw_launch how, sw_err *err) SW_MUST_USE;

/* Heads [n, n_heads * dim] whose last 2 half elements turn by the position of their row. */
sw_code sw_cuda_far_turn(sw_bf16_rows x, const sw_far_place *p, int64_t n_heads, int64_t dim,
                         const float *cos, const float *sin, int64_t half, sw_launch how,
                         sw_err *err) SW_MUST_USE;

/* The top_k far keys of queries [row0, row0 + n) of one sequence by the sum over heads of weight
 * times the product above 0, as sparse/key_choice.h has it. chosen [n_tokens, top_k], rising; what
 * is left of a row is -1. */
typedef struct sw_far_choice {
    sw_far_place place;
    const float *products; /* [n * n_heads, n_keys], rows `stride` apart */
    const float *weights;  /* [n_tokens, n_heads] */
    uint32_t *ranks;       /* [n, n_keys] scratch */
    int32_t *chosen;
    int64_t row0, n, n_keys, stride, n_heads, top_k;
} sw_far_choice;
sw_code sw_cuda_far_choose(const sw_far_choice *a, sw_launch how, sw_err *err) SW_MUST_USE;

/* out [n, n_heads * dim] = attention over the last `window` tokens and far keys, turned back by
 * the query's angle. dim: a multiple of 8 up to SW_HEAD_DIM_MAX. */
typedef struct sw_near_far_args {
    sw_far_place place;
    sw_bf16_rows q, out;
    const int32_t *chosen; /* [n_tokens, top_k], or NULL: all that are there */
    const float *sinks, *cos, *sin;
    int64_t n_heads, window, top_k, half;
    float scale;
} sw_near_far_args;
sw_code sw_cuda_near_far(const sw_near_far_args *a, sw_launch how, sw_err *err) SW_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
