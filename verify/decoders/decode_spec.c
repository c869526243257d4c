/* decode_spec.c - see decode_spec.h: the table of readers, and what is true of every dialect. */
#include "verify/decoders/decode_spec.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/mem.h"
#include "formats/base/size.h"
#include "verify/decoders/decode_spec_parts.h"

/* Decoded weights must fit the half precision in which kernels hold them. */
#define LARGEST_F16 65504.0f

const sw_spec_reader *const sw_spec_readers[] = {
#define SW_SPEC_READER(symbol) &sw_spec_##symbol,
#include "verify/decoders/readers.def"
#undef SW_SPEC_READER
    NULL,
};

bool sw_spec_method_is(const cJSON *config, const char *name)
{
    const cJSON *method = sw_json_member(config, "quant_method");

    return cJSON_IsString(method) && !strcmp(method->valuestring, name);
}

sw_code sw_spec_scheme_read(sw_spec_scheme *out, const cJSON *quantization_config, sw_err *err)
{
    const char *method = "none";
    sw_code rc;

    for (int i = 0; sw_spec_readers[i]; i++) {
        sw_spec_scheme scheme = {.reader = sw_spec_readers[i], .is_symmetric = true};

        if (!scheme.reader->is_mine(quantization_config)) continue;
        if ((rc = scheme.reader->read_config(&scheme, quantization_config, err)) != SW_OK) {
            sw_err_prefix(err, "quantization_config (%s)", scheme.reader->name);
            return rc;
        }
        if (!scheme.mixed) scheme.bits_min = scheme.bits;
        *out = scheme;
        return SW_OK;
    }
    if ((rc = sw_json_text(&method, quantization_config, "quant_method", err)) != SW_OK) return rc;
    return SW_FAIL(err, SW_E_UNSUPPORTED, "quantization_config: quant_method \"%.60s\" with this "
                   "format is none that can be verified", method);
}

sw_code sw_spec_scheme_of(sw_spec_scheme *out, const sw_spec_scheme *scheme,
                          const char *module_path, sw_err *err)
{
    sw_spec_scheme one = *scheme;
    sw_code rc = SW_OK;

    if (scheme->mixed)
        rc = scheme->reader->read_linear(&one, scheme->mixed, module_path, err);
    if (rc != SW_OK) {
        sw_err_prefix(err, "quantization_config (%s): %s", scheme->reader->name, module_path);
        return rc;
    }
    one.mixed = NULL;
    *out = one;
    return SW_OK;
}

static sw_code check_width(int64_t bits, sw_err *err)
{
#define SW_SPEC_WIDTH(bits) bits,
#define SW_SPEC_FLOAT(name, exponent, mantissa, last)
    static const int widths[] = {
#include "verify/decoders/numbers.def"
    };
#undef SW_SPEC_WIDTH
#undef SW_SPEC_FLOAT
#define SW_SPEC_WIDTH(bits)
#define SW_SPEC_FLOAT(name, exponent, mantissa, last) 1 + exponent + mantissa,
    static const int float_widths[] = {
#include "verify/decoders/numbers.def"
    };
#undef SW_SPEC_WIDTH
#undef SW_SPEC_FLOAT
    const size_t n = sizeof widths / sizeof *widths;
    char known[64];
    size_t at = 0;

    for (size_t i = 0; i < sizeof float_widths / sizeof *float_widths; i++)
        if (bits == float_widths[i]) return SW_OK; /* "weights" says which float */
    for (size_t i = 0; i < n; i++) {
        if (bits == widths[i]) return SW_OK;
        if (at < sizeof known)
            at += (size_t)snprintf(known + at, sizeof known - at, "%s%d",
                                   !at ? "" : i + 1 < n ? ", " : " and ", widths[i]);
    }
    return SW_FAIL(err, SW_E_UNSUPPORTED, "%lld bits; %s can be verified", (long long)bits, known);
}

sw_code sw_spec_sizes(sw_spec_scheme *scheme, int64_t bits, int64_t group_size, sw_err *err)
{
    sw_code rc = check_width(bits, err);

    if (rc != SW_OK) return rc;
    if (group_size < -1 || group_size == 0 || group_size > INT32_MAX)
        return SW_FAIL(err, SW_E_FORMAT, "group_size %lld; want -1 or at least 1",
                       (long long)group_size);
    scheme->bits = (int)bits;
    scheme->group_elems = group_size < 0 ? 0 : group_size;
    return SW_OK;
}

const sw_st_tensor *sw_spec_find(const sw_st *st, const char *module_path, const char *suffix)
{
    char name[512];
    int n = snprintf(name, sizeof name, "%s.%s", module_path, suffix);

    return n > 0 && (size_t)n < sizeof name ? sw_st_find(st, name) : NULL;
}

bool sw_spec_is_quantized(const sw_spec_scheme *scheme, const sw_st *st, const char *module_path)
{
    const sw_spec_reader *r = scheme->reader;

    return r && (r->find ? r->find : sw_spec_find)(st, module_path, r->marker) != NULL;
}

bool sw_spec_is_part(const sw_spec_scheme *scheme, const char *suffix)
{
    for (int i = 0; scheme->reader && i < SW_SPEC_SUFFIXES_MAX && scheme->reader->suffixes[i]; i++)
        if (!strcmp(scheme->reader->suffixes[i], suffix)) return true;
    return false;
}

static sw_code check_part(const sw_st_tensor *t, const char *module_path, const char *suffix,
                          sw_dtype dtype, int32_t n_dims, const int64_t *shape, sw_err *err)
{
    sw_cview want = {.dtype = dtype, .n_dims = n_dims};
    char have_text[160], want_text[160];
    bool is_same;

    for (int32_t i = 0; i < n_dims; i++) want.shape[i] = shape[i];
    sw_view_describe(want_text, sizeof want_text, &want);
    if (!t)
        return SW_FAIL(err, SW_E_FORMAT, "%s.%s is missing, want %s", module_path, suffix,
                       want_text);
    is_same = t->view.dtype == dtype && t->view.n_dims == n_dims;
    for (int32_t i = 0; is_same && i < n_dims; i++) is_same = t->view.shape[i] == shape[i];
    if (is_same) return SW_OK;
    sw_view_describe(have_text, sizeof have_text, &t->view);
    return SW_FAIL(err, SW_E_FORMAT, "%s.%s is %s, want %s", module_path, suffix, have_text,
                   want_text);
}

sw_code sw_spec_part(const unsigned char **out, const sw_st *st, const char *module_path,
                     const char *suffix, sw_dtype dtype, int32_t n_dims, const int64_t *shape,
                     sw_err *err)
{
    const sw_st_tensor *t = sw_spec_find(st, module_path, suffix);
    sw_code rc = check_part(t, module_path, suffix, dtype, n_dims, shape, err);

    if (rc == SW_OK) *out = t->view.data;
    return rc;
}

sw_code sw_spec_scales(sw_spec_floats *out, const sw_st *st, const char *module_path,
                       const char *suffix, int32_t n_dims, const int64_t *shape, sw_err *err)
{
    const sw_st_tensor *t = sw_spec_find(st, module_path, suffix);
    sw_dtype dtype = t ? t->view.dtype : SW_DTYPE_F16;
    sw_code rc;

    if (dtype != SW_DTYPE_BF16 && dtype != SW_DTYPE_F32 && dtype != SW_DTYPE_F8_E4M3 &&
        dtype != SW_DTYPE_F8_E8M0 && dtype != SW_DTYPE_U8)
        dtype = SW_DTYPE_F16;
    if ((rc = check_part(t, module_path, suffix, dtype, n_dims, shape, err)) != SW_OK) return rc;
    out->bytes = t->view.data;
    out->dtype = dtype;
    return SW_OK;
}

static float float_of_bits(uint32_t bits)
{
    float v;

    memcpy(&v, &bits, sizeof v);
    return v;
}

/* IEEE 754 binary16: sign, 5 exponent bits with bias 15, 10 fraction bits. */
static float half_value(uint16_t h)
{
    int exponent = (h >> 10) & 31, fraction = h & 1023;
    float sign = h & 0x8000 ? -1.0f : 1.0f;

    if (exponent == 31) return fraction ? NAN : sign * INFINITY;
    if (exponent == 0) return sign * ldexpf((float)fraction, -24);
    return sign * ldexpf((float)(1024 + fraction), exponent - 25);
}

float sw_spec_float_at(const sw_spec_floats *floats, int64_t i)
{
    if (floats->dtype == SW_DTYPE_F8_E4M3)
        return (float)sw_spec_small_float(floats->bytes[i], 4, 3);
    if (floats->dtype == SW_DTYPE_F8_E8M0 || floats->dtype == SW_DTYPE_U8)
        return floats->bytes[i] == 255 ? NAN : ldexpf(1.0f, floats->bytes[i] - 127);
    if (floats->dtype == SW_DTYPE_F32) return float_of_bits(sw_load_le32(floats->bytes + 4 * i));
    if (floats->dtype == SW_DTYPE_BF16)
        return float_of_bits((uint32_t)sw_load_le16(floats->bytes + 2 * i) << 16);
    return half_value(sw_load_le16(floats->bytes + 2 * i));
}

uint32_t sw_spec_code_at(const sw_spec_stream *stream, int64_t i)
{
    int64_t bit = i * stream->bits, word = bit / 32;
    int shift = (int)(bit % 32);
    uint32_t code;

    if (stream->per_word) {
        word = i / stream->per_word;
        shift = stream->bits * (int)(i % stream->per_word);
    }
    code = sw_load_le32(stream->words + 4 * word * stream->stride) >> shift;
    if (shift + stream->bits > 32) /* the code straddles two words */
        code |= sw_load_le32(stream->words + 4 * (word + 1) * stream->stride) << (32 - shift);
    return code & ((1u << stream->bits) - 1u);
}

void sw_spec_codes(uint8_t *out, const sw_spec_stream *stream, int64_t n)
{
    const unsigned char *word = stream->words;
    const uint8_t mask = (uint8_t)((1u << stream->bits) - 1u);
    const int used = stream->per_word ? stream->per_word * stream->bits : 32; /* of a word */
    uint64_t ahead = 0;
    int n_ahead = 0; /* bits */

    for (int64_t i = 0; i < n; i++) {
        if (n_ahead < stream->bits) {
            ahead |= ((uint64_t)sw_load_le32(word) & ((1ull << used) - 1)) << n_ahead;
            n_ahead += used;
            word += 4 * stream->stride;
        }
        out[i] = (uint8_t)ahead & mask;
        ahead >>= stream->bits;
        n_ahead -= stream->bits;
    }
}

/* Zeroed codes in a room, which grows to hold them. */
static sw_code lend_codes(sw_spec_weight *w, sw_spec_room *room, sw_err *err)
{
    const int64_t n = w->n_out * w->k_in;
    sw_code rc;

    w->has_lent_codes = true;
    if (room->n_elems >= n) {
        memset(room->codes, 0, (size_t)n);
    } else {
        sw_mem_put(room->codes);
        *room = (sw_spec_room){.codes = NULL};
        if ((rc = SW_MEM_GET(&room->codes, n, "decoded codes", err)) != SW_OK) return rc;
        room->n_elems = n;
    }
    w->codes = room->codes;
    return SW_OK;
}

/* With a room for the codes there are no values. */
static sw_code weight_alloc(sw_spec_weight *w, sw_spec_room *room, sw_err *err)
{
    const int64_t n = w->n_out * w->k_in;
    sw_code rc = room ? lend_codes(w, room, err)
                      : SW_MEM_GET(&w->values, n, "decoded weight", err);

    if (rc == SW_OK && !room) rc = SW_MEM_GET(&w->codes, n, "decoded codes", err);
    if (rc != SW_OK ||
        (rc = SW_MEM_GET(&w->scales, w->n_out * w->n_groups, "decoded scales", err)) != SW_OK ||
        (rc = SW_MEM_GET(&w->zeros, w->n_out * w->n_groups, "decoded zeros", err)) != SW_OK)
        return rc;
    if (w->blocks && !w->is_symmetric &&
        (rc = SW_MEM_GET(&w->offsets, w->n_out * w->n_groups, "decoded offsets", err)) != SW_OK)
        return rc;
    if ((rc = SW_MEM_GET(&w->is_outlier, w->k_in, "outlier mask", err)) != SW_OK) return rc;
    return SW_MEM_GET(&w->group_of, w->k_in, "group index", err);
}

/* Engines decode blocks to single precision; zero points are those of the type. */
static sw_code check_blocks(const sw_spec_weight *w, sw_err *err)
{
    for (int64_t i = 0; i < w->n_out * w->n_groups; i++)
        if (!isfinite(w->scales[i]) || (w->offsets && !isfinite(w->offsets[i])))
            return SW_FAIL(err, SW_E_FORMAT, "a block of channel %lld, inputs from %lld on, has a "
                           "scale or minimum that is no finite number",
                           (long long)(i / w->n_groups),
                           (long long)(i % w->n_groups * w->group_elems));
    return SW_OK;
}

static sw_code check_grid(const sw_spec_weight *w, const sw_spec_scheme *scheme, sw_err *err)
{
    int32_t code_max = (1 << w->bits) - 1, middle = 1 << (w->bits - 1);

    if (scheme->blocks && !scheme->exponent_bits) return check_blocks(w, err);
    if (scheme->exponent_bits) return sw_spec_check_floats(w, scheme, err);
    for (int64_t i = 0; i < w->n_out * w->n_groups; i++) {
        long long n = i / w->n_groups, g = i % w->n_groups;

        if (!isfinite(w->scales[i]))
            return SW_FAIL(err, SW_E_FORMAT, "scale of channel %lld, group %lld is %g, want a "
                           "finite number", n, g, (double)w->scales[i]);
        if (fabsf(w->scales[i]) * (float)code_max > LARGEST_F16)
            return SW_FAIL(err, SW_E_FORMAT, "scale of channel %lld, group %lld is %g: codes up to "
                           "%d leave half precision", n, g, (double)w->scales[i], code_max);
        if (w->zeros[i] < 0 || w->zeros[i] > code_max)
            return SW_FAIL(err, SW_E_FORMAT, "zero point of channel %lld, group %lld is %d, want "
                           "0..%d", n, g, w->zeros[i], code_max);
        if (scheme->is_symmetric && w->zeros[i] != middle)
            return SW_FAIL(err, SW_E_FORMAT, "zero point of channel %lld, group %lld is %d, but "
                           "the scheme is symmetric: want %d", n, g, w->zeros[i], middle);
    }
    return SW_OK;
}

/* Every group holds at most group_elems columns, and all of them as many when that divides. */
static sw_code check_groups(const sw_spec_weight *w, const sw_spec_scheme *scheme, sw_err *err)
{
    int64_t most = scheme->group_elems ? scheme->group_elems : w->k_in, *sizes = NULL;
    sw_code rc = SW_MEM_GET(&sizes, w->n_groups, "group sizes", err);

    for (int64_t k = 0; rc == SW_OK && k < w->k_in; k++) {
        int32_t g = w->group_of[k];

        if (g < 0 || g >= w->n_groups)
            rc = SW_FAIL(err, SW_E_FORMAT, "group index of column %lld is %d, want 0..%lld",
                         (long long)k, g, (long long)w->n_groups - 1);
        else if (++sizes[g] > most)
            rc = SW_FAIL(err, SW_E_FORMAT, "group %d has more than %lld columns", g,
                         (long long)most);
    }
    sw_mem_put(sizes);
    return rc;
}

/* Levels of all codes under a zero point of 0: those of integers are so many less under another. */
static void fill_values(sw_spec_weight *w)
{
    const bool has_zeros = !w->exponent_bits && !w->levels;
    const int n_levels = w->levels ? w->n_levels : has_zeros ? 256 : 1 << w->bits;
    float levels[256];

    for (int code = 0; code < 256; code++)
        levels[code] = code < n_levels ? (float)sw_spec_level(w, code, 0) : NAN;
    for (int64_t n = 0; n < w->n_out; n++) {
        const float *scales = w->scales + n * w->n_groups;
        const int32_t *zeros = w->zeros + n * w->n_groups;

        for (int64_t k = 0; k < w->k_in; k++) {
            int32_t g = w->group_of[k];
            float level = levels[w->codes[n * w->k_in + k]];
            if (w->is_outlier[k]) continue;
            if (has_zeros) level -= (float)zeros[g];
            w->values[n * w->k_in + k] = scales[g] * level * w->global;
            if (w->offsets) w->values[n * w->k_in + k] += w->offsets[n * w->n_groups + g];
        }
    }
}

static sw_code decode(sw_spec_weight *out, sw_spec_room *room, const sw_spec_scheme *all,
                      const sw_st *st, const char *module_path, int64_t n_out, int64_t k_in,
                      sw_err *err)
{
    sw_spec_weight w = {.n_out = n_out, .k_in = k_in, .n_groups = 1, .global = 1.0f};
    sw_spec_scheme one;
    const sw_spec_scheme *scheme = &one;
    sw_code rc;

    if ((rc = sw_spec_scheme_of(&one, all, module_path, err)) != SW_OK) return rc;
    if (one.blocks && (rc = sw_spec_gguf_linear(&one, st, module_path, err)) != SW_OK) return rc;
    w.bits = one.bits;
    w.group_elems = one.group_elems;
    w.is_symmetric = one.is_symmetric;
    w.blocks = one.blocks;
    w.bits_min = one.bits_min;
    w.exponent_bits = one.exponent_bits;
    w.mantissa_bits = one.mantissa_bits;
    if (scheme->group_elems) w.n_groups = sw_ceil_div(k_in, scheme->group_elems);
    if ((rc = weight_alloc(&w, room, err)) != SW_OK) goto done;
    for (int64_t k = 0; k < k_in; k++)
        w.group_of[k] = scheme->group_elems ? (int32_t)(k / scheme->group_elems) : 0;
    if ((rc = scheme->reader->decode(&w, scheme, st, module_path, err)) != SW_OK) goto done;
    if ((rc = check_groups(&w, scheme, err)) != SW_OK ||
        (rc = check_grid(&w, scheme, err)) != SW_OK) {
        sw_err_prefix(err, "%s", module_path);
        goto done;
    }
    if (!room) fill_values(&w);
    *out = w;
    memset(&w, 0, sizeof w);
done:
    sw_spec_weight_free(&w);
    return rc;
}

sw_code sw_spec_decode(sw_spec_weight *out, const sw_spec_scheme *scheme, const sw_st *st,
                       const char *module_path, int64_t n_out, int64_t k_in, sw_err *err)
{
    return decode(out, NULL, scheme, st, module_path, n_out, k_in, err);
}

sw_code sw_spec_decode_codes(sw_spec_weight *out, sw_spec_room *room, const sw_spec_scheme *scheme,
                             const sw_st *st, const char *module_path, int64_t n_out, int64_t k_in,
                             sw_err *err)
{
    return decode(out, room, scheme, st, module_path, n_out, k_in, err);
}

void sw_spec_weight_free(sw_spec_weight *w)
{
    sw_mem_put(w->values);
    if (!w->has_lent_codes) sw_mem_put(w->codes);
    sw_mem_put(w->scales);
    sw_mem_put(w->zeros);
    sw_mem_put(w->offsets);
    sw_mem_put(w->group_of);
    sw_mem_put(w->is_outlier);
    memset(w, 0, sizeof *w);
}
