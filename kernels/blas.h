/* blas.h - how Swage uses OpenBLAS: one thread per call, always.
 *
 * Threads come from sw_parallel_for, whose chunks are fixed; a BLAS that splits the work by its
 * own thread count would make results depend on the machine.
 */
#ifndef SW_KERNELS_BLAS_H
#define SW_KERNELS_BLAS_H

#include "formats/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Once at the start of a program or a test, before any product. Cheap to repeat. */
void sw_blas_single_thread(void);

/* Before products on n_threads threads at once: have OpenBLAS map the buffers that those will take,
 * while a failure can still be reported. Where it finds no room later it tries again for ever.
 * Buffers stay for the process. SW_E_NOMEM names the remedy. */
sw_code sw_blas_reserve(int n_threads, sw_err *err) SW_MUST_USE;

/* The kernel set that OpenBLAS chose for this processor: "Haswell", "SkylakeX", ... It obeys
 * OPENBLAS_CORETYPE, so every figure that rests on OpenBLAS should name it. */
const char *sw_blas_core_name(void);

#ifdef __cplusplus
}
#endif
#endif
