/* st_build.c - see st_build.h. */
#include "tests/support/toys/st_build.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "formats/base/size.h"

uint8_t *st_build_add(st_build *b, const char *name, sw_dtype dtype, int32_t n_dims,
                      const int64_t *shape, const void *data)
{
    uint64_t n_bytes = 0;
    sw_err err = {0};

    assert_in_range(b->n, 0, ST_BUILD_MAX - 1);
    if (sw_shape_bytes(&n_bytes, dtype, n_dims, shape, &err) != SW_OK) fail_msg("%s", err.text);
    snprintf(b->tensors[b->n].name, sizeof b->tensors[b->n].name, "%s", name);
    b->tensors[b->n].data = calloc(1, n_bytes + 1);
    assert_non_null(b->tensors[b->n].data);
    if (data) memcpy(b->tensors[b->n].data, data, n_bytes);
    b->tensors[b->n].view = (sw_cview){.size_bytes = n_bytes, .dtype = dtype, .n_dims = n_dims};
    for (int32_t i = 0; i < n_dims; i++) b->tensors[b->n].view.shape[i] = shape[i];
    return b->tensors[b->n++].data;
}

void st_build_encode(st_build *b, const sw_dialect *dialect, const char *module_path,
                     const sw_qtensor *q)
{
    sw_part parts[SW_DIALECT_TENSORS_MAX];
    void *data[SW_DIALECT_TENSORS_MAX];
    char name[160];
    sw_err err = {0};
    int n;

    memset(parts, 0, sizeof parts);
    n = dialect->declare(parts, &q->spec, q->n_out, q->k_in);
    for (int i = 0; i < n; i++) {
        snprintf(name, sizeof name, "%s.%s", module_path, parts[i].suffix);
        data[i] = st_build_add(b, name, parts[i].dtype, parts[i].n_dims, parts[i].shape, NULL);
    }
    if (dialect->encode(data, q, &err) != SW_OK) fail_msg("%s: %s", dialect->name, err.text);
}

uint8_t *st_build_data(st_build *b, const char *name)
{
    for (int i = 0; i < b->n; i++)
        if (!strcmp(b->tensors[i].name, name)) return b->tensors[i].data;
    return NULL;
}

static int header_of(char *text, size_t text_bytes, const st_build *b)
{
    uint64_t at = 0;
    int n = snprintf(text, text_bytes, "{");

    for (int i = 0; i < b->n; i++) {
        const sw_cview *v = &b->tensors[i].view;
        n += snprintf(text + n, text_bytes - (size_t)n, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[",
                      i ? "," : "", b->tensors[i].name, sw_dtype_name(v->dtype));
        for (int32_t d = 0; d < v->n_dims; d++)
            n += snprintf(text + n, text_bytes - (size_t)n, "%s%lld", d ? "," : "",
                          (long long)v->shape[d]);
        n += snprintf(text + n, text_bytes - (size_t)n, "],\"data_offsets\":[%llu,%llu]}",
                      (unsigned long long)at, (unsigned long long)(at + v->size_bytes));
        at += v->size_bytes;
    }
    n += snprintf(text + n, text_bytes - (size_t)n, "}");
    while (n % 8) text[n++] = ' ';
    return n;
}

const sw_st *st_build_open(st_build *b)
{
    static char header[32768];
    size_t n_header = (size_t)header_of(header, sizeof header - 8, b), at = 8 + n_header;
    size_t n_bytes = at;
    sw_err err = {0};

    sw_st_close(b->st);
    free(b->bytes);
    for (int i = 0; i < b->n; i++) n_bytes += b->tensors[i].view.size_bytes;
    b->bytes = malloc(n_bytes);
    assert_non_null(b->bytes);
    sw_store_le64(b->bytes, n_header);
    memcpy(b->bytes + 8, header, n_header);
    for (int i = 0; i < b->n; i++) {
        memcpy(b->bytes + at, b->tensors[i].data, b->tensors[i].view.size_bytes);
        at += b->tensors[i].view.size_bytes;
    }
    b->st = NULL;
    if (sw_st_open_bytes(&b->st, b->bytes, n_bytes, "made in memory", &err) != SW_OK)
        fail_msg("%s", err.text);
    return b->st;
}

void st_build_free(st_build *b)
{
    sw_st_close(b->st);
    free(b->bytes);
    for (int i = 0; i < b->n; i++) free(b->tensors[i].data);
    memset(b, 0, sizeof *b);
}

sw_spec_scheme st_build_scheme(const sw_dialect *dialect, const sw_qspec *spec)
{
    sw_qconfig config = {.spec = *spec};
    sw_spec_scheme scheme = {0};
    cJSON *object = NULL;
    sw_err err = {0};

    if (dialect->write_config(&object, &config, &err) != SW_OK ||
        sw_spec_scheme_read(&scheme, object, &err) != SW_OK)
        fail_msg("%s", err.text);
    cJSON_Delete(object);
    return scheme;
}
