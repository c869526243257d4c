/* ptx_store.cuh - instructions of sm_90a beside those of ptx.cuh and ptx8.cuh: stores by the copy
 * engine. Sources: as there.
 */
#ifndef SW_KERNELS_CUDA_PTX_PTX_STORE_CUH
#define SW_KERNELS_CUDA_PTX_PTX_STORE_CUH

#include "kernels/cuda/ptx/ptx.cuh"

/* What this thread has stored in shared memory is seen by the copy engine from here on. */
__device__ __forceinline__ void sw_proxy_fence(void)
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* A box from shared memory to where (x, y) is its first element; what lies outside is left out.
 * A group of its own of this thread's stores. */
__device__ __forceinline__ void sw_tensor_store_2d(const CUtensorMap *map, int x, int y,
                                                   uint32_t src)
{
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group "
                 "[%0, {%1, %2}], [%3];\n"
                 "cp.async.bulk.commit_group;" ::"l"(map),
                 "r"(x), "r"(y), "r"(src)
                 : "memory");
}

/* All but the latest N of this thread's stores have been read from shared memory. */
template <int N> __device__ __forceinline__ void sw_bulk_read_wait(void)
{
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}

/* All of this thread's stores are where they belong. */
__device__ __forceinline__ void sw_bulk_wait(void)
{
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

#endif
