/* features.c - see features.h. The lists mirror ISA_FLAGS of the Makefile. */
#include "kernels/cpu/simd/features.h"

#include "kernels/rows.h"

#if SW_X86_SIMD
bool sw_cpu_has_avx2(void)
{
    /* every processor with FMA3 and AVX2 has F16C; clang 14 cannot ask for it */
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

bool sw_cpu_has_avx512(void)
{
    return sw_cpu_has_avx2() && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512dq");
}

bool sw_cpu_has_vnni(void)
{
    return sw_cpu_has_avx512() && __builtin_cpu_supports("avx512vnni");
}
#else
bool sw_cpu_has_avx2(void) { return false; }
bool sw_cpu_has_avx512(void) { return false; }
bool sw_cpu_has_vnni(void) { return false; }
#endif
