/* solver.h - the dense algebra of calibration on a CUDA device: sums of products, factorization,
 * rounding, clipping, GPTQ with refinement, packing; and the products that searches for scales try.
 *
 * What quant/ does in double on the CPU is done in double on the device, in the same order wherever
 * an order shows in the result: scales, zeros and codes are decided by the same operations, and
 * only the matrix products sum otherwise, which moves results by 1e-13 and a code once in millions.
 * Data centre GPUs multiply doubles as fast as floats, so nothing is lost by it.
 *
 * Everything is enqueued on the device's stream; functions that hand results to the host wait for
 * it. Two runs give the same bytes. A build without CUDA has no device to open a solver on.
 * Device pointers begin with d_. Valid as C11 and as C++17.
 */
#ifndef SW_KERNELS_SOLVER_H
#define SW_KERNELS_SOLVER_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/num/num.h"
#include "kernels/device.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sw_solver sw_solver; /* a device with cuBLAS and cuSOLVER */

typedef enum sw_stage {
    SW_STAGE_FIT,     /* scales of groups */
    SW_STAGE_SWEEP,   /* columns of GPTQ, one launch a block of 128 */
    SW_STAGE_UPDATE,  /* what a block's errors do to later columns */
    SW_STAGE_REFINE,  /* refine.h of quant/ */
    SW_STAGE_LOSS,    /* the report's figures */
    SW_STAGE_COPY,    /* weights in, codes and scales out */
    SW_STAGE_COUNT
} sw_stage;
extern const char *const sw_stage_names[SW_STAGE_COUNT];

/* On an opened device, borrowed, and on its stream. cuBLAS and cuSOLVER are loaded now, not linked;
 * SW_E_CUDA names what is missing. work_bytes: most that a solve may take beside its operands (rows
 * are then solved in chunks); 0: a default. */
sw_code sw_solver_open(sw_solver **out, sw_device *gpu, int64_t work_bytes,
                       sw_err *err) SW_MUST_USE;
void sw_solver_close(sw_solver *s); /* accepts NULL */
/* *out, borrowed: the i-th solver beside `s`, on the same device with a stream of its own, for the
 * thread that calls; made when it is first asked for. Threads ask for different ones at a time.
 * What `s` has enqueued before must have ended. Its solves take SW_LANE_BYTES beside their
 * operands. */
#define SW_SOLVER_LANES 8
#define SW_LANE_BYTES ((int64_t)2 << 30)
sw_code sw_solver_lane(sw_solver **out, sw_solver *s, int i, sw_err *err) SW_MUST_USE;
sw_device *sw_solver_gpu(const sw_solver *s);
/* Enqueue a copy on the device. */
sw_code sw_solver_copy(sw_solver *s, void *d_to, const void *d_from, int64_t n_bytes,
                       sw_err *err) SW_MUST_USE;
/* d_to [n, k] BF16 = rows of d_x, stride elements apart, or d_from [n, k], its columns divided by
 * d_scale [k] (NULL: 1), less these; d_from may be d_to, or NULL. */
sw_code sw_solver_keep(sw_solver *s, uint16_t *d_to, const uint16_t *d_from, const float *d_scale,
                       const void *d_x, int64_t stride, int64_t n, int64_t k,
                       sw_err *err) SW_MUST_USE;
/* d_to [n] BF16 = d_x, or d_x - d_y; floats. */
sw_code sw_solver_to_bf16(sw_solver *s, uint16_t *d_to, const float *d_x, const float *d_y,
                          int64_t n, sw_err *err) SW_MUST_USE;

/* ---- sums of products: G [n_rows, n_cols] += a^T b over tokens ---- */

/* Tokens summed in float before they join the double sums. */
#define SW_GRAM_CHUNK_TOKENS 32768

typedef struct sw_gram {
    int64_t n_rows, n_cols;
    bool is_symmetric;  /* a is b: only the upper triangle is summed */
    int64_t strip_rows; /* of a symmetric one; the default measured best */
    double *d_sum;      /* [n_rows, n_cols] */
    double *d_piece;    /* the piece under way where it has several chunks and is not the first;
                         * else NULL */
    float *d_part;      /* the chunk under way, NULL between pieces */
    int64_t n_part;     /* tokens in it */
    int64_t n_tokens;   /* in all */
    bool has_pieces;    /* that have ended */
} sw_gram;

sw_code sw_gram_new(sw_gram *out, sw_solver *s, int64_t n_rows, int64_t n_cols, bool is_symmetric,
                    sw_err *err) SW_MUST_USE;
void sw_gram_free(sw_gram *g, sw_solver *s); /* accepts a zeroed one */
/* d_a BF16 [n_tokens, n_rows] and d_b BF16 [n_tokens, n_cols], rows so many elements apart; the
 * same pointer when symmetric.
 * Products are exact and summed in float on the tensor cores. */
sw_code sw_gram_add(sw_gram *g, sw_solver *s, const uint16_t *d_a, int64_t a_stride,
                    const uint16_t *d_b, int64_t b_stride, int64_t n_tokens,
                    sw_err *err) SW_MUST_USE;
/* What was added since the last end of a piece joins the sum, as if it were the sum of another gram
 * that is merged: the same bytes, without another matrix where it fits one chunk. */
sw_code sw_gram_end_piece(sw_gram *g, sw_solver *s, sw_err *err) SW_MUST_USE;
/* End a piece and mirror the upper triangle; more may be added afterwards. */
sw_code sw_gram_finish(sw_gram *g, sw_solver *s, sw_err *err) SW_MUST_USE;
/* into += from; the pieces of both have ended. */
sw_code sw_gram_merge(sw_gram *into, const sw_gram *from, sw_solver *s, sw_err *err) SW_MUST_USE;
/* diagonal [k] of d_h [k, k] to the host. */
sw_code sw_solver_diagonal(double *diagonal, sw_solver *s, const double *d_h, int64_t k,
                           sw_err *err) SW_MUST_USE;

/* ---- factorization: see quant/method/factor.h, whose fields these are ---- */

typedef struct sw_device_factor {
    int64_t k_in;
    int32_t *d_perm;   /* [k] */
    double *d_h;       /* [k, k] damped, stored order */
    double *d_u;       /* [k, k] unit upper, perm order */
    double *d_pivot;   /* [k] */
    uint16_t *d_h_halves, *d_u_halves; /* [2, k, k] of both as solver_split.cu has them, or NULL */
} sw_device_factor;

/* Copies d_h [k, k] with its diagonal replaced, and perm, both from the host. */
sw_code sw_device_factor_new(sw_device_factor *out, sw_solver *s, const double *d_h,
                             const double *diagonal, const int32_t *perm, int64_t k,
                             sw_err *err) SW_MUST_USE;
void sw_device_factor_free(sw_device_factor *f, sw_solver *s); /* accepts a zeroed one */
/* Cholesky of H + lambda in perm order; is_definite false: try a larger one. */
sw_code sw_device_factor_try(bool *is_definite, sw_device_factor *f, sw_solver *s, double lambda,
                             sw_err *err) SW_MUST_USE;
/* After a try that succeeded: U, the pivots, and the damped H. SW_E_FORMAT: a zero on the
 * factor's diagonal. */
sw_code sw_device_factor_finish(sw_device_factor *f, sw_solver *s, double lambda,
                                sw_err *err) SW_MUST_USE;

/* ---- rows in doubles, of a weight's width ---- */

/* Rows of a weight that are multiplied together. Libraries choose by shapes how they sum products,
 * so rows of a weight get the same bytes alone as in the whole where they are cut at multiples of
 * these. A power of two. */
#ifndef SW_SOLVER_PRODUCT_ROWS
#define SW_SOLVER_PRODUCT_ROWS 1024
#endif
/* Rows that are worked on at a time, at most: so many products of these in a call, for what goes
 * column by column waits for itself and takes hardly longer for many rows. */
#define SW_SOLVER_ROWS 4096
/* How many of n rows to work on at a time when each takes so many bytes. */
int64_t sw_solver_rows(const sw_solver *s, int64_t n, int64_t row_bytes);
/* d_to [n] doubles = floats of the host. */
sw_code sw_solver_widen(sw_solver *s, double *d_to, const float *from, int64_t n,
                        sw_err *err) SW_MUST_USE;
/* Rows of these three begin at a multiple of SW_SOLVER_PRODUCT_ROWS; of the first and the last
 * there are SW_SOLVER_ROWS at most. d_out [n, k] = alpha d_a [n, k] d_b [k, k] + beta d_out */
sw_code sw_solver_times(sw_solver *s, double *d_out, double beta, double alpha, const double *d_a,
                        const double *d_b, int64_t n, int64_t k, sw_err *err) SW_MUST_USE;
/* The same in doubles however wide, for what will cancel. */
sw_code sw_solver_times_exactly(sw_solver *s, double *d_out, double beta, double alpha,
                                const double *d_a, const double *d_b, int64_t n, int64_t k,
                                sw_err *err) SW_MUST_USE;
/* d_out [n, k] -= d_w [n, k] d_b [k, k], d_w of BF16. */
sw_code sw_solver_take_product(sw_solver *s, double *d_out, const uint16_t *d_w, const double *d_b,
                               int64_t n, int64_t k, sw_err *err) SW_MUST_USE;
/* d_rows [n, k] <- d_rows inv(H), in place; d_scratch [n, k]. */
sw_code sw_solver_times_inverse(sw_solver *s, double *d_rows, double *d_scratch,
                                const sw_device_factor *f, int64_t n, sw_err *err) SW_MUST_USE;
/* *sum += the inner product of d_a and d_b [n, k], summed in the order of rows. */
sw_code sw_solver_inner(double *sum, sw_solver *s, const double *d_a, const double *d_b, int64_t n,
                        int64_t k, sw_err *err) SW_MUST_USE;
/* by_row [n], on the host and so many elements apart: the inner product of each row alone. */
sw_code sw_solver_inner_rows(double *by_row, int64_t stride, sw_solver *s, const double *d_a,
                             const double *d_b, int64_t n, int64_t k, sw_err *err) SW_MUST_USE;
/* d_to [n] += scale * d_from */
sw_code sw_solver_axpy(sw_solver *s, double *d_to, double scale, const double *d_from, int64_t n,
                       sw_err *err) SW_MUST_USE;

/* d_to [n] = a d_a + b d_b, rounded as the CPU does; d_to may be either. */
sw_code sw_solver_mix(sw_solver *s, double *d_to, double a, const double *d_a, double b,
                      const double *d_b, int64_t n, sw_err *err) SW_MUST_USE;
/* d_m [k, k], symmetric, <- W d_m W^T with W^T W = inv(H): the norm of it where H is the identity.
 * The factor's order is the stored one. */
sw_code sw_solver_whiten(sw_solver *s, double *d_m, const sw_device_factor *f,
                         sw_err *err) SW_MUST_USE;
/* d_rows [n, k] <- d_rows W, or d_rows W^T (turned), with the same W. */
sw_code sw_solver_whiten_rows(sw_solver *s, double *d_rows, const sw_device_factor *f, int64_t n,
                              bool is_turned, sw_err *err) SW_MUST_USE;

/* ---- a weight ---- */

typedef enum sw_device_method {
    SW_DEVICE_RTN,  /* plain rounding (rtn.c of quant/) */
    SW_DEVICE_CLIP, /* on searched ranges (clip.c) */
    SW_DEVICE_GPTQ  /* gptq.c with refine.c */
} sw_device_method;

typedef struct sw_device_problem {
    sw_device_method method;
    const float *w;                 /* host, [n_out, k_in]; or */
    const float *d_w;               /* on the device */
    int64_t n_out, k_in;
    sw_qspec spec;                  /* see sw_solver_can */
    double global;                  /* of a spec that has one, settled beforehand; 0: none */
    const double *shared;           /* host, [ceil(n_out / shared_rows), n_groups]: scales that */
    int64_t shared_rows;            /* rows share, likewise; NULL: they share none */
    const sw_device_factor *factor; /* NULL: plain rounding, no sums */
    const double *d_shift;          /* [n_out, k_in] added to w as the value to aim at, or NULL */
    bool refit;                     /* fit a group when the sweep reaches it (gptq.c) */
    int refine_rounds;
    float *d_values;                /* [n_out, k_in] gets the decoded result, or NULL; may be d_w */
    struct sw_device_sums *by_row;  /* host, [n_out], what each row adds to the sums, or NULL */
} sw_device_problem;

typedef struct sw_device_sums { /* over all rows: see sw_solve_report */
    double loss, loss_rtn, power;
} sw_device_sums;

/* Can a device solve weights of this spec? Needs none. Integers with one scale a row and group, and
 * small floats; not what keeps outliers. */
bool sw_solver_can(const sw_qspec *spec);
/* Fill codes, scales and zeros of q (on the host, allocated with the problem's spec and shape; or
 * NULL). stage_s [SW_STAGE_COUNT], or NULL: seconds by stage are added; it costs a wait a stage. */
sw_code sw_solver_solve(sw_qtensor *q, sw_device_sums *sums, sw_solver *s,
                        const sw_device_problem *p, double *stage_s, sw_err *err) SW_MUST_USE;
/* *loss += what fitting and rounding a few rows costs, a squared error weighted by d_weight [k_in];
 * of a problem for plain rounding. */
sw_code sw_solver_score(double *loss, sw_solver *s, const sw_device_problem *p,
                        const double *d_weight, sw_err *err) SW_MUST_USE;

/* ---- searches: floats [n, k], row after row ---- */

sw_code sw_solver_fill(sw_solver *s, double *d_to, double value, int64_t n,
                       sw_err *err) SW_MUST_USE;
/* d_to = d_from with column j times (or divided by) d_scale [k], as a double; may be in place. */
sw_code sw_solver_scale(sw_solver *s, float *d_to, const float *d_from, const double *d_scale,
                        int64_t n, int64_t k, bool divides, sw_err *err) SW_MUST_USE;
/* d_to [k, k] = d_from divided by the scales of row and column. */
sw_code sw_solver_scale_gram(sw_solver *s, double *d_to, const double *d_from,
                             const double *d_scale, int64_t k, sw_err *err) SW_MUST_USE;
/* d_y [n, n_out] = d_x [n, k] d_w [n_out, k]^T, in floats without shortcuts. */
sw_code sw_solver_multiply(sw_solver *s, float *d_y, const float *d_x, const float *d_w, int64_t n,
                           int64_t n_out, int64_t k, sw_err *err) SW_MUST_USE;
/* by_row [n], on the host, += the squared distance of the rows; d_want NULL: from 0. */
sw_code sw_solver_row_errors(double *by_row, sw_solver *s, const float *d_have,
                             const float *d_want, int64_t n, int64_t width,
                             sw_err *err) SW_MUST_USE;
/* amax [ceil(n / rows), ceil(k / cols)], on the host: the largest magnitudes of blocks. */
sw_code sw_solver_amax(float *amax, sw_solver *s, const float *d_w, int64_t n, int64_t k,
                       int64_t rows, int64_t cols, sw_err *err) SW_MUST_USE;
/* Inputs as sw_act_round leaves them, d_to dense: floats, or BF16 from rows `stride` elements apart
 * and rounded to it once more. */
sw_code sw_solver_act_round(sw_solver *s, float *d_to, const float *d_x, int64_t n, int64_t k,
                            const sw_act *act, float input_scale, sw_err *err) SW_MUST_USE;
sw_code sw_solver_act_round_bf16(sw_solver *s, uint16_t *d_to, const void *d_x, int64_t stride,
                                 int64_t n, int64_t k, const sw_act *act, float input_scale,
                                 sw_err *err) SW_MUST_USE;

/* ---- how large inputs get: d_x BF16 [n, k], rows `stride` elements apart ---- */

/* Magnitudes are counted by what a BF16 can be from 2^-40 to 2^24, the rest at either end. */
#define SW_MAGNITUDES 8192
#define SW_MAGNITUDE_LOWEST_OCTAVE (-40)

/* d_max [k] the largest |x| of each channel, an infinity where one is not finite; d_sum [k] += |x|,
 * or NULL. */
sw_code sw_solver_watch_sizes(sw_solver *s, float *d_max, double *d_sum, const void *d_x,
                              int64_t stride, int64_t n, int64_t k, sw_err *err) SW_MUST_USE;
/* d_counts [SW_MAGNITUDES] += those above 0; *d_most: the bits of the largest as a BF16. */
sw_code sw_solver_watch_magnitudes(sw_solver *s, int64_t *d_counts, uint32_t *d_most,
                                   const void *d_x, int64_t stride, int64_t n, int64_t k,
                                   sw_err *err) SW_MUST_USE;
/* d_to [n, k] floats = rows first, first + every, ... of d_x. */
sw_code sw_solver_watch_take(sw_solver *s, float *d_to, const void *d_x, int64_t stride,
                             int64_t first, int64_t every, int64_t n, int64_t k,
                             sw_err *err) SW_MUST_USE;

/* d_codes [n_out, k_in], d_scales [n_out, n_groups] floats and d_zeros (likewise, floats, or NULL
 * when symmetric) into Swage tiles: the bytes of sw_tiles_pack. */
sw_code sw_solver_pack(uint8_t *d_tiles, void *d_tile_scales, uint8_t *d_tile_zeros, sw_solver *s,
                       const sw_qspec *spec, int64_t n_out, int64_t k_in, const uint8_t *d_codes,
                       const float *d_scales, const float *d_zeros, sw_err *err) SW_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
