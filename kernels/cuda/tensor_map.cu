/* tensor_map.cu - see tensor_map.cuh. */
#include "kernels/cuda/tensor_map.cuh"

#include <cudaTypedefs.h>
#include <cuda_runtime.h>

#include "kernels/cuda/gemm_rows.h"

sw_code sw_tensor_map_2d(CUtensorMap *map, const void *d_start, int elem_bytes, int64_t cols,
                         int64_t rows, int64_t pitch, int box_cols, int box_rows, sw_err *err)
{
    cuuint64_t dims[2] = {(cuuint64_t)cols, (cuuint64_t)rows};
    cuuint64_t strides[1] = {(cuuint64_t)(pitch * elem_bytes)};
    cuuint32_t box[2] = {(cuuint32_t)box_cols, (cuuint32_t)box_rows}, steps[2] = {1, 1};
    PFN_cuTensorMapEncodeTiled_v12000 encode = NULL;
    cudaDriverEntryPointQueryResult found;
    sw_code rc = sw_cuda_check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled",
                                                                (void **)&encode, 12000,
                                                                cudaEnableDefault, &found),
                               "cuTensorMapEncodeTiled", err);

    if (rc) return rc;
    if (found != cudaDriverEntryPointSuccess)
        return SW_FAIL(err, SW_E_CUDA, "the driver has no cuTensorMapEncodeTiled");
    if (encode(map, elem_bytes == 1 ? CU_TENSOR_MAP_DATA_TYPE_UINT8
                                    : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
               2, (void *)d_start, dims, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
               CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
               CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS)
        return SW_FAIL(err, SW_E_CUDA, "no tensor map for X of %lld x %lld, stride %lld",
                       (long long)rows, (long long)cols, (long long)pitch);
    return SW_OK;
}
