/* engine_glu.cuh - what a feed-forward layer does to its gates. */
#ifndef SW_KERNELS_CUDA_OPS_ENGINE_GLU_CUH
#define SW_KERNELS_CUDA_OPS_ENGINE_GLU_CUH

#include <math.h>

#include "formats/model/model.h"

static __device__ __forceinline__ float sw_act_of(int act, float g, float limit)
{
    const float tanh_in = 0.7978845608028654f * (g + 0.044715f * g * g * g);

    if (act == SW_MLP_SILU) return g / (1.0f + expf(-g));
    if (act == SW_MLP_GELU) return 0.5f * g * (1.0f + erff(g * 0.7071067811865476f));
    if (act == SW_MLP_GELU_TANH) return 0.5f * g * (1.0f + tanhf(tanh_in));
    if (act == SW_MLP_RELU) return g > 0.0f ? g : 0.0f;
    g = fminf(g, limit);
    return g / (1.0f + expf(-1.702f * g));
}

/* act(g) * u, as `act`, an sw_mlp_act, has it. */
static __device__ __forceinline__ float sw_glu_of(int act, float g, float u, float limit)
{
    if (act == SW_MLP_SWIGLU_CLAMPED) u = fminf(fmaxf(u, -limit), limit) + 1.0f;
    return sw_act_of(act, g, limit) * u;
}

/* Both with the square of relu as well, which products do not take along: here a choice more costs
 * nothing. */
static __device__ __forceinline__ float sw_any_act_of(int act, float g, float limit)
{
    if (act == SW_MLP_RELU_SQUARED) return g > 0.0f ? g * g : 0.0f;
    return sw_act_of(act, g, limit);
}

static __device__ __forceinline__ float sw_any_glu_of(int act, float g, float u, float limit)
{
    if (act == SW_MLP_RELU_SQUARED) return sw_any_act_of(act, g, limit) * u;
    return sw_glu_of(act, g, u, limit);
}

#endif
