/* compress.c - see compress.h. */
#include "kernels/engine/sparse/compress.h"

#include <math.h>

#include "formats/base/parallel.h"
#include "formats/base/size.h"

#define BLOCK 64 /* channels at once */

/* The running softmax of a block of channels. */
typedef struct channels {
    float top[BLOCK], sum[BLOCK], mean[BLOCK], grown[BLOCK], shrunk[BLOCK];
} channels;

/* One more slot: what was summed shrinks where the maximum rises. */
static void see_slot(channels *x, const sw_compress *c, int64_t token, int64_t slot, int64_t at,
                     int64_t n)
{
    const int64_t width = c->overlaps ? 2 * c->dim : c->dim;
    const float *gates = c->gates + token * c->stride + at;
    const float *values = c->values + token * c->stride + at;
    const float *positions = c->positions + slot * width + at;

    for (int64_t i = 0; i < n; i++) {
        const float gate = gates[i] + positions[i], top = fmaxf(x->top[i], gate);

        x->shrunk[i] = x->top[i] - top;
        x->grown[i] = gate - top;
        x->top[i] = top;
    }
    c->vec->exp(x->shrunk, x->shrunk, n);
    c->vec->exp(x->grown, x->grown, n);
    for (int64_t i = 0; i < n; i++) {
        x->sum[i] = x->sum[i] * x->shrunk[i] + x->grown[i];
        x->mean[i] = x->mean[i] * x->shrunk[i] + x->grown[i] * values[i];
    }
}

static void mix_channels(const sw_compress *c, int64_t first, int64_t window, float *out,
                         int64_t at, int64_t n)
{
    const int64_t own = c->overlaps ? c->dim : 0;
    channels x;

    for (int64_t i = 0; i < n; i++) {
        x.top[i] = -INFINITY;
        x.sum[i] = x.mean[i] = 0.0f;
    }
    for (int64_t s = 0; s < c->rate && c->overlaps && window; s++)
        see_slot(&x, c, first - c->rate + s, s, at, n);
    for (int64_t s = 0; s < c->rate; s++) see_slot(&x, c, first + s, s, own + at, n);
    for (int64_t i = 0; i < n; i++) out[i] = x.mean[i] / x.sum[i];
}

static void compress_task(void *ctx, int64_t begin, int64_t end, int thread)
{
    const sw_compress *c = ctx;
    const int64_t n_windows = c->n_tokens / c->rate;

    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        const int64_t window = i % n_windows, position = window * c->rate;
        const int64_t first = i / n_windows * c->n_tokens + position;
        float *out = c->out + i * c->dim;

        for (int64_t at = 0; at < c->dim; at += BLOCK)
            mix_channels(c, first, window, out + at, at, sw_min_i64(BLOCK, c->dim - at));
        c->vec->rms_norm(out, out, c->norm, c->dim, c->eps);
        c->vec->rotate_pairs(out + c->dim - 2 * c->half, c->cos + position * c->half,
                             c->sin + position * c->half, c->half);
    }
}

void sw_compress_run(const sw_compress *c)
{
    sw_compress job = *c;

    sw_parallel_for(c->n_threads, c->n_seqs * (c->n_tokens / c->rate), 1, compress_task, &job);
}
