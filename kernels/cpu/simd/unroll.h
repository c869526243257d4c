/* unroll.h - loops whose accumulators must stay in registers. */
#ifndef SW_KERNELS_CPU_SIMD_UNROLL_H
#define SW_KERNELS_CPU_SIMD_UNROLL_H

/* Before a `for` of at most eight rounds; else GCC may keep the sums in memory. Checked builds,
 * which look at every access, would take minutes to compile and gain nothing. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define UNROLL
#else
#define UNROLL _Pragma("GCC unroll 8")
#endif

#endif
