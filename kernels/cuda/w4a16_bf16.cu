/* w4a16_bf16.cu - the W4A16 wgmma kernels for X and Y in bf16, one for each tile and group cut. */
#include "kernels/cuda/w4a16_kernels.h"
#include "kernels/cuda/w4a16_wgmma.cuh"

/* By tile, cut, and whether there are zero points. */
static const w4_kernel kernels[][3][2] = {
#define SW_W4_ENTRY(T, MT, NWG, GPS, ST, PER_SM, SCALED, ZEROS)                         \
    {(const void *)swk_w4a16_wgmma_sm90<T, MT, NWG, GPS, ST, PER_SM, SCALED, true, ZEROS>, \
     w4_shared_bytes<T, MT, NWG, GPS, ST>(), NWG * 128 + w4_copy_threads(PER_SM)}
#define SW_W4_BOTH(T, MT, NWG, GPS, ST, PER_SM, SCALED) \
    {SW_W4_ENTRY(T, MT, NWG, GPS, ST, PER_SM, SCALED, false), \
     SW_W4_ENTRY(T, MT, NWG, GPS, ST, PER_SM, SCALED, true)}
#define SW_W4_TILE(name, T, MT, NWG, ST, PER_SM, SCALED)                             \
    {SW_W4_BOTH(T, MT, NWG, 1, ST, PER_SM, SCALED), SW_W4_BOTH(T, MT, NWG, 2, ST, PER_SM, SCALED), \
     SW_W4_BOTH(T, MT, NWG, 4, ST, PER_SM, SCALED)},
#include "kernels/cuda/w4a16_tiles.def"
#undef SW_W4_TILE
#undef SW_W4_BOTH
#undef SW_W4_ENTRY
};

extern "C" const w4_kernel *sw_w4a16_kernel_bf16(int tile, int cut, bool has_zeros)
{
    return &kernels[tile][cut][has_zeros];
}
