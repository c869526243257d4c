/* features.h - what this processor can do, asked once per call at run time. */
#ifndef SW_KERNELS_CPU_SIMD_FEATURES_H
#define SW_KERNELS_CPU_SIMD_FEATURES_H

#include <stdbool.h>

/* All instruction sets that *_avx2.c, *_avx512.c and *_vnni.c files are compiled for. Always
 * false in a build without vector rows. */
bool sw_cpu_has_avx2(void);
bool sw_cpu_has_avx512(void);
bool sw_cpu_has_vnni(void);
/* What rows of isa "any" ask. */
static inline bool sw_cpu_has_any(void) { return true; }

#endif
