/* ops.h - the inner loops of the fast rows: one table per instruction set.
 *
 * Everything here works on blocks that gemv.c and gemm.c cut; those two are compiled for any
 * machine and own chunking, workspace and edges.
 *
 * Order of k. A 64-byte run of a 4-bit tile is two whole channels over 64 inputs, but in the order
 * of tensor-core fragments: lane 4c + s of vector i holds input 16s + K(c)[i] (tiles.h). Nothing is
 * gained by undoing that on the weights, which are many, so the activations are brought into
 * "tile order", once per block of tokens: position 16i + 4c + s of every 64 inputs.
 */
#ifndef SW_KERNELS_CPU_OPS_H
#define SW_KERNELS_CPU_OPS_H

#include "kernels/rows.h"

#define SW_STRIP_TILES 8        /* tiles whose scales are decoded at a time */
#define SW_STRIP_TOKENS_MAX 8
#define SW_GEMM_TOKENS_MAX 6

/* Scales and, of integers, -zero * scale of up to SW_STRIP_TILES tiles. Where a tile has one group,
 * [tile][slot]; where groups change inside tiles, [tile][4 * slot + k-step]. */
typedef struct sw_strip_params {
    float scale[SW_STRIP_TILES][4 * SW_TILE_N];
    float offset[SW_STRIP_TILES][4 * SW_TILE_N];
} sw_strip_params;

typedef struct sw_cpu_ops {
    int gemv_tokens;       /* most tokens that gemv_tiles takes */
    int gemv_dense_tokens; /* likewise gemv_dense */
    int gemm_tokens;       /* tokens that dot_panel takes at a time */

    /* dst = n inputs in tile order, zeros up to the next multiple of 64. */
    void (*to_tile_order)(float *dst, const float *x, int64_t n);

    /* Can gemv_tiles read these codes? decode_tiles can read all. */
    bool (*gemv_takes)(const sw_tiles *t);

    /* sums f32 [n_tokens, 64], channels in natural order: x times one row of tiles.
     * x in tile order [n_tokens, x_stride]. scratch: SW_GEMV_SCRATCH_BYTES. */
    void (*gemv_tiles)(float *sums, const sw_tiles *t, int64_t n_tile, const float *x,
                       int64_t x_stride, int n_tokens, void *scratch);

    /* panel f32 [16, ld] = channels 16 * quarter on of a row of tiles, in tile order; n_tiles from
     * k_tile on. */
    void (*decode_tiles)(float *panel, int64_t ld, const sw_tiles *t, int64_t n_tile, int quarter,
                         int64_t k_tile, int64_t n_tiles);

    /* y [n_tokens, n_rows] (+)= x [n_tokens, x_stride] times panel [n_rows up to a multiple of 4,
     * ld] over k, a multiple of 64. n_tokens at most gemm_tokens. */
    void (*dot_panel)(float *y, int64_t y_stride, const float *x, int64_t x_stride, int n_tokens,
                      const float *panel, int64_t ld, int64_t n_rows, int64_t k, bool is_added);

    /* dst = n stored floats of `dtype`, zeros up to the next multiple of 64. */
    void (*decode_dense)(float *dst, const void *src, sw_dtype dtype, int64_t n);

    /* x in the order in which gemv_dense reads `dtype`, zeros up to the next multiple of 64. */
    void (*to_dense_order)(float *dst, const float *x, sw_dtype dtype, int64_t n);

    /* y [n_tokens, n_rows]: x in dense order times rows of a dense weight [n_rows, k]. */
    void (*gemv_dense)(float *y, int64_t y_stride, const float *x, int64_t x_stride, int n_tokens,
                       const void *rows, sw_dtype dtype, int64_t n_rows, int64_t k);
} sw_cpu_ops;

#define SW_GEMV_SCRATCH_BYTES \
    (sizeof(sw_strip_params) + SW_TILE_N * SW_STRIP_TOKENS_MAX * 16 * sizeof(float))

extern const sw_cpu_ops sw_cpu_ops_any;
#if SW_X86_SIMD
extern const sw_cpu_ops sw_cpu_ops_avx2, sw_cpu_ops_avx512;
#endif

#endif
