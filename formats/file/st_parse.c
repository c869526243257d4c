/* st_parse.c - one safetensors container: every rule of the header, before any byte is used.
 *
 *   offset 0            u64, little-endian: n
 *   offset 8            n bytes of UTF-8 JSON: name -> {dtype, shape, data_offsets}
 *   offset 8 + n        tensor data, offsets relative to here, to the end of the file
 *
 * The data must be covered exactly: a hole could carry a second file, an overlap could
 * make a small file expand without bound.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/base/json.h"
#include "formats/base/size.h"
#include "formats/file/st_internal.h"

/* {name: {"shape": [..]}} is three deep; values: a tensor of 8 dims has 4 keys and 10 numbers. */
static const sw_json_caps header_caps = {
    .max_bytes = SW_ST_HEADER_MAX_BYTES,
    .max_depth = 4,
    .max_values = 16 * SW_ST_TENSORS_MAX,
    .is_integer_only = true,
    .max_inside = SW_ST_METADATA_MAX,
};

/* Where the parts of one container are. */
typedef struct st_span {
    const unsigned char *json, *data;
    uint64_t json_bytes, data_bytes;
} st_span;

static sw_code find_span(st_span *out, const void *bytes, size_t n_bytes, const char *what,
                         sw_err *err)
{
    const unsigned char *begin = bytes;
    uint64_t json_bytes;

    if (n_bytes < SW_ST_PREFIX_BYTES)
        return SW_FAIL(err, SW_E_FORMAT, "%s: %zu bytes are too few for a safetensors file", what,
                       n_bytes);
    json_bytes = sw_load_le64(begin);
    if (json_bytes > SW_ST_HEADER_MAX_BYTES)
        return SW_FAIL(err, SW_E_FORMAT,
                       "%s: header of %llu bytes, at most %llu allowed; is this safetensors?", what,
                       (unsigned long long)json_bytes,
                       (unsigned long long)SW_ST_HEADER_MAX_BYTES);
    if (json_bytes > n_bytes - SW_ST_PREFIX_BYTES)
        return SW_FAIL(err, SW_E_FORMAT,
                       "%s: header of %llu bytes in a file of %zu; the file is truncated", what,
                       (unsigned long long)json_bytes, n_bytes);
    out->json = begin + SW_ST_PREFIX_BYTES;
    out->json_bytes = json_bytes;
    out->data = out->json + json_bytes;
    out->data_bytes = n_bytes - SW_ST_PREFIX_BYTES - json_bytes;
    return SW_OK;
}

static sw_code parse_dtype(sw_cview *view, const cJSON *info, sw_err *err)
{
    const cJSON *dtype = sw_json_member(info, "dtype");

    if (!cJSON_IsString(dtype)) return SW_FAIL(err, SW_E_FORMAT, "dtype missing or not a string");
    if (!sw_dtype_find(&view->dtype, dtype->valuestring, strlen(dtype->valuestring)))
        return SW_FAIL(err, SW_E_FORMAT, "unknown dtype \"%.40s\"", dtype->valuestring);
    return SW_OK;
}

static sw_code parse_shape(sw_cview *view, const cJSON *info, sw_err *err)
{
    const cJSON *shape = sw_json_member(info, "shape"), *dim;
    sw_code rc;

    if (!cJSON_IsArray(shape)) return SW_FAIL(err, SW_E_FORMAT, "shape missing or not an array");
    view->n_dims = 0;
    cJSON_ArrayForEach(dim, shape)
    {
        if (view->n_dims == SW_DIMS_MAX)
            return SW_FAIL(err, SW_E_FORMAT, "more than %d dimensions", SW_DIMS_MAX);
        rc = sw_json_as_int(&view->shape[view->n_dims], dim, 0, INT64_MAX, "shape", err);
        if (rc != SW_OK) return rc;
        view->n_dims++;
    }
    return SW_OK;
}

static sw_code parse_offsets(sw_cview *view, const cJSON *info, const st_span *span, sw_err *err)
{
    const cJSON *offsets = sw_json_member(info, "data_offsets");
    int64_t begin = 0, end = 0;
    uint64_t size_bytes = 0;
    sw_code rc;

    if (!cJSON_IsArray(offsets) || cJSON_GetArraySize(offsets) != 2)
        return SW_FAIL(err, SW_E_FORMAT, "data_offsets missing or not a pair");
    rc = sw_json_as_int(&begin, offsets->child, 0, INT64_MAX, "data_offsets", err);
    if (rc != SW_OK) return rc;
    rc = sw_json_as_int(&end, offsets->child->next, 0, INT64_MAX, "data_offsets", err);
    if (rc != SW_OK) return rc;
    if (begin > end)
        return SW_FAIL(err, SW_E_FORMAT, "data_offsets [%lld, %lld] run backwards",
                       (long long)begin, (long long)end);
    rc = sw_shape_bytes(&size_bytes, view->dtype, view->n_dims, view->shape, err);
    if (rc != SW_OK) return rc;
    if ((uint64_t)(end - begin) != size_bytes)
        return SW_FAIL(err, SW_E_FORMAT,
                       "data_offsets [%lld, %lld] are %lld bytes, dtype and shape need %llu",
                       (long long)begin, (long long)end, (long long)(end - begin),
                       (unsigned long long)size_bytes);
    if ((uint64_t)end > span->data_bytes)
        return SW_FAIL(err, SW_E_FORMAT,
                       "data ends at byte %lld, but the file has only %llu bytes of data; "
                       "it is truncated",
                       (long long)end, (unsigned long long)span->data_bytes);
    view->data = span->data + begin;
    view->size_bytes = (size_t)size_bytes;
    return SW_OK;
}

static sw_code parse_tensor(sw_st_tensor *out, const cJSON *info, const st_span *span,
                            sw_arena *arena, sw_err *err)
{
    char *name = NULL;
    sw_code rc;

    if (!cJSON_IsObject(info)) return SW_FAIL(err, SW_E_FORMAT, "its entry is not an object");
    if ((rc = parse_dtype(&out->view, info, err)) != SW_OK) return rc;
    if ((rc = parse_shape(&out->view, info, err)) != SW_OK) return rc;
    if ((rc = parse_offsets(&out->view, info, span, err)) != SW_OK) return rc;
    if ((rc = sw_arena_text(&name, arena, info->string, strlen(info->string), err)) != SW_OK)
        return rc;
    out->name = name;
    return SW_OK;
}

static sw_code parse_meta(sw_st_part *out, sw_arena *arena, const cJSON *object, const char *what,
                          sw_err *err)
{
    const cJSON *member;
    sw_code rc;

    if (!cJSON_IsObject(object))
        return SW_FAIL(err, SW_E_FORMAT, "%s: " SW_ST_METADATA_KEY " is not an object", what);
    rc = SW_ARENA_TAKE(&out->meta, arena, cJSON_GetArraySize(object), err);
    if (rc != SW_OK) return rc;
    cJSON_ArrayForEach(member, object)
    {
        char *key = NULL, *value = NULL;
        if (!cJSON_IsString(member))
            return SW_FAIL(err, SW_E_FORMAT, "%s: " SW_ST_METADATA_KEY " \"%.200s\": not a string",
                           what, member->string);
        rc = sw_arena_text(&key, arena, member->string, strlen(member->string), err);
        if (rc != SW_OK) return rc;
        rc = sw_arena_text(&value, arena, member->valuestring, strlen(member->valuestring), err);
        if (rc != SW_OK) return rc;
        out->meta[out->n_meta].key = key;
        out->meta[out->n_meta++].value = value;
    }
    return SW_OK;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const sw_st_tensor *)a)->name, ((const sw_st_tensor *)b)->name);
}

/* By where the data begins, then ends: tensors without data come before the one they touch. */
static int compare_places(const void *a, const void *b)
{
    const sw_cview *x = &(*(const sw_st_tensor *const *)a)->view;
    const sw_cview *y = &(*(const sw_st_tensor *const *)b)->view;

    if (x->data != y->data)
        return (const unsigned char *)x->data < (const unsigned char *)y->data ? -1 : 1;
    return (x->size_bytes > y->size_bytes) - (x->size_bytes < y->size_bytes);
}

static sw_code check_cover(const sw_st_part *part, const st_span *span, const char *what,
                           sw_err *err)
{
    const sw_st_tensor **order = NULL;
    uint64_t at = 0;
    sw_code rc;

    if ((rc = SW_MEM_GET(&order, part->n_tensors, "tensor order", err)) != SW_OK) return rc;
    for (int64_t i = 0; i < part->n_tensors; i++) order[i] = &part->tensors[i];
    qsort(order, (size_t)part->n_tensors, sizeof *order, compare_places);
    for (int64_t i = 0; i < part->n_tensors && rc == SW_OK; i++) {
        const sw_cview *view = &order[i]->view;
        uint64_t begin = (uint64_t)((const unsigned char *)view->data - span->data);
        if (begin != at)
            rc = SW_FAIL(err, SW_E_FORMAT,
                         "%s: tensor \"%.200s\": data begins at byte %llu, %s byte %llu", what,
                         order[i]->name, (unsigned long long)begin,
                         begin < at ? "overlapping the tensor that ends at"
                                    : "leaving a hole after",
                         (unsigned long long)at);
        at = begin + view->size_bytes;
    }
    if (rc == SW_OK && at != span->data_bytes)
        rc = SW_FAIL(err, SW_E_FORMAT, "%s: %llu bytes after the last tensor belong to none", what,
                     (unsigned long long)(span->data_bytes - at));
    sw_mem_put(order);
    return rc;
}

static sw_code parse_members(sw_st_part *out, sw_arena *arena, const cJSON *root,
                             const st_span *span, int32_t shard, const char *what, sw_err *err)
{
    int64_t n_members = cJSON_GetArraySize(root);
    const cJSON *member;
    sw_code rc;

    if (n_members > SW_ST_TENSORS_MAX)
        return SW_FAIL(err, SW_E_FORMAT, "%s: %lld tensors, at most %lld are allowed", what,
                       (long long)n_members, (long long)SW_ST_TENSORS_MAX);
    if ((rc = SW_ARENA_TAKE(&out->tensors, arena, n_members, err)) != SW_OK) return rc;
    cJSON_ArrayForEach(member, root)
    {
        if (!strcmp(member->string, SW_ST_METADATA_KEY)) {
            if ((rc = parse_meta(out, arena, member, what, err)) != SW_OK) return rc;
            continue;
        }
        rc = parse_tensor(&out->tensors[out->n_tensors], member, span, arena, err);
        if (rc != SW_OK) {
            sw_err_prefix(err, "%s: tensor \"%.200s\"", what, member->string);
            return rc;
        }
        out->tensors[out->n_tensors++].shard = shard;
    }
    return SW_OK;
}

sw_code sw_st_part_parse(sw_st_part *out, sw_arena *arena, const void *bytes, size_t n_bytes,
                         int32_t shard, const char *what, sw_err *err)
{
    sw_st_part part = {0};
    st_span span = {0};
    cJSON *root = NULL;
    sw_code rc;

    if ((rc = find_span(&span, bytes, n_bytes, what, err)) != SW_OK) return rc;
    rc = sw_json_parse(&root, (const char *)span.json, (size_t)span.json_bytes, &header_caps, what,
                       err);
    if (rc != SW_OK) return rc;
    if (!cJSON_IsObject(root)) {
        rc = SW_FAIL(err, SW_E_FORMAT, "%s: the header is not a JSON object", what);
        goto done;
    }
    if ((rc = parse_members(&part, arena, root, &span, shard, what, err)) != SW_OK) goto done;
    if ((rc = check_cover(&part, &span, what, err)) != SW_OK) goto done;
    qsort(part.tensors, (size_t)part.n_tensors, sizeof *part.tensors, compare_names);
    *out = part;
done:
    cJSON_Delete(root);
    return rc;
}
