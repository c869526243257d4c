/* grid.h - the quantization grid of a group: fitting its scale and zero point, rounding to it.
 *
 * Works on one group of a slab: n columns of SW_SLAB_ROWS rows. Scales are rounded to the dtype
 * that will be stored before any code is chosen, so what is measured is what is written.
 */
#ifndef SW_QUANT_METHOD_GRID_H
#define SW_QUANT_METHOD_GRID_H

#include "quant/method/slab.h"

/* Small floats: "codes" are the values of the codes and zeros are 0, so that scale * (code - zero)
 * is the decoded value for every format; sw_slab_store turns them into bits. */

/* Scale from the range alone: symmetric amax / (code_max / 2), small floats amax / top or, for
 * powers of two, the rule of sw_pow2_scale, asymmetric (max - min) / code_max
 * with the range widened to hold 0. A group of zeros gets scale 1. */
void sw_grid_range(double *scale, double *zero, const double *w, int64_t n, const sw_qspec *spec);
/* The same of one row whose lowest and highest weight are known, 0 among them. */
void sw_grid_of_range(double *scale, double *zero, double low, double high, const sw_qspec *spec);

/* Scale and zero that minimize sum_j weight[j] * (w[j] - Q(w[j]))^2 per row: a grid over
 * shrunken ranges (and neighbouring zero points, or both signs), polished by alternating least
 * squares. Symmetric codes have one value more below zero than above, and the sign of the scale
 * decides which side of the weights gets it. */
void sw_grid_fit(double *scale, double *zero, const double *w, const double *weight, int64_t n,
                 const sw_qspec *spec);

/* codes[r] = clamp(round(w[r] / scale[r]) + zero[r]), or the nearest value of the small float; ties
 * to even, division not reciprocal. */
void sw_grid_codes(double *codes, const double *w, const double *scale, const double *zero,
                   const sw_num *num);

/* Move each code to the one nearest to wish[r] (+ zero[r]); step[r] = how far its value goes.
 * Returns whether any moved. */
bool sw_grid_step(double *code, double *step, const double *wish, const double *scale,
                  const double *zero, const sw_num *num);

/* The nearest scale that the spec can hold and a reader will accept: finite and above zero, or of
 * the sign of s where the spec leaves the sign free. */
double sw_grid_stored_scale(double s, const sw_qspec *spec);

#endif
