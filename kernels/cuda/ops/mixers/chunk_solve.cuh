/* chunk_solve.cuh - the inverse of I + L, L strictly lower triangular, 64 x 64, as tiles. See
 * chunk_form.cuh.
 *
 * With A and B the halves of I + L on its diagonal and C what is below A, the inverse has those of
 * A and B on its diagonal and -B^-1 (C A^-1) below. The halves' are found in FP32, a thread a
 * column; the two products have BF16 operands, as what the inverse is used for has.
 */
#ifndef SW_KERNELS_CUDA_OPS_MIXERS_CHUNK_SOLVE_CUH
#define SW_KERNELS_CUDA_OPS_MIXERS_CHUNK_SOLVE_CUH

#include "kernels/cuda/ops/mixers/chunk_operand.cuh"

#define SW_SOLVE_HALF 32
#define SW_SOLVE_ROWS 16   /* at a time, in registers */
#define SW_SOLVE_STRIDE 36 /* floats of a row of half of L */
#define SW_SOLVE_TILE (SW_SOLVE_HALF * (SW_SOLVE_HALF + 8)) /* elements of a tile of a half */

/* Shared memory for it. */
struct sw_solve_shared {
    float *l;         /* [2, 32, SW_SOLVE_STRIDE], the halves on the diagonal */
    sw_bf16 *below;   /* tile [32, 32]: C */
    sw_bf16 *halves;  /* two tiles: A^-1, B^-1 */
    sw_bf16 *product; /* tile: C A^-1, over l */
    sw_bf16 *t, *w;   /* tiles [64, 64], what is asked for; nothing above the halves is written */

    static const int floats = 2 * SW_SOLVE_HALF * SW_SOLVE_STRIDE + 3 * SW_SOLVE_TILE / 2;

    __device__ sw_solve_shared(float *s_all, sw_bf16 *s_t, sw_bf16 *s_w)
    {
        l = s_all;
        product = (sw_bf16 *)s_all;
        below = (sw_bf16 *)(l + 2 * SW_SOLVE_HALF * SW_SOLVE_STRIDE);
        halves = below + SW_SOLVE_TILE;
        t = s_t;
        w = s_w;
    }

    /* Element (t, i) of L, i < t. */
    __device__ __forceinline__ void put(int t, int i, float x) const
    {
        const int h = t / SW_SOLVE_HALF;

        if (i / SW_SOLVE_HALF == h)
            l[(h * SW_SOLVE_HALF + t % SW_SOLVE_HALF) * SW_SOLVE_STRIDE + i % SW_SOLVE_HALF] = x;
        else
            below[(t - SW_SOLVE_HALF) * sw_tile_stride(SW_SOLVE_HALF) + i] = sw_round16(x);
    }
};

/* x -= L y among the same 16 rows: each needs those above it. */
static __device__ __forceinline__ void sw_solve_within(float (&x)[SW_SOLVE_ROWS], const float *rows)
{
#pragma unroll
    for (int t = 1; t < SW_SOLVE_ROWS; t++) {
#pragma unroll
        for (int i = 0; i < t; i++) x[t] -= rows[t * SW_SOLVE_STRIDE + i] * x[i];
    }
}

/* The same with the 16 rows before, y. */
static __device__ __forceinline__ void sw_solve_before(float (&x)[SW_SOLVE_ROWS],
                                                       const float (&y)[SW_SOLVE_ROWS],
                                                       const float *rows)
{
#pragma unroll
    for (int t = 0; t < SW_SOLVE_ROWS; t++) {
#pragma unroll
        for (int i = 0; i < SW_SOLVE_ROWS; i += 4) {
            const float4 l = *(const float4 *)(rows + t * SW_SOLVE_STRIDE + i);

            x[t] -= l.x * y[i] + l.y * y[i + 1] + (l.z * y[i + 2] + l.w * y[i + 3]);
        }
    }
}

/* 16 rows from `row` on of column j, into the tile of their half and, times `step` and times
 * step * decay, into t and w. */
static __device__ __forceinline__ void sw_solve_store(const sw_solve_shared &s,
                                                      const float (&x)[SW_SOLVE_ROWS], int row,
                                                      int j, float step, float decay)
{
    const int half = j / SW_SOLVE_HALF, stride = sw_tile_stride(SW_FORM_TOKENS);

#pragma unroll
    for (int t = 0; t < SW_SOLVE_ROWS; t++) {
        const int to = (half * SW_SOLVE_HALF + row + t) * stride + j;

        s.halves[half * SW_SOLVE_TILE + (row + t) * sw_tile_stride(SW_SOLVE_HALF) +
                 j % SW_SOLVE_HALF] = sw_round16(x[t]);
        s.t[to] = sw_round16(x[t] * step);
        s.w[to] = sw_round16(x[t] * (step * decay));
    }
}

/* Column j of A^-1 and B^-1 side by side, by a thread. */
static __device__ void sw_solve_column(const sw_solve_shared &s, int j, float step, float decay)
{
    const float *l = s.l + j / SW_SOLVE_HALF * SW_SOLVE_HALF * SW_SOLVE_STRIDE;
    const float *lower = l + SW_SOLVE_ROWS * SW_SOLVE_STRIDE;
    float x[SW_SOLVE_ROWS], y[SW_SOLVE_ROWS];

#pragma unroll
    for (int t = 0; t < SW_SOLVE_ROWS; t++) {
        x[t] = t == j % SW_SOLVE_HALF ? 1.0f : 0.0f;
        y[t] = SW_SOLVE_ROWS + t == j % SW_SOLVE_HALF ? 1.0f : 0.0f;
    }
    sw_solve_within(x, l);
    sw_solve_store(s, x, 0, j, step, decay);
    sw_solve_before(y, x, lower);
    sw_solve_within(y, lower + SW_SOLVE_ROWS);
    sw_solve_store(s, y, SW_SOLVE_ROWS, j, step, decay);
}

/* Tile [16, 8] of warp 0 to 7 of a product [32, 32] of two tiles. */
static __device__ __forceinline__ void sw_solve_product(float (&sum)[4], const sw_bf16 *s_a,
                                                        const sw_bf16 *s_b, int warp)
{
    const int stride = sw_tile_stride(SW_SOLVE_HALF);
    const uint4 b = sw_tile_second_turned(s_b, stride, warp % 4, 0);

    sw_mma_add(sum, sw_tile_first(s_a, stride, warp / 4, 0), b.x, b.y);
    sw_mma_add(sum, sw_tile_first(s_a, stride, warp / 4, 1), b.z, b.w);
}

/* What is below the halves, by 8 warps, after their columns: a barrier before, one within, and one
 * to come. */
static __device__ void sw_solve_below(const sw_solve_shared &s, const float *s_step,
                                      const float *s_log_decay)
{
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int row = warp / 4 * 16 + lane / 4, column = warp % 4 * 8 + lane % 4 * 2;
    const int stride = sw_tile_stride(SW_FORM_TOKENS);
    float y[4] = {}, x[4] = {};

    sw_solve_product(y, s.below, s.halves, warp);
#pragma unroll
    for (int h = 0; h < 2; h++)
        *(uint32_t *)(s.product + (row + 8 * h) * sw_tile_stride(SW_SOLVE_HALF) + column) =
            sw_pack2(y[2 * h], y[2 * h + 1]);
    __syncthreads();
    sw_solve_product(x, s.halves + SW_SOLVE_TILE, s.product, warp);
    const float left = -s_step[column], right = -s_step[column + 1];
    const float left_kept = left * expf(s_log_decay[column]);
    const float right_kept = right * expf(s_log_decay[column + 1]);

#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int to = (SW_SOLVE_HALF + row + 8 * h) * stride + column;

        *(uint32_t *)(s.t + to) = sw_pack2(x[2 * h] * left, x[2 * h + 1] * right);
        *(uint32_t *)(s.w + to) = sw_pack2(x[2 * h] * left_kept, x[2 * h + 1] * right_kept);
    }
}

#endif
