/* writer_copy.c - what the checkpoint writer takes over without a thought: tensors that no linear
 * claims, and shapes. */
#include "formats/base/size.h"
#include "formats/checkpoint/writer/writer_internal.h"
#include "formats/dialect/dialect_common.h"
#include "formats/io/profile.h"

#define PART_BYTES ((uint64_t)8 << 20) /* of a tensor, to one thread: all stay near each other */
#define STEP_BYTES ((uint64_t)2 << 20)
#define AHEAD_BYTES (4 * PART_BYTES) /* what the disk should begin with */

/* --- cutting --- */

static bool is_waiting(const sw_ckpt_writer *w, int64_t at)
{
    const int32_t what = w->claim_of[at];

    return what == SW_COPIED || what == SW_CAST || what == SW_DECODED;
}

static const char *name_of(const sw_ckpt_writer *w, int64_t at)
{
    return w->claim_of[at] == SW_DECODED ? sw_writer_rest_at(w, at)->weight
                                         : sw_st_at(w->source->st, at)->name;
}

/* What is decoded, or made in memory by its maker, goes as a whole. */
static uint64_t part_bytes(const sw_ckpt_writer *w, int64_t at)
{
    return w->claim_of[at] == SW_DECODED || sw_st_at(w->source->st, at)->maker ? UINT64_MAX
                                                                             : PART_BYTES;
}

/* false: nobody copies it. */
static bool size_of(uint64_t *out, const sw_ckpt_writer *w, int64_t at)
{
    if (!is_waiting(w, at)) return false;
    *out = sw_st_writer_bytes(w->st, name_of(w, at));
    return true;
}

static sw_code cut_tensor(sw_ckpt_writer *w, int64_t at, uint64_t n_bytes, sw_err *err)
{
    sw_copy part = {.at = at};
    sw_code rc = SW_OK;

    do {
        part.begin = part.end;
        rc = sw_st_stream_cut(&part.end, w->st, name_of(w, at), part.begin, part_bytes(w, at), err);
        if (rc == SW_OK) w->copies[w->n_copies++] = part;
    } while (rc == SW_OK && part.end < n_bytes);
    return rc;
}

sw_code sw_writer_cut_copies(sw_ckpt_writer *w, sw_err *err)
{
    const int64_t n = sw_st_count(w->source->st);
    int64_t n_copies = 0;
    uint64_t n_bytes;
    sw_code rc;

    for (int64_t i = 0; i < n; i++)
        if (size_of(&n_bytes, w, i)) n_copies += 1 + (int64_t)(n_bytes / PART_BYTES);
    rc = SW_MEM_GET(&w->copies, n_copies, "parts to copy", err);
    for (int64_t i = 0; i < n && rc == SW_OK; i++)
        if (size_of(&n_bytes, w, w->order[i])) rc = cut_tensor(w, w->order[i], n_bytes, err);
    return rc;
}

/* --- copying --- */

static sw_code copy_bytes(sw_st_stream *to, const sw_ckpt_writer *w, const uint8_t *from,
                          const sw_copy *part, sw_err *err)
{
    sw_code rc = SW_OK;

    for (uint64_t at = part->begin; at < part->end && rc == SW_OK; at += STEP_BYTES) {
        if (atomic_load(&w->ahead.is_stopped))
            return SW_FAIL(err, SW_E_CANCELLED, "copy of %s was stopped", name_of(w, part->at));
        rc = sw_st_stream_add(to, from + at, (size_t)sw_min_u64(part->end - at, STEP_BYTES), err);
    }
    return rc;
}

static sw_code put_copy(sw_ckpt_writer *w, const sw_st_tensor *t, const void *data,
                        const sw_copy *part, sw_err *err)
{
    sw_st_stream stream = {0};
    uint64_t n_put = 0;
    sw_code rc = sw_st_stream_open_part(&stream, w->st, t->name, part->begin, part->end, err);

    if (rc == SW_OK) rc = copy_bytes(&stream, w, data, part, err);
    if (rc == SW_OK) rc = sw_st_stream_end(&n_put, &stream, err);
    sw_st_stream_close(&stream);
    if (rc != SW_OK) return rc;
#pragma omp atomic
    w->copied_bytes += n_put;
    return SW_OK;
}

/* Where the bytes of a part lie in the source's tensor. */
static void source_range(uint64_t *begin, uint64_t *n_bytes, const sw_ckpt_writer *w,
                         const sw_st_tensor *t, const sw_copy *part)
{
    const uint64_t from_bits = (uint64_t)sw_dtype_bits(t->view.dtype);
    const uint64_t to_bits = w->claim_of[part->at] == SW_CAST
                                 ? (uint64_t)sw_dtype_bits(sw_writer_dtype(w, t)) : from_bits;

    *begin = part->begin / to_bits * from_bits;
    *n_bytes = (part->end - part->begin) / to_bits * from_bits;
}

/* What is read is let go of, so that an embedding need not be resident as a whole. */
static sw_code put_part(sw_ckpt_writer *w, const sw_copy *part, sw_err *err)
{
    const sw_st_tensor *t = sw_st_at(w->source->st, part->at);
    uint64_t begin, n_bytes;
    sw_st_bytes bytes = {0};
    sw_code rc = sw_st_fetch(&bytes, t, err);

    source_range(&begin, &n_bytes, w, t, part);
    sw_st_want_range(w->source->st, t, begin, n_bytes + AHEAD_BYTES);
    if (rc == SW_OK)
        rc = w->claim_of[part->at] == SW_CAST ? sw_writer_put_cast(w, t, bytes.data, part, err)
                                              : put_copy(w, t, bytes.data, part, err);
    sw_st_drop(&bytes);
    sw_st_forget_range(w->source->st, t, begin, (size_t)n_bytes);
    return rc;
}

int64_t sw_ckpt_writer_n_copies(const sw_ckpt_writer *w) { return w->n_copies; }

sw_code sw_ckpt_writer_copy(sw_ckpt_writer *w, int64_t i, sw_err *err)
{
    sw_copy *part = &w->copies[i];
    sw_span span;
    sw_code rc;

    if (part->is_done || !is_waiting(w, part->at)) return SW_OK;
    sw_st_writer_keep_pace(w->st, name_of(w, part->at), part->end);
    span = sw_span_open("copy");
    rc = w->claim_of[part->at] == SW_DECODED
             ? sw_writer_put_rest(w, sw_writer_rest_at(w, part->at), err)
             : put_part(w, part, err);
    part->is_done = rc == SW_OK;
    sw_span_close(span, name_of(w, part->at));
    return rc;
}

sw_code sw_writer_copy_all(sw_ckpt_writer *w, sw_err *err)
{
    const int64_t n = sw_ckpt_writer_n_copies(w);
    sw_code rc = SW_OK;

    for (int64_t i = 0; i < n && rc == SW_OK; i++) {
        sw_progress_step(w->progress, "copy", i, n);
        if (!w->copies[i].begin) sw_progress_item(w->progress, name_of(w, w->copies[i].at));
        rc = sw_ckpt_writer_copy(w, i, err);
    }
    if (rc == SW_OK) sw_progress_step(w->progress, "copy", n, n);
    return rc;
}

sw_code sw_ckpt_writer_catch_up(sw_ckpt_writer *w, sw_err *err)
{
    return sw_st_writer_catch_up(w->st, err);
}

/* The shapes among the parts of one claim. */
static sw_code put_shapes_of(sw_ckpt_writer *w, const sw_claim *c, sw_err *err)
{
    const sw_qtensor q = {.n_out = c->n_out, .k_in = c->k_in};
    sw_part parts[SW_DIALECT_TENSORS_MAX];
    int n = w->dialect->declare(parts, &c->spec, c->n_out, c->k_in);
    sw_code rc = SW_OK;

    for (int i = 0; i < n && rc == SW_OK; i++) {
        char name[SW_PART_NAME_BYTES];
        uint8_t bytes[16];
        if (!parts[i].is_shape) continue;
        sw_shape_store(bytes, &q);
        if ((rc = sw_part_name(name, c->module_path, parts[i].suffix, err)) == SW_OK)
            rc = sw_st_writer_put(w->st, name, bytes, sizeof bytes, err);
        if (rc == SW_OK) w->encoded_bytes += sizeof bytes;
    }
    return rc;
}

sw_code sw_writer_put_shapes(sw_ckpt_writer *w, sw_err *err)
{
    sw_code rc = SW_OK;

    if (w->dialect->is_stacked) return SW_OK;
    for (int64_t i = 0; i < w->n_claims && rc == SW_OK; i++)
        rc = put_shapes_of(w, &w->claims[i], err);
    w->has_shapes = rc == SW_OK;
    return rc;
}
