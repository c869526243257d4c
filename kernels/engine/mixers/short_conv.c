/* short_conv.c - see short_conv.h. */
#include "kernels/engine/mixers/short_conv.h"

#include <string.h>

#include "formats/base/parallel.h"
#include "formats/base/size.h"

#define BLOCK 256 /* channels of a task: taps, state and the rows in use stay in the first cache */

/* One sequence's rows of one block of channels. */
typedef struct channels {
    const sw_short_conv *c;
    float *x, *state;
    const float *before, *after;
    int64_t first, n; /* of the channels */
} channels;

static channels pick_channels(const sw_short_conv *c, int64_t item)
{
    const int64_t n_blocks = sw_ceil_div(c->width, BLOCK);
    const int64_t seq = item / n_blocks, first = item % n_blocks * BLOCK;
    const int64_t at = seq * c->seq_len * c->stride + first;

    return (channels){.c = c, .x = c->x + at, .before = c->before ? c->before + at : NULL,
                      .after = c->after ? c->after + at : NULL,
                      .state = c->state ? c->state + seq * (c->n_taps - 1) * c->width + first
                                        : NULL,
                      .first = first, .n = sw_min_i64(BLOCK, c->width - first)};
}

/* Row t of u, which for t < 0 is remembered; NULL where it is zero. */
static const float *row_of(const channels *ch, int64_t t)
{
    const sw_short_conv *c = ch->c;

    if (t >= 0) return ch->x + t * c->stride;
    return ch->state ? ch->state + (c->n_taps - 1 + t) * c->width : NULL;
}

/* The last rows of u, copied out before outputs take their place. */
static void copy_last(float kept[SW_CONV_TAPS_MAX][BLOCK], const channels *ch)
{
    const int64_t n_kept = ch->c->n_taps - 1;

    for (int64_t i = 0; i < n_kept; i++)
        memcpy(kept[i], row_of(ch, ch->c->seq_len - n_kept + i), (size_t)ch->n * sizeof(float));
}

static void convolve_row(const channels *ch, int64_t t)
{
    const sw_short_conv *c = ch->c;
    float sum[BLOCK] = {0};

    if (c->bias) memcpy(sum, c->bias + ch->first, (size_t)ch->n * sizeof *sum);
    for (int64_t j = 0; j < c->n_taps; j++) {
        const float *u = row_of(ch, t - (c->n_taps - 1) + j);
        const float *tap = c->taps + j * c->width + ch->first;

        for (int64_t i = 0; u && i < ch->n; i++) sum[i] += tap[i] * u[i];
    }
    if (c->has_silu) c->vec->silu(sum, ch->n);
    if (ch->after) c->vec->mul(sum, ch->after + t * c->stride, ch->n);
    memcpy(ch->x + t * c->stride, sum, (size_t)ch->n * sizeof *sum);
}

/* From the last row to the first, since a row is needed by those that follow it. */
static void convolve(void *ctx, int64_t begin, int64_t end, int thread)
{
    const sw_short_conv *c = ctx;
    const channels ch = pick_channels(c, begin);
    float kept[SW_CONV_TAPS_MAX][BLOCK];

    (void)end;
    (void)thread;
    for (int64_t t = 0; t < c->seq_len && ch.before; t++)
        c->vec->mul(ch.x + t * c->stride, ch.before + t * c->stride, ch.n);
    if (ch.state) copy_last(kept, &ch);
    for (int64_t t = c->seq_len - 1; t >= 0; t--) convolve_row(&ch, t);
    for (int64_t i = 0; ch.state && i < c->n_taps - 1; i++)
        memcpy(ch.state + i * c->width, kept[i], (size_t)ch.n * sizeof(float));
}

int64_t sw_short_conv_state(int64_t n_taps, int64_t width) { return (n_taps - 1) * width; }

void sw_short_conv_run(const sw_short_conv *conv)
{
    sw_short_conv job = *conv;

    sw_parallel_for(job.n_threads, job.n_seqs * sw_ceil_div(job.width, BLOCK), 1, convolve, &job);
}
