/* loaders_config.c - loader rules about names, lists and files, see loaders.def. */
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/mem.h"
#include "formats/io/file_content.h"
#include "verify/decoders/decode_spec_parts.h"
#include "verify/loaders/loaders_parts.h"

#define INDEX_NAME "model.safetensors.index.json"

static const sw_json_caps index_caps = {
    .max_bytes = (size_t)100 << 20, .max_depth = 8, .max_values = 2000000};

static const char *dialect_name(const sw_load_ctx *ctx)
{
    return ctx->ckpt->dialect ? ctx->ckpt->dialect->name : "";
}

static bool is_any(const char *name, const char *const *list)
{
    for (; *list; list++)
        if (!strcmp(name, *list)) return true;
    return false;
}

/* The module itself, one above it, a pattern of the shell's or PCRE2 after "re:". */
static bool names(const char *entry, const char *path)
{
    size_t n = strlen(entry);
    bool is_match = false;

    if (!strncmp(entry, "re:", 3))
        return sw_spec_match(&is_match, entry + 3, path, NULL) == SW_OK && is_match;
    if (strchr(entry, '*')) return fnmatch(entry, path, 0) == 0;
    return !strncmp(entry, path, n) && (!path[n] || path[n] == '.');
}

static const char *ignored_by(const sw_load_ctx *ctx, const char *path)
{
    const sw_qconfig *config = &ctx->ckpt->qconfig;

    for (int64_t i = 0; i < config->n_ignore; i++)
        if (names(config->ignore[i], path)) return config->ignore[i];
    return NULL;
}

sw_code sw_load_ignore_quantized(sw_load_ctx *ctx)
{
    sw_code rc = SW_OK;

    for (int64_t i = 0; i < ctx->n_linears && rc == SW_OK; i++) {
        const sw_load_linear *l = &ctx->linears[i];
        const char *entry = l->is_quantized ? ignored_by(ctx, l->path) : NULL;
        if (entry) rc = sw_load_found(ctx, l->path, "\"%.100s\" names it", entry);
    }
    return rc;
}

sw_code sw_load_ignore_substring(sw_load_ctx *ctx)
{
    static const char *const loose[] = {"awq", "modelopt", NULL};
    const sw_qconfig *config = &ctx->ckpt->qconfig;
    sw_code rc = SW_OK;

    if (!is_any(dialect_name(ctx), loose)) return SW_OK;
    for (int64_t i = 0; i < ctx->n_linears && rc == SW_OK; i++)
        for (int64_t k = 0; k < config->n_ignore && rc == SW_OK; k++) {
            const char *path = ctx->linears[i].path, *entry = config->ignore[k];
            if (ctx->linears[i].is_quantized && strstr(path, entry) && !names(entry, path))
                rc = sw_load_found(ctx, path, "\"%.100s\" is in its name", entry);
        }
    return rc;
}

sw_code sw_load_kv_int8(sw_load_ctx *ctx)
{
    if (ctx->ckpt->qconfig.kv_num != &sw_nums[SW_NUM_INT8]) return SW_OK;
    return sw_load_found(ctx, "kv_cache_scheme", "type int");
}

/* Where a head stays in floats unless the config says otherwise. */
static bool is_left_anyway(const sw_load_ctx *ctx, const sw_load_linear *l)
{
    static const char *const leaving[] = {"fp8", "gptq", "gptq_v2", NULL};

    return l->ref.slot == SW_SLOT_HEAD && is_any(dialect_name(ctx), leaving);
}

/* A linear of the decoder that no list of a layer has: a matrix in floats that is no table. */
static bool is_other_linear(char path[256], const sw_load_ctx *ctx, const sw_st_tensor *t)
{
    const sw_model *m = &ctx->ckpt->model;

    if (!sw_dtype_is_float(t->view.dtype) || !sw_model_owns(m, t->name) ||
        !sw_model_matrix_path(path, m, t->name, t->view.n_dims))
        return false;
    for (int64_t i = 0; i < ctx->n_linears; i++)
        if (!strcmp(ctx->linears[i].path, path)) return false;
    return true;
}

/* An engine makes an empty quantized linear of each, and computes with what memory held. */
static sw_code find_other_linears(sw_load_ctx *ctx)
{
    sw_code rc = SW_OK;

    for (int64_t i = 0; i < sw_st_count(ctx->ckpt->st) && rc == SW_OK; i++) {
        const sw_st_tensor *t = sw_st_at(ctx->ckpt->st, i);
        char path[256];
        sw_qspec spec;
        sw_err no_rule = {0};

        if (is_other_linear(path, ctx, t) && !ignored_by(ctx, path) &&
            sw_checkpoint_spec(&spec, ctx->ckpt, path, &no_rule) == SW_OK)
            rc = sw_load_found(ctx, path, "%s is there", t->name);
    }
    return rc;
}

/* gptq says which to leave by patterns under "dynamic", which are not told apart here. */
sw_code sw_load_ignore_missing(sw_load_ctx *ctx)
{
    static const char *const listing[] = {"compressed-tensors", "fp8", "modelopt", "gptq",
                                          "gptq_v2", NULL};
    bool is_gptq = !strncmp(dialect_name(ctx), "gptq", 4);
    sw_code rc = SW_OK;

    if (!is_any(dialect_name(ctx), listing) ||
        (is_gptq && sw_json_member(ctx->quant, "dynamic")))
        return SW_OK;
    for (int64_t i = 0; i < ctx->n_linears && rc == SW_OK; i++) {
        const sw_load_linear *l = &ctx->linears[i];
        sw_qspec spec;
        sw_err no_rule = {0};
        if (l->is_quantized || ignored_by(ctx, l->path) || is_left_anyway(ctx, l) ||
            sw_checkpoint_spec(&spec, ctx->ckpt, l->path, &no_rule) != SW_OK)
            continue;
        rc = sw_load_found(ctx, l->path, "%s.weight is there", l->path);
    }
    return rc == SW_OK ? find_other_linears(ctx) : rc;
}

sw_code sw_load_fp8_ignore_key(sw_load_ctx *ctx)
{
    const cJSON *old = sw_json_member(ctx->quant, "ignored_layers");
    const cJSON *other = sw_json_member(ctx->quant, "modules_to_not_convert");

    if (strcmp(dialect_name(ctx), "fp8") != 0 || (old && old->child) || !other || !other->child)
        return SW_OK;
    return sw_load_found(ctx, "config.json", "modules_to_not_convert has %d entries",
                         cJSON_GetArraySize(other));
}

/* One scale a tensor has two names in the world: vLLM's, which is written here, and this other. */
sw_code sw_load_fp8_tensor_names(sw_load_ctx *ctx)
{
    sw_code rc = SW_OK;

    if (strcmp(dialect_name(ctx), "fp8") != 0) return SW_OK;
    for (int64_t i = 0; i < ctx->n_linears && rc == SW_OK; i++) {
        const sw_load_linear *l = &ctx->linears[i];
        if (l->is_quantized && l->spec.num && l->spec.scale_rows == SW_ROWS_ALL)
            rc = sw_load_found(ctx, l->path, "its scale is named weight_scale");
    }
    return rc;
}

sw_code sw_load_fp8_hf_names(sw_load_ctx *ctx)
{
    if (strcmp(dialect_name(ctx), "fp8_hf") != 0) return SW_OK;
    return sw_load_found(ctx, "config.json", "the names are those of transformers");
}

sw_code sw_load_modelopt_int4(sw_load_ctx *ctx)
{
    sw_code rc = SW_OK;

    if (strcmp(dialect_name(ctx), "modelopt") != 0) return SW_OK;
    for (int64_t i = 0; i < ctx->n_linears && rc == SW_OK; i++) {
        const sw_load_linear *l = &ctx->linears[i];
        if (l->is_quantized && l->spec.num && l->spec.num->kind == SW_NUM_INT)
            rc = sw_load_found(ctx, l->path, "it is stored as W4A16_AWQ");
    }
    return rc;
}

static bool has_file(const sw_load_ctx *ctx, const char *name, char path[SW_PATH_BYTES])
{
    return sw_path_join(path, ctx->ckpt->dir, name, NULL) == SW_OK && sw_path_exists(path);
}

sw_code sw_load_modelopt_file(sw_load_ctx *ctx)
{
    char path[SW_PATH_BYTES];

    if (strcmp(dialect_name(ctx), "modelopt") != 0 || has_file(ctx, "hf_quant_config.json", path))
        return SW_OK;
    return sw_load_found(ctx, "hf_quant_config.json", "the scheme is in config.json alone");
}

sw_code sw_load_pt_format(sw_load_ctx *ctx)
{
    const char *format = sw_st_metadata(ctx->ckpt->st, "format");
    const char *file = sw_st_file_path(ctx->ckpt->st, 0), *dot = strrchr(file, '.');

    if (!dot || strcmp(dot, ".safetensors") != 0 || (format && !strcmp(format, "pt")))
        return SW_OK;
    return sw_load_found(ctx, file, "format is %.40s", format ? format : "absent");
}

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static sw_code find_unnamed(sw_load_ctx *ctx, const cJSON *map)
{
    const sw_st *st = ctx->ckpt->st;
    int64_t n = 0, room = cJSON_GetArraySize(map);
    const char **keys = NULL;
    const cJSON *entry;
    sw_code rc = SW_MEM_GET(&keys, room, "names of an index", ctx->err);

    if (rc != SW_OK) return rc;
    cJSON_ArrayForEach(entry, map) keys[n++] = entry->string;
    qsort(keys, (size_t)n, sizeof *keys, compare_texts);
    for (int64_t i = 0; i < sw_st_count(st) && rc == SW_OK; i++) {
        const char *name = sw_st_at(st, i)->name;
        if (!bsearch(&name, keys, (size_t)n, sizeof *keys, compare_texts))
            rc = sw_load_found(ctx, name, "it is in %.200s",
                               sw_st_file_path(st, sw_st_at(st, i)->shard));
    }
    sw_mem_put(keys);
    return rc;
}

sw_code sw_load_index_complete(sw_load_ctx *ctx)
{
    char path[SW_PATH_BYTES];
    cJSON *root = NULL;
    const cJSON *map;
    sw_code rc;

    if (!has_file(ctx, INDEX_NAME, path)) return SW_OK;
    if ((rc = sw_json_read(&root, path, &index_caps, ctx->err)) != SW_OK) return rc;
    map = sw_json_member(root, "weight_map");
    if (map && map->child && cJSON_GetArraySize(map) < sw_st_count(ctx->ckpt->st))
        rc = find_unnamed(ctx, map);
    cJSON_Delete(root);
    return rc;
}

static const sw_st_tensor *end_weight(const sw_load_ctx *ctx, const char *module)
{
    char name[320];

    (void)snprintf(name, sizeof name, "%s.weight", module);
    return sw_st_find(ctx->ckpt->st, name);
}

static sw_code compare_bytes(bool *is_same, const sw_st_tensor *a, const sw_st_tensor *b,
                             sw_err *err)
{
    sw_st_bytes x = {0}, y = {0};
    sw_code rc = SW_OK;

    *is_same = a->view.dtype == b->view.dtype && a->view.size_bytes == b->view.size_bytes;
    if (!*is_same) return SW_OK;
    if ((rc = sw_st_fetch(&x, a, err)) == SW_OK && (rc = sw_st_fetch(&y, b, err)) == SW_OK)
        *is_same = !memcmp(x.data, y.data, a->view.size_bytes);
    sw_st_drop(&x);
    sw_st_drop(&y);
    return rc;
}

sw_code sw_load_tied_head(sw_load_ctx *ctx)
{
    const sw_model *m = &ctx->ckpt->model;
    const sw_st_tensor *head = end_weight(ctx, sw_model_end(m, SW_END_HEAD));
    const sw_st_tensor *embed = end_weight(ctx, sw_model_end(m, SW_END_EMBED));

    bool is_same = false;
    sw_code rc;

    if (!m->is_tied || !head || !embed) return SW_OK;
    rc = compare_bytes(&is_same, head, embed, ctx->err);
    if (rc != SW_OK || is_same) return rc;
    return sw_load_found(ctx, head->name, "it is not %s", embed->name);
}

sw_code sw_load_head_missing(sw_load_ctx *ctx)
{
    const sw_model *m = &ctx->ckpt->model;

    if (m->is_tied || end_weight(ctx, sw_model_end(m, SW_END_HEAD)) ||
        sw_checkpoint_is_quantized(ctx->ckpt, sw_model_end(m, SW_END_HEAD)))
        return SW_OK;
    return sw_load_found(ctx, sw_model_end(m, SW_END_HEAD), "tie_word_embeddings is false");
}

/* A quantized head in one of these dialects. */
static sw_code quantized_head(sw_load_ctx *ctx, const char *const *dialects)
{
    const char *head = sw_model_end(&ctx->ckpt->model, SW_END_HEAD);

    if (!is_any(dialect_name(ctx), dialects) || !sw_checkpoint_is_quantized(ctx->ckpt, head))
        return SW_OK;
    return sw_load_found(ctx, head, "it is quantized, as %s", dialect_name(ctx));
}

sw_code sw_load_head_fp8(sw_load_ctx *ctx)
{
    static const char *const fp8[] = {"fp8", NULL};

    return quantized_head(ctx, fp8);
}

sw_code sw_load_head_newer(sw_load_ctx *ctx)
{
    static const char *const newer[] = {"compressed-tensors", "modelopt", NULL};

    return quantized_head(ctx, newer);
}

sw_code sw_load_head_blocks(sw_load_ctx *ctx)
{
    static const char *const by_block[] = {"gptq", "gptq_v2", "awq", NULL};

    return quantized_head(ctx, by_block);
}

/* Every checkpoint of a dialect, by the name that its config gives to the order of codes. */
static sw_code if_dialect(sw_load_ctx *ctx, const char *name)
{
    if (strcmp(dialect_name(ctx), name) != 0) return SW_OK;
    return sw_load_found(ctx, "config.json", "the order of its codes is that of %s", name);
}

sw_code sw_load_awq_gemv(sw_load_ctx *ctx) { return if_dialect(ctx, "awq_gemv"); }
sw_code sw_load_marlin_order(sw_load_ctx *ctx) { return if_dialect(ctx, "marlin"); }
sw_code sw_load_machete_only(sw_load_ctx *ctx) { return if_dialect(ctx, "machete"); }
sw_code sw_load_swage_only(sw_load_ctx *ctx) { return if_dialect(ctx, "swage"); }
