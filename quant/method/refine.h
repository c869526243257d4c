/* refine.h - make a quantized slab better under the full Hessian, without new data.
 *
 * With T the target and V the decoded value of a row, the loss is (V - T) H (V - T)^T.
 * GPTQ decides each column once, blind to what later columns will do; two cheap exact steps,
 * alternated, go on from there:
 *  - coordinate descent over the codes (QuantEase, Behdin et al., arXiv 2309.01885, section 3);
 *  - all scales of a row at once by least squares for fixed codes: a small SPD system; or, of
 *    scales with few bits, each to the nearest that can be stored, when the descent comes to it.
 * A row keeps a round only if its loss fell.
 */
#ifndef SW_QUANT_METHOD_REFINE_H
#define SW_QUANT_METHOD_REFINE_H

#include "quant/method/factor.h"
#include "quant/method/slab.h"

/* `rounds` alternations; ends early when no row improves. *loss: what is left, summed over rows. */
sw_code sw_refine(sw_slab *slab, const sw_factor *factor, const sw_qspec *spec, int rounds,
                  double *loss, sw_err *err) SW_MUST_USE;

/* Sums over the slab's rows: of (V - T) H (V - T)^T, and of T H T^T. */
sw_code sw_refine_loss(const sw_slab *slab, const sw_factor *factor, double *loss,
                       sw_err *err) SW_MUST_USE;
sw_code sw_refine_power(const sw_slab *slab, const sw_factor *factor, double *power,
                        sw_err *err) SW_MUST_USE;

/* out [SW_SLAB_ROWS] = v^T H v of each row of v [n][SW_SLAB_ROWS]; room: as much. H, whose rows are
 * `stride` apart, is symmetric: what is below its diagonal counts twice, and what is above is not
 * read. */
void sw_row_forms(double *out, double *room, const double *h, int64_t stride, const double *v,
                  int64_t n);

#endif
