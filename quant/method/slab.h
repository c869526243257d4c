/* slab.h - a few rows of a weight, turned so that one column of all rows is contiguous.
 *
 * Solvers work on SW_SLAB_ROWS output channels at a time: rows are independent given the
 * Hessian, so slabs are the unit of parallel work, memory stays O(slab), and every inner loop
 * runs over the rows of one column and vectorizes. Rows beyond n_out are zero and ignored.
 */
#ifndef SW_QUANT_METHOD_SLAB_H
#define SW_QUANT_METHOD_SLAB_H

#include <stdint.h>

#include "formats/base/mem.h"
#include "quant/method/frame.h"

#define SW_SLAB_ROWS 64

/* All arrays but is_exact are [columns or groups][SW_SLAB_ROWS], in stored column order. */
typedef struct sw_slab {
    int64_t k, n_groups, group_elems; /* group_elems >= 1 even per channel */
    int64_t k_in, first;   /* columns of the weight, and the one that the slab begins with */
    int64_t width;         /* the most columns of a part; k_in: it has them all */
    double *target;  /* [k] value to aim at */
    double *codes;   /* [k] integers 0..code_max, or values of a small float (grid.h) */
    double *scales;  /* [n_groups], representable in the stored dtype */
    double *zeros;   /* [n_groups] integers */
    const bool *is_exact; /* [k] columns whose codes stay at the zero point; NULL: none; borrowed */
    const sw_frame *frame; /* NULL: nothing is settled beforehand; borrowed */
    int64_t row0, n_rows;  /* rows loaded */
} sw_slab;

sw_code sw_slab_new(sw_slab *out, const sw_qspec *spec, int64_t k, sw_err *err) SW_MUST_USE;
/* The same for `width` columns of k_in at a time, whole groups: beginning with the first ones. */
sw_code sw_slab_new_part(sw_slab *out, const sw_qspec *spec, int64_t k_in, int64_t width,
                         sw_err *err) SW_MUST_USE;
/* Go to the columns from `first` on, a multiple of the width. */
void sw_slab_move(sw_slab *slab, int64_t first);
void sw_slab_free(sw_slab *slab);

/* target = the slab's columns of rows row0.. of w [n_out, k_in] (+ the same of shift unless NULL),
 * divided by the frame's global scale. */
void sw_slab_load(sw_slab *slab, const float *w, const double *shift, int64_t row0,
                  int64_t n_rows);
/* Scales and zeros of every group: those rows share, or from its range. */
void sw_slab_fit_range(sw_slab *slab, const sw_qspec *spec);
/* The same, unshared ones fitted (grid.h) with one weight per column of the slab. */
void sw_slab_fit(sw_slab *slab, const double *weight, const sw_qspec *spec);
/* Codes of every column: the target rounded to the present grid. */
void sw_slab_round(sw_slab *slab, const sw_num *num);
/* Codes, scales and zeros into the slab's columns of rows row0.. of q. */
void sw_slab_store(const sw_slab *slab, sw_qtensor *q, int64_t row0, int64_t n_rows);

#endif
