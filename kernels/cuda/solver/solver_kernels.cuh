/* solver_kernels.cuh - what a solve launches. For the files solver_* alone.
 *
 * Row-major device arrays, n rows: targets and weights in double [n, k], codes in bytes [n, k],
 * scales and zeros in float [n, n_groups] (every stored scale is a float, every zero an integer).
 */
#ifndef SW_KERNELS_CUDA_SOLVER_SOLVER_KERNELS_CUH
#define SW_KERNELS_CUDA_SOLVER_SOLVER_KERNELS_CUH

#include "kernels/cuda/solver/solver_internal.cuh"

#ifdef __cplusplus
extern "C" {
#endif

/* How a scale is rounded before it is used. */
typedef enum scale_kind {
    SCALE_F32, SCALE_F16, SCALE_BF16, SCALE_POW2, SCALE_E4M3, SCALE_NONE
} scale_kind;

/* A grid as kernels need it: sw_qspec without pointers to the host. A "level" is what a code means
 * before zero and scale: an integer's code, a small float's value (grid.h of quant/). */
typedef struct grid_shape {
    int code_max, sym_zero, zero_min;
    int scale_kind;
    bool is_symmetric;
    bool tries_signs;                        /* as in quant/method/grid.c */
    bool steps_scales;                       /* while it descends, as in quant/method/refine.c */
    bool is_small;                           /* a small float; of these the rest speaks: */
    int code_bits, mantissa_bits, exponent0; /* exponent0: of the smallest normal value */
    int pow2_rule;                           /* sw_pow2_rule that the range goes by */
    bool is_range_final;                     /* no search: the rule decides */
    double normal, step, top;
} grid_shape;

/* The state of a chunk of rows. */
typedef struct solve_rows {
    int64_t n, k, n_groups, group_elems;
    const float *w;      /* [n, k] original */
    const double *shift; /* [n, k] or NULL */
    double global;       /* scale of the whole weight: targets are divided by it */
    double *target;      /* [n, k] */
    double *work;        /* [n, k] perm order during the sweep; products afterwards */
    double *slope;       /* [n, k] H times the error of each row, for the columns in hand */
    double *error;       /* [n, k] */
    double *aim;         /* [n, k] H times the target */
    double *lift;        /* [n, k] H times the shift, as part of the target; NULL: there is none */
    double *block;       /* [n, 128] errors or steps of a block */
    uint8_t *codes, *old_codes;  /* [n, k], as they are stored */
    float *scales, *old_scales;  /* [n, n_groups] */
    float *zeros;                /* [n, n_groups] */
    double *loss, *new_loss, *loss_rtn, *power; /* [n] */
    double *system;      /* [some rows, n_groups, n_groups] or NULL */
    double *rhs;         /* [n, n_groups] */
    double **system_at, **rhs_at; /* [some rows] for the batched routines */
    int *info;           /* [some rows] */
    int *is_settled;     /* [n / 64] slabs whose refinement has ended (refine.h) */
    int64_t system_rows;
} solve_rows;

/* Groups to fit: group i (0..n_fit) covers columns col0 + i * group_elems up to col_end of v. */
typedef struct fit_span {
    const double *v;      /* row stride k */
    const double *weight; /* by column of v; unused for ranges */
    int64_t col0, col_end, n_fit;
    int64_t out0;         /* scale of group 0 */
} fit_span;

/* d_out [k] = the diagonal of d_h [k, k]. */
sw_code sw_solver_take_diagonal(double *d_out, sw_solver *s, const double *d_h, int64_t k,
                                sw_err *err) SW_MUST_USE;
sw_code sw_rows_target(const solve_rows *r, bool with_shift, cudaStream_t stream,
                       sw_err *err) SW_MUST_USE;
sw_code sw_rows_fit(const solve_rows *r, const fit_span *span, const grid_shape *g, bool search,
                    cudaStream_t stream, sw_err *err) SW_MUST_USE;
/* Scales of rows [row0, row0 + n) of the weight from d_shared [ceil(n_out / rows), n_groups], the
 * zeros as the format has them. */
sw_code sw_rows_share(const solve_rows *r, const double *d_shared, int64_t row0, int64_t rows,
                      const grid_shape *g, cudaStream_t stream, sw_err *err) SW_MUST_USE;
sw_code sw_rows_round(const solve_rows *r, const grid_shape *g, cudaStream_t stream,
                      sw_err *err) SW_MUST_USE;
/* error = scale * (level - zero) - target, or the levels less their zeros alone. */
sw_code sw_rows_error(const solve_rows *r, const grid_shape *g, bool levels_alone,
                      cudaStream_t stream, sw_err *err) SW_MUST_USE;
/* The same of columns [begin, end), from the target. */
sw_code sw_rows_error_of(const solve_rows *r, const grid_shape *g, int64_t begin, int64_t end,
                         cudaStream_t stream, sw_err *err) SW_MUST_USE;
/* d_values [n, k] = what sw_qtensor_decode makes of the codes. */
sw_code sw_rows_decode(float *d_values, const solve_rows *r, const grid_shape *g,
                       cudaStream_t stream, sw_err *err) SW_MUST_USE;
/* out [n] = sums over columns of weight * error^2. */
sw_code sw_rows_weigh(double *d_out, const solve_rows *r, const double *d_weight,
                      cudaStream_t stream, sw_err *err) SW_MUST_USE;
/* out [n] = a . b by rows. */
sw_code sw_rows_dot(double *d_out, const double *d_a, const double *d_b, int64_t n, int64_t k,
                    cudaStream_t stream, sw_err *err) SW_MUST_USE;
sw_code sw_rows_permute(const solve_rows *r, const int32_t *d_perm, cudaStream_t stream,
                        sw_err *err) SW_MUST_USE;

/* Columns [begin, end) of a block that ends at block_end, at most 128 from begin on: codes in
 * stored order, errors into r->block at column begin - block_begin. */
sw_code sw_rows_sweep(const solve_rows *r, const double *d_u, const int32_t *d_perm,
                      const grid_shape *g, int64_t block_begin, int64_t begin, int64_t end,
                      int64_t block_end, cudaStream_t stream, sw_err *err) SW_MUST_USE;
/* A pass of coordinate descent over columns [begin, end): codes, and scales that are stepped, move;
 * the steps of values into r->block. */
sw_code sw_rows_descend(const solve_rows *r, const double *d_h, const grid_shape *g, int64_t begin,
                        int64_t end, cudaStream_t stream, sw_err *err) SW_MUST_USE;
/* Rows of system and rhs of groups [g, g + 1) from products r->work [n, (g + 1) * group]. */
sw_code sw_rows_system(const solve_rows *r, int64_t g, int64_t row0, int64_t n_rows,
                       cudaStream_t stream, sw_err *err) SW_MUST_USE;
/* All of system and rhs at once, of whole groups of SW_SYSTEM_GROUP columns: first what codes are
 * worth in scales, d_levels BF16 [n, k], and rhs of it; then the systems of rows [row0, row0 + n).
 * d_h_halves [2, k, k]. */
#define SW_SYSTEM_GROUP 128
sw_code sw_rows_levels(uint16_t *d_levels, const solve_rows *r, const grid_shape *g,
                       cudaStream_t stream, sw_err *err) SW_MUST_USE;
sw_code sw_rows_systems(const solve_rows *r, const uint16_t *d_levels, const uint16_t *d_h_halves,
                        int64_t row0, int64_t n_rows, cudaStream_t stream,
                        sw_err *err) SW_MUST_USE;
/* A light pull towards the present scales; pointers for the batched routines. */
sw_code sw_rows_ridge(const solve_rows *r, int64_t row0, int64_t n_rows, cudaStream_t stream,
                      sw_err *err) SW_MUST_USE;
sw_code sw_rows_take_scales(const solve_rows *r, const grid_shape *g, int64_t row0, int64_t n_rows,
                            cudaStream_t stream, sw_err *err) SW_MUST_USE;
/* The best of each group so far, [n, n_groups] each. */
typedef struct clip_best {
    float *fit, *fit_zeros; /* what clips are made from */
    float *scales, *zeros;
    double *loss;
} clip_best;
/* Scales and zeros of a clip: `step` times the fitted ones, as stored. */
sw_code sw_rows_clip(const solve_rows *r, const clip_best *best, double step, const grid_shape *g,
                     cudaStream_t stream, sw_err *err) SW_MUST_USE;
/* Keep the present scales in groups where e^T H e, from error and slope, is below the best. */
sw_code sw_rows_keep_clip(const solve_rows *r, const clip_best *best, cudaStream_t stream,
                          sw_err *err) SW_MUST_USE;
/* Keep a round where the loss fell; settle slabs that gained nothing. */
sw_code sw_rows_accept(const solve_rows *r, cudaStream_t stream, sw_err *err) SW_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
