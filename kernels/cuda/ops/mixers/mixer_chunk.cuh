/* mixer_chunk.cuh - what a block of a recurrent mixer has of some tokens in shared memory. See
 * mixer_walk.cuh.
 *
 * Rows come as they are, in BF16, while the block still walks over the chunk before: queries, keys
 * and values with the few rows that a convolution looks back to, gates, and decays by channel. Out
 * of them it makes what the walk reads, in FP32.
 */
#ifndef SW_KERNELS_CUDA_OPS_MIXERS_MIXER_CHUNK_CUH
#define SW_KERNELS_CUDA_OPS_MIXERS_MIXER_CHUNK_CUH

#include "kernels/cuda/ops/mixers/mixer_decay.cuh"
#include "kernels/cuda/ops/mixers/mixer_gate.cuh"
#include "kernels/cuda/ptx/ptx.cuh"

#define SW_CHUNK_TOKENS_MAX 16
#define SW_LENGTH_EPS 1e-6f /* beside the squares of a key or query */

/* Sections of a row. */
enum { SW_CHUNK_Q, SW_CHUNK_K, SW_CHUNK_V, SW_CHUNK_Z, SW_CHUNK_DECAY, SW_CHUNK_SECTIONS };

/* Where a block is. */
struct sw_walk_place {
    int seq, head, group, first; /* position of the first token of this call */
    int column, n_columns;       /* of the head; n_columns of a block are a multiple of 8 */
    int n_there;                 /* columns of these that there are */
};

struct sw_chunk_section {
    const sw_bf16 *from;         /* its columns of the sequence's first row */
    int64_t stride;
    int at, n;                   /* place in a row in shared memory, channels */
    bool is_wide;                /* 16 bytes may be copied at a time */
};

/* PAD: rows of the state, with zeros from d_k on. */
template <int PAD> struct sw_chunk {
    sw_chunk_section *section;
    float *k, *q, *keep;         /* [tokens, PAD], keep by channel */
    float *v;                    /* [tokens, n_columns], the values and then the output */
    float *step, *decay;         /* [tokens] */
    float *scale_k, *scale_q, *through; /* [tokens] of delta rules: 1 / length of k, of q with
                                  * d_k^-0.5, and the product of the two after that */
    sw_bf16 *raw;                /* [n_rows, row], token t in row (t + n_back) % n_rows */
    int row, n_rows, n_back;
};

template <int PAD> struct sw_chunk_size {
    static const int tokens = PAD > 128 ? 8 : SW_CHUNK_TOKENS_MAX;

    static __host__ __device__ int floats(bool by_channel, int n_columns)
    {
        return tokens * ((by_channel ? 3 : 2) * PAD + n_columns + 5);
    }
    static __host__ __device__ int row(bool by_channel, int n_columns)
    {
        return (by_channel ? 3 : 2) * PAD + 2 * n_columns;
    }
    static size_t bytes(bool by_channel, int n_columns, int n_taps)
    {
        return sizeof(float) * (size_t)floats(by_channel, n_columns) +
               sizeof(sw_bf16) * (size_t)((2 * tokens + n_taps - 1) * row(by_channel, n_columns));
    }
};

template <int PAD>
static __device__ sw_chunk<PAD> sw_chunk_cut(float *s_all, sw_chunk_section *s_section,
                                             bool by_channel, int n_columns, int n_taps)
{
    const int n = sw_chunk_size<PAD>::tokens;
    sw_chunk<PAD> s;

    s.section = s_section;
    s.k = s_all;
    s.q = s.k + n * PAD;
    s.keep = s.q + n * PAD;
    s.v = s.keep + (by_channel ? n * PAD : 0);
    s.step = s.v + n * n_columns;
    s.decay = s.step + n;
    s.scale_k = s.decay + n;
    s.scale_q = s.scale_k + n;
    s.through = s.scale_q + n;
    s.raw = (sw_bf16 *)(s_all + sw_chunk_size<PAD>::floats(by_channel, n_columns));
    s.row = sw_chunk_size<PAD>::row(by_channel, n_columns);
    s.n_back = n_taps - 1;
    s.n_rows = 2 * n + s.n_back;
    return s;
}

/* Section i of a block's rows, by one thread. `has_gate`: it gates what it makes. */
template <int PAD>
static __device__ void sw_chunk_describe(sw_chunk_section *s, int i, const sw_walk_args &a,
                                         const sw_walk_place &p, bool has_gate)
{
    const sw_mixer_columns &c = i == SW_CHUNK_DECAY ? a.decay
                                : i == SW_CHUNK_Z   ? a.gate.z
                                                    : a.conv.part[i].x;
    const int64_t first = i < SW_CHUNK_V         ? (int64_t)p.group * a.d_k
                          : i == SW_CHUNK_DECAY  ? (int64_t)p.head * a.d_k
                                                 : (int64_t)p.head * a.d_v + p.column;
    const int at[] = {0, PAD, 2 * PAD, 2 * PAD + p.n_columns, 2 * PAD + 2 * p.n_columns};
    const int n[] = {a.d_k, a.d_k, p.n_there, has_gate ? p.n_there : 0,
                     a.is_by_channel ? a.d_k : 0};

    s->n = n[i];
    s->at = at[i];
    s->stride = c.rows.stride;
    s->is_wide = false;
    if (!s->n) return;
    s->from = c.rows.d + p.seq * a.conv.seq_len * c.rows.stride + sw_column(c, first);
    s->is_wide = (uintptr_t)s->from % 16 == 0 && s->stride % 8 == 0 && s->n % 8 == 0;
}

/* Rows of tokens t to t + n - 1 begin to come. */
template <int PAD> static __device__ void sw_chunk_fetch(const sw_chunk<PAD> &s, int t, int n)
{
    for (int i = 0; i < SW_CHUNK_SECTIONS; i++) {
        const sw_chunk_section &c = s.section[i];
        const int piece = c.is_wide ? 8 : 1, per_row = c.n / piece;

        for (int j = (int)threadIdx.x; j < n * per_row; j += (int)blockDim.x) {
            const int token = t + j / per_row, own = j % per_row * piece;
            sw_bf16 *to = s.raw + (token + s.n_back) % s.n_rows * s.row + c.at + own;
            const sw_bf16 *from = c.from + token * c.stride + own;

            if (c.is_wide)
                sw_copy16_plain((uint32_t)__cvta_generic_to_shared(to), from);
            else
                *to = *from;
        }
    }
    sw_copy_commit();
}

/* The rows before the first token of this call: what is remembered, or zeros. */
template <int PAD>
static __device__ void sw_chunk_look_back(const sw_chunk<PAD> &s, const sw_walk_args &a,
                                          const sw_walk_place &p)
{
    for (int i = 0; i <= SW_CHUNK_V; i++) {
        const sw_conv_part &part = a.conv.part[i];
        const sw_chunk_section &c = s.section[i];
        const int64_t channel = i == SW_CHUNK_V ? (int64_t)p.head * a.d_v + p.column
                                                : (int64_t)p.group * a.d_k;

        for (int j = (int)threadIdx.x; j < s.n_back * c.n; j += (int)blockDim.x) {
            const int row = j / c.n, own = j % c.n, position = p.first + row - s.n_back;
            float x = 0;

            if (part.kept && position >= 0)
                x = *sw_kept_at(a.conv, part, p.seq, position, channel + own);
            s.raw[row * s.row + c.at + own] = sw_round16(x); /* it was BF16 */
        }
    }
}

/* One channel of tokens t to t + n - 1, convolved, `stride` floats apart. */
template <int PAD>
static __device__ void sw_chunk_convolve(float *s_to, int stride, const sw_chunk<PAD> &s,
                                         int column, const sw_conv_args &conv,
                                         const sw_conv_part &part, int64_t channel, int t, int n)
{
    const float *taps = part.taps + channel;
    const float bias = part.bias ? part.bias[channel] : 0, scale = part.x.scale;
    int at = t % s.n_rows; /* of the first token of the window */

    if (conv.n_taps == 4) { /* in registers */
        const sw_bf16 *x = s.raw + column;
        const float w[4] = {taps[0], taps[conv.width], taps[2 * conv.width], taps[3 * conv.width]};
        float u[4];

#pragma unroll
        for (int j = 0; j < 3; j++) {
            u[j] = sw_float(x[at * s.row]) * scale;
            at = at + 1 == s.n_rows ? 0 : at + 1;
        }
#pragma unroll 4
        for (int i = 0; i < n; i++) {
            u[3] = sw_float(x[at * s.row]) * scale;
            at = at + 1 == s.n_rows ? 0 : at + 1;
            s_to[i * stride] =
                sw_conv_out(conv, bias + w[0] * u[0] + w[1] * u[1] + w[2] * u[2] + w[3] * u[3]);
            u[0] = u[1], u[1] = u[2], u[2] = u[3];
        }
        return;
    }
    for (int i = 0; i < n; i++) {
        float sum = bias;

        for (int j = 0; j < conv.n_taps; j++)
            sum += taps[j * conv.width] *
                   (sw_float(s.raw[(at + i + j) % s.n_rows * s.row + column]) * scale);
        s_to[i * stride] = sw_conv_out(conv, sum);
    }
}

/* Queries, keys and values of tokens t to t + n - 1 out of their rows. */
template <int PAD>
static __device__ void sw_chunk_make(const sw_chunk<PAD> &s, const sw_walk_args &a,
                                     const sw_walk_place &p, int t, int n)
{
    for (int c = (int)threadIdx.x; c < 2 * PAD + p.n_columns; c += (int)blockDim.x) {
        const int which = c < PAD ? SW_CHUNK_Q : c < 2 * PAD ? SW_CHUNK_K : SW_CHUNK_V;
        const int own = c - which * PAD, stride = which == SW_CHUNK_V ? p.n_columns : PAD;
        const int64_t first = which == SW_CHUNK_V ? (int64_t)p.head * a.d_v + p.column
                                                  : (int64_t)p.group * a.d_k;
        float *s_to = (which == SW_CHUNK_Q ? s.q : which == SW_CHUNK_K ? s.k : s.v) + own;

        if (own < s.section[which].n)
            sw_chunk_convolve<PAD>(s_to, stride, s, c, a.conv, a.conv.part[which], first + own, t,
                                   n);
        else
            for (int i = 0; i < n; i++) s_to[i * stride] = 0;
    }
}

/* What keys and queries are to be multiplied with, eight threads a token. */
template <int PAD> static __device__ void sw_chunk_lengths(const sw_chunk<PAD> &s, int d_k, int n)
{
    const int lane = (int)threadIdx.x % 8, most = (n + 3) / 4 * 4; /* whole warps */

    for (int t = (int)threadIdx.x / 8; t < most; t += (int)blockDim.x / 8) {
        float kk = 0, qq = 0, kq = 0;

        for (int i = lane; i < PAD && t < n; i += 8) {
            const float k = s.k[t * PAD + i], q = s.q[t * PAD + i];

            kk += k * k, qq += q * q, kq += k * q;
        }
#pragma unroll
        for (int step = 4; step; step /= 2) {
            kk += __shfl_xor_sync(~0u, kk, step);
            qq += __shfl_xor_sync(~0u, qq, step);
            kq += __shfl_xor_sync(~0u, kq, step);
        }
        if (lane || t >= n) continue;
        s.scale_k[t] = 1.0f / sqrtf(kk + SW_LENGTH_EPS);
        s.scale_q[t] = 1.0f / sqrtf((qq + SW_LENGTH_EPS) * (float)d_k);
        s.through[t] = s.scale_k[t] * s.scale_q[t] * kq;
    }
}

/* The only token of this call is remembered, by one of the blocks that read its channels. */
template <int PAD>
static __device__ void sw_chunk_keep(const sw_chunk<PAD> &s, const sw_walk_args &a,
                                     const sw_walk_place &p)
{
    const bool owns_keys = p.column == 0 && p.head % (a.n_heads / a.n_groups) == 0;

    for (int i = owns_keys ? SW_CHUNK_Q : SW_CHUNK_V; i <= SW_CHUNK_V; i++) {
        const int64_t first = i == SW_CHUNK_V ? (int64_t)p.head * a.d_v + p.column
                                              : (int64_t)p.group * a.d_k;
        const sw_chunk_section &c = s.section[i];

        for (int own = (int)threadIdx.x; a.conv.part[i].kept && own < c.n; own += (int)blockDim.x)
            *sw_kept_at(a.conv, a.conv.part[i], p.seq, p.first, first + own) =
                sw_float(s.raw[s.n_back * s.row + c.at + own]);
    }
}

#endif
