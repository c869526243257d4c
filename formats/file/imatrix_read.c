/* imatrix_read.c - the reading half of imatrix.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/mem.h"
#include "formats/base/size.h"
#include "formats/file/gguf.h"
#include "formats/file/imatrix.h"
#include "formats/io/file.h"

#define NAME_BYTES_MAX 1024

struct sw_imatrix {
    sw_imatrix_entry *entries;
    int64_t n;
    char *what;
    sw_arena arena;
};

static sw_code spoilt(const sw_imatrix *im, const char *name, const char *why, sw_err *err)
{
    return SW_FAIL(err, SW_E_FORMAT, "%s: \"%.100s\" %s", im->what, name, why);
}

/* n means of squares; a count of 0 makes them even. */
static sw_code put_means(float *to, const sw_imatrix *im, const char *name, const float *from,
                         int64_t n, double count, sw_err *err)
{
    if (!isfinite(count) || (count < 1.0 && count != 0.0))
        return spoilt(im, name, "has a count that cannot be", err);
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(from[i]) || from[i] < 0.0f)
            return spoilt(im, name, "has a sum of squares that is negative or no number", err);
        to[i] = count > 0.0 ? (float)((double)from[i] / count) : 1.0f;
    }
    return SW_OK;
}

/* --- .dat --------------------------------------------------------------------------------- */

typedef struct cursor {
    const unsigned char *at;
    size_t left;
} cursor;

static sw_code take(const unsigned char **out, cursor *c, const sw_imatrix *im, uint64_t n,
                    sw_err *err)
{
    if (n > c->left)
        return SW_FAIL(err, SW_E_FORMAT, "%s: ends within an entry; is it an imatrix file?",
                       im->what);
    *out = c->at;
    c->at += n;
    c->left -= n;
    return SW_OK;
}

static sw_code take_int(int64_t *out, cursor *c, const sw_imatrix *im, int64_t max, sw_err *err)
{
    const unsigned char *p = NULL;
    sw_code rc = take(&p, c, im, 4, err);

    if (rc != SW_OK) return rc;
    *out = (int32_t)sw_load_le32(p);
    if (*out >= 0 && *out <= max) return SW_OK;
    return SW_FAIL(err, SW_E_FORMAT, "%s: a length of %lld; is it an imatrix file?", im->what,
                   (long long)*out);
}

static sw_code read_values(sw_imatrix_entry *e, sw_imatrix *im, cursor *c, int64_t calls,
                           int64_t n, sw_err *err)
{
    const unsigned char *bytes = NULL;
    float *means = NULL;
    sw_code rc = take(&bytes, c, im, 4 * (uint64_t)n, err);

    if (rc != SW_OK || (rc = SW_ARENA_TAKE(&means, &im->arena, n, err)) != SW_OK) return rc;
    memcpy(means, bytes, (size_t)n * 4);
    e->n_values = n;
    e->means = means;
    e->n_tokens = (double)calls;
    return put_means(means, im, e->name, means, n, (double)calls, err);
}

static sw_code read_entry(sw_imatrix_entry *e, sw_imatrix *im, cursor *c, sw_err *err)
{
    int64_t length = 0, calls = 0, n = 0;
    const unsigned char *text = NULL;
    char *name = NULL;
    sw_code rc;

    if ((rc = take_int(&length, c, im, NAME_BYTES_MAX, err)) != SW_OK ||
        (rc = take(&text, c, im, (uint64_t)length, err)) != SW_OK)
        return rc;
    if (!length || memchr(text, '\0', (size_t)length))
        return SW_FAIL(err, SW_E_FORMAT, "%s: an entry without a name", im->what);
    if ((rc = sw_arena_text(&name, &im->arena, (const char *)text, (size_t)length, err)) != SW_OK)
        return rc;
    e->name = name;
    if ((rc = take_int(&calls, c, im, INT32_MAX, err)) != SW_OK ||
        (rc = take_int(&n, c, im, INT32_MAX, err)) != SW_OK)
        return rc;
    if (!n) return spoilt(im, name, "has no values", err);
    return read_values(e, im, c, calls, n, err);
}

static sw_code read_dat(sw_imatrix *im, const void *bytes, size_t n_bytes, sw_err *err)
{
    cursor c = {bytes, n_bytes};
    int64_t n = 0;
    sw_code rc = take_int(&n, &c, im, (int64_t)(n_bytes / 16), err);

    if (rc != SW_OK || (rc = SW_ARENA_TAKE(&im->entries, &im->arena, n, err)) != SW_OK) return rc;
    for (; im->n < n && rc == SW_OK; im->n++) rc = read_entry(&im->entries[im->n], im, &c, err);
    return rc;
}

/* --- GGUF ----------------------------------------------------------------------------------- */

static const char sums_end[] = ".in_sum2", counts_end[] = ".counts";

static bool ends_in(const char *name, const char *end)
{
    const size_t n = strlen(name), m = strlen(end);

    return n > m && !strcmp(name + n - m, end);
}

static sw_code read_sums(sw_imatrix_entry *e, sw_imatrix *im, const sw_gguf *g,
                         const sw_gguf_tensor *t, sw_err *err)
{
    const size_t n_name = strlen(t->name) - strlen(sums_end);
    const sw_gguf_tensor *counts;
    char *name = NULL, *beside = NULL;
    float *means = NULL, count;
    int64_t n_mats, width;
    sw_code rc;

    if ((rc = sw_arena_text(&name, &im->arena, t->name, n_name, err)) != SW_OK ||
        (rc = sw_arena_print(&beside, &im->arena, err, "%s%s", name, counts_end)) != SW_OK)
        return rc;
    counts = sw_gguf_find(g, beside);
    width = t->shape[t->n_dims - 1];
    if (t->type != SW_BLOCK_F32 || !counts || counts->type != SW_BLOCK_F32 || width < 1)
        return spoilt(im, name, "has no sums and counts in F32", err);
    n_mats = (int64_t)(t->size_bytes / 4) / width;
    if ((int64_t)(counts->size_bytes / 4) != n_mats || n_mats < 1)
        return spoilt(im, name, "has another number of counts than of rows", err);
    if ((rc = SW_ARENA_TAKE(&means, &im->arena, n_mats * width, err)) != SW_OK) return rc;
    *e = (sw_imatrix_entry){.name = name, .n_values = n_mats * width, .means = means};
    memcpy(means, t->data, (size_t)t->size_bytes);
    for (int64_t m = 0; m < n_mats && rc == SW_OK; m++) {
        memcpy(&count, (const char *)counts->data + 4 * m, sizeof count);
        if (!m) e->n_tokens = (double)count;
        rc = put_means(means + m * width, im, name, means + m * width, width, (double)count, err);
    }
    return rc;
}

static sw_code read_gguf(sw_imatrix *im, const void *bytes, size_t n_bytes, sw_err *err)
{
    sw_gguf *g = NULL;
    sw_code rc = sw_gguf_open_bytes(&g, bytes, n_bytes, im->what, err);

    if (rc != SW_OK) return rc;
    rc = SW_ARENA_TAKE(&im->entries, &im->arena, sw_gguf_count(g), err);
    for (int64_t i = 0; i < sw_gguf_count(g) && rc == SW_OK; i++) {
        const sw_gguf_tensor *t = sw_gguf_at(g, i);

        if (ends_in(t->name, sums_end)) rc = read_sums(&im->entries[im->n++], im, g, t, err);
    }
    sw_gguf_close(g);
    if (rc != SW_OK || im->n) return rc;
    return SW_FAIL(err, SW_E_FORMAT, "%s: is a GGUF without sums of squares (*%s): a model, or no "
                   "imatrix", im->what, sums_end);
}

/* --- both ------------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const sw_imatrix_entry *)a)->name, ((const sw_imatrix_entry *)b)->name);
}

static sw_code sort(sw_imatrix *im, sw_err *err)
{
    if (im->n) qsort(im->entries, (size_t)im->n, sizeof *im->entries, by_name);
    for (int64_t i = 1; i < im->n; i++)
        if (!by_name(&im->entries[i - 1], &im->entries[i]))
            return spoilt(im, im->entries[i].name, "is there twice", err);
    return SW_OK;
}

sw_code sw_imatrix_open_bytes(sw_imatrix **out, const void *bytes, size_t n_bytes,
                              const char *what, sw_err *err)
{
    sw_imatrix *im = NULL;
    sw_code rc = SW_MEM_GET(&im, 1, "imatrix", err);

    if (rc == SW_OK) rc = sw_arena_text(&im->what, &im->arena, what, strlen(what), err);
    if (rc == SW_OK)
        rc = n_bytes >= 4 && !memcmp(bytes, "GGUF", 4) ? read_gguf(im, bytes, n_bytes, err)
                                                       : read_dat(im, bytes, n_bytes, err);
    if (rc == SW_OK) rc = sort(im, err);
    if (rc == SW_OK) *out = im;
    else sw_imatrix_free(im);
    return rc;
}

sw_code sw_imatrix_open(sw_imatrix **out, const char *path, sw_err *err)
{
    sw_map map = {0};
    sw_code rc = sw_map_open(&map, path, err);

    if (rc == SW_OK) rc = sw_imatrix_open_bytes(out, map.data, map.size_bytes, path, err);
    sw_map_close(&map);
    return rc;
}

void sw_imatrix_free(sw_imatrix *im)
{
    if (im) sw_arena_free(&im->arena);
    sw_mem_put(im);
}

int64_t sw_imatrix_count(const sw_imatrix *im) { return im->n; }
const sw_imatrix_entry *sw_imatrix_at(const sw_imatrix *im, int64_t i) { return &im->entries[i]; }

sw_code sw_imatrix_weights(const float **out, const sw_imatrix *im, const char *name,
                           int64_t n_mats, int64_t mat, int64_t width, sw_err *err)
{
    const sw_imatrix_entry key = {.name = name};
    const sw_imatrix_entry *e =
        im->n ? bsearch(&key, im->entries, (size_t)im->n, sizeof key, by_name) : NULL;

    *out = NULL;
    if (!e) return SW_OK;
    if (e->n_values != n_mats * width && e->n_values != width)
        return SW_FAIL(err, SW_E_FORMAT, "%s: \"%.100s\" has %lld values, the model's weight %lld "
                       "times %lld inputs; is it of another model?", im->what, name,
                       (long long)e->n_values, (long long)n_mats, (long long)width);
    *out = e->means + (e->n_values == width ? 0 : mat * width);
    return SW_OK;
}
