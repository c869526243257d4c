/* mixer.c - see mixer.h. */
#include "formats/model/mixer.h"

int64_t sw_mixer_width(const sw_mixer *x) { return x->n_heads * x->d_head; }
int64_t sw_mixer_keys(const sw_mixer *x) { return x->n_groups * x->d_state; }

/* Mamba-2 convolves x, B and C, the delta rules q, k and v; Kimi's has a convolution for each. */
int64_t sw_mixer_conv_width(const sw_mixer *x)
{
    switch (x->kind) {
    case SW_MIXER_KIMI_DELTA:
    case SW_MIXER_SHORT_CONV:
        return sw_mixer_width(x);
    default:
        return sw_mixer_width(x) + 2 * sw_mixer_keys(x);
    }
}

/* What the input linear makes. */
static int64_t in_width(const sw_mixer *x)
{
    const int64_t conv = sw_mixer_conv_width(x), width = sw_mixer_width(x);

    switch (x->kind) {
    case SW_MIXER_DELTA_GROUPED:
        return conv + width;
    case SW_MIXER_SSD:
        return width + conv + x->n_heads;
    case SW_MIXER_SHORT_CONV:
        return 3 * width;
    default:
        return conv;
    }
}

bool sw_mixer_slot_shape(const sw_mixer *x, int64_t hidden, sw_slot slot, int64_t *n_out,
                         int64_t *k_in)
{
    const int64_t width = sw_mixer_width(x), h = hidden, heads = x->n_heads;
    const bool is_kimi = x->kind == SW_MIXER_KIMI_DELTA;
    const int64_t shapes[SW_SLOT_COUNT][2] = {
        [SW_SLOT_MIX_IN] = {in_width(x), h},  [SW_SLOT_MIX_OUT] = {h, width},
        [SW_SLOT_MIX_Z] = {width, h},         [SW_SLOT_MIX_Z_GATE] = {width, x->rank},
        [SW_SLOT_MIX_A] = {is_kimi ? width : heads, is_kimi ? x->rank : h},
        [SW_SLOT_MIX_B] = {heads, h},         [SW_SLOT_MIX_BA] = {2 * heads, h},
        [SW_SLOT_MIX_Z_RANK] = {x->rank, h},  [SW_SLOT_MIX_A_RANK] = {x->rank, h},
        [SW_SLOT_CONV] = {x->n_taps, sw_mixer_conv_width(x)},
        [SW_SLOT_CONV_Q] = {x->n_taps, width}, [SW_SLOT_CONV_K] = {x->n_taps, width},
        [SW_SLOT_CONV_V] = {x->n_taps, width},
        [SW_SLOT_A_LOG] = {1, heads},         [SW_SLOT_D] = {1, heads},
        [SW_SLOT_DT_BIAS] = {1, is_kimi ? width : heads},
        [SW_SLOT_NORM_MIX] = {1, x->kind == SW_MIXER_SSD ? width : x->d_head},
    };

    if (!shapes[slot][0]) return false;
    *n_out = shapes[slot][0];
    *k_in = shapes[slot][1];
    return true;
}

int64_t sw_mixer_buf_width(const sw_mixer *x, sw_buf buf)
{
    const int64_t width = sw_mixer_width(x);
    const bool is_kimi = x->kind == SW_MIXER_KIMI_DELTA;
    const bool is_grouped = x->kind == SW_MIXER_DELTA_GROUPED;
    const int64_t widths[SW_BUF_COUNT] = {
        [SW_BUF_MIX] = is_grouped ? sw_mixer_conv_width(x) : in_width(x),
        [SW_BUF_MIX_GROUPED] = in_width(x), [SW_BUF_MIX_BA] = 2 * x->n_heads,
        [SW_BUF_MIX_Z] = width, [SW_BUF_MIX_B] = x->n_heads,
        [SW_BUF_MIX_A] = is_kimi ? width : x->n_heads,
        [SW_BUF_MIX_Z_RANK] = x->rank, [SW_BUF_MIX_A_RANK] = x->rank,
        [SW_BUF_MIX_O] = width,
    };

    return widths[buf];
}

int64_t sw_mixer_conv_state(const sw_mixer *x)
{
    const int64_t n_convs = x->kind == SW_MIXER_KIMI_DELTA ? 3 : 1;

    return x->kind == SW_MIXER_NONE ? 0 : n_convs * (x->n_taps - 1) * sw_mixer_conv_width(x);
}

int64_t sw_mixer_matrix_state(const sw_mixer *x)
{
    if (x->kind == SW_MIXER_NONE || x->kind == SW_MIXER_SHORT_CONV) return 0;
    return x->n_heads * x->d_head * x->d_state;
}
