/* cpu_setup.c - see cpu_setup.h.
 *
 * OpenBLAS up to 0.3.21 does not recognise newer CPUs and falls back to its AVX2 kernels, which
 * halves sgemm on an AVX-512 machine; OPENBLAS_CORETYPE names the right ones. OpenMP threads that
 * wait by spinning take the processor from those that work as soon as the machine has anything
 * else to do: decoding with two threads beside other jobs was measured at 17 tokens a second
 * with spinning and 1117 without. Both libraries read these in constructors, before main, so
 * the program starts itself again with them. What the user has set stands.
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
    bool wants_core = has_avx512() && !getenv("OPENBLAS_CORETYPE");
    bool wants_passive = !getenv("OMP_WAIT_POLICY") && !getenv("GOMP_SPINCOUNT");

    if (getenv(GUARD) || (!wants_core && !wants_passive)) return;
    if (setenv(GUARD, "1", 1) != 0) return;
    if (wants_core) (void)setenv("OPENBLAS_CORETYPE", "SKYLAKEX", 1);
    if (wants_passive) (void)setenv("OMP_WAIT_POLICY", "passive", 1);
    (void)setenv("OPENBLAS_NUM_THREADS", "1", 1);
    (void)execv("/proc/self/exe", argv); /* failing only costs speed */
}
