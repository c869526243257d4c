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
#include "formats/checkpoint/writer/writer_internal.h"
#include "formats/gguf/gguf_model.h"
#include "formats/num/half.h"

#define CHUNK_ELEMS ((int64_t)1 << 16)

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
    for (int64_t i = 0; i < n && dtype == SW_DTYPE_F16; i++)
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

static sw_code cast(void *to, sw_dtype dtype, const sw_cview *from, const void *data, sw_err *err)
{
    const size_t to_bytes = (size_t)sw_dtype_bits(dtype) / 8;
    const size_t from_bytes = (size_t)sw_dtype_bits(from->dtype) / 8;
    int64_t n = sw_view_elems(from);
    void *aligned = NULL;
    float *floats = NULL;
    sw_code rc;

    if ((rc = SW_MEM_GET(&floats, 2 * CHUNK_ELEMS, "floats of a cast", err)) != SW_OK) return rc;
    aligned = floats + CHUNK_ELEMS;
    for (int64_t i = 0; i < n && rc == SW_OK; i += CHUNK_ELEMS) {
        int64_t here = n - i < CHUNK_ELEMS ? n - i : CHUNK_ELEMS;
        memcpy(aligned, (const uint8_t *)data + (size_t)i * from_bytes,
               (size_t)here * from_bytes);
        rc = cast_chunk((uint8_t *)to + (size_t)i * to_bytes, dtype, aligned, from->dtype, floats,
                        here, err);
    }
    sw_mem_put(floats);
    return rc;
}

sw_code sw_writer_put_cast(sw_ckpt_writer *w, const sw_st_tensor *t, sw_err *err)
{
    sw_dtype dtype = sw_writer_dtype(w, t);
    uint64_t n_bytes = 0;
    sw_st_bytes bytes = {0};
    void *data = NULL;
    sw_code rc = sw_shape_bytes(&n_bytes, dtype, t->view.n_dims, t->view.shape, err);

    if (rc == SW_OK) rc = sw_mem_get(&data, (int64_t)n_bytes, 1, t->name, err);
    if (rc == SW_OK) rc = sw_st_fetch(&bytes, t, err);
    if (rc == SW_OK && (rc = cast(data, dtype, &t->view, bytes.data, err)) != SW_OK)
        sw_err_prefix(err, "tensor \"%s\"", t->name);
    if (rc == SW_OK) rc = sw_st_writer_put(w->st, t->name, data, (size_t)n_bytes, err);
    if (rc == SW_OK) {
#pragma omp atomic
        w->claimed_bytes += t->view.size_bytes;
#pragma omp atomic
        w->encoded_bytes += n_bytes;
    }
    sw_st_drop(&bytes);
    sw_mem_put(data);
    return rc;
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
