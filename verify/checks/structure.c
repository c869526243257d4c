/* structure.c - see checks.h. */
#include "verify/checks/checks.h"

#include <stdio.h>
#include <string.h>

#include "formats/base/mem.h"
#include "formats/base/size.h"
#include "formats/io/file.h"
#include "formats/io/file_content.h"
#include "formats/num/finite.h"
#include "verify/checks/claims.h"
#include "verify/checks/json_diff.h"
#include "verify/decoders/decode_spec_parts.h"

typedef struct place {
    sw_report *report;
    const sw_subject *s;
    sw_err *err;
} place;

static bool is_float(sw_dtype dtype)
{
    return dtype == SW_DTYPE_F16 || dtype == SW_DTYPE_BF16 || dtype == SW_DTYPE_F32 ||
           dtype == SW_DTYPE_F64;
}

/* Floats of a linear that is quantized: of its own, or of all experts. */
static const sw_st_tensor *floats_beside(const sw_subject *s, const sw_subject_linear *l)
{
    const sw_st_tensor *t = sw_spec_find(s->st, l->path, "weight");
    const char *at = strstr(l->path, ".experts."), *leaf = strrchr(l->path, '.');
    char name[320];

    if (t && is_float(t->view.dtype)) return t;
    if (t && sw_spec_find(s->st, l->path, "weight_packed")) return t;
    if (!at || !leaf) return NULL;
    (void)snprintf(name, sizeof name, "%.*s.experts.%s", (int)(at - l->path), l->path,
                   strcmp(leaf, ".down_proj") ? "gate_up_proj" : "down_proj");
    t = sw_st_find(s->st, name);
    return t && is_float(t->view.dtype) ? t : NULL;
}

/* What a part is there for. */
typedef enum need { NEED_ZEROS, NEED_GLOBAL, NEED_INPUT, NEED_OUTLIERS } need;

static const struct {
    const char *suffix;
    need need;
} optional_parts[] = {
    {"weight_zero_point", NEED_ZEROS},  {"tile_zeros", NEED_ZEROS},
    {"zp", NEED_ZEROS},                 {"weight_global_scale", NEED_GLOBAL},
    {"tile_global", NEED_GLOBAL},       {"weight_scale_2", NEED_GLOBAL},
    {"input_scale", NEED_INPUT},        {"activation_scale", NEED_INPUT},
    {"input_global_scale", NEED_INPUT}, {"outlier_index", NEED_OUTLIERS},
    {"outlier_values", NEED_OUTLIERS},
};

static bool is_needed(need n, const sw_spec_scheme *scheme)
{
    if (n == NEED_ZEROS) return !scheme->is_symmetric;
    if (n == NEED_GLOBAL) return scheme->has_global;
    return n == NEED_INPUT ? scheme->has_input_scale : scheme->n_outliers > 0;
}

/* Older writers store zero points of symmetric schemes, all of them 0. */
static sw_code is_all_zero(bool *out, const sw_st_tensor *t, sw_err *err)
{
    sw_st_bytes bytes = {0};
    sw_code rc = sw_st_fetch(&bytes, t, err);

    *out = rc == SW_OK;
    for (size_t i = 0; *out && i < t->view.size_bytes; i++)
        *out = !((const unsigned char *)bytes.data)[i];
    sw_st_drop(&bytes);
    return rc;
}

static sw_code check_parts(const place *p, const sw_subject_linear *l)
{
    sw_spec_scheme scheme;
    bool is_nothing;
    sw_err ignored = {0};
    sw_code rc = SW_OK;

    if (sw_spec_scheme_of(&scheme, &p->s->scheme, l->path, &ignored) != SW_OK) return SW_OK;
    for (size_t i = 0; i < sizeof optional_parts / sizeof *optional_parts && rc == SW_OK; i++) {
        const char *suffix = optional_parts[i].suffix;
        const sw_st_tensor *t = sw_spec_find(p->s->st, l->path, suffix);

        if (!t || !sw_spec_is_part(&scheme, suffix)) continue;
        if (is_needed(optional_parts[i].need, &scheme)) continue;
        is_nothing = false;
        if (optional_parts[i].need == NEED_ZEROS &&
            (rc = is_all_zero(&is_nothing, t, p->err)) != SW_OK)
            return rc;
        if (is_nothing) continue;
        rc = sw_report_find(p->report, "unexpected", t->name, p->err, "%s is stored, but the "
                            "scheme in the config has no use for it", t->name);
    }
    return rc;
}

/* Engines read g_idx only where desc_act is said: else groups must be in order. */
static sw_code check_order(const place *p, const sw_subject_linear *l)
{
    const sw_st_tensor *t = sw_spec_find(p->s->st, l->path, "g_idx");
    sw_spec_scheme scheme;
    sw_err ignored = {0};
    const unsigned char *bytes;
    int64_t group;

    if (!t || !t->view.data || t->view.dtype != SW_DTYPE_I32 || t->view.n_dims != 1 ||
        sw_spec_scheme_of(&scheme, &p->s->scheme, l->path, &ignored) != SW_OK ||
        scheme.wants_g_idx)
        return SW_OK;
    bytes = t->view.data;
    group = scheme.group_elems ? scheme.group_elems : l->ref.k_in;
    for (int64_t k = 0; k < t->view.shape[0]; k++) {
        if ((int64_t)sw_load_le32(bytes + 4 * k) == k / group) continue;
        return sw_report_find(p->report, "config", t->name, p->err, "%s: input %lld is of another "
                              "group than its place says, but desc_act is false", t->name,
                              (long long)k);
    }
    return SW_OK;
}

static sw_code check_stored(const place *p, const sw_subject_linear *l)
{
    const sw_st_tensor *beside = floats_beside(p->s, l);
    const char *format = NULL;
    sw_code rc = SW_OK;

    if (beside)
        rc = sw_report_find(p->report, "twice", beside->name, p->err, "%s is there besides the "
                            "codes of %s: engines take the one or the other", beside->name,
                            l->path);
    if (rc == SW_OK) rc = sw_claim_wrong_format(&format, p->s, l, p->err);
    if (rc == SW_OK && format)
        rc = sw_report_find(p->report, "config", l->path, p->err, "quantization_config says format "
                            "\"%.60s\" of %s, which is stored in another", format, l->path);
    if (rc == SW_OK) rc = check_order(p, l);
    return rc == SW_OK ? check_parts(p, l) : rc;
}

/* Codes without a config that speaks of them. */
static sw_code check_floats(const place *p, const sw_subject_linear *l)
{
    const sw_st_tensor *t = sw_spec_find(p->s->st, l->path, "weight");
    char text[160];

    if (!t || is_float(t->view.dtype)) return SW_OK;
    sw_view_describe(text, sizeof text, &t->view);
    return sw_report_find(p->report, "config", t->name, p->err, "%s is %s, and nothing says how to "
                          "read it", t->name, text);
}

static sw_code check_linear(const place *p, const sw_subject_linear *l)
{
    const bool is_stored = sw_spec_is_quantized(&p->s->scheme, p->s->st, l->path);
    const char *why;
    sw_claim claim;
    sw_err local = {0};
    sw_code rc = sw_claim_of(&claim, &why, p->s, l, &local);

    if (rc == SW_E_FORMAT)
        return sw_report_find(p->report, "config", l->path, p->err, "quantization_config: %s",
                              local.text);
    if (rc != SW_OK) {
        *p->err = local;
        return rc;
    }
    if (is_stored && claim == SW_CLAIM_FLOATS)
        rc = sw_report_find(p->report, "config", l->path, p->err, "%s is stored quantized, but "
                            "quantization_config tells engines that it is not (%.100s)", l->path,
                            why);
    if (!is_stored && claim == SW_CLAIM_CODES)
        rc = sw_report_find(p->report, "config", l->path, p->err, "%s is not stored quantized, but "
                            "quantization_config tells engines that it is (%.100s)", l->path, why);
    if (rc == SW_OK && is_stored) return check_stored(p, l);
    return rc == SW_OK ? check_floats(p, l) : rc;
}

static sw_code check_linears(const place *p)
{
    sw_arena arena = {0};
    sw_subject_linear *linears;
    int64_t n = 0;
    sw_code rc = sw_subject_linears(&linears, &n, &p->s->model, &arena, p->err);

    for (int64_t i = 0; i < n && rc == SW_OK; i++) rc = check_linear(p, &linears[i]);
    sw_arena_free(&arena);
    return rc;
}

/* Parts of quantized linears are for their decoder to judge. */
static bool is_decoded(const sw_subject *s, const sw_st_tensor *t)
{
    const char *dot = strrchr(t->name, '.');
    char path[512];

    if (!dot || (size_t)(dot - t->name) >= sizeof path) return false;
    memcpy(path, t->name, (size_t)(dot - t->name));
    path[dot - t->name] = '\0';
    return sw_spec_is_part(&s->scheme, dot + 1) && sw_spec_is_quantized(&s->scheme, s->st, path);
}

static sw_code check_finite(const place *p, int n_threads)
{
    sw_code rc = SW_OK;

    for (int64_t i = 0; i < sw_st_count(p->s->st) && rc == SW_OK; i++) {
        const sw_st_tensor *t = sw_st_at(p->s->st, i);
        sw_st_bytes bytes = {0};
        int64_t at = -1;

        if (!is_float(t->view.dtype) || is_decoded(p->s, t)) continue;
        rc = sw_st_fetch(&bytes, t, p->err);
        if (rc == SW_OK)
            at = sw_first_not_finite(bytes.data, t->view.dtype, sw_view_elems(&t->view),
                                     n_threads);
        sw_st_drop(&bytes);
        sw_st_forget_tensor(p->s->st, t);
        if (at >= 0)
            rc = sw_report_find(p->report, "not finite", t->name, p->err, "%s: element %lld is no "
                                "finite number", t->name, (long long)at);
    }
    return rc;
}

static sw_code is_same_tensor(bool *out, const sw_st_tensor *a, const sw_st_tensor *b, sw_err *err)
{
    sw_st_bytes x = {0}, y = {0};
    sw_code rc = SW_OK;

    *out = a->view.dtype == b->view.dtype && a->view.size_bytes == b->view.size_bytes;
    if (!*out) return SW_OK;
    if ((rc = sw_st_fetch(&x, a, err)) == SW_OK && (rc = sw_st_fetch(&y, b, err)) == SW_OK)
        *out = !memcmp(x.data, y.data, a->view.size_bytes);
    sw_st_drop(&x);
    sw_st_drop(&y);
    return rc;
}

/* Engines that tie take the embedding, others the head: the two must be one. */
static sw_code check_head(const place *p)
{
    const sw_model *m = &p->s->model;
    const char *path = sw_model_end(m, SW_END_HEAD);
    const sw_st_tensor *head = sw_spec_find(p->s->st, path, "weight");
    const sw_st_tensor *embed = sw_spec_find(p->s->st, sw_model_end(m, SW_END_EMBED),
                                             "weight");
    const bool is_coded = sw_spec_is_quantized(&p->s->scheme, p->s->st, path);
    bool is_same = false;
    sw_code rc;

    if (!m->is_tied || p->s->is_gguf || !(head || is_coded)) return SW_OK;
    if (!is_coded && embed && (rc = is_same_tensor(&is_same, head, embed, p->err)) != SW_OK)
        return rc;
    if (is_same) return SW_OK;
    return sw_report_find(p->report, "differs", path, p->err, "%s is stored and is "
                          "not the embedding, to which the config ties it", path);
}

/* Scales of a cache that the config does not mention are read by some engines and not by others. */
static sw_code check_cache(const place *p)
{
    const cJSON *config = sw_json_member(p->s->config, "quantization_config");
    const sw_st_tensor *scale = NULL;
    char path[256];

    if (p->s->scheme.reader != &sw_spec_ct || sw_json_member(config, "kv_cache_scheme"))
        return SW_OK;
    for (int64_t l = 0; l < p->s->model.n_layers && !scale; l++)
        if (sw_model_attention_path(path, &p->s->model, l))
            scale = sw_spec_find(p->s->st, path, "k_scale");
    if (!scale) return SW_OK;
    return sw_report_find(p->report, "config", "kv_cache_scheme", p->err, "%s is stored, but "
                          "quantization_config has no kv_cache_scheme", scale->name);
}

/* What engines would do to weights or inputs beside what is judged here. */
static sw_code check_extras(const place *p)
{
    static const char *const keys[] = {"transform_config", "sparsity_config"};
    const cJSON *config = sw_json_member(p->s->config, "quantization_config");
    sw_code rc = SW_OK;

    for (int i = 0; i < 2 && rc == SW_OK; i++) {
        const cJSON *extra = sw_json_member(config, keys[i]);
        const cJSON *format = sw_json_member(extra, "format");

        if (sw_json_is_nothing(extra)) continue;
        if (cJSON_IsString(format) && !strcmp(format->valuestring, "dense")) continue;
        rc = sw_report_find(p->report, "config", keys[i], p->err, "quantization_config has a %s, "
                            "which is not judged here", keys[i]);
    }
    return rc;
}

/* Older engines read the scheme in a file of its own, which must say what config.json says. */
static sw_code check_side_config(const place *p, const char *name)
{
    const cJSON *config = sw_json_member(p->s->config, "quantization_config"), *said, *body;
    char path[SW_PATH_BYTES], have[SW_JSON_DIFF_TEXT_BYTES], want[SW_JSON_DIFF_TEXT_BYTES];
    cJSON *side = NULL;
    sw_err why = {0};
    sw_code rc = sw_path_join(path, p->s->dir, name, p->err);

    if (rc != SW_OK || !config || !sw_path_exists(path)) return rc;
    rc = sw_json_read(&side, path, &sw_json_caps_config, &why);
    if (rc == SW_E_FORMAT) return sw_report_find(p->report, "broken", name, p->err, "%s", why.text);
    if (rc != SW_OK) {
        *p->err = why;
        return rc;
    }
    body = sw_json_member(side, "quantization");
    if (!cJSON_IsObject(body)) body = side;
    cJSON_ArrayForEach(said, body)
    {
        const cJSON *own = sw_json_member(config, said->string);
        sw_json_diff diff;

        if (!own || cJSON_IsObject(own) || rc != SW_OK) continue;
        if ((rc = sw_json_compare(&diff, said, own, NULL, p->err)) != SW_OK || !diff.n) continue;
        sw_json_brief(have, said);
        sw_json_brief(want, own);
        rc = sw_report_find(p->report, "config", name, p->err, "%s: %.60s is %s, config.json has "
                            "%s", name, said->string, have, want);
    }
    cJSON_Delete(side);
    return rc;
}

static sw_code check_side_configs(const place *p)
{
    static const char *const names[] = {"quantize_config.json", "quant_config.json",
                                        "hf_quant_config.json"};
    sw_code rc = SW_OK;

    for (int i = 0; i < 3 && rc == SW_OK && !p->s->is_gguf; i++)
        rc = check_side_config(p, names[i]);
    return rc;
}

sw_code sw_verify_structure(sw_report *report, const sw_subject *checkpoint, int n_threads,
                            sw_err *err)
{
    const place p = {report, checkpoint, err};
    sw_code rc = SW_OK;

    if (!checkpoint->is_gguf) rc = check_linears(&p);
    if (rc == SW_OK) rc = sw_verify_config_groups(report, checkpoint, err);
    if (rc == SW_OK) rc = check_finite(&p, n_threads);
    if (rc == SW_OK) rc = check_head(&p);
    if (rc == SW_OK) rc = check_cache(&p);
    if (rc == SW_OK) rc = check_extras(&p);
    return rc == SW_OK ? check_side_configs(&p) : rc;
}
