/* gpu_case.h - one W4A16 product on the device: operands, poisoned and guarded outputs. */
#ifndef SW_TESTS_GPU_CASE_H
#define SW_TESTS_GPU_CASE_H

#include "kernels/cuda/cuda_gemm.h"

typedef struct gpu_shape {
    int64_t m, n_out, k_in, group_elems; /* group_elems 0: per channel */
    bool is_asymmetric;
    sw_dtype dtype, scale_dtype;
    int64_t x_gap, y_gap;                /* elements between rows */
    uint64_t seed;
    bool has_any_scale;                  /* every finite scale, else those that weights have */
} gpu_shape;

typedef struct gpu_case {
    gpu_shape shape;
    sw_qtensor q;          /* on the host */
    uint8_t *codes, *zeros;/* packed, on the host */
    uint16_t *scales;
    uint16_t *x;           /* on the host, [m, k_in + x_gap], NaN in the gaps */
    size_t codes_bytes, scales_bytes, zeros_bytes, x_bytes, y_bytes, work_bytes;
    uint8_t *d_y_guarded, *d_work_guarded;
    sw_cuda_gemm problem;
    uint16_t *y;           /* last result on the host, [m, n_out + y_gap] */
    double *want;          /* [m, n_out] */
} gpu_case;

bool gpu_is_there(void); /* prints why not */
void gpu_case_new(gpu_case *c, const gpu_shape *shape);
void gpu_case_free(gpu_case *c);
/* Copy packed weights and X to the device again, and recompute nothing. */
void gpu_case_upload(gpu_case *c);
/* The product from the logical codes, in double. */
void gpu_case_expect(gpu_case *c);
/* Poison, run, check canaries, fetch y. False: a canary broke or an element was not written. */
bool gpu_case_run(gpu_case *c, const sw_cuda_plan *plan);
/* ||y - want|| / ||want||; infinity when something is not finite. */
double gpu_case_error(const gpu_case *c);
double gpu_case_bound(const gpu_case *c); /* what the error may be: rounding of Y */

#endif
