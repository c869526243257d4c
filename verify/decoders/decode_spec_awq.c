/* decode_spec_awq.c - the second reading of awq, versions gemm and gemv.
 *
 * For a linear P with K inputs, N outputs, G groups of 4-bit codes, W[n][k] = scales * (q - z):
 * gemm  P.qweight I32 [K, N/8], P.qzeros I32 [G, N/8]: column 8c + j of row r sits in word [r][c]
 *       at nibble {0, 4, 1, 5, 2, 6, 3, 7}[j]. P.scales [G, N].
 * gemv  P.qweight I32 [N, K/8], P.qzeros I32 [N, W]: plain streams along k and along the groups.
 *       P.scales [N, 8 W]. W is the least number of words for G zero points that is a multiple of
 *       1, 2 or 4 for groups of at least 128, of 64, of 32.
 * "sym": true promises that every zero point is 8.
 */
#include <string.h>
#include <strings.h>

#include "formats/base/size.h"
#include "verify/decoders/decode_spec_parts.h"

static bool has_version(const cJSON *config, const char *name, bool if_absent)
{
    const cJSON *version = sw_json_member(config, "version");

    if (!cJSON_IsString(version)) return if_absent;
    return !strcasecmp(version->valuestring, name);
}

static bool is_gemm(const cJSON *config)
{
    return sw_spec_method_is(config, "awq") && has_version(config, "gemm", true);
}

static bool is_gemv(const cJSON *config)
{
    return sw_spec_method_is(config, "awq") && has_version(config, "gemv", false);
}

static sw_code read_config(sw_spec_scheme *out, const cJSON *config, sw_err *err)
{
    int64_t bits = 4, group_size = -1;
    bool has_zeros = true;
    sw_code rc;

    out->is_symmetric = false;
    if ((rc = sw_json_bool(&has_zeros, config, "zero_point", err)) != SW_OK) return rc;
    if (!has_zeros)
        return SW_FAIL(err, SW_E_FORMAT, "\"zero_point\" is false, and this layout always stores "
                       "zero points: engines would leave them out");
    if ((rc = sw_json_int(&bits, config, "w_bit", 4, 4, err)) != SW_OK ||
        (rc = sw_json_int(&bits, config, "bits", 4, 4, err)) != SW_OK ||
        (rc = sw_json_int(&group_size, config, "q_group_size", -1, INT32_MAX, err)) != SW_OK ||
        (rc = sw_json_int(&group_size, config, "group_size", -1, INT32_MAX, err)) != SW_OK ||
        (rc = sw_json_bool(&out->is_symmetric, config, "sym", err)) != SW_OK)
        return rc;
    return sw_spec_sizes(out, bits, group_size, err);
}

static sw_code check_side(int64_t side, const char *what, sw_err *err)
{
    if (side % 8 == 0) return SW_OK;
    return SW_FAIL(err, SW_E_FORMAT, "%lld %s, want a multiple of 8", (long long)side, what);
}

static int turned_nibble(const unsigned char *words, int64_t row_words, int64_t row, int64_t n)
{
    static const int place[8] = {0, 4, 1, 5, 2, 6, 3, 7};
    uint32_t word = sw_load_le32(words + 4 * (row * row_words + n / 8));

    return (int)(word >> (4 * place[n % 8]) & 15);
}

/* 64 inputs of 8 channels at a time: a word has all of a row's, and rows lie far apart. */
static void read_turned(sw_spec_weight *w, const unsigned char *words, int64_t row_words)
{
    uint8_t codes[8][64];

    for (int64_t n = 0; n < w->n_out; n += 8)
        for (int64_t k = 0; k < w->k_in; k += 64) {
            const int64_t n_inputs = sw_min_i64(64, w->k_in - k);

            for (int64_t i = 0; i < n_inputs; i++)
                for (int64_t j = 0; j < 8; j++)
                    codes[j][i] = (uint8_t)turned_nibble(words, row_words, k + i, n + j);
            for (int64_t j = 0; j < 8; j++)
                memcpy(w->codes + (n + j) * w->k_in + k, codes[j], (size_t)n_inputs);
        }
}

static sw_code decode_gemm(sw_spec_weight *w, const sw_spec_scheme *scheme, const sw_st *st,
                           const char *module_path, sw_err *err)
{
    int64_t code_shape[2] = {w->k_in, w->n_out / 8}, zero_shape[2] = {w->n_groups, w->n_out / 8};
    int64_t scale_shape[2] = {w->n_groups, w->n_out};
    const unsigned char *codes, *zeros;
    sw_spec_floats scales;
    sw_code rc;

    (void)scheme;
    if ((rc = check_side(w->n_out, "outputs", err)) != SW_OK ||
        (rc = sw_spec_part(&codes, st, module_path, "qweight", SW_DTYPE_I32, 2, code_shape,
                           err)) != SW_OK ||
        (rc = sw_spec_part(&zeros, st, module_path, "qzeros", SW_DTYPE_I32, 2, zero_shape,
                           err)) != SW_OK ||
        (rc = sw_spec_scales(&scales, st, module_path, "scales", 2, scale_shape, err)) != SW_OK)
        return rc;
    read_turned(w, codes, code_shape[1]);
    for (int64_t n = 0; n < w->n_out; n++)
        for (int64_t g = 0; g < w->n_groups; g++) {
            w->scales[n * w->n_groups + g] = sw_spec_float_at(&scales, g * w->n_out + n);
            w->zeros[n * w->n_groups + g] = turned_nibble(zeros, zero_shape[1], g, n);
        }
    return SW_OK;
}

static int64_t words_of_zeros(const sw_spec_weight *w, const sw_spec_scheme *scheme)
{
    int64_t group = scheme->group_elems ? scheme->group_elems : w->k_in;
    int64_t step = group < 64 ? 4 : group < 128 ? 2 : 1, words = (w->n_groups + 7) / 8;

    while (words % step) words++;
    return words;
}

static sw_code decode_gemv(sw_spec_weight *w, const sw_spec_scheme *scheme, const sw_st *st,
                           const char *module_path, sw_err *err)
{
    int64_t zero_words = words_of_zeros(w, scheme);
    int64_t code_shape[2] = {w->n_out, w->k_in / 8}, zero_shape[2] = {w->n_out, zero_words};
    int64_t scale_shape[2] = {w->n_out, 8 * zero_words};
    sw_spec_stream codes = {.stride = 1, .bits = 4}, zeros = {.stride = 1, .bits = 4};
    const unsigned char *code_words, *zero_bytes;
    sw_spec_floats scales;
    sw_code rc;

    if ((rc = check_side(w->k_in, "inputs", err)) != SW_OK ||
        (rc = sw_spec_part(&code_words, st, module_path, "qweight", SW_DTYPE_I32, 2, code_shape,
                           err)) != SW_OK ||
        (rc = sw_spec_part(&zero_bytes, st, module_path, "qzeros", SW_DTYPE_I32, 2, zero_shape,
                           err)) != SW_OK ||
        (rc = sw_spec_scales(&scales, st, module_path, "scales", 2, scale_shape, err)) != SW_OK)
        return rc;
    for (int64_t n = 0; n < w->n_out; n++) {
        codes.words = code_words + 4 * n * code_shape[1];
        zeros.words = zero_bytes + 4 * n * zero_words;
        sw_spec_codes(w->codes + n * w->k_in, &codes, w->k_in);
        for (int64_t g = 0; g < w->n_groups; g++) {
            w->scales[n * w->n_groups + g] = sw_spec_float_at(&scales, n * scale_shape[1] + g);
            w->zeros[n * w->n_groups + g] = (int32_t)sw_spec_code_at(&zeros, g);
        }
    }
    return SW_OK;
}

const sw_spec_reader sw_spec_awq = {
    .name = "awq",
    .suffixes = {"qweight", "qzeros", "scales"},
    .marker = "qweight",
    .is_mine = is_gemm,
    .read_config = read_config,
    .decode = decode_gemm,
};

const sw_spec_reader sw_spec_awq_gemv = {
    .name = "awq_gemv",
    .suffixes = {"qweight", "qzeros", "scales"},
    .marker = "qweight",
    .is_mine = is_gemv,
    .read_config = read_config,
    .decode = decode_gemv,
};
