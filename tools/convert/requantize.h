/* requantize.h - rounding the values of a quantized weight into another scheme. */
#ifndef SW_TOOLS_CONVERT_REQUANTIZE_H
#define SW_TOOLS_CONVERT_REQUANTIZE_H

#include "formats/num/num.h"

/* Round w f32 [n_out, k_in] into `spec`, each group on the grid of least squared error (quant's
 * grid.h), without calibration. fused_amax as in quant/method/frame.h. *error: the relative one,
 * |w - q| / |w| in the Frobenius norm. q is allocated here. */
sw_code sw_requantize(sw_qtensor *q, double *error, const float *w, int64_t n_out, int64_t k_in,
                      const sw_qspec *spec, double fused_amax, int n_threads,
                      sw_err *err) SW_MUST_USE;

#endif
