/* dialect_gptq.c - gptq (v1) and gptq_v2, as AutoGPTQ and GPTQModel write them.
 *
 * Per linear P of K inputs, N outputs, G groups, b bits:
 *   P.qweight  I32      [ceil(K*b/32), N]   codes, streams along k
 *   P.qzeros   I32      [G, ceil(N*b/32)]   zero points, streams along n
 *   P.scales   F16|BF16 [G, N]
 *   P.g_idx    I32      [K]                 group of each column
 * The one difference: v1 stores zero point - 1 in each field. A zero point of 0 has no clean
 * v1 form (three writers corrupt it in three ways, and readers disagree whether to mask), so v1
 * refuses it here; gptq_v2 stores zero points as they are.
 */
#include <stdio.h>
#include <string.h>

#include "formats/base/size.h"
#include "formats/dialect/dialect_common.h"
#include "formats/pack/words.h"

enum { PART_QWEIGHT, PART_QZEROS, PART_SCALES, PART_G_IDX, PART_COUNT };

static const int64_t loader_groups[] = {0, 16, 32, 64, 128, 256, 512, 1024};

static sw_code hold(const char *name, const sw_qspec *spec, int64_t n_out, int64_t k_in,
                    sw_err *err)
{
    bool is_known = false;
    sw_code rc;

    if ((rc = sw_hold_groups(name, spec, k_in, err)) != SW_OK) return rc;
    for (size_t i = 0; i < sizeof loader_groups / sizeof *loader_groups; i++)
        if (spec->group_elems == loader_groups[i]) is_known = true;
    if (!is_known)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "%s: no loader takes group size %lld; use 32, 64, "
                       "128 or channel", name, (long long)spec->group_elems);
    if (k_in % 32)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "%s: %lld inputs are no multiple of 32; use --format "
                       "compressed-tensors or swage", name, (long long)k_in);
    if (n_out % 32)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "%s: %lld outputs are no multiple of 32, as qzeros "
                       "needs; use --format compressed-tensors or swage", name, (long long)n_out);
    return SW_OK;
}

static sw_code v1_can_hold(const sw_qspec *spec, int64_t n_out, int64_t k_in, sw_err *err)
{
    if (!spec->is_symmetric && spec->zero_min < 1)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "gptq cannot store zero point 0, which an asymmetric "
                       "weight may have; use --format gptq_v2");
    return hold("gptq", spec, n_out, k_in, err);
}

static sw_code v2_can_hold(const sw_qspec *spec, int64_t n_out, int64_t k_in, sw_err *err)
{
    return hold("gptq_v2", spec, n_out, k_in, err);
}

static int declare(sw_part out[SW_DIALECT_TENSORS_MAX], const sw_qspec *spec, int64_t n_out,
                   int64_t k_in)
{
    int bits = spec->num->bits;
    int64_t n_groups = sw_qspec_groups(spec, k_in);

    out[PART_QWEIGHT] = sw_part_2d("qweight", SW_DTYPE_I32, sw_words_count(k_in, bits), n_out);
    out[PART_QZEROS] = sw_part_2d("qzeros", SW_DTYPE_I32, n_groups, sw_words_count(n_out, bits));
    out[PART_SCALES] = sw_part_2d("scales", spec->scale_dtype, n_groups, n_out);
    out[PART_SCALES].is_scale = true;
    out[PART_G_IDX] = sw_part_1d("g_idx", SW_DTYPE_I32, k_in);
    out[PART_G_IDX].is_optional = true;
    out[PART_G_IDX].is_g_idx = true;
    return PART_COUNT;
}

/* Streams over zero points [n, groups]. A symmetric weight has one value everywhere, which is
 * read and written through a single byte: both code steps are 0. */
static void zeros_layout(sw_words *at, const sw_qtensor *q)
{
    sw_packs[SW_PACK_N_WORDS_T].layout(at, q->n_out, q->n_groups, q->spec.num->bits);
    if (!q->zeros) at->code_step = at->code_stream_step = 0;
}

static sw_code encode(void *const parts[], const sw_qtensor *q, int zero_offset, sw_err *err)
{
    uint8_t sym_zero = (uint8_t)q->spec.num->sym_zero;
    sw_words at;

    for (int64_t i = 0; zero_offset && q->zeros && i < q->n_out * q->n_groups; i++)
        if (q->zeros[i] < zero_offset)
            return SW_FAIL(err, SW_E_UNSUPPORTED, "gptq cannot store zero point 0 (row %lld, group "
                           "%lld); use --format gptq_v2", (long long)(i / q->n_groups),
                           (long long)(i % q->n_groups));
    sw_packs[SW_PACK_K_WORDS_T].layout(&at, q->n_out, q->k_in, q->spec.num->bits);
    sw_words_pack(parts[PART_QWEIGHT], q->codes, &at, 0);
    zeros_layout(&at, q);
    sw_words_pack(parts[PART_QZEROS], q->zeros ? q->zeros : &sym_zero, &at, -zero_offset);
    sw_scales_store(parts[PART_SCALES], q, true);
    sw_g_idx_store(parts[PART_G_IDX], q);
    return SW_OK;
}

/* Symmetric files carry zero points that some loaders use and others ignore: they must agree. */
static sw_code check_symmetric(const sw_qtensor *q, const void *words, int zero_offset,
                               sw_err *err)
{
    uint8_t zeros[32];
    int64_t row_words = sw_words_count(q->n_out, q->spec.num->bits);
    int bits = q->spec.num->bits;

    for (int64_t g = 0; g < q->n_groups; g++)
        for (int64_t n = 0; n < q->n_out; n += 32) {
            int64_t n_here = sw_min_i64(32, q->n_out - n);
            const uint8_t *from = (const uint8_t *)words + 4 * (g * row_words + n / 32 * bits);
            sw_words at = {bits, 1, n_here, 1, n_here, 1, row_words};
            sw_words_unpack(zeros, from, &at, zero_offset);
            for (int64_t i = 0; i < n_here; i++)
                if (zeros[i] != q->spec.num->sym_zero)
                    return SW_FAIL(err, SW_E_FORMAT, "qzeros hold %d at row %lld, group %lld where "
                                   "\"sym\": true means %d; the \"checkpoint_format\" (gptq or "
                                   "gptq_v2) may be wrong", zeros[i], (long long)(n + i),
                                   (long long)g, q->spec.num->sym_zero);
        }
    return SW_OK;
}

/* v1: a field of all ones means 2^b to some readers and 0 to others. */
static sw_code refuse_wrapped(const sw_qtensor *q, int zero_offset, sw_err *err)
{
    for (int64_t i = 0; i < q->n_out * q->n_groups; i++)
        if (q->zeros[i] < zero_offset)
            return SW_FAIL(err, SW_E_FORMAT, "qzeros hold %d at row %lld, group %lld, which "
                           "readers of gptq take for 0 or for %d; was it written as gptq_v2?",
                           q->spec.num->code_max, (long long)(i / q->n_groups),
                           (long long)(i % q->n_groups), q->spec.num->code_max + 1);
    return SW_OK;
}

static sw_code decode(sw_qtensor *q, const void *const parts[], int zero_offset, sw_err *err)
{
    sw_words at;
    sw_code rc;

    if (parts[PART_G_IDX] && (rc = sw_g_idx_load(q, parts[PART_G_IDX], err)) != SW_OK) return rc;
    if (!q->zeros && (rc = check_symmetric(q, parts[PART_QZEROS], zero_offset, err)) != SW_OK)
        return rc;
    sw_packs[SW_PACK_K_WORDS_T].layout(&at, q->n_out, q->k_in, q->spec.num->bits);
    sw_words_unpack(q->codes, parts[PART_QWEIGHT], &at, 0);
    if (q->zeros) {
        zeros_layout(&at, q);
        sw_words_unpack(q->zeros, parts[PART_QZEROS], &at, zero_offset);
    }
    sw_scales_load(q, parts[PART_SCALES], true);
    return q->zeros ? refuse_wrapped(q, zero_offset, err) : SW_OK;
}

static sw_code v1_encode(void *const parts[], const sw_qtensor *q, sw_err *err)
{
    return encode(parts, q, 1, err);
}

static sw_code v2_encode(void *const parts[], const sw_qtensor *q, sw_err *err)
{
    return encode(parts, q, 0, err);
}

static sw_code v1_decode(sw_qtensor *q, const void *const parts[], sw_err *err)
{
    return decode(q, parts, 1, err);
}

static sw_code v2_decode(sw_qtensor *q, const void *const parts[], sw_err *err)
{
    return decode(q, parts, 0, err);
}

/* "-:^model\.layers\.0\.mlp\.gate$": {} is how loaders are told to leave a module alone, and
 * "+:^...$": {"bits": 8, "group_size": 64, "sym": true} to give it another scheme. */
#define IGNORE_HEAD "-:^"
#define OTHER_HEAD "+:^"

static cJSON *add_rule(cJSON *dynamic, const char *head, const char *path)
{
    char rule[1024];
    size_t at = (size_t)snprintf(rule, sizeof rule, "%s", head);

    for (const char *p = path; *p; p++) {
        if (at + 4 > sizeof rule) return NULL;
        if (strchr(".^$*+?()[]{}|\\", *p)) rule[at++] = '\\';
        rule[at++] = *p;
    }
    rule[at++] = '$';
    rule[at] = '\0';
    return cJSON_AddObjectToObject(dynamic, rule);
}

static bool add_below(cJSON *dynamic, const char *module)
{
    char rule[SW_BELOW_BYTES + 8], regex[SW_BELOW_BYTES];

    sw_config_below_regex(regex, module);
    (void)snprintf(rule, sizeof rule, "-:%s", regex);
    return cJSON_AddObjectToObject(dynamic, rule) != NULL;
}

static bool add_dynamic(cJSON *object, const sw_qconfig *config)
{
    cJSON *dynamic;
    bool ok = true;

    if (!config->n_ignore && !config->n_extra_heads && !config->n_rules)
        return cJSON_AddNullToObject(object, "dynamic") != NULL;
    dynamic = cJSON_AddObjectToObject(object, "dynamic");
    for (int64_t i = 0; dynamic && ok && i < config->n_ignore; i++)
        if (!sw_config_extra_head(config, config->ignore[i]) &&
            !sw_config_whole_experts(config, config->ignore[i]))
            ok = add_rule(dynamic, IGNORE_HEAD, config->ignore[i]) != NULL;
    for (int64_t i = 0; dynamic && ok && i < config->n_extra_heads; i++)
        ok = add_below(dynamic, config->extra_heads[i]);
    for (int64_t i = 0; dynamic && ok && i < config->n_whole_experts; i++)
        if (!sw_config_extra_head(config, config->whole_experts[i]))
            ok = add_below(dynamic, config->whole_experts[i]);
    for (int64_t i = 0; dynamic && ok && i < config->n_rules; i++) {
        const sw_qrule *rule = &config->rules[i];
        cJSON *entry;
        if (sw_qspec_same(&rule->spec, &config->spec)) continue;
        entry = add_rule(dynamic, OTHER_HEAD, rule->pattern);
        ok = entry && sw_config_add_spec(entry, &rule->spec);
    }
    return dynamic && ok;
}

static sw_code write_config(cJSON **out, const sw_qconfig *config, const char *checkpoint_format,
                            sw_err *err)
{
    const sw_qspec *spec = &config->spec;
    cJSON *root = cJSON_CreateObject(), *meta, *quantizer = NULL;
    bool ok = root && cJSON_AddStringToObject(root, "quant_method", "gptq") &&
              cJSON_AddNumberToObject(root, "bits", spec->num->bits) &&
              cJSON_AddNumberToObject(root, "group_size", (double)sw_config_group_value(spec)) &&
              cJSON_AddBoolToObject(root, "desc_act", config->desc_act) &&
              cJSON_AddBoolToObject(root, "sym", spec->is_symmetric) &&
              cJSON_AddBoolToObject(root, "lm_head", config->has_head) &&
              cJSON_AddBoolToObject(root, "true_sequential", true) &&
              cJSON_AddBoolToObject(root, "static_groups", !config->desc_act) &&
              (config->damp <= 0 || cJSON_AddNumberToObject(root, "damp_percent", config->damp)) &&
              cJSON_AddStringToObject(root, "checkpoint_format", checkpoint_format) &&
              cJSON_AddStringToObject(root, "pack_dtype", "int32") && add_dynamic(root, config);

    meta = ok ? cJSON_AddObjectToObject(root, "meta") : NULL;
    quantizer = meta ? cJSON_AddArrayToObject(meta, "quantizer") : NULL;
    return sw_config_done(out, root, quantizer && sw_config_append(quantizer, "swage:" SW_VERSION),
                          err);
}

static sw_code v1_write_config(cJSON **out, const sw_qconfig *config, sw_err *err)
{
    return write_config(out, config, "gptq", err);
}

static sw_code v2_write_config(cJSON **out, const sw_qconfig *config, sw_err *err)
{
    return write_config(out, config, "gptq_v2", err);
}

/* The path a pattern of our own form, ^path$, names, or NULL. */
static sw_code rule_path(char **out, const char *pattern, sw_arena *arena, sw_err *err)
{
    size_t n = strlen(pattern);
    char *path = NULL, *to;
    sw_code rc;

    *out = NULL;
    if (n < 3 || pattern[0] != '^' || pattern[n - 1] != '$') return SW_OK;
    if ((rc = sw_arena_text(&path, arena, pattern + 1, n - 2, err)) != SW_OK) return rc;
    to = path;
    for (const char *p = path; *p; p++) {
        if (*p == '\\' && p[1]) p++;
        else if (strchr("^$*+?()[]{}|.\\", *p)) return SW_OK;
        *to++ = *p;
    }
    *to = '\0';
    *out = path;
    return SW_OK;
}

/* A rule with or without "+:": another scheme for what the pattern matches from its start on. */
static sw_code read_other(sw_qrule *out, const cJSON *object, const sw_qspec *all, sw_arena *arena,
                          sw_err *err)
{
    const char *pattern = object->string + (strncmp(object->string, "+:", 2) ? 0 : 2);
    bool desc_act = false;
    char *text = NULL;
    sw_code rc;

    out->spec = *all;
    if ((rc = sw_config_read_spec(&out->spec, object, err)) != SW_OK ||
        (rc = sw_json_bool(&desc_act, object, "desc_act", err)) != SW_OK)
        return rc;
    if ((rc = rule_path(&text, pattern, arena, err)) != SW_OK) return rc;
    out->is_exact = text != NULL;
    if (!text && (rc = sw_arena_text(&text, arena, pattern, strlen(pattern), err)) != SW_OK)
        return rc;
    out->pattern = text;
    return SW_OK;
}

static sw_code read_dynamic(sw_qconfig *out, const cJSON *object, sw_arena *arena, sw_err *err)
{
    const cJSON *dynamic = sw_json_member(object, "dynamic"), *rule;
    const char **ignore = NULL;
    sw_qrule *rules = NULL;
    char *path;
    sw_code rc;

    if (!dynamic) return SW_OK;
    if (!cJSON_IsObject(dynamic)) return SW_FAIL(err, SW_E_FORMAT, "dynamic: not an object");
    if ((rc = SW_ARENA_TAKE(&ignore, arena, cJSON_GetArraySize(dynamic), err)) != SW_OK ||
        (rc = SW_ARENA_TAKE(&rules, arena, cJSON_GetArraySize(dynamic), err)) != SW_OK)
        return rc;
    cJSON_ArrayForEach(rule, dynamic)
    {
        if (strncmp(rule->string, "-:", 2)) {
            rc = read_other(&rules[out->n_rules], rule, &out->spec, arena, err);
            if (rc != SW_OK) {
                sw_err_prefix(err, "dynamic rule \"%.100s\"", rule->string);
                return rc;
            }
            out->n_rules++;
            continue;
        }
        if ((rc = rule_path(&path, rule->string + 2, arena, err)) != SW_OK) return rc;
        if (path) ignore[out->n_ignore++] = path;
    }
    out->ignore = ignore;
    out->rules = rules;
    return SW_OK;
}

static const char *checkpoint_format(const cJSON *object)
{
    const cJSON *format = sw_json_member(object, "checkpoint_format");

    if (!format) format = sw_json_member(object, "format");
    return cJSON_IsString(format) ? format->valuestring : "gptq";
}

static sw_code refuse_kin(const cJSON *object, sw_err *err)
{
    const char *format = checkpoint_format(object), *pack_dtype = "int32";
    bool is_marlin = false, lm_head = false; /* the tensors say as much as that key */
    sw_code rc;

    if ((rc = sw_json_bool(&is_marlin, object, "is_marlin_format", err)) != SW_OK ||
        (rc = sw_json_bool(&lm_head, object, "lm_head", err)) != SW_OK ||
        (rc = sw_json_text(&pack_dtype, object, "pack_dtype", err)) != SW_OK)
        return rc;
    if (is_marlin) format = "marlin";
    if (strcmp(format, "gptq") && strcmp(format, "gptq_v2"))
        return SW_FAIL(err, SW_E_UNSUPPORTED, "checkpoint_format \"%.60s\"; gptq and gptq_v2 can "
                       "be read", format);
    if (strcmp(pack_dtype, "int32"))
        return SW_FAIL(err, SW_E_UNSUPPORTED, "pack_dtype \"%.60s\"; int32 can be read",
                       pack_dtype);
    return SW_OK;
}

/* Older writers said w_bit or wbits, q_group_size, and zero_point for the contrary of sym. */
static sw_code read_scheme(sw_qconfig *out, const cJSON *object, sw_err *err)
{
    const char *group_key = sw_json_member(object, "group_size") ? "group_size" : "q_group_size";
    bool sym = true, zero_point = false;
    int64_t bits = 0;
    sw_code rc;

    if ((rc = sw_json_int(&bits, object, "w_bit", 1, 32, err)) != SW_OK ||
        (rc = sw_json_int(&bits, object, "wbits", 1, 32, err)) != SW_OK ||
        (rc = sw_json_int(&bits, object, "bits", 1, 32, err)) != SW_OK)
        return rc;
    if (!bits) return SW_FAIL(err, SW_E_FORMAT, "quantization_config has no \"bits\"");
    if (!sw_json_member(object, group_key))
        return SW_FAIL(err, SW_E_FORMAT, "quantization_config has no \"group_size\"");
    if ((rc = sw_config_bits(&out->spec.num, bits, err)) != SW_OK ||
        (rc = sw_config_group(&out->spec.group_elems, object, group_key, err)) != SW_OK ||
        (rc = sw_json_bool(&zero_point, object, "zero_point", err)) != SW_OK)
        return rc;
    sym = !zero_point;
    if ((rc = sw_json_bool(&sym, object, "sym", err)) != SW_OK ||
        (rc = sw_json_bool(&out->desc_act, object, "desc_act", err)) != SW_OK)
        return rc;
    out->spec.is_symmetric = sym;
    return sw_json_real(&out->damp, object, "damp_percent", err);
}

static sw_code read_config(sw_qconfig *out, const cJSON *object, sw_arena *arena, sw_err *err)
{
    sw_qconfig config = {.spec.scale_dtype = out->spec.scale_dtype};
    sw_code rc;

    if ((rc = refuse_kin(object, err)) != SW_OK ||
        (rc = read_scheme(&config, object, err)) != SW_OK ||
        (rc = read_dynamic(&config, object, arena, err)) != SW_OK)
        return rc;
    *out = config;
    return SW_OK;
}

static bool is_gptq(const cJSON *object)
{
    const cJSON *method = sw_json_member(object, "quant_method");

    if (!method) method = sw_json_member(object, "method");
    return cJSON_IsString(method) && !strcmp(method->valuestring, "gptq");
}

static bool v2_is_mine(const cJSON *object)
{
    return is_gptq(object) && !strcmp(checkpoint_format(object), "gptq_v2");
}

/* Also those of checkpoint formats that read_config then refuses by name. */
static bool v1_is_mine(const cJSON *object) { return is_gptq(object) && !v2_is_mine(object); }

const sw_dialect sw_dialect_gptq = {
    .name = "gptq",
    .summary = "GPTQ v1: vLLM (symmetric only), SGLang, transformers, ExLlama; zero points from 1",
    .side_config = "quantize_config.json",
    .zero_min = 1,
    .scale_dtype = sw_scale_dtype_f16,
    .can_hold = v1_can_hold,
    .declare = declare,
    .encode = v1_encode,
    .decode = v1_decode,
    .write_config = v1_write_config,
    .read_config = read_config,
    .is_mine = v1_is_mine,
};

const sw_dialect sw_dialect_gptq_v2 = {
    .name = "gptq_v2",
    .summary = "GPTQ v2: as gptq with unchanged zero points; vLLM (symmetric only)",
    .side_config = "quantize_config.json",
    .scale_dtype = sw_scale_dtype_f16,
    .can_hold = v2_can_hold,
    .declare = declare,
    .encode = v2_encode,
    .decode = v2_decode,
    .write_config = v2_write_config,
    .read_config = read_config,
    .is_mine = v2_is_mine,
};
