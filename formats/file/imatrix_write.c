/* imatrix_write.c - the writing half of imatrix.h. */
#include <stdio.h>
#include <string.h>

#include "formats/base/mem.h"
#include "formats/base/size.h"
#include "formats/file/gguf.h"
#include "formats/file/imatrix.h"
#include "formats/io/file.h"

#define NAME_BYTES 128

static bool ends_in(const char *name, const char *end)
{
    const size_t n = strlen(name), m = strlen(end);

    return n > m && !strcmp(name + n - m, end);
}

static int64_t width_of(const sw_imatrix_source *s) { return s->entry.n_values / s->n_mats; }

/* --- GGUF ----------------------------------------------------------------------------------- */

static sw_code put_head(sw_gguf_writer *w, const char *text, int64_t n_chunks,
                        int64_t chunk_tokens, sw_err *err)
{
    sw_code rc;

    if ((rc = sw_gguf_put_text(w, "general.type", "imatrix", err)) != SW_OK ||
        (rc = sw_gguf_put_array(w, "imatrix.datasets", SW_GGUF_TEXT, 1, err)) != SW_OK ||
        (rc = sw_gguf_put_elem_text(w, text, strlen(text), err)) != SW_OK ||
        (rc = sw_gguf_put_int(w, "imatrix.chunk_count", SW_GGUF_U32, n_chunks, err)) != SW_OK)
        return rc;
    return sw_gguf_put_int(w, "imatrix.chunk_size", SW_GGUF_U32, chunk_tokens, err);
}

static void names_of(char sums[NAME_BYTES], char counts[NAME_BYTES], const sw_imatrix_source *s)
{
    (void)snprintf(sums, NAME_BYTES, "%s.in_sum2", s->entry.name);
    (void)snprintf(counts, NAME_BYTES, "%s.counts", s->entry.name);
}

static sw_code put_sums(sw_gguf_writer *w, const sw_imatrix_source *s, sw_err *err)
{
    const int64_t width = width_of(s);
    char sums_name[NAME_BYTES], counts_name[NAME_BYTES];
    float *sums = NULL;
    sw_code rc = SW_MEM_GET(&sums, s->entry.n_values, "sums of squares", err);

    names_of(sums_name, counts_name, s);
    for (int64_t i = 0; i < s->entry.n_values && rc == SW_OK; i++)
        sums[i] = (float)((double)s->entry.means[i] * (double)s->counts[i / width]);
    if (rc == SW_OK)
        rc = sw_gguf_put(w, sums_name, 0, sums, (size_t)s->entry.n_values * sizeof *sums, err);
    if (rc == SW_OK)
        rc = sw_gguf_put(w, counts_name, 0, s->counts, (size_t)s->n_mats * sizeof *s->counts, err);
    sw_mem_put(sums);
    return rc;
}

static sw_code declare(sw_gguf_writer *w, const sw_imatrix_source *s, sw_err *err)
{
    const int64_t shape[] = {s->n_mats, width_of(s)}, one[] = {s->n_mats, 1};
    char sums[NAME_BYTES], counts[NAME_BYTES];
    sw_code rc;

    names_of(sums, counts, s);
    rc = sw_gguf_declare(w, sums, SW_BLOCK_F32, 2, shape, err);
    return rc ? rc : sw_gguf_declare(w, counts, SW_BLOCK_F32, 2, one, err);
}

static sw_code write_gguf(const char *path, const sw_imatrix_source *sources, int64_t n,
                          const char *text, int64_t n_chunks, int64_t chunk_tokens,
                          bool may_replace, sw_err *err)
{
    sw_gguf_writer *w = NULL;
    sw_code rc = sw_gguf_writer_open(&w, path, may_replace, err);

    if (rc == SW_OK) rc = put_head(w, text, n_chunks, chunk_tokens, err);
    for (int64_t i = 0; i < n && rc == SW_OK; i++) rc = declare(w, &sources[i], err);
    if (rc == SW_OK) rc = sw_gguf_begin(w, err);
    for (int64_t i = 0; i < n && rc == SW_OK; i++) rc = put_sums(w, &sources[i], err);
    if (rc == SW_OK) rc = sw_gguf_commit(w, err);
    sw_gguf_writer_free(w);
    return rc;
}

/* --- .dat ----------------------------------------------------------------------------------- */

static unsigned char *put_int(unsigned char *at, int64_t v)
{
    sw_store_le32(at, (uint32_t)v);
    return at + 4;
}

static unsigned char *put_text(unsigned char *at, const char *text)
{
    const size_t n = strlen(text);

    at = put_int(at, (int64_t)n);
    memcpy(at, text, n);
    return at + n;
}

/* Means times calls, with one call for each chunk of the text. */
static unsigned char *put_entry(unsigned char *at, const sw_imatrix_source *s, int64_t n_calls)
{
    at = put_text(at, s->entry.name);
    at = put_int(at, n_calls);
    at = put_int(at, s->entry.n_values);
    for (int64_t i = 0; i < s->entry.n_values; i++) {
        const float value = s->entry.means[i] * (float)n_calls;

        memcpy(at, &value, sizeof value);
        at += sizeof value;
    }
    return at;
}

static sw_code write_dat(const char *path, const sw_imatrix_source *sources, int64_t n,
                         const char *text, int64_t n_chunks, bool may_replace, sw_err *err)
{
    size_t n_bytes = 12 + strlen(text);
    unsigned char *bytes = NULL, *at;
    sw_code rc;

    for (int64_t i = 0; i < n; i++)
        n_bytes += 12 + strlen(sources[i].entry.name) + 4 * (size_t)sources[i].entry.n_values;
    if ((rc = SW_MEM_GET(&bytes, n_bytes, path, err)) != SW_OK) return rc;
    at = put_int(bytes, n);
    for (int64_t i = 0; i < n; i++) at = put_entry(at, &sources[i], n_chunks);
    at = put_int(at, n_chunks);
    at = put_text(at, text);
    rc = sw_file_put_new(path, bytes, (size_t)(at - bytes), may_replace, err);
    sw_mem_put(bytes);
    return rc;
}

sw_code sw_imatrix_write(const char *path, const sw_imatrix_source *sources, int64_t n,
                         const char *text, int64_t n_chunks, int64_t chunk_tokens,
                         bool may_replace, sw_err *err)
{
    if (ends_in(path, ".gguf"))
        return write_gguf(path, sources, n, text, n_chunks, chunk_tokens, may_replace, err);
    if (ends_in(path, ".dat"))
        return write_dat(path, sources, n, text, n_chunks, may_replace, err);
    return SW_FAIL(err, SW_E_USAGE, "%s: an imatrix file is called FILE.gguf or FILE.dat", path);
}
