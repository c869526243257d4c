/* decode_spec_gptq.c - the second reading of gptq (v1) and gptq_v2.
 *
 * For a linear P with K inputs, N outputs, G groups of b-bit codes:
 *   P.qweight I32 [ceil(K*b/32), N]   column n is a dense stream along k
 *   P.qzeros  I32 [G, ceil(N*b/32)]   row g is a dense stream along n
 *   P.scales  F16, BF16 or F32 [G, N]
 *   P.g_idx   I32 [K]                 optional: group of column k, else k / group size
 * W[n][k] = scales[g][n] * (q - z). v2 stores z, v1 stores z - 1 in every field. Readers of v1
 * disagree on what a field of all ones means (2^b or 0), so such a zero point is refused.
 */
#include "formats/base/mem.h"
#include "formats/base/size.h"
#include "verify/decoders/decode_spec_parts.h"

#include <string.h>

static bool has_format(const cJSON *config, const char *name, bool if_absent)
{
    const cJSON *format = sw_json_member(config, "checkpoint_format");

    if (!format) return if_absent;
    return cJSON_IsString(format) && !strcmp(format->valuestring, name);
}

static bool is_v1(const cJSON *config)
{
    return sw_spec_method_is(config, "gptq") && has_format(config, "gptq", true);
}

static bool is_v2(const cJSON *config)
{
    return sw_spec_method_is(config, "gptq") && has_format(config, "gptq_v2", false);
}

/* `dynamic` maps patterns to other schemes: "+:pattern" or "pattern" with the keys that change.
 * Entries that begin with "-:" only exclude. */
static sw_code read_dynamic(sw_spec_scheme *out, const cJSON *config, sw_err *err)
{
    const cJSON *entry;
    sw_code rc;

    out->bits_min = out->bits;
    cJSON_ArrayForEach(entry, sw_json_member(config, "dynamic"))
    {
        sw_spec_scheme one = *out;

        if (!strncmp(entry->string, "-:", 2)) continue;
        if ((rc = sw_spec_override(&one, entry, err)) != SW_OK) {
            sw_err_prefix(err, "dynamic \"%.80s\"", entry->string);
            return rc;
        }
        out->mixed = config;
        if (one.bits < out->bits_min) out->bits_min = one.bits;
    }
    return SW_OK;
}

/* The first entry that matches the module from its start decides. */
static sw_code read_linear(sw_spec_scheme *out, const cJSON *config, const char *module_path,
                           sw_err *err)
{
    const cJSON *entry;
    sw_code rc;

    cJSON_ArrayForEach(entry, sw_json_member(config, "dynamic"))
    {
        const char *pattern = entry->string + (strncmp(entry->string, "+:", 2) ? 0 : 2);
        bool is_match = false;

        if (!strncmp(entry->string, "-:", 2)) continue;
        if ((rc = sw_spec_match(&is_match, pattern, module_path, err)) != SW_OK) return rc;
        if (is_match) return sw_spec_override(out, entry, err);
    }
    return SW_OK;
}

static sw_code read_config(sw_spec_scheme *out, const cJSON *config, sw_err *err)
{
    int64_t bits = 0, group_size = -1;
    sw_code rc;

    if ((rc = sw_json_int(&bits, config, "bits", 0, 64, err)) != SW_OK ||
        (rc = sw_json_int(&group_size, config, "group_size", -1, INT32_MAX, err)) != SW_OK ||
        (rc = sw_json_bool(&out->is_symmetric, config, "sym", err)) != SW_OK ||
        (rc = sw_json_bool(&out->wants_g_idx, config, "desc_act", err)) != SW_OK ||
        (rc = sw_spec_sizes(out, bits, group_size, err)) != SW_OK)
        return rc;
    return read_dynamic(out, config, err);
}

static sw_code read_g_idx(sw_spec_weight *w, const sw_spec_scheme *scheme, const sw_st *st,
                          const char *module_path, sw_err *err)
{
    const unsigned char *g_idx;
    sw_code rc;

    if (!scheme->wants_g_idx && !sw_spec_find(st, module_path, "g_idx")) return SW_OK;
    rc = sw_spec_part(&g_idx, st, module_path, "g_idx", SW_DTYPE_I32, 1, &w->k_in, err);
    for (int64_t k = 0; rc == SW_OK && k < w->k_in; k++)
        w->group_of[k] = (int32_t)sw_load_le32(g_idx + 4 * k);
    return rc;
}

/* Sixteen columns of words stand in one line of the cache, and the next row's far away: they are
 * copied out together, and each is then a stream without gaps. */
static sw_code read_codes(sw_spec_weight *w, const unsigned char *words, int64_t n_rows,
                          sw_err *err)
{
    enum { COLUMNS = 16, WORD_BYTES = 4 };
    unsigned char *column = NULL;
    sw_code rc = SW_MEM_GET(&column, COLUMNS * WORD_BYTES * n_rows, "columns of words", err);

    for (int64_t n0 = 0; rc == SW_OK && n0 < w->n_out; n0 += COLUMNS) {
        const int64_t n_columns = sw_min_i64(COLUMNS, w->n_out - n0);

        for (int64_t row = 0; row < n_rows; row++)
            for (int64_t i = 0; i < n_columns; i++)
                memcpy(column + WORD_BYTES * (i * n_rows + row),
                       words + WORD_BYTES * (row * w->n_out + n0 + i), WORD_BYTES);
        for (int64_t i = 0; i < n_columns; i++) {
            const sw_spec_stream codes = {column + WORD_BYTES * i * n_rows, 1, w->bits, 0};

            sw_spec_codes(w->codes + (n0 + i) * w->k_in, &codes, w->k_in);
        }
    }
    sw_mem_put(column);
    return rc;
}

static sw_code decode(sw_spec_weight *w, const sw_spec_scheme *scheme, const sw_st *st,
                      const char *module_path, sw_err *err)
{
    int64_t code_shape[2] = {sw_ceil_div(w->k_in * w->bits, 32), w->n_out};
    int64_t zero_shape[2] = {w->n_groups, sw_ceil_div(w->n_out * w->bits, 32)};
    int64_t scale_shape[2] = {w->n_groups, w->n_out};
    sw_spec_stream zeros = {.stride = 1, .bits = w->bits};
    int32_t zero_bias = scheme->reader == &sw_spec_gptq ? 1 : 0;
    const unsigned char *code_words, *zero_words;
    sw_spec_floats scales;
    sw_code rc;

    if ((rc = sw_spec_part(&code_words, st, module_path, "qweight", SW_DTYPE_I32, 2, code_shape,
                           err)) != SW_OK ||
        (rc = sw_spec_part(&zero_words, st, module_path, "qzeros", SW_DTYPE_I32, 2, zero_shape,
                           err)) != SW_OK ||
        (rc = sw_spec_scales(&scales, st, module_path, "scales", 2, scale_shape, err)) != SW_OK ||
        (rc = read_g_idx(w, scheme, st, module_path, err)) != SW_OK ||
        (rc = read_codes(w, code_words, code_shape[0], err)) != SW_OK)
        return rc;
    for (int64_t n = 0; n < w->n_out; n++)
        for (int64_t g = 0; g < w->n_groups; g++) {
            zeros.words = zero_words + 4 * g * zero_shape[1];
            w->scales[n * w->n_groups + g] = sw_spec_float_at(&scales, g * w->n_out + n);
            w->zeros[n * w->n_groups + g] = (int32_t)sw_spec_code_at(&zeros, n) + zero_bias;
        }
    return SW_OK;
}

const sw_spec_reader sw_spec_gptq = {
    "gptq", {"qweight", "qzeros", "scales", "g_idx"}, "qweight", is_v1, read_config,
    read_linear, decode, NULL,
};

const sw_spec_reader sw_spec_gptq_v2 = {
    "gptq_v2", {"qweight", "qzeros", "scales", "g_idx"}, "qweight", is_v2, read_config,
    read_linear, decode, NULL,
};
