/* gpu_case.h - one product on the device: operands, poisoned and guarded outputs. */
#ifndef SW_TESTS_GPU_SUPPORT_GPU_CASE_H
#define SW_TESTS_GPU_SUPPORT_GPU_CASE_H

#include "kernels/cuda_gemm.h"

typedef struct gpu_shape {
    int64_t m, n_out, k_in, group_elems; /* group_elems 0: per channel */
    int64_t scale_rows;                  /* channels that share their scales, of E4M3; 0: none */
    sw_num_id num;                       /* INT4, INT8 or E4M3 */
    bool is_asymmetric;
    sw_dtype dtype, scale_dtype;
    sw_act_scope scope;                  /* of X's codes; GROUP has 128 inputs */
    sw_num_id x_num;
    int64_t x_gap, y_gap;                /* elements between rows */
    int y_at;                            /* bytes that Y lies beyond what an allocation gives */
    uint64_t seed;
    bool has_columns;                    /* codes in that order, where products take them so */
    bool has_any_scale;                  /* every finite scale, else those that weights have */
    bool has_usual_scales;               /* 0, SW_USUAL_SCALE_MIN to SW_USUAL_SCALE_END */
    /* Scales are powers of two and X small integers, whose codes they are: every sum is exact. */
    bool is_exact;
} gpu_shape;

typedef struct gpu_case {
    gpu_shape shape;
    sw_qtensor q;          /* on the host */
    uint8_t *codes, *zeros;/* packed, on the host */
    uint8_t *scales;
    uint16_t *x;           /* on the host, [m, k_in + x_gap], NaN in the gaps */
    size_t codes_bytes, scales_bytes, zeros_bytes, x_bytes, y_bytes;
    uint8_t *d_y_guarded;
    sw_cuda_gemm problem;
    uint16_t *y;           /* last result on the host, [m, n_out + y_gap] */
    double *want;          /* [m, n_out] */
} gpu_case;

bool gpu_is_there(void); /* prints why not */
void gpu_case_new(gpu_case *c, const gpu_shape *shape);
void gpu_case_free(gpu_case *c);
/* Copy packed weights and X to the device again, and recompute nothing. */
void gpu_case_upload(gpu_case *c);
/* Codes of weights to the order of columns, or of int4 to signs and magnitudes, where products of
 * this device take them so. Whether they are in columns. */
bool gpu_case_order(gpu_case *c);
/* Whether a kernel can run the problem with codes of int4 as they are or the other way, as which
 * they are then: signs and magnitudes (kernels/cuda/gemm/sign_tiles.h) or as files have them. */
bool gpu_case_can_run(gpu_case *c, int kernel, int tile);
/* The product from the logical codes and X as sw_act_quantize leaves it, in double. */
void gpu_case_expect(gpu_case *c);
/* Poison, run, check canaries, fetch y. False: a canary broke or an element was not written. */
bool gpu_case_run(gpu_case *c, const sw_cuda_plan *plan);
/* Whether the kernels for scales that nobody has looked at make the y that is there, where they are
 * usual. */
bool gpu_case_same_unknown(gpu_case *c, const sw_cuda_plan *plan);
/* Poison, run each n_times on a stream of its own, in turns, fetch both y. */
void gpu_case_run_both(gpu_case c[2], const sw_cuda_plan plans[2], int n_times);
/* ||y - want|| / ||want||; infinity when something is not finite. */
double gpu_case_error(const gpu_case *c);
double gpu_case_bound(const gpu_case *c); /* what the error may be: rounding of Y */
/* Elements of y that are not `want` rounded once. */
int64_t gpu_case_differing(const gpu_case *c);
/* Codes, scales and sums of X as the device makes them are those of sw_act_quantize. */
bool gpu_case_quantizes_alike(gpu_case *c);

#endif
