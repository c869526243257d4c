/* device.h - one CUDA device: opening it, its memory, its stream.
 *
 * All functions link in a build without CUDA, where they return SW_E_CUDA. Device memory is never
 * unified and comes from one stream-ordered pool with a limit. Before you take much of it, ask
 * sw_device_room, so that a model that does not fit is refused before anything is copied.
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
    int64_t total_bytes;   /* of the device */
    int64_t cap_bytes;     /* limit of the pool: as asked for, or what was free less a reserve */
    int64_t l2_bytes;
} sw_device_info;

bool sw_device_is_built(void); /* was the CUDA half found? */
/* Number of devices that the driver shows; 0 without a driver or without the CUDA half. */
int sw_device_count(void);
/* What the driver says of device `index`, which need not be one that can be opened; cap_bytes is 0.
 * Takes none of its memory. SW_E_CUDA: no such device, or an error of the runtime. */
sw_code sw_device_describe(sw_device_info *out, int index, sw_err *err) SW_MUST_USE;

/* Open device `index`. cap_bytes limits its memory; 0: what is free less a reserve for the driver.
 * SW_E_CUDA: no CUDA half, no driver or one that is too old, no such device, a device that is too
 * old, or an error of the runtime; the message names the remedy. */
sw_code sw_device_open(sw_device **out, int index, int64_t cap_bytes, sw_err *err) SW_MUST_USE;
void sw_device_close(sw_device *gpu); /* accepts NULL; frees the pool and all that was taken */
/* The same device with a stream of its own, for another thread: the pool and its limit are shared.
 * What one stream takes another may put back once its own work on it has ended. Close it before
 * `of`. */
sw_code sw_device_branch(sw_device **out, const sw_device *of, sw_err *err) SW_MUST_USE;
/* Let the calling thread work with the device; the thread that opened it need not. */
sw_code sw_device_use(const sw_device *gpu, sw_err *err) SW_MUST_USE;
const sw_device_info *sw_device_about(const sw_device *gpu);
/* The stream that all work is enqueued on, a cudaStream_t. */
void *sw_device_stream(const sw_device *gpu);

/* SW_E_NOMEM unless the pool can give size_bytes more; the message names `what`, both sizes and the
 * remedy. Takes nothing. */
sw_code sw_device_room(const sw_device *gpu, int64_t size_bytes, const char *what,
                       sw_err *err) SW_MUST_USE;
/* *out = n_elems * elem_bytes of device memory (at least one byte), 256-byte aligned, not zeroed,
 * for work that is enqueued afterwards. SW_E_NOMEM beyond the limit, SW_E_CUDA otherwise. */
sw_code sw_device_take(void **out, sw_device *gpu, int64_t n_elems, int64_t elem_bytes,
                       const char *what, sw_err *err) SW_MUST_USE;
void sw_device_put(sw_device *gpu, void *taken); /* accepts NULL; ordered after enqueued work */
int64_t sw_device_taken_bytes(const sw_device *gpu);
int64_t sw_device_left_bytes(const sw_device *gpu); /* below the limit */
int64_t sw_device_peak_bytes(const sw_device *gpu);

/* Of the host, pinned by the first large upload of a device or of a branch of it. */
#define SW_DEVICE_PINNED_BYTES ((int64_t)16 << 20)

/* Copies and fills are enqueued; upload and download return when the copy has ended. */
sw_code sw_device_upload(sw_device *gpu, void *d_to, const void *from, int64_t size_bytes,
                         sw_err *err) SW_MUST_USE;
sw_code sw_device_download(sw_device *gpu, void *to, const void *d_from, int64_t size_bytes,
                           sw_err *err) SW_MUST_USE;
sw_code sw_device_fill(sw_device *gpu, void *d_to, int byte, int64_t size_bytes,
                       sw_err *err) SW_MUST_USE;
/* *gb_s = the rate of a large copy inside device memory, reads and writes counted, in GB/s. Takes
 * 2 GB while it runs, or less if less is left. */
sw_code sw_device_copy_rate(sw_device *gpu, double *gb_s, sw_err *err) SW_MUST_USE;

/* ---- windows: memory that processes with other devices of this host can copy from ---- */

#define SW_DEVICE_WINDOW_NAME_BYTES 64

/* *d_window = size_bytes beside the limit of the device, and its name for other processes. false:
 * there is no room, or the driver has no such thing. */
bool sw_device_window_new(void **d_window, void *name, sw_device *gpu, int64_t size_bytes);
/* Another process's window, which must close before that one frees it. false: that process is on
 * another host, or the devices cannot see each other's memory. */
bool sw_device_window_open(void **d_window, sw_device *gpu, const void *name);
void sw_device_window_close(sw_device *gpu, void *d_window); /* accepts NULL, like free */
void sw_device_window_free(sw_device *gpu, void *d_window);
/* Returns when the copy has ended. */
sw_code sw_device_window_copy(sw_device *gpu, void *d_to, const void *d_from, int64_t size_bytes,
                              sw_err *err) SW_MUST_USE;

/* Wait for the stream. SW_E_CUDA: something enqueued so far has failed. */
sw_code sw_device_sync(sw_device *gpu, sw_err *err) SW_MUST_USE;

/* ---- what a device says about a predicted position, in place of its logits ---- */

/* Figures of sw_position_compare (verify/base/metrics.h), in double and to 1e-12 of it. Without a
 * reference those of it are 0. */
typedef struct sw_lm_score {
    double nll, nll_ref;  /* -log softmax(logits)[token that follows] */
    double kl;            /* KL(softmax(ref) || softmax(logits)), never below 0; a NaN stays one */
    double sum, sum_ref;  /* of exp(logit - the largest) */
    int64_t top, top_ref; /* ids of the largest, ties to the lower */
} sw_lm_score;

#ifdef __cplusplus
}
#endif
#endif
