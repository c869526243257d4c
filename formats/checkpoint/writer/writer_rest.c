/* writer_rest.c - linears that a quantized source has in codes, and that are not quantized here.
 *
 * Codes in the source's layout would contradict the new quantization_config, so they become what
 * such a linear is in every other checkpoint: "<path>.weight" in the model's dtype. That is how
 * FP8 sources are read whose layer for further tokens (MTP) is in FP8 as well, and how --ignore
 * leaves a linear of a source that was never anything but quantized.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/mem.h"
#include "formats/checkpoint/found_modules.h"
#include "formats/checkpoint/writer/writer_internal.h"
#include "formats/dialect/dialect_gguf.h"

#define CHUNK_ELEMS ((int64_t)1 << 16)

static int compare_at(const void *a, const void *b)
{
    const int64_t x = ((const sw_rest *)a)->at, y = ((const sw_rest *)b)->at;

    return (x > y) - (x < y);
}

const sw_rest *sw_writer_rest_at(const sw_ckpt_writer *w, int64_t at)
{
    const sw_rest key = {.at = at};

    return bsearch(&key, w->rests, (size_t)w->n_rests, sizeof *w->rests, compare_at);
}

const sw_rest *sw_writer_rest_named(const sw_ckpt_writer *w, const char *weight)
{
    for (int64_t i = 0; i < w->n_rests; i++)
        if (!strcmp(w->rests[i].weight, weight)) return &w->rests[i];
    return NULL;
}

int64_t sw_ckpt_writer_n_decoded(const char **first, const sw_ckpt_writer *w)
{
    *first = w->n_rests ? w->rests[0].path : NULL;
    return w->n_rests;
}

sw_dtype sw_writer_rest_dtype(const sw_ckpt_writer *w)
{
    const sw_dtype own = w->source->model.dtype;

    return w->dialect->is_dense ? w->dialect->scale_dtype(own) : own;
}

/* Is a tensor the codes of a linear, or of a layer's experts? `path` then names their module. */
static bool holds_codes(char path[SW_PART_NAME_BYTES], const sw_checkpoint *source,
                        const char *name)
{
    const char *dot = strrchr(name, '.'), *marker = sw_checkpoint_marker(source);
    const size_t n = strlen(name), n_marker = strlen(marker);
    const bool is_stack = source->dialect->is_stacked;
    sw_part parts[SW_DIALECT_TENSORS_MAX];
    sw_err ignored = {0};
    sw_qspec spec;

    if (!dot || n <= n_marker || n >= SW_PART_NAME_BYTES) return false;
    if (is_stack && (name[n - n_marker - 1] != '_' || strcmp(name + n - n_marker, marker) != 0))
        return false;
    (void)snprintf(path, SW_PART_NAME_BYTES, "%.*s",
                   (int)(is_stack ? n - n_marker - 1 : (size_t)(dot - name)), name);
    if (is_stack) return true;
    if (!sw_checkpoint_is_quantized(source, path) ||
        sw_checkpoint_spec(&spec, source, path, &ignored) != SW_OK)
        return false;
    (void)source->dialect->declare(parts, &spec, 64, 64);
    return !strcmp(dot + 1, parts[0].suffix);
}

static bool may_decode(const sw_ckpt_writer *w)
{
    const sw_checkpoint *source = w->source;

    return (w->dialect->is_dense || w->qconfig.decodes_rest) && !source->dialect->is_stacked &&
           source->dialect != &sw_dialect_gguf && !source->model.arch->has_transposed_linears;
}

static sw_code claim_parts(sw_ckpt_writer *w, const sw_rest *rest, sw_err *err)
{
    const sw_st_tensor *stored[SW_DIALECT_TENSORS_MAX], *first = sw_st_at(w->source->st, 0);
    sw_qspec spec;
    sw_code rc = sw_checkpoint_stored_spec(&spec, w->source, rest->path, rest->n_out, rest->k_in,
                                           err);

    if (rc == SW_OK)
        rc = sw_checkpoint_parts(stored, w->source, rest->path, &spec, rest->n_out, rest->k_in,
                                 err);
    if (rc != SW_OK) {
        sw_err_prefix(err, "%s: %s", w->source->dir, rest->path);
        return rc;
    }
    for (int i = 0; i < SW_DIALECT_TENSORS_MAX; i++) {
        if (!stored[i]) continue;
        w->claimed_bytes += stored[i]->view.size_bytes;
        w->claim_of[stored[i] - first] = stored[i] - first == rest->at ? SW_DECODED : SW_DROPPED;
    }
    return SW_OK;
}

/* `seen` has room for one more module than there are rests. */
static sw_code add_rest(sw_ckpt_writer *w, sw_coded_module *seen, int64_t at, const char *path,
                        sw_err *err)
{
    sw_coded_module *module = &seen[w->n_rests];
    char *kept, *weight;
    sw_code rc = sw_arena_text(&kept, &w->arena, path, strlen(path), err);

    if (rc == SW_OK) rc = sw_arena_print(&weight, &w->arena, err, "%s.weight", path);
    if (rc != SW_OK) return rc;
    *module = (sw_coded_module){.path = kept};
    rc = sw_checkpoint_coded_shape(module, w->source, seen, w->n_rests, err);
    if (rc != SW_OK) {
        sw_err_prefix(err, "%s", w->source->dir);
        return rc;
    }
    w->rests[w->n_rests] = (sw_rest){kept, weight, module->n_out, module->k_in, at};
    return claim_parts(w, &w->rests[w->n_rests++], err);
}

static sw_code refuse(const sw_ckpt_writer *w, const char *path, sw_err *err)
{
    return SW_FAIL(err, SW_E_USAGE, "%s: \"%s\" is quantized already and would stay so beside "
                   "linears of another format; decode the model first: swage convert %s --to bf16 "
                   "-o DIR", w->source->dir, path, w->source->dir);
}

sw_code sw_writer_find_rests(sw_ckpt_writer *w, sw_err *err)
{
    const sw_checkpoint *source = w->source;
    const int64_t n = sw_st_count(source->st);
    sw_coded_module *seen = NULL;
    sw_code rc;

    if (!source->dialect) return SW_OK;
    if ((rc = SW_ARENA_TAKE(&w->rests, &w->arena, n, err)) != SW_OK ||
        (rc = SW_ARENA_TAKE(&seen, &w->arena, n + 1, err)) != SW_OK)
        return rc;
    for (int64_t i = 0; i < n && rc == SW_OK; i++) {
        char path[SW_PART_NAME_BYTES];

        if (w->claim_of[i] != SW_COPIED ||
            !holds_codes(path, source, sw_st_at(source->st, i)->name))
            continue;
        rc = may_decode(w) ? add_rest(w, seen, i, path, err) : refuse(w, path, err);
    }
    return rc;
}

sw_code sw_writer_declare_rest(sw_ckpt_writer *w, const sw_rest *rest, sw_err *err)
{
    const int64_t shape[2] = {rest->n_out, rest->k_in};

    return sw_st_writer_declare(w->st, rest->weight, sw_writer_rest_dtype(w), 2, shape, err);
}

/* Some rows at a time, so that the floats of a whole weight need no room. */
static sw_code stream_rows(sw_st_stream *stream, const sw_qtensor *q, sw_dtype dtype, sw_err *err)
{
    const int64_t bytes = sw_dtype_bits(dtype) / 8, k = q->k_in;
    const int64_t rows = k < CHUNK_ELEMS ? CHUNK_ELEMS / k : 1;
    float *floats = NULL;
    void *stored = NULL;
    sw_code rc = SW_MEM_GET(&floats, rows * k, "decoded rows", err);

    if (rc == SW_OK) rc = sw_mem_get(&stored, rows * k, (size_t)bytes, "decoded rows", err);
    for (int64_t row = 0; row < q->n_out && rc == SW_OK; row += rows) {
        const int64_t n = q->n_out - row < rows ? q->n_out - row : rows;

        sw_qtensor_decode_rows(floats, q, row, n);
        rc = sw_writer_encode_floats(stored, dtype, floats, n * k, err);
        if (rc == SW_OK) rc = sw_st_stream_add(stream, stored, (size_t)(n * k * bytes), err);
    }
    sw_mem_put(stored);
    sw_mem_put(floats);
    return rc;
}

sw_code sw_writer_put_rest(sw_ckpt_writer *w, const sw_rest *rest, sw_err *err)
{
    sw_st_stream stream = {0};
    sw_qtensor q = {0};
    uint64_t n_put = 0;
    sw_code rc = sw_checkpoint_qtensor(&q, w->source, rest->path, rest->n_out, rest->k_in, err);

    if (rc == SW_OK) rc = sw_st_stream_open(&stream, w->st, rest->weight, err);
    if (rc == SW_OK) rc = stream_rows(&stream, &q, sw_writer_rest_dtype(w), err);
    if (rc == SW_OK) rc = sw_st_stream_end(&n_put, &stream, err);
    sw_st_stream_close(&stream);
    sw_qtensor_free(&q);
    if (rc != SW_OK) {
        sw_err_prefix(err, "%s", rest->path);
        return rc;
    }
#pragma omp atomic
    w->encoded_bytes += n_put;
    return SW_OK;
}
