/* ptx_mma.cuh - products of a warp in 16-bit floats, from sm_80 on: D[16, 8] += A[16, 16] B[16, 8],
 * the operands as the lanes hold them. Source: PTX ISA, mma.m16n8k16.
 */
#ifndef SW_KERNELS_CUDA_PTX_PTX_MMA_CUH
#define SW_KERNELS_CUDA_PTX_PTX_MMA_CUH

#include <stdint.h>

/* d: 4 sums, a: 4 pairs of A. */
__device__ __forceinline__ void sw_mma_bf16(float *d, const uint32_t *a, uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ void sw_mma_f16(float *d, const uint32_t *a, uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

#endif
