/* mixer_gate.cuh - the norm and the gate behind a recurrent mixer. See mixers.h. */
#ifndef SW_KERNELS_CUDA_OPS_MIXERS_MIXER_GATE_CUH
#define SW_KERNELS_CUDA_OPS_MIXERS_MIXER_GATE_CUH

#include "kernels/cuda/ops/mixers/mixer_conv.cuh"

static __device__ float sw_gate_of(const sw_gate_args &g, float z)
{
    const float s = sw_sigmoid_of(z);

    return g.is_sigmoid ? s : z * s;
}

/* What the norm is taken of, and what it comes to; scale: 1 / sqrt(mean(y^2) + eps). */
static __device__ float sw_gate_before(const sw_gate_args &g, float x, float z)
{
    return g.gates_first || !g.w ? x * sw_gate_of(g, z) : x;
}

static __device__ float sw_gate_after(const sw_gate_args &g, float y, float scale, float z,
                                      int64_t channel)
{
    if (!g.w) return y;
    y *= scale * g.w[(uint32_t)channel % (uint32_t)g.w_width]; /* 64 bits take 10 times as long */
    return g.gates_first ? y : y * sw_gate_of(g, z);
}

/* One run of `group` channels of a row of `out`, in place, by all threads of a block. Other blocks
 * of this launch may have written it: it is read past the first cache. */
static __device__ void sw_gate_group(const sw_gate_args &g, sw_bf16_rows out, int64_t row,
                                     int64_t first, float *s_part)
{
    unsigned short *x = out.d + row * out.stride + first;
    float sum = 0;

    for (int64_t i = threadIdx.x; i < g.group; i += blockDim.x) {
        const float z = sw_mixer_load(g.z, row, first + i);
        const float y = sw_gate_before(g, sw_float(__ldcg(x + i)), z);

        sum += y * y;
    }
    const float scale = 1.0f / sqrtf(sw_block_sum(sum, s_part) / (float)g.group + g.eps);

    for (int64_t i = threadIdx.x; i < g.group; i += blockDim.x) {
        const float z = sw_mixer_load(g.z, row, first + i);
        const float y = sw_gate_before(g, sw_float(__ldcg(x + i)), z);

        x[i] = sw_round16(sw_gate_after(g, y, scale, z, first + i));
    }
}

/* grid (rows, groups) */
static __global__ void swk_mixer_gate(sw_gate_args g, sw_bf16_rows out)
{
    __shared__ float s_part[32];

    sw_begin();
    sw_gate_group(g, out, blockIdx.x, blockIdx.y * g.group, s_part);
}

#endif
