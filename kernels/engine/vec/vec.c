/* vec.c - see vec.h. */
#include "kernels/engine/vec/vec.h"

#include "kernels/cpu/simd/features.h"

const sw_vec *sw_vec_best(void)
{
    if (sw_cpu_has_avx512()) return &sw_vec_avx512;
    return sw_cpu_has_avx2() ? &sw_vec_avx2 : &sw_vec_any;
}
