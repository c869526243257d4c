/* device.h - one CUDA device: opened, its memory in one pool with a cap, its errors as sw_code.
 *
 * Everything here links in a build without CUDA too and then says so. Device memory is plain
 * (never unified) and comes from one stream-ordered pool; whoever needs much asks sw_device_room
 * first, so that a model that does not fit is refused before anything is copied.
 */
#ifndef SW_KERNELS_DEVICE_H
#define SW_KERNELS_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sw_device sw_device;

typedef struct sw_device_info {
    char name[256];
    int index;             /* N of cuda:N */
    int arch;              /* compute capability as 80, 89, 90 */
    int n_sms;
    int64_t total_bytes;   /* of the card */
    int64_t cap_bytes;     /* of the pool: what was asked for, or what was free less a reserve */
    int64_t l2_bytes;
} sw_device_info;

bool sw_device_is_built(void); /* with the CUDA kernels inside */
/* Cards that the driver shows; 0 without a driver or a build for it. */
int sw_device_count(void);

/* Open card `index`. cap_bytes 0: what is free, less a reserve for the driver.
 * SW_E_CUDA: no build with CUDA, no driver or too old a one, no such card, too old a card, or
 * what the runtime said; the text says what to do. */
sw_code sw_device_open(sw_device **out, int index, int64_t cap_bytes, sw_err *err) SW_MUST_USE;
void sw_device_close(sw_device *gpu); /* accepts NULL; frees the pool with all that was taken */
const sw_device_info *sw_device_about(const sw_device *gpu);
/* The stream all work is enqueued on, a cudaStream_t. */
void *sw_device_stream(const sw_device *gpu);

/* SW_E_NOMEM unless the pool can give so much on top of what is taken; names `what`, both sizes
 * and the remedy. The plan of whoever is about to take it. */
sw_code sw_device_room(const sw_device *gpu, int64_t size_bytes, const char *what,
                       sw_err *err) SW_MUST_USE;
/* n_elems * elem_bytes of device memory, at least one byte, 256-byte aligned, not zeroed, usable
 * by what is enqueued after. SW_E_NOMEM beyond the cap, SW_E_CUDA for anything else. */
sw_code sw_device_take(void **out, sw_device *gpu, int64_t n_elems, int64_t elem_bytes,
                       const char *what, sw_err *err) SW_MUST_USE;
void sw_device_put(sw_device *gpu, void *taken); /* accepts NULL; after what is enqueued so far */
int64_t sw_device_taken_bytes(const sw_device *gpu);
int64_t sw_device_left_bytes(const sw_device *gpu); /* of the cap */
int64_t sw_device_peak_bytes(const sw_device *gpu);

/* Copies and fills are enqueued; upload and download have ended when they return. */
sw_code sw_device_upload(sw_device *gpu, void *d_to, const void *from, int64_t size_bytes,
                         sw_err *err) SW_MUST_USE;
sw_code sw_device_download(sw_device *gpu, void *to, const void *d_from, int64_t size_bytes,
                           sw_err *err) SW_MUST_USE;
sw_code sw_device_fill(sw_device *gpu, void *d_to, int byte, int64_t size_bytes,
                       sw_err *err) SW_MUST_USE;
/* What a large copy on the card reaches, reads and writes counted, in GB/s: the measure of its
 * memory. Takes 2 GB for the while, less where less is left. */
sw_code sw_device_copy_rate(sw_device *gpu, double *gb_s, sw_err *err) SW_MUST_USE;
/* Wait for the stream; SW_E_CUDA for what went wrong in anything enqueued so far. */
sw_code sw_device_sync(sw_device *gpu, sw_err *err) SW_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
