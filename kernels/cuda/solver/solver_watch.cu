/* solver_watch.cu - how large inputs get, seen as they pass. See kernels/solver.h.
 *
 * Counts are whole numbers and maxima know no order, so atomics on them give the same bytes always;
 * sums of a channel go through its tokens one after the other.
 */
#include "kernels/cuda/solver/solver_math.cuh"

#define BF16_LOWEST ((127 + SW_MAGNITUDE_LOWEST_OCTAVE) << 7) /* bits of the first magnitude */

static __device__ float bf16_at(const uint16_t *x, int64_t at)
{
    return __uint_as_float((uint32_t)x[at] << 16);
}

/* 64 threads, a channel each. What is not finite becomes an infinity. */
__global__ void swk_watch_sizes(float *most, double *sum, const uint16_t *x, int64_t stride,
                                int64_t n, int64_t k)
{
    int64_t c = (int64_t)blockIdx.x * 64 + threadIdx.x;
    float top;
    double total;

    if (c >= k) return;
    top = most[c];
    total = sum ? sum[c] : 0.0;
#pragma unroll 8
    for (int64_t t = 0; t < n; t++) {
        float size = fabsf(bf16_at(x, t * stride + c));
        top = size <= top ? top : size < INFINITY ? size : INFINITY;
        total += (double)size;
    }
    most[c] = top;
    if (sum) sum[c] = total;
}

extern "C" sw_code sw_solver_watch_sizes(sw_solver *s, float *d_max, double *d_sum, const void *d_x,
                                         int64_t stride, int64_t n, int64_t k, sw_err *err)
{
    swk_watch_sizes<<<blocks_for(k, 64), 64, 0, s->stream>>>(d_max, d_sum, (const uint16_t *)d_x,
                                                            stride, n, k);
    return launched("swk_watch_sizes", err);
}

/* Any grid of rows, 256 threads. */
__global__ void swk_watch_magnitudes(unsigned long long *counts, uint32_t *most, const uint16_t *x,
                                     int64_t stride, int64_t n, int64_t k)
{
    __shared__ uint32_t s_counts[SW_MAGNITUDES], s_most;
    uint32_t top = 0;

    for (int i = threadIdx.x; i < SW_MAGNITUDES; i += 256) s_counts[i] = 0;
    if (threadIdx.x == 0) s_most = 0;
    __syncthreads();
    for (int64_t row = blockIdx.x; row < n; row += gridDim.x)
        for (int64_t c = threadIdx.x; c < k; c += 256) {
            uint32_t bits = x[row * stride + c] & 0x7fffu;
            int at = (int)bits - BF16_LOWEST;
            if (!bits) continue;
            top = max(top, bits);
            atomicAdd(&s_counts[min(max(at, 0), SW_MAGNITUDES - 1)], 1u);
        }
    atomicMax(&s_most, top);
    __syncthreads();
    for (int i = threadIdx.x; i < SW_MAGNITUDES; i += 256)
        if (s_counts[i]) atomicAdd(&counts[i], (unsigned long long)s_counts[i]);
    if (threadIdx.x == 0) atomicMax(most, s_most);
}

extern "C" sw_code sw_solver_watch_magnitudes(sw_solver *s, int64_t *d_counts, uint32_t *d_most,
                                              const void *d_x, int64_t stride, int64_t n,
                                              int64_t k, sw_err *err)
{
    unsigned grid = blocks_for(n, 16);

    if (n <= 0) return SW_OK;
    swk_watch_magnitudes<<<grid, 256, 0, s->stream>>>((unsigned long long *)d_counts, d_most,
                                                     (const uint16_t *)d_x, stride, n, k);
    return launched("swk_watch_magnitudes", err);
}

/* grid (rows), 256 threads. */
__global__ void swk_watch_take(float *to, const uint16_t *x, int64_t stride, int64_t first,
                               int64_t every, int64_t k)
{
    int64_t row = blockIdx.x;

    for (int64_t c = threadIdx.x; c < k; c += 256)
        to[row * k + c] = bf16_at(x, (first + row * every) * stride + c);
}

extern "C" sw_code sw_solver_watch_take(sw_solver *s, float *d_to, const void *d_x, int64_t stride,
                                        int64_t first, int64_t every, int64_t n, int64_t k,
                                        sw_err *err)
{
    if (n <= 0) return SW_OK;
    swk_watch_take<<<(unsigned)n, 256, 0, s->stream>>>(d_to, (const uint16_t *)d_x, stride, first,
                                                      every, k);
    return launched("swk_watch_take", err);
}
