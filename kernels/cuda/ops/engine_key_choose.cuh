/* engine_key_choose.cuh - which keys a query sees before any is chosen. See engine_chosen.h. */
#ifndef SW_KERNELS_CUDA_OPS_ENGINE_KEY_CHOOSE_CUH
#define SW_KERNELS_CUDA_OPS_ENGINE_KEY_CHOOSE_CUH

#include "kernels/cuda/ops/engine_chosen.h"
#include "kernels/engine/sparse/key_digits.h"

/* How many, for row t of the call. */
static __device__ __forceinline__ int64_t sw_keys_before(const sw_choice_args &a, int64_t t)
{
    const int64_t seen = (a.first ? a.first[t / a.seq_len] : 0) + t % a.seq_len + 1;

    return seen < a.capacity ? seen : a.capacity;
}

#endif
