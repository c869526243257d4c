/* num.h - number formats as table rows, and the logical form of a quantized weight.
 *
 * sw_qtensor is independent of any packing. Algorithms produce it; packings and dialects convert it
 * to bytes and back without changing a code, a scale or a zero point.
 */
#ifndef SW_FORMATS_NUM_NUM_H
#define SW_FORMATS_NUM_NUM_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/view.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum sw_num_id {
#define SW_INTEGER(id, name, bits) SW_NUM_##id,
#define SW_SMALL_FLOAT(id, name, symbol, exponent, mantissa, last) SW_NUM_##id,
#include "formats/num/formats.def"
#undef SW_INTEGER
#undef SW_SMALL_FLOAT
    SW_NUM_COUNT
} sw_num_id;

typedef enum sw_num_kind { SW_NUM_INT, SW_NUM_FLOAT } sw_num_kind;

typedef struct sw_num {
    const char *name;
    sw_num_kind kind;
    int bits;
    int code_max; /* 2^bits - 1 */
    int sym_zero; /* 2^(bits-1); INT only */
    float top;    /* largest finite value; of signed codes for INT */
    int mantissa_bits;          /* FLOAT only: stored ones */
    float normal;               /* FLOAT only: smallest normal value */
    const float *values;        /* FLOAT only: [256] what each code means, see small.h */
    uint8_t (*encode)(float v); /* FLOAT only: nearest code, ties to even, saturating */
} sw_num;

extern const sw_num sw_nums[SW_NUM_COUNT];
const sw_num *sw_num_find(const char *name); /* NULL when unknown */
const sw_num *sw_num_by_bits(int bits); /* the INT row of that width; NULL when there is none */
/* The widths of the INT rows, for messages: "2, 3, 4 and 8". Returns `out`. */
#define SW_NUM_WIDTHS_BYTES 64
const char *sw_num_widths(char out[SW_NUM_WIDTHS_BYTES]);

/* How activations are quantized on their way into a product. */
typedef enum sw_act_scope {
    SW_ACT_NONE,   /* floats */
    SW_ACT_TENSOR, /* one scale for all tokens, found by calibration and stored */
    SW_ACT_TOKEN,  /* one scale per token, found as it comes */
    SW_ACT_GROUP,  /* one scale per token and group of inputs, found as it comes */
    SW_ACT_SCOPE_COUNT
} sw_act_scope;

typedef struct sw_act {
    const sw_num *num;    /* NULL with SW_ACT_NONE */
    sw_act_scope scope;
    int64_t group_elems;  /* SW_ACT_GROUP */
    sw_dtype scale_dtype; /* what a dynamic scale is rounded to: F32, F8_E4M3 or F8_E8M0 */
} sw_act;

/* Is part of the scale found by calibration and stored with the weight? */
static inline bool sw_act_needs_input_scale(const sw_act *act)
{
    return act->scope == SW_ACT_TENSOR ||
           (act->scope == SW_ACT_GROUP && act->scale_dtype == SW_DTYPE_F8_E4M3);
}

#define SW_ROWS_ALL (-1)

/* How one weight is cut into groups and stored. Shared by plan, algorithms and dialects. */
typedef struct sw_qspec {
    const sw_num *num;
    bool is_symmetric;    /* always true for FLOAT */
    int64_t group_elems;  /* along k_in; 0 means one group per output channel */
    sw_dtype scale_dtype; /* F16, BF16, F32, F8_E4M3 or F8_E8M0: what the dialect will store */
    int zero_min;         /* smallest zero point an asymmetric weight may get: the dialect's */
    int64_t scale_rows;   /* output channels that share their scales; 0 or 1: none,
                             SW_ROWS_ALL: the whole tensor */
    bool is_pow2_scale;   /* scales are powers of two, whatever scale_dtype they are stored in */
    int pow2_rule;        /* 1 + the rule of pow2.h that chooses them; 0: by the smallest error */
    bool is_sign_free;    /* fitting may choose negative scales, which mirror the range of symmetric
                             codes: -8..7 becomes -7..8. Readers need no change */
    bool has_global;      /* scales are relative to one float of the tensor (NVFP4) */
    sw_act act;
    int64_t n_outliers;   /* input channels whose weights stay F16, beside the codes */
    bool is_scattered;    /* a g_idx says which group a column is in (act-order) */
    sw_dtype input_dtype; /* BF16 or F16 where a file being read stores its input_scale so, else 0:
                             F32. Weights that were read and weights to write leave it at 0 */
    bool has_byte_codes;  /* a file being read stores codes below 8 bits one a byte, where the
                             dialect packs what it writes. Left at false as input_dtype is at 0 */
} sw_qspec;

/* true when both store a weight alike; zero_min, a limit of the dialect, does not count, nor do
 * is_sign_free, a liberty of the fit, is_scattered, which dialects with a g_idx store beside it,
 * and input_dtype and has_byte_codes, habits of one file. */
bool sw_qspec_same(const sw_qspec *a, const sw_qspec *b);

static inline int64_t sw_qspec_groups(const sw_qspec *spec, int64_t k_in)
{
    return spec->group_elems ? (k_in + spec->group_elems - 1) / spec->group_elems : 1;
}

/* Plain floats may have any sign, as some writers choose it, and be zero. */
static inline bool sw_qspec_has_free_scales(const sw_qspec *spec)
{
    return !spec->is_pow2_scale && sw_dtype_bits(spec->scale_dtype) >= 16;
}

/* Does a fit look on both sides of zero? Of 8-bit codes the value more on one side is worth
 * nothing. */
static inline bool sw_qspec_tries_signs(const sw_qspec *spec)
{
    return spec->is_sign_free && spec->is_symmetric && !spec->num->values &&
           spec->num->code_max <= 15;
}

#define SW_STEPPED_GROUP 16
/* Does refinement move a scale when it comes to the scale's codes, to the nearest that can be
 * stored, and not all of a row at once by least squares (refine.h of quant/)? With three bits of a
 * scale there is next to nothing between the two, and the systems of least squares grow with the
 * cube of the groups. */
static inline bool sw_qspec_steps_scales(const sw_qspec *spec, int64_t k_in)
{
    return spec->num->values && spec->scale_dtype == SW_DTYPE_F8_E4M3 && !spec->is_pow2_scale &&
           spec->group_elems == SW_STEPPED_GROUP && k_in % SW_STEPPED_GROUP == 0;
}

/* Rows that share their scales: at least 1. */
static inline int64_t sw_qspec_rows(const sw_qspec *spec, int64_t n_out)
{
    if (spec->scale_rows == SW_ROWS_ALL) return n_out;
    return spec->scale_rows > 1 ? spec->scale_rows : 1;
}

/* Borrowed arrays; value[n][k] = scales[n][g] * (codes[n][k] - zeros[n][g]), g = k's group, or
 * scales[n][g] * float(codes[n][k]); times global_scale when the spec has one. Rows that share
 * their scales hold copies of them. An outlier channel has the value outlier_values says, and
 * codes that stand for 0. */
typedef struct sw_qtensor {
    sw_qspec spec;
    int64_t n_out, k_in, n_groups;
    uint8_t *codes;  /* [n_out, k_in], each 0..code_max */
    float *scales;   /* [n_out, n_groups], each exactly representable in spec.scale_dtype */
    uint8_t *zeros;  /* [n_out, n_groups], 0..code_max; NULL when symmetric */
    int32_t *g_idx;  /* [k_in] group of each column, or NULL for k / group_elems */
    float global_scale; /* multiplier; read only when spec.has_global */
    float input_scale;  /* multiplier of SW_ACT_TENSOR codes, or the global one of SW_ACT_GROUP
                           with E4M3 scales; 0: none */
    int32_t *outlier_cols;   /* [spec.n_outliers] input channels, rising; NULL without any */
    float *outlier_values;   /* [n_out, spec.n_outliers], each an F16 */
} sw_qtensor;

/* Buffers for an n_out x k_in weight, zeroed; freed by sw_qtensor_free (accepts a zeroed one). */
sw_code sw_qtensor_alloc(sw_qtensor *out, const sw_qspec *spec, int64_t n_out, int64_t k_in,
                         sw_err *err) SW_MUST_USE;
/* The same, with codes that up to n_threads threads set to 0. */
sw_code sw_qtensor_alloc_wide(sw_qtensor *out, const sw_qspec *spec, int64_t n_out, int64_t k_in,
                              int n_threads, sw_err *err) SW_MUST_USE;
void sw_qtensor_free(sw_qtensor *q);

/* Nearest value that `dtype` (F32, F16, BF16, F8_E4M3, F8_E5M2, F8_E8M0) holds, ties to even; the
 * small floats saturate, and E8M0 knows no value below 2^-127. */
float sw_num_round_to(float v, sw_dtype dtype);

/* dst f32 [n_out, k_in] = scale * (code - zero) or scale * float(code), then times global_scale:
 * one float rounding a product. Plain C; this defines what a code means. */
void sw_qtensor_decode(float *dst, const sw_qtensor *q);
/* The same for n_rows rows from row0 on: dst [n_rows, k_in]. */
void sw_qtensor_decode_rows(float *dst, const sw_qtensor *q, int64_t row0, int64_t n_rows);

/* Every scale finite (F32, F16 and BF16 ones of either sign or zero, E4M3 ones not below zero,
 * E8M0 ones and other powers of two above), of its dtype, a power of two and
 * shared where the spec says so; every zero and code within range and a number; every g_idx in
 * range; outlier channels rising and in range, their values finite and F16, their codes for 0;
 * global and input scale finite and above zero where the spec asks for them.
 * SW_E_FORMAT names the first offender by row and group. */
sw_code sw_qtensor_check(const sw_qtensor *q, sw_err *err) SW_MUST_USE;

/* The same for the scale of one row and group alone; global_scale counts when the spec has one. */
sw_code sw_scale_check(float scale, const sw_qspec *spec, float global_scale, int64_t n,
                       int64_t group, sw_err *err) SW_MUST_USE;

/* n stored F32, F16, BF16, F8_E4M3, F8_E5M2 or F8_E8M0 elements into floats. SW_E_UNSUPPORTED for
 * another dtype. */
sw_code sw_float_decode_n(float *dst, const void *src, sw_dtype dtype, int64_t n,
                          sw_err *err) SW_MUST_USE;
/* n floats into the same, as sw_num_round_to rounds. SW_E_UNSUPPORTED for another dtype. */
sw_code sw_float_encode_n(void *dst, sw_dtype dtype, const float *src, int64_t n,
                          sw_err *err) SW_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
