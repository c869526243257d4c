/* ptx_tokens.cuh - warpgroup products of 16-bit inputs with more numbers of tokens than ptx.cuh has
 * (sm_90a), for blocks of tokens that would else be half empty. See there.
 */
#ifndef SW_KERNELS_CUDA_PTX_PTX_TOKENS_CUH
#define SW_KERNELS_CUDA_PTX_PTX_TOKENS_CUH

#include "kernels/cuda/ptx/ptx8.cuh"

#define SW_WGMMA_N80(type) \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %45, 0;\n" \
                 "wgmma.mma_async.sync.aligned.m64n80k16.f32." type "." type " " \
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, " \
                 "%15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, " \
                 "%28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39}, " \
                 "{%40, %41, %42, %43}, %44, p, 1, 1, 0;\n}" \
                 : SW_D16("+f", 0), SW_D16("+f", 16), SW_D4("+f", 32), SW_D4("+f", 36) \
                 : SW_A("r"))

#define SW_WGMMA_N104(type) \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %57, 0;\n" \
                 "wgmma.mma_async.sync.aligned.m64n104k16.f32." type "." type " " \
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, " \
                 "%15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, " \
                 "%28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, " \
                 "%41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51}, " \
                 "{%52, %53, %54, %55}, %56, p, 1, 1, 0;\n}" \
                 : SW_D16("+f", 0), SW_D16("+f", 16), SW_D16("+f", 32), SW_D4("+f", 48) \
                 : SW_A("r"))

#define SW_WGMMA_N160(type) \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %85, 0;\n" \
                 "wgmma.mma_async.sync.aligned.m64n160k16.f32." type "." type " " \
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, " \
                 "%15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, " \
                 "%28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, " \
                 "%41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, " \
                 "%54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, " \
                 "%67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79}, " \
                 "{%80, %81, %82, %83}, %84, p, 1, 1, 0;\n}" \
                 : SW_D64("+f", 0), SW_D16("+f", 64) \
                 : SW_A("r"))

#define SW_WGMMA_N192(type) \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %101, 0;\n" \
                 "wgmma.mma_async.sync.aligned.m64n192k16.f32." type "." type " " \
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, " \
                 "%15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, " \
                 "%28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, " \
                 "%41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, " \
                 "%54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, " \
                 "%67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
                 "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, " \
                 "%93, %94, %95}, " \
                 "{%96, %97, %98, %99}, %100, p, 1, 1, 0;\n}" \
                 : SW_D64("+f", 0), SW_D16("+f", 64), SW_D16("+f", 80) \
                 : SW_A("r"))

#define SW_WGMMA_N208(type) \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %109, 0;\n" \
                 "wgmma.mma_async.sync.aligned.m64n208k16.f32." type "." type " " \
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, " \
                 "%15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, " \
                 "%28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, " \
                 "%41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, " \
                 "%54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, " \
                 "%67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
                 "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, " \
                 "%93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103}, " \
                 "{%104, %105, %106, %107}, %108, p, 1, 1, 0;\n}" \
                 : SW_D64("+f", 0), SW_D16("+f", 64), SW_D16("+f", 80), \
                   SW_D4("+f", 96), SW_D4("+f", 100) \
                 : SW_A("r"))

__host__ __device__ constexpr bool sw_wgmma_has_more(int n_acc)
{
    return n_acc == 40 || n_acc == 52 || n_acc == 80 || n_acc == 96 || n_acc == 104;
}

/* As sw_wgmma. */
template <bool BF16, int N_ACC>
__device__ __forceinline__ void sw_wgmma_more(float (&d)[N_ACC], const uint32_t *a, uint64_t desc,
                                             int accumulate)
{
    static_assert(BF16 && sw_wgmma_has_more(N_ACC), "tokens that no case below has");
#define SW_WGMMA_CASE(n) \
    if constexpr (N_ACC == n / 2) SW_WGMMA_N##n("bf16")
    SW_WGMMA_CASE(80);
    SW_WGMMA_CASE(104);
    SW_WGMMA_CASE(160);
    SW_WGMMA_CASE(192);
    SW_WGMMA_CASE(208);
#undef SW_WGMMA_CASE
}

#endif
