/* hidden_file.c - see hidden_file.h. */
#include "verify/metrics/hidden_file.h"

#include <stdio.h>
#include <string.h>

#include "formats/base/mem.h"
#include "formats/base/size.h"
#include "formats/io/file.h"

#define NAME_BYTES 32
#define FIELD_BYTES 96

enum { MODEL, TEXT, CUT, N_FIELDS };
static const char *const field_keys[N_FIELDS] = {"swage.original", "swage.tokens", "swage.windows"};
static const char *const field_names[N_FIELDS] = {"model", "text", "cut into windows"};

typedef struct fields {
    char of[N_FIELDS][FIELD_BYTES];
} fields;

static void batch_name(char out[NAME_BYTES], int64_t index)
{
    (void)snprintf(out, NAME_BYTES, "hidden.%08lld", (long long)index);
}

static sw_code describe(fields *out, const char *identity, const sw_windows *w, sw_err *err)
{
    (void)snprintf(out->of[MODEL], FIELD_BYTES, "%s", identity);
    (void)snprintf(out->of[CUT], FIELD_BYTES, "%lld of %lld, bos %lld", (long long)w->n,
                   (long long)w->length, w->has_bos ? (long long)w->bos : -1LL);
    return sw_sha256_hex(out->of[TEXT], w->ids, (size_t)(w->n * w->stride) * sizeof *w->ids, err);
}

static sw_code check_fields(const sw_hidden_file *f, const fields *want, sw_err *err)
{
    for (int i = 0; i < N_FIELDS; i++) {
        const char *have = sw_st_metadata(f->have, field_keys[i]);

        if (!have)
            return SW_FAIL(err, SW_E_FORMAT, "%s: no %s in its metadata: not a file of hidden "
                           "states; name another", f->path, field_keys[i]);
        if (strcmp(have, want->of[i]) != 0)
            return SW_FAIL(err, SW_E_USAGE, "%s holds states of another %s; remove it to have it "
                           "made anew, or name another", f->path, field_names[i]);
    }
    return SW_OK;
}

/* Directory and file name of a path. */
static sw_code split_path(char dir[SW_PATH_BYTES], const char **name, const char *path, sw_err *err)
{
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) : 0;

    if (strlen(path) >= SW_PATH_BYTES)
        return SW_FAIL(err, SW_E_USAGE, "%s: the path is too long", path);
    *name = slash ? slash + 1 : path;
    if (!sw_path_is_plain_name(*name))
        return SW_FAIL(err, SW_E_USAGE, "%s names no file", path);
    memcpy(dir, path, n);
    dir[n] = '\0';
    if (!slash) memcpy(dir, ".", 2);
    if (slash == path) memcpy(dir, "/", 2);
    return SW_OK;
}

static sw_code declare_batches(sw_hidden_file *f, const sw_windows *w, sw_err *err)
{
    int64_t batch = sw_windows_batch(w);
    sw_code rc = SW_OK;

    for (int64_t at = 0; at < w->n && rc == SW_OK; at += batch) {
        int64_t shape[2] = {sw_min_i64(batch, w->n - at) * w->length, f->hidden};
        char name[NAME_BYTES];

        batch_name(name, at / batch);
        rc = sw_st_writer_declare(f->making, name, SW_DTYPE_F32, 2, shape, err);
    }
    return rc;
}

static sw_code begin(sw_hidden_file *f, const sw_windows *w, const fields *of_this, sw_err *err)
{
    char dir[SW_PATH_BYTES];
    const char *name;
    sw_code rc;

    if ((rc = split_path(dir, &name, f->path, err)) != SW_OK ||
        (rc = sw_st_writer_new(&f->making, dir, 0, err)) != SW_OK ||
        (rc = sw_st_writer_name(f->making, name, err)) != SW_OK)
        return rc;
    sw_st_writer_alone(f->making);
    for (int i = 0; i < N_FIELDS; i++)
        if ((rc = sw_st_writer_meta(f->making, field_keys[i], of_this->of[i], err)) != SW_OK)
            return rc;
    if ((rc = declare_batches(f, w, err)) != SW_OK) return rc;
    return sw_st_writer_begin(f->making, err);
}

sw_code sw_hidden_file_open(sw_hidden_file *out, const char *path, const char *identity,
                            const sw_windows *windows, int64_t hidden, sw_err *err)
{
    sw_hidden_file f = {.hidden = hidden};
    fields want;
    sw_code rc;

    (void)snprintf(f.path, sizeof f.path, "%s", path);
    if ((rc = describe(&want, identity, windows, err)) != SW_OK) goto done;
    if (sw_path_exists(path)) {
        if ((rc = sw_st_open(&f.have, path, err)) == SW_OK) rc = check_fields(&f, &want, err);
    } else {
        rc = begin(&f, windows, &want, err);
    }
    if (rc != SW_OK) goto done;
    *out = f;
    memset(&f, 0, sizeof f);
done:
    sw_hidden_file_close(&f);
    return rc;
}

sw_code sw_hidden_file_get(float *x, const sw_hidden_file *f, int64_t index, int64_t n_rows,
                           sw_err *err)
{
    char name[NAME_BYTES];
    const sw_st_tensor *t;

    batch_name(name, index);
    t = sw_st_find(f->have, name);
    if (!t || t->view.dtype != SW_DTYPE_F32 || t->view.n_dims != 2 || t->view.shape[0] != n_rows ||
        t->view.shape[1] != f->hidden)
        return SW_FAIL(err, SW_E_FORMAT, "%s: tensor %s is missing or not F32 [%lld, %lld]; remove "
                       "the file to have it made anew", f->path, name, (long long)n_rows,
                       (long long)f->hidden);
    memcpy(x, t->view.data, t->view.size_bytes);
    sw_map_forget(t->view.data, t->view.size_bytes);
    return SW_OK;
}

sw_code sw_hidden_file_put(sw_hidden_file *f, const float *x, int64_t index, int64_t n_rows,
                           sw_err *err)
{
    char name[NAME_BYTES];

    batch_name(name, index);
    return sw_st_writer_put(f->making, name, x, (size_t)(n_rows * f->hidden) * sizeof *x, err);
}

sw_code sw_hidden_file_commit(sw_hidden_file *f, sw_err *err)
{
    return f->making ? sw_st_writer_commit(f->making, err) : SW_OK;
}

void sw_hidden_file_close(sw_hidden_file *f)
{
    sw_st_close(f->have);
    sw_st_writer_free(f->making);
    memset(f, 0, sizeof *f);
}
