/* mixer_conv.cuh - causal convolutions over few tokens, on the device. See mixers.h. */
#ifndef SW_KERNELS_CUDA_OPS_MIXERS_MIXER_CONV_CUH
#define SW_KERNELS_CUDA_OPS_MIXERS_MIXER_CONV_CUH

#include "kernels/cuda/ops/engine_launch.cuh"
#include "kernels/cuda/ops/mixers/mixers.h"

/* By approximate instructions, whose error is far below what BF16 can tell. */
static __device__ __forceinline__ float sw_sigmoid_of(float x)
{
    return __fdividef(1.0f, 1.0f + __expf(-x));
}

static __device__ __forceinline__ int64_t sw_column(const sw_mixer_columns &c, int64_t channel)
{
    if (c.run == c.run_stride) return channel; /* dividing takes longer than a load */
    const uint32_t of = (uint32_t)channel / (uint32_t)c.run; /* rows have less than 2^31 columns */

    return of * c.run_stride + (uint32_t)channel % (uint32_t)c.run;
}

static __device__ __forceinline__ float sw_mixer_load(const sw_mixer_columns &c, int64_t row,
                                                      int64_t channel)
{
    return sw_float(c.rows.d[row * c.rows.stride + sw_column(c, channel)]) * c.scale;
}

static __device__ __forceinline__ int64_t sw_first_of(const sw_conv_args &c, int64_t seq)
{
    return c.first ? c.first[seq] : 0;
}

static __device__ __forceinline__ float *sw_kept_at(const sw_conv_args &c, const sw_conv_part &p,
                                                    int64_t seq, int64_t position, int64_t channel)
{
    return p.kept + seq * c.state_seq + (int)position % c.n_taps * c.width + channel;
}

/* What the convolution sees of token t of this call, but for a factor; before it, what is
 * remembered. */
static __device__ float sw_conv_in(const sw_conv_args &c, const sw_conv_part &p, int64_t seq,
                                   int64_t first, int64_t t, int64_t channel)
{
    if (t < 0) {
        if (!p.kept || first + t < 0) return 0;
        return *sw_kept_at(c, p, seq, first + t, channel);
    }
    const int64_t at = (seq * c.seq_len + t) * p.x.rows.stride + sw_column(p.x, channel);
    const float x = sw_float(p.x.rows.d[at]);

    return p.before ? x * sw_float(p.before[at]) : x;
}

static __device__ float sw_conv_out(const sw_conv_args &c, float sum)
{
    return c.has_silu ? sum * sw_sigmoid_of(sum) : sum;
}

static __device__ float sw_conv_at(const sw_conv_args &c, const sw_conv_part &p, int64_t seq,
                                   int64_t first, int64_t t, int64_t channel)
{
    float sum = p.bias ? p.bias[channel] : 0;

    for (int j = 0; j < c.n_taps; j++)
        sum += p.taps[j * c.width + channel] * p.x.scale *
               sw_conv_in(c, p, seq, first, t - (c.n_taps - 1) + j, channel);
    return sw_conv_out(c, sum);
}

/* A sequence's only token of this call is remembered: its row holds what no window needs. */
static __device__ __forceinline__ void sw_conv_keep_one(const sw_conv_args &c,
                                                        const sw_conv_part &p, int64_t seq,
                                                        int64_t first, int64_t channel)
{
    if (p.kept && c.seq_len == 1)
        *sw_kept_at(c, p, seq, first, channel) = sw_conv_in(c, p, seq, first, 0, channel);
}

#endif
