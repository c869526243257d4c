/* dialect.c - the table of dialects and what its rows share. */
#include "formats/dialect/dialect.h"

#include <stdio.h>
#include <string.h>

#include "formats/base/size.h"
#include "formats/dialect/dialect_common.h"
#include "formats/dialect/dialect_gguf.h"

const sw_dialect *const sw_dialects[] = {
#define SW_DIALECT(symbol, place) &sw_dialect_##symbol,
#include "formats/dialect/dialects.def"
#undef SW_DIALECT
    NULL,
};

#define SW_DIALECT(symbol, place) +1
enum {
    N_DIALECTS = 0
#include "formats/dialect/dialects.def"
};
#undef SW_DIALECT

const sw_dialect *const sw_conversion_dialects[N_DIALECTS + 2] = {
#define SW_DIALECT(symbol, place) [place] = &sw_dialect_##symbol,
#include "formats/dialect/dialects.def"
#undef SW_DIALECT
    [N_DIALECTS] = &sw_dialect_gguf,
};

const sw_dialect *sw_dialect_find(const char *name)
{
    for (const sw_dialect *const *d = sw_dialects; *d; d++)
        if (!strcmp((*d)->name, name)) return *d;
    return NULL;
}

const sw_dialect *sw_dialect_detect(const cJSON *quant_config)
{
    for (const sw_dialect *const *d = sw_dialects; *d; d++)
        if ((*d)->is_mine(quant_config)) return *d;
    return NULL;
}

void sw_dialect_fit_spec(sw_qspec *spec, const sw_dialect *dialect, sw_dtype model_dtype)
{
    if (spec->scale_dtype == SW_DTYPE_F16 || spec->scale_dtype == SW_DTYPE_BF16)
        spec->scale_dtype = dialect->scale_dtype(model_dtype);
    spec->zero_min = dialect->zero_min;
}

sw_part sw_part_single(const char *suffix, sw_dtype dtype)
{
    sw_part part = {.suffix = suffix, .dtype = dtype};
    return part;
}

sw_part sw_part_1d(const char *suffix, sw_dtype dtype, int64_t a)
{
    sw_part part = {.suffix = suffix, .dtype = dtype, .n_dims = 1, .shape = {a}};
    return part;
}

sw_part sw_part_2d(const char *suffix, sw_dtype dtype, int64_t a, int64_t b)
{
    sw_part part = {.suffix = suffix, .dtype = dtype, .n_dims = 2, .shape = {a, b}};
    return part;
}

sw_part sw_part_3d(const char *suffix, sw_dtype dtype, int64_t a, int64_t b, int64_t c)
{
    sw_part part = {.suffix = suffix, .dtype = dtype, .n_dims = 3, .shape = {a, b, c}};
    return part;
}

sw_dtype sw_scale_dtype_f16(sw_dtype model_dtype)
{
    (void)model_dtype;
    return SW_DTYPE_F16;
}

bool sw_dialect_holds_kv(const sw_dialect *dialect, const sw_num *num)
{
    return dialect->holds_kv_scales && (num == &sw_nums[SW_NUM_E4M3] || dialect->names_kv_codes);
}

sw_dtype sw_scale_dtype_like_model(sw_dtype model_dtype)
{
    return model_dtype == SW_DTYPE_BF16 ? SW_DTYPE_BF16 : SW_DTYPE_F16;
}

void sw_scales_store(void *dst, const sw_qtensor *q, bool is_transposed)
{
    size_t bytes = (size_t)sw_dtype_bits(q->spec.scale_dtype) / 8;
    sw_err err = {0};

    for (int64_t n = 0; n < q->n_out; n++)
        for (int64_t g = 0; g < q->n_groups; g++) {
            int64_t at = is_transposed ? g * q->n_out + n : n * q->n_groups + g;
            /* can_hold let no other dtype pass */
            (void)!sw_float_encode_n((uint8_t *)dst + (size_t)at * bytes, q->spec.scale_dtype,
                                     &q->scales[n * q->n_groups + g], 1, &err);
        }
}

void sw_scales_load(sw_qtensor *q, const void *src, bool is_transposed)
{
    size_t bytes = (size_t)sw_dtype_bits(q->spec.scale_dtype) / 8;
    sw_err err = {0};

    for (int64_t n = 0; n < q->n_out; n++)
        for (int64_t g = 0; g < q->n_groups; g++) {
            int64_t at = is_transposed ? g * q->n_out + n : n * q->n_groups + g;
            (void)!sw_float_decode_n(&q->scales[n * q->n_groups + g],
                                     (const uint8_t *)src + (size_t)at * bytes,
                                     q->spec.scale_dtype, 1, &err);
        }
}

/* Names the sizes that would do: those that engines have kernels for, as far as they divide. */
static sw_code refuse_division(const char *dialect, const sw_qspec *spec, int64_t k_in,
                               sw_err *err)
{
    static const int sizes[] = {16, 32, 64, 96, 128, 192, 256, 512, 1024};
    const long long group = (long long)spec->group_elems, inputs = (long long)k_in;
    char text[80] = "";
    size_t at = 0;

    if (spec->num->kind == SW_NUM_FLOAT)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "%s: the blocks of %lld inputs that %s weights come "
                       "in do not divide the %lld inputs; choose a scheme with one scale per "
                       "channel, as FP8_DYNAMIC", dialect, group, spec->num->name, inputs);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (k_in % sizes[i] == 0)
            at += (size_t)snprintf(text + at, sizeof text - at, "%s%d", at ? ", " : "", sizes[i]);
    return SW_FAIL(err, SW_E_UNSUPPORTED, "%s: groups of %lld do not divide the %lld inputs; "
                   "%s%sone group per channel would", dialect, group, inputs, text,
                   at ? " or " : "");
}

sw_code sw_hold_division(const char *dialect, const sw_qspec *spec, int64_t k_in, sw_err *err)
{
    char widths[SW_NUM_WIDTHS_BYTES];

    if (spec->n_outliers)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "%s has no place for outlier channels; use --format "
                       "swage, or --outliers 0", dialect);
    if (!spec->num)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "%s: no such weight width; %s bits are", dialect,
                       sw_num_widths(widths));
    if (spec->num->kind == SW_NUM_INT &&
        (spec->has_global || sw_dtype_bits(spec->scale_dtype) < 16))
        return SW_FAIL(err, SW_E_UNSUPPORTED, "%s: %s weights under %s scales; an override cannot "
                       "change the width of a small float", dialect, spec->num->name,
                       sw_dtype_name(spec->scale_dtype));
    if (spec->num->kind == SW_NUM_FLOAT && !spec->is_symmetric)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "%s: %s weights have no zero points", dialect,
                       spec->num->name);
    return spec->group_elems && k_in % spec->group_elems
               ? refuse_division(dialect, spec, k_in, err)
               : SW_OK;
}

sw_code sw_hold_classic(const char *dialect, const sw_qspec *spec, sw_err *err)
{
    if (!spec->num || sw_spec_is_classic(spec)) return SW_OK;
    return SW_FAIL(err, SW_E_UNSUPPORTED, "%s: holds integer weights under scales of their own, "
                   "with inputs as they are; for other schemes use --format compressed-tensors or "
                   "swage", dialect);
}

sw_code sw_hold_neighbours(const char *dialect, const sw_qspec *spec, sw_err *err)
{
    if (!spec->is_scattered) return SW_OK;
    return SW_FAIL(err, SW_E_UNSUPPORTED, "%s: has groups of neighbouring columns, and act-order "
                   "(a g_idx) scatters these; use --format gptq, gptq_v2 or compressed-tensors",
                   dialect);
}

sw_code sw_encode_neighbours(const char *dialect, const sw_qtensor *q, const char *remedy,
                             sw_err *err)
{
    if (!q->g_idx) return SW_OK;
    return SW_FAIL(err, SW_E_UNSUPPORTED, "%s has groups of neighbouring columns, and a g_idx "
                   "scatters these%s", dialect, remedy);
}

sw_code sw_hold_groups(const char *dialect, const sw_qspec *spec, int64_t k_in, sw_err *err)
{
    sw_code rc = sw_hold_classic(dialect, spec, err);

    if (rc != SW_OK || (rc = sw_hold_division(dialect, spec, k_in, err)) != SW_OK) return rc;
    if (spec->scale_dtype != SW_DTYPE_F16 && spec->scale_dtype != SW_DTYPE_BF16)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "%s: scales are F16 or BF16, not %s", dialect,
                       sw_dtype_name(spec->scale_dtype));
    return SW_OK;
}

void sw_g_idx_store(void *dst, const sw_qtensor *q)
{
    for (int64_t k = 0; k < q->k_in; k++) {
        int64_t group = q->spec.group_elems ? k / q->spec.group_elems : 0;
        sw_store_le32((uint8_t *)dst + 4 * k, q->g_idx ? (uint32_t)q->g_idx[k] : (uint32_t)group);
    }
}

/* Keep a g_idx only when it says more than k / group. */
sw_code sw_g_idx_load(sw_qtensor *q, const void *src, sw_err *err)
{
    const uint8_t *stored = src;
    bool is_plain = true;
    sw_code rc;

    for (int64_t k = 0; k < q->k_in; k++) {
        int32_t group = (int32_t)sw_load_le32(stored + 4 * k);
        if (group < 0 || group >= q->n_groups)
            return SW_FAIL(err, SW_E_FORMAT, "g_idx[%lld] = %d, there are %lld groups",
                           (long long)k, group, (long long)q->n_groups);
        if (group != (q->spec.group_elems ? k / q->spec.group_elems : 0)) is_plain = false;
    }
    q->spec.is_scattered = !is_plain;
    if (is_plain) return SW_OK;
    if (!q->g_idx && (rc = SW_MEM_GET(&q->g_idx, q->k_in, "g_idx", err)) != SW_OK) return rc;
    for (int64_t k = 0; k < q->k_in; k++) q->g_idx[k] = (int32_t)sw_load_le32(stored + 4 * k);
    return SW_OK;
}

void sw_shape_store(void *dst, const sw_qtensor *q)
{
    sw_store_le64(dst, (uint64_t)q->n_out);
    sw_store_le64((uint8_t *)dst + 8, (uint64_t)q->k_in);
}

sw_code sw_shape_check(const void *src, const char *suffix, int64_t n_out, int64_t k_in,
                       sw_err *err)
{
    uint64_t stored_n = sw_load_le64(src), stored_k = sw_load_le64((const uint8_t *)src + 8);

    if (stored_n != (uint64_t)n_out || stored_k != (uint64_t)k_in)
        return SW_FAIL(err, SW_E_FORMAT, "%s says [%lld, %lld], the model says [%lld, %lld]",
                       suffix, (long long)stored_n, (long long)stored_k, (long long)n_out,
                       (long long)k_in);
    return SW_OK;
}

sw_code sw_config_bits(const sw_num **out, int64_t bits, sw_err *err)
{
    const sw_num *num = bits > 0 && bits <= 8 ? sw_num_by_bits((int)bits) : NULL;
    char widths[SW_NUM_WIDTHS_BYTES];

    if (!num)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "%lld-bit integer weights; %s bits can be read",
                       (long long)bits, sw_num_widths(widths));
    *out = num;
    return SW_OK;
}

sw_code sw_config_group(int64_t *out, const cJSON *object, const char *key, sw_err *err)
{
    int64_t group = -1;
    sw_code rc;

    if ((rc = sw_json_int(&group, object, key, -1, 1 << 24, err)) != SW_OK) return rc;
    if (group != -1 && (group < 8 || group % 8))
        return SW_FAIL(err, SW_E_UNSUPPORTED, "%s %lld: -1 or a positive multiple of 8 can be read",
                       key, (long long)group);
    *out = group == -1 ? 0 : group;
    return SW_OK;
}

int64_t sw_config_group_value(const sw_qspec *spec)
{
    return spec->group_elems ? spec->group_elems : -1;
}

bool sw_config_add_spec(cJSON *object, const sw_qspec *spec)
{
    return cJSON_AddNumberToObject(object, "bits", spec->num->bits) &&
           cJSON_AddNumberToObject(object, "group_size", (double)sw_config_group_value(spec)) &&
           cJSON_AddBoolToObject(object, "sym", spec->is_symmetric) &&
           (!spec->n_outliers ||
            cJSON_AddNumberToObject(object, "outliers", (double)spec->n_outliers));
}

sw_code sw_config_read_bits(const sw_num **num, const cJSON *object, sw_err *err)
{
    int64_t bits = *num ? (*num)->bits : 0;
    sw_code rc = sw_json_int(&bits, object, "bits", 1, 64, err);

    if (rc != SW_OK) return rc;
    for (int i = 0; i < SW_NUM_COUNT && sw_json_member(object, "weights"); i++)
        if (sw_nums[i].bits == bits) {
            *num = &sw_nums[i];
            return SW_OK;
        }
    return sw_config_bits(num, bits, err);
}

sw_code sw_config_read_spec(sw_qspec *spec, const cJSON *object, sw_err *err)
{
    int64_t bits = spec->num ? spec->num->bits : 0;
    sw_code rc;

    if ((rc = sw_json_int(&bits, object, "bits", 1, 64, err)) != SW_OK ||
        (rc = sw_config_bits(&spec->num, bits, err)) != SW_OK)
        return rc;
    return sw_config_read_shape(spec, object, err);
}

sw_code sw_config_read_shape(sw_qspec *spec, const cJSON *object, sw_err *err)
{
    sw_code rc;

    if ((rc = sw_json_bool(&spec->is_symmetric, object, "sym", err)) != SW_OK ||
        (rc = sw_json_int(&spec->n_outliers, object, "outliers", 0, INT32_MAX, err)) != SW_OK)
        return rc;
    if (!sw_json_member(object, "group_size")) return SW_OK;
    return sw_config_group(&spec->group_elems, object, "group_size", err);
}

bool sw_config_is_one(const sw_qspec *a, const sw_qspec *b)
{
    return sw_qspec_same(a, b) && a->is_scattered == b->is_scattered;
}

bool sw_config_is_first(const sw_qconfig *config, int64_t at)
{
    for (int64_t i = 0; i < at; i++)
        if (sw_config_is_one(&config->rules[i].spec, &config->rules[at].spec)) return false;
    return true;
}

bool sw_config_method_is(const cJSON *object, const char *method)
{
    const cJSON *named = sw_json_member(object, "quant_method");

    return cJSON_IsString(named) && !strcmp(named->valuestring, method);
}

sw_code sw_config_one_scheme(const char *dialect, const sw_qconfig *config, const char *elsewhere,
                             sw_err *err)
{
    for (int64_t i = 0; i < config->n_rules; i++)
        if (!sw_qspec_same(&config->rules[i].spec, &config->spec))
            return SW_FAIL(err, SW_E_UNSUPPORTED, "%s: one scheme holds for all linears, and %s "
                           "has another than most; %s", dialect, config->rules[i].pattern,
                           elsewhere);
    return SW_OK;
}

sw_code sw_config_done(cJSON **out, cJSON *object, bool is_complete, sw_err *err)
{
    if (!is_complete) {
        cJSON_Delete(object);
        return SW_FAIL(err, SW_E_NOMEM, "no memory for quantization_config");
    }
    *out = object;
    return SW_OK;
}

bool sw_config_append(cJSON *array, const char *text)
{
    cJSON *item = cJSON_CreateString(text);

    if (item && cJSON_AddItemToArray(array, item)) return true;
    cJSON_Delete(item);
    return false;
}

static const char *find_above(const char *const *modules, int64_t n_modules, const char *path)
{
    for (int64_t i = 0; i < n_modules; i++) {
        const size_t n = strlen(modules[i]);

        if (!strncmp(path, modules[i], n) && (path[n] == '.' || !path[n])) return modules[i];
    }
    return NULL;
}

const char *sw_config_extra_head(const sw_qconfig *config, const char *path)
{
    return find_above(config->extra_heads, config->n_extra_heads, path);
}

const char *sw_config_whole_experts(const sw_qconfig *config, const char *path)
{
    return find_above(config->whole_experts, config->n_whole_experts, path);
}

void sw_config_below_regex(char out[SW_BELOW_BYTES], const char *module)
{
    size_t n = 0;
    char last = '\0';

    out[n++] = '^';
    for (; *module && n < SW_BELOW_BYTES - 8; last = *module++) {
        if (*module == '.') out[n++] = '\\';
        out[n++] = *module;
    }
    /* a layer's number ends here, and a name may go on */
    (void)snprintf(out + n, SW_BELOW_BYTES - n, "%s", last >= '0' && last <= '9' ? "\\..*" : ".*");
}

static bool append_below(cJSON *list, const char *module, sw_below below)
{
    char text[SW_BELOW_BYTES + 8], regex[SW_BELOW_BYTES];

    sw_config_below_regex(regex, module);
    if (below == SW_BELOW_REGEX)
        (void)snprintf(text, sizeof text, "re:%s", regex);
    else
        (void)snprintf(text, sizeof text, "%s%s", module, below == SW_BELOW_STAR ? "*" : "");
    return sw_config_append(list, text);
}

bool sw_config_add_ignored(cJSON *object, const char *key, const sw_qconfig *config,
                           bool with_head, sw_below below)
{
    cJSON *list = cJSON_AddArrayToObject(object, key);
    bool ok = list != NULL;

    with_head = with_head && !config->has_head;
    for (int64_t i = 0; ok && i < config->n_ignore; i++) {
        with_head = with_head && strcmp(config->ignore[i], "lm_head") != 0;
        if (below == SW_BELOW_PATHS || (!sw_config_extra_head(config, config->ignore[i]) &&
                                        !(below == SW_BELOW_REGEX &&
                                          sw_config_whole_experts(config, config->ignore[i]))))
            ok = sw_config_append(list, config->ignore[i]);
    }
    for (int64_t i = 0; ok && i < config->n_extra_heads; i++)
        ok = append_below(list, config->extra_heads[i], below);
    for (int64_t i = 0; ok && below == SW_BELOW_REGEX && i < config->n_whole_experts; i++)
        if (!sw_config_extra_head(config, config->whole_experts[i]))
            ok = append_below(list, config->whole_experts[i], below);
    return ok && (!with_head || sw_config_append(list, "lm_head"));
}

sw_code sw_config_read_ignore(sw_qconfig *out, const cJSON *object, const char *key,
                              sw_arena *arena, sw_err *err)
{
    const cJSON *list = sw_json_member(object, key), *item;
    const char **ignore = NULL;
    char *text;
    sw_code rc;

    if (list && !cJSON_IsArray(list)) return SW_FAIL(err, SW_E_FORMAT, "%s: not a list", key);
    if ((rc = SW_ARENA_TAKE(&ignore, arena, cJSON_GetArraySize(list), err)) != SW_OK) return rc;
    cJSON_ArrayForEach(item, list)
    {
        if (!cJSON_IsString(item))
            return SW_FAIL(err, SW_E_FORMAT, "%s: not a list of texts", key);
        rc = sw_arena_text(&text, arena, item->valuestring, strlen(item->valuestring), err);
        if (rc != SW_OK) return rc;
        ignore[out->n_ignore++] = text;
    }
    out->ignore = ignore;
    return SW_OK;
}
