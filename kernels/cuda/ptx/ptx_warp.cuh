/* ptx_warp.cuh - instructions of sm_90 that a whole warp comes to: copies that one of its lanes
 * asks for, and a wait that the hardware ends. Sources: as in ptx.cuh.
 */
#ifndef SW_KERNELS_CUDA_PTX_PTX_WARP_CUH
#define SW_KERNELS_CUDA_PTX_PTX_WARP_CUH

#include "kernels/cuda/ptx/ptx.cuh"

/* As sw_mbar_wait, for what is longer in coming: the hardware wakes the warp, which else asks again
 * and again and takes the issue slots of those that work. */
__device__ __forceinline__ void sw_mbar_sleep(uint32_t bar, uint32_t parity)
{
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "wait:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1, 10000000;\n"
                 "@done bra.uni ready;\n"
                 "bra.uni wait;\n"
                 "ready:\n"
                 "}" ::"r"(bar), "r"(parity)
                 : "memory");
}

/* ---- what a warp asks of the copy engine ----
 *
 * All lanes come here together, and one of them, which the instruction elects, asks. So addresses
 * stay in uniform registers, where the engine wants them; of a lane that came by itself the
 * compiler would bring each there in a loop, 25 instructions a copy. */

/* As sw_mbar_expect. */
__device__ __forceinline__ void sw_warp_expect(uint32_t bar, uint32_t n_bytes)
{
    asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\n"
                 "@p mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n}" ::"r"(bar),
                 "r"(n_bytes)
                 : "memory");
}

/* As sw_bulk_load. */
__device__ __forceinline__ void sw_warp_load(uint32_t dst, const void *src, uint32_t n_bytes,
                                             uint32_t bar, uint64_t policy)
{
    asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\n"
                 "@p cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".L2::cache_hint [%0], [%1], %2, [%3], %4;\n}" ::"r"(dst),
                 "l"(src), "r"(n_bytes), "r"(bar), "l"(policy)
                 : "memory");
}

/* As sw_tensor_load_2d. */
__device__ __forceinline__ void sw_warp_load_2d(uint32_t dst, const CUtensorMap *map,
                                               int x, int y, uint32_t bar, uint64_t policy)
{
    asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\n"
                 "@p cp.async.bulk.tensor.2d.shared::cluster.global.tile"
                 ".mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%2, %3}], [%4], %5;\n}"
                 ::"r"(dst), "l"(map), "r"(x), "r"(y), "r"(bar), "l"(policy)
                 : "memory");
}

/* As sw_tensor_load_3d. */
__device__ __forceinline__ void sw_warp_load_3d(uint32_t dst, const CUtensorMap *map,
                                               int x, int y, int z, uint32_t bar, uint64_t policy)
{
    asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\n"
                 "@p cp.async.bulk.tensor.3d.shared::cluster.global.tile"
                 ".mbarrier::complete_tx::bytes.L2::cache_hint "
                 "[%0], [%1, {%2, %3, %4}], [%5], %6;\n}" ::"r"(dst),
                 "l"(map), "r"(x), "r"(y), "r"(z), "r"(bar), "l"(policy)
                 : "memory");
}

#endif
