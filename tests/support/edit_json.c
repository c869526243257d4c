/* edit_json.c - see edit_json.h. */
#include "tests/support/edit_json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "formats/base/json.h"
#include "formats/base/size.h"
#include "formats/file/safetensors.h"
#include "formats/io/file.h"
#include "formats/io/file_content.h"
#include "tests/support/scratch.h"

static const sw_json_caps caps = {
    .max_bytes = (size_t)64 << 20, .max_depth = 64, .max_values = 4000000};

static void join(char path[SW_PATH_BYTES], const char *dir, const char *file)
{
    sw_err err = {0};

    assert_int_equal(sw_path_join(path, dir, file, &err), SW_OK);
}

static void put(const char *dir, const char *file, const void *bytes, size_t n_bytes)
{
    char path[SW_PATH_BYTES];
    FILE *f;

    join(path, dir, file);
    f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n_bytes, f), n_bytes);
    fclose(f);
}

static uint8_t *take(size_t *n_bytes, const char *dir, const char *file)
{
    char path[SW_PATH_BYTES];

    join(path, dir, file);
    return scratch_take(n_bytes, path);
}

void edit_json(const char *dir, const char *file, const char *path, const char *value)
{
    char file_path[SW_PATH_BYTES], names[256], *rest = names, *name, *text;
    cJSON *root = NULL, *at, *member = value ? cJSON_Parse(value) : NULL;
    sw_err err = {0};

    join(file_path, dir, file);
    if (sw_json_read(&root, file_path, &caps, &err) != SW_OK) fail_msg("%s", err.text);
    (void)snprintf(names, sizeof names, "%s", path);
    for (at = root; strchr(rest, '.') && (name = strsep(&rest, ".")) != NULL;)
        assert_non_null(at = cJSON_GetObjectItemCaseSensitive(at, name));
    assert_true(!value || member);
    cJSON_DeleteItemFromObjectCaseSensitive(at, rest);
    if (member) assert_true(cJSON_AddItemToObject(at, rest, member));
    assert_non_null(text = cJSON_Print(root));
    put(dir, file, text, strlen(text));
    cJSON_free(text);
    cJSON_Delete(root);
}

void edit_copy(const char *to_dir, const char *from_dir, const char *file)
{
    size_t n_bytes;
    uint8_t *bytes = take(&n_bytes, from_dir, file);

    put(to_dir, file, bytes, n_bytes);
    free(bytes);
}

void edit_cut(const char *dir, const char *file, size_t n_bytes)
{
    char path[SW_PATH_BYTES];

    join(path, dir, file);
    assert_int_equal(truncate(path, (off_t)n_bytes), 0);
}

void edit_tensor(const char *dir, const char *tensor, size_t at, const void *bytes, size_t n_bytes)
{
    size_t n_file, offset;
    uint8_t *file = take(&n_file, dir, "model.safetensors");
    const sw_st_tensor *t;
    sw_st *st = NULL;
    sw_err err = {0};

    if (sw_st_open_bytes(&st, file, n_file, dir, &err) != SW_OK) fail_msg("%s", err.text);
    t = sw_st_find(st, tensor);
    assert_true(t && at + n_bytes <= t->view.size_bytes);
    offset = (size_t)((const uint8_t *)t->view.data - file);
    sw_st_close(st);
    memcpy(file + offset + at, bytes, n_bytes);
    put(dir, "model.safetensors", file, n_file);
    free(file);
}

void edit_add_tensor(const char *dir, const char *name, int dtype, int64_t rows, int64_t cols,
                     const void *bytes)
{
    const int64_t shape[2] = {rows, cols};
    const size_t n_bytes = (size_t)(rows * cols * sw_dtype_bits((sw_dtype)dtype) / 8);
    sw_st_writer *w = NULL;
    sw_st *st = NULL;
    sw_err err = {0};
    scratch s;

    scratch_open(&s);
    assert_int_equal(sw_st_open(&st, dir, &err), SW_OK);
    assert_int_equal(sw_st_writer_new(&w, s.dir, 0, &err), SW_OK);
    for (int64_t i = 0; i < sw_st_count(st); i++) {
        const sw_st_tensor *t = sw_st_at(st, i);
        assert_int_equal(sw_st_writer_declare(w, t->name, t->view.dtype, t->view.n_dims,
                                              t->view.shape, &err), SW_OK);
    }
    assert_int_equal(sw_st_writer_declare(w, name, (sw_dtype)dtype, 2, shape, &err), SW_OK);
    assert_int_equal(sw_st_writer_begin(w, &err), SW_OK);
    for (int64_t i = 0; i < sw_st_count(st); i++) {
        const sw_st_tensor *t = sw_st_at(st, i);
        assert_int_equal(sw_st_writer_put(w, t->name, t->view.data, t->view.size_bytes, &err),
                         SW_OK);
    }
    assert_int_equal(sw_st_writer_put(w, name, bytes, n_bytes, &err), SW_OK);
    assert_int_equal(sw_st_writer_commit(w, &err), SW_OK);
    sw_st_writer_free(w);
    sw_st_close(st);
    edit_copy(dir, s.dir, "model.safetensors");
    edit_remove(dir, "manifest.json");
    scratch_close(&s);
}

void edit_remove(const char *dir, const char *file)
{
    char path[SW_PATH_BYTES];

    join(path, dir, file);
    (void)unlink(path);
}
