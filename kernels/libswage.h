/* libswage.h - the one header for engine authors: Swage tiles from a checkpoint onto a card, and
 * products with them on the caller's stream.
 *
 *   sw_tile_file_open, sw_tile_file_get   a checkpoint of `swage convert --to swage`, mapped; one
 *                                         weight in it, as it lies there
 *   sw_tiles_device_bytes, sw_tiles_upload   its copy in device memory of the caller's
 *   sw_cuda_card_query, sw_cuda_gemm_plan    what the card is; a kernel for a problem, by measured
 *                                         tables or by name
 *   sw_cuda_gemm_workspace_bytes, sw_cuda_gemm_run   what it needs; enqueue it
 *
 * Link libswage_cuda.a, then libswage.a and what it needs (see `make V=1`). Nothing here prints,
 * exits, waits for the card, or takes device memory. Errors are an sw_code and a line of text in
 * the caller's sw_err. tests/gpu/example.c is a whole program.
 */
#ifndef SW_KERNELS_LIBSWAGE_H
#define SW_KERNELS_LIBSWAGE_H

#include "kernels/cuda_gemm.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sw_tile_file sw_tile_file;

/* A checkpoint directory in Swage's own format. SW_E_UNSUPPORTED: another one (names the command
 * that converts it); otherwise SW_E_IO or SW_E_FORMAT with file and offender. */
sw_code sw_tile_file_open(sw_tile_file **out, const char *dir, sw_err *err) SW_MUST_USE;
void sw_tile_file_close(sw_tile_file *file); /* accepts NULL; views are gone with it */
/* The weight of the module at `path` ("model.layers.0.mlp.up_proj"): a view into the file, with
 * n_out and k_in. SW_E_USAGE: no such linear, or one that is not quantized. */
sw_code sw_tile_file_get(sw_tiles *out, const sw_tile_file *file, const char *path,
                         sw_err *err) SW_MUST_USE;

/* Device bytes of codes, scales and zero points, each aligned to 256. */
size_t sw_tiles_device_bytes(const sw_tiles *tiles);
/* Enqueue copies of a view into d_block (of that size, aligned to 256) on `stream`, a
 * cudaStream_t; *d_tiles are the tiles there, for sw_cuda_gemm. The view must stay until the copies
 * have ended. SW_E_UNSUPPORTED: outlier channels, which no product of the card adds. */
sw_code sw_tiles_upload(sw_tiles *d_tiles, const sw_tiles *tiles, void *d_block, void *stream,
                        sw_err *err) SW_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
