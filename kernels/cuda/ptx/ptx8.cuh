/* ptx8.cuh - warpgroup products of bytes (sm_90a): D[64 channels, N tokens] += A registers x B
 * shared, in int8 with int32 sums or in E4M3 with fp32 sums. One k-step is 32 inputs. See ptx.cuh.
 */
#ifndef SW_KERNELS_CUDA_PTX_PTX8_CUH
#define SW_KERNELS_CUDA_PTX_PTX8_CUH

#include "kernels/cuda/ptx/ptx.cuh"

/* Operands of `c` ("+r" or "+f"): 4, 16, 64 of d from i on. */
#define SW_D4(c, i) c(d[i]), c(d[i + 1]), c(d[i + 2]), c(d[i + 3])
#define SW_D16(c, i) SW_D4(c, i), SW_D4(c, i + 4), SW_D4(c, i + 8), SW_D4(c, i + 12)
#define SW_D64(c, i) SW_D16(c, i), SW_D16(c, i + 16), SW_D16(c, i + 32), SW_D16(c, i + 48)
#define SW_A(c) c(a[0]), c(a[1]), c(a[2]), c(a[3]), "l"(desc), "r"(accumulate)

#define SW_WGMMA8_N16(types, tail, c) \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %13, 0;\n" \
                 "wgmma.mma_async.sync.aligned.m64n16k32." types " " \
                 "{%0, %1, %2, %3, %4, %5, %6, %7}, " \
                 "{%8, %9, %10, %11}, %12, p" tail ";\n}" \
                 : SW_D4(c, 0), SW_D4(c, 4) \
                 : SW_A("r"))

#define SW_WGMMA8_N32(types, tail, c) \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %21, 0;\n" \
                 "wgmma.mma_async.sync.aligned.m64n32k32." types " " \
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, " \
                 "%15}, " \
                 "{%16, %17, %18, %19}, %20, p" tail ";\n}" \
                 : SW_D16(c, 0) \
                 : SW_A("r"))

#define SW_WGMMA8_N48(types, tail, c) \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %29, 0;\n" \
                 "wgmma.mma_async.sync.aligned.m64n48k32." types " " \
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15," \
                 " %16, %17, %18, %19, %20, %21, %22, %23}, " \
                 "{%24, %25, %26, %27}, %28, p" tail ";\n}" \
                 : SW_D16(c, 0), SW_D4(c, 16), SW_D4(c, 20) \
                 : SW_A("r"))

#define SW_WGMMA8_N64(types, tail, c) \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n" \
                 "wgmma.mma_async.sync.aligned.m64n64k32." types " " \
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15," \
                 " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29," \
                 " %30, %31}, " \
                 "{%32, %33, %34, %35}, %36, p" tail ";\n}" \
                 : SW_D16(c, 0), SW_D16(c, 16) \
                 : SW_A("r"))

#define SW_WGMMA8_N96(types, tail, c) \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %53, 0;\n" \
                 "wgmma.mma_async.sync.aligned.m64n96k32." types " " \
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15," \
                 " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29," \
                 " %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43," \
                 " %44, %45, %46, %47}, " \
                 "{%48, %49, %50, %51}, %52, p" tail ";\n}" \
                 : SW_D16(c, 0), SW_D16(c, 16), SW_D16(c, 32) \
                 : SW_A("r"))

#define SW_WGMMA8_N128(types, tail, c) \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\n" \
                 "wgmma.mma_async.sync.aligned.m64n128k32." types " " \
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15," \
                 " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29," \
                 " %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43," \
                 " %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57," \
                 " %58, %59, %60, %61, %62, %63}, " \
                 "{%64, %65, %66, %67}, %68, p" tail ";\n}" \
                 : SW_D64(c, 0) \
                 : SW_A("r"))

#define SW_WGMMA8_N256(types, tail, c) \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %133, 0;\n" \
                 "wgmma.mma_async.sync.aligned.m64n256k32." types " " \
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15," \
                 " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29," \
                 " %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43," \
                 " %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57," \
                 " %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71," \
                 " %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85," \
                 " %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99," \
                 " %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, " \
                 "%111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, " \
                 "%122, %123, %124, %125, %126, %127}, " \
                 "{%128, %129, %130, %131}, %132, p" tail ";\n}" \
                 : SW_D64(c, 0), SW_D64(c, 64) \
                 : SW_A("r"))

__host__ __device__ constexpr bool sw_wgmma8_has(int n)
{
    return n == 16 || n == 32 || n == 48 || n == 64 || n == 96 || n == 128 || n == 256;
}

/* int sums: products of s8; float sums: of E4M3. N = 2 * the sums of a lane. */
template <int N_ACC>
__device__ __forceinline__ void sw_wgmma8(int (&d)[N_ACC], const uint32_t *a, uint64_t desc,
                                          int accumulate)
{
    static_assert(sw_wgmma8_has(2 * N_ACC), "tokens that no case below has");
#define SW_WGMMA_CASE(n) \
    if constexpr (N_ACC == n / 2) SW_WGMMA8_N##n("s32.s8.s8", "", "+r")
    SW_WGMMA_CASE(16);
    SW_WGMMA_CASE(32);
    SW_WGMMA_CASE(48);
    SW_WGMMA_CASE(64);
    SW_WGMMA_CASE(96);
    SW_WGMMA_CASE(128);
    SW_WGMMA_CASE(256);
#undef SW_WGMMA_CASE
}

template <int N_ACC>
__device__ __forceinline__ void sw_wgmma8(float (&d)[N_ACC], const uint32_t *a, uint64_t desc,
                                          int accumulate)
{
    static_assert(sw_wgmma8_has(2 * N_ACC), "tokens that no case below has");
#define SW_WGMMA_CASE(n) \
    if constexpr (N_ACC == n / 2) SW_WGMMA8_N##n("f32.e4m3.e4m3", ", 1, 1", "+f")
    SW_WGMMA_CASE(16);
    SW_WGMMA_CASE(32);
    SW_WGMMA_CASE(48);
    SW_WGMMA_CASE(64);
    SW_WGMMA_CASE(96);
    SW_WGMMA_CASE(128);
    SW_WGMMA_CASE(256);
#undef SW_WGMMA_CASE
}

/* D[64, 128] += A B of E4M3, both in shared memory. */
__device__ __forceinline__ void sw_wgmma8_shared(float (&d)[64], uint64_t a, uint64_t b,
                                                 int accumulate)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"
                 " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29,"
                 " %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43,"
                 " %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57,"
                 " %58, %59, %60, %61, %62, %63}, "
                 "%64, %65, p, 1, 1;\n}"
                 : SW_D64("+f", 0)
                 : "l"(a), "l"(b), "r"(accumulate));
}

/* An arrival of this lane once the copies that it has started are done. */
__device__ __forceinline__ void sw_copy_arrive(uint32_t bar)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(bar) : "memory");
}

/* K-major operand with the 32-byte swizzle: rows of 32 bytes, 8 rows to a 256-byte atom, of which
 * the last four have their halves in turn. */
__device__ __forceinline__ uint64_t sw_wgmma_desc_32(uint32_t addr)
{
    return (addr >> 4 | 1u << 16) | (uint64_t)(256 >> 4 | 3u << 30) << 32;
}

/* ---- stores of 16-bit results ---- */

/* Four 8 x 8 matrices of 16-bit elements, of which a lane holds elements [l/4][2(l%4)], +1, to
 * rows of 16 bytes, transposed; lane l has the address of row l % 8 of matrix l / 8. */
__device__ __forceinline__ void sw_store_transposed4(uint32_t addr, const uint32_t *v)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                     addr),
                 "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3])
                 : "memory");
}

/* Nearest BF16 or F16 of both, the first in the low half. */
__device__ __forceinline__ uint32_t sw_round16_pair(float low, float high, bool is_bf16)
{
    uint32_t v;

    if (is_bf16) asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(high), "f"(low));
    else asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(high), "f"(low));
    return v;
}

#endif
