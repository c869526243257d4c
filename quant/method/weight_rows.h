/* weight_rows.h - weights into floats and back, their rows on several threads. */
#ifndef SW_QUANT_METHOD_WEIGHT_ROWS_H
#define SW_QUANT_METHOD_WEIGHT_ROWS_H

#include "kernels/kernel.h"

/* w [n_out, k_in] = the values of a dense weight. SW_E_FORMAT names the first element that is not
 * finite. */
sw_code sw_weight_load(float *w, const sw_weight *dense, int64_t n_out, int64_t k_in,
                       int n_threads, sw_err *err) SW_MUST_USE;
/* w [n_out, k_in] = what q's codes mean. */
void sw_weight_decode(float *w, const sw_qtensor *q, int n_threads);
/* The same rounded to BF16, in place: the first half of w's bytes. */
void sw_weight_decode_bf16(float *w, const sw_qtensor *q, int n_threads);

#endif
