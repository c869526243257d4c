/* e2m1_tiles.h - codes of E2M1 with their bits where products want them: once, on the device, in
 * place.
 *
 * A product makes each code the BF16 whose sign, bit 15, and bits 8 to 6 are the code's four bits
 * (weight_only_e2m1.cuh). Of codes as files have them eight take 13 instructions, of these eight.
 * In files nibble j of each half of a word, j = 0 to 3, is a code of register a_j
 * (formats/pack/tiles.h). Bits 3 to 0 of it here
 *
 *   j = 0    are bits 15, 8, 7, 6 of its half: where they are wanted
 *   j = 1    bits 12, 5, 4, 3: wanted when the word is rotated by 3
 *   j = 2    bits 9, 2, 1, 0: by 6
 *   j = 3    bits 11, 10, 14, 13 of the other half, which are free: rotated by 6 too they are bits
 *            1, 0, 4, 3 of its own, and a product with 2^14 + 2^8 + 2^3 brings them to 15, 8, 7, 6
 */
#ifndef SW_KERNELS_CUDA_GEMM_E2M1_TILES_H
#define SW_KERNELS_CUDA_GEMM_E2M1_TILES_H

#include "formats/base/status.h"
#include "formats/num/act.h"
#include "kernels/cuda_gemm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Enqueue on `stream` (a cudaStream_t): the codes of d_tiles, which lie on `device` and are aligned
 * to 16, to this order, as is_e2m1_spread of them says from then on. Only of E2M1 with inputs of 16
 * bits on Hopper, whose one product is that of grouped experts (kernels/cuda/experts/routed.h).
 * Others stay as they are, and so do tiles without codes. SW_E_CUDA: what the runtime said. */
sw_code sw_e2m1_tiles_order(sw_tiles *d_tiles, const sw_act *act, const sw_cuda_device *device,
                            void *stream, sw_err *err) SW_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
