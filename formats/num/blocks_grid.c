/* blocks_grid.c - decoding the types whose elements are points of a lattice, eight or four at a
 * time, of blocks of 256. P is a point of the type's set (blocks_internal.h), sign a bit per
 * element (set: negative), from bit 0 on; i counts eights (0..31), r sixteens or 32s.
 *
 *   IQ2_XXS f16 d; 8 x {u8 q[4]; u32 a}   x = d (0.5 + a >> 28) / 4 sign P[q], levels 8, 25, 43
 *           a has seven sign bits of each of the four eights; the eighth makes their number even
 *   IQ2_XS  f16 d; u16 q[32]; s[8]        index in 9 bits of q, seven sign bits above, as before;
 *           x = d (0.5 + s_r) / 4 sign P, s_r of 4 bits for each 16
 *   IQ2_S   f16 d; q[32]; sign[32]; h[8]; s[8]   two more bits of index in h, eight sign bits
 *   IQ3_XXS f16 d; q[64]; u32 a[8]        x = d (0.5 + a_r >> 28) / 2 sign P, levels 4, 12, ... 62
 *   IQ3_S   f16 d; q[64]; h[8]; sign[32]; s[4]   a ninth bit of index in h;
 *           x = d (1 + 2 s_r) sign P, levels 1, 3, ... 15, s_r of 4 bits for each 32
 *   IQ1_S   f16 d; q[32]; u16 h[8]        three more bits of index for each 8 in h_r, then s_r of 3
 *           bits, then a sign: x = d (1 + 2 s_r) (P +- 1/8), levels -1, 0, 1
 *   IQ1_M   q[32]; h[16]; u16 s[4]        a nibble of h for each 8: three more bits, then the sign;
 *           s_r of 3 bits for each 16; d is the four top nibbles of s, lowest first
 *
 * Every product here has at most 24 significant bits, so that no order of operations matters.
 */
#include "formats/num/blocks_internal.h"

static const float iq2_levels[3] = {8, 25, 43};
static const float iq1_levels[3] = {-1, 0, 1};
static const float iq3_xxs_levels[8] = {4, 12, 20, 28, 36, 44, 52, 62};
static const float iq3_s_levels[8] = {1, 3, 5, 7, 9, 11, 13, 15};

/* Seven sign bits and the one that makes the number of all eight even. */
static unsigned even_signs(unsigned seven)
{
    unsigned odd = seven ^ seven >> 4;

    odd ^= odd >> 2;
    odd ^= odd >> 1;
    return seven | (odd & 1) << 7;
}

static void put_eight(float *x, float scale, unsigned point, unsigned signs)
{
    for (int j = 0; j < 8; j++, point /= 3) {
        const float v = scale * iq2_levels[point % 3];

        x[j] = signs >> j & 1 ? -v : v;
    }
}

static void put_four(float *x, float scale, const float levels[8], unsigned point, unsigned signs)
{
    for (int j = 0; j < 4; j++, point >>= 3) {
        const float v = scale * levels[point & 7];

        x[j] = signs >> j & 1 ? -v : v;
    }
}

static int nibble_of(const uint8_t *b, int i) { return b[i / 2] >> 4 * (i % 2) & 15; }

void sw_iq2_xxs_decode(float *x, const uint8_t *b)
{
    const float d = sw_load_f16(b);

    for (int r = 0; r < 8; r++) {
        const uint8_t *q = b + 2 + 8 * r;
        const uint32_t a = sw_load_le32(q + 4);
        const float scale = d * (0.5f + (float)(a >> 28)) * 0.25f;

        for (int i = 0; i < 4; i++)
            put_eight(x + 32 * r + 8 * i, scale, sw_iq2_xxs_points[q[i]],
                      even_signs(a >> 7 * i & 127));
    }
}

void sw_iq2_xs_decode(float *x, const uint8_t *b)
{
    const float d = sw_load_f16(b);

    for (int i = 0; i < 32; i++) {
        const unsigned q = sw_load_le16(b + 2 + 2 * i);
        const float scale = d * (0.5f + (float)nibble_of(b + 66, i / 2)) * 0.25f;

        put_eight(x + 8 * i, scale, sw_iq2_xs_points[q & 511], even_signs(q >> 9));
    }
}

void sw_iq2_s_decode(float *x, const uint8_t *b)
{
    const float d = sw_load_f16(b);

    for (int i = 0; i < 32; i++) {
        const unsigned high = b[66 + i / 4] >> 2 * (i % 4) & 3;
        const float scale = d * (0.5f + (float)nibble_of(b + 74, i / 2)) * 0.25f;

        put_eight(x + 8 * i, scale, sw_iq2_s_points[b[2 + i] | high << 8], b[34 + i]);
    }
}

void sw_iq3_xxs_decode(float *x, const uint8_t *b)
{
    const float d = sw_load_f16(b);

    for (int i = 0; i < 32; i++) {
        const uint32_t a = sw_load_le32(b + 66 + 4 * (i / 4));
        const float scale = d * (0.5f + (float)(a >> 28)) * 0.5f;
        const unsigned signs = even_signs(a >> 7 * (i % 4) & 127);

        for (int h = 0; h < 2; h++)
            put_four(x + 8 * i + 4 * h, scale, iq3_xxs_levels,
                     sw_iq3_xxs_points[b[2 + 2 * i + h]], signs >> 4 * h);
    }
}

void sw_iq3_s_decode(float *x, const uint8_t *b)
{
    const float d = sw_load_f16(b);

    for (int i = 0; i < 64; i++) {
        const unsigned high = b[66 + i / 8] >> i % 8 & 1;
        const float scale = d * (float)(1 + 2 * nibble_of(b + 106, i / 8));

        put_four(x + 4 * i, scale, iq3_s_levels, sw_iq3_s_points[b[2 + i] | high << 8],
                 b[74 + i / 2] >> 4 * (i % 2));
    }
}

static void put_shifted(float *x, float scale, unsigned point, bool is_down)
{
    for (int j = 0; j < 8; j++, point /= 3)
        x[j] = scale * (iq1_levels[point % 3] + (is_down ? -0.125f : 0.125f));
}

void sw_iq1_s_decode(float *x, const uint8_t *b)
{
    const float d = sw_load_f16(b);

    for (int i = 0; i < 32; i++) {
        const unsigned h = sw_load_le16(b + 34 + 2 * (i / 4)), high = h >> 3 * (i % 4) & 7;

        put_shifted(x + 8 * i, d * (float)(1 + 2 * (h >> 12 & 7)),
                    sw_iq1_s_points[b[2 + i] | high << 8], h >> 15 & 1);
    }
}

uint16_t sw_iq1_m_scale(const uint8_t *b)
{
    unsigned d = 0;

    for (int k = 0; k < 4; k++) d |= (unsigned)b[48 + 2 * k + 1] >> 4 << 4 * k;
    return (uint16_t)d;
}

void sw_iq1_m_decode(float *x, const uint8_t *b)
{
    const float d = sw_f16_decode(sw_iq1_m_scale(b));

    for (int i = 0; i < 32; i++) {
        const unsigned h = (unsigned)nibble_of(b + 32, i), r = (unsigned)i / 2;
        const unsigned s = sw_load_le16(b + 48 + 2 * (r / 4)) >> 3 * (r % 4) & 7u;

        put_shifted(x + 8 * i, d * (float)(1 + 2 * s), sw_iq1_s_points[b[i] | (h & 7) << 8],
                    h >> 3 & 1);
    }
}
