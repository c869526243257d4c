/* dialect_ct.c - compressed-tensors as llm-compressor writes it: the format pack-quantized, and the
 * quantization_config of all of them (ct_layouts.h has the others).
 *
 * Per linear P of K inputs, N outputs, G groups, b bits:
 *   P.weight_packed      I32      [N, ceil(K*b/32)]   codes, streams along k
 *   P.weight_scale       F16|BF16 [N, G]              G = 1 for one group per channel
 *   P.weight_shape       I64      [2]                 N, K
 *   P.weight_zero_point  I32      [ceil(N*b/32), G]   asymmetric only, streams along n
 *   P.weight_g_idx       I32      [K]                 actorder "group" only; -1: never filled in
 * Codes and zero points are signed there and stored with 2^(b-1) added; that sum is exactly the
 * unsigned code here. With 3 bits, 32 codes fill 3 words (files before version 0.16 put 10 in
 * each word; their width gives them away and they are refused).
 */
#include <stdio.h>
#include <string.h>

#include "formats/dialect/ct_layouts.h"
#include "formats/pack/words.h"

/* The version whose layout is written: 3-bit streams are dense since then. */
#define CT_VERSION "0.16.0"
#define CT_FORMAT "pack-quantized"

enum { PART_PACKED, PART_SCALE, PART_SHAPE, PART_REST };

static int zero_part(const sw_qspec *spec) { return spec->is_symmetric ? -1 : PART_REST; }
static int g_idx_part(const sw_qspec *spec)
{
    return spec->is_scattered ? PART_REST + !spec->is_symmetric : -1;
}

static bool is_pack_quantized(const sw_qspec *spec)
{
    const char *format = sw_ct_format(spec);

    return format && !strcmp(format, CT_FORMAT);
}

static sw_code can_hold(const sw_qspec *spec, int64_t n_out, int64_t k_in, sw_err *err)
{
    const char *format = spec->num ? sw_ct_format(spec) : CT_FORMAT;

    (void)n_out;
    if (format && !strcmp(format, CT_FORMAT) && spec->act.scope == SW_ACT_NONE)
        return sw_hold_groups("compressed-tensors", spec, k_in, err);
    return sw_ct_can_hold(spec, k_in, err);
}

static int declare(sw_part out[SW_DIALECT_TENSORS_MAX], const sw_qspec *spec, int64_t n_out,
                   int64_t k_in)
{
    int bits = spec->num->bits;
    int64_t n_groups = sw_qspec_groups(spec, k_in);

    if (!is_pack_quantized(spec)) return sw_ct_declare(out, spec, n_out, k_in);
    out[PART_PACKED] = sw_part_2d("weight_packed", SW_DTYPE_I32, n_out,
                                  sw_words_count(k_in, bits));
    out[PART_SCALE] = sw_part_2d("weight_scale", spec->scale_dtype, n_out, n_groups);
    out[PART_SCALE].is_scale = true;
    out[PART_SHAPE] = sw_part_1d("weight_shape", SW_DTYPE_I64, 2);
    out[PART_SHAPE].is_shape = true;
    if (zero_part(spec) >= 0)
        out[zero_part(spec)] = sw_part_2d("weight_zero_point", SW_DTYPE_I32,
                                          sw_words_count(n_out, bits), n_groups);
    if (g_idx_part(spec) < 0) return PART_REST + !spec->is_symmetric;
    out[g_idx_part(spec)] = sw_part_1d("weight_g_idx", SW_DTYPE_I32, k_in);
    out[g_idx_part(spec)].is_g_idx = true;
    return g_idx_part(spec) + 1;
}

static sw_code encode(void *const parts[], const sw_qtensor *q, sw_err *err)
{
    sw_words at;

    if (!is_pack_quantized(&q->spec)) return sw_ct_encode(parts, q, err);
    if (q->g_idx && !q->spec.is_scattered)
        return SW_FAIL(err, SW_E_BUG, "a g_idx, and a spec that does not say so");
    sw_packs[SW_PACK_K_WORDS].layout(&at, q->n_out, q->k_in, q->spec.num->bits);
    sw_words_pack(parts[PART_PACKED], q->codes, &at, 0);
    sw_scales_store(parts[PART_SCALE], q, false);
    sw_shape_store(parts[PART_SHAPE], q);
    if (q->g_idx) sw_g_idx_store(parts[g_idx_part(&q->spec)], q);
    if (!q->zeros) return SW_OK;
    sw_packs[SW_PACK_N_WORDS].layout(&at, q->n_out, q->n_groups, q->spec.num->bits);
    sw_words_pack(parts[zero_part(&q->spec)], q->zeros, &at, 0);
    return SW_OK;
}

static sw_code decode(sw_qtensor *q, const void *const parts[], sw_err *err)
{
    sw_words at;
    sw_code rc;

    if (!is_pack_quantized(&q->spec)) return sw_ct_decode(q, parts, err);
    rc = sw_shape_check(parts[PART_SHAPE], "weight_shape", q->n_out, q->k_in, err);
    if (rc != SW_OK) return rc;
    sw_packs[SW_PACK_K_WORDS].layout(&at, q->n_out, q->k_in, q->spec.num->bits);
    sw_words_unpack(q->codes, parts[PART_PACKED], &at, 0);
    sw_scales_load(q, parts[PART_SCALE], false);
    if (q->zeros) {
        sw_packs[SW_PACK_N_WORDS].layout(&at, q->n_out, q->n_groups, q->spec.num->bits);
        sw_words_unpack(q->zeros, parts[zero_part(&q->spec)], &at, 0);
    }
    return q->spec.is_scattered ? sw_g_idx_load(q, parts[g_idx_part(&q->spec)], err) : SW_OK;
}

/* With one scheme the targets are the class; of a mixed checkpoint, every module that has this
 * scheme, by name: loaders that fuse q, k and v ask for the class before they ask for the parts,
 * so a group for "Linear" would take what another group names. */
static bool add_targets(cJSON *group, const sw_qconfig *config, const sw_qspec *spec)
{
    cJSON *targets = cJSON_AddArrayToObject(group, "targets");
    bool ok = targets != NULL;

    if (ok && !config->n_rules) return sw_config_append(targets, "Linear");
    for (int64_t i = 0; ok && i < config->n_rules; i++)
        if (sw_config_is_one(&config->rules[i].spec, spec))
            ok = sw_config_append(targets, config->rules[i].pattern);
    return ok;
}

static bool add_group(cJSON *groups, const sw_qconfig *config, const sw_qspec *spec)
{
    char name[32];
    cJSON *group;

    (void)snprintf(name, sizeof name, "group_%d", cJSON_GetArraySize(groups));
    group = cJSON_AddObjectToObject(groups, name);
    return group && add_targets(group, config, spec) &&
           cJSON_AddStringToObject(group, "format", sw_ct_format(spec)) &&
           sw_ct_add_weights(group, spec) && sw_ct_add_inputs(group, spec) &&
           cJSON_AddNullToObject(group, "output_activations");
}

static bool add_groups(cJSON *root, const sw_qconfig *config)
{
    cJSON *groups = cJSON_AddObjectToObject(root, "config_groups");
    bool ok = groups != NULL;

    if (ok && !config->n_rules) return add_group(groups, config, &config->spec);
    for (int64_t i = 0; ok && i < config->n_rules; i++)
        if (sw_config_is_first(config, i)) ok = add_group(groups, config, &config->rules[i].spec);
    return ok;
}

/* The format of all groups, or the word for several. */
static const char *format_of(const sw_qconfig *config)
{
    const char *format = sw_ct_format(config->n_rules ? &config->rules[0].spec : &config->spec);

    for (int64_t i = 1; i < config->n_rules; i++)
        if (strcmp(sw_ct_format(&config->rules[i].spec), format)) return "mixed-precision";
    return format;
}

static sw_code write_config(cJSON **out, const sw_qconfig *config, sw_err *err)
{
    cJSON *root = cJSON_CreateObject();
    bool ok = root && cJSON_AddStringToObject(root, "quant_method", "compressed-tensors") &&
              cJSON_AddStringToObject(root, "version", CT_VERSION) &&
              cJSON_AddStringToObject(root, "format", format_of(config)) &&
              cJSON_AddStringToObject(root, "quantization_status", "compressed") &&
              cJSON_AddNullToObject(root, "global_compression_ratio") &&
              /* targets are every Linear, and the head is one even when it shares the embedding */
              sw_config_add_ignored(root, "ignore", config, true, SW_BELOW_REGEX) &&
              sw_ct_add_kv_scheme(root, config->kv_num) &&
              cJSON_AddObjectToObject(root, "sparsity_config") &&
              cJSON_AddObjectToObject(root, "transform_config") && add_groups(root, config);

    return sw_config_done(out, root, ok, err);
}

/* Files before 0.11 have no format in the groups, and some none at all: it then follows from the
 * scheme, and an integer scheme of weights alone is pack-quantized. */
static sw_code check_format(const cJSON *object, sw_err *err)
{
    const char *format = CT_FORMAT;
    sw_code rc;

    if ((rc = sw_json_text(&format, object, "format", err)) != SW_OK) return rc;
    if (!sw_ct_is_format(format) && strcmp(format, "mixed-precision"))
        return SW_FAIL(err, SW_E_UNSUPPORTED, "compressed-tensors format \"%.60s\"; " CT_FORMAT
                       ", int-, float-, mxfp8-quantized, mxfp4- and nvfp4-pack-quantized can be "
                       "read", format);
    return SW_OK;
}

static bool is_filled(const cJSON *object, const char *key)
{
    const cJSON *member = sw_json_member(object, key);

    return member && !((cJSON_IsObject(member) || cJSON_IsArray(member)) && !member->child);
}

/* What changes the meaning of the weights or of the run, and is not carried here. */
static sw_code refuse_extras(const cJSON *object, sw_err *err)
{
    static const struct { const char *key, *why; } extras[] = {
        {"transform_config", "online transforms"},
    };
    const cJSON *sparsity = sw_json_member(object, "sparsity_config");
    const char *status = "compressed", *sparse_format = "dense";
    sw_code rc;

    for (size_t i = 0; i < sizeof extras / sizeof *extras; i++)
        if (is_filled(object, extras[i].key))
            return SW_FAIL(err, SW_E_UNSUPPORTED, "%s: %s cannot be served", extras[i].key,
                           extras[i].why);
    if ((rc = sw_json_text(&sparse_format, sparsity, "format", err)) != SW_OK ||
        (rc = sw_json_text(&status, object, "quantization_status", err)) != SW_OK)
        return rc;
    if (strcmp(sparse_format, "dense"))
        return SW_FAIL(err, SW_E_UNSUPPORTED, "sparsity_config: sparse weights (%.60s) cannot be "
                       "served", sparse_format);
    if (strcmp(status, "compressed"))
        return SW_FAIL(err, SW_E_UNSUPPORTED, "quantization_status \"%.60s\": only finished "
                       "(compressed) checkpoints can be read", status);
    return SW_OK;
}

/* actorder "group" (also written true or "dynamic") moves columns between groups at run time;
 * "weight" and "static" only changed the order of solving. */
static bool stores_g_idx(const cJSON *weights)
{
    const cJSON *order = sw_json_member(weights, "actorder");

    return order && !cJSON_IsFalse(order) &&
           !(cJSON_IsString(order) && (!strcmp(order->valuestring, "weight") ||
                                       !strcmp(order->valuestring, "static")));
}

static sw_code read_weights(sw_qspec *spec, const cJSON *weights, sw_err *err)
{
    const cJSON *dynamic = sw_json_member(weights, "dynamic");
    sw_code rc;

    spec->is_symmetric = true;
    if (dynamic && !cJSON_IsFalse(dynamic))
        return SW_FAIL(err, SW_E_UNSUPPORTED, "weights quantized at run time (dynamic)");
    if ((rc = sw_ct_read_num(&spec->num, weights, err)) != SW_OK ||
        (rc = sw_json_bool(&spec->is_symmetric, weights, "symmetric", err)) != SW_OK)
        return rc;
    spec->is_scattered = stores_g_idx(weights);
    return sw_ct_read_strategy(spec, weights, err);
}

/* A named format must be that of the scheme: it says where the tensors are. */
static sw_code check_group_format(sw_qspec *spec, const char *format, sw_err *err)
{
    const char *mine;

    spec->has_byte_codes = format && !strcmp(format, "int-quantized") && spec->num->bits < 8;
    mine = sw_ct_format(spec);
    if (mine && (!format || !strcmp(mine, format))) return SW_OK;
    return SW_FAIL(err, SW_E_UNSUPPORTED, "format \"%.60s\" holds %s weights otherwise than \"%s\"",
                   format ? format : "(none)", spec->num->name, mine ? mine : "any known format");
}

/* Zero points lie beside packed integers alone; a checkpoint that says so of others would be
 * decoded without them. */
static sw_code check_zero_points(const sw_qspec *spec, sw_err *err)
{
    if (spec->is_symmetric || is_pack_quantized(spec)) return SW_OK;
    return SW_FAIL(err, SW_E_UNSUPPORTED, "weights: \"symmetric\" is false, and weights of %s in "
                   "\"%s\" are read without zero points; say true if the file has no "
                   "weight_zero_point", spec->num->name, sw_ct_format(spec));
}

/* `format` is that of the whole checkpoint, for groups that name none; NULL: it has none either. */
static sw_code read_group(sw_qspec *spec, const cJSON *group, const char *format, sw_err *err)
{
    const cJSON *weights = sw_json_member(group, "weights");
    sw_code rc;

    if (!cJSON_IsObject(weights))
        return SW_FAIL(err, SW_E_FORMAT, "%.60s has no weights scheme", group->string);
    if ((rc = sw_json_text(&format, group, "format", err)) != SW_OK) return rc;
    if (format && !sw_ct_is_format(format))
        return SW_FAIL(err, SW_E_UNSUPPORTED, "%.60s: format \"%.60s\" cannot be read",
                       group->string, format);
    if (sw_json_member(group, "output_activations"))
        return SW_FAIL(err, SW_E_UNSUPPORTED, "%.60s quantizes output activations, which no kernel "
                       "here does", group->string);
    rc = read_weights(spec, weights, err);
    if (rc == SW_OK && sw_json_member(group, "input_activations"))
        rc = sw_ct_read_inputs(&spec->act, sw_json_member(group, "input_activations"), err);
    if (rc == SW_OK) rc = check_group_format(spec, format, err);
    if (rc == SW_OK) rc = check_zero_points(spec, err);
    if (rc != SW_OK) sw_err_prefix(err, "%.60s", group->string);
    return rc;
}

/* Its targets as rules: "re:" patterns, module names, and the class that stands for all. */
static sw_code read_targets(sw_qconfig *out, sw_qrule *rules, const cJSON *group,
                            const sw_qspec *spec, sw_arena *arena, sw_err *err)
{
    const cJSON *targets = sw_json_member(group, "targets"), *target;
    sw_code rc;

    cJSON_ArrayForEach(target, targets)
    {
        sw_qrule *rule = &rules[out->n_rules];
        const char *text = cJSON_IsString(target) ? target->valuestring : NULL;
        char *kept;
        if (!text) return SW_FAIL(err, SW_E_FORMAT, "%.60s: targets hold no text", group->string);
        if (!strcmp(text, "Linear")) {
            if (out->has_no_default) out->spec = *spec;
            out->has_no_default = false;
            continue;
        }
        rule->is_exact = strncmp(text, "re:", 3) != 0;
        text += rule->is_exact ? 0 : 3;
        if ((rc = sw_arena_text(&kept, arena, text, strlen(text), err)) != SW_OK) return rc;
        rule->pattern = kept;
        rule->spec = *spec;
        out->n_rules++;
    }
    return SW_OK;
}

static int64_t count_targets(const cJSON *groups)
{
    const cJSON *group;
    int64_t n = 0;

    cJSON_ArrayForEach(group, groups) n += cJSON_GetArraySize(sw_json_member(group, "targets"));
    return n;
}

static sw_code read_groups(sw_qconfig *out, const cJSON *object, sw_arena *arena, sw_err *err)
{
    const cJSON *groups = sw_json_member(object, "config_groups"), *group;
    const char *format = NULL;
    sw_qspec first = out->spec;
    bool is_mixed = false;
    sw_qrule *rules = NULL;
    sw_code rc;

    if (!cJSON_IsObject(groups) || !groups->child)
        return SW_FAIL(err, SW_E_FORMAT, "quantization_config has no config_groups");
    if ((rc = sw_json_text(&format, object, "format", err)) != SW_OK ||
        (rc = SW_ARENA_TAKE(&rules, arena, count_targets(groups), err)) != SW_OK)
        return rc;
    if (format && !strcmp(format, "mixed-precision")) format = NULL; /* the groups say it */
    out->has_no_default = true;
    cJSON_ArrayForEach(group, groups)
    {
        sw_qspec one = {.scale_dtype = out->spec.scale_dtype};
        if ((rc = read_group(&one, group, format, err)) != SW_OK) return rc;
        if (group == groups->child) first = one;
        is_mixed = is_mixed || !sw_config_is_one(&one, &first);
        if ((rc = read_targets(out, rules, group, &one, arena, err)) != SW_OK) return rc;
    }
    if (out->has_no_default) out->spec = first;
    out->rules = rules;
    if (is_mixed) return SW_OK;
    out->has_no_default = false; /* one scheme: whatever is stored quantized has it */
    out->rules = NULL;
    out->n_rules = 0;
    return SW_OK;
}

static sw_code read_config(sw_qconfig *out, const cJSON *object, sw_arena *arena, sw_err *err)
{
    sw_qconfig config = {.spec.scale_dtype = out->spec.scale_dtype};
    sw_code rc;

    if ((rc = check_format(object, err)) != SW_OK || (rc = refuse_extras(object, err)) != SW_OK ||
        (rc = sw_ct_read_kv_scheme(&config.kv_num, sw_json_member(object, "kv_cache_scheme"),
                                   err)) != SW_OK ||
        (rc = read_groups(&config, object, arena, err)) != SW_OK ||
        (rc = sw_config_read_ignore(&config, object, "ignore", arena, err)) != SW_OK)
        return rc;
    *out = config;
    return SW_OK;
}

static bool is_mine(const cJSON *object)
{
    return sw_config_method_is(object, "compressed-tensors");
}

const sw_dialect sw_dialect_compressed_tensors = {
    .name = "compressed-tensors",
    .summary = "as llm-compressor writes it: vLLM, SGLang, transformers",
    .is_known_by_scale = true,
    .holds_kv_scales = true,
    .names_kv_codes = true,
    .scale_dtype = sw_scale_dtype_like_model,
    .can_hold = can_hold,
    .declare = declare,
    .encode = encode,
    .decode = decode,
    .write_config = write_config,
    .read_config = read_config,
    .is_mine = is_mine,
};
