/* exhibit.c - see exhibit.h: opening, and what is looked at when all is known. */
#include "tools/report/data/exhibit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/base/mem.h"
#include "formats/io/file_content.h"

#define MANIFEST "manifest.json"

/* Figures per tensor make manifests of large models long. */
static const sw_json_caps manifest_caps = {
    .max_bytes = (size_t)256 << 20, .max_depth = 32, .max_values = 16000000};

double sw_exhibit_number(const cJSON *object, const char *key)
{
    const cJSON *item = sw_json_member(object, key);

    return cJSON_IsNumber(item) ? item->valuedouble : (double)NAN;
}

const char *sw_exhibit_text(const cJSON *object, const char *key)
{
    const cJSON *item = sw_json_member(object, key);

    return cJSON_IsString(item) ? item->valuestring : NULL;
}

static const char *base_of(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash && slash[1] ? slash + 1 : path;
}

/* Files that were changed after the manifest was written. Digests would say it surely, at the price
 * of reading everything: verify's result has them (exhibit_json.c). */
static bool is_of_other_sizes(const sw_exhibit *x)
{
    const cJSON *file;

    cJSON_ArrayForEach(file, sw_json_member(x->manifest, "outputs")) {
        const char *name = sw_exhibit_text(file, "name");
        double bytes = sw_exhibit_number(file, "bytes");
        char path[SW_PATH_BYTES];
        sw_err ignored = {0};
        struct stat info;
        if (!name || !sw_path_is_plain_name(name) ||
            sw_path_join(path, x->ckpt.dir, name, &ignored) != SW_OK)
            continue;
        if (stat(path, &info) != 0 || (double)info.st_size > bytes || (double)info.st_size < bytes)
            return true;
    }
    return false;
}

/* Beside the weights where Swage made them. */
static sw_code read_manifest(sw_exhibit *x, sw_err *err)
{
    char path[SW_PATH_BYTES];
    sw_code rc;

    if (x->ckpt.is_file) return SW_OK;
    if ((rc = sw_path_join_inside(path, x->ckpt.dir, MANIFEST, err)) != SW_OK) return rc;
    if (!sw_path_exists(path)) return SW_OK;
    if ((rc = sw_json_read(&x->manifest, path, &manifest_caps, err)) != SW_OK) return rc;
    if (is_of_other_sizes(x))
        sw_exhibit_drop_manifest(x);
    else
        sw_exhibit_read_manifest(x);
    return SW_OK;
}

/* The rules of a GGUF are about the file as it lies there. */
static sw_code check_loaders(sw_exhibit *x, sw_err *err)
{
    sw_checkpoint plain;
    sw_code rc;

    if (!x->ckpt.is_file) return sw_loaders_check(&x->loaders, &x->ckpt, err);
    if ((rc = sw_checkpoint_open_headers(&plain, x->path, err)) != SW_OK) return rc;
    rc = sw_loaders_check(&x->loaders, &plain, err);
    sw_checkpoint_close(&plain);
    return rc;
}

sw_code sw_exhibit_open(sw_exhibit *out, const char *path, int n_threads, sw_err *err)
{
    sw_code rc;

    memset(out, 0, sizeof *out);
    out->path = path;
    out->name = base_of(path);
    out->n_threads = n_threads;
    out->original_bytes = (double)NAN;
    sw_exhibit_drop_eval(out);
    if ((rc = sw_checkpoint_open_codes(&out->ckpt, path, err)) != SW_OK) return rc;
    if ((rc = sw_exhibit_list_linears(out, err)) == SW_OK &&
        (rc = sw_exhibit_count_bytes(out, err)) == SW_OK &&
        (rc = read_manifest(out, err)) == SW_OK)
        rc = check_loaders(out, err);
    if (rc != SW_OK) sw_exhibit_close(out);
    return rc;
}

void sw_exhibit_close(sw_exhibit *x)
{
    sw_loaders_free(&x->loaders);
    cJSON_Delete(x->manifest);
    cJSON_Delete(x->verified);
    cJSON_Delete(x->made);
    sw_checkpoint_close(&x->ckpt);
    sw_arena_free(&x->arena);
    memset(x, 0, sizeof *x);
}

double sw_exhibit_cost(const sw_exhibit_linear *l)
{
    if (!isnan(l->output_err)) return l->output_err;
    if (!isnan(l->weight_err)) return l->weight_err;
    return l->calib_err >= 0 ? sqrt(l->calib_err) : (double)NAN;
}

/* Costliest first; where nothing is known, the first linears are as good as others. */
static int compare_costs(const void *a, const void *b)
{
    const sw_exhibit_linear *x = *(const sw_exhibit_linear *const *)a;
    const sw_exhibit_linear *y = *(const sw_exhibit_linear *const *)b;
    double u = sw_exhibit_cost(x), v = sw_exhibit_cost(y);

    if (isnan(u) != isnan(v)) return isnan(u) - isnan(v);
    if (!isnan(u) && (u > v || u < v)) return u < v ? 1 : -1;
    return (x > y) - (x < y);
}

int64_t sw_exhibit_by_cost(const sw_exhibit_linear **order, const sw_exhibit *x)
{
    int64_t n = 0;

    for (int64_t i = 0; i < x->n_linears; i++)
        if (x->linears[i].is_quantized) order[n++] = &x->linears[i];
    if (n) qsort(order, (size_t)n, sizeof *order, compare_costs);
    return n;
}

/* One that does not decode has no histograms: what is wrong with it is verify's to say. */
static sw_code look_at(sw_exhibit *x, const sw_exhibit_linear *l, sw_err *err)
{
    sw_err why = {0};
    sw_code rc = sw_tensor_look_at(&x->looks[x->n_looks], x->ckpt.st, &x->ckpt, l->path, &why);

    if (rc == SW_E_NOMEM || rc == SW_E_IO) return SW_FAIL(err, rc, "%s", why.text);
    if (rc == SW_OK) x->worst[x->n_looks++] = l;
    return SW_OK;
}

sw_code sw_exhibit_look(sw_exhibit *x, sw_err *err)
{
    const sw_exhibit_linear **order = NULL;
    int64_t n;
    sw_code rc = SW_MEM_GET(&order, x->n_linears, "linears", err);

    if (rc != SW_OK) return rc;
    if ((rc = SW_ARENA_TAKE(&x->looks, &x->arena, SW_EXHIBIT_LOOKS, err)) != SW_OK) goto done;
    n = sw_exhibit_by_cost(order, x);
    for (int64_t i = 0; i < n && x->n_looks < SW_EXHIBIT_LOOKS && rc == SW_OK; i++)
        if (order[i]->has_codes) rc = look_at(x, order[i], err);
done:
    sw_mem_put(order);
    return rc;
}
