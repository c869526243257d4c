/* ptx_mma.cuh - products of a warp in 16-bit floats, from sm_80 on: D[16, 8] += A[16, 16] B[16, 8],
 * the operands as the lanes hold them; and 4-bit codes on their way to operands of bytes. Source:
 * PTX ISA, mma.m16n8k16, ldmatrix and movmatrix.
 */
#ifndef SW_KERNELS_CUDA_PTX_PTX_MMA_CUH
#define SW_KERNELS_CUDA_PTX_PTX_MMA_CUH

#include <stdint.h>

/* Four of the codes whose zero point is 8, less that, times 16: the upper nibbles, as they lie. */
__device__ __forceinline__ uint32_t sw_upper_codes(uint32_t word)
{
    uint32_t v;

    asm volatile("lop3.b32 %0, %1, %2, %3, 0x6a;" : "=r"(v)
                 : "r"(word), "r"(0xf0f0f0f0u), "r"(0x80808080u));
    return v;
}

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

/* Four matrices of 8 x 8 elements of 16 bits out of shared memory; lane i has the address of row
 * i % 8 of matrix i / 8. Lane i gets elements 2 * (i % 4) and the next of row i / 4 of each. */
__device__ __forceinline__ uint4 sw_load_matrices(uint32_t row)
{
    uint4 m;

    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(m.x), "=r"(m.y), "=r"(m.z), "=r"(m.w)
                 : "r"(row)
                 : "memory");
    return m;
}

/* The same with each matrix transposed. */
__device__ __forceinline__ uint4 sw_load_transposed(uint32_t row)
{
    uint4 m;

    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(m.x), "=r"(m.y), "=r"(m.z), "=r"(m.w)
                 : "r"(row)
                 : "memory");
    return m;
}

/* One such matrix in the lanes, transposed. */
__device__ __forceinline__ uint32_t sw_transposed(uint32_t m)
{
    uint32_t t;

    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(t) : "r"(m));
    return t;
}

#endif
