/* w4a16_table.cuh - the W4A16 wgmma kernels of one type of X and Y, by tile, cut, and whether there
 * are zero points. Included once a type, with SW_W4_BF16 true or false. */
#include "kernels/cuda/w4a16_kernels.h"
#include "kernels/cuda/w4a16_wgmma.cuh"

static const w4_kernel kernels[][3][2] = {
#define SW_W4_ENTRY(T, MT, NWG, GPS, ST, PER_SM, SCALED, ZEROS)                                  \
    {(const void *)swk_w4a16_wgmma_sm90<T, MT, NWG, GPS, ST, PER_SM, SCALED, SW_W4_BF16, ZEROS>, \
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
