/* int_body.h - what the integer rows do around their products; see int_ops.h.
 *
 * Included once per instruction set after its vector words and its `dot` and `unpack`. Plain loops
 * over 64 slots: the compiler makes vectors of them, and no rounding depends on how.
 */
#include <string.h>

#include "formats/base/size.h"
#include "kernels/cpu/int/int_ops.h"
#include "kernels/cpu/simd/scales_body.h"

static void load_record(float *scales, int32_t *zeros, const sw_tiles *t, int64_t record)
{
    load_scales(scales, t, record);
    for (int i = 0; i < SW_TILE_N; i++)
        zeros[i] = t->zeros ? t->zeros[record * SW_TILE_N + i] : t->spec.num->sym_zero;
}

/* a - b * c with wrapping: a sum that fits comes out right even when its parts do not. */
static inline int32_t minus_product(int32_t a, int32_t b, int32_t c)
{
    return (int32_t)((uint32_t)a - (uint32_t)b * (uint32_t)c);
}

static void add_group(float *totals, const int32_t *sums, const float *scales,
                      const int32_t *zeros, const int32_t *x_sums, int n_tokens, bool is_added)
{
    for (int m = 0; m < n_tokens; m++) {
        const int32_t *from = sums + m * SW_TILE_N;
        float *to = totals + m * SW_TILE_N;
        int32_t x_sum = x_sums[m];

        if (is_added)
            for (int i = 0; i < SW_TILE_N; i++)
                to[i] += scales[i] * (float)minus_product(from[i], zeros[i], x_sum);
        else
            for (int i = 0; i < SW_TILE_N; i++)
                to[i] = scales[i] * (float)minus_product(from[i], zeros[i], x_sum);
    }
}

/* Slots into channels: slot 2(8w + g) + h is channel 16w + g + 8h. */
static inline void put_in_order(float *dst, const float *slots)
{
    for (int w = 0; w < SW_TILE_N; w += 16)
        for (int g = 0; g < 8; g++) {
            dst[w + g] = slots[w + 2 * g];
            dst[w + g + 8] = slots[w + 2 * g + 1];
        }
}

static void finish_sums(float *dst, const int32_t *sums, const float *scales, const int32_t *zeros,
                        int32_t x_sum, float x_scale)
{
    float slots[SW_TILE_N];

    for (int i = 0; i < SW_TILE_N; i++) {
        double product = (double)minus_product(sums[i], zeros[i], x_sum) * (double)scales[i];

        slots[i] = (float)(product * (double)x_scale);
    }
    put_in_order(dst, slots);
}

static void finish_totals(float *dst, const float *totals, float x_scale)
{
    float slots[SW_TILE_N];

    for (int i = 0; i < SW_TILE_N; i++) slots[i] = totals[i] * x_scale;
    put_in_order(dst, slots);
}

typedef int8_t bytes16 __attribute__((vector_size(16)));
typedef int32_t words4 __attribute__((vector_size(16)));

/* GCC has it from version 12 on; older ones take the same places as a vector. */
#if defined(__has_builtin) && !__has_builtin(__builtin_shufflevector)
#define SHUFFLE(type, a, b, ...) __builtin_shuffle(a, b, (type){__VA_ARGS__})
#else
#define SHUFFLE(type, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#endif

/* 32 codes in natural order into eight words: K(c) = {2c, 2c + 8, 2c + 1, 2c + 9} of k-step s
 * becomes word 2c + s. */
static inline void words_of(int8_t *dst, const int8_t *src)
{
    bytes16 a, b;
    words4 step0, step1, out[2];

    memcpy(&a, src, sizeof a);
    memcpy(&b, src + 16, sizeof b);
    a = SHUFFLE(bytes16, a, a, 0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
    b = SHUFFLE(bytes16, b, b, 0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
    memcpy(&step0, &a, sizeof step0);
    memcpy(&step1, &b, sizeof step1);
    out[0] = SHUFFLE(words4, step0, step1, 0, 4, 1, 5);
    out[1] = SHUFFLE(words4, step0, step1, 2, 6, 3, 7);
    memcpy(dst, out, sizeof out);
}

/* Adding and taking off 1.5 * 2^23 rounds to the nearest integer, ties to even, in any vector
 * unit; the comparisons send a NaN to a bound. */
static inline int8_t code_of(float x, float scale)
{
    const float round = 12582912.0f;
    float v = x / scale;

    v = v > -127.0f ? v : -127.0f;
    v = v < 127.0f ? v : 127.0f;
    return (int8_t)(int32_t)(v + round - round);
}

static void encode_run(int8_t *codes, int32_t *sum, const float *x, float scale)
{
    int8_t natural[32];
    int32_t total = 0;

    for (int i = 0; i < 32; i++) natural[i] = code_of(x[i], scale);
    for (int i = 0; i < 32; i++) total += natural[i];
    words_of(codes, natural);
    *sum = total;
}

static void encode(int8_t *codes, int32_t *sums, const float *x, int64_t n, float scale)
{
    int64_t whole = n / 32 * 32, padded = sw_round_up(n, SW_TILE_K);
    float last[SW_TILE_K] = {0};

    for (int64_t k = 0; k < whole; k += 32) encode_run(codes + k, sums + k / 32, x + k, scale);
    memcpy(last, x + whole, (size_t)(n - whole) * sizeof *last);
    for (int64_t k = whole; k < padded; k += 32)
        encode_run(codes + k, sums + k / 32, last + (k - whole), scale);
}

/* Magnitudes compare like their bits, and a NaN beats them all. */
static float abs_max(const float *x, int64_t n)
{
    uint32_t most = 0;
    float a;

    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;

        memcpy(&bits, x + i, sizeof bits);
        bits &= 0x7fffffffu;
        most = bits > most ? bits : most;
    }
    memcpy(&a, &most, sizeof a);
    return a;
}

const sw_int_ops V_NAME(sw_int_ops) = {
    .tokens = INT_TOKENS,
    .unpack = unpack,
    .dot = dot,
    .load_record = load_record,
    .add_group = add_group,
    .finish_sums = finish_sums,
    .finish_totals = finish_totals,
    .encode = encode,
    .abs_max = abs_max,
};
