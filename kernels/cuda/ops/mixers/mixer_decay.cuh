/* mixer_decay.cuh - how much of its state a mixer keeps, on the device: what
 * kernels/engine/mixers/gates.h has, in FP32. */
#ifndef SW_KERNELS_CUDA_OPS_MIXERS_MIXER_DECAY_CUH
#define SW_KERNELS_CUDA_OPS_MIXERS_MIXER_DECAY_CUH

#define SW_SOFTPLUS_IS_LINEAR 20.0f /* from here on ln(1 + e^x) is x to FP32's precision */

static __device__ __forceinline__ float sw_softplus_of(float x)
{
    return x > SW_SOFTPLUS_IS_LINEAR ? x : log1pf(expf(x));
}

/* exp(-rate * softplus(x)); rate: exp(a_log) */
static __device__ __forceinline__ float sw_decay_of(float rate, float x)
{
    return expf(-rate * sw_softplus_of(x));
}

#endif
