/* column_tiles.h - codes of 8 bits in the order of columns: once, on the device, in place.
 *
 * A product whose rows are tokens and whose columns are channels (w8a8_tokens_as_rows.cuh) wants
 * the inputs of a channel side by side, where a tile (formats/pack/tiles.h) has what a lane owns.
 * So of each 512 bytes, 16 channels x 32 inputs, words change places: channel n has bytes 32 n to
 * 32 n + 31, in the order of inputs that X has, and of channels 4..7 and 12..15 the halves are in
 * turn, as the 32-byte swizzle wants it. Kernels that have channels as rows read such bytes by
 * ldmatrix, which gives a lane the very words that it owns. Codes of int8, which tiles have 128
 * above what they stand for, lose those 128 too: they are numbers with a sign from then on.
 */
#ifndef SW_KERNELS_CUDA_GEMM_COLUMN_TILES_H
#define SW_KERNELS_CUDA_GEMM_COLUMN_TILES_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/status.h"
#include "formats/num/act.h"
#include "kernels/cuda_gemm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Enqueue on `stream` (a cudaStream_t): the codes of d_tiles, which lie on `device` and are aligned
 * to 16, to the order of columns, as in_columns of them says from then on. Only of those all of
 * whose products on this device with such inputs take it: E4M3 with scales of blocks, and int8 with
 * scales of channels and inputs in int8, on Hopper. It pays with many tokens and costs nothing with
 * few; kernels for such int8 take no other order, so that codes as they are stored go by those for
 * scales that change along k. Codes of int4 go to signs and magnitudes (sign_tiles.h), those of
 * E2M1, which no single product takes, to the order of e2m1_tiles.h. Others stay as they are, and
 * so do tiles without codes. SW_E_CUDA: what the runtime said. */
sw_code sw_column_tiles_order(sw_tiles *d_tiles, const sw_act *act, const sw_cuda_device *device,
                              void *stream, sw_err *err) SW_MUST_USE;
/* The same of weights that grouped products of experts (kernels/cuda/experts/routed.h) are to read,
 * which take E4M3 with scales of channels so too, as single products do not. */
sw_code sw_column_tiles_order_expert(sw_tiles *d_tiles, const sw_act *act,
                                     const sw_cuda_device *device, void *stream,
                                     sw_err *err) SW_MUST_USE;
/* Whether these are of the kind that single products do not take as they lie. */
bool sw_column_tiles_are_experts(const sw_tiles *tiles);
/* The codes of d_tiles, which are in columns, to d_codes as they were before. */
sw_code sw_column_tiles_undo(uint8_t *d_codes, const sw_tiles *d_tiles, void *stream,
                             sw_err *err) SW_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
