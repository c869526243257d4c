/* dialect_machete.c - weights in the order in which Machete reads them (machete.h).
 *
 * Per linear P of K inputs, N outputs, G groups, b bits:
 *   P.B  I32      [K/64, N*2*b]  codes in blocks of 128 x 64, a row a run of 64 inputs
 *   P.s  F16|BF16 [G, N]         scales
 * vLLM packs so as it loads a checkpoint and has no form for one that is packed already: this is
 * for engines that want the tensors without packing. Symmetric alone: what the kernel reads in the
 * place of a zero point is its product with the scale, rounded.
 */
#include "formats/dialect/dialect_common.h"
#include "formats/pack/machete.h"

#define ELSEWHERE "use --format marlin, gptq or compressed-tensors"

enum { PART_B, PART_S, N_PARTS };

static sw_code can_hold(const sw_qspec *spec, int64_t n_out, int64_t k_in, sw_err *err)
{
    int64_t group = spec->group_elems;
    sw_code rc = sw_hold_groups("machete", spec, k_in, err);

    if (rc != SW_OK || (rc = sw_hold_neighbours("machete", spec, err)) != SW_OK) return rc;
    if (spec->num->bits != 4 && spec->num->bits != 8)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "machete: holds 4 and 8 bits, not %d; " ELSEWHERE,
                       spec->num->bits);
    if (!spec->is_symmetric)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "machete: its kernel takes products of zero points "
                       "and scales, rounded, which are no zero points; " ELSEWHERE);
    if (group && group != 64 && group != 128)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "machete: its kernel takes groups of 64, 128 or "
                       "channel, not %lld; " ELSEWHERE, (long long)group);
    if (k_in % SW_MACHETE_TILE_K)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "machete: %lld inputs are no multiple of 64; "
                       ELSEWHERE, (long long)k_in);
    if (n_out % SW_MACHETE_TILE_N)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "machete: %lld outputs are no multiple of 128; "
                       ELSEWHERE, (long long)n_out);
    return SW_OK;
}

static int declare(sw_part out[SW_DIALECT_TENSORS_MAX], const sw_qspec *spec, int64_t n_out,
                   int64_t k_in)
{
    out[PART_B] = sw_part_2d("B", SW_DTYPE_I32, k_in / SW_MACHETE_TILE_K,
                             n_out * SW_MACHETE_TILE_K * spec->num->bits / 32);
    out[PART_S] = sw_part_2d("s", spec->scale_dtype, sw_qspec_groups(spec, k_in), n_out);
    out[PART_S].is_scale = true;
    return N_PARTS;
}

static sw_code encode(void *const parts[], const sw_qtensor *q, sw_err *err)
{
    sw_code rc = sw_encode_neighbours("machete", q, "; use --format gptq", err);

    if (rc != SW_OK) return rc;
    sw_machete_pack(parts[PART_B], q->codes, q->spec.num->bits, q->n_out, q->k_in);
    sw_scales_store(parts[PART_S], q, true);
    return SW_OK;
}

static sw_code decode(sw_qtensor *q, const void *const parts[], sw_err *err)
{
    if (q->k_in % SW_MACHETE_TILE_K || q->n_out % SW_MACHETE_TILE_N)
        return SW_FAIL(err, SW_E_FORMAT, "%lld outputs and %lld inputs make no blocks of 128 x 64",
                       (long long)q->n_out, (long long)q->k_in);
    sw_machete_unpack(q->codes, parts[PART_B], q->spec.num->bits, q->n_out, q->k_in);
    sw_scales_load(q, parts[PART_S], true);
    return SW_OK;
}

static sw_code write_config(cJSON **out, const sw_qconfig *config, sw_err *err)
{
    const sw_qspec *spec = &config->spec;
    cJSON *root;
    bool ok;
    sw_code rc = sw_config_one_scheme("machete", config, ELSEWHERE, err);

    if (rc != SW_OK) return rc;
    root = cJSON_CreateObject();
    ok = root && cJSON_AddStringToObject(root, "quant_method", "machete") &&
         cJSON_AddNumberToObject(root, "bits", spec->num->bits) &&
         cJSON_AddNumberToObject(root, "group_size", (double)sw_config_group_value(spec)) &&
         cJSON_AddBoolToObject(root, "sym", true) &&
         cJSON_AddBoolToObject(root, "lm_head", config->has_head) &&
         sw_config_add_ignored(root, "modules_to_not_convert", config, false, SW_BELOW_PATHS);
    return sw_config_done(out, root, ok, err);
}

static sw_code read_config(sw_qconfig *out, const cJSON *object, sw_arena *arena, sw_err *err)
{
    sw_qconfig config = {.spec = {.scale_dtype = out->spec.scale_dtype, .is_symmetric = true,
                                  .num = sw_num_by_bits(4)}};
    int64_t group;
    sw_code rc;

    if ((rc = sw_config_read_spec(&config.spec, object, err)) != SW_OK ||
        (rc = sw_config_read_ignore(&config, object, "modules_to_not_convert", arena, err)) !=
            SW_OK)
        return rc;
    group = config.spec.group_elems;
    config.spec.n_outliers = 0;
    if (config.spec.num->bits != 4 && config.spec.num->bits != 8)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "machete of %d bits; 4 and 8 can be read",
                       config.spec.num->bits);
    if (group && group != 64 && group != 128)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "machete in groups of %lld; 64, 128 and channel can "
                       "be read", (long long)group);
    if (!config.spec.is_symmetric)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "machete with \"sym\": false cannot be read: no "
                       "tensor of it holds zero points");
    *out = config;
    return SW_OK;
}

static bool is_mine(const cJSON *object)
{
    return sw_config_method_is(object, "machete");
}

const sw_dialect sw_dialect_machete = {
    .name = "machete",
    .summary = "4 and 8 bits in the order of Machete on Hopper: for engines that read it as it "
               "lies",
    .scale_dtype = sw_scale_dtype_like_model,
    .can_hold = can_hold,
    .declare = declare,
    .encode = encode,
    .decode = decode,
    .write_config = write_config,
    .read_config = read_config,
    .is_mine = is_mine,
};
