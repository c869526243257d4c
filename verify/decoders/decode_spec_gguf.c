/* decode_spec_gguf.c - the second reading of blocks of GGUF, element by element.
 *
 * Of a linear P in blocks of a type, as "P.<type>" U8 [n_out, bytes of a row]; e counts elements of
 * a block, d and m are F16, q a code, s a scale of a run of elements:
 *   Q4_0   d | q 4 bits                       d (q - 8)
 *   Q4_1   d m | q 4                          d q + m
 *   Q5_0   d | h 32 bits | q 4                d (q + 16 h_e - 16)
 *   Q5_1   d m | h 32 | q 4                   d (q + 16 h_e) + m
 *   Q8_0   d | q 8, signed                    d q
 *   Q2_K   16 of s (4 bits) and r (4) | q 2 | d m            d s q - m r, runs of 16
 *   Q3_K   h 1 | q 2 | 16 of s (6 bits) | d                  d (s - 32) (q + 4 h - 4), runs of 16
 *   Q4_K   d m | 8 of s and r (6 bits) | q 4                 d s q - m r, runs of 32
 *   Q5_K   d m | 8 of s and r (6 bits) | h 1 | q 4           d s (q + 16 h) - m r, runs of 32
 *   Q6_K   q 4 | h 2 | 16 of s (8 bits, signed) | d          d s (q + 16 h - 32), runs of 16
 *   IQ4_NL d | q 4                            d T[q]
 *   IQ4_XS d | 8 of s (6 bits) | q 4          d (s - 32) T[q], runs of 32
 *   MXFP4  e 8 bits | q 4                     e2m1(q) 2^(e - 127)
 *   NVFP4  4 of s (e4m3) | q 4                s e2m1(q), runs of 16, times "P.NVFP4_scale" if any
 *   TQ1_0  q of five digits | h of four | d   d (digit - 1)
 *   TQ2_0  q 2 | d                            d (q - 1)
 * and those of decode_spec_block_grids.c.
 */
#include <math.h>
#include <string.h>

#include "formats/base/block_type.h"
#include "formats/base/mem.h"
#include "verify/decoders/decode_spec_blocks.h"

#define GLOBAL "NVFP4_scale" /* F32 [1] */

typedef sw_spec_block parts;

/* What codes mean: levels above `zero`, a small float, or one of `n_levels` that rise. */
typedef struct layout {
    const char *name;
    int elems, bytes, run, bits, zero;
    bool has_offset, is_float;
    void (*take)(parts *p, const unsigned char *b);
    const float *levels;
    int n_levels;
    const sw_spec_block_grid *lattice;
} layout;

float sw_spec_half(const unsigned char *b)
{
    const sw_spec_floats one = {b, SW_DTYPE_F16};

    return sw_spec_float_at(&one, 0);
}

static float half(const unsigned char *b) { return sw_spec_half(b); }

/* Element e of a run of 2n: the first n in the low halves of n bytes, the others in the high. */
static int nibble(const unsigned char *q, int e, int n) { return q[e % n] >> (e < n ? 0 : 4) & 15; }

static int bit(const unsigned char *h, int i) { return h[i / 8] >> i % 8 & 1; }

static void take_q4_0(parts *p, const unsigned char *b)
{
    p->scales[0] = half(b);
    for (int e = 0; e < 32; e++) p->codes[e] = (uint8_t)nibble(b + 2, e, 16);
}

static void take_q4_1(parts *p, const unsigned char *b)
{
    p->scales[0] = half(b);
    p->offsets[0] = half(b + 2);
    for (int e = 0; e < 32; e++) p->codes[e] = (uint8_t)nibble(b + 4, e, 16);
}

static void take_q5_0(parts *p, const unsigned char *b)
{
    p->scales[0] = half(b);
    for (int e = 0; e < 32; e++) p->codes[e] = (uint8_t)(nibble(b + 6, e, 16) | bit(b + 2, e) << 4);
}

static void take_q5_1(parts *p, const unsigned char *b)
{
    p->scales[0] = half(b);
    p->offsets[0] = half(b + 2);
    for (int e = 0; e < 32; e++) p->codes[e] = (uint8_t)(nibble(b + 8, e, 16) | bit(b + 4, e) << 4);
}

static void take_q8_0(parts *p, const unsigned char *b)
{
    p->scales[0] = half(b);
    for (int e = 0; e < 32; e++) p->codes[e] = b[2 + e] ^ 0x80; /* -128 becomes 0 */
}

static void take_mxfp4(parts *p, const unsigned char *b)
{
    const sw_spec_floats one = {b, SW_DTYPE_F8_E8M0};

    p->scales[0] = sw_spec_float_at(&one, 0);
    for (int e = 0; e < 32; e++) p->codes[e] = (uint8_t)nibble(b + 1, e, 16);
}

/* Two bits of element e where 32 bytes hold 128 elements, a quarter in each pair of bits. */
static int two_bits(const unsigned char *q, int e)
{
    return q[32 * (e / 128) + e % 32] >> 2 * (e % 128 / 32) & 3;
}

static void take_q2_k(parts *p, const unsigned char *b)
{
    const float d = half(b + 80), m = half(b + 82);

    for (int r = 0; r < 16; r++) {
        p->scales[r] = d * (float)(b[r] & 15);
        p->offsets[r] = -(m * (float)(b[r] >> 4));
    }
    for (int e = 0; e < 256; e++) p->codes[e] = (uint8_t)two_bits(b + 16, e);
}

static void take_q3_k(parts *p, const unsigned char *b)
{
    const unsigned char *s = b + 96;
    const float d = half(b + 108);

    for (int r = 0; r < 16; r++) {
        int low = s[r % 8] >> (r < 8 ? 0 : 4) & 15, high = s[8 + r % 4] >> 2 * (r / 4) & 3;
        p->scales[r] = d * (float)((low | high << 4) - 32);
    }
    for (int e = 0; e < 256; e++) {
        int h = b[e % 32] >> (4 * (e / 128) + e % 128 / 32) & 1;
        p->codes[e] = (uint8_t)(two_bits(b + 32, e) + 4 * h);
    }
}

/* Six bits of each of 8 scales, then of 8 minima: the first four of both in bytes of their own, the
 * others cut, with their two top bits above the first four. */
static int six_bits(const unsigned char *s, int r, bool is_min)
{
    if (r < 4) return s[r + 4 * is_min] & 63;
    return (s[r + 4] >> 4 * is_min & 15) | s[r - 4 + 4 * is_min] >> 6 << 4;
}

static void take_runs_of_32(parts *p, const unsigned char *b)
{
    const float d = half(b), m = half(b + 2);

    for (int r = 0; r < 8; r++) {
        p->scales[r] = d * (float)six_bits(b + 4, r, false);
        p->offsets[r] = -(m * (float)six_bits(b + 4, r, true));
    }
}

static void take_q4_k(parts *p, const unsigned char *b)
{
    take_runs_of_32(p, b);
    for (int e = 0; e < 256; e++) p->codes[e] = (uint8_t)nibble(b + 16 + e / 64 * 32, e % 64, 32);
}

static void take_q5_k(parts *p, const unsigned char *b)
{
    take_runs_of_32(p, b);
    for (int e = 0; e < 256; e++) {
        int h = b[16 + e % 32] >> e / 32 & 1;
        p->codes[e] = (uint8_t)(nibble(b + 48 + e / 64 * 32, e % 64, 32) | h << 4);
    }
}

static void take_q6_k(parts *p, const unsigned char *b)
{
    const float d = half(b + 208);

    for (int r = 0; r < 16; r++) {
        const int s = b[192 + r];
        p->scales[r] = d * (float)(s < 128 ? s : s - 256);
    }
    for (int e = 0; e < 256; e++) {
        const int low = nibble(b + 64 * (e / 128), e % 128, 64);
        p->codes[e] = (uint8_t)(low | two_bits(b + 128, e) << 4);
    }
}

static void take_iq4_xs(parts *p, const unsigned char *b)
{
    const float d = half(b);

    for (int r = 0; r < 8; r++) {
        int low = b[4 + r / 2] >> 4 * (r % 2) & 15, high = b[2 + r / 4] >> 2 * (r % 4) & 3;
        p->scales[r] = d * (float)((low | high << 4) - 32);
    }
    for (int e = 0; e < 256; e++) p->codes[e] = (uint8_t)nibble(b + 8 + e / 32 * 16, e % 32, 16);
}

/* Runs of 16, whose scales come first. */
static void take_nvfp4(parts *p, const unsigned char *b)
{
    const sw_spec_floats scales = {b, SW_DTYPE_F8_E4M3};

    for (int r = 0; r < 4; r++) p->scales[r] = sw_spec_float_at(&scales, r);
    for (int e = 0; e < 64; e++)
        p->codes[e] = (uint8_t)nibble(b + 4 + e / 16 * 8, e % 16, 8);
}

static void take_tq2_0(parts *p, const unsigned char *b)
{
    p->scales[0] = half(b + 64);
    for (int e = 0; e < 256; e++) p->codes[e] = (uint8_t)two_bits(b, e);
}

/* A byte is a fraction of 256; digit k of it is what stands before the point after k + 1 times
 * three. 32 bytes of five digits, 16 of five, 4 of four; the first digits of all come first. */
static void take_tq1_0(parts *p, const unsigned char *b)
{
    static const int threes[] = {1, 3, 9, 27, 81};

    p->scales[0] = half(b + 52);
    for (int e = 0; e < 256; e++) {
        const int at = e < 160 ? e : e < 240 ? e - 160 : e - 240;
        const int n = e < 160 ? 32 : e < 240 ? 16 : 4;
        const int byte = b[(e < 160 ? 0 : e < 240 ? 32 : 48) + at % n];

        p->codes[e] = (uint8_t)(byte * threes[at / n] % 256 * 3 / 256);
    }
}

static const float iq4_levels[] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                   1,    13,   25,  38,  53,  69,  89,  113};
static const float iq3_xxs_levels[] = {-62, -52, -44, -36, -28, -20, -12, -4,
                                       4,   12,  20,  28,  36,  44,  52,  62};
static const float iq3_s_levels[] = {-15, -13, -11, -9, -7, -5, -3, -1,
                                     1,   3,   5,   7,  9,  11, 13, 15};
static const float iq2_levels[] = {-43, -25, -8, 8, 25, 43};
static const float iq1_levels[] = {-1.125f, -0.875f, -0.125f, 0.125f, 0.875f, 1.125f};
#define LEVELS(of) .levels = of, .n_levels = (int)(sizeof of / sizeof *of)

static const layout layouts[] = {
    {"Q4_0", 32, 18, 32, 4, 8, false, false, .take = take_q4_0},
    {"Q4_1", 32, 20, 32, 4, 0, true, false, .take = take_q4_1},
    {"Q5_0", 32, 22, 32, 5, 16, false, false, .take = take_q5_0},
    {"Q5_1", 32, 24, 32, 5, 0, true, false, .take = take_q5_1},
    {"Q8_0", 32, 34, 32, 8, 128, false, false, .take = take_q8_0},
    {"Q2_K", 256, 84, 16, 2, 0, true, false, .take = take_q2_k},
    {"Q3_K", 256, 110, 16, 3, 4, false, false, .take = take_q3_k},
    {"Q4_K", 256, 144, 32, 4, 0, true, false, .take = take_q4_k},
    {"Q5_K", 256, 176, 32, 5, 0, true, false, .take = take_q5_k},
    {"Q6_K", 256, 210, 16, 6, 32, false, false, .take = take_q6_k},
    {"IQ4_NL", 32, 18, 32, 4, 0, false, false, .take = take_q4_0, LEVELS(iq4_levels)},
    {"IQ4_XS", 256, 136, 32, 4, 0, false, false, .take = take_iq4_xs, LEVELS(iq4_levels)},
    {"MXFP4", 32, 17, 32, 4, 0, false, true, .take = take_mxfp4},
    {"NVFP4", 64, 36, 16, 4, 0, false, true, .take = take_nvfp4},
    {"TQ1_0", 256, 54, 256, 2, 1, false, false, .take = take_tq1_0},
    {"TQ2_0", 256, 66, 256, 2, 1, false, false, .take = take_tq2_0},
    {"IQ1_S", 256, 50, 32, 2, 0, false, false, .take = sw_spec_take_iq1_s, LEVELS(iq1_levels),
     .lattice = &sw_spec_iq1},
    {"IQ1_M", 256, 56, 16, 2, 0, false, false, .take = sw_spec_take_iq1_m, LEVELS(iq1_levels),
     .lattice = &sw_spec_iq1},
    {"IQ2_XXS", 256, 66, 32, 2, 0, false, false, .take = sw_spec_take_iq2_xxs,
     LEVELS(iq2_levels), .lattice = &sw_spec_iq2_xxs},
    {"IQ2_XS", 256, 74, 16, 2, 0, false, false, .take = sw_spec_take_iq2_xs, LEVELS(iq2_levels),
     .lattice = &sw_spec_iq2_xs},
    {"IQ2_S", 256, 82, 16, 2, 0, false, false, .take = sw_spec_take_iq2_s, LEVELS(iq2_levels),
     .lattice = &sw_spec_iq2_s},
    {"IQ3_XXS", 256, 98, 32, 3, 0, false, false, .take = sw_spec_take_iq3_xxs,
     LEVELS(iq3_xxs_levels), .lattice = &sw_spec_iq3_xxs},
    {"IQ3_S", 256, 110, 32, 3, 0, false, false, .take = sw_spec_take_iq3_s,
     LEVELS(iq3_s_levels), .lattice = &sw_spec_iq3_s},
};
#define N_LAYOUTS (sizeof layouts / sizeof *layouts)

static const layout *layout_of(const sw_st_tensor **t, const sw_st *st, const char *module_path)
{
    for (size_t i = 0; i < N_LAYOUTS; i++)
        if ((*t = sw_spec_find(st, module_path, layouts[i].name))) return &layouts[i];
    return NULL;
}

static const sw_st_tensor *find(const sw_st *st, const char *module_path, const char *suffix)
{
    const sw_st_tensor *t;

    (void)suffix;
    return layout_of(&t, st, module_path) ? t : NULL;
}

static void scheme_from(sw_spec_scheme *s, const layout *l)
{
    s->bits = l->bits;
    s->group_elems = l->run;
    s->is_symmetric = !l->has_offset;
    s->exponent_bits = l->is_float ? 2 : 0;
    s->mantissa_bits = l->is_float;
    s->is_pow2 = l->is_float && l->run == 32;
    s->has_global = l->is_float && !s->is_pow2;
    s->blocks = l->name;
}

void sw_spec_gguf_scheme(sw_spec_scheme *out, const sw_st *st)
{
    sw_spec_scheme s = {.reader = &sw_spec_gguf, .bits = 16, .bits_min = 16, .is_symmetric = true,
                        .blocks = "floats"};
    uint64_t weights[N_LAYOUTS] = {0}, most = 0;

    for (int64_t i = 0; i < sw_st_count(st); i++) {
        const sw_st_tensor *t = sw_st_at(st, i);
        const char *dot = strrchr(t->name, '.');

        for (size_t k = 0; dot && k < N_LAYOUTS; k++) {
            const layout *l = &layouts[k];
            if (strcmp(dot + 1, l->name)) continue;
            weights[k] += t->view.size_bytes / (uint64_t)l->bytes * (uint64_t)l->elems;
            s.bits_min = l->bits < s.bits_min ? l->bits : s.bits_min;
            if (weights[k] <= most) continue;
            most = weights[k];
            scheme_from(&s, l);
        }
    }
    *out = s;
}

static bool is_mine(const cJSON *config)
{
    (void)config;
    return false; /* a container, told by its first bytes */
}

static sw_code read_config(sw_spec_scheme *out, const cJSON *config, sw_err *err)
{
    (void)out;
    (void)config;
    return SW_FAIL(err, SW_E_BUG, "a GGUF has no quantization_config");
}

static sw_code read_linear(sw_spec_scheme *out, const cJSON *config, const char *module_path,
                           sw_err *err)
{
    (void)module_path;
    return read_config(out, config, err);
}

sw_code sw_spec_gguf_linear(sw_spec_scheme *out, const sw_st *st, const char *module_path,
                            sw_err *err)
{
    const sw_st_tensor *t;
    const layout *l = layout_of(&t, st, module_path);

    if (!l) return SW_FAIL(err, SW_E_FORMAT, "%s is in no blocks that are known", module_path);
    scheme_from(out, l);
    return SW_OK;
}

static void take_block(sw_spec_weight *w, const layout *l, const uint8_t *points,
                       const unsigned char *b, int64_t n, int64_t k)
{
    parts p;

    p.points = points;
    l->take(&p, b);
    memcpy(w->codes + n * w->k_in + k, p.codes, (size_t)l->elems);
    for (int r = 0; r < l->elems / l->run; r++) {
        const int64_t at = n * w->n_groups + k / l->run + r;

        w->scales[at] = p.scales[r];
        w->zeros[at] = l->zero;
        if (l->has_offset) w->offsets[at] = p.offsets[r];
    }
}

/* The factor of a whole tensor that NVFP4 may have beside it. */
static sw_code take_global(sw_spec_weight *w, const layout *l, const sw_st *st,
                           const char *module_path, sw_err *err)
{
    if (!l->is_float || l->run != 16 || !sw_spec_find(st, module_path, GLOBAL)) return SW_OK;
    return sw_spec_single(&w->global, st, module_path, GLOBAL, err);
}

static sw_code decode(sw_spec_weight *w, const sw_spec_scheme *scheme, const sw_st *st,
                      const char *module_path, sw_err *err)
{
    const sw_st_tensor *t;
    const layout *l = layout_of(&t, st, module_path);
    const int64_t row_bytes = w->k_in / l->elems * l->bytes;
    uint8_t *points = NULL;
    sw_st_bytes bytes = {0};
    sw_code rc;

    (void)scheme;
    if (w->k_in % l->elems || t->view.n_dims != 2 || t->view.shape[0] != w->n_out ||
        t->view.shape[1] != row_bytes)
        return SW_FAIL(err, SW_E_FORMAT, "%s: %lld rows of %lld inputs are not what its blocks of "
                       "%s hold", module_path, (long long)w->n_out, (long long)w->k_in, l->name);
    if ((rc = take_global(w, l, st, module_path, err)) != SW_OK ||
        (rc = SW_MEM_GET(&points, SW_SPEC_POINTS_BYTES_MAX, "points of a lattice", err)) != SW_OK)
        return rc;
    if ((rc = sw_st_fetch(&bytes, t, err)) != SW_OK) goto done;
    if (l->lattice) sw_spec_block_grid_points(points, l->lattice);
    w->levels = l->levels;
    w->n_levels = l->n_levels;
    w->has_scale_steps = l->elems > l->run && !l->is_float;
    for (int64_t n = 0; n < w->n_out; n++)
        for (int64_t k = 0; k < w->k_in; k += l->elems)
            take_block(w, l, points, (const unsigned char *)bytes.data + n * row_bytes +
                                         k / l->elems * l->bytes, n, k);
done:
    sw_st_drop(&bytes);
    sw_mem_put(points);
    return rc;
}

const sw_spec_reader sw_spec_gguf = {
    .name = "gguf",
    .suffixes = {"weight", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K",
                 "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4", "NVFP4", GLOBAL, "TQ1_0", "TQ2_0", "IQ1_S",
                 "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S"},
    .marker = "",
    .is_mine = is_mine,
    .read_config = read_config,
    .read_linear = read_linear,
    .decode = decode,
    .find = find,
};
