/* device_forecast.h - the memory of a device that a run of the pipeline will take, from the model's
 * shapes and the device's size alone.
 *
 * It takes the steps of the pipeline without doing them and books what each takes of the device.
 * What depends on how much is left there (lanes, experts at a time, inputs that are kept) is asked
 * of the functions that the run asks (cuda_sizes.h, site_stats.h, solver_sizes.h, device_sizes.h).
 * Not in it: the driver's own memory, the searches of transforms, what a model with far keys has
 * besides, and what ranks carry sums through.
 */
#ifndef SW_QUANT_RUN_DEVICE_FORECAST_H
#define SW_QUANT_RUN_DEVICE_FORECAST_H

#include "quant/run/forecast.h"

typedef enum sw_device_part {
    SW_DEVICE_HANDLES, /* workspaces of libraries */
    SW_DEVICE_ENGINE,  /* activations of a batch of windows */
    SW_DEVICE_STREAMS, /* of all windows, in both models */
    SW_DEVICE_KEPT,    /* inputs that need not be made twice */
    SW_DEVICE_WEIGHTS, /* of a block, of both models */
    SW_DEVICE_SUMS,    /* of products, and rows on their way there */
    SW_DEVICE_SOLVE,   /* factors, targets, rows in doubles */
    SW_DEVICE_PARTS
} sw_device_part;
extern const char *const sw_device_part_names[SW_DEVICE_PARTS];

typedef struct sw_device_forecast {
    int64_t cap_bytes;  /* of the device, that the run may take */
    int64_t peak_bytes; /* that it would take, whether there is so much or not */
    int64_t part_bytes[SW_DEVICE_PARTS]; /* of the peak */
    const char *peak_step;
    int64_t peak_layer;
    bool solves;        /* all linears are solved there; else all is taken for the CPU's */
    bool has_streams;   /* blocks run there too; else on the CPU, and single steps there */
    char why[160];      /* they do not */
    int64_t n_pieces;   /* of the text, which is summed piece by piece; 0: nothing is summed */
    int n_alive;        /* sums of one input at a time */
    int64_t n_passes, n_experts_at_a_time; /* most of a layer over its experts; 0: it has none */
    /* where it does not fit, or blocks run on the CPU: so many windows would do, or so many ranks
     * with a device each; 0: no number does */
    int64_t samples_fit, ranks_fit;
} sw_device_forecast;

/* On a device of cap_bytes, for rank 0 of so many as the request says. SW_E_NOMEM alone. */
sw_code sw_device_forecast_new(sw_device_forecast *out, const sw_forecast_request *request,
                               int64_t cap_bytes, sw_err *err) SW_MUST_USE;

static inline bool sw_device_forecast_fits(const sw_device_forecast *f)
{
    return f->peak_bytes <= f->cap_bytes;
}

#endif
