/* gemm_case.h - one matrix product for tests: operands, guarded buffers and what Y must be.
 *
 * The expected product is taken from the logical codes in double, and the packing is written here
 * from the offsets in tiles.h, so neither shares code with what is tested.
 */
#ifndef TESTS_SUPPORT_GEMM_CASE_H
#define TESTS_SUPPORT_GEMM_CASE_H

#include "kernels/kernel.h"

typedef struct gemm_shape {
    sw_gemm_op op;
    int64_t m, n_out, k_in;
    int64_t x_gap, y_gap;     /* elements between rows beyond k_in resp. n_out */
    sw_dtype dtype;           /* dense: of the weights; tiles: of the scales */
    sw_num_id num;            /* tiles only */
    int64_t group_elems;
    bool is_asymmetric, is_integer; /* integer: every product and sum is exact in float */
    bool is_static;           /* int8 activations with one scale for all tokens */
    bool has_global;          /* scales are multiplied by one of the tensor */
    uint32_t seed;
} gemm_shape;

typedef struct gemm_case {
    gemm_shape shape;
    uint8_t *codes, *zeros;   /* logical: [n_out, k_in], [n_out, n_groups] */
    float *scales;            /* [n_out, n_groups] */
    uint8_t *raw_scales;      /* the same as they are stored */
    float *values;            /* [n_out, k_in]: what W is, exactly */
    uint8_t *tile_codes, *tile_zeros;
    uint8_t *tile_scales;     /* raw, of shape.dtype */
    void *dense;
    float *x, *y_bytes;       /* x with NaN between rows; y inside canaries */
    double *x_seen;           /* [m, k_in]: x as the product sees it, rounded where it is */
    double *want;             /* [m, n_out] */
    double size;              /* sqrt of the sum of (x w)^2 over all m, n, k */
    sw_tiles tiles;
    sw_weight weight;
    sw_gemm problem;
} gemm_case;

void gemm_case_new(gemm_case *c, const gemm_shape *shape);
void gemm_case_free(gemm_case *c);
/* Pack the logical form again, after a test has changed it; values and want stay. */
void gemm_case_pack(gemm_case *c);
/* Recompute values and want after x, codes, scales or zeros have changed. */
void gemm_case_expect(gemm_case *c);

/* Fill Y with NaN, run the row on n_threads with a NaN-filled workspace, check every canary.
 * The L2 error of Y over `size`, or infinity when an element is not finite or a canary broke. */
double gemm_case_run(gemm_case *c, const sw_kernel *kernel, int n_threads);
/* Bytes of Y that differ from the float nearest to what it must be. */
int64_t gemm_case_inexact(const gemm_case *c);
void gemm_case_describe(char *text, size_t text_bytes, const gemm_case *c);

/* Do weight codes meet int8 codes of activations in this operation? */
bool gemm_op_is_int8(sw_gemm_op op);
/* The codes that a test of this operation uses where it says nothing else. */
sw_num_id gemm_op_num(sw_gemm_op op);
/* A small float by the definition of its bits (small.h), without a table. */
float gemm_small_float(sw_num_id num, int code);

uint32_t gemm_random(uint32_t *state);

#endif
