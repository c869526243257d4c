/* forecast.h - what a run of the pipeline will need, from the model's shapes alone.
 *
 * Memory follows the pipeline's own allocations, site by site; work is counted in the units that
 * are measured on the spot (see sw_rates): time is their sum. Nothing is read and nothing run.
 */
#ifndef SW_QUANT_RUN_FORECAST_H
#define SW_QUANT_RUN_FORECAST_H

#include "formats/model/model.h"
#include "quant/run/pipeline.h"

typedef struct sw_forecast_request {
    const sw_model *model;
    const sw_quant_options *options;
    const sw_calib *calib; /* run through the model; its ids are not looked at; NULL: none is */
    bool has_stats;        /* Hessians come from a file; calib is then what transforms try on */
    const sw_calib *measured; /* what sensitivities are measured on before; NULL: they are not */
    bool is_measured_on_stats; /* with Hessians from a file */
    int n_ranks;           /* that share the run; 0 is 1 */
    void *self;            /* of is_selected, as in sw_quant_sink */
    bool (*is_selected)(void *self, const sw_linear_ref *ref, const char *path);
    /* of a device's forecast: what a linear becomes; NULL: all what the options say */
    const sw_qspec *(*spec_of)(void *self, const sw_linear_ref *ref, const char *path);
    bool has_device;         /* a device sums and solves, */
    bool has_device_streams; /* and runs the blocks too */
} sw_forecast_request;

/* Of several ranks: the one that has most to do, and holds most; rank 0 is, or as good as. */
typedef struct sw_forecast {
    /* bytes at the peak, besides what the process holds before it begins */
    int64_t engine_bytes;  /* activations of a chunk of tokens and scratch */
    int64_t stream_bytes;  /* calibration streams, both */
    int64_t chunk_bytes;   /* what of them is in memory when they are spilled */
    int64_t block_bytes;   /* weights of a block: read, decoded and solved */
    int64_t read_bytes;    /* of them pages of the model's files, which ranks of a host share */
    int64_t stats_bytes;   /* Hessians, cross terms and factors of the worst site */
    int64_t worst_layer;
    int64_t measure_bytes; /* of measuring sensitivities: before all that, not beside it */
    /* work */
    double forward_flops;  /* matrix products of the streams */
    double gram_flops;     /* sums of Hessians and cross terms */
    double factor_units;   /* sum of k^3 over factorizations */
    double strength_units; /* sum of n k^2 over searches for strengths */
    double solve_units;    /* sum of n k^2 over solved linears; n k for methods without a factor */
    double fit_weights;    /* elements that searches of transforms fit to a grid and round */
    double weights;        /* elements solved */
    /* of them the parts of which ranks have each their own, and what goes between them */
    double expert_factor_units, round_weights; /* of fit_weights, that every rank rounds */
    double sum_bytes, expert_sum_bytes; /* sums of one piece of the text, of all sites, */
    double search_sum_bytes;            /* and of all searches */
    double told_bytes;                  /* weights that searches solve, rank by rank */
    double traffic_bytes;               /* into the busiest rank and out of it; one rank: none */
} sw_forecast;

/* SW_E_NOMEM alone. */
sw_code sw_forecast_new(sw_forecast *out, const sw_forecast_request *request,
                        sw_err *err) SW_MUST_USE;

/* The peak of it, measuring aside, besides what the process holds before. */
int64_t sw_forecast_peak(const sw_forecast *forecast, bool is_spilled);

#endif
