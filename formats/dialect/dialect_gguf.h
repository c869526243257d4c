/* dialect_gguf.h - GGUF blocks that are a logical weight in other bytes.
 *
 * Of a linear P of K inputs and N outputs, in groups of 32 inputs unless said:
 *   P.Q4_0   U8 [N, K/32 * 18]  int4, symmetric, F16 scales
 *   P.Q4_1   U8 [N, K/32 * 20]  int4 with zero points, F16 scales; see below
 *   P.Q8_0   U8 [N, K/32 * 34]  int8, symmetric, F16 scales
 *   P.MXFP4  U8 [N, K/32 * 17]  e2m1 under E8M0 scales
 *   P.NVFP4  U8 [N, K/64 * 36]  e2m1 in groups of 16 under E4M3 scales, times P.NVFP4_scale,
 *                               F32 [1], or 1 where that is absent
 * These are the rows of the file in the order of the model. Q4_1 stores the value of code 0, which
 * is a zero point where it is minus the scale times 0..15, without rounding; blocks for which that
 * does not hold are floats and nothing else, and so are all other types.
 */
#ifndef SW_FORMATS_DIALECT_DIALECT_GGUF_H
#define SW_FORMATS_DIALECT_DIALECT_GGUF_H

#include "formats/base/block_type.h"
#include "formats/dialect/dialect.h"

/* Never detected by a quantization_config: opening a file finds it. */
extern const sw_dialect sw_dialect_gguf;

/* The type whose blocks hold this scheme, its values permitting, or SW_BLOCK_TYPE_COUNT. */
sw_block_type sw_gguf_type_of_spec(const sw_qspec *spec);
/* The scheme of such a type; false: it has none. */
bool sw_gguf_spec_of_type(sw_qspec *out, sw_block_type type);

/* true when the row of n elements is a logical weight: of Q4_1, when every block has a zero point;
 * of the other types above always. */
bool sw_gguf_row_has_codes(const void *row, sw_block_type type, int64_t n);

/* One row of a weight whose scheme has a type, as blocks, and back. */
void sw_gguf_encode_row(void *row, const sw_qtensor *q, int64_t n);
/* SW_E_FORMAT: a block without a zero point. */
sw_code sw_gguf_decode_row(sw_qtensor *q, const void *row, int64_t n, sw_err *err) SW_MUST_USE;

#endif
