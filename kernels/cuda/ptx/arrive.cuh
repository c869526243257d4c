/* arrive.cuh - how a warp says that it is done with a stage of a ring.
 *
 * One lane arrives for all, as they have met before. Builds for compute-sanitizer
 * (CONFIG=checked) have every lane arrive for itself: racecheck follows what each thread arrives
 * at, and takes a read by lane 5 before an arrival of lane 0 for one that nothing orders.
 */
#ifndef SW_KERNELS_CUDA_PTX_ARRIVE_CUH
#define SW_KERNELS_CUDA_PTX_ARRIVE_CUH

#include "kernels/cuda/ptx/ptx.cuh"

#ifdef SW_CHECKED
#define SW_ARRIVALS 32 /* of a warp at the barrier of a stage */
/* `bar` is no 0: an arrival under a predicate is another thing that racecheck loses (2026.4). */
#define SW_IS_THERE(bar) __builtin_assume((bar) != 0)
#else
#define SW_ARRIVALS 1
#define SW_IS_THERE(bar) ((void)0)
#endif

/* Whether this lane arrives where `lane` does for its warp. */
#define SW_ARRIVES(lane) (SW_ARRIVALS > 1 || threadIdx.x % 32 == (lane))

/* For a barrier at which warps arrive and nobody waits: so many that no phase of it ends. One that
 * ends unseen is what synccheck reports as "Missing wait". */
#define SW_ARRIVALS_MAX ((1u << 20) - 1)

/* This warp is done with the stage of `bar`. */
__device__ __forceinline__ void sw_release_stage(uint32_t bar)
{
    if (SW_ARRIVES(0)) sw_mbar_arrive(bar);
}

#endif
