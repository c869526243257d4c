/* ct_layouts.h - the formats of compressed-tensors beyond "pack-quantized"; for dialect_ct.c.
 *
 * Per linear P of K inputs, N outputs, G groups:
 *   int-quantized         P.weight I8 [N, K]           for quantized inputs, zero taken off; 4-bit
 *                         codes in groups with inputs rounded by token are packed when written,
 *                         and read in either form
 *   float-quantized       P.weight F8_E4M3 [N, K]
 *   mxfp8-quantized       P.weight F8_E4M3 [N, K]
 *   nvfp4-pack-quantized  P.weight_packed U8 [N, K/2]  low nibble: even input
 *   mxfp4-pack-quantized  P.weight_packed U8 [N, K/2]
 * and of all of them
 *   P.weight_scale        [1] of a tensor, [N, G], or [ceil(N/128), G] of blocks; floats, F8_E4M3
 *                         in nvfp4, U8 holding E8M0 in the mx formats
 *   P.input_scale         [1], static inputs; F32 is written, BF16 and F16 are read as well
 *   P.weight_global_scale, P.input_global_scale   F32 [1], nvfp4: divisors, not multipliers
 */
#ifndef SW_FORMATS_DIALECT_CT_LAYOUTS_H
#define SW_FORMATS_DIALECT_CT_LAYOUTS_H

#include "formats/dialect/dialect_common.h"

/* Name of the format that holds the spec; "pack-quantized" for what dialect_ct.c does itself, NULL
 * when none does. */
const char *sw_ct_format(const sw_qspec *spec);
bool sw_ct_is_format(const char *name); /* any of the names above, or pack-quantized */

sw_code sw_ct_can_hold(const sw_qspec *spec, int64_t k_in, sw_err *err);
int sw_ct_declare(sw_part out[SW_DIALECT_TENSORS_MAX], const sw_qspec *spec, int64_t n_out,
                  int64_t k_in);
sw_code sw_ct_encode(void *const parts[], const sw_qtensor *q, sw_err *err);
sw_code sw_ct_decode(sw_qtensor *q, const void *const parts[], sw_err *err);
/* Where a weight's parts beyond codes and scales stand in declare's order: -1 where it has none. */
typedef struct sw_ct_rest {
    int global, input, n; /* n: how many parts in all */
} sw_ct_rest;
sw_ct_rest sw_ct_rest_of(const sw_qspec *spec);
/* Their halves, for dialects that lay codes and scales alike: codes one a byte or two (low nibble
 * first), scales by rows of groups, once for channels that share them. */
void sw_ct_store_codes(void *bytes, const sw_qtensor *q);
void sw_ct_store_scales(void *dst, const sw_qtensor *q);
sw_code sw_ct_load_codes(sw_qtensor *q, const void *bytes, sw_err *err);
sw_code sw_ct_load_scales(sw_qtensor *q, const void *src, sw_err *err);

/* The "weights" and "input_activations" members of a config group. */
bool sw_ct_add_weights(cJSON *group, const sw_qspec *spec);
bool sw_ct_add_inputs(cJSON *group, const sw_qspec *spec);
/* "kv_cache_scheme": null, or codes of `num`, E4M3 or INT8, with one stored scale for keys and one
 * for values. SW_E_UNSUPPORTED for any other scheme; *out stays as it is where there is none. */
bool sw_ct_add_kv_scheme(cJSON *root, const sw_num *num);
sw_code sw_ct_read_kv_scheme(const sw_num **out, const cJSON *scheme, sw_err *err);
/* Number format of weights or inputs by "type" and "num_bits". */
sw_code sw_ct_read_num(const sw_num **out, const cJSON *object, sw_err *err);
/* strategy, group_size and block_structure into group_elems, scale_rows, scale_dtype, ... */
sw_code sw_ct_read_strategy(sw_qspec *spec, const cJSON *weights, sw_err *err);
sw_code sw_ct_read_inputs(sw_act *out, const cJSON *inputs, sw_err *err);

#endif
