/* cpu_setup.c - see cpu_setup.h.
 *
 * OpenBLAS up to 0.3.21 does not recognise newer CPUs and falls back to its AVX2 kernels, which
 * halves sgemm on an AVX-512 machine. OPENBLAS_CORETYPE names the right ones, but it is read by
 * a constructor, before main: so the program starts itself again with it. A value that the user
 * has set stands.
 */
#include "tools/cpu_setup.h"

#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#define GUARD "SWAGE_EXEC"

#if defined(__x86_64__)
static bool has_avx512(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512cd");
}
#else
static bool has_avx512(void) { return false; }
#endif

void sw_cpu_setup(char *argv[])
{
    if (getenv(GUARD) || getenv("OPENBLAS_CORETYPE") || !has_avx512()) return;
    if (setenv(GUARD, "1", 1) != 0 || setenv("OPENBLAS_CORETYPE", "SKYLAKEX", 1) != 0 ||
        setenv("OPENBLAS_NUM_THREADS", "1", 1) != 0)
        return;
    (void)execv("/proc/self/exe", argv); /* failing only costs speed */
}
