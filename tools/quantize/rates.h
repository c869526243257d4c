/* rates.h - how fast this machine does what a quantization is made of, by doing a little of each.
 *
 * The real kernels on random data, with the threads asked for, at the width of the model's linears
 * up to a limit: about a second in all. On a busy machine the figures are as busy.
 */
#ifndef SW_TOOLS_QUANTIZE_RATES_H
#define SW_TOOLS_QUANTIZE_RATES_H

#include "quant/run/forecast.h"

typedef struct sw_rates {
    double gemm_flop_s, gram_flop_s;
    double factor_units_s;   /* k^3 */
    double strength_units_s; /* n k^2 */
    double solve_units_s;    /* n k^2, or weights for methods without a factor */
    double fit_weights_s;    /* weights fitted and rounded in a search; 0: there is none */
    double hash_bytes_s;
    double read_bytes_s;     /* plain reading of memory, all threads */
} sw_rates;

sw_code sw_rates_measure(sw_rates *out, const sw_quant_options *options, int64_t k_in,
                         sw_err *err) SW_MUST_USE;

/* Seconds of the whole run: pipeline, input and output. */
double sw_rates_seconds(const sw_rates *rates, const sw_forecast *forecast, double source_bytes,
                        double out_bytes);

#endif
