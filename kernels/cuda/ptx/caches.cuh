/* caches.cuh - what kernels ask of caches: whole lines of what is read once, and how much of a
 * multiprocessor is cache. Sources: as in ptx.cuh. */
#ifndef SW_KERNELS_CUDA_PTX_CACHES_CUH
#define SW_KERNELS_CUDA_PTX_CACHES_CUH

#include <cuda_runtime.h>

/* The L2 fetches 128 bytes where a part of them is asked for: lanes ask for the rest of a line
 * next. Nothing of it stays in the L1. */
__device__ __forceinline__ uint4 sw_load_line(const uint4 *p)
{
#if __CUDA_ARCH__ >= 900
    uint4 v;

    asm volatile("ld.global.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
    return v;
#else
    return __ldcg(p);
#endif
}

__device__ __forceinline__ uint2 sw_load_line(const uint2 *p)
{
#if __CUDA_ARCH__ >= 900
    uint2 v;

    asm volatile("ld.global.L1::no_allocate.L2::128B.v2.u32 {%0, %1}, [%2];"
                 : "=r"(v.x), "=r"(v.y)
                 : "l"(p));
    return v;
#else
    return __ldcg(p);
#endif
}

/* As matrix products have it, all of it shared: CTAs of kernels that want another division wait
 * until a multiprocessor is empty. A wish; a device that does not grant it is as before. */
template <typename KERNEL> static inline void sw_divide_as_products(KERNEL kernel)
{
    (void)cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                               cudaSharedmemCarveoutMaxShared);
}

#endif
