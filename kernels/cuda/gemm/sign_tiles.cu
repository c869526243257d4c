/* sign_tiles.cu - see sign_tiles.h. */
#include <cuda_runtime.h>

#include "kernels/cuda/gemm/gemm_rows.h"
#include "kernels/cuda/gemm/sign_tiles.h"

#define THREADS 256

/* Of eight codes whose zero point is 8. Of a negative one, below 8, the lower bits are turned
 * round: 7 - code. */
static __device__ uint32_t signs_of(uint32_t codes)
{
    uint32_t negative = ~codes & 0x88888888u;

    return ((codes & 0x77777777u) ^ (negative >> 3) * 7) | __funnelshift_l(negative, negative, 4);
}

/* grid: count / THREADS, rounded up; `count` of 16 bytes. */
static __global__ void __launch_bounds__(THREADS) swk_order_signs(uint4 *codes, int64_t count)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    uint4 v;

    if (i >= count) return;
    v = codes[i];
    codes[i] = make_uint4(signs_of(v.x), signs_of(v.y), signs_of(v.z), signs_of(v.w));
}

static bool suits(const sw_tiles *tiles, const sw_act *act, const sw_cuda_device *device)
{
    return tiles->codes && device->sm == 90 && !tiles->is_marlin && !tiles->is_sign_magnitude &&
           sw_cuda_weights_of(tiles) == SW_CUDA_W_INT4 && tiles->spec.is_symmetric &&
           tiles->spec.group_elems % 128 == 0 && sw_cuda_inputs_of(act) == SW_CUDA_X_E4M3;
}

extern "C" sw_code sw_sign_tiles_order(sw_tiles *d_tiles, const sw_act *act,
                                       const sw_cuda_device *device, void *stream, sw_err *err)
{
    int64_t count = sw_tiles_n(d_tiles->n_out) * sw_tiles_k(d_tiles->k_in) *
                    (sw_tile_bytes(4) / 16);

    /* Tiles without codes may have no kind either. */
    if (!suits(d_tiles, act, device) || count == 0) return SW_OK;
    d_tiles->is_sign_magnitude = true;
    swk_order_signs<<<(unsigned)sw_cuda_up(count, THREADS), THREADS, 0, (cudaStream_t)stream>>>(
        (uint4 *)(uintptr_t)d_tiles->codes, count);
    return sw_cuda_check(cudaGetLastError(), "swk_order_signs", err);
}
