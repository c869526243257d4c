/* recurrent.c - the operations of a block program that keep a state: which rows, weights and parts
 * of the state a mixer of mixers/ gets.
 *
 * Without a cache every sequence starts from nothing and is forgotten; with one, the layer's state
 * is read and replaced. It lies in sw_kv: what the convolutions remember, then the matrices.
 */
#include <string.h>

#include "formats/base/size.h"
#include "kernels/engine/engine_internal.h"
#include "kernels/engine/mixers/gated_delta.h"
#include "kernels/engine/mixers/gated_norm.h"
#include "kernels/engine/mixers/short_conv.h"
#include "kernels/engine/mixers/ssd.h"

int64_t sw_recurrent_scratch(const sw_model *m, int n_threads)
{
    const sw_mixer *x = &m->mixer;

    switch (x->kind) {
    case SW_MIXER_NONE:
    case SW_MIXER_SHORT_CONV:
        return 0;
    case SW_MIXER_SSD:
        return sw_ssd_scratch(x->d_head, x->d_state, n_threads);
    default:
        return sw_gated_delta_scratch(x->d_state, x->d_head, n_threads);
    }
}

static const float *vector(const sw_run *run, sw_slot slot) { return run->block->norm[slot]; }

static float *conv_state(const sw_run *run, int64_t which)
{
    const sw_mixer *x = &run->e->m->mixer;

    return run->kv ? run->kv->state + which * sw_short_conv_state(x->n_taps, sw_mixer_conv_width(x))
                   : NULL;
}

static float *matrix_state(const sw_run *run)
{
    return run->kv ? run->kv->state + sw_mixer_conv_state(&run->e->m->mixer) : NULL;
}

/* One of the mixer's convolutions, in place over columns of `x`. */
static sw_short_conv conv_of(const sw_run *run, sw_slot slot, float *x, int64_t stride,
                             int64_t which)
{
    const sw_mixer *mixer = &run->e->m->mixer;

    return (sw_short_conv){.x = x, .taps = vector(run, slot),
                           .bias = run->block->norm_bias[slot], .state = conv_state(run, which),
                           .n_seqs = run->n_seqs, .seq_len = run->seq_len,
                           .width = sw_mixer_conv_width(mixer), .stride = stride,
                           .n_taps = mixer->n_taps, .has_silu = true, .vec = run->e->vec,
                           .n_threads = run->e->n_threads};
}

/* A part of every group of columns, to where the same part of all groups lies together. */
typedef struct group_part {
    sw_buf dst;
    int64_t first; /* column in dst */
    int64_t size;  /* columns of a group */
} group_part;

static void ungroup(const sw_run *run, sw_buf src, const group_part *parts, int n_parts)
{
    const sw_mixer *x = &run->e->m->mixer;
    const float *from = run->e->buf[src];

    for (int64_t t = 0; t < run->n_tokens; t++)
        for (int64_t g = 0; g < x->n_groups; g++)
            for (int i = 0; i < n_parts; from += parts[i++].size) {
                const int64_t row = sw_mixer_buf_width(x, parts[i].dst);

                memcpy(run->e->buf[parts[i].dst] + t * row + parts[i].first + g * parts[i].size,
                       from, (size_t)parts[i].size * sizeof *from);
            }
}

sw_code sw_run_ungroup(sw_run *run, const sw_op *op, sw_err *err)
{
    const sw_mixer *x = &run->e->m->mixer;
    const int64_t keys = sw_mixer_keys(x), heads = x->n_heads / x->n_groups;
    const group_part qkvz[] = {{SW_BUF_MIX, 0, x->d_state}, {SW_BUF_MIX, keys, x->d_state},
                               {SW_BUF_MIX, 2 * keys, heads * x->d_head},
                               {SW_BUF_MIX_Z, 0, heads * x->d_head}};
    const group_part ba[] = {{SW_BUF_MIX_B, 0, heads}, {SW_BUF_MIX_A, 0, heads}};

    (void)err;
    if (op->src == SW_BUF_MIX_BA)
        ungroup(run, op->src, ba, 2);
    else
        ungroup(run, op->src, qkvz, 4);
    return SW_OK;
}

static sw_gated_delta delta_of(const sw_run *run, const sw_op *op)
{
    const sw_engine *e = run->e;
    const sw_mixer *x = &e->m->mixer;

    return (sw_gated_delta){.b = e->buf[SW_BUF_MIX_B], .a = e->buf[SW_BUF_MIX_A],
                            .a_log = vector(run, SW_SLOT_A_LOG),
                            .dt_bias = vector(run, SW_SLOT_DT_BIAS), .state = matrix_state(run),
                            .out = e->buf[op->dst], .n_seqs = run->n_seqs,
                            .seq_len = run->seq_len, .n_heads = x->n_heads,
                            .n_key_heads = x->n_groups, .d_k = x->d_state, .d_v = x->d_head,
                            .vec = e->vec, .scratch = e->recurrent_scratch,
                            .n_threads = e->n_threads};
}

/* The norm of one head's channels, then the gate. */
static void norm_heads(const sw_run *run, const sw_op *op, bool is_sigmoid)
{
    const sw_engine *e = run->e;
    const sw_mixer *x = &e->m->mixer;
    const int64_t width = sw_mixer_width(x);
    const sw_gated_norm norm = {.x = e->buf[op->dst], .z = e->buf[SW_BUF_MIX_Z],
                                .w = vector(run, SW_SLOT_NORM_MIX), .n = run->n_tokens,
                                .width = width, .z_stride = width, .group = x->d_head,
                                .w_width = x->d_head, .eps = e->m->norm_eps,
                                .is_sigmoid = is_sigmoid, .vec = e->vec,
                                .n_threads = e->n_threads};

    sw_gated_norm_run(&norm);
}

sw_code sw_run_gated_delta(sw_run *run, const sw_op *op, sw_err *err)
{
    const sw_mixer *x = &run->e->m->mixer;
    const int64_t keys = sw_mixer_keys(x), row = sw_mixer_conv_width(x);
    float *mix = run->e->buf[op->src];
    const sw_short_conv conv = conv_of(run, SW_SLOT_CONV, mix, row, 0);
    sw_gated_delta delta = delta_of(run, op);

    (void)err;
    delta.q = mix;
    delta.k = mix + keys;
    delta.v = mix + 2 * keys;
    delta.q_stride = delta.k_stride = delta.v_stride = row;
    sw_short_conv_run(&conv);
    sw_gated_delta_run(&delta);
    norm_heads(run, op, false);
    return SW_OK;
}

sw_code sw_run_kimi_delta(sw_run *run, const sw_op *op, sw_err *err)
{
    static const sw_slot slots[] = {SW_SLOT_CONV_Q, SW_SLOT_CONV_K, SW_SLOT_CONV_V};
    sw_engine *e = run->e;
    const int64_t width = sw_mixer_width(&e->m->mixer);
    float *const rows[] = {e->buf[SW_BUF_Q], e->buf[SW_BUF_K], e->buf[SW_BUF_V]};
    sw_gated_delta delta = delta_of(run, op);

    (void)err;
    for (int i = 0; i < 3; i++) {
        const sw_short_conv conv = conv_of(run, slots[i], rows[i], width, i);

        sw_short_conv_run(&conv);
    }
    delta.q = rows[0];
    delta.k = rows[1];
    delta.v = rows[2];
    delta.q_stride = delta.k_stride = delta.v_stride = width;
    delta.is_by_channel = true;
    sw_gated_delta_run(&delta);
    norm_heads(run, op, true);
    return SW_OK;
}

/* Rows are gate, x, B, C, dt; some models multiply each section by a constant. */
static void scale_sections(const sw_run *run, float *rows, int64_t stride)
{
    const sw_mixer *x = &run->e->m->mixer;
    const int64_t width = sw_mixer_width(x), keys = sw_mixer_keys(x);
    const int64_t sizes[] = {[SW_SSD_GATE] = width, [SW_SSD_X] = width, [SW_SSD_B] = keys,
                             [SW_SSD_C] = keys, [SW_SSD_DT] = x->n_heads};

    for (int64_t t = 0; t < run->n_tokens; t++) {
        float *at = rows + t * stride;

        for (int i = 0; i < SW_SSD_SECTIONS; at += sizes[i++])
            if (x->section_scale[i] != 1.0)
                run->e->vec->scale(at, (float)x->section_scale[i], sizes[i]);
    }
}

static void norm_ssd(const sw_run *run, const sw_op *op, float *gate, int64_t stride)
{
    const sw_engine *e = run->e;
    const sw_mixer *x = &e->m->mixer;
    const int64_t width = sw_mixer_width(x);
    const sw_gated_norm norm = {.x = e->buf[op->dst], .z = gate,
                                .w = x->has_norm ? vector(run, SW_SLOT_NORM_MIX) : NULL,
                                .n = run->n_tokens, .width = width, .z_stride = stride,
                                .group = x->norms_groups ? width / x->n_groups : width,
                                .w_width = width, .eps = e->m->norm_eps,
                                .gates_first = !x->norms_first, .vec = e->vec,
                                .n_threads = e->n_threads};

    sw_gated_norm_run(&norm);
}

sw_code sw_run_ssd(sw_run *run, const sw_op *op, sw_err *err)
{
    sw_engine *e = run->e;
    const sw_mixer *x = &e->m->mixer;
    const int64_t width = sw_mixer_width(x), keys = sw_mixer_keys(x);
    const int64_t stride = 2 * width + 2 * keys + x->n_heads;
    float *rows = e->buf[op->src], *in = rows + width;
    const sw_short_conv conv = conv_of(run, SW_SLOT_CONV, in, stride, 0);
    const sw_ssd ssd = {.x = in, .b = in + width, .c = in + width + keys,
                        .dt = in + width + 2 * keys, .stride = stride,
                        .a_log = vector(run, SW_SLOT_A_LOG), .d = vector(run, SW_SLOT_D),
                        .dt_bias = vector(run, SW_SLOT_DT_BIAS), .dt_min = x->dt_min,
                        .dt_max = x->dt_max, .state = matrix_state(run), .out = e->buf[op->dst],
                        .n_seqs = run->n_seqs, .seq_len = run->seq_len, .n_heads = x->n_heads,
                        .n_groups = x->n_groups, .d_head = x->d_head, .d_state = x->d_state,
                        .vec = e->vec, .scratch = e->recurrent_scratch,
                        .n_threads = e->n_threads};

    (void)err;
    scale_sections(run, rows, stride);
    sw_short_conv_run(&conv);
    sw_ssd_run(&ssd);
    norm_ssd(run, op, rows, stride);
    return SW_OK;
}

/* Rows are B, C, x: x gated by B, convolved, gated by C. */
sw_code sw_run_short_conv(sw_run *run, const sw_op *op, sw_err *err)
{
    sw_engine *e = run->e;
    const int64_t width = sw_mixer_width(&e->m->mixer), stride = 3 * width;
    float *rows = e->buf[op->src];
    sw_short_conv conv = conv_of(run, SW_SLOT_CONV, rows + 2 * width, stride, 0);

    (void)err;
    conv.before = rows;
    conv.after = rows + width;
    conv.has_silu = false;
    sw_short_conv_run(&conv);
    for (int64_t t = 0; t < run->n_tokens; t++)
        memcpy(e->buf[op->dst] + t * width, rows + t * stride + 2 * width,
               (size_t)width * sizeof(float));
    return SW_OK;
}
