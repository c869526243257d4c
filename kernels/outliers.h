/* outliers.h - the dense part of a weight with outlier channels: Y += X[:, cols] * V^T.
 *
 * Runs after the product with the tiles, whose codes of these channels stand for 0.
 */
#ifndef SW_KERNELS_OUTLIERS_H
#define SW_KERNELS_OUTLIERS_H

#include "kernels/kernel.h"

/* Plain C, double accumulation per output: the definition. */
void sw_outliers_add_ref(const sw_gemm *p);
/* Gathered inputs times decoded values through BLAS, blocks of outputs in parallel; the workspace
 * is 64-byte aligned. Within 1e-5 of the reference, relative to the uncancelled sum. */
size_t sw_outliers_workspace_bytes(const sw_gemm *p);
void sw_outliers_add(const sw_gemm *p, void *workspace);

#endif
