/* tile_file.h - the header for engine authors: load weights of a checkpoint in Swage tiles into
 * device memory, and multiply by them on your own CUDA stream.
 *
 *   sw_tile_file_open, sw_tile_file_get       map a checkpoint of `swage convert --to swage`; find
 *                                             one weight in it
 *   sw_tiles_device_bytes, sw_tiles_upload    copy the weight into device memory of the caller
 *   sw_cuda_device_query, sw_cuda_gemm_plan     ask what the device is; choose a kernel for a
 *                                             product, by measured tables or by name
 *   sw_cuda_gemm_workspace_bytes, sw_cuda_gemm_run   ask for the workspace; enqueue the product
 *
 * Link with `pkg-config --cflags --libs swage-cuda`, or with libswage_cuda.a, then libswage.a and
 * its libraries. No function prints, exits, waits for the device or allocates device memory. Errors
 * are an sw_code and one sentence in the caller's sw_err. tests/gpu/example.c is a whole program.
 */
#ifndef SW_KERNELS_TILE_FILE_H
#define SW_KERNELS_TILE_FILE_H

#include "kernels/cuda_gemm.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sw_tile_file sw_tile_file;

/* Open a checkpoint directory in Swage's own format. SW_E_UNSUPPORTED: another format (the message
 * names the command that converts it). SW_E_IO, SW_E_FORMAT: the message names file and tensor. */
sw_code sw_tile_file_open(sw_tile_file **out, const char *dir, sw_err *err) SW_MUST_USE;
void sw_tile_file_close(sw_tile_file *file); /* accepts NULL; invalidates all views */
/* *out = the weight of the module `path` ("model.layers.0.mlp.up_proj"), a view into the file with
 * n_out and k_in set. SW_E_USAGE: there is no such linear, or it is not quantized. */
sw_code sw_tile_file_get(sw_tiles *out, const sw_tile_file *file, const char *path,
                         sw_err *err) SW_MUST_USE;

/* Device memory that codes, scales and zero points take, in bytes, each aligned to 256. */
size_t sw_tiles_device_bytes(const sw_tiles *tiles);
/* Enqueue copies of a view into d_block (of that size, aligned to 256) on `stream`, a
 * cudaStream_t. *d_tiles = the copy, for sw_cuda_gemm, with has_usual_scales set as they are. The
 * view must stay valid until the copies have ended. Codes of 2 and 3 bits stay as they are stored,
 * which kernels for sm_90 read; for other devices widen them first, by sw_tiles_widen. FP8 in
 * blocks, and int8 for inputs in int8, are quickest on sm_90 after sw_column_tiles_order
 * (kernels/cuda/gemm/column_tiles.h).
 * SW_E_UNSUPPORTED: the weight has outlier channels, which no CUDA kernel adds. */
sw_code sw_tiles_upload(sw_tiles *d_tiles, const sw_tiles *tiles, void *d_block, void *stream,
                        sw_err *err) SW_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
