/* dialect_mxfp4.c - quant_method "mxfp4": the experts of gpt-oss, and nothing else of it.
 *
 * Of E experts of K inputs and N outputs (gate and up channels take turns in one, so 2N there):
 *   <layer>.mlp.experts.gate_up_proj_blocks   U8 [E, 2N, K/32, 16]  low nibble: even input
 *   <layer>.mlp.experts.gate_up_proj_scales   U8 [E, 2N, K/32]      holding E8M0
 *   <layer>.mlp.experts.gate_up_proj_bias     stays in floats, [E, 2N]
 * and down_proj_... of [E, N, ...]. Codes are e2m1 in groups of 32 along the inputs, inputs stay as
 * they are. One linear is one expert's gate, up or down; expert_stack.h says where its rows are.
 */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "formats/dialect/ct_layouts.h"

#define BLOCK_ELEMS 32
#define ELSEWHERE "use --format compressed-tensors or swage"

enum { PART_BLOCKS, PART_SCALES, PART_COUNT };

static const sw_qspec the_spec = {
    .num = &sw_nums[SW_NUM_E2M1], .is_symmetric = true, .group_elems = BLOCK_ELEMS,
    .scale_dtype = SW_DTYPE_F8_E8M0, .is_pow2_scale = true};

static sw_dtype scale_dtype(sw_dtype model_dtype)
{
    (void)model_dtype;
    return SW_DTYPE_F8_E8M0;
}

static sw_code can_hold(const sw_qspec *spec, int64_t n_out, int64_t k_in, sw_err *err)
{
    (void)n_out;
    if (spec->num && !spec->n_outliers && !sw_qspec_same(spec, &the_spec))
        return SW_FAIL(err, SW_E_UNSUPPORTED, "mxfp4: holds e2m1 weights in groups of 32 under "
                       "E8M0 scales, with inputs as they are (MXFP4A16); for others " ELSEWHERE);
    return sw_hold_division("mxfp4", spec, k_in, err);
}

static int declare(sw_part out[SW_DIALECT_TENSORS_MAX], const sw_qspec *spec, int64_t n_out,
                   int64_t k_in)
{
    int64_t n_groups = sw_qspec_groups(spec, k_in);

    out[PART_BLOCKS] = sw_part_3d("blocks", SW_DTYPE_U8, n_out, n_groups, BLOCK_ELEMS / 2);
    out[PART_SCALES] = sw_part_2d("scales", SW_DTYPE_U8, n_out, n_groups);
    out[PART_SCALES].is_scale = true;
    return PART_COUNT;
}

static sw_code encode(void *const parts[], const sw_qtensor *q, sw_err *err)
{
    sw_code rc = sw_encode_neighbours("mxfp4", q, "", err);

    if (rc != SW_OK) return rc;
    sw_ct_store_codes(parts[PART_BLOCKS], q);
    sw_ct_store_scales(parts[PART_SCALES], q);
    return SW_OK;
}

static sw_code decode(sw_qtensor *q, const void *const parts[], sw_err *err)
{
    sw_code rc = sw_ct_load_codes(q, parts[PART_BLOCKS], err);

    return rc == SW_OK ? sw_ct_load_scales(q, parts[PART_SCALES], err) : rc;
}

/* Layers whose experts stay in floats, each once: a layer's experts are neighbours in the list. */
static bool add_float_experts(cJSON *list, const sw_qconfig *config)
{
    static const char mark[] = ".experts.";
    char module[256], last[256] = "";
    bool ok = true;

    for (int64_t i = 0; ok && i < config->n_ignore; i++) {
        const char *path = config->ignore[i], *at = strstr(path, mark);
        int n = at ? (int)(at - path + (ptrdiff_t)strlen(mark) - 1) : 0;

        if (!n || n >= (int)sizeof module) continue;
        (void)snprintf(module, sizeof module, "%.*s", n, path);
        if (strcmp(module, last) != 0) ok = sw_config_append(list, module);
        memcpy(last, module, sizeof last);
    }
    return ok;
}

/* What the published checkpoints say; loaders know that the rest is experts. */
static sw_code write_config(cJSON **out, const sw_qconfig *config, sw_err *err)
{
    static const char *const kept[] = {"model.layers.*.self_attn", "model.layers.*.mlp.router",
                                       "model.embed_tokens", "lm_head"};
    cJSON *root = cJSON_CreateObject(), *list = NULL;
    bool ok = root && cJSON_AddStringToObject(root, "quant_method", "mxfp4") &&
              (list = cJSON_AddArrayToObject(root, "modules_to_not_convert")) != NULL;

    for (size_t i = 0; ok && i < sizeof kept / sizeof *kept; i++)
        ok = sw_config_append(list, kept[i]);
    ok = ok && add_float_experts(list, config);
    return sw_config_done(out, root, ok, err);
}

static sw_code read_config(sw_qconfig *out, const cJSON *object, sw_arena *arena, sw_err *err)
{
    sw_qconfig config = {.spec = the_spec};
    sw_code rc = sw_config_read_ignore(&config, object, "modules_to_not_convert", arena, err);

    if (rc == SW_OK) *out = config;
    return rc;
}

static bool is_mine(const cJSON *object)
{
    return sw_config_method_is(object, "mxfp4");
}

const sw_dialect sw_dialect_mxfp4 = {
    .name = "mxfp4",
    .summary = "the experts of gpt-oss, as it is published: transformers, vLLM",
    .is_stacked = true,
    .scale_dtype = scale_dtype,
    .can_hold = can_hold,
    .declare = declare,
    .encode = encode,
    .decode = decode,
    .write_config = write_config,
    .read_config = read_config,
    .is_mine = is_mine,
};
