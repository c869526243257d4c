/* sign_tiles.h - codes of 4 bits as signs and magnitudes: once, on the device, in place.
 *
 * Where inputs are E4M3, a product makes each code less 8 an E4M3 number: its sign is bit 7 of a
 * byte, and below 2^-5 its magnitude, 0 to 8, is bits 0 to 3. Of codes as files have them eight
 * take nine instructions, of these six. Nibble i of a word of eight codes has
 *
 *   bits 0..2   the magnitude of code i, one less where the code is negative
 *   bit 3       whether code i - 1 is negative; of nibble 0, code 7
 *
 * so that a sign lies where its byte wants it once the other half of the byte is taken.
 */
#ifndef SW_KERNELS_CUDA_GEMM_SIGN_TILES_H
#define SW_KERNELS_CUDA_GEMM_SIGN_TILES_H

#include "formats/base/status.h"
#include "formats/num/act.h"
#include "kernels/cuda_gemm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Enqueue on `stream` (a cudaStream_t): the codes of d_tiles, which lie on `device` and are aligned
 * to 16, as signs and magnitudes, as is_sign_magnitude of them says from then on. Only of those all
 * of whose products on this device with such inputs take it: symmetric int4 with inputs in E4M3, a
 * scale a token or one for all, in groups of multiples of 128 or none, on Hopper. Others stay as
 * they are, and so do tiles without codes. SW_E_CUDA: what the runtime said. */
sw_code sw_sign_tiles_order(sw_tiles *d_tiles, const sw_act *act, const sw_cuda_device *device,
                            void *stream, sw_err *err) SW_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
