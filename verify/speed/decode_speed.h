/* decode_speed.h - tokens per second of a whole model decoding on a CUDA device.
 *
 * The model has the sizes of a known one and random weights, so that nothing is read from disk; it
 * runs through the engine as any other does. Beside each figure stands the bound that the device's
 * memory sets: all weights and cached keys and values once a step, at the rate of a large copy
 * measured in the same run.
 */
#ifndef SW_VERIFY_SPEED_DECODE_SPEED_H
#define SW_VERIFY_SPEED_DECODE_SPEED_H

#include "formats/base/mem.h"
#include "formats/base/progress.h"
#include "kernels/device.h"
#include "kernels/engine/kv_form.h"

#define SW_DECODE_BATCHES_MAX 16

typedef struct sw_decode_options {
    sw_device *gpu;
    const char *shape;       /* a name of sw_decode_shape_name */
    const char *weights;     /* names of sw_speed_stores, separated by commas; NULL: bf16,w4a16 */
    int64_t group_elems;     /* of quantized weights */
    const int64_t *batches;  /* sequences side by side */
    int n_batches;
    sw_kv_kind kv_kind;      /* codes have scales of 1 */
    int64_t context, steps;  /* tokens each holds before, and that are then decoded */
    int rounds;
    int n_threads;
    const sw_progress *progress;
} sw_decode_options;

typedef struct sw_decode_row {
    const char *weights;
    int64_t batch;
    int64_t weight_bytes, step_bytes; /* read by a step, the latter with keys and values */
    double step_us;       /* median of the rounds */
    double tokens_s;      /* batch / step */
    double bound_tokens_s, bound_share;
} sw_decode_row;

typedef struct sw_decode_report {
    char device[256];
    double copy_gb_s; /* read and write */
    sw_decode_row *rows;
    int n_rows;
    sw_arena arena;
} sw_decode_report;

/* The i-th shape there is, NULL beyond the last. */
const char *sw_decode_shape_name(int i);

/* SW_E_USAGE: an unknown shape or kind of weights. SW_E_NOMEM: it does not fit the device. `out` is
 * set on success only and freed by sw_decode_report_free. */
sw_code sw_decode_speed_run(sw_decode_report *out, const sw_decode_options *options,
                            sw_err *err) SW_MUST_USE;
void sw_decode_report_free(sw_decode_report *report);

#endif
