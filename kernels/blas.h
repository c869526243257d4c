/* blas.h - how Swage uses OpenBLAS: one thread per call, always.
 *
 * Threads come from sw_parallel_for, whose chunks are fixed; a BLAS that splits the work by its
 * own thread count would make results depend on the machine.
 */
#ifndef SW_KERNELS_BLAS_H
#define SW_KERNELS_BLAS_H

#ifdef __cplusplus
extern "C" {
#endif

/* Once at the start of a program or a test, before any product. Cheap to repeat. */
void sw_blas_single_thread(void);

/* The kernel set that OpenBLAS chose for this processor: "Haswell", "SkylakeX", ... */
const char *sw_blas_core_name(void);

/* A value of OPENBLAS_CORETYPE under which OpenBLAS would run faster here than it does now, or
 * NULL. OpenBLAS 0.3.21 takes processors newer than itself for Haswell and leaves the 512-bit
 * units idle (measured on a Zen 5: sgemm 110 against 180 GFLOP/s per core). The choice is made
 * when the library is loaded, so a program that wants it sets the variable and starts itself
 * again. NULL as well when the user has set the variable. */
const char *sw_blas_better_core(void);

#ifdef __cplusplus
}
#endif
#endif
