/* glu.cuh - what a feed-forward layer does to its gates. */
#ifndef SW_KERNELS_CUDA_GEMM_GLU_CUH
#define SW_KERNELS_CUDA_GEMM_GLU_CUH

#include <math.h>

#include "formats/model/model.h"

/* Each has a row in formats/model/activations.def. */
static __device__ __forceinline__ float sw_act_silu(float g) { return g / (1.0f + expf(-g)); }
static __device__ __forceinline__ float sw_act_gelu(float g)
{
    return 0.5f * g * (1.0f + erff(g * 0.7071067811865476f));
}
static __device__ __forceinline__ float sw_act_gelu_tanh(float g)
{
    return 0.5f * g * (1.0f + tanhf(0.7978845608028654f * (g + 0.044715f * g * g * g)));
}
static __device__ __forceinline__ float sw_act_relu(float g) { return g > 0.0f ? g : 0.0f; }
static __device__ __forceinline__ float sw_act_relu_squared(float g)
{
    return g > 0.0f ? g * g : 0.0f;
}

/* The square of relu is left to sw_any_act_of. */
static __device__ __forceinline__ float sw_act_of(int act, float g, float limit)
{
#define SW_ACTIVATION(id, symbol)                                                                  \
    if (SW_MLP_##id != SW_MLP_RELU_SQUARED && act == SW_MLP_##id) return sw_act_##symbol(g);
#define SW_ACTIVATION_NAME(name, id)
#include "formats/model/activations.def"
#undef SW_ACTIVATION
#undef SW_ACTIVATION_NAME
    g = fminf(g, limit);
    return g / (1.0f + expf((act == SW_MLP_SILU_CLAMPED ? -1.0f : -1.702f) * g));
}

/* act(g) * u, as `act`, an sw_mlp_act, has it. */
static __device__ __forceinline__ float sw_glu_of(int act, float g, float u, float limit)
{
    if (act >= SW_MLP_SILU_CLAMPED)
        u = fminf(fmaxf(u, -limit), limit) + (act == SW_MLP_SWIGLU_CLAMPED ? 1.0f : 0.0f);
    return sw_act_of(act, g, limit) * u;
}

/* Both with the square of relu as well, which products do not take along: here a choice more costs
 * nothing. */
static __device__ __forceinline__ float sw_any_act_of(int act, float g, float limit)
{
    if (act == SW_MLP_RELU_SQUARED) return sw_act_relu_squared(g);
    return sw_act_of(act, g, limit);
}

static __device__ __forceinline__ float sw_any_glu_of(int act, float g, float u, float limit)
{
    if (act == SW_MLP_RELU_SQUARED) return sw_any_act_of(act, g, limit) * u;
    return sw_glu_of(act, g, u, limit);
}

#endif
