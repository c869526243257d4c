/* blas.c - see blas.h. */
#include "kernels/blas.h"

#include <cblas.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/features.h"

void sw_blas_single_thread(void) { openblas_set_num_threads(1); }

const char *sw_blas_core_name(void) { return openblas_get_corename(); }

const char *sw_blas_better_core(void)
{
    static const char *const narrow[] = {"Haswell", "Zen", "Sandybridge", "Nehalem", "Prescott"};
    const char *now = openblas_get_corename();

    if (getenv("OPENBLAS_CORETYPE") || !sw_cpu_has_avx512()) return NULL;
    for (size_t i = 0; i < sizeof narrow / sizeof *narrow; i++)
        if (strcmp(now, narrow[i]) == 0) return "SkylakeX";
    return NULL;
}
