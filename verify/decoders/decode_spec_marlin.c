/* decode_spec_marlin.c - the second reading of marlin: where each weight lies, element by element.
 *
 * Element (k, n) of b bits: row k/16 of P.B; in it, with r = k % 16, m = n % 64,
 *   lane = 4 * (m % 8) + (r % 8) / 2, quarter = m / 16, half = m % 16 / 8, j = r % 2 + 2 * (r / 8);
 *   4 bits: word 128 * (n / 64) + 4 * lane + quarter, at the nibble i of which
 *           {0, 2, 4, 6, 1, 3, 5, 7}[i] is j + 4 * half;
 *   8 bits: word 256 * (n / 64) + 8 * lane + 2 * quarter + half, at byte {0, 2, 1, 3}[j].
 * The scale of channel n in group g: P.s[g] at 64 * (n / 64) + m % 8 * 8 + m / 8; with one group,
 * with m = n % 32, at 32 * (n / 32) + 8 * (m % 8 / 2) + 2 * (m / 8) + m % 2.
 * Its zero point: P.zp[g], a stream in which it comes at the place of the first rule, after
 * {0, 2, 4, 6, 1, 3, 5, 7} (8 bits: {0, 2, 1, 3}) has moved what stands in each eight (four).
 */
#include <string.h>

#include "formats/base/size.h"
#include "verify/decoders/decode_spec_parts.h"

static const int nibble_of[8] = {0, 4, 1, 5, 2, 6, 3, 7}; /* inverse of 0 2 4 6 1 3 5 7 */
static const int byte_of[4] = {0, 2, 1, 3};

static bool is_mine(const cJSON *config)
{
    const cJSON *format = sw_json_member(config, "checkpoint_format");

    if (sw_spec_method_is(config, "marlin")) return true;
    if (!sw_spec_method_is(config, "gptq")) return false;
    return (cJSON_IsString(format) && !strcmp(format->valuestring, "marlin")) ||
           cJSON_IsTrue(sw_json_member(config, "is_marlin_format"));
}

static sw_code read_config(sw_spec_scheme *out, const cJSON *config, sw_err *err)
{
    const cJSON *format = sw_json_member(config, "checkpoint_format");
    int64_t bits = 4, group_size = -1;
    sw_code rc;

    if (cJSON_IsString(format) && strcmp(format->valuestring, "marlin") != 0)
        return SW_FAIL(err, SW_E_FORMAT, "checkpoint_format is \"%.30s\", but is_marlin_format or "
                       "quant_method says marlin", format->valuestring);
    if ((rc = sw_json_int(&bits, config, "bits", 4, 8, err)) != SW_OK ||
        (rc = sw_json_int(&group_size, config, "group_size", -1, 128, err)) != SW_OK ||
        (rc = sw_json_bool(&out->is_symmetric, config, "sym", err)) != SW_OK)
        return rc;
    return sw_spec_sizes(out, bits, group_size, err);
}

static int code_at(const unsigned char *row, int bits, int64_t k, int64_t n)
{
    int r = (int)(k % 16), m = (int)(n % 64), lane = 4 * (m % 8) + r % 8 / 2;
    int quarter = m / 16, half = m % 16 / 8, j = r % 2 + 2 * (r / 8);

    if (bits == 8)
        return row[4 * (256 * (n / 64) + 8 * lane + 2 * quarter + half) + byte_of[j]];
    return (int)(sw_load_le32(row + 4 * (128 * (n / 64) + 4 * lane + quarter)) >>
                 (4 * nibble_of[j + 4 * half]) & 15);
}

static int64_t scale_place(int64_t n, bool is_single)
{
    int64_t m = n % 32;

    if (is_single) return n - m + 8 * (m % 8 / 2) + 2 * (m / 8) + m % 2;
    m = n % 64;
    return n - m + m % 8 * 8 + m / 8;
}

static int zero_at(const unsigned char *row, int bits, int64_t n)
{
    int64_t place = scale_place(n, false);

    if (bits == 8) return row[place - place % 4 + byte_of[place % 4]];
    return (int)(sw_load_le32(row + place / 8 * 4) >> (4 * nibble_of[place % 8]) & 15);
}

static sw_code find_zeros(const unsigned char **out, const sw_spec_weight *w,
                          const sw_spec_scheme *scheme, const sw_st *st, const char *module_path,
                          sw_err *err)
{
    int64_t shape[2] = {w->n_groups, w->n_out * w->bits / 32};

    *out = NULL;
    if (scheme->is_symmetric) return SW_OK;
    return sw_spec_part(out, st, module_path, "zp", SW_DTYPE_I32, 2, shape, err);
}

static sw_code decode(sw_spec_weight *w, const sw_spec_scheme *scheme, const sw_st *st,
                      const char *module_path, sw_err *err)
{
    int64_t code_shape[2] = {w->k_in / 16, w->n_out * w->bits / 2};
    int64_t scale_shape[2] = {w->n_groups, w->n_out}, zero_bytes = w->n_out * w->bits / 8;
    const unsigned char *codes, *zeros;
    sw_spec_floats scales;
    sw_code rc;

    if (w->k_in % 16 || w->n_out % 64 || w->bits % 4)
        return SW_FAIL(err, SW_E_FORMAT, "%s: %lld outputs, %lld inputs of %d bits make no tiles",
                       module_path, (long long)w->n_out, (long long)w->k_in, w->bits);
    if ((rc = sw_spec_part(&codes, st, module_path, "B", SW_DTYPE_I32, 2, code_shape, err)) !=
            SW_OK ||
        (rc = find_zeros(&zeros, w, scheme, st, module_path, err)) != SW_OK ||
        (rc = sw_spec_scales(&scales, st, module_path, "s", 2, scale_shape, err)) != SW_OK)
        return rc;
    for (int64_t n = 0; n < w->n_out; n++) {
        for (int64_t k = 0; k < w->k_in; k++)
            w->codes[n * w->k_in + k] =
                (uint8_t)code_at(codes + 4 * (k / 16) * code_shape[1], w->bits, k, n);
        for (int64_t g = 0; g < w->n_groups; g++) {
            int64_t place = g * w->n_out + scale_place(n, w->n_groups == 1);
            w->scales[n * w->n_groups + g] = sw_spec_float_at(&scales, place);
            w->zeros[n * w->n_groups + g] =
                zeros ? zero_at(zeros + g * zero_bytes, w->bits, n) : 1 << (w->bits - 1);
        }
    }
    return SW_OK;
}

const sw_spec_reader sw_spec_marlin = {
    .name = "marlin",
    .suffixes = {"B", "s", "zp", "workspace"},
    .marker = "B",
    .is_mine = is_mine,
    .read_config = read_config,
    .decode = decode,
};
