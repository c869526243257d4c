/* cuda_streams.c - see cuda_streams.h. */
#include "quant/backend/cuda/cuda_streams.h"

#include "formats/base/size.h"
#include "formats/io/profile.h"
#include "quant/backend/cuda/cuda_ahead.h"
#include "quant/backend/cuda/cuda_half.h"
#include "quant/backend/cuda/cuda_sizes.h"

int64_t sw_cuda_row_elems(const sw_streams *s) { return s->seq_len * s->model->hidden; }

/* Likewise of what tokens have besides; the streams' own count of it comes later. */
static int64_t side_elems(const sw_streams *s)
{
    return s->seq_len * sw_model_side_width(s->model);
}

static sw_code take(void *out, sw_device *gpu, int64_t n, int64_t elem_bytes, sw_err *err)
{
    return sw_device_take((void **)out, gpu, n, elem_bytes, "calibration streams", err);
}

static sw_code take_streams(sw_cuda_streams *on, const sw_streams *s, bool with_original,
                            sw_err *err)
{
    int64_t n = s->n_seqs * sw_cuda_row_elems(s), n_chunk = on->batch_seqs * sw_cuda_row_elems(s);
    int64_t n_side = s->n_seqs * side_elems(s), n_streams = with_original ? 2 : 1;
    sw_code rc = sw_device_room(on->gpu,
                                ((n + n_side) * n_streams + n_chunk) * (int64_t)sizeof(float),
                                "calibration streams", err);

    if (rc == SW_OK && n_side)
        rc = take(&on->d_side, on->gpu, n_side, (int64_t)sizeof *on->d_side, err);
    if (rc == SW_OK && n_side && with_original)
        rc = take(&on->d_side0, on->gpu, n_side, (int64_t)sizeof *on->d_side0, err);
    if (rc == SW_OK) rc = take(&on->d_x, on->gpu, n, (int64_t)sizeof *on->d_x, err);
    if (rc == SW_OK && with_original)
        rc = take(&on->d_x0, on->gpu, n, (int64_t)sizeof *on->d_x0, err);
    return rc == SW_OK ? take(&on->d_work, on->gpu, n_chunk, (int64_t)sizeof *on->d_work, err) : rc;
}

int64_t sw_cuda_batch_at(const sw_streams *s, int64_t seq)
{
    const sw_cuda_streams *on = s->own;

    return sw_min_i64(on->batch_seqs, sw_streams_piece_end(s, seq) - seq);
}

sw_code sw_cuda_streams_new(sw_streams *s, bool with_original, const char *spill_dir, sw_err *err)
{
    int64_t chunk_tokens = s->chunk_seqs * s->seq_len;
    sw_cuda_streams *on = NULL;
    sw_code rc;

    if (spill_dir)
        return SW_FAIL(err, SW_E_UNSUPPORTED,
                       "their activations go to disk to keep to --memory");
    if ((rc = SW_MEM_GET(&on, 1, "calibration streams", err)) != SW_OK) return rc;
    s->own = on;
    on->solver = sw_cuda_solver(&s->place);
    on->gpu = sw_cuda_gpu(&s->place);
    on->batch_seqs = sw_cuda_batch_seqs(s->model, s->chunk_seqs, s->seq_len, s->n_seqs,
                                        sw_device_about(on->gpu)->cap_bytes);
    rc = sw_device_engine_new(&on->engine, on->gpu, s->model, on->batch_seqs * s->seq_len,
                              s->seq_len, err);
    if (rc == SW_OK) rc = take_streams(on, s, with_original, err);
    if (rc != SW_OK) return rc;
    return sw_engine_new(&s->engine, s->model, chunk_tokens, s->seq_len, s->place.n_threads, err);
}

void sw_cuda_drop_kept(sw_cuda_streams *on)
{
    sw_device_put(on->gpu, on->d_kept);
    on->d_kept = NULL;
}

void sw_cuda_drop_held(sw_cuda_streams *on)
{
    sw_device_block_free(on->held);
    sw_mem_put(on->held_experts);
    on->held = NULL;
    on->held_experts = NULL;
    on->held_has_experts = false;
}

void sw_cuda_streams_forget(sw_streams *s) { sw_cuda_drop_held(s->own); }

/* Both blocks, once the streams are behind them. */
static void drop_blocks(sw_cuda_streams *on)
{
    sw_cuda_ahead_drop(on);
    sw_device_block_free(on->original);
    on->original = NULL;
    sw_cuda_drop_held(on);
}

void sw_cuda_streams_free(sw_streams *s)
{
    sw_cuda_streams *on = s->own;

    if (!on) return;
    sw_cuda_drop_kept(on);
    drop_blocks(on);
    sw_cuda_ahead_free(on);
    sw_device_engine_free(on->engine);
    sw_device_put(on->gpu, on->d_x);
    sw_device_put(on->gpu, on->d_x0);
    sw_device_put(on->gpu, on->d_work);
    sw_device_put(on->gpu, on->d_side);
    sw_device_put(on->gpu, on->d_side0);
    sw_mem_put(on);
}

/* What the engine on the host has made of the embedding of a chunk. */
static sw_code fill_sides(const sw_streams *s, int64_t seq, sw_err *err)
{
    const sw_cuda_streams *on = s->own;
    int64_t n = side_elems(s), at = seq * n;
    int64_t n_bytes = sw_streams_seqs_at(s, seq) * n * (int64_t)sizeof *s->side;
    sw_code rc = sw_device_upload(on->gpu, on->d_side + at, s->side + at, n_bytes, err);

    if (rc != SW_OK || !on->d_side0) return rc;
    return sw_solver_copy(on->solver, on->d_side0 + at, on->d_side + at, n_bytes, err);
}

sw_code sw_cuda_streams_fill(sw_streams *s, const float *x, int64_t seq, sw_err *err)
{
    sw_cuda_streams *on = s->own;
    int64_t per_seq = sw_cuda_row_elems(s), at = seq * per_seq;
    int64_t n_bytes = sw_streams_seqs_at(s, seq) * per_seq * (int64_t)sizeof *x;
    sw_code rc = sw_device_upload(on->gpu, on->d_x + at, x, n_bytes, err);

    if (rc == SW_OK && on->d_x0)
        rc = sw_solver_copy(on->solver, on->d_x0 + at, on->d_x + at, n_bytes, err);
    return rc == SW_OK && on->d_side ? fill_sides(s, seq, err) : rc;
}

static float *side_of(const sw_cuda_streams *on, const float *d_stream)
{
    return d_stream == on->d_x ? on->d_side : on->d_side0;
}

sw_code sw_cuda_give_side(const sw_streams *s, const float *d_stream, int64_t seq, int64_t n_seqs,
                          int64_t at, sw_err *err)
{
    const sw_cuda_streams *on = s->own;
    const float *d_side = side_of(on, d_stream);
    int64_t n = side_elems(s);

    if (!d_side) return SW_OK;
    return sw_solver_copy(on->solver, sw_device_engine_side(on->engine) + at * n, d_side + seq * n,
                          n_seqs * n * (int64_t)sizeof *d_side, err);
}

/* And out of the engine when it has run the windows [seq, seq + n_seqs). */
static sw_code take_side(const sw_streams *s, const float *d_stream, int64_t seq, int64_t n_seqs,
                         sw_err *err)
{
    const sw_cuda_streams *on = s->own;
    float *d_side = side_of(on, d_stream);
    int64_t n = side_elems(s);

    if (!d_side) return SW_OK;
    return sw_solver_copy(on->solver, d_side + seq * n, sw_device_engine_side(on->engine),
                          n_seqs * n * (int64_t)sizeof *d_side, err);
}

sw_code sw_cuda_run_up_to(sw_streams *s, const sw_device_block *block, int64_t layer,
                          float *d_stream, int64_t seq, const sw_device_tap *tap, sw_site stop_at,
                          sw_err *err)
{
    sw_cuda_streams *on = s->own;
    int64_t n_seqs = sw_cuda_batch_at(s, seq);
    float *d_at = d_stream + seq * sw_cuda_row_elems(s);
    sw_code rc = SW_OK;

    if (!sw_cuda_half_leaves_stream(s->model, layer, s->ahead, stop_at)) {
        rc = sw_solver_copy(on->solver, on->d_work, d_at, n_seqs * sw_cuda_row_elems(s) * 4, err);
        d_at = on->d_work;
    }
    on->d_seen = d_at;
    if (rc == SW_OK) rc = sw_cuda_give_side(s, d_stream, seq, n_seqs, 0, err);
    return rc == SW_OK ? sw_device_engine_half(on->engine, block, d_at, n_seqs, s->seq_len,
                                               s->ahead, tap, stop_at, err)
                       : rc;
}

sw_code sw_cuda_load_block(sw_device_block **out, const sw_streams *s, const sw_block *block,
                           bool with_experts, sw_err *err)
{
    const sw_cuda_streams *on = s->own;
    const sw_span span = sw_span_open("load block");
    sw_block part = *block;
    sw_code rc;

    for (int i = 0; i < 3 && !with_experts; i++) part.experts[i] = NULL;
    rc = on->original ? sw_device_block_load_like(out, on->engine, &part, on->original,
                                                  on->original_of, err)
                      : sw_device_block_load(out, on->engine, &part, err);
    sw_span_close(span, with_experts ? "with experts" : NULL);
    return rc;
}

/* A weight that `on->held` has to get again, having `held`; `all`: the block has to be loaded anew,
 * since what rounds inputs goes with how weights lie. */
static bool is_other(bool *all, const sw_weight *w, const void *held)
{
    if (!w->n_out || w->dense == held) return false;
    *all = *all || w->tiles || !w->dense || w->act.scope != SW_ACT_NONE;
    return true;
}

/* For each expert of a block, in one order. */
static const sw_weight *expert_at(const sw_block *block, int64_t i, int64_t n_experts)
{
    return block->experts[i / n_experts] ? &block->experts[i / n_experts][i % n_experts] : NULL;
}

static sw_code note_experts(sw_streams *s, const sw_block *quantized, sw_err *err)
{
    const int64_t n = s->model->n_experts;
    sw_cuda_streams *on = s->own;
    sw_code rc = SW_MEM_GET(&on->held_experts, 3 * n, "values of experts", err);

    for (int64_t i = 0; i < 3 * n && rc == SW_OK; i++) {
        const sw_weight *w = expert_at(quantized, i, n);

        on->held_experts[i] = w ? w->dense : NULL;
    }
    return rc;
}

static sw_code hold_anew(sw_streams *s, const sw_block *quantized, bool with_experts, sw_err *err)
{
    sw_cuda_streams *on = s->own;
    sw_code rc;

    sw_cuda_drop_held(on);
    if (with_experts && (rc = note_experts(s, quantized, err)) != SW_OK) return rc;
    on->held_of = quantized;
    on->held_has_experts = with_experts;
    for (int slot = 0; slot < SW_SLOT_COUNT; slot++)
        on->held_values[slot] = quantized->linear[slot].dense;
    return sw_cuda_load_block(&on->held, s, quantized, with_experts, err);
}

/* Whether what is held must be loaded anew to be this block. */
static bool needs_all(const sw_streams *s, const sw_block *quantized, bool has_experts)
{
    const int64_t n = has_experts ? 3 * s->model->n_experts : 0;
    const sw_cuda_streams *on = s->own;
    bool all = !on->held || on->held_of != quantized || (has_experts && !on->held_has_experts);

    for (int slot = 0; slot < SW_SLOT_COUNT && !all; slot++)
        (void)is_other(&all, &quantized->linear[slot], on->held_values[slot]);
    for (int64_t i = 0; i < n && !all; i++) {
        const sw_weight *w = expert_at(quantized, i, s->model->n_experts);

        if (w) (void)is_other(&all, w, on->held_experts[i]);
    }
    return all;
}

/* Experts with other values than those that are held. */
static sw_code take_experts(sw_streams *s, const sw_block *quantized, sw_err *err)
{
    const int64_t n = s->model->n_experts;
    const sw_span span = sw_span_open("load block");
    sw_cuda_streams *on = s->own;
    sw_code rc = SW_OK;
    bool all = false;

    for (int64_t i = 0; i < 3 * n && rc == SW_OK; i++) {
        const sw_weight *w = expert_at(quantized, i, n);

        if (!w || !is_other(&all, w, on->held_experts[i])) continue;
        rc = sw_device_block_take(on->held, (sw_slot)(SW_SLOT_GATE + i / n), i % n, quantized, err);
        on->held_experts[i] = w->dense;
    }
    sw_span_close(span, "other experts");
    return rc;
}

sw_code sw_cuda_hold_quantized(sw_streams *s, const sw_block *quantized, bool with_experts,
                               sw_err *err)
{
    sw_cuda_streams *on = s->own;
    const bool has_experts = with_experts && quantized->experts[2];
    bool all = false;
    sw_code rc = SW_OK;

    if (needs_all(s, quantized, has_experts)) return hold_anew(s, quantized, has_experts, err);
    for (int slot = 0; slot < SW_SLOT_COUNT && rc == SW_OK; slot++) {
        if (!is_other(&all, &quantized->linear[slot], on->held_values[slot])) continue;
        rc = sw_device_block_take(on->held, (sw_slot)slot, -1, quantized, err);
        on->held_values[slot] = quantized->linear[slot].dense;
    }
    return rc == SW_OK && has_experts ? take_experts(s, quantized, err) : rc;
}

sw_code sw_cuda_load_original(sw_streams *s, const sw_block *original, bool with_experts,
                              sw_err *err)
{
    sw_cuda_streams *on = s->own;

    with_experts = with_experts && original->experts[2];
    if (!on->d_x0 || (on->original && on->original_of == original &&
                      (on->has_experts || !with_experts)))
        return SW_OK;
    sw_device_block_free(on->original);
    on->original = with_experts ? sw_cuda_ahead_take(on, original) : NULL;
    on->original_of = original;
    on->has_experts = with_experts;
    return on->original ? SW_OK
                        : sw_cuda_load_block(&on->original, s, original, with_experts, err);
}

sw_code sw_cuda_streams_visit(sw_streams *s, const sw_block *quantized, const sw_device_tap *tap,
                              sw_site stop_at, const sw_progress *progress, sw_err *err)
{
    const sw_cuda_streams *on = s->own;
    sw_device_block *block = NULL;
    sw_code rc = sw_cuda_load_block(&block, s, quantized, stop_at >= SW_SITE_DOWN_IN, err);

    for (int64_t seq = 0; seq < s->n_seqs && rc == SW_OK; seq += sw_cuda_batch_at(s, seq))
        if ((rc = sw_progress_check(progress, err)) == SW_OK)
            rc = sw_cuda_run_up_to(s, block, quantized->layer, on->d_x, seq, tap, stop_at, err);
    sw_device_block_free(block);
    return rc;
}

sw_code sw_cuda_move(sw_streams *s, float *d_stream, const sw_device_block *block, int64_t seq,
                     sw_half half, const sw_device_tap *tap, sw_err *err)
{
    sw_cuda_streams *on = s->own;
    float *d_at = d_stream + seq * sw_cuda_row_elems(s);
    int64_t n_seqs = sw_cuda_batch_at(s, seq);
    sw_code rc = sw_cuda_give_side(s, d_stream, seq, n_seqs, 0, err);

    on->d_seen = d_at;
    if (rc == SW_OK)
        rc = sw_device_engine_half(on->engine, block, d_at, n_seqs, s->seq_len, half, tap,
                                   (sw_site)SW_RUN_ALL, err);
    return rc == SW_OK ? take_side(s, d_stream, seq, n_seqs, err) : rc;
}

/* The quantized stream, from what is kept of it where that ends the half. */
static sw_code move_quantized(sw_streams *s, const sw_device_block *block, int64_t seq,
                              sw_half half, sw_err *err)
{
    const sw_cuda_streams *on = s->own;
    bool is_end = half == (on->kept_at < SW_SITE_MLP_IN ? SW_HALF_ATTENTION : SW_HALF_MLP);
    int64_t n_seqs = sw_cuda_batch_at(s, seq);
    sw_code rc;

    if (!on->d_kept || !is_end || seq + n_seqs > on->n_kept)
        return sw_cuda_move(s, on->d_x, block, seq, half, NULL, err);
    rc = sw_cuda_give_side(s, on->d_x, seq, n_seqs, 0, err);
    if (rc == SW_OK)
        rc = sw_device_engine_rest(on->engine, block, on->d_x + seq * sw_cuda_row_elems(s), n_seqs,
                                   s->seq_len, half, on->kept_at,
                                   on->d_kept + seq * s->seq_len * on->kept_width, err);
    return rc == SW_OK ? take_side(s, on->d_x, seq, n_seqs, err) : rc;
}

/* What of that half is left for the original stream; false: nothing. */
static bool original_is_left(sw_half *left, const sw_cuda_streams *on, sw_half half)
{
    *left = on->is_original_ahead ? SW_HALF_MLP : half;
    return on->d_x0 && !(on->is_original_ahead && half != SW_HALF_BOTH);
}

sw_code sw_cuda_streams_advance(sw_streams *s, const sw_block *quantized,
                                const sw_block *original, sw_half half,
                                const sw_progress *progress, sw_err *err)
{
    sw_cuda_streams *on = s->own;
    bool with_experts = half != SW_HALF_ATTENTION;
    sw_half left;
    const bool is_left = original_is_left(&left, on, half);
    sw_code rc = is_left ? sw_cuda_load_original(s, original, with_experts, err) : SW_OK;

    if (rc == SW_OK) rc = sw_cuda_hold_quantized(s, quantized, with_experts, err);
    for (int64_t seq = 0; seq < s->n_seqs && rc == SW_OK; seq += sw_cuda_batch_at(s, seq)) {
        if ((rc = sw_progress_check(progress, err)) != SW_OK) break;
        rc = move_quantized(s, on->held, seq, half, err);
        if (rc == SW_OK && is_left)
            rc = sw_cuda_move(s, on->d_x0, on->original, seq, left, NULL, err);
    }
    on->is_original_ahead = false;
    sw_cuda_drop_kept(on);
    if (rc == SW_OK) rc = sw_device_sync(on->gpu, err);
    if (half == SW_HALF_ATTENTION && rc == SW_OK) return SW_OK;
    drop_blocks(on);
    return rc;
}
