/* block_stream.h - blocks that wait in host memory and pass through the device in turn; inside
 * cuda/.
 *
 * Two places on the device take turns: block l lies in place l % 2, always at the same addresses,
 * so that it is loaded once as any block is and its bytes are then kept in pinned memory. While one
 * runs, a second stream copies the next into the other place.
 */
#ifndef SW_KERNELS_CUDA_ENGINE_BLOCK_STREAM_H
#define SW_KERNELS_CUDA_ENGINE_BLOCK_STREAM_H

#include "kernels/cuda/engine/cuda_engine_internal.h"

typedef struct sw_device_stream_blocks sw_device_stream_blocks;

/* Blocks [first, n_blocks) of `from`; block_bytes: room for the largest of them.
 * SW_E_NOMEM: two places do not fit the device, or the images do not fit pinned memory. */
sw_code sw_device_stream_new(sw_device_stream_blocks **out, sw_device_engine *e,
                             const sw_block *from, int64_t first, int64_t n_blocks,
                             int64_t block_bytes, sw_err *err) SW_MUST_USE;
void sw_device_stream_free(sw_device_stream_blocks *s); /* accepts NULL */

/* *out = block l, there for what is enqueued next on the engine's stream, until the next call. */
sw_code sw_device_stream_enter(const sw_device_block **out, sw_device_stream_blocks *s, int64_t l,
                               sw_err *err) SW_MUST_USE;
/* What uses block l has been enqueued: its place may be filled again after that. */
sw_code sw_device_stream_leave(sw_device_stream_blocks *s, int64_t l, sw_err *err) SW_MUST_USE;
/* The block itself, wherever its bytes are: for counting. */
const sw_device_block *sw_device_stream_look(const sw_device_stream_blocks *s, int64_t l);

#endif
