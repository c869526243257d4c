/* decode_spec_mxfp4.c - the second reading of quant_method "mxfp4".
 *
 * Expert e of a layer has channel n of its gate at row 2n, of its up at row 2n + 1 of
 *   experts.gate_up_proj_blocks  U8 [E, 2N, K/32, 16]
 *   experts.gate_up_proj_scales  U8 [E, 2N, K/32]
 * and channel n of its down at row n of experts.down_proj_blocks and _scales. Byte j of a block
 * holds input 2j in its low half and 2j + 1 in its high one: sign, two bits of exponent, one of
 * fraction. The block counts 2^(scale - 127) times that.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "verify/decoders/decode_spec_parts.h"

#define BLOCK 32

/* Row of channel n of a linear: (expert * width + n * turns + turn). */
typedef struct rows {
    char stem[400]; /* "...experts.gate_up_proj" */
    int64_t expert, turns, turn;
} rows;

static bool find_rows(rows *out, const char *module_path)
{
    const char *at = strstr(module_path, ".experts."), *leaf;
    bool is_up, is_down;
    char *end;

    if (!at || at[9] < '0' || at[9] > '9' || at - module_path > 300) return false;
    out->expert = strtol(at + 9, &end, 10);
    if (*end != '.' || end - at > 16) return false;
    leaf = end + 1;
    is_up = !strcmp(leaf, "up_proj");
    is_down = !strcmp(leaf, "down_proj");
    if (!is_up && !is_down && strcmp(leaf, "gate_proj") != 0) return false;
    out->turns = is_down ? 1 : 2;
    out->turn = is_up;
    (void)snprintf(out->stem, sizeof out->stem, "%.*s.experts.%s", (int)(at - module_path),
                   module_path, is_down ? "down_proj" : "gate_up_proj");
    return true;
}

static const sw_st_tensor *find(const sw_st *st, const char *module_path, const char *suffix)
{
    char name[420];
    rows r;

    if (!find_rows(&r, module_path)) return NULL;
    (void)snprintf(name, sizeof name, "%s_%s", r.stem, suffix);
    return sw_st_find(st, name);
}

static bool is_mine(const cJSON *config) { return sw_spec_method_is(config, "mxfp4"); }

static sw_code read_config(sw_spec_scheme *out, const cJSON *config, sw_err *err)
{
    (void)config;
    out->group_elems = BLOCK;
    out->is_pow2 = true;
    return sw_spec_float_kind(out, "e2m1", err);
}

static sw_code read_linear(sw_spec_scheme *out, const cJSON *config, const char *module_path,
                           sw_err *err)
{
    (void)module_path;
    return read_config(out, config, err);
}

static sw_code check(const sw_st_tensor *t, const char *module_path, const char *suffix, int n_dims,
                     const int64_t *shape, int64_t expert, sw_err *err)
{
    bool is_good = t && t->view.dtype == SW_DTYPE_U8 && t->view.n_dims == n_dims;

    for (int i = 1; is_good && i < n_dims; i++) is_good = t->view.shape[i] == shape[i];
    if (is_good && expert < t->view.shape[0]) return SW_OK;
    return SW_FAIL(err, SW_E_FORMAT, "the tensor of %s with its %s is missing, or not U8 of [more "
                   "than %lld, %lld, %lld, ...]", module_path, suffix, (long long)expert,
                   (long long)shape[1], (long long)shape[2]);
}

static sw_code decode(sw_spec_weight *w, const sw_spec_scheme *scheme, const sw_st *st,
                      const char *module_path, sw_err *err)
{
    const sw_st_tensor *blocks = find(st, module_path, "blocks");
    const sw_st_tensor *scales = find(st, module_path, "scales");
    int64_t shape[4] = {0, 0, w->n_groups, BLOCK / 2};
    rows r;
    sw_code rc;

    (void)scheme;
    if (!find_rows(&r, module_path) || w->k_in % BLOCK)
        return SW_FAIL(err, SW_E_FORMAT, "%s: no expert, or inputs that fill no blocks of 32",
                       module_path);
    shape[1] = w->n_out * r.turns;
    if ((rc = check(blocks, module_path, "blocks", 4, shape, r.expert, err)) != SW_OK ||
        (rc = check(scales, module_path, "scales", 3, shape, r.expert, err)) != SW_OK)
        return rc;
    for (int64_t n = 0; n < w->n_out; n++) {
        int64_t row = r.expert * shape[1] + n * r.turns + r.turn;
        const unsigned char *codes = blocks->view.data, *exponents = scales->view.data;
        sw_spec_floats of_row = {exponents + row * w->n_groups, SW_DTYPE_U8};

        codes += row * w->k_in / 2;
        for (int64_t g = 0; g < w->n_groups; g++)
            w->scales[n * w->n_groups + g] = sw_spec_float_at(&of_row, g);
        for (int64_t k = 0; k < w->k_in; k++)
            w->codes[n * w->k_in + k] = codes[k / 2] >> (k % 2 ? 4 : 0) & 15;
    }
    return SW_OK;
}

const sw_spec_reader sw_spec_mxfp4 = {
    "mxfp4", {"gate_up_proj_blocks", "gate_up_proj_scales", "down_proj_blocks", "down_proj_scales"},
    "blocks", is_mine, read_config, read_linear, decode, find,
};
