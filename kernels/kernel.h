/* kernel.h - the one public header of the matrix kernels: problem, row, select.
 *
 * All compute Y[m, n] = sum_k X[m, k] * W[n, k] with X and Y in float and W either dense
 * (F32, F16, BF16) or in Swage tiles. Rows stand fastest first; the last row per operation is
 * the reference in plain C with double accumulation, and always can. Kernels never allocate:
 * ask for the workspace, then run. Each is deterministic for any thread count.
 */
#ifndef SW_KERNELS_KERNEL_H
#define SW_KERNELS_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/status.h"
#include "formats/pack/tiles.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum sw_gemm_op {
    SW_GEMM_DENSE, SW_GEMM_W4A16, SW_GEMM_W8A16, SW_GEMM_W4A8, SW_GEMM_W8A8,
    SW_GEMM_FP4A16, SW_GEMM_FP8A16, SW_GEMM_OP_COUNT
} sw_gemm_op;

/* What a matrix product reads as W; borrowed. `tiles` or `dense`, never both. */
typedef struct sw_weight {
    int64_t n_out, k_in;
    const void *dense;      /* [n_out, k_in] of dense_dtype */
    sw_dtype dense_dtype;
    const sw_tiles *tiles;
    const float *bias;      /* [n_out] or NULL */
    sw_act act;             /* quantize x so before the product; a dense weight may have one too
                               (then the rounded x is multiplied in float). Zeroed: none */
    float input_scale;      /* as in sw_qtensor */
} sw_weight;

typedef struct sw_gemm {
    int64_t m;
    const float *x;         /* [m, k_in], row stride x_stride elements */
    int64_t x_stride;
    float *y;               /* [m, n_out], row stride y_stride elements */
    int64_t y_stride;
    const sw_weight *w;
    int n_threads;
} sw_gemm;

typedef struct sw_kernel {
    const char *name;       /* "w4a16_avx512", ... */
    sw_gemm_op op;
    const char *isa;        /* "any", "avx2", "avx512", "vnni" */
    double tolerance;       /* L2 error of Y over the uncancelled size of Y, see kernels.def */
    bool (*can_run)(const sw_gemm *p);               /* cpu features and shape */
    size_t (*workspace_bytes)(const sw_gemm *p);
    void (*run)(const sw_gemm *p, void *workspace);  /* workspace is 64-byte aligned */
} sw_kernel;

extern const sw_kernel sw_kernels[];
extern const int sw_n_kernels;

/* The device's matrix kernels by name, in builds without CUDA as well: what they are is data
 * (cuda_kernels.def); their code is linked where nvcc was found. */
typedef struct sw_device_kernel {
    const char *name;
    const char *ops;    /* "W4A16, W8A16": weights and inputs that it multiplies */
    int sm_min, sm_max; /* compute capability of the devices that it runs on, as 80, 90 */
} sw_device_kernel;
#define SW_DEVICE_SM_ANY 999 /* of sm_max: that device and all later ones */

extern const sw_device_kernel sw_device_kernels[]; /* in the order in which they are tried */
extern const int sw_n_device_kernels;

sw_gemm_op sw_gemm_op_of(const sw_weight *w);
/* The first row that can run the problem; never NULL. `name` (or NULL) forces a row. */
const sw_kernel *sw_kernel_select(const sw_gemm *p, const char *name);
const sw_kernel *sw_kernel_find(const char *name); /* NULL when unknown */

/* Select, run, add the bias. The workspace is grown in *scratch as needed. */
typedef struct sw_scratch {
    void *bytes;
    size_t size_bytes;
} sw_scratch;
sw_code sw_gemm_run(const sw_gemm *p, sw_scratch *scratch, sw_err *err) SW_MUST_USE;
void sw_scratch_free(sw_scratch *scratch);

#ifdef __cplusplus
}
#endif
#endif
