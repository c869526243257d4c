/* rows.h - what stands behind each row of kernels.def; private to kernels/.
 *
 * Row `id` brings sw_<id>_can_run, sw_<id>_workspace_bytes and sw_<id>_run. All of them are
 * compiled for the baseline machine; only the inner loops they call carry an instruction set.
 */
#ifndef SW_KERNELS_ROWS_H
#define SW_KERNELS_ROWS_H

#include "kernels/kernel.h"

/* CONFIG=portable and machines other than x86-64 build without the vector rows. */
#if defined(__x86_64__) && !defined(SW_NO_SIMD)
#define SW_X86_SIMD 1
#else
#define SW_X86_SIMD 0
#endif

#define SW_KERNEL(id, op, isa, tolerance)                 \
    bool sw_##id##_can_run(const sw_gemm *p);             \
    size_t sw_##id##_workspace_bytes(const sw_gemm *p);   \
    void sw_##id##_run(const sw_gemm *p, void *workspace);
#include "kernels/kernels.def"
#undef SW_KERNEL

/* The dense part of a weight with outlier channels: Y += X[:, cols] * V^T. It follows the product
 * with the tiles, whose codes of these channels stand for 0. */
/* The definition: plain C, double accumulation per output. */
void sw_outliers_add_ref(const sw_gemm *p);
/* Gathered inputs times decoded values through BLAS, blocks of outputs in parallel; the workspace
 * is 64-byte aligned. Within 1e-5 of the reference, relative to the uncancelled sum. */
size_t sw_outliers_workspace_bytes(const sw_gemm *p);
void sw_outliers_add(const sw_gemm *p, void *workspace);

/* Below this many multiplications (some 20 us) waking a thread costs more than it brings. */
#define SW_SERIAL_BELOW (1 << 20)

/* Threads worth using: any number gives the same bytes. */
static inline int sw_kernel_threads(const sw_gemm *p)
{
    bool is_small = p->m * p->w->n_out < SW_SERIAL_BELOW / (p->w->k_in > 0 ? p->w->k_in : 1);

    return is_small || p->n_threads < 1 ? 1 : p->n_threads;
}

#endif
