/* tensor_map.cu - see tensor_map.cuh. */
#include "kernels/cuda/gemm/tensor_map.cuh"

#include <cudaTypedefs.h>
#include <cuda_runtime.h>

#include "kernels/cuda/gemm/gemm_rows.h"

#define FEW_ROWS 16 /* of a box */
#define COLUMNS_BYTES 2048 /* 64 channels x 32 inputs of a tile of 8 bits */
#define EIGHT_BYTES 256    /* of 8 channels */

static sw_code find_encode(PFN_cuTensorMapEncodeTiled_v12000 *out, sw_err *err)
{
    cudaDriverEntryPointQueryResult found;
    sw_code rc = sw_cuda_check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled",
                                                                (void **)out, 12000,
                                                                cudaEnableDefault, &found),
                               "cuTensorMapEncodeTiled", err);

    if (rc) return rc;
    if (found != cudaDriverEntryPointSuccess)
        return SW_FAIL(err, SW_E_CUDA, "the driver has no cuTensorMapEncodeTiled");
    return SW_OK;
}

sw_code sw_tensor_map_2d(CUtensorMap *map, const void *d_start, int elem_bytes, int64_t cols,
                         int64_t rows, int64_t pitch, int box_cols, int box_rows, sw_err *err)
{
    cuuint64_t dims[2] = {(cuuint64_t)cols, (cuuint64_t)rows};
    cuuint64_t strides[1] = {(cuuint64_t)(pitch * elem_bytes)};
    cuuint32_t box[2] = {(cuuint32_t)box_cols, (cuuint32_t)box_rows}, steps[2] = {1, 1};
    PFN_cuTensorMapEncodeTiled_v12000 encode = NULL;
    sw_code rc = find_encode(&encode, err);

    if (rc) return rc;
    if (encode(map, elem_bytes == 1 ? CU_TENSOR_MAP_DATA_TYPE_UINT8
                                    : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
               2, (void *)d_start, dims, strides, box, steps,
               CU_TENSOR_MAP_INTERLEAVE_NONE,
               CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
               CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS)
        return SW_FAIL(err, SW_E_CUDA, "no tensor map for X of %lld x %lld, stride %lld",
                       (long long)rows, (long long)cols, (long long)pitch);
    return SW_OK;
}

/* Dense planes; of `halves` halves, each so many planes. */
static sw_code map_planes(CUtensorMap *map, const void *d_start, int elem_bytes, int64_t cols,
                          int64_t rows, int64_t planes, int halves, int box_rows, int box_planes,
                          sw_err *err)
{
    static const CUtensorMapDataType types[] = {
        CU_TENSOR_MAP_DATA_TYPE_UINT8, CU_TENSOR_MAP_DATA_TYPE_UINT16,
        CU_TENSOR_MAP_DATA_TYPE_UINT32, CU_TENSOR_MAP_DATA_TYPE_UINT64};
    int type = elem_bytes == 8 ? 3 : elem_bytes / 2;
    cuuint64_t dims[4] = {(cuuint64_t)cols, (cuuint64_t)rows, (cuuint64_t)planes,
                          (cuuint64_t)halves};
    cuuint64_t pitch = (cuuint64_t)(cols * elem_bytes);
    cuuint64_t strides[3] = {pitch, pitch * dims[1], pitch * dims[1] * dims[2]};
    cuuint32_t box[4] = {(cuuint32_t)cols, (cuuint32_t)box_rows, (cuuint32_t)box_planes,
                         (cuuint32_t)halves};
    cuuint32_t steps[4] = {1, 1, 1, 1};
    PFN_cuTensorMapEncodeTiled_v12000 encode = NULL;
    sw_code rc = find_encode(&encode, err);

    if (rc) return rc;
    if (encode(map, types[type], halves > 1 ? 4 : 3, (void *)d_start, dims, strides, box, steps,
               CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
               CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
               CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS)
        return SW_FAIL(err, SW_E_CUDA, "no tensor map for W of %lld x %lld x %lld",
                       (long long)(planes * halves), (long long)rows, (long long)cols);
    return SW_OK;
}

sw_code sw_tensor_map_3d(CUtensorMap *map, const void *d_start, int elem_bytes, int64_t cols,
                         int64_t rows, int64_t planes, int box_rows, int box_planes, sw_err *err)
{
    return map_planes(map, d_start, elem_bytes, cols, rows, planes, 1, box_rows, box_planes, err);
}

sw_code sw_tensor_map_halves(CUtensorMap *map, const void *d_start, int elem_bytes, int64_t cols,
                             int64_t rows, int64_t planes, int box_rows, int box_planes,
                             sw_err *err)
{
    return map_planes(map, d_start, elem_bytes, cols, rows, planes / 2, 2, box_rows,
                      box_planes / 2, err);
}

/* Codes in columns, as words of 8 bytes. */
static sw_code map_columns(CUtensorMap *map, const void *d_codes, int rank, const cuuint64_t *dims,
                           const cuuint64_t *strides, const cuuint32_t *box, sw_err *err)
{
    const cuuint32_t steps[4] = {1, 1, 1, 1};
    PFN_cuTensorMapEncodeTiled_v12000 encode = NULL;
    sw_code rc = find_encode(&encode, err);

    if (rc) return rc;
    if (encode(map, CU_TENSOR_MAP_DATA_TYPE_UINT64, (cuuint32_t)rank, (void *)d_codes, dims,
               strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
               CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
               CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS)
        return SW_FAIL(err, SW_E_CUDA, "no tensor map for W in columns");
    return SW_OK;
}

sw_code sw_tensor_map_columns(CUtensorMap *map, const void *d_codes, int64_t n_tiles,
                              int64_t k_tiles, int box_tiles, sw_err *err)
{
    const cuuint64_t dims[3] = {COLUMNS_BYTES / 8, (cuuint64_t)n_tiles, (cuuint64_t)(2 * k_tiles)};
    const cuuint64_t strides[2] = {(cuuint64_t)(2 * k_tiles) * COLUMNS_BYTES, COLUMNS_BYTES};
    const cuuint32_t box[3] = {COLUMNS_BYTES / 8, (cuuint32_t)box_tiles, 4};

    return map_columns(map, d_codes, 3, dims, strides, box, err);
}

sw_code sw_tensor_map_eights(CUtensorMap *map, const void *d_codes, int64_t n_tiles,
                             int64_t k_tiles, int box_channels, int box_steps, sw_err *err)
{
    const cuuint32_t tiles = box_channels < 64 ? 1 : (cuuint32_t)box_channels / 64;
    const cuuint32_t eights = box_channels < 64 ? (cuuint32_t)box_channels / 8 : 8;
    const cuuint64_t dims[4] = {EIGHT_BYTES / 8, (cuuint64_t)(2 * k_tiles), 8,
                                (cuuint64_t)n_tiles};
    const cuuint64_t strides[3] = {COLUMNS_BYTES, EIGHT_BYTES,
                                   (cuuint64_t)(2 * k_tiles) * COLUMNS_BYTES};
    const cuuint32_t box[4] = {EIGHT_BYTES / 8, (cuuint32_t)box_steps, eights, tiles};

    return map_columns(map, d_codes, 4, dims, strides, box, err);
}

sw_code sw_tensor_map_heads(CUtensorMap *map, const sw_heads_map *of, int box_rows, sw_err *err)
{
    const cuuint64_t dims[4] = {(cuuint64_t)of->dim, (cuuint64_t)of->heads, (cuuint64_t)of->rows,
                                (cuuint64_t)of->seqs};
    const cuuint64_t size = (cuuint64_t)of->elem_bytes;
    const cuuint64_t strides[3] = {(cuuint64_t)of->dim * size, (cuuint64_t)of->row_pitch * size,
                                   (cuuint64_t)of->seq_pitch * size};
    const cuuint32_t box[4] = {128 / (cuuint32_t)size, 1, (cuuint32_t)box_rows, 1};
    const cuuint32_t steps[4] = {1, 1, 1, 1};
    const CUtensorMapDataType type =
        size == 2 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_UINT8;
    /* Few rows are a decode's, where 256 bytes at a time took up to a tenth longer. */
    const CUtensorMapL2promotion fetched = box_rows > FEW_ROWS
                                               ? CU_TENSOR_MAP_L2_PROMOTION_L2_256B
                                               : CU_TENSOR_MAP_L2_PROMOTION_L2_128B;
    PFN_cuTensorMapEncodeTiled_v12000 encode = NULL;
    sw_code rc = find_encode(&encode, err);

    if (rc) return rc;
    if (encode(map, type, 4, (void *)of->d_start, dims, strides, box, steps,
               CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
               fetched, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS)
        return SW_FAIL(err, SW_E_CUDA, "no tensor map for %lld heads of %lld, rows %lld apart",
                       (long long)of->heads, (long long)of->dim, (long long)of->row_pitch);
    return SW_OK;
}
