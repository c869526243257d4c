/* decode_spec_parts.h - what the dialect files of the second decoder share: finding a stored
 * tensor of the right dtype and shape, reading half floats and code streams.
 */
#ifndef SW_VERIFY_DECODERS_DECODE_SPEC_PARTS_H
#define SW_VERIFY_DECODERS_DECODE_SPEC_PARTS_H

#include "verify/decoders/decode_spec.h"

/* "<module_path>.<suffix>" with exactly this dtype and shape.
 * SW_E_FORMAT names the tensor and says what it is and what it should be. */
sw_code sw_spec_part(const unsigned char **out, const sw_st *st, const char *module_path,
                     const char *suffix, sw_dtype dtype, int32_t n_dims, const int64_t *shape,
                     sw_err *err) SW_MUST_USE;
/* The tensor whatever it is, or NULL. */
const sw_st_tensor *sw_spec_find(const sw_st *st, const char *module_path, const char *suffix);

/* A stored scale tensor: any of F16, BF16, F32, F8_E4M3, F8_E8M0 or U8 (an E8M0 by another name),
 * exactly this shape. */
typedef struct sw_spec_floats {
    const unsigned char *bytes;
    sw_dtype dtype;
} sw_spec_floats;
sw_code sw_spec_scales(sw_spec_floats *out, const sw_st *st, const char *module_path,
                       const char *suffix, int32_t n_dims, const int64_t *shape,
                       sw_err *err) SW_MUST_USE;
float sw_spec_float_at(const sw_spec_floats *floats, int64_t i);

/* A float of one element, finite and above zero. */
sw_code sw_spec_single(float *out, const sw_st *st, const char *module_path, const char *suffix,
                       sw_err *err) SW_MUST_USE;

/* The same for the scale of a weight, which may be of either sign or zero. */
sw_code sw_spec_single_scale(float *out, const sw_st *st, const char *module_path,
                             const char *suffix, sw_err *err) SW_MUST_USE;

/* "e4m3" or another float of numbers.def into the scheme. */
sw_code sw_spec_float_kind(sw_spec_scheme *scheme, const char *name, sw_err *err) SW_MUST_USE;
/* Value of a code: sign, exponent, fraction from the top bit down; NaN and infinity too. */
double sw_spec_small_float(int code, int exponent_bits, int mantissa_bits);
/* Codes are numbers; scales finite, above zero, shared and powers of two as the scheme says. */
sw_code sw_spec_check_floats(const sw_spec_weight *w, const sw_spec_scheme *scheme,
                             sw_err *err) SW_MUST_USE;

/* Codes in little-endian 32-bit words that stand `stride` words apart. Dense (per_word 0): code i
 * has bits [i*b, i*b + b) of the bit string of consecutive words, least significant first.
 * Otherwise each word holds per_word codes and its top bits are unused. */
typedef struct sw_spec_stream {
    const unsigned char *words;
    int64_t stride;
    int bits, per_word;
} sw_spec_stream;
uint32_t sw_spec_code_at(const sw_spec_stream *stream, int64_t i);
/* The first n codes, at most 8 bits each: one word after the other, without a division a code. */
void sw_spec_codes(uint8_t *out, const sw_spec_stream *stream, int64_t n);

/* Keys "bits", "group_size", "sym" of an object over the scheme; absent ones leave it. */
sw_code sw_spec_override(sw_spec_scheme *scheme, const cJSON *object, sw_err *err) SW_MUST_USE;
/* Whether PCRE2 `pattern` matches `text` from its first character on.
 * SW_E_FORMAT: it is no pattern, or one too expensive to match. */
sw_code sw_spec_match(bool *out, const char *pattern, const char *text, sw_err *err) SW_MUST_USE;
/* bits in {2,3,4,8} and a group size out of the config; -1 or absent means per channel. */
sw_code sw_spec_sizes(sw_spec_scheme *scheme, int64_t bits, int64_t group_size,
                      sw_err *err) SW_MUST_USE;
/* quant_method == name */
bool sw_spec_method_is(const cJSON *config, const char *name);

/* The config group of compressed-tensors that speaks of a linear: the first that names it, else the
 * first for its class, "Linear"; NULL: none. SW_E_FORMAT: a pattern that is none. */
sw_code sw_spec_ct_group(const cJSON **out, const cJSON *config, const char *module_path,
                         sw_err *err) SW_MUST_USE;

#endif
