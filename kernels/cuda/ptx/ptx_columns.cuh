/* ptx_columns.cuh - warpgroup products with both operands in shared memory: of E4M3 for columns in
 * multiples of 16, of s8 for 128 (sm_90a). Source: as in ptx.cuh, section wgmma.
 */
#ifndef SW_KERNELS_CUDA_PTX_PTX_COLUMNS_CUH
#define SW_KERNELS_CUDA_PTX_PTX_COLUMNS_CUH

#include "kernels/cuda/ptx/ptx_shared.cuh"

#define SW_LIST16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define SW_LIST24 SW_LIST16 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define SW_LIST40 SW_LIST32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define SW_LIST48 SW_LIST40 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define SW_LIST56 SW_LIST48 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define SW_LIST80                                                                             \
    SW_LIST64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, " \
              "%79"

#define SW_D8(c, i) SW_D4(c, i), SW_D4(c, i + 4)
#define SW_D32(c, i) SW_D16(c, i), SW_D16(c, i + 16)

/* D[64, 2 * N_ACC] += A B, one k-step of 32. */
template <int N_ACC>
__device__ __forceinline__ void sw_wgmma8_columns(float (&d)[N_ACC], uint64_t a, uint64_t b,
                                                  int accumulate)
{
    static_assert((N_ACC % 8 == 0 && N_ACC >= 16 && N_ACC <= 56) || N_ACC == 80,
                  "columns that no case below has");
    if constexpr (N_ACC == 16)
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %18, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n32k32.f32.e4m3.e4m3 {" SW_LIST16 "}, "
                     "%16, %17, p, 1, 1;\n}"
                     : SW_D16("+f", 0)
                     : "l"(a), "l"(b), "r"(accumulate));
    else if constexpr (N_ACC == 24)
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %26, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n48k32.f32.e4m3.e4m3 {" SW_LIST24 "}, "
                     "%24, %25, p, 1, 1;\n}"
                     : SW_D16("+f", 0), SW_D8("+f", 16)
                     : "l"(a), "l"(b), "r"(accumulate));
    else if constexpr (N_ACC == 32)
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3 {" SW_LIST32 "}, "
                     "%32, %33, p, 1, 1;\n}"
                     : SW_D32("+f", 0)
                     : "l"(a), "l"(b), "r"(accumulate));
    else if constexpr (N_ACC == 40)
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %42, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n80k32.f32.e4m3.e4m3 {" SW_LIST40 "}, "
                     "%40, %41, p, 1, 1;\n}"
                     : SW_D32("+f", 0), SW_D8("+f", 32)
                     : "l"(a), "l"(b), "r"(accumulate));
    else if constexpr (N_ACC == 48)
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %50, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n96k32.f32.e4m3.e4m3 {" SW_LIST48 "}, "
                     "%48, %49, p, 1, 1;\n}"
                     : SW_D32("+f", 0), SW_D16("+f", 32)
                     : "l"(a), "l"(b), "r"(accumulate));
    else if constexpr (N_ACC == 56)
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %58, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n112k32.f32.e4m3.e4m3 {" SW_LIST56 "}, "
                     "%56, %57, p, 1, 1;\n}"
                     : SW_D32("+f", 0), SW_D16("+f", 32), SW_D8("+f", 48)
                     : "l"(a), "l"(b), "r"(accumulate));
    else if constexpr (N_ACC == 80)
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %82, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n160k32.f32.e4m3.e4m3 {" SW_LIST80 "}, "
                     "%80, %81, p, 1, 1;\n}"
                     : SW_D64("+f", 0), SW_D16("+f", 64)
                     : "l"(a), "l"(b), "r"(accumulate));
}

/* As sw_wgmma_desc_32, of rows whose next 8 are `steps` times 256 bytes further on. */
__device__ __forceinline__ uint64_t sw_wgmma_desc_steps(uint32_t addr, int steps)
{
    return (addr >> 4 | 1u << 16) | (uint64_t)((uint32_t)steps * (256 >> 4) | 3u << 30) << 32;
}

/* As sw_warp_load_4d of ptx_shared.cuh, to the same place in the first two CTAs of the cluster, the
 * barrier of each of which is told of it. */
__device__ __forceinline__ void sw_warp_load_4d_both(uint32_t dst, const CUtensorMap *map,
                                                     const int (&at)[4], uint32_t bar,
                                                     uint64_t policy)
{
    asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\n"
                 "@p cp.async.bulk.tensor.4d.shared::cluster.global.tile"
                 ".mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint "
                 "[%0], [%1, {%2, %3, %4, %5}], [%6], %7, %8;\n}" ::"r"(dst),
                 "l"(map), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(bar),
                 "h"((uint16_t)3), "l"(policy)
                 : "memory");
}

/* D[64, 128] += A B of s8, both in shared memory. */
__device__ __forceinline__ void sw_wgmma8_shared(int (&d)[64], uint64_t a, uint64_t b,
                                                 int accumulate)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k32.s32.s8.s8 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"
                 " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29,"
                 " %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43,"
                 " %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57,"
                 " %58, %59, %60, %61, %62, %63}, "
                 "%64, %65, p;\n}"
                 : SW_D64("+r", 0)
                 : "l"(a), "l"(b), "r"(accumulate));
}

#endif
