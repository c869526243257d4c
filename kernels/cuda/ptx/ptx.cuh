/* ptx.cuh - the instructions that CUDA C has no name for, one inline function each.
 *
 * Sources: PTX ISA 8.x/9.0, sections on mbarrier, cp.async.bulk, wgmma, griddepcontrol and
 * barrier.cluster. Everything here is for sm_90a unless it says otherwise.
 */
#ifndef SW_KERNELS_CUDA_PTX_PTX_CUH
#define SW_KERNELS_CUDA_PTX_PTX_CUH

#include <cuda.h>
#include <stdint.h>

__device__ __forceinline__ uint32_t sw_smem_addr(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* ---- mbarrier ---- */

__device__ __forceinline__ void sw_mbar_init(uint32_t bar, uint32_t arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(arrivals) : "memory");
}

/* Makes the inits visible to the copy engine and to the rest of a cluster. */
__device__ __forceinline__ void sw_mbar_init_fence(void)
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void sw_mbar_arrive(uint32_t bar)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}

/* One arrival that also announces how many bytes the copy engine will bring. */
__device__ __forceinline__ void sw_mbar_expect(uint32_t bar, uint32_t n_bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(n_bytes)
                 : "memory");
}

__device__ __forceinline__ void sw_mbar_wait(uint32_t bar, uint32_t parity)
{
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "wait:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@done bra.uni ready;\n"
                 "bra.uni wait;\n"
                 "ready:\n"
                 "}" ::"r"(bar), "r"(parity)
                 : "memory");
}

/* ---- bulk copies ---- */

/* Read once: leave the L2 to what is read again. */
__device__ __forceinline__ uint64_t sw_policy_evict_first(void)
{
    uint64_t policy;

    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

__device__ __forceinline__ uint64_t sw_policy_evict_last(void)
{
    uint64_t policy;

    asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

/* n_bytes and both addresses in multiples of 16. */
__device__ __forceinline__ void sw_bulk_load(uint32_t dst, const void *src, uint32_t n_bytes,
                                             uint32_t bar, uint64_t policy)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
                 "[%0], [%1], %2, [%3], %4;" ::"r"(dst),
                 "l"(src), "r"(n_bytes), "r"(bar), "l"(policy)
                 : "memory");
}

__device__ __forceinline__ void sw_tensor_load_2d(uint32_t dst, const CUtensorMap *map, int x,
                                                  int y, uint32_t bar, uint64_t policy)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 ".L2::cache_hint [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(dst),
                 "l"(map), "r"(x), "r"(y), "r"(bar), "l"(policy)
                 : "memory");
}

__device__ __forceinline__ void sw_tensor_prefetch(const CUtensorMap *map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/* ---- copies of a thread (sm_80) ---- */

/* 16 bytes past the first level of cache; of them n_bytes (0 or 16) from src, else zeros. */
__device__ __forceinline__ void sw_copy16(uint32_t dst, const void *src, int n_bytes,
                                          uint64_t policy)
{
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(dst),
                 "l"(src), "r"(n_bytes), "l"(policy)
                 : "memory");
}

/* The same of all 16, to stay as long as anything else. */
__device__ __forceinline__ void sw_copy16_plain(uint32_t dst, const void *src)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(dst), "l"(src) : "memory");
}

__device__ __forceinline__ void sw_copy8(uint32_t dst, const void *src)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(dst), "l"(src) : "memory");
}

__device__ __forceinline__ void sw_copy4(uint32_t dst, const void *src)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(dst), "l"(src) : "memory");
}

__device__ __forceinline__ void sw_copy_commit(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* All but the latest N groups of this thread's copies are there, for this thread to read. */
template <int N> __device__ __forceinline__ void sw_copy_wait(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

__device__ __forceinline__ uint32_t sw_shared4(uint32_t addr)
{
    uint32_t v;

    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(addr) : "memory");
    return v;
}

__device__ __forceinline__ uint2 sw_shared8(uint32_t addr)
{
    uint2 v;

    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(addr) : "memory");
    return v;
}

__device__ __forceinline__ uint4 sw_shared16(uint32_t addr)
{
    uint4 v;

    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(addr)
                 : "memory");
    return v;
}

/* Nearest BF16 or F16, its bits. */
__device__ __forceinline__ uint32_t sw_round16(float v, bool is_bf16)
{
    uint16_t bits;

    if (is_bf16) asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(v));
    else asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(v));
    return bits;
}

/* ---- launch order (programmatic dependent launch) ---- */

/* The next kernel of the stream may start now; it still waits before it reads what we write. */
__device__ __forceinline__ void sw_grid_launch_next(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

__device__ __forceinline__ void sw_grid_wait_previous(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* ---- clusters ---- */

__device__ __forceinline__ uint32_t sw_cluster_rank(void)
{
    uint32_t r = 0;

#if __CUDA_ARCH__ >= 900
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
#endif
    return r;
}

__device__ __forceinline__ uint32_t sw_cluster_size(void)
{
    uint32_t n = 1;

#if __CUDA_ARCH__ >= 900
    asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(n));
#endif
    return n;
}

/* All of the cluster meet, and see what each has stored in its own shared memory. Of global memory
 * nothing is ordered: that would be a fence of the whole device, most of a microsecond. */
__device__ __forceinline__ void sw_cluster_sync(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.release.sync_restrict::shared::cta.cluster;\n"
                 "barrier.cluster.arrive.relaxed.aligned;\n"
                 "barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

/* The address of `addr` of our own shared memory in that of CTA `rank` of the cluster. */
__device__ __forceinline__ uint32_t sw_cluster_map(uint32_t addr, uint32_t rank)
{
    uint32_t there = addr + 0 * rank;

#if __CUDA_ARCH__ >= 900
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(addr), "r"(rank));
#endif
    return there;
}

__device__ __forceinline__ uint2 sw_cluster_load2(uint32_t addr)
{
    uint2 v = {};

#if __CUDA_ARCH__ >= 900
    asm volatile("ld.shared::cluster.v2.u32 {%0, %1}, [%2];"
                 : "=r"(v.x), "=r"(v.y)
                 : "r"(addr)
                 : "memory");
#endif
    return v;
}

__device__ __forceinline__ float4 sw_cluster_load4(uint32_t addr)
{
    float4 v;

    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "r"(addr)
                 : "memory");
    return v;
}

/* (a & mask) | b in one instruction; the compiler makes two when mask and b are both constants. */
__device__ __forceinline__ uint32_t sw_and_or(uint32_t a, uint32_t mask, uint32_t b)
{
    uint32_t v;

    asm volatile("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(v) : "r"(a), "r"(mask), "r"(b));
    return v;
}

/* ---- barriers of part of a CTA ---- */

__device__ __forceinline__ void sw_named_sync(int id, int n_threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(n_threads) : "memory");
}

/* Registers of each thread of this warpgroup from here on; the pool of the CTA must have them. */
template <int N> __device__ __forceinline__ void sw_more_registers(void)
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

template <int N> __device__ __forceinline__ void sw_fewer_registers(void)
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

/* ---- warpgroup matrix products: D[64 channels, N tokens] += A registers x B shared ---- */

__device__ __forceinline__ void sw_wgmma_fence(void)
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void sw_wgmma_commit(void)
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* All but the latest N groups are complete. */
template <int N> __device__ __forceinline__ void sw_wgmma_wait(void)
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

/* Keeps the compiler from reading an accumulator before the wait above it. */
template <int N> __device__ __forceinline__ void sw_hold(float (&d)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(d[i])::"memory");
}

template <int N> __device__ __forceinline__ void sw_hold(int (&d)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+r"(d[i])::"memory");
}

template <int ROWS, int N, typename type>
__device__ __forceinline__ void sw_hold(type (&d)[ROWS][N])
{
#pragma unroll
    for (int row = 0; row < ROWS; row++) sw_hold(d[row]);
}

/* K-major operand with the 128-byte swizzle: rows of 128 bytes, 8 rows to a 1024-byte atom. */
__device__ __forceinline__ uint64_t sw_wgmma_desc(uint32_t addr)
{
    return (addr >> 4 | 1u << 16) | (uint64_t)(1024 >> 4 | 1u << 30) << 32;
}

#define SW_WGMMA_N8(type) \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %9, 0;\n" \
                 "wgmma.mma_async.sync.aligned.m64n8k16.f32." type "." type " " \
                 "{%0, %1, %2, %3}, " \
                 "{%4, %5, %6, %7}, %8, p, 1, 1, 0;\n}" \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(desc), "r"(accumulate))

#define SW_WGMMA_N16(type) \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %13, 0;\n" \
                 "wgmma.mma_async.sync.aligned.m64n16k16.f32." type "." type " " \
                 "{%0, %1, %2, %3, %4, %5, %6, %7}, " \
                 "{%8, %9, %10, %11}, %12, p, 1, 1, 0;\n}" \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), \
                   "+f"(d[6]), "+f"(d[7]) \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(desc), "r"(accumulate))

#define SW_WGMMA_N32(type) \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %21, 0;\n" \
                 "wgmma.mma_async.sync.aligned.m64n32k16.f32." type "." type " " \
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, " \
                 "%15}, " \
                 "{%16, %17, %18, %19}, %20, p, 1, 1, 0;\n}" \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), \
                   "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), \
                   "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]) \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(desc), "r"(accumulate))

#define SW_WGMMA_N48(type) \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %29, 0;\n" \
                 "wgmma.mma_async.sync.aligned.m64n48k16.f32." type "." type " " \
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, " \
                 "%15, %16, %17, %18, %19, %20, %21, %22, %23}, " \
                 "{%24, %25, %26, %27}, %28, p, 1, 1, 0;\n}" \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), \
                   "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), \
                   "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), \
                   "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), \
                   "+f"(d[21]), "+f"(d[22]), "+f"(d[23]) \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(desc), "r"(accumulate))

#define SW_WGMMA_N64(type) \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n" \
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " " \
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, " \
                 "%15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, " \
                 "%29, %30, %31}, " \
                 "{%32, %33, %34, %35}, %36, p, 1, 1, 0;\n}" \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), \
                   "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), \
                   "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), \
                   "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), \
                   "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), \
                   "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), \
                   "+f"(d[31]) \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(desc), "r"(accumulate))

#define SW_WGMMA_N96(type) \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %53, 0;\n" \
                 "wgmma.mma_async.sync.aligned.m64n96k16.f32." type "." type " " \
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, " \
                 "%15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, " \
                 "%29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, " \
                 "%43, %44, %45, %46, %47}, " \
                 "{%48, %49, %50, %51}, %52, p, 1, 1, 0;\n}" \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), \
                   "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), \
                   "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), \
                   "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), \
                   "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), \
                   "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), \
                   "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), \
                   "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), \
                   "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), \
                   "+f"(d[45]), "+f"(d[46]), "+f"(d[47]) \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(desc), "r"(accumulate))

#define SW_WGMMA_N128(type) \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\n" \
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " " \
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, " \
                 "%15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, " \
                 "%29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, " \
                 "%43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, " \
                 "%57, %58, %59, %60, %61, %62, %63}, " \
                 "{%64, %65, %66, %67}, %68, p, 1, 1, 0;\n}" \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), \
                   "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), \
                   "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), \
                   "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), \
                   "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), \
                   "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), \
                   "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), \
                   "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), \
                   "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), \
                   "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), \
                   "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), \
                   "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), \
                   "+f"(d[61]), "+f"(d[62]), "+f"(d[63]) \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(desc), "r"(accumulate))

/* N = 2 * the accumulators of a lane: rows g and g+8 of its warp's 16, columns 8j + 2c, +1. */
template <bool BF16, int N_ACC>
__device__ __forceinline__ void sw_wgmma(float (&d)[N_ACC], const uint32_t *a, uint64_t desc,
                                         int accumulate)
{
    static_assert(N_ACC == 4 || N_ACC == 8 || N_ACC == 16 || N_ACC == 24 || N_ACC == 32 ||
                      N_ACC == 48 || N_ACC == 64,
                  "8, 16, 32, 48, 64, 96 or 128 tokens");
#define SW_WGMMA_CASE(n)                                \
    if constexpr (N_ACC == n / 2 && BF16)               \
        SW_WGMMA_N##n("bf16");                          \
    else if constexpr (N_ACC == n / 2)                  \
        SW_WGMMA_N##n("f16")
    SW_WGMMA_CASE(8);
    SW_WGMMA_CASE(16);
    SW_WGMMA_CASE(32);
    SW_WGMMA_CASE(48);
    SW_WGMMA_CASE(64);
    SW_WGMMA_CASE(96);
    SW_WGMMA_CASE(128);
#undef SW_WGMMA_CASE
}

#endif
