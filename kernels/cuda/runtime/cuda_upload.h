/* cuda_upload.h - large copies from memory to a device, through pinned memory; inside cuda/.
 *
 * A copy from pageable memory goes through the driver's own buffer at the pace of one thread, 10
 * GB/s on a host whose link carries 50. Here several threads fill pieces of pinned memory while the
 * piece before is on its way.
 */
#ifndef SW_KERNELS_CUDA_RUNTIME_CUDA_UPLOAD_H
#define SW_KERNELS_CUDA_RUNTIME_CUDA_UPLOAD_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#include "formats/base/status.h"

typedef struct sw_upload sw_upload; /* pieces of pinned memory, for one copy at a time */

/* For copies by at most n_threads. The memory is pinned by the first copy. */
sw_code sw_upload_new(sw_upload **out, int n_threads, sw_err *err) SW_MUST_USE;
void sw_upload_free(sw_upload *u); /* accepts NULL */
/* Copy size_bytes to the device on the stream, always the same one. The last pieces may be on their
 * way when it returns; `from` is not read any more. *is_done false: nothing was done, because no
 * memory can be pinned or because another thread's copy is under way; then copy otherwise. */
sw_code sw_upload_begin(bool *is_done, sw_upload *u, void *d_to, const void *from,
                        int64_t size_bytes, cudaStream_t stream, sw_err *err) SW_MUST_USE;

struct sw_device;
/* sw_device_upload without the wait, for one of many: what is enqueued on the device's stream
 * afterwards finds the copy, and `from` is not read any more. */
sw_code sw_device_upload_begin(struct sw_device *gpu, void *d_to, const void *from,
                               int64_t size_bytes, sw_err *err) SW_MUST_USE;

#endif
