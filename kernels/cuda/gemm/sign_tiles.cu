/* sign_tiles.cu - see sign_tiles.h. */
#include <cuda_runtime.h>

#include "kernels/cuda/gemm/code_words.cuh"
#include "kernels/cuda/gemm/sign_tiles.h"

struct signs {
    /* Of eight codes whose zero point is 8. Of a negative one, below 8, the lower bits are turned
     * round: 7 - code. */
    static __device__ uint32_t of(uint32_t codes)
    {
        uint32_t negative = ~codes & 0x88888888u;

        return ((codes & 0x77777777u) ^ (negative >> 3) * 7) |
               __funnelshift_l(negative, negative, 4);
    }
};

static bool suits(const sw_tiles *tiles, const sw_act *act, const sw_cuda_device *device)
{
    return tiles->codes && device->sm == 90 && !tiles->is_marlin && !tiles->is_sign_magnitude &&
           sw_cuda_weights_of(tiles) == SW_CUDA_W_INT4 && tiles->spec.is_symmetric &&
           tiles->spec.group_elems % 128 == 0 && sw_cuda_inputs_of(act) == SW_CUDA_X_E4M3;
}

extern "C" sw_code sw_sign_tiles_order(sw_tiles *d_tiles, const sw_act *act,
                                       const sw_cuda_device *device, void *stream, sw_err *err)
{
    /* Tiles without codes may have no kind either. */
    if (!suits(d_tiles, act, device)) return SW_OK;
    return sw_map_words<signs>(d_tiles, &d_tiles->is_sign_magnitude, stream, err);
}
