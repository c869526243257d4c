/* decode_spec_machete.c - the second reading of machete: code after code as they are stored.
 *
 * P.B I32 [K / 64, 2 N b] is a string of b-bit codes, low half of a byte first. Code number a is in
 * block a / 8192: the blocks of one run of 64 inputs follow each other, N / 128 of them. In its
 * block, a / 32 % 256 is a thread, a / 8 % 4 a step of 16 inputs, and a % 8 says which of the
 * thread's eight values it is: at 8 bits the one of that number, at 4 bits value
 * {0, 2, 4, 6, 1, 3, 5, 7}[a % 8]. A thread's values are of channel 16 (thread / 32) +
 * thread % 32 / 4 and inputs 2 (thread % 4), + 1; 2 and 3 are eight channels further, 4 to 7 eight
 * inputs. P.s [G, N] holds the scales.
 */
#include "verify/decoders/decode_spec_parts.h"

static const int value_of[8] = {0, 2, 4, 6, 1, 3, 5, 7};

static bool is_mine(const cJSON *config) { return sw_spec_method_is(config, "machete"); }

static sw_code read_config(sw_spec_scheme *out, const cJSON *config, sw_err *err)
{
    int64_t bits = 4, group_size = -1;
    bool is_symmetric = true;
    sw_code rc;

    if ((rc = sw_json_int(&bits, config, "bits", 4, 8, err)) != SW_OK ||
        (rc = sw_json_int(&group_size, config, "group_size", -1, 128, err)) != SW_OK ||
        (rc = sw_json_bool(&is_symmetric, config, "sym", err)) != SW_OK)
        return rc;
    if (!is_symmetric)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "machete with zero points cannot be verified");
    return sw_spec_sizes(out, bits, group_size, err);
}

static void read_codes(sw_spec_weight *w, const unsigned char *bytes)
{
    int64_t n_blocks = w->n_out / 128;

    for (int64_t a = 0; a < w->n_out * w->k_in; a++) {
        int64_t block = a / 8192, thread = a / 32 % 256;
        int value = w->bits == 4 ? value_of[a % 8] : (int)(a % 8);
        int64_t n = block % n_blocks * 128 + thread / 32 * 16 + thread % 32 / 4;
        int64_t k = block / n_blocks * 64 + a / 8 % 4 * 16 + thread % 4 * 2;

        if (value & 1) k += 1;
        if (value & 2) n += 8;
        if (value & 4) k += 8;
        w->codes[n * w->k_in + k] =
            (uint8_t)(w->bits == 8 ? bytes[a] : a % 2 ? bytes[a / 2] / 16 : bytes[a / 2] % 16);
    }
}

static sw_code decode(sw_spec_weight *w, const sw_spec_scheme *scheme, const sw_st *st,
                      const char *module_path, sw_err *err)
{
    int64_t code_shape[2] = {w->k_in / 64, 2 * w->n_out * w->bits};
    int64_t scale_shape[2] = {w->n_groups, w->n_out};
    const unsigned char *bytes;
    sw_spec_floats scales;
    sw_code rc;

    (void)scheme;
    if (w->k_in % 64 || w->n_out % 128 || w->bits % 4)
        return SW_FAIL(err, SW_E_FORMAT, "%s: %lld outputs, %lld inputs of %d bits make no blocks",
                       module_path, (long long)w->n_out, (long long)w->k_in, w->bits);
    if ((rc = sw_spec_part(&bytes, st, module_path, "B", SW_DTYPE_I32, 2, code_shape, err)) !=
            SW_OK ||
        (rc = sw_spec_scales(&scales, st, module_path, "s", 2, scale_shape, err)) != SW_OK)
        return rc;
    read_codes(w, bytes);
    for (int64_t n = 0; n < w->n_out; n++)
        for (int64_t g = 0; g < w->n_groups; g++) {
            w->scales[n * w->n_groups + g] = sw_spec_float_at(&scales, g * w->n_out + n);
            w->zeros[n * w->n_groups + g] = 1 << (w->bits - 1);
        }
    return SW_OK;
}

const sw_spec_reader sw_spec_machete = {
    .name = "machete",
    .suffixes = {"B", "s"},
    .marker = "B",
    .is_mine = is_mine,
    .read_config = read_config,
    .decode = decode,
};
