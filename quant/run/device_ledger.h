/* device_ledger.h - what a run holds of a device's memory, as it is taken and put back. For
 * device_forecast.c and device_solve_forecast.c alone.
 */
#ifndef SW_QUANT_RUN_DEVICE_LEDGER_H
#define SW_QUANT_RUN_DEVICE_LEDGER_H

#include "quant/backend/cuda/cuda_sizes.h"
#include "quant/method/row_share.h"
#include "quant/run/device_forecast.h"
#include "quant/stats/streams.h"

/* A layer on its way, and the run around it. */
typedef struct sw_device_ledger {
    const sw_forecast_request *r;
    sw_device_forecast *out;
    int64_t now[SW_DEVICE_PARTS];
    int64_t n_tokens, batch_tokens; /* that are here, and that run at a time */
    int64_t passes;                 /* of the layer's text, for its experts */
    int64_t n_lanes;                /* that have been asked for, of which handles stay */
    bool with_cross;                /* the original's stream beside the quantized one's */
    const char *step;               /* what is going on */
    int64_t layer;
    sw_linear_ref *refs;            /* [n_refs] selected linears of the layer */
    int64_t n_refs;
    sw_share_linear *linears;       /* [n_refs] those that are solved side by side now, */
    sw_site_share share;            /* and which of their rows the ranks have; n 0: nobody shares */
    int n_experts_alive;            /* sums of an expert's input at a time */
    bool has_original, has_experts; /* the original block lies there, with its experts; */
    bool has_quantized;             /* and the quantized one, without them, */
    int64_t staying_bytes;          /* but for these: they stay while others are solved */
    sw_half ahead;
} sw_device_ledger;

void sw_ledger_take(sw_device_ledger *l, sw_device_part part, int64_t n_bytes);
void sw_ledger_put(sw_device_ledger *l, sw_device_part part, int64_t n_bytes);
/* Taken and put back at once: for the peak alone. */
void sw_ledger_pass(sw_device_ledger *l, sw_device_part part, int64_t n_bytes);
int64_t sw_ledger_left(const sw_device_ledger *l);
/* What a linear becomes. */
const sw_qspec *sw_ledger_spec(const sw_device_ledger *l, const sw_linear_ref *ref);

/* Sums of one input, as hessian.h has them: bytes while they live, and of the floats that summing
 * adds. is_weighed: of W D in the place of D. */
typedef struct sw_sum_size {
    int64_t k, n_out_residual;
    bool with_cross, is_weighed;
} sw_sum_size;
int64_t sw_sum_live_bytes(const sw_sum_size *s);
int64_t sw_sum_part_bytes(const sw_sum_size *s);

/* The text runs through the layer's experts [some of them] and their sums of a site. */
void sw_ledger_observe_experts(sw_device_ledger *l, sw_site site, int64_t n_experts);
/* Experts that stay on the device while those are solved whose inputs, of k, were observed. */
void sw_ledger_keep_experts(sw_device_ledger *l, int64_t k);
/* Solve what waits for a site: its sums are there, with cross terms or not. */
void sw_ledger_solve_site(sw_device_ledger *l, sw_site site);
void sw_ledger_solve_experts(sw_device_ledger *l, sw_site site, bool has_shift);
/* Solve linears without statistics, one after the other. */
void sw_ledger_round(sw_device_ledger *l);

#endif
