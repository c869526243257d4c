/* chunk_solve.cuh - the inverse of I + L, L strictly lower triangular, 64 x 64, in FP32. See
 * chunk_form.cuh. */
#ifndef SW_KERNELS_CUDA_OPS_MIXERS_CHUNK_SOLVE_CUH
#define SW_KERNELS_CUDA_OPS_MIXERS_CHUNK_SOLVE_CUH

#include "kernels/cuda/ops/mixers/chunk_operand.cuh"

#define SW_SOLVE_STRIDE 68 /* floats of a row of L */
#define SW_SOLVE_ROWS 16   /* at a time, in registers */

/* Row i of the inverse's column j, which is kept where L has nothing: right of its diagonal. */
static __device__ __forceinline__ float sw_solve_at(float kept, int i, int j)
{
    return i > j ? kept : i == j ? 1.0f : 0.0f;
}

/* x -= L y: what the rows of y, all before rows 16 b and so on, have to say about these. */
static __device__ __forceinline__ void sw_solve_before(float (&x)[SW_SOLVE_ROWS], const float *s_l,
                                                       int j, int b)
{
    for (int i = j / 32 * 32; i < SW_SOLVE_ROWS * b; i += 4) {
        const float4 kept = *(const float4 *)(s_l + j * SW_SOLVE_STRIDE + i);
        const float4 y = {sw_solve_at(kept.x, i, j), sw_solve_at(kept.y, i + 1, j),
                          sw_solve_at(kept.z, i + 2, j), sw_solve_at(kept.w, i + 3, j)};

#pragma unroll
        for (int t = 0; t < SW_SOLVE_ROWS; t++) {
            const float4 l =
                *(const float4 *)(s_l + (SW_SOLVE_ROWS * b + t) * SW_SOLVE_STRIDE + i);

            x[t] -= l.x * y.x + l.y * y.y + (l.z * y.z + l.w * y.w);
        }
    }
}

/* The same among these rows: each needs those above it. */
static __device__ __forceinline__ void sw_solve_within(float (&x)[SW_SOLVE_ROWS], const float *s_l,
                                                       int b)
{
    const float *rows = s_l + SW_SOLVE_ROWS * b * (SW_SOLVE_STRIDE + 1);

#pragma unroll
    for (int t = 1; t < SW_SOLVE_ROWS; t++) {
#pragma unroll
        for (int i = 0; i < t; i++) x[t] -= rows[t * SW_SOLVE_STRIDE + i] * x[i];
    }
}

/* A thread's column `j` of the inverse, times `step` into s_t and times step * decay into s_w, both
 * tiles of 64 columns. It is kept in row j of s_l. */
static __device__ void sw_solve_column(sw_bf16 *s_t, sw_bf16 *s_w, float *s_l, int j, float step,
                                       float decay)
{
    const int stride = sw_tile_stride(SW_FORM_TOKENS);

    for (int b = 0; b < SW_FORM_TOKENS / SW_SOLVE_ROWS; b++) {
        float x[SW_SOLVE_ROWS];

#pragma unroll
        for (int t = 0; t < SW_SOLVE_ROWS; t++) x[t] = SW_SOLVE_ROWS * b + t == j ? 1.0f : 0.0f;
        sw_solve_before(x, s_l, j, b);
        sw_solve_within(x, s_l, b);
#pragma unroll
        for (int t = 0; t < SW_SOLVE_ROWS; t++) {
            const int row = SW_SOLVE_ROWS * b + t;

            if (row > j) s_l[j * SW_SOLVE_STRIDE + row] = x[t];
            s_t[row * stride + j] = sw_round16(x[t] * step);
            s_w[row * stride + j] = sw_round16(x[t] * (step * decay));
        }
    }
}

#endif
