/* blas.c - see blas.h. */
#include "kernels/blas.h"

#include <cblas.h>

void sw_blas_single_thread(void) { openblas_set_num_threads(1); }

const char *sw_blas_core_name(void) { return openblas_get_corename(); }
