/* factor.h - a damped Hessian, ordered and factorized once for all linears that share it.
 *
 * GPTQ needs the upper Cholesky factor U of the inverse, inv(H) = U^T U, in the order in which
 * columns will be quantized. It is taken in double from one factorization of the reversed
 * matrix: with J the reversal, J H J = L L^T gives H = (J L J)(J L J)^T, and U = inv(J L J).
 * That avoids forming inv(H), which is where float implementations lose definiteness.
 */
#ifndef SW_QUANT_METHOD_FACTOR_H
#define SW_QUANT_METHOD_FACTOR_H

#include "quant/stats/hessian.h"

/* Order in which columns are quantized. Groups are always contiguous in the stored weight. */
typedef enum sw_order {
    SW_ORDER_NONE,   /* as stored */
    SW_ORDER_STATIC, /* falling Hessian diagonal; scales fixed beforehand ("act-order") */
    SW_ORDER_GAR,    /* falling diagonal inside groups, groups by their largest diagonal */
    SW_ORDER_COUNT
} sw_order;

typedef struct sw_factor_options {
    sw_order order;
    int64_t group_elems; /* for GAR; 0: per channel */
    double damp;         /* first damping tried, as a fraction of the mean diagonal */
} sw_factor_options;

typedef struct sw_factor {
    int64_t k_in, n_tokens, n_dead;
    sw_order order;
    double damp;       /* that was needed */
    int n_retries;
    int32_t *perm;     /* [k_in] column quantized at step i */
    bool *is_dead;     /* [k_in] stored order: calibration saw only zeros */
    double *h;         /* [k_in, k_in] damped, stored order */
    double *u;         /* [k_in, k_in] upper, perm order, rows scaled to a unit diagonal */
    double *pivot;     /* [k_in] perm order: 1 / U_ii^2, what an error at this step costs */
    sw_solver *solver; /* NULL, or where h, u and pivot live instead: the last three are NULL */
    sw_device_factor on;
} sw_factor;

/* On the side where the Hessian is. SW_E_FORMAT when no damping up to the mean diagonal makes the
 * matrix definite. */
sw_code sw_factor_new(sw_factor *out, const sw_hessian *hess, const sw_factor_options *options,
                      sw_err *err) SW_MUST_USE;
void sw_factor_free(sw_factor *factor); /* accepts a zeroed one */

/* What an error in each input costs, [k_in] in memory, stored order: alone (the damped diagonal of
 * H), and once later columns have made good what they can. */
sw_code sw_factor_costs(double *diagonal, double *pivot, const sw_factor *factor,
                        sw_err *err) SW_MUST_USE;

/* rows [n, k_in] <- rows inv(H), in place; scratch [n, k_in]; of a factor on the host. */
void sw_factor_times_inverse(double *rows, double *scratch, const sw_factor *factor, int64_t n);

#endif
