/* e2m1_tiles.cu - see e2m1_tiles.h. */
#include <cuda_runtime.h>

#include "kernels/cuda/gemm/code_words.cuh"
#include "kernels/cuda/gemm/e2m1_tiles.h"

/* Where code j of a half of a word has its bits, in that half or, of code 3, in the other. */
static __device__ uint32_t place_of(uint32_t code, int j)
{
    if (j < 3) return (code & 8) << (12 - 3 * j) | (code & 7) << (6 - 3 * j);
    return (code & 12) << 8 | (code & 3) << 13;
}

struct spread {
    static __device__ uint32_t of(uint32_t codes)
    {
        uint32_t word = 0;

        for (int i = 0; i < 8; i++) {
            const int j = i % 4, half = j == 3 ? 1 - i / 4 : i / 4;

            word |= place_of(codes >> 4 * i & 15, j) << 16 * half;
        }
        return word;
    }
};

static bool suits(const sw_tiles *tiles, const sw_act *act, const sw_cuda_device *device)
{
    return tiles->codes && device->sm == 90 && !tiles->is_marlin && !tiles->is_e2m1_spread &&
           tiles->spec.num == &sw_nums[SW_NUM_E2M1] && act->scope == SW_ACT_NONE;
}

extern "C" sw_code sw_e2m1_tiles_order(sw_tiles *d_tiles, const sw_act *act,
                                       const sw_cuda_device *device, void *stream, sw_err *err)
{
    /* Tiles without codes may have no kind either. */
    if (!suits(d_tiles, act, device)) return SW_OK;
    return sw_map_words<spread>(d_tiles, &d_tiles->is_e2m1_spread, stream, err);
}
