/* w8a8_two_ctas_rows.cu - the kernels of pairs of CTAs whose products have tokens as rows, by tile.
 */
#include "kernels/cuda/gemm/quantized_input/two_ctas/w8a8_two_ctas_rows.cuh"

static const w8a8_kernel kernels[] = {
#define SW_A8C_TILE(name, C, PARTS, SHARED)                                                        \
    {(const void *)swk_w8a8_two_ctas_rows_sm90<C, PARTS, SHARED>,                                  \
     a8c_stage<C>::n_stages * a8c_stage<C>::bytes + 1024, SW_A8C_THREADS},
#include "kernels/cuda/gemm/quantized_input/two_ctas/w8a8_two_ctas_rows.def"
#undef SW_A8C_TILE
};

extern "C" const w8a8_kernel *sw_w8a8_two_ctas_rows(int tile) { return &kernels[tile]; }
