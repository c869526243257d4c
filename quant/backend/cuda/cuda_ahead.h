/* cuda_ahead.h - the original block onto a CUDA device while linears are solved there. For the CUDA
 * backend alone.
 */
#ifndef SW_QUANT_BACKEND_CUDA_CUDA_AHEAD_H
#define SW_QUANT_BACKEND_CUDA_CUDA_AHEAD_H

#include "quant/backend/cuda/cuda_streams.h"

typedef struct sw_cuda_ahead sw_cuda_ahead;

/* The block with its experts, loaded from `original`, for the caller to keep; NULL: nobody asked
 * for it, or there was no memory. Waits for it. */
sw_device_block *sw_cuda_ahead_take(sw_cuda_streams *on, const sw_block *original);
/* Waits, and drops what nobody took. */
void sw_cuda_ahead_drop(sw_cuda_streams *on);
/* The same, for good. */
void sw_cuda_ahead_free(sw_cuda_streams *on);

#endif
