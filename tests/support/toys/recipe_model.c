/* recipe_model.c - see recipe_model.h. */
#include "tests/support/toys/recipe_model.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/json.h"
#include "formats/base/mem.h"
#include "formats/io/file.h"
#include "formats/io/file_content.h"

#define DIMS_MAX 6
#define ELEMS_MAX ((int64_t)1 << 28)

static const sw_json_caps recipe_caps = {.max_bytes = 4 << 20, .max_depth = 8,
                                         .max_values = 1 << 20};

typedef struct recipe_tensor {
    const char *name, *dtype;
    int64_t dims[DIMS_MAX], n_elems, elem_bytes;
    int n_dims;
    double center, scale;
    const cJSON *values; /* of a table of whole numbers, else NULL */
} recipe_tensor;

static sw_code read_shape(recipe_tensor *t, const cJSON *shape, sw_err *err)
{
    const cJSON *dim;

    t->n_elems = 1;
    cJSON_ArrayForEach(dim, shape)
    {
        if (t->n_dims == DIMS_MAX || !cJSON_IsNumber(dim) || !(dim->valuedouble >= 1) ||
            t->n_elems > ELEMS_MAX / (int64_t)dim->valuedouble)
            return SW_FAIL(err, SW_E_FORMAT, "%s: shape", t->name);
        t->dims[t->n_dims++] = (int64_t)dim->valuedouble;
        t->n_elems *= (int64_t)dim->valuedouble;
    }
    return SW_OK;
}

static sw_code read_entry(recipe_tensor *t, const cJSON *entry, sw_err *err)
{
    const cJSON *name = sw_json_member(entry, "name"), *dtype = sw_json_member(entry, "dtype");
    sw_code rc;

    memset(t, 0, sizeof *t);
    if (!cJSON_IsString(name) || !cJSON_IsString(dtype))
        return SW_FAIL(err, SW_E_FORMAT, "an entry without a name or a dtype");
    t->name = name->valuestring;
    t->dtype = dtype->valuestring;
    t->elem_bytes = !strcmp(t->dtype, "BF16") ? 2 : !strcmp(t->dtype, "F32") ? 4
                  : !strcmp(t->dtype, "I64")  ? 8 : 0;
    t->values = sw_json_member(entry, "values");
    if (!t->elem_bytes || (t->elem_bytes == 8) != (t->values != NULL))
        return SW_FAIL(err, SW_E_FORMAT, "%s: dtype %s", t->name, t->dtype);
    if ((rc = read_shape(t, sw_json_member(entry, "shape"), err)) != SW_OK ||
        (rc = sw_json_real(&t->center, entry, "center", err)) != SW_OK)
        return rc;
    return sw_json_real(&t->scale, entry, "scale", err);
}

/* FNV-1a over the name. */
static uint64_t seed_of(const char *name)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    while (*name) hash = (hash ^ (unsigned char)*name++) * UINT64_C(0x100000001b3);
    return hash;
}

/* SplitMix64's output for its state `z`, of which the upper 24 bits make a signed fraction. */
static double fraction(uint64_t z)
{
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    z ^= z >> 31;
    return ((double)(z >> 40) - 8388608.0) / 8388608.0;
}

/* A value with at most 44 significant bits as BF16, to nearest even, in one rounding. */
static uint16_t bf16_of(double value)
{
    uint64_t bits;

    memcpy(&bits, &value, sizeof bits);
    if (!(bits << 1)) return (uint16_t)(bits >> 48);
    /* keep 7 of 52 bits of the mantissa, then move the exponent to the narrower bias */
    bits += (UINT64_C(1) << 44) - 1 + (bits >> 45 & 1);
    return (uint16_t)((bits >> 63 << 15) |
                      (((bits >> 45) & 0x3ffff) - ((UINT64_C(1023) - 127) << 7)));
}

static void fill(uint8_t *to, const recipe_tensor *t)
{
    const cJSON *value = t->values ? t->values->child : NULL;
    uint64_t z = seed_of(t->name);

    for (int64_t i = 0; i < t->n_elems; i++, to += t->elem_bytes) {
        const double v = t->center + t->scale * fraction(z += UINT64_C(0x9e3779b97f4a7c15));
        const float single = (float)v;
        const uint16_t half = bf16_of(v);
        const int64_t whole = value ? (int64_t)value->valuedouble : 0;

        memcpy(to, t->elem_bytes == 2 ? (const void *)&half
                 : t->elem_bytes == 4 ? (const void *)&single : (const void *)&whole,
               (size_t)t->elem_bytes);
        if (value) value = value->next;
    }
}

static size_t put_header(char *to, size_t room, const cJSON *list, int64_t *total, sw_err *err)
{
    const cJSON *entry;
    size_t n = (size_t)snprintf(to, room, "{\"__metadata__\":{\"format\":\"pt\"}");

    *total = 0;
    cJSON_ArrayForEach(entry, list)
    {
        recipe_tensor t;

        if (read_entry(&t, entry, err) != SW_OK || n + 1024 > room) return 0;
        n += (size_t)snprintf(to + n, room - n, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[", t.name,
                              t.dtype);
        for (int i = 0; i < t.n_dims; i++)
            n += (size_t)snprintf(to + n, room - n, "%s%lld", i ? "," : "", (long long)t.dims[i]);
        n += (size_t)snprintf(to + n, room - n, "],\"data_offsets\":[%lld,%lld]}",
                              (long long)*total, (long long)(*total + t.n_elems * t.elem_bytes));
        *total += t.n_elems * t.elem_bytes;
    }
    to[n++] = '}';
    while (n % 8) to[n++] = ' ';
    return n;
}

static sw_code put_model(const char *dir, const cJSON *list, sw_err *err)
{
    const size_t room = 4096 + (size_t)cJSON_GetArraySize(list) * 1024;
    char path[SW_PATH_BYTES], *header = NULL;
    uint8_t *file = NULL, *at;
    const cJSON *entry;
    int64_t total = 0;
    size_t n_header = 0;
    sw_code rc = SW_MEM_GET(&header, (int64_t)room, "header", err);

    if (rc != SW_OK) return rc;
    if (!(n_header = put_header(header, room, list, &total, err))) {
        rc = SW_FAIL(err, SW_E_FORMAT, "the header does not fit");
        goto done;
    }
    if ((rc = SW_MEM_GET(&file, 8 + (int64_t)n_header + total, "model", err)) != SW_OK) goto done;
    for (int i = 0; i < 8; i++) file[i] = (uint8_t)((uint64_t)n_header >> (8 * i));
    memcpy(file + 8, header, n_header);
    at = file + 8 + n_header;
    cJSON_ArrayForEach(entry, list)
    {
        recipe_tensor t;

        if ((rc = read_entry(&t, entry, err)) != SW_OK) goto done;
        fill(at, &t);
        at += t.n_elems * t.elem_bytes;
    }
    if ((rc = sw_path_join(path, dir, "model.safetensors", err)) == SW_OK)
        rc = sw_file_put(path, file, (size_t)(at - file), err);
done:
    sw_mem_put(header);
    sw_mem_put(file);
    return rc;
}

static sw_code copy_file(const char *dir, const char *as, const char *from, const char *name,
                         sw_err *err)
{
    char path[SW_PATH_BYTES];
    sw_map map = {0};
    sw_code rc;

    if ((rc = sw_path_join(path, from, name, err)) != SW_OK ||
        (rc = sw_map_open(&map, path, err)) != SW_OK)
        return rc;
    if ((rc = sw_path_join(path, dir, as, err)) == SW_OK)
        rc = sw_file_put(path, map.data, map.size_bytes, err);
    sw_map_close(&map);
    return rc;
}

sw_code recipe_model_make(const char *dir, const char *recipe_dir, const char *config, sw_err *err)
{
    char path[SW_PATH_BYTES];
    cJSON *recipe = NULL;
    sw_code rc;

    if ((rc = sw_path_join(path, recipe_dir, "recipe.json", err)) != SW_OK ||
        (rc = sw_json_read(&recipe, path, &recipe_caps, err)) != SW_OK)
        return rc;
    if ((rc = put_model(dir, sw_json_member(recipe, "tensors"), err)) == SW_OK &&
        (rc = copy_file(dir, "config.json", recipe_dir, config, err)) == SW_OK)
        rc = copy_file(dir, "generation_config.json", recipe_dir, "generation_config.json", err);
    cJSON_Delete(recipe);
    return rc;
}
