/* writer_cast.c - tensors that stay floats and change their dtype: what is left of a model when it
 * is written plainly in another one than it has, and what a GGUF has in blocks or in F32.
 *
 * Only tensors of the model's own dtype are cast: one that is F32 in a BF16 model (the shift of a
 * router, say) is so on purpose. To F32 all halves go, since that loses nothing. Out of a GGUF come
 * embedding, head and linears that stay floats in the model's dtype, as every other checkpoint of
 * the model has them.
 */
#include <math.h>
#include <string.h>

#include "formats/base/mem.h"
#include "formats/base/size.h"
#include "formats/checkpoint/writer/writer_internal.h"
#include "formats/gguf/gguf_model.h"
#include "formats/num/half.h"

#define CHUNK_ELEMS ((int64_t)1 << 14) /* their floats stay in the first caches */

static bool is_half(sw_dtype dtype) { return dtype == SW_DTYPE_F16 || dtype == SW_DTYPE_BF16; }

sw_dtype sw_checkpoint_kept_dtype(const sw_checkpoint *source, const sw_dialect *target,
                                  const sw_st_tensor *t)
{
    const bool is_widened = source->is_file && sw_gguf_is_widened(t);
    sw_dtype from = t->view.dtype, own = source->model.dtype, to;
    sw_block_type blocks;

    if (!target->is_dense) return is_widened ? own : from;
    to = target->scale_dtype(own);
    if (is_widened || (source->is_file && sw_gguf_decoded_type(&blocks, t))) return to;
    if (to == SW_DTYPE_F32) return is_half(from) ? to : from;
    return from == own || is_half(from) ? to : from;
}

sw_dtype sw_writer_dtype(const sw_ckpt_writer *w, const sw_st_tensor *t)
{
    return sw_checkpoint_kept_dtype(w->source, w->dialect, t);
}

sw_code sw_writer_encode_floats(void *to, sw_dtype dtype, const float *floats, int64_t n,
                                sw_err *err)
{
    const bool is_beyond = dtype == SW_DTYPE_F16 && sw_f16_overflows(floats, (size_t)n);

    for (int64_t i = 0; i < n && is_beyond; i++)
        if (isfinite(floats[i]) && fabsf(floats[i]) >= SW_F16_OVERFLOW)
            return SW_FAIL(err, SW_E_UNSUPPORTED, "%g is beyond F16; use --to bf16 or f32",
                           (double)floats[i]);
    return sw_float_encode_n(to, dtype, floats, n, err);
}

static sw_code cast_chunk(void *to, sw_dtype to_dtype, const void *from, sw_dtype from_dtype,
                          float *floats, int64_t n, sw_err *err)
{
    sw_code rc = sw_float_decode_n(floats, from, from_dtype, n, err);

    return rc == SW_OK ? sw_writer_encode_floats(to, to_dtype, floats, n, err) : rc;
}

/* Elements of `part`, some at a time, from where they lie to where they leave from. */
static sw_code cast(sw_st_stream *to, sw_dtype dtype, const sw_cview *from, const void *data,
                    const sw_copy *part, float *room, sw_err *err)
{
    const uint64_t to_bytes = (uint64_t)sw_dtype_bits(dtype) / 8;
    const uint64_t from_bytes = (uint64_t)sw_dtype_bits(from->dtype) / 8;
    const int64_t end = (int64_t)(part->end / to_bytes);
    void *aligned = room + CHUNK_ELEMS, *stored = NULL;
    sw_code rc = SW_OK;

    for (int64_t i = (int64_t)(part->begin / to_bytes); i < end && rc == SW_OK; i += CHUNK_ELEMS) {
        const int64_t n = sw_min_i64(end - i, CHUNK_ELEMS);
        memcpy(aligned, (const uint8_t *)data + (uint64_t)i * from_bytes,
               (uint64_t)n * from_bytes);
        if ((rc = sw_st_stream_room(&stored, to, (uint64_t)n * to_bytes, err)) != SW_OK ||
            (rc = cast_chunk(stored, dtype, aligned, from->dtype, room, n, err)) != SW_OK)
            return rc;
        rc = sw_st_stream_put(to, (uint64_t)n * to_bytes, err);
    }
    return rc;
}

sw_code sw_writer_put_cast(sw_ckpt_writer *w, const sw_st_tensor *t, const void *data,
                           const sw_copy *part, sw_err *err)
{
    const sw_dtype dtype = sw_writer_dtype(w, t);
    const uint64_t to_bits = (uint64_t)sw_dtype_bits(dtype);
    sw_st_stream stream = {0};
    float *room = NULL;
    uint64_t n_put = 0;
    sw_code rc = SW_MEM_GET(&room, 2 * CHUNK_ELEMS, "floats of a cast", err);

    if (rc == SW_OK)
        rc = sw_st_stream_open_part(&stream, w->st, t->name, part->begin, part->end, err);
    if (rc == SW_OK && (rc = cast(&stream, dtype, &t->view, data, part, room, err)) != SW_OK)
        sw_err_prefix(err, "tensor \"%s\"", t->name);
    if (rc == SW_OK) rc = sw_st_stream_end(&n_put, &stream, err);
    sw_st_stream_close(&stream);
    sw_mem_put(room);
    if (rc != SW_OK) return rc;
#pragma omp atomic
    w->claimed_bytes += n_put / to_bits * (uint64_t)sw_dtype_bits(t->view.dtype);
#pragma omp atomic
    w->encoded_bytes += n_put;
    return SW_OK;
}

void sw_writer_count_changed(sw_ckpt_writer *w, int64_t at, uint64_t n_bytes)
{
    if (w->claim_of[at] == SW_CAST) {
        w->claimed_bytes += sw_st_at(w->source->st, at)->view.size_bytes;
        w->encoded_bytes += n_bytes;
    } else {
        w->changed_bytes += n_bytes;
    }
    w->claim_of[at] = SW_CHANGED;
}

const char *sw_writer_dtype_text(const sw_ckpt_writer *w)
{
    static const struct { sw_dtype dtype; const char *text; } names[] = {
        {SW_DTYPE_BF16, "bfloat16"}, {SW_DTYPE_F16, "float16"}, {SW_DTYPE_F32, "float32"}};

    for (size_t i = 0; w->dialect->is_dense && i < sizeof names / sizeof *names; i++)
        if (names[i].dtype == w->dialect->scale_dtype(w->source->model.dtype))
            return names[i].text;
    return NULL;
}

/* [rows, cols] of elements to [cols, rows], in place of the old buffer. */
sw_code sw_writer_turn(void **data, int64_t rows, int64_t cols, sw_dtype dtype, sw_err *err)
{
    const size_t bytes = (size_t)sw_dtype_bits(dtype) / 8;
    const uint8_t *from = *data;
    uint8_t *to = NULL;
    sw_code rc = SW_MEM_GET(&to, rows * cols * (int64_t)bytes, "turned weight", err);

    if (rc != SW_OK) return rc;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            memcpy(to + (size_t)(c * rows + r) * bytes, from + (size_t)(r * cols + c) * bytes,
                   bytes);
    sw_mem_put(*data);
    *data = to;
    return SW_OK;
}
