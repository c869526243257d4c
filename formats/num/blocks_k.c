/* blocks_k.c - decoding the types of 256 elements with scales of their own scales, and the
 * 16-value table types. Element e of a block; h = e / 128, l = e % 32.
 *
 *   Q2_K  u8 s[16]; q[64]; f16 d, m         q of 2 bits in byte 32 h + l, at bit 2 ((e % 128) / 32)
 *         x = d (s[e/16] & 15) q - m (s[e/16] >> 4)
 *   Q3_K  u8 h[32]; q[64]; s[12]; f16 d     q as above; bit 4 h + (e % 128) / 32 of h[l] unset: - 4
 *         x = d (s[e/16] - 32) q
 *   Q4_K  f16 d, m; s[12]; q[128]           byte 32 (e / 64) + l, low nibble for even e / 32
 *         x = d s[e/32] q - m min[e/32]
 *   Q5_K  f16 d, m; s[12]; h[32]; q[128]    the same; the fifth bit is bit e / 32 of h[l]
 *   Q6_K  u8 ql[128]; qh[64]; i8 s[16]; f16 d
 *         low nibble half r / 2 of ql[64 h + 32 (r % 2) + l], r = (e % 128) / 32; two more bits
 *         in qh[32 h + l] at 2 r;                            x = d s[e/16] (q - 32)
 *   IQ4_NL  f16 d; q[16]                    x = d T[q], nibbles as in Q4_0
 *   IQ4_XS  f16 d; u16 sh; sl[4]; q[128]    6-bit scale of each 32; x = d (s - 32) T[q]
 *   TQ1_0   u8 q[48]; h[4]; f16 d           five ternary digits t in a byte of q, four in one of h;
 *           byte j of the first 32 has elements j + 32 k, of the other 16 160 + j + 16 k, of h
 *           240 + j + 4 k; t = 3 (byte 3^k mod 256) / 256;  x = d (t - 1)
 *   TQ2_0   u8 q[64]; f16 d                 q of 2 bits as in Q2_K; x = d (q - 1)
 *
 * The twelve bytes of Q4_K hold eight pairs (scale, min) of six bits: those of 0..3 in bytes j and
 * j + 4, those of 4..7 as nibbles in byte j + 4 with their upper two bits above the former. Those
 * of Q3_K hold sixteen: low nibbles in the first eight bytes, upper two bits in the last four.
 */
#include "formats/num/blocks_internal.h"

static const int8_t iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                      1,    13,   25,  38,  53,  69,  89,  113};

void sw_block_k4_scales(uint8_t scale[8], uint8_t min[8], const uint8_t packed[12])
{
    for (int j = 0; j < 4; j++) {
        scale[j] = packed[j] & 63;
        min[j] = packed[j + 4] & 63;
        scale[j + 4] = (uint8_t)((packed[j + 8] & 15) | (packed[j] >> 6 << 4));
        min[j + 4] = (uint8_t)((packed[j + 8] >> 4) | (packed[j + 4] >> 6 << 4));
    }
}

void sw_block_k4_pack(uint8_t packed[12], const uint8_t scale[8], const uint8_t min[8])
{
    for (int j = 0; j < 4; j++) {
        packed[j] = (uint8_t)((scale[j] & 63) | (scale[j + 4] >> 4 << 6));
        packed[j + 4] = (uint8_t)((min[j] & 63) | (min[j + 4] >> 4 << 6));
        packed[j + 8] = (uint8_t)((scale[j + 4] & 15) | ((min[j + 4] & 15) << 4));
    }
}

void sw_block_k3_scales(uint8_t scale[16], const uint8_t packed[12])
{
    for (int i = 0; i < 16; i++)
        scale[i] = (uint8_t)(((packed[i % 8] >> (4 * (i / 8))) & 15) |
                             (((packed[8 + i % 4] >> (2 * (i / 4))) & 3) << 4));
}

void sw_q2_k_decode(float *x, const uint8_t *b)
{
    const float d = sw_load_f16(b + 80), m = sw_load_f16(b + 82);

    for (int e = 0; e < 256; e++) {
        const uint8_t s = b[e / 16];
        const int q = (b[16 + 32 * (e / 128) + e % 32] >> (2 * (e % 128 / 32))) & 3;
        const float scale = d * (float)(s & 15), min = m * (float)(s >> 4);

        x[e] = scale * (float)q - min;
    }
}

void sw_q3_k_decode(float *x, const uint8_t *b)
{
    const float d = sw_load_f16(b + 108);
    uint8_t s[16];

    sw_block_k3_scales(s, b + 96);
    for (int e = 0; e < 256; e++) {
        const int j = e % 128 / 32, h = e / 128, l = e % 32;
        const int low = (b[32 + 32 * h + l] >> (2 * j)) & 3, high = (b[l] >> (4 * h + j)) & 1;
        const float scale = d * (float)(s[e / 16] - 32);

        x[e] = scale * (float)(low - (high ? 0 : 4));
    }
}

static void decode_pairs(float *x, const uint8_t *b, const uint8_t *high, const uint8_t *q)
{
    const float d = sw_load_f16(b), m = sw_load_f16(b + 2);
    uint8_t scale[8], min[8];

    sw_block_k4_scales(scale, min, b + 4);
    for (int s = 0; s < 8; s++) {
        const float step = d * (float)scale[s], low = m * (float)min[s];

        for (int l = 0; l < 32; l++) {
            const int nibble = (q[32 * (s / 2) + l] >> (4 * (s % 2))) & 15;
            const int fifth = high ? ((high[l] >> s) & 1) << 4 : 0;

            x[32 * s + l] = step * (float)(nibble | fifth) - low;
        }
    }
}

void sw_q4_k_decode(float *x, const uint8_t *b) { decode_pairs(x, b, NULL, b + 16); }

void sw_q5_k_decode(float *x, const uint8_t *b) { decode_pairs(x, b, b + 16, b + 48); }

void sw_q6_k_decode(float *x, const uint8_t *b)
{
    const float d = sw_load_f16(b + 208);

    for (int e = 0; e < 256; e++) {
        const int r = e % 128 / 32, h = e / 128, l = e % 32;
        const int low = (b[64 * h + 32 * (r % 2) + l] >> (4 * (r / 2))) & 15;
        const int high = (b[128 + 32 * h + l] >> (2 * r)) & 3;

        x[e] = d * (float)(int8_t)b[192 + e / 16] * (float)((low | high << 4) - 32);
    }
}

void sw_iq4_nl_decode(float *x, const uint8_t *b)
{
    const float d = sw_load_f16(b);

    for (int j = 0; j < 16; j++) {
        x[j] = d * (float)iq4_values[b[2 + j] & 15];
        x[j + 16] = d * (float)iq4_values[b[2 + j] >> 4];
    }
}

void sw_iq4_xs_decode(float *x, const uint8_t *b)
{
    const float d = sw_load_f16(b);
    const unsigned high = sw_load_le16(b + 2);

    for (int s = 0; s < 8; s++) {
        const int low = (b[4 + s / 2] >> (4 * (s % 2))) & 15;
        const float scale = d * (float)((low | (int)((high >> (2 * s)) & 3) << 4) - 32);

        for (int j = 0; j < 16; j++) {
            x[32 * s + j] = scale * (float)iq4_values[b[8 + 16 * s + j] & 15];
            x[32 * s + j + 16] = scale * (float)iq4_values[b[8 + 16 * s + j] >> 4];
        }
    }
}

/* n bytes of n_digits digits each; element j + n k is digit k of byte j. */
static void put_digits(float *x, float d, const uint8_t *b, int n, int n_digits)
{
    for (int j = 0; j < n; j++) {
        unsigned left = b[j];

        for (int k = 0; k < n_digits; k++, left = 3 * left & 255)
            x[j + n * k] = d * (float)((int)(3 * left >> 8) - 1);
    }
}

void sw_tq1_0_decode(float *x, const uint8_t *b)
{
    const float d = sw_load_f16(b + 52);

    put_digits(x, d, b, 32, 5);
    put_digits(x + 160, d, b + 32, 16, 5);
    put_digits(x + 240, d, b + 48, 4, 4);
}

void sw_tq2_0_decode(float *x, const uint8_t *b)
{
    const float d = sw_load_f16(b + 64);

    for (int e = 0; e < 256; e++)
        x[e] = d * (float)((b[32 * (e / 128) + e % 32] >> 2 * (e % 128 / 32) & 3) - 1);
}
