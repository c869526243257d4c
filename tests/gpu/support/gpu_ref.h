/* gpu_ref.h - reference product on the device, for tests and for the check before a timing. */
#ifndef SW_TESTS_GPU_SUPPORT_GPU_REF_H
#define SW_TESTS_GPU_SUPPORT_GPU_REF_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* y[m, n] = sum_k x[m, k] * x_scales[k / x_group, m] * scales[n, k / group] *
 *                 (values[codes[n, k]] - zeros[n, k / group]), all in double */
typedef struct gpu_ref_args {
    const float *x;          /* [m, k_in] */
    const float *x_scales;   /* [ceil(k_in / x_group_elems), m] or NULL */
    int64_t x_group_elems;
    const uint8_t *codes;    /* [n_out, k_in] */
    const float *values;     /* [256] */
    const float *scales;     /* [n_out, n_groups] */
    const uint8_t *zeros;    /* [n_out, n_groups], or NULL */
    int64_t m, n_out, k_in, n_groups, group_elems;
    int64_t n_step;          /* channels 0, n_step, 2 n_step, ... */
} gpu_ref_args;

/* d_y double [m][ceil(n_out / n_step)]; 0 on success. Pointers are to device memory. */
int gpu_ref_gemm(double *d_y, const gpu_ref_args *args);
/* Enqueue a copy, for the bandwidth that a kernel can have; n_bytes a multiple of 16. */
int gpu_ref_copy(void *d_to, const void *d_from, int64_t n_bytes, void *stream);

#ifdef __cplusplus
}
#endif
#endif
