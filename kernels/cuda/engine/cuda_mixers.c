/* cuda_mixers.c - recurrent mixers on a device: which rows, weights and parts of the state the
 * kernels of ops/mixers/ get. The same for the CPU is kernels/engine/recurrent.c.
 */
#include "formats/base/size.h"
#include "kernels/cuda/engine/cuda_engine_internal.h"
#include "kernels/cuda/ops/mixers/mixers.h"

#define FLOATS_ALIGN 4 /* kernels load 16 bytes of a state at a time */

static sw_bf16_rows columns_from(sw_bf16_rows rows, int64_t column)
{
    rows.d += column;
    return rows;
}

/* Channels that lie one beside the other from a column of a buffer on. */
static sw_mixer_columns plain(sw_bf16_rows rows, int64_t column, double scale)
{
    return (sw_mixer_columns){.rows = columns_from(rows, column), .run = 1, .run_stride = 1,
                              .scale = (float)scale};
}

/* Runs of channels, `stride` columns from one head of keys to the next one's. */
static sw_mixer_columns by_group(sw_bf16_rows rows, int64_t column, int64_t run, int64_t stride)
{
    return (sw_mixer_columns){.rows = columns_from(rows, column), .run = run,
                              .run_stride = stride, .scale = 1.0f};
}

/* ---- the state ---- */

static int64_t n_convs(const sw_mixer *x) { return x->kind == SW_MIXER_KIMI_DELTA ? 3 : 1; }

static int64_t kept_floats(const sw_mixer *x)
{
    return sw_round_up(n_convs(x) * x->n_taps * sw_mixer_conv_width(x), FLOATS_ALIGN);
}

int64_t sw_device_state_floats(const sw_model *m, int64_t layer)
{
    const sw_mixer *x = &m->mixer;

    if (!sw_model_state_elems(m, layer)) return 0;
    if (!sw_mixer_matrix_state(x)) return kept_floats(x);
    return kept_floats(x) + sw_cuda_walk_state(x->n_heads, x->d_state, x->d_head);
}

static float *state_of(const sw_device_run *run) { return run->kv ? run->kv->d_state : NULL; }

static sw_conv_args conv_of(const sw_device_run *run)
{
    const sw_model *m = run->e->m;

    return (sw_conv_args){.n_taps = (int)m->mixer.n_taps, .has_silu = true,
                          .width = sw_mixer_conv_width(&m->mixer), .n_seqs = run->n_seqs,
                          .seq_len = run->seq_len, .first = run->d_first,
                          .state_seq = sw_device_state_floats(m, run->block->layer)};
}

/* Channels [first, first + n) of the convolution in a slot, the `which`th of the mixer's. */
static void add_part(sw_conv_args *conv, const sw_device_run *run, sw_slot slot, int64_t which,
                     int64_t first, int64_t n, sw_mixer_columns x)
{
    const sw_device_block *b = run->block;
    float *kept = state_of(run);

    conv->part[conv->n_parts++] = (sw_conv_part){
        .x = x, .n = n, .taps = b->norm[slot] + first,
        .bias = b->norm_bias[slot] ? b->norm_bias[slot] + first : NULL,
        .kept = kept ? kept + which * conv->n_taps * conv->width + first : NULL,
    };
}

/* ---- delta rules ---- */

static sw_walk_args walk_of(const sw_device_run *run, const sw_planned_launch *l)
{
    const sw_device_engine *e = run->e;
    const sw_mixer *x = &e->m->mixer;
    const sw_device_block *b = run->block;
    float *state = state_of(run);

    return (sw_walk_args){.conv = conv_of(run), .a_log = b->norm[SW_SLOT_A_LOG],
                          .dt_bias = b->norm[SW_SLOT_DT_BIAS],
                          .gate = {.w = b->norm[SW_SLOT_NORM_MIX], .eps = (float)e->m->norm_eps},
                          .state = state ? state + kept_floats(x) : NULL, .out = b->buf[l->dst],
                          .counters = e->d_mixer_counters, .n_heads = (int)x->n_heads,
                          .n_groups = (int)x->n_groups, .d_k = (int)x->d_state,
                          .d_v = (int)x->d_head, .n_sms = e->device.n_sms};
}

static void gate_by_head(sw_walk_args *a, sw_mixer_columns z)
{
    a->gate.z = z;
    a->gate.group = a->gate.w_width = a->d_v;
}

/* Memory for calls of many tokens, of which n_bytes are wanted: what products work in. */
static sw_code add_scratch(sw_walk_args *a, sw_device_engine *e, int64_t n_bytes, sw_err *err)
{
    const sw_code rc = n_bytes ? sw_device_grow_work(e, n_bytes, err) : SW_OK;

    a->scratch = n_bytes ? e->d_gemm_work : NULL;
    a->scratch_bytes = n_bytes;
    return rc;
}

static sw_code run_delta(sw_walk_args *a, sw_device_engine *e, sw_err *err)
{
    const sw_code rc = add_scratch(a, e, sw_cuda_gated_delta_scratch(a), err);

    return rc == SW_OK ? sw_cuda_gated_delta(a, e->how, err) : rc;
}

/* All rows by head of keys: its query and key, then values and gates of the heads that share them;
 * their steps, then their decays. */
static void place_grouped(sw_walk_args *a, const sw_device_run *run)
{
    const sw_bf16_rows *buf = run->block->buf, mix = buf[SW_BUF_MIX_GROUPED];
    const sw_bf16_rows ba = buf[SW_BUF_MIX_BA];
    const int64_t heads = a->n_heads / a->n_groups, d_k = a->d_k, values = heads * a->d_v;
    const int64_t row = 2 * d_k + 2 * values, keys = a->n_groups * d_k;

    add_part(&a->conv, run, SW_SLOT_CONV, 0, 0, keys, by_group(mix, 0, d_k, row));
    add_part(&a->conv, run, SW_SLOT_CONV, 0, keys, keys, by_group(mix, d_k, d_k, row));
    add_part(&a->conv, run, SW_SLOT_CONV, 0, 2 * keys, a->n_groups * values,
             by_group(mix, 2 * d_k, values, row));
    a->step = by_group(ba, 0, heads, 2 * heads);
    a->decay = by_group(ba, heads, heads, 2 * heads);
    gate_by_head(a, by_group(mix, 2 * d_k + values, values, row));
}

static void place_plain(sw_walk_args *a, const sw_device_run *run)
{
    const sw_bf16_rows mix = run->block->buf[SW_BUF_MIX];
    const int64_t keys = (int64_t)a->n_groups * a->d_k, width = (int64_t)a->n_heads * a->d_v;

    add_part(&a->conv, run, SW_SLOT_CONV, 0, 0, keys, plain(mix, 0, 1));
    add_part(&a->conv, run, SW_SLOT_CONV, 0, keys, keys, plain(mix, keys, 1));
    add_part(&a->conv, run, SW_SLOT_CONV, 0, 2 * keys, width, plain(mix, 2 * keys, 1));
    a->step = plain(run->block->buf[SW_BUF_MIX_B], 0, 1);
    a->decay = plain(run->block->buf[SW_BUF_MIX_A], 0, 1);
    gate_by_head(a, plain(run->block->buf[SW_BUF_MIX_Z], 0, 1));
}

sw_code sw_device_run_gated_delta(sw_device_run *run, const sw_planned_launch *l, sw_err *err)
{
    sw_walk_args a = walk_of(run, l);

    if (run->e->m->mixer.kind == SW_MIXER_DELTA_GROUPED)
        place_grouped(&a, run);
    else
        place_plain(&a, run);
    return run_delta(&a, run->e, err);
}

sw_code sw_device_run_kimi_delta(sw_device_run *run, const sw_planned_launch *l, sw_err *err)
{
    static const sw_slot slots[] = {SW_SLOT_CONV_Q, SW_SLOT_CONV_K, SW_SLOT_CONV_V};
    static const sw_buf bufs[] = {SW_BUF_Q, SW_BUF_K, SW_BUF_V};
    const sw_bf16_rows *buf = run->block->buf;
    const int64_t width = sw_mixer_width(&run->e->m->mixer);
    sw_walk_args a = walk_of(run, l);

    for (int i = 0; i < 3; i++)
        add_part(&a.conv, run, slots[i], i, 0, width, plain(buf[bufs[i]], 0, 1));
    a.step = plain(buf[SW_BUF_MIX_B], 0, 1);
    a.decay = plain(buf[SW_BUF_MIX_A], 0, 1);
    a.is_by_channel = true;
    gate_by_head(&a, plain(buf[SW_BUF_MIX_Z], 0, 1));
    a.gate.is_sigmoid = true;
    return run_delta(&a, run->e, err);
}

/* ---- Mamba-2 and short convolutions ---- */

/* Rows are gate, x, B, C, dt, each with a factor. */
sw_code sw_device_run_ssd(sw_device_run *run, const sw_planned_launch *l, sw_err *err)
{
    const sw_mixer *x = &run->e->m->mixer;
    const sw_bf16_rows mix = run->block->buf[l->src];
    const double *scale = x->section_scale;
    const int64_t width = sw_mixer_width(x), keys = sw_mixer_keys(x);
    sw_walk_args a = walk_of(run, l);
    sw_code rc;

    add_part(&a.conv, run, SW_SLOT_CONV, 0, width + keys, keys,
             plain(mix, 2 * width + keys, scale[SW_SSD_C]));
    add_part(&a.conv, run, SW_SLOT_CONV, 0, width, keys,
             plain(mix, 2 * width, scale[SW_SSD_B]));
    add_part(&a.conv, run, SW_SLOT_CONV, 0, 0, width, plain(mix, width, scale[SW_SSD_X]));
    a.step = plain(mix, 2 * width + 2 * keys, scale[SW_SSD_DT]);
    a.d = run->block->norm[SW_SLOT_D];
    a.dt_min = (float)x->dt_min;
    a.dt_max = (float)x->dt_max;
    a.gate.z = plain(mix, 0, scale[SW_SSD_GATE]);
    a.gate.group = x->norms_groups ? width / x->n_groups : width;
    a.gate.w_width = width;
    a.gate.gates_first = !x->norms_first;
    rc = add_scratch(&a, run->e, sw_cuda_ssd_scratch(&a), err);
    return rc == SW_OK ? sw_cuda_ssd(&a, run->e->how, err) : rc;
}

/* Rows are B, C, x: x gated by B, convolved, gated by C. */
sw_code sw_device_run_short_conv(sw_device_run *run, const sw_planned_launch *l, sw_err *err)
{
    const sw_bf16_rows mix = run->block->buf[l->src];
    const int64_t width = sw_mixer_width(&run->e->m->mixer);
    sw_short_conv_args a = {.conv = conv_of(run), .after = mix.d + width,
                            .out = run->block->buf[l->dst]};

    add_part(&a.conv, run, SW_SLOT_CONV, 0, 0, width, plain(mix, 2 * width, 1));
    a.conv.part[0].before = mix.d;
    a.conv.has_silu = false;
    return sw_cuda_short_conv(&a, run->e->how, err);
}
