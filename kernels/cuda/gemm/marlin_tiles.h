/* marlin_tiles.h - weights in Marlin's order to Swage tiles, once, on the device.
 *
 * Marlin's order (formats/pack/marlin.h) gives a lane the very codes that a lane of a tile owns, so
 * the two differ in where words lie and, with 4 bits, in two pairs of nibbles: every product here
 * runs on a Marlin checkpoint after one pass over its bytes, read once and written once.
 */
#ifndef SW_KERNELS_CUDA_GEMM_MARLIN_TILES_H
#define SW_KERNELS_CUDA_GEMM_MARLIN_TILES_H

#include "formats/base/status.h"
#include "formats/pack/tiles.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Enqueue on `stream` (a cudaStream_t): the bytes that sw_tiles_pack would make of `from`, whose
 * arrays lie on the device in Marlin's order.
 *
 *   d_codes   out  sw_tiles_codes_bytes      aligned to 16; not the memory of from->codes
 *   d_scales  out  sw_tiles_scales_bytes     16-bit scales as they are
 *   d_zeros   out  sw_tiles_zeros_bytes, or NULL when symmetric
 *
 * from->k_in is a multiple of 64 and n_out of 64, as Marlin's own kernels ask for.
 * SW_E_UNSUPPORTED: other sizes, widths than 4 and 8 bits, scales that are not of 16 bits.
 * SW_E_CUDA: what the runtime said. */
sw_code sw_marlin_retile(void *d_codes, void *d_scales, void *d_zeros, const sw_tiles *from,
                         void *stream, sw_err *err) SW_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
