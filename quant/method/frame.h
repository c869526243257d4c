/* frame.h - what is settled about a weight's scales before any of its rows is solved.
 *
 * Some formats tie rows together: NVFP4 has one global scale, FP8 one scale a tensor or one for
 * 128 x 128 weights. Rows are solved independently, so these come first, from ranges alone. Small
 * floats lose next to nothing by it: their error is relative, whatever the scale.
 */
#ifndef SW_QUANT_METHOD_FRAME_H
#define SW_QUANT_METHOD_FRAME_H

#include "kernels/solver.h"

typedef struct sw_frame {
    float global;    /* of sw_qtensor; 1 without one. Slabs hold their targets divided by it */
    int64_t rows;    /* that share scales */
    int64_t n_groups;
    double *shared;  /* [ceil(n_out / rows), n_groups], or NULL when no rows share */
} sw_frame;

/* `amax` is the largest magnitude of all weights that engines load as one with this (q, k and v;
 * gate and up): they must agree on global and per-tensor scales. 0: look at w [n_out, k_in] alone.
 * The global scale is one whose reciprocal, as stored by some, gives it back. */
sw_code sw_frame_new(sw_frame *out, const float *w, int64_t n_out, int64_t k_in, double amax,
                     const sw_qspec *spec, sw_err *err) SW_MUST_USE;
/* The same of a weight on the solver's device, for a spec that needs it there. */
sw_code sw_frame_new_there(sw_frame *out, sw_solver *solver, const float *d_w, int64_t n_out,
                           int64_t k_in, double amax, const sw_qspec *spec,
                           sw_err *err) SW_MUST_USE;
void sw_frame_free(sw_frame *frame); /* accepts a zeroed one */

double sw_weight_amax(const float *w, int64_t n);

#endif
