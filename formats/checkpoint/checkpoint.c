/* checkpoint.c - the reading half of checkpoint.h. */
#include "formats/checkpoint/checkpoint.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/mem.h"
#include "formats/base/size.h"
#include "formats/checkpoint/expert_stack.h"
#include "formats/checkpoint/found_modules.h"
#include "formats/checkpoint/model_path.h"
#include "formats/dialect/dialect_common.h"
#include "formats/dialect/dialect_gguf.h"
#include "formats/gguf/gguf_model.h"
#include "formats/io/file_content.h"

#define TENSOR_NAME_BYTES 1024
#define CONFIG_NAME "config.json"

/* What only quantized linears have: the suffix of their first tensor, or of their scale. Any shape
 * will do to ask the dialect for names. */
static const char *marker_suffix(const sw_checkpoint *ckpt)
{
    sw_part parts[SW_DIALECT_TENSORS_MAX] = {{0}};
    int n = ckpt->dialect->declare(parts, &ckpt->qconfig.spec, 64, 64), at = 0;

    while (ckpt->dialect->is_known_by_scale && at < n - 1 && !parts[at].is_scale) at++;
    return parts[at].suffix;
}

const char *sw_checkpoint_marker(const sw_checkpoint *ckpt) { return marker_suffix(ckpt); }

static const sw_st_tensor *find_part(const sw_checkpoint *ckpt, const char *module_path,
                                     const char *suffix)
{
    char name[TENSOR_NAME_BYTES];
    sw_stack_place place;
    int n;

    if (ckpt->dialect->is_stacked)
        return sw_stack_find(&place, module_path, suffix) ? sw_st_find(ckpt->st, place.name) : NULL;
    n = snprintf(name, sizeof name, "%s.%s", module_path, suffix);
    return n > 0 && (size_t)n < sizeof name ? sw_st_find(ckpt->st, name) : NULL;
}

static bool has_suffix(const sw_checkpoint *ckpt, const char *suffix)
{
    size_t n = strlen(suffix);

    for (int64_t i = 0; i < sw_st_count(ckpt->st); i++) {
        const char *name = sw_st_at(ckpt->st, i)->name;
        size_t m = strlen(name);
        char joint = ckpt->dialect && ckpt->dialect->is_stacked ? '_' : '.';
        if (m > n && name[m - n - 1] == joint && !strcmp(name + m - n, suffix)) return true;
    }
    return false;
}

/* AutoGPTQ and others leave the scheme in a file of their own, perhaps without naming the method.
 * It counts only when config.json is silent and such tensors are there: stale copies lie about. */
typedef struct side_row {
    const char *file, *marker; /* a suffix that its tensors have */
    const char *key, *method;  /* no quant_method, but this key: it is this method */
} side_row;

static const side_row side_rows[] = {
    {"quantize_config.json", "qweight", "desc_act", "gptq"},
    {"quant_config.json", "qweight", "w_bit", "awq"},
    {"hf_quant_config.json", "weight_scale", NULL, NULL},
};

static sw_code adopt_side_row(sw_checkpoint *ckpt, const side_row *row, sw_err *err)
{
    char path[SW_PATH_BYTES];
    cJSON *object = NULL;
    bool is_silent;
    sw_code rc;

    if ((rc = sw_path_join_inside(path, ckpt->dir, row->file, err)) != SW_OK) return rc;
    if (!sw_path_exists(path) || !has_suffix(ckpt, row->marker)) return SW_OK;
    if ((rc = sw_json_read(&object, path, &sw_json_caps_config, err)) != SW_OK) return rc;
    is_silent = row->key && !sw_json_member(object, "quant_method") &&
                sw_json_member(object, row->key);
    cJSON_DeleteItemFromObjectCaseSensitive(ckpt->config, "quantization_config"); /* a null */
    if ((is_silent && !cJSON_AddStringToObject(object, "quant_method", row->method)) ||
        !cJSON_AddItemToObject(ckpt->config, "quantization_config", object)) {
        cJSON_Delete(object);
        return SW_FAIL(err, SW_E_NOMEM, "%s: no memory", path);
    }
    return SW_OK;
}

/* The first that applies. */
static sw_code adopt_side_config(sw_checkpoint *ckpt, sw_err *err)
{
    sw_code rc = SW_OK;

    for (size_t i = 0; i < sizeof side_rows / sizeof *side_rows && rc == SW_OK; i++)
        if (!sw_json_member(ckpt->config, "quantization_config"))
            rc = adopt_side_row(ckpt, &side_rows[i], err);
    return rc;
}

static sw_code refuse_dialect(const cJSON *object, sw_err *err)
{
    const cJSON *method = sw_json_member(object, "quant_method");
    char names[256] = "";
    size_t at = 0;

    for (const sw_dialect *const *d = sw_dialects; *d && at < sizeof names; d++)
        at += (size_t)snprintf(names + at, sizeof names - at, "%s%s", at ? ", " : "", (*d)->name);
    return SW_FAIL(err, SW_E_UNSUPPORTED, "quant_method \"%.60s\" cannot be read; there are %s",
                   cJSON_IsString(method) ? method->valuestring : "(absent)", names);
}

/* The type of a linear that a GGUF has as codes. */
static bool find_codes(sw_qspec *out, const sw_checkpoint *ckpt, const char *module_path)
{
    for (int t = 0; t < SW_BLOCK_TYPE_COUNT; t++)
        if (sw_gguf_spec_of_type(out, (sw_block_type)t) &&
            find_part(ckpt, module_path, sw_block_sizes[t].name))
            return true;
    return false;
}

/* Where any linear is given as codes: the first in name order stands for the whole. */
static void find_gguf_dialect(sw_checkpoint *ckpt)
{
    for (int64_t i = 0; i < sw_st_count(ckpt->st); i++) {
        const char *dot = strrchr(sw_st_at(ckpt->st, i)->name, '.');
        sw_block_type type;

        if (!dot || !sw_block_type_find(&type, dot + 1) ||
            !sw_gguf_spec_of_type(&ckpt->qconfig.spec, type))
            continue;
        ckpt->dialect = &sw_dialect_gguf;
        return;
    }
}

/* Read the config as this dialect has it. SW_E_FORMAT, too, when its tensors are not there. */
static sw_code read_config(sw_checkpoint *ckpt, const sw_dialect *dialect, const cJSON *object,
                           sw_err *err)
{
    sw_code rc;

    memset(&ckpt->qconfig, 0, sizeof ckpt->qconfig);
    ckpt->dialect = dialect;
    ckpt->qconfig.spec.scale_dtype = dialect->scale_dtype(ckpt->model.dtype);
    rc = dialect->read_config(&ckpt->qconfig, object, &ckpt->arena, err);
    if (rc != SW_OK || has_suffix(ckpt, marker_suffix(ckpt))) return rc;
    return SW_FAIL(err, SW_E_FORMAT, "says %s, but no tensor is named *.%s", dialect->name,
                   marker_suffix(ckpt));
}

/* Of the dialects that claim the config, the first that can read it and whose tensors are there.
 * Without one, the error of the first that claims it; want of memory is an error at once. */
static sw_code detect(sw_checkpoint *ckpt, const cJSON *object, sw_err *err)
{
    sw_code rc = SW_OK, first_rc = SW_OK;
    sw_err first = {0};

    for (const sw_dialect *const *d = sw_dialects; *d && rc != SW_E_NOMEM; d++) {
        sw_err said = {0};

        if (!(*d)->is_mine(object)) continue;
        if ((rc = read_config(ckpt, *d, object, &said)) == SW_OK) return SW_OK;
        if (first_rc == SW_OK || rc == SW_E_NOMEM) first_rc = rc, first = said;
    }
    if (first_rc == SW_OK) return refuse_dialect(object, err);
    if (err) *err = first;
    return first_rc;
}

static bool names_scheme(const cJSON *config)
{
    return sw_json_member(config, "quantization_config") ||
           sw_json_member(config, "compression_config");
}

static sw_code read_dialect(sw_checkpoint *ckpt, sw_err *err)
{
    const cJSON *object;
    sw_code rc = SW_OK;

    if (ckpt->is_file) {
        find_gguf_dialect(ckpt);
        return SW_OK;
    }
    if ((rc = sw_config_lift_scheme(ckpt->config, err)) != SW_OK) return rc;
    if (!names_scheme(ckpt->config)) rc = adopt_side_config(ckpt, err);
    if (rc != SW_OK) return rc;
    object = sw_json_member(ckpt->config, "quantization_config");
    if (!object) object = sw_json_member(ckpt->config, "compression_config");
    return object ? detect(ckpt, object, err) : SW_OK;
}

/* Of a family that has no row, or that of another. */
static sw_code look_closer(sw_checkpoint *ckpt, sw_err *err)
{
    if (ckpt->model.is_like && !ckpt->is_file)
        return sw_model_check_like(&ckpt->model, ckpt->st, err);
    return ckpt->model.arch == &sw_arch_unknown ? sw_checkpoint_find_linears(ckpt, err) : SW_OK;
}

/* is_headers: of floats, data is not looked at; of codes some is. */
static sw_code open_as(sw_checkpoint *out, const char *dir, sw_gguf_view view, bool is_headers,
                       sw_err *err)
{
    sw_checkpoint ckpt = {0};
    char path[SW_PATH_BYTES];
    sw_code rc;

    if (strlen(dir) >= sizeof ckpt.dir)
        return SW_FAIL(err, SW_E_USAGE, "model path of %zu bytes is too long", strlen(dir));
    memcpy(ckpt.dir, dir, strlen(dir) + 1);
    ckpt.is_file = sw_gguf_locate(ckpt.dir, dir);
    if (!ckpt.is_file && (rc = sw_model_path_check(dir, err)) != SW_OK) return rc;
    rc = ckpt.is_file ? sw_path_join(path, ckpt.dir, "metadata", err)
                      : sw_path_join_inside(path, dir, CONFIG_NAME, err);
    if (rc != SW_OK) return rc;
    if ((rc = ckpt.is_file ? sw_gguf_model_open(&ckpt.config, &ckpt.st, ckpt.dir, view, err)
                           : sw_json_read(&ckpt.config, path, &sw_json_caps_config, err)) != SW_OK)
        goto done;
    if ((rc = sw_model_read(&ckpt.model, ckpt.config, err)) != SW_OK ||
        (rc = sw_rope_check_once(&ckpt.model, err)) != SW_OK) {
        sw_err_prefix(err, "%s", path);
        goto done;
    }
    is_headers = is_headers && !names_scheme(ckpt.config);
    if (!ckpt.st && (rc = is_headers ? sw_st_open_headers(&ckpt.st, dir, err)
                                     : sw_st_open(&ckpt.st, dir, err)) != SW_OK)
        goto done;
    sw_model_fit_names(&ckpt.model, ckpt.st);
    if ((rc = read_dialect(&ckpt, err)) != SW_OK) {
        sw_err_prefix(err, "%s", path);
        goto done;
    }
    if (is_headers && ckpt.dialect) { /* told by a file beside the config */
        sw_checkpoint_close(&ckpt);
        return open_as(out, dir, view, false, err);
    }
    *out = ckpt; /* before the rules, which borrow its config */
    if (ckpt.qconfig.n_rules) rc = sw_rules_new(&out->rules, &out->qconfig, err);
    ckpt.rules = out->rules;
    if (rc == SW_OK) rc = look_closer(out, err);
    if (rc != SW_OK) {
        ckpt.arena = out->arena;
        sw_err_prefix(err, "%s", path);
        memset(out, 0, sizeof *out);
    }
done:
    if (rc != SW_OK) sw_checkpoint_close(&ckpt);
    return rc;
}

sw_code sw_checkpoint_open(sw_checkpoint *out, const char *dir, sw_err *err)
{
    return open_as(out, dir, SW_GGUF_FLOATS, false, err);
}

sw_code sw_checkpoint_open_headers(sw_checkpoint *out, const char *dir, sw_err *err)
{
    return open_as(out, dir, SW_GGUF_FLOATS, true, err);
}

sw_code sw_checkpoint_open_codes(sw_checkpoint *out, const char *dir, sw_err *err)
{
    return open_as(out, dir, SW_GGUF_CODES, false, err);
}

void sw_checkpoint_close(sw_checkpoint *ckpt)
{
    cJSON_Delete(ckpt->config);
    sw_st_close(ckpt->st);
    sw_rules_free(ckpt->rules);
    sw_arena_free(&ckpt->arena);
    memset(ckpt, 0, sizeof *ckpt);
}

bool sw_checkpoint_is_quantized(const sw_checkpoint *ckpt, const char *module_path)
{
    sw_qspec ignored;

    if (ckpt->dialect == &sw_dialect_gguf) return find_codes(&ignored, ckpt, module_path);
    return ckpt->dialect && find_part(ckpt, module_path, marker_suffix(ckpt)) != NULL;
}

sw_code sw_checkpoint_spec(sw_qspec *out, const sw_checkpoint *ckpt, const char *module_path,
                           sw_err *err)
{
    if (ckpt->rules) return sw_rules_find(out, ckpt->rules, module_path, err);
    *out = ckpt->qconfig.spec;
    if (ckpt->dialect == &sw_dialect_gguf) (void)find_codes(out, ckpt, module_path);
    return SW_OK;
}

/* Scales that no format fixes come in what the writer liked. */
static bool is_free_dtype(sw_dtype dtype, const sw_qspec *spec)
{
    return dtype == SW_DTYPE_F16 || dtype == SW_DTYPE_BF16 ||
           (dtype == SW_DTYPE_F32 && !sw_spec_is_classic(spec));
}

/* A g_idx that says no more than the group size does, or was never filled in, is none. */
static bool scatters(const sw_st_tensor *t, const sw_qspec *spec, int64_t k_in)
{
    const uint8_t *stored = t->view.data;
    bool scattered = false;

    if (t->view.dtype != SW_DTYPE_I32 || t->view.size_bytes != 4 * (uint64_t)k_in) return false;
    for (int64_t k = 0; k < k_in; k++) {
        int32_t group = (int32_t)sw_load_le32(stored + 4 * k);
        if (group < 0) return false;
        if (group != (spec->group_elems ? k / spec->group_elems : 0)) scattered = true;
    }
    return scattered;
}

sw_code sw_checkpoint_stored_spec(sw_qspec *out, const sw_checkpoint *ckpt, const char *module_path,
                           int64_t n_out, int64_t k_in, sw_err *err)
{
    sw_part parts[SW_DIALECT_TENSORS_MAX];
    sw_qspec spec;
    int n_parts;
    sw_code rc = sw_checkpoint_spec(&spec, ckpt, module_path, err);

    if (rc != SW_OK) return rc;
    /* blocks of rows and columns may end before their last column, as their shapes say */
    if (spec.group_elems && k_in % spec.group_elems && spec.scale_rows <= 1)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "group size %" PRId64 " does not divide the %" PRId64
                       " inputs", spec.group_elems, k_in);
    n_parts = ckpt->dialect->declare(parts, &spec, n_out, k_in);
    spec.is_scattered = false;
    if (!spec.is_symmetric) spec.zero_min = ckpt->dialect->zero_min;
    for (int i = 0; i < n_parts; i++) {
        const sw_st_tensor *t = find_part(ckpt, module_path, parts[i].suffix);
        /* asked for by itself: a first touch would bring as much as the system reads ahead */
        if (parts[i].is_g_idx && t) sw_st_want_tensor(ckpt->st, t);
        if (parts[i].is_g_idx && t) spec.is_scattered = scatters(t, &spec, k_in);
        if (parts[i].is_scale && t && is_free_dtype(t->view.dtype, &spec) &&
            is_free_dtype(spec.scale_dtype, &spec))
            spec.scale_dtype = t->view.dtype;
        if (parts[i].is_input && t &&
            (t->view.dtype == SW_DTYPE_BF16 || t->view.dtype == SW_DTYPE_F16))
            spec.input_dtype = t->view.dtype;
    }
    *out = spec;
    return SW_OK;
}

static bool is_single(int32_t n_dims, const int64_t *shape)
{
    return n_dims == 0 || (n_dims == 1 && shape[0] == 1);
}

/* A single element is stored with one dimension or with none, as the writer liked. */
static bool view_fits(const sw_cview *view, const sw_part *part)
{
    if (view->dtype == part->dtype && is_single(part->n_dims, part->shape) &&
        is_single(view->n_dims, view->shape))
        return true;
    if (view->dtype != part->dtype || view->n_dims != part->n_dims) return false;
    for (int i = 0; i < part->n_dims; i++)
        if (view->shape[i] != part->shape[i]) return false;
    return true;
}

/* Part of one linear, or of all that lie in the same tensor. */
static sw_part stored_part(const sw_checkpoint *ckpt, const char *module_path, const sw_part *part)
{
    sw_stack_place place;

    if (!ckpt->dialect->is_stacked || !sw_stack_find(&place, module_path, part->suffix))
        return *part;
    return sw_stack_part(part, &place, ckpt->model.n_experts);
}

static sw_code find_checked(const sw_st_tensor **out, const sw_checkpoint *ckpt,
                            const char *module_path, const sw_part *one, sw_err *err)
{
    const sw_part whole = stored_part(ckpt, module_path, one), *part = &whole;
    const sw_st_tensor *t = find_part(ckpt, module_path, part->suffix);
    sw_cview want = {.dtype = part->dtype, .n_dims = part->n_dims};
    char have_text[160], want_text[160];

    if (!t && !part->is_optional)
        return SW_FAIL(err, SW_E_FORMAT, "tensor \"%s.%s\" is missing", module_path, part->suffix);
    if (t && !view_fits(&t->view, part)) {
        memcpy(want.shape, part->shape, sizeof want.shape);
        sw_view_describe(have_text, sizeof have_text, &t->view);
        sw_view_describe(want_text, sizeof want_text, &want);
        return SW_FAIL(err, SW_E_FORMAT, "%s: tensor \"%s\" is %s, must be %s by config.json",
                       sw_st_file_path(ckpt->st, t->shard), t->name, have_text, want_text);
    }
    *out = t;
    return SW_OK;
}

/* The tensor that would hold the floats of a linear whose codes have other names. */
static const sw_st_tensor *find_floats(const sw_checkpoint *ckpt, const char *module_path)
{
    char name[TENSOR_NAME_BYTES];
    sw_stack_place place;
    int n;

    if (!ckpt->dialect->is_stacked) return find_part(ckpt, module_path, "weight");
    if (!sw_stack_find(&place, module_path, "")) return NULL;
    n = snprintf(name, sizeof name, "%.*s", (int)strlen(place.name) - 1, place.name); /* no '_' */
    return n > 0 && (size_t)n < sizeof name ? sw_st_find(ckpt->st, name) : NULL;
}

sw_code sw_checkpoint_refuse_floats(const sw_checkpoint *ckpt, const char *module_path, sw_err *err)
{
    sw_part parts[SW_DIALECT_TENSORS_MAX];
    const sw_st_tensor *t;
    sw_qspec spec;
    sw_code rc = sw_checkpoint_spec(&spec, ckpt, module_path, err);
    int n;

    if (rc != SW_OK || ckpt->dialect == &sw_dialect_gguf) return rc;
    n = ckpt->dialect->declare(parts, &spec, 64, 64);
    for (int i = 0; i < n; i++)
        if (!strcmp(parts[i].suffix, "weight")) return SW_OK;
    if (!(t = find_floats(ckpt, module_path))) return SW_OK;
    return SW_FAIL(err, SW_E_FORMAT, "%s: tensor \"%s\" is there beside the codes of the same "
                   "linear (\"%s\"), and readers take the one or the other; take one of them out",
                   sw_st_file_path(ckpt->st, t->shard), t->name, parts[0].suffix);
}

sw_code sw_checkpoint_parts(const sw_st_tensor *out[SW_DIALECT_TENSORS_MAX],
                            const sw_checkpoint *ckpt, const char *module_path,
                            const sw_qspec *spec, int64_t n_out, int64_t k_in, sw_err *err)
{
    sw_part parts[SW_DIALECT_TENSORS_MAX];
    int n = ckpt->dialect->declare(parts, spec, n_out, k_in);
    sw_code rc = SW_OK;

    for (int i = 0; i < SW_DIALECT_TENSORS_MAX; i++) out[i] = NULL;
    rc = sw_checkpoint_refuse_floats(ckpt, module_path, err);
    for (int i = 0; i < n && rc == SW_OK; i++)
        rc = find_checked(&out[i], ckpt, module_path, &parts[i], err);
    return rc;
}

/* Mapped bytes of one part, or a copy where a file puts them at an odd address or in another
 * order. */
static sw_code aligned_part(const void **out, void **copy, const sw_st_tensor *t, sw_err *err)
{
    size_t elem_bytes = (size_t)sw_dtype_bits(t->view.dtype) / 8;
    sw_st_bytes bytes = {0};
    sw_code rc;

    if (t->maker) {
        rc = sw_st_fetch(&bytes, t, err);
        *out = *copy = bytes.made;
        return rc;
    }
    *out = t->view.data;
    if ((uintptr_t)t->view.data % elem_bytes == 0) return SW_OK;
    rc = sw_mem_get(copy, (int64_t)t->view.size_bytes, 1, t->name, err);
    if (rc != SW_OK) return rc;
    memcpy(*copy, t->view.data, t->view.size_bytes);
    *out = *copy;
    return SW_OK;
}

/* The rows of one expert, as a copy. */
static sw_code gather_part(const void **out, void **copy, const sw_checkpoint *ckpt,
                           const char *module_path, const sw_part *part, const sw_st_tensor *t,
                           sw_err *err)
{
    sw_stack_place place;
    uint64_t n_bytes = 0;
    sw_code rc;

    if (!sw_stack_find(&place, module_path, part->suffix) || place.expert >= ckpt->model.n_experts)
        return SW_FAIL(err, SW_E_FORMAT, "no expert of this model");
    if ((rc = sw_shape_bytes(&n_bytes, part->dtype, part->n_dims, part->shape, err)) != SW_OK ||
        (rc = sw_mem_get(copy, (int64_t)n_bytes, 1, t->name, err)) != SW_OK)
        return rc;
    sw_stack_gather(*copy, t->view.data, part, &place);
    *out = *copy;
    return SW_OK;
}

static sw_code decode_parts(sw_qtensor *q, const sw_checkpoint *ckpt, const char *module_path,
                            sw_err *err)
{
    sw_part parts[SW_DIALECT_TENSORS_MAX];
    const void *data[SW_DIALECT_TENSORS_MAX] = {NULL};
    void *copies[SW_DIALECT_TENSORS_MAX] = {NULL};
    const sw_st_tensor *stored[SW_DIALECT_TENSORS_MAX];
    int n_parts = ckpt->dialect->declare(parts, &q->spec, q->n_out, q->k_in);
    sw_code rc = sw_checkpoint_parts(stored, ckpt, module_path, &q->spec, q->n_out, q->k_in, err);

    for (int i = 0; i < n_parts && rc == SW_OK; i++) {
        const sw_st_tensor *t = stored[i];
        if (!t) continue;
        rc = ckpt->dialect->is_stacked
                 ? gather_part(&data[i], &copies[i], ckpt, module_path, &parts[i], t, err)
                 : aligned_part(&data[i], &copies[i], t, err);
    }
    if (rc == SW_OK && ((rc = ckpt->dialect->decode(q, data, err)) != SW_OK ||
                        (rc = sw_qtensor_check(q, err)) != SW_OK))
        sw_err_prefix(err, "%s: %s", ckpt->dir, module_path);
    for (int i = 0; i < n_parts; i++) sw_mem_put(copies[i]);
    return rc;
}

sw_code sw_checkpoint_qtensor(sw_qtensor *out, const sw_checkpoint *ckpt, const char *module_path,
                              int64_t n_out, int64_t k_in, sw_err *err)
{
    sw_qtensor q = {0};
    sw_qspec spec;
    sw_code rc;

    if (!ckpt->dialect)
        return SW_FAIL(err, SW_E_BUG, "%s is not quantized", module_path);
    if ((rc = sw_checkpoint_stored_spec(&spec, ckpt, module_path, n_out, k_in, err)) != SW_OK) {
        sw_err_prefix(err, "%s: %s", ckpt->dir, module_path);
        return rc;
    }
    if ((rc = sw_qtensor_alloc(&q, &spec, n_out, k_in, err)) != SW_OK) return rc;
    if ((rc = decode_parts(&q, ckpt, module_path, err)) != SW_OK) {
        sw_qtensor_free(&q);
        return rc;
    }
    q.spec.input_dtype = 0; /* of the file, not of the weight */
    q.spec.has_byte_codes = false;
    *out = q;
    return SW_OK;
}

bool sw_checkpoint_has_tiles(const sw_checkpoint *ckpt)
{
    return ckpt->dialect && ckpt->dialect->map_tiles && !ckpt->dialect->maps_marlin;
}

bool sw_checkpoint_has_marlin(const sw_checkpoint *ckpt)
{
    return ckpt->dialect && ckpt->dialect->map_tiles && ckpt->dialect->maps_marlin;
}

static sw_code map_parts(sw_tiles *out, const sw_checkpoint *ckpt, const sw_qspec *spec,
                         const char *module_path, int64_t n_out, int64_t k_in, sw_err *err)
{
    sw_part parts[SW_DIALECT_TENSORS_MAX];
    const void *data[SW_DIALECT_TENSORS_MAX] = {NULL};
    const sw_st_tensor *stored[SW_DIALECT_TENSORS_MAX];
    int n_parts = ckpt->dialect->declare(parts, spec, n_out, k_in);
    sw_code rc = sw_checkpoint_parts(stored, ckpt, module_path, spec, n_out, k_in, err);

    for (int i = 0; i < n_parts && rc == SW_OK; i++) {
        if (!stored[i]) continue; /* optional */
        data[i] = stored[i]->view.data;
        if ((uintptr_t)data[i] % ((size_t)sw_dtype_bits(parts[i].dtype) / 8))
            rc = SW_FAIL(err, SW_E_UNSUPPORTED, "tensor \"%s\" starts at an odd address; write "
                         "the checkpoint again", stored[i]->name);
    }
    if (rc != SW_OK) return rc;
    return ckpt->dialect->map_tiles(out, spec, n_out, k_in, data, err);
}

sw_code sw_checkpoint_tiles(sw_tiles *out, const sw_checkpoint *ckpt, const char *module_path,
                            int64_t n_out, int64_t k_in, sw_err *err)
{
    sw_qspec spec;
    sw_code rc;

    if (!sw_checkpoint_has_tiles(ckpt) && !sw_checkpoint_has_marlin(ckpt))
        return SW_FAIL(err, SW_E_BUG, "%s is not stored as tiles", module_path);
    if ((rc = sw_checkpoint_stored_spec(&spec, ckpt, module_path, n_out, k_in, err)) != SW_OK ||
        (rc = map_parts(out, ckpt, &spec, module_path, n_out, k_in, err)) != SW_OK)
        sw_err_prefix(err, "%s: %s", ckpt->dir, module_path);
    return rc;
}
