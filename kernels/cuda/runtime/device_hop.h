/* device_hop.h - what goes from one device to another in the order of their streams, with nobody
 * waiting on the host; inside cuda/.
 *
 * The two devices may be one card that was opened twice: the same calls, and copies within it.
 */
#ifndef SW_KERNELS_CUDA_RUNTIME_DEVICE_HOP_H
#define SW_KERNELS_CUDA_RUNTIME_DEVICE_HOP_H

#include "kernels/device.h"

typedef struct sw_device_hop sw_device_hop;

/* From a device to another. Where they can see each other's memory, copies go straight; the driver
 * takes them through host memory where not. */
sw_code sw_device_hop_new(sw_device_hop **out, sw_device *from, sw_device *to,
                          sw_err *err) SW_MUST_USE;
void sw_device_hop_free(sw_device_hop *hop); /* accepts NULL */

/* What is enqueued on `to` from here on comes after all that has been enqueued on `from`. */
sw_code sw_device_hop_begin(sw_device_hop *hop, sw_err *err) SW_MUST_USE;
/* Enqueued on `to`. */
sw_code sw_device_hop_copy(sw_device_hop *hop, void *d_to, const void *d_from, int64_t size_bytes,
                           sw_err *err) SW_MUST_USE;
/* All of it has been enqueued: */
sw_code sw_device_hop_end(sw_device_hop *hop, sw_err *err) SW_MUST_USE;
/* and what is enqueued on `from` from here on may write over what was copied by then. */
sw_code sw_device_hop_await(sw_device_hop *hop, sw_err *err) SW_MUST_USE;

/* Of cuda_device.c: let `to` reach the pool of `of`, now and later, where the devices can. Nothing
 * happens where they cannot, or are one card. */
void sw_device_pool_show(const sw_device *of, const sw_device *to);

#endif
