/* num.h - number formats as table rows, and the logical form of a quantized weight.
 *
 * sw_qtensor is independent of any packing: algorithms produce it, packings and
 * dialects carry it to bytes and back without changing a code, a scale or a zero.
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
#define SW_NUM(id, name, bits) SW_NUM_##id,
#include "formats/num/int_formats.def"
#undef SW_NUM
    SW_NUM_COUNT
} sw_num_id;

typedef struct sw_num {
    const char *name;
    int bits;
    int code_max; /* 2^bits - 1 */
    int sym_zero; /* 2^(bits-1) */
} sw_num;

extern const sw_num sw_nums[SW_NUM_COUNT];
const sw_num *sw_num_by_bits(int bits); /* NULL when no row has that width */

/* How one weight is cut into groups and stored. Shared by plan, algorithms and dialects. */
typedef struct sw_qspec {
    const sw_num *num;
    bool is_symmetric;
    int64_t group_elems;  /* along k_in; 0 means one group per output channel */
    sw_dtype scale_dtype; /* F16 or BF16: what the dialect will store */
    int zero_min;         /* smallest zero point an asymmetric weight may get: the dialect's */
} sw_qspec;

static inline int64_t sw_qspec_groups(const sw_qspec *spec, int64_t k_in)
{
    return spec->group_elems ? (k_in + spec->group_elems - 1) / spec->group_elems : 1;
}

/* Borrowed arrays; value[n][k] = scales[n][g] * (codes[n][k] - zeros[n][g]), g = k's group. */
typedef struct sw_qtensor {
    sw_qspec spec;
    int64_t n_out, k_in, n_groups;
    uint8_t *codes;  /* [n_out, k_in], each 0..code_max */
    float *scales;   /* [n_out, n_groups], each exactly representable in spec.scale_dtype */
    uint8_t *zeros;  /* [n_out, n_groups], 0..code_max; NULL when symmetric */
    int32_t *g_idx;  /* [k_in] group of each column, or NULL for k / group_elems */
} sw_qtensor;

/* Buffers for an n_out x k_in weight, zeroed; freed by sw_qtensor_free (accepts a zeroed one). */
sw_code sw_qtensor_alloc(sw_qtensor *out, const sw_qspec *spec, int64_t n_out, int64_t k_in,
                         sw_err *err) SW_MUST_USE;
void sw_qtensor_free(sw_qtensor *q);

/* Nearest value that `dtype` (F16, BF16, F32) holds, ties to even. */
float sw_num_round_to(float v, sw_dtype dtype);

/* dst f32 [n_out, k_in] = the exact values. Plain C; this defines what a code means. */
void sw_qtensor_decode(float *dst, const sw_qtensor *q);

/* Every scale finite and above zero, every zero and code within range, every g_idx in range.
 * SW_E_FORMAT names the first offender by row and group. */
sw_code sw_qtensor_check(const sw_qtensor *q, sw_err *err) SW_MUST_USE;

/* n stored F32, F16 or BF16 elements into floats. SW_E_UNSUPPORTED for another dtype. */
sw_code sw_float_decode_n(float *dst, const void *src, sw_dtype dtype, int64_t n,
                          sw_err *err) SW_MUST_USE;
/* n floats into stored F32, F16 or BF16, nearest even. SW_E_UNSUPPORTED for another dtype. */
sw_code sw_float_encode_n(void *dst, sw_dtype dtype, const float *src, int64_t n,
                          sw_err *err) SW_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
