/* gpu_ref.cu - the product that the device kernels must give, in double, from the logical codes. */
#include <cuda_runtime.h>

#include "tests/gpu/support/gpu_ref.h"

/* grid (n, m / 8), 32 threads: one channel, 8 tokens; lanes share k. */
static __global__ void ref_gemm(double *y, gpu_ref_args a)
{
    int64_t n = (int64_t)blockIdx.x * a.n_step, m0 = (int64_t)blockIdx.y * 8;
    double sum[8] = {};

    for (int64_t k = threadIdx.x; k < a.k_in; k += 32) {
        int64_t g = n * a.n_groups + k / a.group_elems;
        double zero = a.zeros ? (double)a.zeros[g] : 0;
        double w = (double)a.scales[g] * ((double)a.values[a.codes[n * a.k_in + k]] - zero);

        for (int i = 0; i < 8 && m0 + i < a.m; i++) {
            double x = (double)a.x[(m0 + i) * a.k_in + k];

            if (a.x_scales) x *= (double)a.x_scales[k / a.x_group_elems * a.m + m0 + i];
            sum[i] += w * x;
        }
    }
    for (int i = 0; i < 8 && m0 + i < a.m; i++) {
        for (int d = 16; d; d /= 2) sum[i] += __shfl_down_sync(~0u, sum[i], d);
        if (threadIdx.x == 0) y[(m0 + i) * gridDim.x + blockIdx.x] = sum[i];
    }
}

extern "C" int gpu_ref_gemm(double *d_y, const gpu_ref_args *args)
{
    dim3 grid((unsigned)((args->n_out + args->n_step - 1) / args->n_step),
              (unsigned)((args->m + 7) / 8));

    ref_gemm<<<grid, 32>>>(d_y, *args);
    return cudaGetLastError() != cudaSuccess || cudaDeviceSynchronize() != cudaSuccess;
}

/* Any grid, 512 threads: 16 bytes a thread, four in flight. */
static __global__ void copy16(uint4 *to, const uint4 *from, int64_t n)
{
    int64_t step = (int64_t)gridDim.x * blockDim.x;

    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += 4 * step) {
        uint4 v[4];

        for (int j = 0; j < 4; j++)
            if (i + j * step < n) v[j] = from[i + j * step];
        for (int j = 0; j < 4; j++)
            if (i + j * step < n) to[i + j * step] = v[j];
    }
}

extern "C" int gpu_ref_copy(void *d_to, const void *d_from, int64_t n_bytes, void *stream)
{
    copy16<<<132 * 16, 512, 0, (cudaStream_t)stream>>>((uint4 *)d_to, (const uint4 *)d_from,
                                                      n_bytes / 16);
    return cudaGetLastError() != cudaSuccess;
}
