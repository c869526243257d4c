/* blocks.c - the table of block codecs, and the types of one scale for 16 or 32 elements.
 *
 *   Q4_0  f16 d; u8 q[16]             x = d (q - 8)
 *   Q4_1  f16 d, m; u8 q[16]          x = d q + m
 *   Q5_0  f16 d; u32 h; u8 q[16]      x = d (q - 16), the fifth bit of element i is bit i of h
 *   Q5_1  f16 d, m; u32 h; u8 q[16]   x = d q + m
 *   Q8_0  f16 d; i8 q[32]             x = d q
 *   MXFP4 u8 e; u8 q[16]              x = e2m1(q) 2^(e - 127)
 *   NVFP4 u8 s[4]; u8 q[4][8]         x = e4m3(s_r) e2m1(q_r), for each 16 elements
 *
 * Byte j of q[16] has element j in its low nibble and element j + 16 in its high one; byte j of a
 * q_r[8] has elements j and j + 8 of its sixteen. An e4m3 scale has no sign.
 */
#include "formats/num/blocks.h"

#include <math.h>

#include "formats/num/blocks_internal.h"
#include "formats/num/small.h"

#define HALF 16

static void f32_decode(float *x, const uint8_t *b) { *x = sw_f32_from_bits(sw_load_le32(b)); }
static void f16_decode(float *x, const uint8_t *b) { *x = sw_load_f16(b); }
static void bf16_decode(float *x, const uint8_t *b) { *x = sw_bf16_decode(sw_load_le16(b)); }

static void q4_0_decode(float *x, const uint8_t *b)
{
    const float d = sw_load_f16(b);

    for (int j = 0; j < HALF; j++) {
        x[j] = (float)((b[2 + j] & 15) - 8) * d;
        x[j + HALF] = (float)((b[2 + j] >> 4) - 8) * d;
    }
}

static void q4_1_decode(float *x, const uint8_t *b)
{
    const float d = sw_load_f16(b), m = sw_load_f16(b + 2);

    for (int j = 0; j < HALF; j++) {
        x[j] = (float)(b[4 + j] & 15) * d + m;
        x[j + HALF] = (float)(b[4 + j] >> 4) * d + m;
    }
}

static int fifth_bit(uint32_t bits, int i) { return (int)((bits >> i) & 1) << 4; }

static void q5_0_decode(float *x, const uint8_t *b)
{
    const float d = sw_load_f16(b);
    const uint32_t h = sw_load_le32(b + 2);

    for (int j = 0; j < HALF; j++) {
        x[j] = (float)(((b[6 + j] & 15) | fifth_bit(h, j)) - 16) * d;
        x[j + HALF] = (float)(((b[6 + j] >> 4) | fifth_bit(h, j + HALF)) - 16) * d;
    }
}

static void q5_1_decode(float *x, const uint8_t *b)
{
    const float d = sw_load_f16(b), m = sw_load_f16(b + 2);
    const uint32_t h = sw_load_le32(b + 4);

    for (int j = 0; j < HALF; j++) {
        x[j] = (float)((b[8 + j] & 15) | fifth_bit(h, j)) * d + m;
        x[j + HALF] = (float)((b[8 + j] >> 4) | fifth_bit(h, j + HALF)) * d + m;
    }
}

static void q8_0_decode(float *x, const uint8_t *b)
{
    const float d = sw_load_f16(b);

    for (int j = 0; j < 2 * HALF; j++) x[j] = (float)(int8_t)b[2 + j] * d;
}

static void mxfp4_decode(float *x, const uint8_t *b)
{
    const float d = sw_e8m0_values[b[0]];

    for (int j = 0; j < HALF; j++) {
        x[j] = sw_e2m1_values[b[1 + j] & 15] * d;
        x[j + HALF] = sw_e2m1_values[b[1 + j] >> 4] * d;
    }
}

/* Engines read the code of NaN as 0; sw_block_check refuses it. */
static void nvfp4_decode(float *x, const uint8_t *b)
{
    for (int r = 0; r < 4; r++) {
        const uint8_t s = b[r] & 0x7f, *q = b + 4 + 8 * r;
        const float d = s == 0x7f ? 0.0f : sw_e4m3_values[s];

        for (int j = 0; j < 8; j++) {
            x[16 * r + j] = sw_e2m1_values[q[j] & 15] * d;
            x[16 * r + j + 8] = sw_e2m1_values[q[j] >> 4] * d;
        }
    }
}

static void f32_encode(uint8_t *b, const float *x, const float *importance, sw_block_how how)
{
    (void)importance;
    (void)how;
    sw_store_le32(b, sw_f32_bits(*x));
}

static void f16_encode(uint8_t *b, const float *x, const float *importance, sw_block_how how)
{
    (void)importance;
    (void)how;
    sw_store_f16(b, *x);
}

static void bf16_encode(uint8_t *b, const float *x, const float *importance, sw_block_how how)
{
    (void)importance;
    (void)how;
    sw_store_le16(b, sw_bf16_encode(*x));
}

#define F16_NONE (-1)

typedef struct block_codec {
    sw_block_decode_fn decode;
    sw_block_encode_fn encode; /* NULL: only read */
    int f16_at[2];             /* where a block has its F16 scales, or F16_NONE */
} block_codec;

static const block_codec codecs[SW_BLOCK_TYPE_COUNT] = {
    [SW_BLOCK_F32] = {f32_decode, f32_encode, {F16_NONE, F16_NONE}},
    [SW_BLOCK_F16] = {f16_decode, f16_encode, {F16_NONE, F16_NONE}},
    [SW_BLOCK_BF16] = {bf16_decode, bf16_encode, {F16_NONE, F16_NONE}},
    [SW_BLOCK_Q4_0] = {q4_0_decode, sw_q4_0_encode, {0, F16_NONE}},
    [SW_BLOCK_Q4_1] = {q4_1_decode, sw_q4_1_encode, {0, 2}},
    [SW_BLOCK_Q5_0] = {q5_0_decode, NULL, {0, F16_NONE}},
    [SW_BLOCK_Q5_1] = {q5_1_decode, NULL, {0, 2}},
    [SW_BLOCK_Q8_0] = {q8_0_decode, sw_q8_0_encode, {0, F16_NONE}},
    [SW_BLOCK_Q2_K] = {sw_q2_k_decode, NULL, {80, 82}},
    [SW_BLOCK_Q3_K] = {sw_q3_k_decode, NULL, {108, F16_NONE}},
    [SW_BLOCK_Q4_K] = {sw_q4_k_decode, sw_q4_k_encode, {0, 2}},
    [SW_BLOCK_Q5_K] = {sw_q5_k_decode, NULL, {0, 2}},
    [SW_BLOCK_Q6_K] = {sw_q6_k_decode, sw_q6_k_encode, {208, F16_NONE}},
    [SW_BLOCK_IQ4_NL] = {sw_iq4_nl_decode, NULL, {0, F16_NONE}},
    [SW_BLOCK_IQ4_XS] = {sw_iq4_xs_decode, NULL, {0, F16_NONE}},
    [SW_BLOCK_IQ1_S] = {sw_iq1_s_decode, NULL, {0, F16_NONE}},
    [SW_BLOCK_IQ1_M] = {sw_iq1_m_decode, NULL, {F16_NONE, F16_NONE}},
    [SW_BLOCK_IQ2_XXS] = {sw_iq2_xxs_decode, NULL, {0, F16_NONE}},
    [SW_BLOCK_IQ2_XS] = {sw_iq2_xs_decode, NULL, {0, F16_NONE}},
    [SW_BLOCK_IQ2_S] = {sw_iq2_s_decode, NULL, {0, F16_NONE}},
    [SW_BLOCK_IQ3_XXS] = {sw_iq3_xxs_decode, NULL, {0, F16_NONE}},
    [SW_BLOCK_IQ3_S] = {sw_iq3_s_decode, NULL, {0, F16_NONE}},
    [SW_BLOCK_TQ1_0] = {sw_tq1_0_decode, NULL, {52, F16_NONE}},
    [SW_BLOCK_TQ2_0] = {sw_tq2_0_decode, NULL, {64, F16_NONE}},
    [SW_BLOCK_MXFP4] = {mxfp4_decode, NULL, {F16_NONE, F16_NONE}},
    [SW_BLOCK_NVFP4] = {nvfp4_decode, NULL, {F16_NONE, F16_NONE}},
};

void sw_block_decode(float *dst, const void *src, sw_block_type type, int64_t n)
{
    const sw_block_size *size = &sw_block_sizes[type];
    const uint8_t *b = src;

    for (int64_t i = 0; i < n; i += size->elems, b += size->bytes) codecs[type].decode(dst + i, b);
}

bool sw_block_can_encode(sw_block_type type) { return codecs[type].encode != NULL; }

sw_code sw_block_encode(void *dst, sw_block_type type, const float *src, const float *importance,
                        int64_t n, sw_block_how how, sw_err *err)
{
    const sw_block_size *size = &sw_block_sizes[type];
    uint8_t *b = dst;

    if (!codecs[type].encode)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "%s is only read; write F32, F16, BF16, Q8_0, Q4_0, "
                       "Q4_1, Q4_K or Q6_K", size->name);
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(src[i]))
            return SW_FAIL(err, SW_E_FORMAT, "element %lld is not finite", (long long)i);
    for (int64_t i = 0; i < n; i += size->elems, b += size->bytes)
        codecs[type].encode(b, src + i, importance ? importance + i : NULL, how);
    return SW_OK;
}

static bool is_finite_f16(const uint8_t *p) { return (sw_load_le16(p) & 0x7c00) != 0x7c00; }

/* The scales that are no F16 in a place of their own. */
static bool are_other_scales_good(const uint8_t *b, sw_block_type type)
{
    bool is_good = true;

    if (type == SW_BLOCK_MXFP4) return b[0] != 0xff;
    if (type == SW_BLOCK_IQ1_M) return (sw_iq1_m_scale(b) & 0x7c00) != 0x7c00;
    for (int r = 0; r < 4 && type == SW_BLOCK_NVFP4; r++) is_good = is_good && b[r] < 0x7f;
    return is_good;
}

sw_code sw_block_check(const void *src, sw_block_type type, int64_t n, sw_err *err)
{
    const sw_block_size *size = &sw_block_sizes[type];
    const int *at = codecs[type].f16_at;
    const int64_t n_blocks = n / size->elems;
    const uint8_t *b = src;

    for (int64_t i = 0; i < n_blocks; i++, b += size->bytes) {
        bool is_good = are_other_scales_good(b, type);

        for (int j = 0; j < 2; j++) is_good = is_good && (at[j] < 0 || is_finite_f16(b + at[j]));
        if (!is_good)
            return SW_FAIL(err, SW_E_FORMAT, "the scale of %s block %lld is not finite", size->name,
                           (long long)i);
    }
    return SW_OK;
}
