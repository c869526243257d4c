/* dialect_marlin.c - weights in the order in which Marlin kernels read them (marlin.h).
 *
 * Per linear P of K inputs, N outputs, G groups, b bits:
 *   P.B          I32      [K/16, N*16*b/32]  codes in tiles
 *   P.s          F16|BF16 [G, N]             scales, permuted
 *   P.zp         I32      [G, N*b/32]        asymmetric only, permuted
 *   P.workspace  I32      [N/128 * 16]       zeros that the original kernel counts in
 * The original checkpoint format (checkpoint_format "marlin", still known as is_marlin_format) is
 * the corner of this with 4 bits, no zero points, groups of 128 or whole channels, and N a multiple
 * of 256; it alone has a workspace, and names the method that its loaders know. The rest is for
 * engines that want the tensors of vLLM's repacking without repacking: quant_method "marlin".
 */
#include <string.h>

#include "formats/base/size.h"
#include "formats/dialect/dialect_common.h"
#include "formats/pack/marlin.h"

#define ELSEWHERE "use --format gptq, compressed-tensors or swage"
#define KERNEL_K 128 /* of which the inputs are a multiple */
#define ORIGINAL_N 256

enum { PART_B, PART_S, PART_REST };

static int64_t code_words(int64_t n_codes, int bits) { return n_codes * bits / 32; }

static bool is_original(const sw_qspec *spec, int64_t n_out)
{
    return spec->num->bits == 4 && spec->is_symmetric && n_out % ORIGINAL_N == 0 &&
           (spec->group_elems == 0 || spec->group_elems == 128);
}

static sw_code can_hold(const sw_qspec *spec, int64_t n_out, int64_t k_in, sw_err *err)
{
    int64_t group = spec->group_elems;
    sw_code rc = sw_hold_groups("marlin", spec, k_in, err);

    if (rc != SW_OK) return rc;
    if (spec->is_scattered) /* engines sort the columns of a gptq file when they load it */
        return SW_FAIL(err, SW_E_UNSUPPORTED, "marlin: has no tensor for act-order (a g_idx), by "
                       "which its kernels have to gather the inputs; use --format gptq_v2 or "
                       "compressed-tensors, which engines sort as they load");
    if (spec->num->bits != 4 && spec->num->bits != 8)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "marlin: holds 4 and 8 bits, not %d; " ELSEWHERE,
                       spec->num->bits);
    if (group && group != 32 && group != 64 && group != 128)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "marlin: kernels take groups of 32, 64, 128 or "
                       "channel, not %lld; " ELSEWHERE, (long long)group);
    if (k_in % KERNEL_K)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "marlin: %lld inputs are no multiple of 128; "
                       ELSEWHERE, (long long)k_in);
    if (n_out % SW_MARLIN_TILE_N)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "marlin: %lld outputs are no multiple of 64; "
                       ELSEWHERE, (long long)n_out);
    return SW_OK;
}

static int declare(sw_part out[SW_DIALECT_TENSORS_MAX], const sw_qspec *spec, int64_t n_out,
                   int64_t k_in)
{
    int64_t n_groups = sw_qspec_groups(spec, k_in);
    int bits = spec->num->bits, n = PART_REST;

    out[PART_B] = sw_part_2d("B", SW_DTYPE_I32, k_in / SW_MARLIN_TILE_K,
                             code_words(n_out * SW_MARLIN_TILE_K, bits));
    out[PART_S] = sw_part_2d("s", spec->scale_dtype, n_groups, n_out);
    out[PART_S].is_scale = true;
    if (!spec->is_symmetric)
        out[n++] = sw_part_2d("zp", SW_DTYPE_I32, n_groups, code_words(n_out, bits));
    if (is_original(spec, n_out)) {
        out[n] = sw_part_1d("workspace", SW_DTYPE_I32, n_out / 128 * 16);
        out[n++].is_optional = true;
    }
    return n;
}

/* The test is on the number of groups: one group of all inputs counts as single. */
static bool is_single(const sw_qtensor *q) { return q->n_groups == 1; }

static sw_code encode(void *const parts[], const sw_qtensor *q, sw_err *err)
{
    size_t bytes = (size_t)sw_dtype_bits(q->spec.scale_dtype) / 8;
    int bits = q->spec.num->bits;
    sw_code rc = SW_OK;

    if ((rc = sw_encode_neighbours("marlin", q, "; use --format gptq", err)) != SW_OK) return rc;
    sw_marlin_pack(parts[PART_B], q->codes, bits, q->n_out, q->k_in);
    for (int64_t i = 0; i < q->n_groups * q->n_out && rc == SW_OK; i++) {
        int64_t n = sw_marlin_scale_channel(i % q->n_out, is_single(q)), g = i / q->n_out;
        rc = sw_float_encode_n((uint8_t *)parts[PART_S] + (size_t)i * bytes, q->spec.scale_dtype,
                               &q->scales[n * q->n_groups + g], 1, err);
    }
    if (rc == SW_OK && q->zeros)
        sw_marlin_zeros_pack(parts[PART_REST], q->zeros, bits, q->n_out, q->n_groups);
    return rc;
}

static sw_code decode(sw_qtensor *q, const void *const parts[], sw_err *err)
{
    size_t bytes = (size_t)sw_dtype_bits(q->spec.scale_dtype) / 8;
    int bits = q->spec.num->bits;
    sw_code rc = SW_OK;

    if (q->k_in % SW_MARLIN_TILE_K || q->n_out % SW_MARLIN_TILE_N)
        return SW_FAIL(err, SW_E_FORMAT, "%lld outputs and %lld inputs make no tiles of 64 x 16",
                       (long long)q->n_out, (long long)q->k_in);
    sw_marlin_unpack(q->codes, parts[PART_B], bits, q->n_out, q->k_in);
    for (int64_t i = 0; i < q->n_groups * q->n_out && rc == SW_OK; i++) {
        int64_t n = sw_marlin_scale_channel(i % q->n_out, is_single(q)), g = i / q->n_out;
        rc = sw_float_decode_n(&q->scales[n * q->n_groups + g],
                               (const uint8_t *)parts[PART_S] + (size_t)i * bytes,
                               q->spec.scale_dtype, 1, err);
    }
    if (rc == SW_OK && q->zeros)
        sw_marlin_zeros_unpack(q->zeros, parts[PART_REST], bits, q->n_out, q->n_groups);
    return rc;
}

/* The stored parts where they lie, for a device that puts them in order itself. */
static sw_code map_tiles(sw_tiles *out, const sw_qspec *spec, int64_t n_out, int64_t k_in,
                         const void *const parts[], sw_err *err)
{
    sw_tiles tiles = {.spec = *spec, .n_out = n_out, .k_in = k_in,
                      .n_groups = sw_qspec_groups(spec, k_in), .is_marlin = true,
                      .container_bits = sw_tiles_container_bits(spec->num),
                      .codes = parts[PART_B], .scales = parts[PART_S],
                      .zeros = spec->is_symmetric ? NULL : parts[PART_REST]};
    size_t bytes = (size_t)sw_dtype_bits(spec->scale_dtype) / 8;
    sw_code rc = SW_OK;

    if (k_in % KERNEL_K || n_out % SW_MARLIN_TILE_N)
        return SW_FAIL(err, SW_E_FORMAT, "%lld outputs and %lld inputs make no tiles of 64 x 64",
                       (long long)n_out, (long long)k_in);
    for (int64_t i = 0; i < tiles.n_groups * n_out && rc == SW_OK; i++) {
        int64_t n = sw_marlin_scale_channel(i % n_out, tiles.n_groups == 1), g = i / n_out;
        float scale;

        rc = sw_float_decode_n(&scale, (const uint8_t *)tiles.scales + (size_t)i * bytes,
                               spec->scale_dtype, 1, err);
        if (rc == SW_OK) rc = sw_scale_check(scale, spec, 0, n, g, err);
    }
    if (rc == SW_OK) *out = tiles;
    return rc;
}

/* The method that loaders of the original know, only where they would read all of it. */
static sw_code write_config(cJSON **out, const sw_qconfig *config, sw_err *err)
{
    const sw_qspec *spec = &config->spec;
    bool is_classic = is_original(spec, ORIGINAL_N) && spec->scale_dtype == SW_DTYPE_F16, ok;
    cJSON *root;
    sw_code rc = sw_config_one_scheme("marlin", config, ELSEWHERE, err);

    if (rc != SW_OK) return rc;
    root = cJSON_CreateObject();
    ok = root &&
         cJSON_AddStringToObject(root, "quant_method", is_classic ? "gptq" : "marlin") &&
         cJSON_AddStringToObject(root, "checkpoint_format", "marlin") &&
         (!is_classic || cJSON_AddBoolToObject(root, "is_marlin_format", true)) &&
         cJSON_AddNumberToObject(root, "bits", spec->num->bits) &&
         cJSON_AddNumberToObject(root, "group_size", (double)sw_config_group_value(spec)) &&
         cJSON_AddBoolToObject(root, "sym", spec->is_symmetric) &&
         cJSON_AddBoolToObject(root, "desc_act", false) &&
         cJSON_AddBoolToObject(root, "lm_head", config->has_head) &&
         sw_config_add_ignored(root, "modules_to_not_convert", config, false, SW_BELOW_PATHS);
    return sw_config_done(out, root, ok, err);
}

static sw_code read_config(sw_qconfig *out, const cJSON *object, sw_arena *arena, sw_err *err)
{
    sw_qconfig config = {.spec = {.scale_dtype = out->spec.scale_dtype, .is_symmetric = true,
                                  .num = sw_num_by_bits(4)}};
    int64_t group;
    bool lm_head = false, desc_act = false;
    sw_code rc;

    if ((rc = sw_config_read_spec(&config.spec, object, err)) != SW_OK ||
        (rc = sw_json_bool(&lm_head, object, "lm_head", err)) != SW_OK ||
        (rc = sw_json_bool(&desc_act, object, "desc_act", err)) != SW_OK ||
        (rc = sw_config_read_ignore(&config, object, "modules_to_not_convert", arena, err)) !=
            SW_OK)
        return rc;
    group = config.spec.group_elems;
    config.spec.n_outliers = 0;
    if (config.spec.num->bits != 4 && config.spec.num->bits != 8)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "marlin of %d bits; 4 and 8 can be read",
                       config.spec.num->bits);
    if (group && group != 32 && group != 64 && group != 128)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "marlin in groups of %lld; 32, 64, 128 and channel "
                       "can be read", (long long)group);
    if (desc_act)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "marlin with \"desc_act\": true cannot be read: no "
                       "tensor of the format says in which order the columns lie; convert the gptq "
                       "checkpoint that it was made from");
    *out = config;
    return SW_OK;
}

static bool is_mine(const cJSON *object)
{
    const cJSON *method = sw_json_member(object, "quant_method");
    const cJSON *format = sw_json_member(object, "checkpoint_format");
    const char *name = cJSON_IsString(method) ? method->valuestring : "";

    if (strcmp(name, "gptq") && strcmp(name, "marlin")) return false;
    return (cJSON_IsString(format) && !strcmp(format->valuestring, "marlin")) ||
           cJSON_IsTrue(sw_json_member(object, "is_marlin_format")) || !strcmp(name, "marlin");
}

const sw_dialect sw_dialect_marlin = {
    .name = "marlin",
    .summary = "4 and 8 bits in the order of Marlin kernels: for engines that do not repack",
    .scale_dtype = sw_scale_dtype_f16,
    .can_hold = can_hold,
    .declare = declare,
    .encode = encode,
    .decode = decode,
    .map_tiles = map_tiles,
    .maps_marlin = true,
    .write_config = write_config,
    .read_config = read_config,
    .is_mine = is_mine,
};
