/* a8_table.cuh - the byte kernels of one kind of weights, by tile and whether scales change along
 * k. Included once a kind, with SW_A8_KIND. */
#include "kernels/cuda/a8_wgmma.cuh"

static const a8_kernel kernels[][2] = {
#define SW_A8_ENTRY(T, MT, NWG, ST, PER_SM, COPIERS, GROUPED)                           \
    {(const void *)swk_a8_wgmma_sm90<SW_A8_KIND, T, MT, NWG, ST, PER_SM, COPIERS,       \
                                     GROUPED>,                                              \
     a8_shared_bytes<SW_A8_KIND, T, MT, NWG, ST, GROUPED>(), NWG * 128 + COPIERS}
#define SW_A8_TILE(name, T, MT, NWG, ST, PER_SM, COPIERS) \
    {SW_A8_ENTRY(T, MT, NWG, ST, PER_SM, COPIERS, false), \
     SW_A8_ENTRY(T, MT, NWG, ST, PER_SM, COPIERS, true)},
#include "kernels/cuda/a8_tiles.def"
#undef SW_A8_TILE
#undef SW_A8_ENTRY
};
