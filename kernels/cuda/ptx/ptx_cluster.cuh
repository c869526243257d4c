/* ptx_cluster.cuh - instructions of sm_90 beside those of ptx.cuh: boxes of three dimensions, and
 * the end of a cluster. Sources: as there.
 */
#ifndef SW_KERNELS_CUDA_PTX_PTX_CLUSTER_CUH
#define SW_KERNELS_CUDA_PTX_PTX_CLUSTER_CUH

#include "kernels/cuda/ptx/ptx.cuh"

__device__ __forceinline__ void sw_tensor_load_3d(uint32_t dst, const CUtensorMap *map, int x,
                                                  int y, int z, uint32_t bar, uint64_t policy)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 ".L2::cache_hint [%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(dst),
                 "l"(map), "r"(x), "r"(y), "r"(z), "r"(bar), "l"(policy)
                 : "memory");
}

/* The same box to the same place in the first two CTAs of the cluster, the barrier of each of which
 * is told of it. */
__device__ __forceinline__ void sw_tensor_load_both(uint32_t dst, const CUtensorMap *map, int x,
                                                    int y, uint32_t bar, uint64_t policy)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 ".multicast::cluster.L2::cache_hint [%0], [%1, {%2, %3}], [%4], %5, %6;"
                 ::"r"(dst), "l"(map), "r"(x), "r"(y), "r"(bar), "h"((uint16_t)3), "l"(policy)
                 : "memory");
}

/* The same by a warp, of which one lane asks: see ptx_warp.cuh. */
__device__ __forceinline__ void sw_warp_load_both(uint32_t dst, const CUtensorMap *map, int x,
                                                  int y, uint32_t bar, uint64_t policy)
{
    asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\n"
                 "@p cp.async.bulk.tensor.2d.shared::cluster.global.tile"
                 ".mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint "
                 "[%0], [%1, {%2, %3}], [%4], %5, %6;\n}"
                 ::"r"(dst), "l"(map), "r"(x), "r"(y), "r"(bar), "h"((uint16_t)3), "l"(policy)
                 : "memory");
}

/* Likewise a straight piece; n_bytes and both addresses in multiples of 16. */
__device__ __forceinline__ void sw_bulk_load_both(uint32_t dst, const void *src, uint32_t n_bytes,
                                                  uint32_t bar, uint64_t policy)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".multicast::cluster.L2::cache_hint [%0], [%1], %2, [%3], %4, %5;" ::"r"(dst),
                 "l"(src), "r"(n_bytes), "r"(bar), "h"((uint16_t)3), "l"(policy)
                 : "memory");
}

/* An arrival at a barrier of a CTA of the cluster, an address of sw_cluster_map: to say that what
 * was read has been used. It does not order what was stored, which at the scope of the cluster is a
 * fence of the whole device: two CTAs that share a ring lost a third of their speed by it. */
__device__ __forceinline__ void sw_cluster_arrive(uint32_t bar)
{
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(bar) : "memory");
}

/* Four values of 32 bits to this CTA's shared memory. */
__device__ __forceinline__ void sw_shared_put4(uint32_t addr, float v)
{
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(addr), "f"(v) : "memory");
}

__device__ __forceinline__ void sw_shared_put16(uint32_t addr, const float *v)
{
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(addr), "f"(v[0]), "f"(v[1]),
                 "f"(v[2]), "f"(v[3])
                 : "memory");
}

__device__ __forceinline__ void sw_shared_put16(uint32_t addr, const int *v)
{
    asm volatile("st.shared.v4.s32 [%0], {%1, %2, %3, %4};" ::"r"(addr), "r"(v[0]), "r"(v[1]),
                 "r"(v[2]), "r"(v[3])
                 : "memory");
}

/* Four values of 32 bits from an address of sw_cluster_map. */
__device__ __forceinline__ void sw_cluster_get16(float *v, uint32_t addr)
{
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3])
                 : "r"(addr)
                 : "memory");
}

__device__ __forceinline__ void sw_cluster_get16(int *v, uint32_t addr)
{
    asm volatile("ld.shared::cluster.v4.s32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                 : "r"(addr)
                 : "memory");
}

/* Of the clusters of the grid, in their order. */
__device__ __forceinline__ uint32_t sw_cluster_id(void)
{
    uint32_t id;

    asm volatile("mov.u32 %0, %%clusterid.x;" : "=r"(id));
    return id;
}

/* The first meeting: the barriers that sw_mbar_init_fence published are there in all CTAs. What was
 * stored otherwise is not ordered. */
__device__ __forceinline__ void sw_cluster_meet(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.relaxed.aligned;\n"
                 "barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

/* The last meeting, after which a CTA may end: the others have read what they wanted of its shared
 * memory. What was read must have been used before. It orders nothing that was stored: an arrival
 * that did waited 1.5 us, until Y was seen by the device. */
__device__ __forceinline__ void sw_cluster_part(void) { sw_cluster_meet(); }

#endif
