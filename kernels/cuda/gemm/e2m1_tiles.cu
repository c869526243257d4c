/* e2m1_tiles.cu - see e2m1_tiles.h. */
#include <cuda_runtime.h>

#include "kernels/cuda/gemm/e2m1_tiles.h"
#include "kernels/cuda/gemm/gemm_rows.h"

#define THREADS 256

/* Where code j of a half of a word has its bits, in that half or, of code 3, in the other. */
static __device__ uint32_t place_of(uint32_t code, int j)
{
    if (j < 3) return (code & 8) << (12 - 3 * j) | (code & 7) << (6 - 3 * j);
    return (code & 12) << 8 | (code & 3) << 13;
}

static __device__ uint32_t spread_of(uint32_t codes)
{
    uint32_t word = 0;

    for (int i = 0; i < 8; i++) {
        const int j = i % 4, half = j == 3 ? 1 - i / 4 : i / 4;

        word |= place_of(codes >> 4 * i & 15, j) << 16 * half;
    }
    return word;
}

/* grid: count / THREADS, rounded up; `count` of 16 bytes. */
static __global__ void __launch_bounds__(THREADS) swk_spread_e2m1(uint4 *codes, int64_t count)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    uint4 v;

    if (i >= count) return;
    v = codes[i];
    codes[i] = make_uint4(spread_of(v.x), spread_of(v.y), spread_of(v.z), spread_of(v.w));
}

static bool suits(const sw_tiles *tiles, const sw_act *act, const sw_cuda_device *device)
{
    return tiles->codes && device->sm == 90 && !tiles->is_marlin && !tiles->is_e2m1_spread &&
           tiles->spec.num == &sw_nums[SW_NUM_E2M1] && act->scope == SW_ACT_NONE;
}

extern "C" sw_code sw_e2m1_tiles_order(sw_tiles *d_tiles, const sw_act *act,
                                       const sw_cuda_device *device, void *stream, sw_err *err)
{
    int64_t count = sw_tiles_n(d_tiles->n_out) * sw_tiles_k(d_tiles->k_in) *
                    (sw_tile_bytes(4) / 16);

    /* Tiles without codes may have no kind either. */
    if (!suits(d_tiles, act, device) || count == 0) return SW_OK;
    d_tiles->is_e2m1_spread = true;
    swk_spread_e2m1<<<(unsigned)sw_cuda_up(count, THREADS), THREADS, 0, (cudaStream_t)stream>>>(
        (uint4 *)(uintptr_t)d_tiles->codes, count);
    return sw_cuda_check(cudaGetLastError(), "swk_spread_e2m1", err);
}
