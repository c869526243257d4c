/* config_groups.c - see checks.h: fields of a scheme that decoding does not need.
 *
 * Loaders build the same arguments out of "weights" and "input_activations" and check them before
 * a tensor is read (QuantizationArgs of the library compressed-tensors, which vLLM, SGLang and
 * transformers share), then look for a kernel that has all of them (vLLM's get_scheme). A field
 * that has no part in decoding, like the group size of whole channels, is held to it here.
 *
 * Exports of modelopt say their scheme a second time in such groups. Loaders go by quant_algo, but
 * for one field: SGLang takes the group size of nvfp4 from the first group. */
#include <stdio.h>
#include <string.h>

#include "verify/checks/checks.h"
#include "verify/checks/json_diff.h"
#include "verify/decoders/decode_spec_parts.h"

typedef struct args {
    const cJSON *config, *group, *own; /* own: "weights" or "input_activations" of the group */
} args;

static const char *text_of(const cJSON *object, const char *key, const char *otherwise)
{
    const cJSON *member = sw_json_member(object, key);

    return cJSON_IsString(member) ? member->valuestring : otherwise;
}

/* A strategy that is not said follows from the group size, and contradicts nothing. */
static bool has_strategy_but(const args *a, const char *one, const char *other)
{
    const char *strategy = text_of(a->own, "strategy", one);

    return strcmp(strategy, one) != 0 && (!other || strcmp(strategy, other) != 0);
}

static bool has_lone_group_size(const args *a)
{
    const cJSON *size = sw_json_member(a->own, "group_size");

    return cJSON_IsNumber(size) && size->valuedouble > 0 &&
           has_strategy_but(a, "group", "tensor_group");
}

static bool has_lone_block(const args *a)
{
    return !sw_json_is_nothing(sw_json_member(a->own, "block_structure")) &&
           has_strategy_but(a, "block", NULL);
}

static bool has_lone_order(const args *a)
{
    const cJSON *order = sw_json_member(a->own, "actorder");
    const char *said = text_of(a->own, "actorder", "");

    return (cJSON_IsTrue(order) || !strcmp(said, "group") || !strcmp(said, "dynamic")) &&
           has_strategy_but(a, "group", "tensor_group");
}

/* The inputs that share a scale of a weight; 0: all. */
static double width_of_scales(const cJSON *weights)
{
    const cJSON *sides = sw_json_member(weights, "block_structure");
    const cJSON *size = sw_json_member(weights, "group_size");

    if (cJSON_IsArray(sides)) size = cJSON_GetArrayItem(sides, 1);
    return cJSON_IsNumber(size) && size->valuedouble > 0 ? size->valuedouble : 0;
}

/* Kernels that round inputs in groups take those of the weights. */
static bool has_other_groups_than_weights(const args *a)
{
    const double want = width_of_scales(sw_json_member(a->group, "weights"));
    const double have = width_of_scales(a->own);

    return want > 0 && have > 0 && have != want;
}

/* Only integers in words have zero points: floats, and integers one a byte, have none. */
static bool has_no_place_for_zeros(const args *a)
{
    const char *packed = "pack-quantized", *format;
    const bool quantizes_inputs = cJSON_IsObject(sw_json_member(a->group, "input_activations"));

    if (!cJSON_IsFalse(sw_json_member(a->own, "symmetric"))) return false;
    if (!strcmp(text_of(a->own, "type", "int"), "float")) return true;
    format = text_of(a->config, "format", quantizes_inputs ? "int-quantized" : packed);
    if (!strcmp(format, "mixed-precision")) format = quantizes_inputs ? "int-quantized" : packed;
    return strcmp(text_of(a->group, "format", format), packed) != 0;
}

static bool is_of_run_time(const args *a)
{
    const cJSON *dynamic = sw_json_member(a->own, "dynamic");

    return dynamic && !cJSON_IsNull(dynamic) && !cJSON_IsFalse(dynamic);
}

static const struct {
    const char *of, *key;
    bool (*is_wrong)(const args *a);
    const char *why;
} rules[] = {
    {"weights", "group_size", has_lone_group_size, "only the strategies group and tensor_group "
     "have groups, and loaders refuse the pair"},
    {"input_activations", "group_size", has_lone_group_size, "only the strategies group and "
     "tensor_group have groups, and loaders refuse the pair"},
    {"input_activations", "group_size", has_other_groups_than_weights, "weights have scales for "
     "another number of inputs, and no kernel takes both"},
    {"weights", "block_structure", has_lone_block, "only the strategy block has blocks, and "
     "loaders refuse the pair"},
    {"weights", "actorder", has_lone_order, "only the strategies group and tensor_group have "
     "columns in another order, and loaders refuse the pair"},
    {"weights", "symmetric", has_no_place_for_zeros, "codes of this type and format have no zero "
     "points, and vLLM has no kernel that wants some"},
    {"weights", "dynamic", is_of_run_time, "the scales of weights are stored, and vLLM has no "
     "kernel that makes them"},
};

static sw_code check_group(sw_report *report, const cJSON *config, const cJSON *group, sw_err *err)
{
    sw_code rc = SW_OK;

    for (size_t i = 0; i < sizeof rules / sizeof *rules && rc == SW_OK; i++) {
        const args a = {config, group, sw_json_member(group, rules[i].of)};
        char have[SW_JSON_DIFF_TEXT_BYTES];

        if (!cJSON_IsObject(a.own) || !rules[i].is_wrong(&a)) continue;
        sw_json_brief(have, sw_json_member(a.own, rules[i].key));
        rc = sw_report_find(report, "config", rules[i].key, err, "config.json: quantization_config."
                            "config_groups.%.60s.%s.%s is %s under strategy \"%.30s\": %s",
                            group->string, rules[i].of, rules[i].key, have,
                            text_of(a.own, "strategy", ""), rules[i].why);
    }
    return rc;
}

static sw_code check_ct(sw_report *report, const cJSON *config, sw_err *err)
{
    const cJSON *group;
    sw_code rc = SW_OK;

    cJSON_ArrayForEach(group, sw_json_member(config, "config_groups"))
        if (rc == SW_OK) rc = check_group(report, config, group, err);
    return rc;
}

static bool is_other(const cJSON *number, int64_t want)
{
    return cJSON_IsNumber(number) && number->valuedouble > 0 && number->valuedouble != (double)want;
}

static sw_code check_modelopt(sw_report *report, const sw_spec_scheme *scheme, const cJSON *config,
                              sw_err *err)
{
    static const char *const keys[] = {"group_size", "num_bits"};
    const int64_t wants[] = {scheme->group_elems, scheme->bits};
    const cJSON *groups = sw_json_member(config, "config_groups");
    const cJSON *group = cJSON_IsObject(groups) ? groups->child : NULL;
    const cJSON *weights = sw_json_member(group, "weights");
    sw_code rc = SW_OK;

    if (scheme->mixed) return SW_OK; /* quantized_layers speak then */
    for (int i = 0; i < 2 && rc == SW_OK; i++) {
        const cJSON *have = sw_json_member(weights, keys[i]);
        char text[200];

        if (!wants[i] || !is_other(have, wants[i])) continue;
        (void)snprintf(text, sizeof text, "config.json: quantization_config.config_groups.%.60s."
                       "weights.%s is %.9g, and %lld is stored", group->string, keys[i],
                       have->valuedouble, (long long)wants[i]);
        if (i == 0 && !sw_json_member(config, keys[i]))
            rc = sw_report_find(report, "config", keys[i], err, "%s: SGLang goes by it", text);
        else
            rc = sw_report_remark(report, err, "%s; no loader is known to go by it", text);
    }
    return rc;
}

static bool is_like(const sw_spec_scheme *a, const sw_spec_scheme *b)
{
    return a->bits == b->bits && a->group_elems == b->group_elems &&
           a->is_symmetric == b->is_symmetric;
}

/* Swage tiles may have a scheme for each linear; what stands outside of "modules" is then that of
 * none, and may be anything. */
static sw_code check_swage(sw_report *report, const sw_subject *s, sw_err *err)
{
    sw_subject_linear *linears;
    bool is_used = !s->scheme.mixed;
    sw_arena arena = {0};
    int64_t n = 0;
    sw_code rc = sw_subject_linears(&linears, &n, &s->model, &arena, err);

    for (int64_t i = 0; i < n && rc == SW_OK && !is_used; i++) {
        sw_spec_scheme own;
        sw_err ignored = {0};

        is_used = sw_spec_is_quantized(&s->scheme, s->st, linears[i].path) &&
                  sw_spec_scheme_of(&own, &s->scheme, linears[i].path, &ignored) == SW_OK &&
                  is_like(&own, &s->scheme);
    }
    sw_arena_free(&arena);
    if (rc != SW_OK || is_used) return rc;
    return sw_report_remark(report, err, "config.json: quantization_config says %d bits, group "
                            "size %lld, %s, which is the scheme of no linear: modules has others "
                            "for all of them", s->scheme.bits, (long long)s->scheme.group_elems,
                            s->scheme.is_symmetric ? "symmetric" : "asymmetric");
}

sw_code sw_verify_config_groups(sw_report *report, const sw_subject *checkpoint, sw_err *err)
{
    const cJSON *config = sw_json_member(checkpoint->config, "quantization_config");
    const sw_spec_scheme *scheme = &checkpoint->scheme;

    if (scheme->reader == &sw_spec_ct) return check_ct(report, config, err);
    if (scheme->reader == &sw_spec_swage) return check_swage(report, checkpoint, err);
    if (scheme->reader != &sw_spec_modelopt) return SW_OK;
    return check_modelopt(report, scheme, config, err);
}
