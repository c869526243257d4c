/* tiles_body.h - Swage tiles against activations, in the words of a vec_*.h.
 *
 * Included once per instruction set. `code` (what a code is), `is_split` (groups change inside
 * tiles), `n_pairs` and `n_tokens` are constants wherever these functions are called, so every loop
 * over them unrolls and the accumulators live in registers.
 *
 * An integer decodes to code * scale - zero * scale with one rounding of an exact result, a small
 * float to value * scale with one rounding: with stored scales that is exactly what the checkpoint
 * means. A global scale is multiplied into the others first, which may cost one rounding more.
 */
#include <string.h>

#include "formats/base/size.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/simd/scales_body.h"
#include "kernels/cpu/simd/unroll.h"

/* The containers of integers, and the small floats that vec_*.h decode in registers. Any other
 * small float is looked up in the table of its row of formats.def, and only in blocks: products
 * with few tokens then go the way of those with many. */
#define EACH_INT(F, ...) \
    F(INT2, __VA_ARGS__) F(INT3, __VA_ARGS__) F(INT4, __VA_ARGS__) F(INT8, __VA_ARGS__)
#define EACH_FLOAT(F, ...) F(E2M1, __VA_ARGS__) F(E4M3, __VA_ARGS__) F(E5M2, __VA_ARGS__)

#define CODE_NAME(code, ...) CODE_##code,
typedef enum code_kind {
    EACH_INT(CODE_NAME, ) EACH_FLOAT(CODE_NAME, ) CODE_TABLE4, CODE_TABLE8, CODE_KINDS
} code_kind;

V_INLINE bool is_int(code_kind code) { return code <= CODE_INT8; }
/* Integers that stand in the two nibbles of a byte once they are read. */
V_INLINE bool is_nibble(code_kind code) { return code <= CODE_INT4; }
V_INLINE int bits_of(code_kind code)
{
    if (code == CODE_INT2 || code == CODE_INT3) return code == CODE_INT2 ? 2 : 3;
    return code == CODE_INT4 || code == CODE_E2M1 || code == CODE_TABLE4 ? 4 : 8;
}

static code_kind code_of(const sw_tiles *t)
{
    static const code_kind ints[] = {[2] = CODE_INT2, [3] = CODE_INT3, [4] = CODE_INT4,
                                     [8] = CODE_INT8};
#define CODE_OF(code, ...) {SW_NUM_##code, CODE_##code},
    static const struct {
        sw_num_id num;
        code_kind code;
    } floats[] = {EACH_FLOAT(CODE_OF, )};

    if (t->spec.num->kind == SW_NUM_INT) return ints[t->container_bits];
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++)
        if (t->spec.num == &sw_nums[floats[i].num]) return floats[i].code;
    return t->container_bits == 4 ? CODE_TABLE4 : CODE_TABLE8;
}

static bool is_split_group(const sw_tiles *t) { return t->spec.group_elems % SW_TILE_K != 0; }

/* Group of the inputs from k on; that of padding is the last. */
static int64_t group_at(const sw_tiles *t, int64_t k)
{
    int64_t group = t->spec.group_elems ? k / t->spec.group_elems : 0;

    return sw_min_i64(group, t->n_groups - 1);
}

/* Scales of V_LANES slots from `slot` on. */
V_INLINE vec scales_at(const sw_tiles *t, int64_t record, int slot, sw_dtype dtype)
{
    int64_t at = (record * SW_TILE_N + slot) * scale_bytes(dtype);
    vec scale = v_scales((const uint8_t *)t->scales + at, dtype);

    return t->spec.has_global ? v_mul(scale, v_all(t->global_scale)) : scale;
}

V_INLINE vec offsets_at(const sw_tiles *t, int64_t record, int slot, vec scale)
{
    vec zero = t->zeros ? v_from_u8(t->zeros + record * SW_TILE_N + slot)
                        : v_all((float)t->spec.num->sym_zero);
    return v_mul(v_mul(zero, v_all(-1)), scale);
}

V_INLINE void load_whole(float *scale, float *offset, const sw_tiles *t, int64_t record,
                         sw_dtype dtype)
{
    for (int slot = 0; slot < SW_TILE_N; slot += V_LANES) {
        vec s = scales_at(t, record, slot, dtype);

        v_store(scale + slot, s);
        if (t->spec.num->kind == SW_NUM_INT)
            v_store(offset + slot, offsets_at(t, record, slot, s));
    }
}

V_INLINE void load_quads(float *scale, float *offset, const sw_tiles *t, const int64_t records[4],
                         sw_dtype dtype)
{
    bool is_by_half = records[0] == records[1] && records[2] == records[3];

    for (int slot = 0; slot < SW_TILE_N; slot += V_LANES) {
        vec s[4], o[4];

        s[0] = s[1] = scales_at(t, records[0], slot, dtype);
        s[2] = s[3] = scales_at(t, records[2], slot, dtype);
        if (!is_by_half) {
            s[1] = scales_at(t, records[1], slot, dtype);
            s[3] = scales_at(t, records[3], slot, dtype);
        }
        v_put_quads(scale + 4 * slot, s[0], s[1], s[2], s[3]);
        if (t->spec.num->kind != SW_NUM_INT) continue;
        for (int i = 0; i < 4; i++) o[i] = offsets_at(t, records[i], slot, s[i]);
        v_put_quads(offset + 4 * slot, o[0], o[1], o[2], o[3]);
    }
}

/* Bytes of four records side by side: out[4 * slot + step]. */
V_INLINE void put_byte_quads(uint8_t out[4 * SW_TILE_N], const uint8_t *const steps[4])
{
#if V_LANES >= 8
    for (int slot = 0; slot < SW_TILE_N; slot += 16) {
        __m128i s[4], low, high;

        UNROLL for (int i = 0; i < 4; i++)
            s[i] = _mm_loadu_si128((const __m128i *)(const void *)(steps[i] + slot));
        for (int half = 0; half < 2; half++) {
            __m128i *to = (__m128i *)(void *)(out + 4 * slot + 32 * half);

            low = half ? _mm_unpackhi_epi8(s[0], s[1]) : _mm_unpacklo_epi8(s[0], s[1]);
            high = half ? _mm_unpackhi_epi8(s[2], s[3]) : _mm_unpacklo_epi8(s[2], s[3]);
            _mm_storeu_si128(to, _mm_unpacklo_epi16(low, high));
            _mm_storeu_si128(to + 1, _mm_unpackhi_epi16(low, high));
        }
    }
#else
    for (int slot = 0; slot < SW_TILE_N; slot++)
        for (int i = 0; i < 4; i++) out[4 * slot + i] = steps[i][slot];
#endif
}

/* Scales of one byte of small floats: turned about before they are floats, four times as small. */
V_INLINE void load_byte_quads(float *scale, const sw_tiles *t, const int64_t records[4],
                              sw_dtype dtype)
{
    const uint8_t *steps[4];
    uint8_t bytes[4 * SW_TILE_N];
    vec global = v_all(t->spec.has_global ? t->global_scale : 1.0f);

    for (int i = 0; i < 4; i++) steps[i] = (const uint8_t *)t->scales + records[i] * SW_TILE_N;
    put_byte_quads(bytes, steps);
    for (int at = 0; at < 4 * SW_TILE_N; at += V_LANES)
        v_store(scale + at, v_mul(v_scales(bytes + at, dtype), global));
}

V_INLINE void load_params_of(sw_strip_params *out, const sw_tiles *t, int64_t n_tile,
                             int64_t k_tile, int64_t n_tiles, sw_dtype dtype)
{
    for (int64_t tile = 0; tile < n_tiles; tile++) {
        int64_t k = (k_tile + tile) * SW_TILE_K, first = n_tile * t->n_groups;

        if (is_split_group(t)) {
            int64_t records[4];

            for (int s = 0; s < 4; s++) records[s] = first + group_at(t, k + 16 * s);
            if (scale_bytes(dtype) == 1 && t->spec.num->kind != SW_NUM_INT)
                load_byte_quads(out->scale[tile], t, records, dtype);
            else
                load_quads(out->scale[tile], out->offset[tile], t, records, dtype);
        } else {
            load_whole(out->scale[tile], out->offset[tile], t, first + group_at(t, k), dtype);
        }
    }
}

/* One loop for each dtype, or its choice is made anew for every vector. */
static void load_params(sw_strip_params *out, const sw_tiles *t, int64_t n_tile, int64_t k_tile,
                        int64_t n_tiles)
{
    sw_dtype dtype = t->spec.scale_dtype;

    if (dtype == SW_DTYPE_F8_E4M3)
        load_params_of(out, t, n_tile, k_tile, n_tiles, SW_DTYPE_F8_E4M3);
    else if (dtype == SW_DTYPE_F8_E8M0)
        load_params_of(out, t, n_tile, k_tile, n_tiles, SW_DTYPE_F8_E8M0);
    else if (dtype == SW_DTYPE_BF16)
        load_params_of(out, t, n_tile, k_tile, n_tiles, SW_DTYPE_BF16);
    else if (dtype == SW_DTYPE_F16)
        load_params_of(out, t, n_tile, k_tile, n_tiles, SW_DTYPE_F16);
    else
        load_params_of(out, t, n_tile, k_tile, n_tiles, SW_DTYPE_F32);
}

V_INLINE channel load_channel(const sw_strip_params *params, int64_t tile, int slot,
                              code_kind code, bool is_split)
{
    const float *scale = params->scale[tile], *offset = params->offset[tile];
    channel c;

    if (is_split) {
        c.scale = v_by_step(scale + 4 * slot);
        c.offset = is_int(code) ? v_by_step(offset + 4 * slot) : v_zero();
        return c;
    }
    if (is_nibble(code)) return channel4(scale[slot], offset[slot]);
    c.scale = v_all(scale[slot]);
    c.offset = is_int(code) ? v_all(offset[slot]) : v_zero();
    return c;
}

/* Vector i (0..3) of the small floats of channel n + 8h, not yet scaled. */
V_INLINE vec plain_of(words w, int i, int h, code_kind code, const float *values)
{
    if (code == CODE_TABLE4) return v_lookup(values, w, 4 * (2 * i + h), 15);
    if (code == CODE_TABLE8) return v_lookup(values, w, 8 * i, 255);
    if (code == CODE_E2M1) return v_e2m1(w, 2 * i + h);
    return code == CODE_E4M3 ? v_e4m3(w, i) : v_e5m2(w, i);
}

/* Vector i of channel n + 8h. */
V_INLINE vec value_of(words w, int i, int h, channel c, code_kind code, bool is_split,
                      const float *values)
{
    if (!is_int(code)) return v_mul(plain_of(w, i, h, code, values), c.scale);
    if (is_nibble(code) && !is_split) return v_value4(w, 2 * i + h, c);
    return v_fma(is_nibble(code) ? v_code4(w, 2 * i + h) : v_code8(w, i), c.scale, c.offset);
}

/* Words of a pair in a container of 2 or 3 bits (narrow.h), as they were with 4. */
V_INLINE words narrow_words(const uint8_t *tile, int pair, int u, int bits)
{
    const uint8_t *line = tile + 4 * V_LANES * u;
    words low = w_pairs(w_load(line + pair % 16 * 64), pair / 16 * 2);

    if (bits == 2) return low;
    return w_with_third(low, w_load(line + 1024 + pair % 8 * 64), pair / 8);
}

/* The words of a pair of channels, lanes from 16u on: equal for both channels to 4 bits. */
V_INLINE void pair_words(words out[2], const uint8_t *tile, int pair, int u, int bits)
{
    if (bits < 4) {
        out[0] = out[1] = narrow_words(tile, pair, u, bits);
        return;
    }
    const uint8_t *at = tile + 64 * pair + 4 * V_LANES * u;

    out[0] = out[1] = w_load(at);
    if (bits == 8) {
        words upper = w_load(at + 2048);
        words lower = out[0];

        out[0] = w_channel8(lower, upper, 0);
        out[1] = w_channel8(lower, upper, 1);
    }
}

/* With few tokens it is cheaper to scale four products at once than four weights. */
V_INLINE bool is_scaled_last(code_kind code, int n_tokens) { return !is_int(code) && n_tokens < 4; }

V_INLINE void add_plain(vec sum[SW_STRIP_TOKENS_MAX], words w, int h, vec scale, const float *x,
                        int64_t x_stride, code_kind code, int n_tokens)
{
    vec plain[4];

    UNROLL for (int i = 0; i < 4; i++) plain[i] = plain_of(w, i, h, code, NULL);
    UNROLL for (int m = 0; m < n_tokens; m++) {
        const float *in = x + m * x_stride;
        vec part = v_mul(plain[0], v_load(in));

        UNROLL for (int i = 1; i < 4; i++) part = v_fma(plain[i], v_load(in + 16 * i), part);
        sum[m] = v_fma(part, scale, sum[m]);
    }
}

/* n_tiles tiles into the accumulators of n_pairs pairs of channels. Each tile read asks for as
 * many lines of the block that comes next: the reads here stride, so hardware would not see it. */
V_INLINE void strip_pairs(float *acc, const uint8_t *tiles, int64_t n_tiles,
                          const sw_strip_params *params, const float *x, int64_t x_stride,
                          int pair0, code_kind code, bool is_split, int n_pairs, int n_tokens)
{
    int bits = bits_of(code);
    int64_t tile_bytes = SW_TILE_N * SW_TILE_K * bits / 8;
    const char *next = (const char *)tiles + n_tiles * tile_bytes +
                       (bits < 4 ? 1 : n_tiles) * pair0 * 16 * bits;
    vec sum[8][2][SW_STRIP_TOKENS_MAX];

    UNROLL for (int p = 0; p < n_pairs; p++)
        UNROLL for (int h = 0; h < 2; h++)
            UNROLL for (int m = 0; m < n_tokens; m++)
                sum[p][h][m] = v_load(acc + ((2 * (pair0 + p) + h) * n_tokens + m) * V_LANES);
    for (int64_t tile = 0; tile < n_tiles; tile++) {
        UNROLL for (int p = 0; p < n_pairs; p++) {
            int slot = 2 * (pair0 + p);
            channel low = load_channel(params, tile, slot, code, is_split);
            channel high = load_channel(params, tile, slot + 1, code, is_split);

            if (bits < 4) __builtin_prefetch(next + (tile * 32 + p) * 16 * bits);
            for (int line = 0; line < bits / 4; line++, next += 64) __builtin_prefetch(next);
            UNROLL for (int u = 0; u < 16 / V_LANES; u++) {
                words w[2];

                pair_words(w, tiles + tile * tile_bytes, pair0 + p, u, bits);
                if (is_scaled_last(code, n_tokens)) {
                    add_plain(sum[p][0], w[0], 0, low.scale, x + tile * 64 + V_LANES * u,
                              x_stride, code, n_tokens);
                    add_plain(sum[p][1], w[1], 1, high.scale, x + tile * 64 + V_LANES * u,
                              x_stride, code, n_tokens);
                    continue;
                }
                UNROLL for (int i = 0; i < 4; i++) {
                    vec a = value_of(w[0], i, 0, low, code, is_split, NULL);
                    vec b = value_of(w[1], i, 1, high, code, is_split, NULL);

                    UNROLL for (int m = 0; m < n_tokens; m++) {
                        vec in = v_load(x + m * x_stride + tile * 64 + 16 * i + V_LANES * u);

                        sum[p][0][m] = v_fma(a, in, sum[p][0][m]);
                        sum[p][1][m] = v_fma(b, in, sum[p][1][m]);
                    }
                }
            }
        }
    }
    UNROLL for (int p = 0; p < n_pairs; p++)
        UNROLL for (int h = 0; h < 2; h++)
            UNROLL for (int m = 0; m < n_tokens; m++)
                v_store(acc + ((2 * (pair0 + p) + h) * n_tokens + m) * V_LANES, sum[p][h][m]);
}

/* All 32 pairs of a row of tiles, as many at a time as there are registers for. */
V_INLINE void strip_block(float *acc, const uint8_t *tiles, int64_t n_tiles,
                          const sw_strip_params *params, const float *x, int64_t x_stride,
                          code_kind code, bool is_split, int n_pairs, int n_tokens)
{
    for (int pair = 0; pair < SW_TILE_N / 2; pair += n_pairs)
        strip_pairs(acc, tiles, n_tiles, params, x, x_stride, pair, code, is_split, n_pairs,
                    n_tokens);
}

typedef void (*strip_fn)(float *acc, const uint8_t *tiles, int64_t n_tiles,
                         const sw_strip_params *params, const float *x, int64_t x_stride);

#define STRIP(code, is_split, n_pairs, n_tokens)                                              \
    static void strip_##code##_##is_split##_##n_tokens(                                       \
        float *acc, const uint8_t *tiles, int64_t n_tiles, const sw_strip_params *params,     \
        const float *x, int64_t x_stride)                                                     \
    {                                                                                         \
        strip_block(acc, tiles, n_tiles, params, x, x_stride, CODE_##code, is_split, n_pairs, \
                    n_tokens);                                                                \
    }
#define STRIP_BOTH(code, n_pairs, n_tokens) \
    STRIP(code, 0, n_pairs, n_tokens)       \
    STRIP(code, 1, n_pairs, n_tokens)
/* Small floats take more constants and temporaries, which leaves registers for fewer pairs. */
#define STRIPS(n_pairs, n_tokens)            \
    EACH_INT(STRIP_BOTH, n_pairs, n_tokens) \
    EACH_FLOAT(STRIP_BOTH, (n_pairs + 1) / 2, n_tokens)
#define STRIP_PAIR(code, n_tokens) \
    [CODE_##code] = {strip_##code##_0_##n_tokens, strip_##code##_1_##n_tokens},
#define STRIP_ROW(n_tokens) {EACH_INT(STRIP_PAIR, n_tokens) EACH_FLOAT(STRIP_PAIR, n_tokens)}

#if V_LANES == 16
STRIPS(8, 1) STRIPS(4, 2) STRIPS(2, 3) STRIPS(2, 4) STRIPS(2, 5) STRIPS(2, 6) STRIPS(1, 7)
STRIPS(1, 8)
static const strip_fn strips[][CODE_KINDS][2] = {
    STRIP_ROW(1), STRIP_ROW(2), STRIP_ROW(3), STRIP_ROW(4),
    STRIP_ROW(5), STRIP_ROW(6), STRIP_ROW(7), STRIP_ROW(8)};
#elif V_LANES == 8
STRIPS(4, 1) STRIPS(2, 2) STRIPS(1, 3) STRIPS(1, 4)
static const strip_fn strips[][CODE_KINDS][2] = {STRIP_ROW(1), STRIP_ROW(2), STRIP_ROW(3),
                                                 STRIP_ROW(4)};
#else
STRIPS(2, 1) STRIPS(1, 2) STRIPS(1, 3) STRIPS(1, 4)
static const strip_fn strips[][CODE_KINDS][2] = {STRIP_ROW(1), STRIP_ROW(2), STRIP_ROW(3),
                                                 STRIP_ROW(4)};
#endif
#define GEMV_TOKENS ((int)(sizeof strips / sizeof *strips))

static bool gemv_takes(const sw_tiles *t) { return strips[0][code_of(t)][0] != NULL; }

/* Channel of a slot: tiles.h, read backwards. */
static int channel_of(int slot) { return slot / 16 * 16 + slot % 16 / 2 + slot % 2 * 8; }

static void gemv_tiles(float *sums, const sw_tiles *t, int64_t n_tile, const float *x,
                       int64_t x_stride, int n_tokens, void *scratch)
{
    sw_strip_params *params = (sw_strip_params *)scratch;
    float *acc = (float *)(params + 1);
    int64_t k_tiles = sw_tiles_k(t->k_in), tile_bytes = sw_tile_bytes(t->container_bits);
    const uint8_t *row = t->codes + n_tile * k_tiles * tile_bytes;
    strip_fn strip = strips[n_tokens - 1][code_of(t)][is_split_group(t)];

    memset(acc, 0, (size_t)(SW_TILE_N * n_tokens * V_LANES) * sizeof *acc);
    for (int64_t k = 0; k < k_tiles; k += SW_STRIP_TILES) {
        int64_t n_tiles = sw_min_i64(SW_STRIP_TILES, k_tiles - k);

        load_params(params, t, n_tile, k, n_tiles);
        strip(acc, row + k * tile_bytes, n_tiles, params, x + k * SW_TILE_K, x_stride);
    }
    for (int slot = 0; slot < SW_TILE_N; slot += 4)
        for (int m = 0; m < n_tokens; m++) {
            const float *at = acc + (slot * n_tokens + m) * V_LANES;
            int64_t step = (int64_t)n_tokens * V_LANES;
            four sum = v_sum4(v_load(at), v_load(at + step), v_load(at + 2 * step),
                              v_load(at + 3 * step));

            for (int i = 0; i < 4; i++) sums[m * SW_TILE_N + channel_of(slot + i)] = sum[i];
        }
}

V_INLINE void decode_block(float *panel, int64_t ld, const uint8_t *tiles, int64_t n_tiles,
                           const sw_strip_params *params, int quarter, const float *values,
                           code_kind code, bool is_split)
{
    int bits = bits_of(code);

    for (int64_t tile = 0; tile < n_tiles; tile++)
        for (int g = 0; g < 8; g++) {
            int pair = 8 * quarter + g;
            const uint8_t *bytes = tiles + tile * SW_TILE_N * SW_TILE_K * bits / 8;
            float *low = panel + g * ld + tile * SW_TILE_K;
            channel a = load_channel(params, tile, 2 * pair, code, is_split);
            channel b = load_channel(params, tile, 2 * pair + 1, code, is_split);

            for (int u = 0; u < 16 / V_LANES; u++) {
                words w[2];

                pair_words(w, bytes, pair, u, bits);
                for (int i = 0; i < 4; i++) {
                    float *at = low + 16 * i + V_LANES * u;

                    v_store(at, value_of(w[0], i, 0, a, code, is_split, values));
                    v_store(at + 8 * ld, value_of(w[1], i, 1, b, code, is_split, values));
                }
            }
        }
}

typedef void (*block_fn)(float *panel, int64_t ld, const uint8_t *tiles, int64_t n_tiles,
                         const sw_strip_params *params, int quarter, const float *values);
#define BLOCK(code, is_split)                                                                    \
    static void block_##code##_##is_split(float *panel, int64_t ld, const uint8_t *tiles,        \
                                          int64_t n_tiles, const sw_strip_params *params,        \
                                          int quarter, const float *values)                      \
    {                                                                                            \
        decode_block(panel, ld, tiles, n_tiles, params, quarter, values, CODE_##code, is_split); \
    }
#define BLOCK_BOTH(code, ...) BLOCK(code, 0) BLOCK(code, 1)
#define BLOCK_PAIR(code, ...) [CODE_##code] = {block_##code##_0, block_##code##_1},
EACH_INT(BLOCK_BOTH, ) EACH_FLOAT(BLOCK_BOTH, ) BLOCK_BOTH(TABLE4) BLOCK_BOTH(TABLE8)
static const block_fn blocks[CODE_KINDS][2] = {
    EACH_INT(BLOCK_PAIR, ) EACH_FLOAT(BLOCK_PAIR, ) BLOCK_PAIR(TABLE4) BLOCK_PAIR(TABLE8)};

static void decode_tiles(float *panel, int64_t ld, const sw_tiles *t, int64_t n_tile, int quarter,
                         int64_t k_tile, int64_t n_tiles)
{
    int64_t tile_bytes = sw_tile_bytes(t->container_bits);
    const uint8_t *at = t->codes + (n_tile * sw_tiles_k(t->k_in) + k_tile) * tile_bytes;
    block_fn block = blocks[code_of(t)][is_split_group(t)];
    sw_strip_params params;

    for (int64_t k = 0; k < n_tiles; k += SW_STRIP_TILES, at += SW_STRIP_TILES * tile_bytes) {
        int64_t n = sw_min_i64(SW_STRIP_TILES, n_tiles - k);

        load_params(&params, t, n_tile, k_tile + k, n);
        block(panel + k * SW_TILE_K, ld, at, n, &params, quarter, t->spec.num->values);
    }
}

static void to_tile_order(float *dst, const float *x, int64_t n)
{
    float last[SW_TILE_K] = {0};

    for (int64_t k = 0; k < n; k += SW_TILE_K) {
        const float *from = x + k;

        if (n - k < SW_TILE_K) {
            memcpy(last, from, (size_t)(n - k) * sizeof *last);
            from = last;
        }
        v_transpose(dst + k, dst + k + 32, from); /* inputs 0..7: vectors i = 0 and i = 2 */
        v_transpose(dst + k + 16, dst + k + 48, from + 8);
    }
}
