/* finite.h - is there an infinity or a NaN among stored floats? At the speed of memory. */
#ifndef SW_FORMATS_NUM_FINITE_H
#define SW_FORMATS_NUM_FINITE_H

#include "formats/base/view.h"

/* The first of n elements at `bytes` that is no finite number; -1: all are, or the dtype is none of
 * F16, BF16, F32 and F64, which alone are looked at. The same for any number of threads. */
int64_t sw_first_not_finite(const void *bytes, sw_dtype dtype, int64_t n, int n_threads);

#endif
