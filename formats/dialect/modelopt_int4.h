/* modelopt_int4.h - the W4A16_AWQ of NVIDIA's Model Optimizer; for dialect_modelopt.c alone.
 *
 * Per linear P of K inputs, N outputs, in groups of g inputs:
 *   P.weight           U8  [N/2, K]   byte [j][k]: output 2j in the low half, 2j + 1 in the high
 *                                     one; each half a signed number, -8..7
 *   P.weight_scale     F32 [N, K/g]   multiplies
 *   P.pre_quant_scale  F32 [K]        multiplies the inputs; BF16 and F16 are read as well
 * The exporter moves pre_quant_scale into the norm before where it can and then leaves it out. Ones
 * are written, for loaders that ask for the tensor. What is read and is not ones goes into the
 * scales, when it is one number a group and the products are floats; nothing else has room for it.
 */
#ifndef SW_FORMATS_DIALECT_MODELOPT_INT4_H
#define SW_FORMATS_DIALECT_MODELOPT_INT4_H

#include "formats/dialect/dialect_common.h"

/* A scheme whose algorithm is this one, whatever its group size. */
bool sw_modelopt_int4_is(const sw_qspec *spec);
int sw_modelopt_int4_declare(sw_part out[SW_DIALECT_TENSORS_MAX], const sw_qspec *spec,
                             int64_t n_out, int64_t k_in);
sw_code sw_modelopt_int4_encode(void *const parts[], const sw_qtensor *q, sw_err *err);
/* SW_E_UNSUPPORTED: inputs under a scale of their own, as above. SW_E_FORMAT: under none. */
sw_code sw_modelopt_int4_decode(sw_qtensor *q, const void *const parts[], sw_err *err);

#endif
