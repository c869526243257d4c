/* qtensor_gen.h - made-up quantized weights for tests: random, extreme, and how to compare them. */
#ifndef SW_TESTS_SUPPORT_TOYS_QTENSOR_GEN_H
#define SW_TESTS_SUPPORT_TOYS_QTENSOR_GEN_H

#include "formats/dialect/dialect.h"

uint64_t sw_gen_next(uint64_t *state); /* SplitMix64 */

/* SIGNED: random codes under scales of either sign, with zeros of both and subnormals. */
typedef enum sw_gen_content {
    SW_GEN_RANDOM, SW_GEN_LOWEST, SW_GEN_HIGHEST, SW_GEN_SIGNED
} sw_gen_content;

/* Allocate and fill a weight; zeros are at least zero_min. Fails the test on no memory. */
void sw_gen_qtensor(sw_qtensor *out, int bits, bool is_symmetric, int64_t group_elems,
                    sw_dtype scale_dtype, int64_t n_out, int64_t k_in, sw_gen_content content,
                    int zero_min, uint64_t seed);
/* Small-float weights as schemes make them: per tensor, per channel (BF16, F16), 128 x 128 with any
 * and with power-of-two scales, MX, NVFP4, per channel (F32), with their activations. */
enum { SW_GEN_FLOATS = 10 };
const sw_qspec *sw_gen_float_spec(int which);
void sw_gen_float_qtensor(sw_qtensor *out, int which, int64_t n_out, int64_t k_in, uint64_t seed);
/* true when the dialect holds integers of every width, with and without zero points: what the
 * tests over all rows make. The others have tests of their own. */
bool sw_gen_holds_integers(const sw_dialect *dialect);
/* Fail the test at the first code, scale, zero or group index that differs. */
void sw_gen_assert_same(const sw_qtensor *have, const sw_qtensor *want);

#endif
