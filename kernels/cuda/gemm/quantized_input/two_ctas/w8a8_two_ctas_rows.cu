/* w8a8_two_ctas_rows.cu - the kernels of pairs of CTAs whose products have tokens as rows, by tile.
 */
#include "kernels/cuda/gemm/quantized_input/two_ctas/w8a8_two_ctas_rows.cuh"

static const w8a8_kernel kernels[] = {
#define SW_A8C_TILE(name, T, C, PARTS, SHARED)                                                     \
    {(const void *)swk_w8a8_two_ctas_rows_sm90<T, C, PARTS, SHARED>,                               \
     a8c_tile<T, C, PARTS, SHARED>::shared_bytes, SW_A8C_THREADS},
#include "kernels/cuda/gemm/quantized_input/two_ctas/w8a8_two_ctas_rows.def"
#undef SW_A8C_TILE
};

extern "C" const w8a8_kernel *sw_w8a8_two_ctas_rows(int tile) { return &kernels[tile]; }
