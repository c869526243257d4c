/* ptx_shared.cuh - warpgroup products with both operands in shared memory, or with the right one
 * lying across, and what attention needs around them (sm_90a). Sources: as in ptx.cuh, sections
 * wgmma, stmatrix, cp.async.bulk.tensor and ex2.
 */
#ifndef SW_KERNELS_CUDA_PTX_PTX_SHARED_CUH
#define SW_KERNELS_CUDA_PTX_PTX_SHARED_CUH

#include "kernels/cuda/ptx/ptx8.cuh"

/* ---- products ---- */

/* As sw_wgmma_desc, of a B that lies across: rows of 64 outputs, one of 128 bytes to an input, 8
 * of them to an atom of 1024 bytes, one atom behind the other; the next 64 outputs begin
 * `next_bytes` further on. */
__device__ __forceinline__ uint64_t sw_wgmma_desc_across(uint32_t addr, uint32_t next_bytes)
{
    return (addr >> 4 | next_bytes >> 4 << 16) | (uint64_t)(1024 >> 4 | 1u << 30) << 32;
}

#define SW_LIST32                                                                            \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, " \
    "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define SW_LIST64                                                                             \
    SW_LIST32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, " \
              "%47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, "   \
              "%62, %63"

#define SW_LIST128                                                                          \
    SW_LIST64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, " \
              "%79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, "   \
              "%94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, "     \
              "%107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, "     \
              "%119, %120, %121, %122, %123, %124, %125, %126, %127"

/* D[64, N] += A B^T of BF16, both in shared memory as sw_wgmma_desc has them; one k-step of 16. */
template <int N_ACC>
__device__ __forceinline__ void sw_wgmma_shared(float (&d)[N_ACC], uint64_t a, uint64_t b,
                                                int accumulate)
{
    static_assert(N_ACC == 40 || N_ACC == 64, "80 or 128 columns");
    if constexpr (N_ACC == 40)
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %42, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n80k16.f32.bf16.bf16 {" SW_LIST32 ", "
                     "%32, %33, %34, %35, %36, %37, %38, %39}, %40, %41, p, 1, 1, 0, 0;\n}"
                     : SW_D16("+f", 0), SW_D16("+f", 16), SW_D4("+f", 32), SW_D4("+f", 36)
                     : "l"(a), "l"(b), "r"(accumulate));
    else
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" SW_LIST64 "}, "
                     "%64, %65, p, 1, 1, 0, 0;\n}"
                     : SW_D64("+f", 0)
                     : "l"(a), "l"(b), "r"(accumulate));
}

/* D[64, N] += A B of BF16: A in registers, B across as sw_wgmma_desc_across has it. */
template <int N_ACC>
__device__ __forceinline__ void sw_wgmma_across(float (&d)[N_ACC], const uint32_t *a, uint64_t desc,
                                                int accumulate)
{
    static_assert(N_ACC == 32 || N_ACC == 64 || N_ACC == 128, "64, 128 or 256 columns");
    if constexpr (N_ACC == 128)
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %133, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" SW_LIST128 "}, "
                     "{%128, %129, %130, %131}, %132, p, 1, 1, 1;\n}"
                     : SW_D64("+f", 0), SW_D64("+f", 64)
                     : SW_A("r"));
    else if constexpr (N_ACC == 32)
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" SW_LIST32 "}, "
                     "{%32, %33, %34, %35}, %36, p, 1, 1, 1;\n}"
                     : SW_D16("+f", 0), SW_D16("+f", 16)
                     : SW_A("r"));
    else
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" SW_LIST64 "}, "
                     "{%64, %65, %66, %67}, %68, p, 1, 1, 1;\n}"
                     : SW_D64("+f", 0)
                     : SW_A("r"));
}

/* Keeps the compiler from writing operands before the products that read them are over. */
template <int N> __device__ __forceinline__ void sw_hold(uint32_t (&d)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+r"(d[i])::"memory");
}

/* ---- the rest ---- */

/* n_threads in all come to barrier `id`; these do not wait for the others. */
__device__ __forceinline__ void sw_named_arrive(int id, int n_threads)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(n_threads) : "memory");
}

/* 2^x to 2 units in the last place, 0 below 2^-126. */
__device__ __forceinline__ float sw_exp2(float x)
{
    float y;

    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* As sw_store_transposed4, of matrices as they are. */
__device__ __forceinline__ void sw_store_matrices4(uint32_t addr, const uint32_t *v)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(addr),
                 "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3])
                 : "memory");
}

/* As sw_warp_load_2d of ptx_warp.cuh, of a box of four dimensions. */
__device__ __forceinline__ void sw_warp_load_4d(uint32_t dst, const CUtensorMap *map,
                                                const int (&at)[4], uint32_t bar, uint64_t policy)
{
    asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\n"
                 "@p cp.async.bulk.tensor.4d.shared::cluster.global.tile"
                 ".mbarrier::complete_tx::bytes.L2::cache_hint "
                 "[%0], [%1, {%2, %3, %4, %5}], [%6], %7;\n}" ::"r"(dst),
                 "l"(map), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(bar), "l"(policy)
                 : "memory");
}

/* As sw_tensor_store_2d of ptx_store.cuh, without ending the group of stores. */
__device__ __forceinline__ void sw_tensor_store_4d(const CUtensorMap *map, const int (&at)[4],
                                                   uint32_t src)
{
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group "
                 "[%0, {%1, %2, %3, %4}], [%5];" ::"l"(map),
                 "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(src)
                 : "memory");
}

__device__ __forceinline__ void sw_bulk_commit(void)
{
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

#endif
