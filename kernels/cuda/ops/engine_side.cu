/* engine_side.cu - what a token has beside its row of the residual stream: inputs of single layers,
 * keys and values that are kept, copies of the stream. See engine_family.h; kernels/engine/side.c
 * and copies.c for the sources of the method.
 */
#include <math.h>

#include "kernels/cuda/gemm/glu.cuh"
#include "kernels/cuda/ops/engine_family.h"
#include "kernels/cuda/ops/engine_launch.cuh"

#define N_THREADS 256
#define FLOOR 1e-5f /* of a mean square that divides */

/* ---- floats and BF16 ---- */

static __device__ __forceinline__ void put(float *to, sw_bf16 from) { *to = sw_float(from); }
static __device__ __forceinline__ void put(sw_bf16 *to, float from) { *to = sw_round16(from); }

template <class Dst, class Src>
static __global__ void swk_convert_rows(Dst dst, Src src, int64_t n, int64_t width)
{
    const int64_t at = blockIdx.x * (int64_t)N_THREADS + threadIdx.x;

    sw_begin();
    if (at >= n * width) return;
    put(&dst.d[at / width * dst.stride + at % width], src.d[at / width * src.stride + at % width]);
}

extern "C" sw_code sw_cuda_widen(sw_f32_rows dst, sw_bf16_rows src, int64_t n, int64_t width,
                                 sw_launch how, sw_err *err)
{
    return sw_start("side rows", swk_convert_rows<sw_f32_rows, sw_bf16_rows>,
                    sw_blocks(n * width, N_THREADS), N_THREADS, 0, how, err, dst, src, n, width);
}

extern "C" sw_code sw_cuda_narrow(sw_bf16_rows dst, sw_f32_rows src, int64_t n, int64_t width,
                                  sw_launch how, sw_err *err)
{
    return sw_start("side rows", swk_convert_rows<sw_bf16_rows, sw_f32_rows>,
                    sw_blocks(n * width, N_THREADS), N_THREADS, 0, how, err, dst, src, n, width);
}

/* ---- inputs of single layers ---- */

/* grid (rows, layers) */
static __global__ void swk_side(sw_side_args a)
{
    __shared__ float s_part[32];
    const int64_t row = blockIdx.x, wide = a.n_layers * a.width, at = blockIdx.y * a.width;
    float sum = 0;

    sw_begin();
    const uint32_t id = a.ids[row];
    const float *made = a.made + row * wide + at;
    const sw_bf16 *table = a.table + ((int64_t)id < a.n_rows ? (int64_t)id : 0) * wide + at;
    float *side = a.side.d + row * a.side.stride + at;

    for (int64_t i = threadIdx.x; i < a.width; i += blockDim.x)
        sum += made[i] * a.scale * (made[i] * a.scale);
    const float scale =
        a.scale / sqrtf(sw_block_sum(sum, s_part) / (float)a.width + a.eps);
    const float root = sqrtf((float)a.width);

    for (int64_t i = threadIdx.x; i < a.width; i += blockDim.x)
        side[i] = (made[i] * scale * a.norm[i] + sw_float(table[i]) * root) * 0.70710678118654752f;
}

extern "C" sw_code sw_cuda_side(const sw_side_args *a, sw_launch how, sw_err *err)
{
    return sw_start("inputs of layers", swk_side, dim3((unsigned)a->n, (unsigned)a->n_layers), 64,
                    0, how, err, *a);
}

static __global__ void swk_side_gate(sw_bf16_rows g, sw_f32_rows side, int act, float limit,
                                     int64_t n, int64_t width)
{
    const int64_t at = blockIdx.x * (int64_t)N_THREADS + threadIdx.x;

    sw_begin();
    if (at >= n * width) return;
    sw_bf16 *to = g.d + at / width * g.stride + at % width;

    *to = sw_round16(sw_any_act_of(act, sw_float(*to), limit) *
                     side.d[at / width * side.stride + at % width]);
}

extern "C" sw_code sw_cuda_side_gate(sw_bf16_rows g, sw_f32_rows side, int act, float limit,
                                     int64_t n, int64_t width, sw_launch how, sw_err *err)
{
    return sw_start("inputs of layers", swk_side_gate, sw_blocks(n * width, N_THREADS), N_THREADS,
                    0, how, err, g, side, act, limit, n, width);
}

/* ---- copies ---- */

struct copies_state {
    float part[32], modes[SW_COPIES_MAX], coefs[SW_COPIES_MAX * SW_COPIES_MAX];
};

/* s.coefs [n_out] of the row of x, by a block. */
static __device__ void find_coefs(copies_state &s, const sw_copies_args &a, int n_out)
{
    const float *x = a.x + blockIdx.x * a.width;
    float square = 0, dots[SW_COPIES_MAX] = {};

    for (int64_t i = threadIdx.x; i < a.width; i += blockDim.x) {
        const float v = x[i] * a.norm[i];

        square += x[i] * x[i];
#pragma unroll
        for (int k = 0; k < SW_COPIES_MAX; k++)
            if (k < a.n_copies) dots[k] += v * sw_float(a.router[k * a.width + i]);
    }
    const float scale = 1.0f / sqrtf(sw_block_sum(square, s.part) / (float)a.width + a.eps);

#pragma unroll
    for (int k = 0; k < SW_COPIES_MAX; k++) {
        if (k >= a.n_copies) break;
        const float dot = sw_block_sum(dots[k], s.part);

        if (threadIdx.x == 0) s.modes[k] = tanhf(dot * scale / (float)a.width);
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < n_out; i += (int)blockDim.x) {
        float sum = 0;

        for (int k = 0; k < a.n_copies; k++)
            sum += sw_float(a.coefs[i * a.n_copies + k]) * s.modes[k];
        s.coefs[i] = sum;
    }
    __syncthreads();
}

/* grid (rows): copy i becomes itself and the sum over k of coefs[i, k] copy k */
static __global__ void swk_predict(sw_copies_args a)
{
    __shared__ copies_state s;
    const int n = a.n_copies;

    sw_begin();
    float *x = a.x + blockIdx.x * a.width, *copies = a.copies.d + blockIdx.x * a.copies.stride;

    find_coefs(s, a, n * n);
    for (int64_t d = threadIdx.x; d < a.width; d += blockDim.x) {
        float old[SW_COPIES_MAX];

#pragma unroll
        for (int i = 0; i < SW_COPIES_MAX; i++)
            old[i] = i == 0 ? x[d] : i < n ? copies[i * a.width + d] : 0.0f;
#pragma unroll
        for (int i = 0; i < SW_COPIES_MAX; i++) {
            if (i >= n) break;
            float sum = 0;

#pragma unroll
            for (int k = 0; k < SW_COPIES_MAX; k++)
                if (k < n) sum += s.coefs[i * n + k] * old[k];
            copies[i * a.width + d] = old[i] + sum;
            if (i == 0) x[d] = old[0] + sum;
        }
    }
}

extern "C" sw_code sw_cuda_predict(const sw_copies_args *a, sw_launch how, sw_err *err)
{
    return sw_start("copies", swk_predict, (unsigned)a->n, N_THREADS, 0, how, err, *a);
}

/* grid (rows): every copy moves by its share of what x has gained over the guess */
static __global__ void swk_correct(sw_copies_args a)
{
    __shared__ copies_state s;

    sw_begin();
    float *x = a.x + blockIdx.x * a.width, *copies = a.copies.d + blockIdx.x * a.copies.stride;

    find_coefs(s, a, a.n_copies);
    for (int64_t d = threadIdx.x; d < a.width; d += blockDim.x) {
        const float gain = x[d] - copies[d];

        for (int i = 0; i < a.n_copies; i++)
            copies[i * a.width + d] += (s.coefs[i] + 1.0f) * gain;
        x[d] = copies[d];
    }
}

extern "C" sw_code sw_cuda_correct(const sw_copies_args *a, sw_launch how, sw_err *err)
{
    return sw_start("copies", swk_correct, (unsigned)a->n, N_THREADS, 0, how, err, *a);
}

/* grid (rows) */
static __global__ void swk_add_copies(sw_copies_args a, sw_bf16_rows src)
{
    sw_begin();
    float *copies = a.copies.d + blockIdx.x * a.copies.stride;
    const sw_bf16 *from = src.d + blockIdx.x * src.stride;

    for (int64_t d = threadIdx.x; d < a.width; d += blockDim.x)
        for (int i = 1; i < a.n_copies; i++) copies[i * a.width + d] += sw_float(from[d]);
}

extern "C" sw_code sw_cuda_add_copies(const sw_copies_args *a, sw_bf16_rows src, sw_launch how,
                                      sw_err *err)
{
    return sw_start("copies", swk_add_copies, (unsigned)a->n, N_THREADS, 0, how, err, *a, src);
}

/* grid (rows) */
static __global__ void swk_match(sw_f32_rows dst, sw_bf16_rows src, const float *all, int64_t width)
{
    __shared__ float s_part[32];
    const float *x = all + blockIdx.x * width;
    const sw_bf16 *from = src.d + blockIdx.x * src.stride;
    float want = 0, have = 0;

    sw_begin();
    for (int64_t i = threadIdx.x; i < width; i += blockDim.x) {
        const float v = sw_float(from[i]);

        want += x[i] * x[i];
        have += v * v;
    }
    want = sw_block_sum(want, s_part) / (float)width;
    have = fmaxf(sw_block_sum(have, s_part) / (float)width, FLOOR);
    const float scale = sqrtf(want / have);

    for (int64_t i = threadIdx.x; i < width; i += blockDim.x)
        dst.d[blockIdx.x * dst.stride + i] = sw_float(from[i]) * scale;
}

extern "C" sw_code sw_cuda_match(sw_f32_rows dst, sw_bf16_rows src, const float *x, int64_t n,
                                 int64_t width, sw_launch how, sw_err *err)
{
    return sw_start("copies", swk_match, (unsigned)n, N_THREADS, 0, how, err, dst, src, x, width);
}

/* grid (rows) */
static __global__ void swk_merge(sw_copies_args a)
{
    sw_begin();
    float *x = a.x + blockIdx.x * a.width;
    const float *copies = a.copies.d + blockIdx.x * a.copies.stride;

    for (int64_t d = threadIdx.x; d < a.width; d += blockDim.x) {
        float sum = x[d];

        for (int i = 1; i < a.n_copies; i++) sum += copies[i * a.width + d];
        x[d] = sum / (float)a.n_copies;
    }
}

extern "C" sw_code sw_cuda_merge(const sw_copies_args *a, sw_launch how, sw_err *err)
{
    return sw_start("copies", swk_merge, (unsigned)a->n, N_THREADS, 0, how, err, *a);
}
