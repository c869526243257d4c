/* blocks_internal.h - what the files of the block codecs share. Not for others. */
#ifndef SW_FORMATS_NUM_BLOCKS_INTERNAL_H
#define SW_FORMATS_NUM_BLOCKS_INTERNAL_H

#include <stdint.h>

#include "formats/base/size.h"
#include "formats/num/blocks.h"
#include "formats/num/half.h"

#ifdef __cplusplus
extern "C" {
#endif

static inline float sw_load_f16(const uint8_t *p) { return sw_f16_decode(sw_load_le16(p)); }
static inline void sw_store_f16(uint8_t *p, float v) { sw_store_le16(p, sw_f16_encode(v)); }

/* One block of each type. */
typedef void (*sw_block_decode_fn)(float *x, const uint8_t *b);
void sw_q2_k_decode(float *x, const uint8_t *b);
void sw_q3_k_decode(float *x, const uint8_t *b);
void sw_q4_k_decode(float *x, const uint8_t *b);
void sw_q5_k_decode(float *x, const uint8_t *b);
void sw_q6_k_decode(float *x, const uint8_t *b);
void sw_iq4_nl_decode(float *x, const uint8_t *b);
void sw_iq4_xs_decode(float *x, const uint8_t *b);
void sw_tq1_0_decode(float *x, const uint8_t *b);
void sw_tq2_0_decode(float *x, const uint8_t *b);
void sw_iq1_s_decode(float *x, const uint8_t *b);
void sw_iq1_m_decode(float *x, const uint8_t *b);
void sw_iq2_xxs_decode(float *x, const uint8_t *b);
void sw_iq2_xs_decode(float *x, const uint8_t *b);
void sw_iq2_s_decode(float *x, const uint8_t *b);
void sw_iq3_xxs_decode(float *x, const uint8_t *b);
void sw_iq3_s_decode(float *x, const uint8_t *b);
/* The F16 that a block of IQ1_M spreads over four halves. */
uint16_t sw_iq1_m_scale(const uint8_t *b);

/* x [elems], importance [elems] or NULL. */
typedef void (*sw_block_encode_fn)(uint8_t *b, const float *x, const float *importance,
                                   sw_block_how how);
void sw_q4_0_encode(uint8_t *b, const float *x, const float *importance, sw_block_how how);
void sw_q4_1_encode(uint8_t *b, const float *x, const float *importance, sw_block_how how);
void sw_q8_0_encode(uint8_t *b, const float *x, const float *importance, sw_block_how how);
void sw_q4_k_encode(uint8_t *b, const float *x, const float *importance, sw_block_how how);
void sw_q6_k_encode(uint8_t *b, const float *x, const float *importance, sw_block_how how);

/* The lattice points of the IQ1, IQ2 and IQ3 types, packed. For blocks_grid.c.
 *
 * A point of eight elements with three levels is the number sum(digit_i 3^i), i = 0..7; one of four
 * elements with eight levels is sum(digit_i 8^i), i = 0..3. Digits count levels from the lowest. */

/* Eight elements, three levels. IQ1_M has the points of IQ1_S. */
extern const uint16_t sw_iq2_xxs_points[256];
extern const uint16_t sw_iq2_xs_points[512];
extern const uint16_t sw_iq2_s_points[1024];
extern const uint16_t sw_iq1_s_points[2048];
/* Four elements, eight levels. */
extern const uint16_t sw_iq3_xxs_points[256];
extern const uint16_t sw_iq3_s_points[512];

#ifdef __cplusplus
}
#endif
#endif
