/* subject.c - see subject.h. */
#include "verify/base/subject.h"

#include <string.h>

#include "formats/checkpoint/model_path.h"
#include "formats/gguf/gguf_model.h"
#include "formats/gguf/gguf_names.h"
#include "formats/io/file.h"
#include "formats/io/file_content.h"
#include "formats/model/unknown/found.h"

/* Some exporters leave the scheme in a file of its own; config.json counts before it. */
static sw_code adopt_side_config(sw_subject *s, sw_err *err)
{
    char path[SW_PATH_BYTES];
    cJSON *object = NULL;
    sw_code rc;

    if (sw_json_member(s->config, "quantization_config")) return SW_OK;
    if ((rc = sw_path_join_inside(path, s->dir, "hf_quant_config.json", err)) != SW_OK) return rc;
    if (!sw_path_exists(path)) return SW_OK;
    if ((rc = sw_json_read(&object, path, &sw_json_caps_config, err)) != SW_OK) return rc;
    cJSON_DeleteItemFromObjectCaseSensitive(s->config, "quantization_config"); /* a null */
    if (cJSON_AddItemToObject(s->config, "quantization_config", object)) return SW_OK;
    cJSON_Delete(object);
    return SW_FAIL(err, SW_E_NOMEM, "%s: no memory", path);
}

static sw_code open_config(sw_subject *s, const char *path, bool is_judged,
                           const sw_subject *like, sw_err *err)
{
    sw_code rc;

    if (!s->is_gguf) return sw_json_read(&s->config, path, &sw_json_caps_config, err);
    rc = sw_gguf_model_open_like(&s->config, &s->st, s->dir,
                                 is_judged ? SW_GGUF_BLOCKS : SW_GGUF_FLOATS,
                                 like ? &like->model : NULL, err);
    if (rc != SW_OK || !is_judged) return rc;
    s->is_quantized = true;
    sw_spec_gguf_scheme(&s->scheme, s->st);
    return SW_OK;
}

sw_code sw_subject_open(sw_subject *out, const char *dir, bool is_judged, sw_err *err)
{
    return sw_subject_open_like(out, dir, is_judged, NULL, err);
}

sw_code sw_subject_open_like(sw_subject *out, const char *dir, bool is_judged,
                             const sw_subject *like, sw_err *err)
{
    sw_subject s = {.is_quantized = false};
    char path[SW_PATH_BYTES];
    const cJSON *quantization;
    sw_code rc;

    if (strlen(dir) >= sizeof s.dir)
        return SW_FAIL(err, SW_E_USAGE, "model path of %zu bytes is too long", strlen(dir));
    memcpy(s.dir, dir, strlen(dir) + 1);
    s.is_gguf = sw_gguf_locate(s.dir, dir);
    if (!s.is_gguf && (rc = sw_model_path_check(dir, err)) != SW_OK) return rc;
    rc = s.is_gguf ? sw_path_join(path, s.dir, "config.json", err)
                   : sw_path_join_inside(path, s.dir, "config.json", err);
    if (rc != SW_OK ||
        (rc = open_config(&s, path, is_judged, like, err)) != SW_OK)
        goto done;
    if ((rc = sw_model_read(&s.model, s.config, err)) != SW_OK ||
        (!is_judged && (rc = sw_rope_check_once(&s.model, err)) != SW_OK)) {
        sw_err_prefix(err, "%s", path);
        goto done;
    }
    if (!s.st && ((rc = sw_config_lift_scheme(s.config, err)) != SW_OK ||
                  (rc = adopt_side_config(&s, err)) != SW_OK))
        goto done;
    quantization = sw_json_member(s.config, "quantization_config");
    s.is_quantized = s.is_quantized || quantization != NULL;
    if (quantization && (rc = sw_spec_scheme_read(&s.scheme, quantization, err)) != SW_OK) {
        sw_err_prefix(err, "%s", path);
        goto done;
    }
    if (!s.st && (rc = sw_st_open(&s.st, dir, err)) != SW_OK) goto done;
    sw_model_fit_names(&s.model, s.st);
    *out = s;
    memset(&s, 0, sizeof s);
done:
    sw_subject_close(&s);
    return rc;
}

sw_code sw_subject_find_linears(sw_subject *s, const sw_subject *like, sw_err *err)
{
    const sw_model *from = like ? &like->model : NULL;
    sw_code rc;

    if (s->model.arch != &sw_arch_unknown) return SW_OK;
    if (!from || !from->found) {
        if (!s->is_quantized)
            return sw_found_new(&s->model, s->st, NULL, 0, &s->arena, err);
        if ((rc = sw_checkpoint_open(&s->shapes, s->dir, err)) != SW_OK) return rc;
        from = &s->shapes.model;
    }
    s->model.found = from->found;
    s->model.n_layers = from->n_layers;
    memcpy(s->model.ends, from->ends, sizeof s->model.ends);
    return SW_OK;
}

void sw_subject_close(sw_subject *s)
{
    cJSON_Delete(s->config);
    sw_st_close(s->st);
    sw_arena_free(&s->arena);
    sw_checkpoint_close(&s->shapes);
    memset(s, 0, sizeof *s);
}

sw_code sw_subject_linears(sw_subject_linear **out, int64_t *n_out, const sw_model *model,
                           sw_arena *arena, sw_err *err)
{
    int64_t n = 0, at = 0, most = 0;
    sw_subject_linear *linears;
    sw_linear_ref *refs;
    sw_code rc;

    for (int64_t l = 0; l <= model->n_layers; l++) {
        int64_t in_block = sw_model_linears(model, l, NULL, 0);

        n += in_block;
        if (in_block > most) most = in_block;
    }
    if ((rc = SW_ARENA_TAKE(&linears, arena, n + 1, err)) != SW_OK ||
        (rc = SW_ARENA_TAKE(&refs, arena, most + 1, err)) != SW_OK)
        return rc;
    for (int64_t l = 0; l <= model->n_layers; l++) {
        int64_t in_block = sw_model_linears(model, l, refs, most);

        for (int64_t i = 0; i < in_block; i++) {
            char path[256], *kept;

            if (!sw_model_slot_path(path, model, l, refs[i].slot, refs[i].expert)) continue;
            if ((rc = sw_arena_text(&kept, arena, path, strlen(path), err)) != SW_OK) return rc;
            linears[at++] = (sw_subject_linear){refs[i], kept};
        }
    }
    *out = linears;
    *n_out = at;
    return SW_OK;
}

/* GGUF has one name for several architectures that compute alike. */
static bool same_in_gguf(const sw_subject *a, const sw_subject *b)
{
    const sw_gguf_arch *of_a = NULL, *of_b = NULL;
    sw_err ignored = {0};

    return (a->is_gguf || b->is_gguf) &&
           sw_gguf_arch_of_model(&of_a, &a->model, &ignored) == SW_OK &&
           sw_gguf_arch_of_model(&of_b, &b->model, &ignored) == SW_OK &&
           !strcmp(of_a->gguf, of_b->gguf) && of_a->experts == of_b->experts;
}

bool sw_subject_is_alike(const sw_subject *checkpoint, const sw_subject *original)
{
    return checkpoint->model.arch == original->model.arch || same_in_gguf(checkpoint, original);
}
