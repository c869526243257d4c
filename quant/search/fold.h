/* fold.h - putting a scale into a block: exactly, or not at all. See transform.h. */
#ifndef SW_QUANT_SEARCH_FOLD_H
#define SW_QUANT_SEARCH_FOLD_H

#include "quant/search/transform.h"

/* *can is false when something that stays in floats takes part and is not stored as a tensor of its
 * own with a row per output: all experts' in one, or transposed. */
sw_code sw_fold_is_possible(bool *can, const sw_transform_job *job, const sw_fold *fold,
                            int64_t expert, sw_err *err) SW_MUST_USE;

/* true when something that stays in floats takes part, so that only powers of two are exact. */
bool sw_fold_needs_pow2(const sw_transform_job *job, const sw_fold *fold, int64_t expert);

/* One factor for all channels that come from one row: the geometric mean of theirs, or 1 where
 * one of them is 1. */
void sw_fold_tie(double *scale, const sw_fold *fold, int64_t k);

/* Bring scale [k] to what can be stored: tied, powers of two where needed, the quotient of the
 * norm as it is and as it will be stored, 1 where neither holds. Pure. */
sw_code sw_fold_round(double *scale, const sw_transform_job *job, const sw_fold *fold,
                      int64_t expert, int64_t k, sw_err *err) SW_MUST_USE;

/* Change both blocks, and hand the sink what changed without being quantized. scale as
 * sw_fold_round left it. */
sw_code sw_fold_apply(const sw_transform_job *job, const sw_fold *fold, int64_t expert,
                      const double *scale, int64_t k, sw_err *err) SW_MUST_USE;

/* Give the quantized block the floats that an earlier run changed, from the sink. */
sw_code sw_fold_restore(const sw_transform_job *job, sw_err *err) SW_MUST_USE;

#endif
