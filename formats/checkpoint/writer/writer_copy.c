/* writer_copy.c - what the checkpoint writer takes over without a thought: tensors that no linear
 * claims, and shapes. */
#include "formats/base/size.h"
#include "formats/checkpoint/writer/writer_internal.h"
#include "formats/dialect/dialect_common.h"
#include "formats/io/profile.h"

#define STEP_BYTES ((uint64_t)4 << 20)

/* In steps whose pages are let go of, so that an embedding need not be resident as a whole. */
static sw_code copy_one(sw_ckpt_writer *w, const sw_st_tensor *t, sw_err *err)
{
    sw_st_bytes bytes = {0};
    sw_st_stream stream = {0};
    uint64_t n_bytes = t->view.size_bytes, n_put = 0;
    sw_code rc = sw_st_fetch(&bytes, t, err);
    const uint8_t *from = bytes.data;

    sw_st_want_tensor(w->source->st, t);
    if (rc == SW_OK) rc = sw_st_stream_open(&stream, w->st, t->name, err);
    for (uint64_t at = 0; at < n_bytes && rc == SW_OK; at += STEP_BYTES) {
        if (atomic_load(&w->ahead.is_stopped)) {
            rc = SW_FAIL(err, SW_E_CANCELLED, "copy of %s was stopped", t->name);
            break;
        }
        size_t n = (size_t)(n_bytes - at < STEP_BYTES ? n_bytes - at : STEP_BYTES);
        rc = sw_st_stream_add(&stream, from + at, n, err);
        sw_st_forget_range(w->source->st, t, at, n);
    }
    if (rc == SW_OK) rc = sw_st_stream_end(&n_put, &stream, err);
    sw_st_stream_close(&stream);
    sw_st_drop(&bytes);
    if (rc != SW_OK) return rc;
#pragma omp atomic
    w->copied_bytes += n_bytes;
    return SW_OK;
}

static bool is_waiting(const sw_ckpt_writer *w, int64_t i)
{
    const int32_t what = w->claim_of[i];

    return what == SW_COPIED || what == SW_CAST || what == SW_DECODED;
}

int64_t sw_ckpt_writer_n_copies(const sw_ckpt_writer *w)
{
    return sw_st_count(w->source->st);
}

sw_code sw_ckpt_writer_copy(sw_ckpt_writer *w, int64_t i, sw_err *err)
{
    const sw_st_tensor *t = sw_st_at(w->source->st, i);
    sw_span span = sw_span_open("copy");
    sw_code rc;

    if (!is_waiting(w, i)) return SW_OK;
    rc = w->claim_of[i] == SW_DECODED ? sw_writer_put_rest(w, sw_writer_rest_at(w, i), err)
         : w->claim_of[i] == SW_CAST  ? sw_writer_put_cast(w, t, err)
                                      : copy_one(w, t, err);
    sw_st_forget_tensor(w->source->st, t);
    if (rc == SW_OK) w->claim_of[i] = SW_COPY_DONE;
    sw_span_close(span, t->name);
    return rc;
}

sw_code sw_writer_copy_all(sw_ckpt_writer *w, sw_err *err)
{
    const int64_t n = sw_ckpt_writer_n_copies(w);
    sw_code rc = SW_OK;

    for (int64_t i = 0; i < n && rc == SW_OK; i++) {
        sw_progress_step(w->progress, "copy", i, n);
        if (is_waiting(w, i)) sw_progress_item(w->progress, sw_st_at(w->source->st, i)->name);
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
