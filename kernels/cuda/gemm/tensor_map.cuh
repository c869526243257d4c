/* tensor_map.cuh - a matrix as the copy engine wants it described. */
#ifndef SW_KERNELS_CUDA_GEMM_TENSOR_MAP_CUH
#define SW_KERNELS_CUDA_GEMM_TENSOR_MAP_CUH

#include <cuda.h>
#include <stdint.h>

#include "formats/base/status.h"

/* [rows][cols] of elements of 1 or 2 bytes, rows `pitch` elements apart, in boxes of box_rows x
 * box_cols of 128 bytes with the 128-byte swizzle, zeros outside. Start and pitch are multiples of
 * 16 bytes. SW_E_CUDA: the driver has no such thing. */
sw_code sw_tensor_map_2d(CUtensorMap *map, const void *d_start, int elem_bytes, int64_t cols,
                         int64_t rows, int64_t pitch, int box_cols, int box_rows,
                         sw_err *err) SW_MUST_USE;

/* [planes][rows][cols] of elements of 1, 2, 4 or 8 bytes, dense, in boxes of box_planes x box_rows
 * x cols (256 elements at most), zeros outside. The start and a row are multiples of 16 bytes. */
sw_code sw_tensor_map_3d(CUtensorMap *map, const void *d_start, int elem_bytes, int64_t cols,
                         int64_t rows, int64_t planes, int box_rows, int box_planes,
                         sw_err *err) SW_MUST_USE;

/* The same of planes in two halves, [2][planes / 2][rows][cols], in boxes of box_planes / 2 of each
 * half: the first half's, then those as far on in the second. */
sw_code sw_tensor_map_halves(CUtensorMap *map, const void *d_start, int elem_bytes, int64_t cols,
                             int64_t rows, int64_t planes, int box_rows, int box_planes,
                             sw_err *err) SW_MUST_USE;

/* Codes of 8 bits in columns (column_tiles.h), [n_tiles][2 k_tiles][2 KB]: a box is 128 inputs of
 * box_tiles tiles, as [32 inputs][tile][2 KB], zeros outside. The start is a multiple of 16. */
sw_code sw_tensor_map_columns(CUtensorMap *map, const void *d_codes, int64_t n_tiles,
                              int64_t k_tiles, int box_tiles, sw_err *err) SW_MUST_USE;
/* The same in boxes of box_channels, whole tiles or so many of 8 of one, x box_steps times 32
 * inputs, as [8 channels][32 inputs][256 bytes]. Coordinates: 0, step, 8 channels of a tile, tile.
 */
sw_code sw_tensor_map_eights(CUtensorMap *map, const void *d_codes, int64_t n_tiles,
                             int64_t k_tiles, int box_channels, int box_steps,
                             sw_err *err) SW_MUST_USE;

/* [seqs][rows][heads][dim] of BF16 or of bytes: heads of a row one behind the other, rows and
 * sequences `row_pitch` and `seq_pitch` elements apart; in boxes of box_rows rows of 128 bytes of
 * a head, with the 128-byte swizzle, zeros outside. The start and all distances are multiples of 16
 * bytes. */
typedef struct sw_heads_map {
    const void *d_start;
    int64_t dim, heads, rows, seqs, row_pitch, seq_pitch;
    int elem_bytes; /* 1 or 2 */
} sw_heads_map;
sw_code sw_tensor_map_heads(CUtensorMap *map, const sw_heads_map *of, int box_rows,
                            sw_err *err) SW_MUST_USE;

#endif
