/* decode_spec_swage.c - the second reading of Swage tiles, version 2 (and 1, from 4 bits on).
 *
 * For a linear P with K inputs, N outputs, G groups:
 *   P.tiles       U8       [ceil(N/64), ceil(K/64), 1024, 1536, 2048 or 4096]
 *   P.tile_scales F16|BF16 [ceil(N/64), G, 64]
 *   P.tile_shape  I64      [2] = N, K
 *   P.tile_zeros  U8       [ceil(N/64), G, 64]   asymmetric only
 *   P.tile_global F32      [1]   "global_scale" in the config: multiplies all values
 *   P.input_scale F32      [1]   "inputs" under a stored scale
 * "weights" names a small float ("e4m3"): codes are its bits, padding is 0 and scales may be F32,
 * F8_E4M3 or F8_E8M0; "scale_rows" channels (-1: all) share theirs, "pow2_scales": all are
 * powers of two.
 *   P.outlier_index  I32 [n], P.outlier_values F16 [N, n]   with n "outliers" only: inputs whose
 *                 weights are these values; their codes must be the zero point
 * A tile is walked here in storage order, warp by warp and lane by lane, and every code is put
 * where the layout says it belongs:
 *   4 bits: byte 512w + 16t + 4s + i holds channel 16w + g (low) and 16w + g + 8 (high) of input
 *           16s + K(c)[i], with lane t = 4g + c and K(c) = {2c, 2c+8, 2c+1, 2c+9};
 *   2 bits: byte 512(w % 2) + 16t + 4s + i holds channel 16w + g of that input in bits 0-1 (w < 2)
 *           or 2-3, and channel 16w + g + 8 four bits higher;
 *   3 bits: the low two bits of a code as with 2, the third one in byte 1024 + 16t + 4s + i, bit w
 *           (channel 16w + g) or 4 + w;
 *   5 to 8 bits: byte 2048(s/2) + 512w + 16t + 8(s%2) + i holds channel 16w + g, and + 4 + i
 *           channel 16w + g + 8.
 * Slot 2(8w + g) + h of a scale or zero record is channel 16w + g + 8h. Channels and inputs
 * beyond N and K must hold code = zero point, and channels beyond N scale 0: a kernel that reads
 * whole tiles would otherwise add what no model has.
 */
#include "formats/base/mem.h"
#include "formats/base/size.h"
#include "verify/decoders/decode_spec_parts.h"

#include <math.h>
#include <string.h>

#define TILE 64

typedef struct tiled {
    const unsigned char *codes, *zeros;
    sw_spec_floats scales;
    int64_t n_tiles, k_tiles, tile_bytes;
    int middle; /* the zero point when none is stored */
} tiled;

static bool is_mine(const cJSON *config) { return sw_spec_method_is(config, "swage"); }

/* Floats say with their name how many bits they have, and have no zero points; "bits" and "sym",
 * which other readers may go by, must not say otherwise. */
static sw_code read_floats(sw_spec_scheme *out, const char *weights, const cJSON *config,
                           sw_err *err)
{
    const cJSON *bits = sw_json_member(config, "bits");
    sw_code rc = sw_spec_float_kind(out, weights, err);

    if (rc != SW_OK) return rc;
    if (cJSON_IsNumber(bits) && bits->valuedouble != (double)out->bits)
        return SW_FAIL(err, SW_E_FORMAT, "bits is %.9g, but weights are %.10s", bits->valuedouble,
                       weights);
    if (cJSON_IsFalse(sw_json_member(config, "sym")))
        return SW_FAIL(err, SW_E_FORMAT, "sym is false, but weights are %.10s", weights);
    return SW_OK;
}

/* What goes beyond integers under scales of their own. Absent keys leave the scheme as it is. */
static sw_code read_beyond(sw_spec_scheme *out, const cJSON *config, sw_err *err)
{
    const cJSON *inputs = sw_json_member(config, "inputs");
    const char *weights = NULL, *scope = "none", *dtype = "F32";
    sw_code rc;

    if ((rc = sw_json_text(&weights, config, "weights", err)) != SW_OK ||
        (rc = sw_json_int(&out->scale_rows, config, "scale_rows", -1, INT32_MAX, err)) != SW_OK ||
        (rc = sw_json_bool(&out->is_pow2, config, "pow2_scales", err)) != SW_OK ||
        (rc = sw_json_bool(&out->has_global, config, "global_scale", err)) != SW_OK ||
        (rc = sw_json_text(&scope, inputs, "scope", err)) != SW_OK ||
        (rc = sw_json_text(&dtype, inputs, "scale_dtype", err)) != SW_OK)
        return rc;
    if (sw_json_member(config, "inputs"))
        out->has_input_scale = !strcmp(scope, "tensor") ||
                               (!strcmp(scope, "group") && !strcmp(dtype, "F8_E4M3"));
    if (!weights) return SW_OK;
    out->exponent_bits = out->mantissa_bits = 0;
    return strncmp(weights, "int", 3) ? read_floats(out, weights, config, err) : SW_OK;
}

/* Linears with a scheme of their own, by module path. */
static sw_code read_modules(sw_spec_scheme *out, const cJSON *config, sw_err *err)
{
    const cJSON *modules = sw_json_member(config, "modules"), *module;
    sw_code rc;

    if (!modules) return SW_OK;
    if (!cJSON_IsObject(modules)) return SW_FAIL(err, SW_E_FORMAT, "modules is not an object");
    out->mixed = config;
    out->bits_min = out->bits;
    cJSON_ArrayForEach(module, modules)
    {
        sw_spec_scheme one = *out;
        if ((rc = sw_spec_override(&one, module, err)) != SW_OK ||
            (rc = read_beyond(&one, module, err)) != SW_OK) {
            sw_err_prefix(err, "modules: %.100s", module->string);
            return rc;
        }
        if (one.bits < out->bits_min) out->bits_min = one.bits;
    }
    return SW_OK;
}

static sw_code read_config(sw_spec_scheme *out, const cJSON *config, sw_err *err)
{
    int64_t bits = 0, group_size = -1, version = 0;
    const char *layout = "";
    sw_code rc;

    if ((rc = sw_json_text(&layout, config, "layout", err)) != SW_OK ||
        (rc = sw_json_int(&version, config, "layout_version", 0, INT32_MAX, err)) != SW_OK ||
        (rc = sw_json_int(&bits, config, "bits", 0, 64, err)) != SW_OK ||
        (rc = sw_json_int(&group_size, config, "group_size", -1, INT32_MAX, err)) != SW_OK ||
        (rc = sw_json_bool(&out->is_symmetric, config, "sym", err)) != SW_OK ||
        (rc = sw_json_int(&out->n_outliers, config, "outliers", 0, INT32_MAX, err)) != SW_OK)
        return rc;
    if (strcmp(layout, "swage-tiles") != 0 || version < 1 || version > 2)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "layout \"%.40s\" version %lld; swage-tiles up to "
                       "version 2 can be verified", layout, (long long)version);
    if ((rc = sw_spec_sizes(out, bits, group_size, err)) != SW_OK) return rc;
    if ((rc = read_beyond(out, config, err)) != SW_OK) return rc;
    if ((rc = read_modules(out, config, err)) != SW_OK) return rc;
    if (version == 1 && (out->mixed ? out->bits_min : out->bits) < 4)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "codes of less than 4 bits in swage-tiles version 1");
    return SW_OK;
}

static sw_code read_linear(sw_spec_scheme *out, const cJSON *config, const char *module_path,
                           sw_err *err)
{
    const cJSON *module = sw_json_member(sw_json_member(config, "modules"), module_path);

    sw_code rc = module ? sw_spec_override(out, module, err) : SW_OK;

    return rc == SW_OK && module ? read_beyond(out, module, err) : rc;
}

static int64_t record_slot(int64_t channel)
{
    int64_t w = channel / 16, g = channel % 8, h = channel / 8 % 2;

    return 2 * (8 * w + g) + h;
}

static int64_t record_at(const sw_spec_weight *w, int64_t channel, int64_t group)
{
    return (channel / TILE * w->n_groups + group) * TILE + record_slot(channel % TILE);
}

static int zero_of(const tiled *t, const sw_spec_weight *w, int64_t channel, int64_t group)
{
    return t->zeros ? t->zeros[record_at(w, channel, group)] : t->middle;
}

/* One code of the padded weight: into its place, or checked to be padding. */
static sw_code place(sw_spec_weight *w, const tiled *t, int64_t channel, int64_t input,
                     uint8_t code, sw_err *err)
{
    int64_t group = input < w->k_in ? w->group_of[input] : w->n_groups - 1;

    if (code >= 1 << w->bits)
        return SW_FAIL(err, SW_E_FORMAT, "code of channel %lld, input %lld is %d, want 0..%d",
                       (long long)channel, (long long)input, code, (1 << w->bits) - 1);
    if (channel < w->n_out && input < w->k_in) {
        w->codes[channel * w->k_in + input] = code;
        return SW_OK;
    }
    if (code == zero_of(t, w, channel, group)) return SW_OK;
    return SW_FAIL(err, SW_E_FORMAT, "padding at channel %lld, input %lld holds code %d, want the "
                   "zero point %d", (long long)channel, (long long)input, code,
                   zero_of(t, w, channel, group));
}

static const int lane_inputs[4][4] = {
    {0, 8, 1, 9}, {2, 10, 3, 11}, {4, 12, 5, 13}, {6, 14, 7, 15},
};

/* The two codes of one place in a 64 x 64 tile; `at` counts warp, lane, step, byte. */
typedef struct spot {
    int warp, lane, step, byte;
} spot;

static void codes_at(uint8_t *low, uint8_t *high, const unsigned char *tile, int bits,
                     const spot *s)
{
    int offset = 512 * s->warp + 16 * s->lane, within = 16 * s->lane + 4 * s->step + s->byte;

    if (bits < 4) {
        int pairs = tile[512 * (s->warp % 2) + within] >> (s->warp < 2 ? 0 : 2);
        int third = bits == 3 ? tile[1024 + within] >> s->warp : 0;
        *low = (uint8_t)((pairs & 3) + 4 * (third & 1));
        *high = (uint8_t)((pairs >> 4 & 3) + 4 * (third >> 4 & 1));
        return;
    }
    if (bits == 4) {
        uint8_t both = tile[offset + 4 * s->step + s->byte];
        *low = both & 15;
        *high = both >> 4;
        return;
    }
    offset += 2048 * (s->step / 2) + 8 * (s->step % 2) + s->byte;
    *low = tile[offset];
    *high = tile[offset + 4];
}

/* Of 5 bits and more a code has a byte of its own. */
static int container_bits(int bits) { return bits > 4 ? 8 : bits; }

/* A tile without padding: the same walk, and the largest code is all that there is to check. */
static bool read_whole_tile(sw_spec_weight *w, const unsigned char *tile, int64_t tile_n,
                            int64_t tile_k)
{
    uint8_t *codes = w->codes + TILE * tile_n * w->k_in + TILE * tile_k, most = 0, low, high;

    for (int warp = 0; warp < 4; warp++)
        for (int lane = 0; lane < 32; lane++) {
            uint8_t *row = codes + (16 * warp + lane / 4) * w->k_in, *row8 = row + 8 * w->k_in;
            const int *inputs = lane_inputs[lane % 4];
            for (int i = 0; i < 16; i++) {
                const spot s = {warp, lane, i / 4, i % 4};
                codes_at(&low, &high, tile, w->bits, &s);
                row[16 * s.step + inputs[s.byte]] = low;
                row8[16 * s.step + inputs[s.byte]] = high;
                most = low > most ? low : most;
                most = high > most ? high : most;
            }
        }
    return most < 1 << w->bits;
}

/* The same of four bits, of which every code is one: the 64 inputs of a channel lie in 64 bytes,
 * the 16 of each of its lanes one after the other. Four bytes of a lane are the inputs 2c, 2c + 8,
 * 2c + 1 and 2c + 9 of a step. */
static void read_whole_tile_4(sw_spec_weight *w, const unsigned char *tile, int64_t tile_n,
                              int64_t tile_k)
{
    const uint64_t lows = 0x0f0f0f0f0f0f0f0fu;

    for (int pair = 0; pair < 32; pair++) {
        const int64_t channel = TILE * tile_n + 16 * (pair / 8) + pair % 8;
        uint8_t *row = w->codes + channel * w->k_in + TILE * tile_k, *row8 = row + 8 * w->k_in;

        for (int step = 0; step < 4; step++, row += 16, row8 += 16) {
            uint64_t first = 0, second = 0; /* inputs 0 to 7 of the step, and 8 to 15 */

            for (int c = 0; c < 4; c++) {
                uint64_t four = sw_load_le32(tile + 64 * pair + 16 * c + 4 * step);
                first |= ((four & 0xff) | (four >> 8 & 0xff00)) << 16 * c;
                second |= ((four >> 8 & 0xff) | (four >> 16 & 0xff00)) << 16 * c;
            }
            sw_store_le64(row, first & lows);
            sw_store_le64(row + 8, second & lows);
            sw_store_le64(row8, first >> 4 & lows);
            sw_store_le64(row8 + 8, second >> 4 & lows);
        }
    }
}

static sw_code read_tile(sw_spec_weight *w, const tiled *t, int64_t tile_n, int64_t tile_k,
                         sw_err *err)
{
    const unsigned char *tile = t->codes + (tile_n * t->k_tiles + tile_k) * t->tile_bytes;
    uint8_t low, high;
    sw_code rc;

    if (TILE * (tile_n + 1) <= w->n_out && TILE * (tile_k + 1) <= w->k_in) {
        if (w->bits == 4) {
            read_whole_tile_4(w, tile, tile_n, tile_k);
            return SW_OK;
        }
        if (read_whole_tile(w, tile, tile_n, tile_k))
            return SW_OK; /* else the first code that is wrong gets its name */
    }
    for (int i = 0; i < 4 * 32 * 4 * 4; i++) {
        spot s = {i / 512, i / 16 % 32, i / 4 % 4, i % 4};
        int64_t channel = TILE * tile_n + 16 * s.warp + s.lane / 4;
        int64_t input = TILE * tile_k + 16 * s.step + lane_inputs[s.lane % 4][s.byte];

        codes_at(&low, &high, tile, w->bits, &s);
        if ((rc = place(w, t, channel, input, low, err)) != SW_OK ||
            (rc = place(w, t, channel + 8, input, high, err)) != SW_OK)
            return rc;
    }
    return SW_OK;
}

static bool is_zero_record(const tiled *t, int64_t at)
{
    int64_t bytes = sw_dtype_bits(t->scales.dtype) / 8;

    for (int64_t i = 0; i < bytes; i++)
        if (t->scales.bytes[at * bytes + i]) return false;
    return true;
}

static sw_code read_records(sw_spec_weight *w, const tiled *t, sw_err *err)
{
    for (int64_t n = 0; n < t->n_tiles * TILE; n++)
        for (int64_t g = 0; g < w->n_groups; g++) {
            float scale = sw_spec_float_at(&t->scales, record_at(w, n, g));

            if (n < w->n_out) {
                w->scales[n * w->n_groups + g] = scale;
                w->zeros[n * w->n_groups + g] = zero_of(t, w, n, g);
            } else if (!is_zero_record(t, record_at(w, n, g))) {
                return SW_FAIL(err, SW_E_FORMAT, "padding channel %lld has scale %g, want 0",
                               (long long)n, (double)scale);
            }
        }
    return SW_OK;
}

static sw_code find_parts(tiled *t, const sw_spec_weight *w, const sw_spec_scheme *scheme,
                          const sw_st *st, const char *module_path, sw_err *err)
{
    int64_t code_shape[3] = {t->n_tiles, t->k_tiles, t->tile_bytes};
    int64_t record_shape[3] = {t->n_tiles, w->n_groups, TILE}, two = 2;
    const unsigned char *shape;
    sw_code rc;

    if ((rc = sw_spec_part(&t->codes, st, module_path, "tiles", SW_DTYPE_U8, 3, code_shape,
                           err)) != SW_OK ||
        (rc = sw_spec_scales(&t->scales, st, module_path, "tile_scales", 3, record_shape,
                             err)) != SW_OK ||
        (rc = sw_spec_part(&shape, st, module_path, "tile_shape", SW_DTYPE_I64, 1, &two,
                           err)) != SW_OK)
        return rc;
    if (sw_load_le64(shape) != (uint64_t)w->n_out || sw_load_le64(shape + 8) != (uint64_t)w->k_in)
        return SW_FAIL(err, SW_E_FORMAT, "%s.tile_shape is [%lld, %lld], want [%lld, %lld]",
                       module_path, (long long)sw_load_le64(shape),
                       (long long)sw_load_le64(shape + 8), (long long)w->n_out,
                       (long long)w->k_in);
    if (scheme->is_symmetric && sw_spec_find(st, module_path, "tile_zeros"))
        return SW_FAIL(err, SW_E_FORMAT, "%s.tile_zeros is there, but the scheme is symmetric",
                       module_path);
    if (scheme->is_symmetric) return SW_OK;
    return sw_spec_part(&t->zeros, st, module_path, "tile_zeros", SW_DTYPE_U8, 3, record_shape,
                        err);
}

/* Channels of the index rise; every code of theirs adds nothing; values are finite. */
static sw_code place_outlier(sw_spec_weight *w, int64_t i, int64_t n_outliers, int64_t k,
                             const sw_spec_floats *values, sw_err *err)
{
    for (int64_t n = 0; n < w->n_out; n++) {
        float v = sw_spec_float_at(values, n * n_outliers + i);
        int32_t zero = w->zeros[n * w->n_groups + w->group_of[k]];

        if (w->codes[n * w->k_in + k] != zero)
            return SW_FAIL(err, SW_E_FORMAT, "input %lld is an outlier, but channel %lld has code "
                           "%d there, want the zero point %d", (long long)k, (long long)n,
                           w->codes[n * w->k_in + k], zero);
        if (!isfinite(v))
            return SW_FAIL(err, SW_E_FORMAT, "outlier_values of channel %lld, input %lld is %g",
                           (long long)n, (long long)k, (double)v);
        if (w->values) w->values[n * w->k_in + k] = v;
    }
    w->is_outlier[k] = true;
    return SW_OK;
}

static sw_code read_outliers(sw_spec_weight *w, const sw_spec_scheme *scheme, const sw_st *st,
                             const char *module_path, sw_err *err)
{
    int64_t n = scheme->n_outliers, shape[2] = {w->n_out, n}, last = -1;
    const unsigned char *index;
    sw_spec_floats values = {.dtype = SW_DTYPE_F16};
    sw_code rc;

    if (!n && sw_spec_find(st, module_path, "outlier_index"))
        return SW_FAIL(err, SW_E_FORMAT, "outlier_index is there, but the scheme has no outliers");
    if (!n) return SW_OK;
    if ((rc = sw_spec_part(&index, st, module_path, "outlier_index", SW_DTYPE_I32, 1, &n, err)) !=
            SW_OK ||
        (rc = sw_spec_part(&values.bytes, st, module_path, "outlier_values", SW_DTYPE_F16, 2,
                           shape, err)) != SW_OK)
        return rc;
    for (int64_t i = 0; i < n && rc == SW_OK; i++) {
        int64_t k = (int32_t)sw_load_le32(index + 4 * i);

        if (k <= last || k >= w->k_in)
            return SW_FAIL(err, SW_E_FORMAT, "outlier_index[%lld] is %lld after %lld; must rise, "
                           "and stay below %lld", (long long)i, (long long)k, (long long)last,
                           (long long)w->k_in);
        rc = place_outlier(w, i, n, k, &values, err);
        last = k;
    }
    return rc;
}

static sw_code decode(sw_spec_weight *w, const sw_spec_scheme *scheme, const sw_st *st,
                      const char *module_path, sw_err *err)
{
    tiled t = {.n_tiles = sw_ceil_div(w->n_out, TILE), .k_tiles = sw_ceil_div(w->k_in, TILE),
               .tile_bytes = 512 * container_bits(w->bits),
               .middle = w->exponent_bits ? 0 : 1 << (w->bits - 1)};
    sw_code rc = find_parts(&t, w, scheme, st, module_path, err);

    if (rc != SW_OK) return rc;
    if (scheme->has_global &&
        (rc = sw_spec_single(&w->global, st, module_path, "tile_global", err)) != SW_OK)
        return rc;
    if (scheme->has_input_scale &&
        (rc = sw_spec_single(&w->input_scale, st, module_path, "input_scale", err)) != SW_OK)
        return rc;
    rc = read_records(w, &t, err);
    for (int64_t i = 0; rc == SW_OK && i < t.n_tiles * t.k_tiles; i++)
        rc = read_tile(w, &t, i / t.k_tiles, i % t.k_tiles, err);
    if (rc == SW_OK) rc = read_outliers(w, scheme, st, module_path, err);
    if (rc != SW_OK) sw_err_prefix(err, "%s", module_path);
    return rc;
}

const sw_spec_reader sw_spec_swage = {
    "swage",
    {"tiles", "tile_scales", "tile_shape", "tile_zeros", "tile_global", "input_scale",
     "outlier_index", "outlier_values"},
    "tiles", is_mine, read_config, read_linear, decode, NULL,
};
