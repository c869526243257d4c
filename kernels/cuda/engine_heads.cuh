/* engine_heads.cuh - what happens to a head of q or k before attention. */
#ifndef SW_KERNELS_CUDA_ENGINE_HEADS_CUH
#define SW_KERNELS_CUDA_ENGINE_HEADS_CUH

#include "kernels/cuda/engine_launch.cuh"

#define HEAD_DIM_MAX 256

/* One head [head_dim] in shared memory, by one warp: norm, turn. */
static __device__ void sw_prepare_head(float *s_head, const sw_heads_args &a, const float *norm,
                                    int64_t position)
{
    const int lane = threadIdx.x % 32, dim = a.head_dim, half = a.rope_dim / 2;

    if (norm) {
        float sum = 0;

        for (int i = lane; i < dim; i += 32) sum += s_head[i] * s_head[i];
        const float scale = 1.0f / sqrtf(sw_warp_sum(sum) / (float)dim + a.eps);

        for (int i = lane; i < dim; i += 32) s_head[i] *= scale * norm[i];
        __syncwarp();
    }
    for (int i = lane; a.cos && i < half; i += 32) {
        const int one = a.rope_at + (a.is_paired ? 2 * i : i);
        const int two = a.is_paired ? one + 1 : one + half;
        const float c = a.cos[position * half + i], s = a.sin[position * half + i];
        const float x = s_head[one], y = s_head[two];

        s_head[one] = x * c - y * s;
        s_head[two] = y * c + x * s;
    }
    __syncwarp();
}

/* A head of BF16 into shared memory as floats; a warp. */
static __device__ void sw_load_head(float *s_head, const sw_bf16 *from, int dim)
{
    for (int i = (int)(threadIdx.x % 32) * 2; i < dim; i += 64) {
        const uint32_t two = *(const uint32_t *)(from + i);

        s_head[i] = __uint_as_float(two << 16);
        s_head[i + 1] = __uint_as_float(two & 0xffff0000u);
    }
    __syncwarp();
}

static __device__ void sw_store_head(sw_bf16 *to, const float *s_head, int dim)
{
    for (int i = (int)(threadIdx.x % 32) * 2; i < dim; i += 64)
        *(uint32_t *)(to + i) = sw_pack2(s_head[i], s_head[i + 1]);
}

static __device__ void sw_move_head(sw_bf16 *to, const sw_bf16 *from, int dim)
{
    for (int i = (int)(threadIdx.x % 32) * 2; i < dim; i += 64)
        *(uint32_t *)(to + i) = *(const uint32_t *)(from + i);
}

#endif
