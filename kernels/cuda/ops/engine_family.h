/* engine_family.h - the device kernels of operations that only some families have, as C functions;
 * inside cuda/. What engine_ops.h says of rows, arithmetic and launches holds here too.
 *
 * program.h says what each operation computes; the CPU's are in kernels/engine/ops.c, side.c and
 * copies.c.
 */
#ifndef SW_KERNELS_CUDA_OPS_ENGINE_FAMILY_H
#define SW_KERNELS_CUDA_OPS_ENGINE_FAMILY_H

#include "kernels/cuda/ops/engine_ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- element by element ---- */

typedef enum sw_elements_kind {
    SW_ELEMENTS_COPY,   /* dst = src */
    SW_ELEMENTS_ADD,    /* dst += src */
    SW_ELEMENTS_GATE,   /* dst *= sigmoid(src) */
    SW_ELEMENTS_FACTOR, /* dst = src * factor */
    SW_ELEMENTS_CLIP,   /* dst within +-factor */
    SW_ELEMENTS_VECTOR, /* dst *= vector, column by column */
    SW_ELEMENTS_TEMPER  /* dst *= 1 + factor ln(1 + floor((position + shift) / every)) */
} sw_elements_kind;

/* Rows of a multiple of 8 elements. */
typedef struct sw_elements_args {
    sw_elements_kind kind;
    sw_bf16_rows dst, src;
    int64_t n, width;
    float factor;
    const float *vector;  /* [width] */
    const int32_t *first; /* of positions, as for sw_cuda_embed */
    int64_t seq_len, every, shift;
} sw_elements_args;
sw_code sw_cuda_elements(const sw_elements_args *a, sw_launch how, sw_err *err) SW_MUST_USE;
/* n floats times `factor`, and times *d_number unless that is NULL. */
sw_code sw_cuda_scale_f32(float *x, float factor, const float *d_number, int64_t n, sw_launch how,
                      sw_err *err) SW_MUST_USE;

/* ---- rows ---- */

/* A norm of every head by itself, in place: rms norm, or with `bias` layer norm. weight and bias:
 * [head_dim], or with has_weight_each [n_heads, head_dim]; weight NULL: ones. */
typedef struct sw_head_norm_args {
    sw_bf16_rows x;
    const float *weight, *bias;
    int64_t n;
    int n_heads, head_dim;
    bool has_weight_each;
    float eps;
} sw_head_norm_args;
sw_code sw_cuda_head_norm(const sw_head_norm_args *a, sw_launch how, sw_err *err) SW_MUST_USE;

/* Columns of src come in groups of group_width; part i has `size` of them from column `from` of
 * each group on, and they go to dst one group behind the other. */
#define SW_REGROUP_PARTS 3
typedef struct sw_regroup_part {
    sw_bf16_rows dst;
    int64_t from, size;
} sw_regroup_part;
typedef struct sw_regroup_args {
    sw_bf16_rows src;
    sw_regroup_part part[SW_REGROUP_PARTS];
    int n_parts;
    int64_t n, n_groups, group_width;
} sw_regroup_args;
sw_code sw_cuda_regroup(const sw_regroup_args *a, sw_launch how, sw_err *err) SW_MUST_USE;

/* dst [n, width] *= sigmoid(src [n, k_in] * weight [k_in]). */
sw_code sw_cuda_row_gate(sw_bf16_rows dst, sw_bf16_rows src, const sw_bf16 *weight, int64_t n,
                         int64_t width, int64_t k_in, sw_launch how, sw_err *err) SW_MUST_USE;
/* x = max(0, x - (mean + cut deviations)), of rows. */
sw_code sw_cuda_cut(sw_bf16_rows x, float cut, int64_t n, int64_t width, sw_launch how,
                    sw_err *err) SW_MUST_USE;
/* x [n, width] = (x - mean) / deviation * weight + bias, floats in place. */
sw_code sw_cuda_mean_norm(float *x, const float *weight, const float *bias, int64_t n,
                          int64_t width, float eps, sw_launch how, sw_err *err) SW_MUST_USE;

/* ---- beside the residual stream: rows of floats, `stride` elements apart ---- */

typedef struct sw_f32_rows {
    float *d;
    int64_t stride;
} sw_f32_rows;

sw_code sw_cuda_widen(sw_f32_rows dst, sw_bf16_rows src, int64_t n, int64_t width, sw_launch how,
                      sw_err *err) SW_MUST_USE;
sw_code sw_cuda_narrow(sw_bf16_rows dst, sw_f32_rows src, int64_t n, int64_t width, sw_launch how,
                       sw_err *err) SW_MUST_USE;

/* side [n, n_layers * width] = (norm(made * scale) * norm + row ids[t] of table * sqrt(width)) /
 * sqrt(2), a norm for each layer. Ids beyond the table have its first row. */
typedef struct sw_side_args {
    sw_f32_rows side;
    const float *made;     /* [n, n_layers * width] */
    const sw_bf16 *table;  /* [n_rows, n_layers * width] */
    const float *norm;     /* [width] */
    const uint32_t *ids;
    int64_t n, n_rows, n_layers, width;
    float scale, eps;
} sw_side_args;
sw_code sw_cuda_side(const sw_side_args *a, sw_launch how, sw_err *err) SW_MUST_USE;
/* g [n, width] = act(g) * side. */
sw_code sw_cuda_side_gate(sw_bf16_rows g, sw_f32_rows side, int act, float limit, int64_t n,
                          int64_t width, sw_launch how, sw_err *err) SW_MUST_USE;

/* ---- copies of the residual stream ---- */

#define SW_COPIES_MAX 16

/* Row t of the stream is x [t, width]; its copies lie behind each other at copies [t], `width`
 * floats each, the first of them for what is guessed for x. Coefficients [n_out, n_copies] times
 * tanh(router [n_copies, width] * norm(x) / width). */
typedef struct sw_copies_args {
    float *x;
    sw_f32_rows copies;
    const float *norm;
    const sw_bf16 *router, *coefs;
    int64_t n, width;
    int n_copies;
    float eps;
} sw_copies_args;
sw_code sw_cuda_predict(const sw_copies_args *a, sw_launch how, sw_err *err) SW_MUST_USE;
sw_code sw_cuda_correct(const sw_copies_args *a, sw_launch how, sw_err *err) SW_MUST_USE;
/* Copies but the first += rows of src. */
sw_code sw_cuda_add_copies(const sw_copies_args *a, sw_bf16_rows src, sw_launch how,
                           sw_err *err) SW_MUST_USE;
/* dst = rows of src, each as large as its row of x. */
sw_code sw_cuda_match(sw_f32_rows dst, sw_bf16_rows src, const float *x, int64_t n, int64_t width,
                      sw_launch how, sw_err *err) SW_MUST_USE;
/* x = the mean of x and the copies but the first. */
sw_code sw_cuda_merge(const sw_copies_args *a, sw_launch how, sw_err *err) SW_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
