/* chunk_rows.cuh - rows of a chunk of tokens, convolved, in shared memory. See chunk_form.cuh. */
#ifndef SW_KERNELS_CUDA_OPS_MIXERS_CHUNK_ROWS_CUH
#define SW_KERNELS_CUDA_OPS_MIXERS_CHUNK_ROWS_CUH

#include "kernels/cuda/ops/mixers/chunk_operand.cuh"

#define SW_ROWS_TAPS 4           /* of convolutions whose rows come into shared memory first */
#define SW_ROWS_RAW (SW_FORM_TOKENS + SW_ROWS_TAPS - 1)
#define SW_ROWS_LENGTH_EPS 1e-6f /* beside the squares of a key or query */

/* Where tokens of a convolution are; from n_there on there are none, and zeros instead. */
struct sw_rows_place {
    int seq, token, n_there; /* of the call */
    int64_t first;           /* position of the sequence's first token of this call */
};

/* n_channels from `channel` on, zeros up to `width`, which is even. */
struct sw_rows_part {
    const sw_conv_args *conv;
    const sw_conv_part *part;
    int64_t channel;
    int n_channels, width;
};

/* Raw rows of a chunk and of the tokens that it looks back to begin to come, [SW_ROWS_RAW, width];
 * what is before the call comes at once. */
static __device__ void sw_rows_fetch(sw_bf16 *s_raw, const sw_rows_part &r, const sw_rows_place &p)
{
    const sw_bf16_rows &rows = r.part->x.rows;
    const sw_bf16 *from = rows.d + p.seq * r.conv->seq_len * rows.stride +
                          sw_column(r.part->x, r.channel);
    const bool is_wide =
        (uintptr_t)from % 16 == 0 && rows.stride % 8 == 0 && r.n_channels % 8 == 0;
    const int piece = is_wide ? 8 : 1, per_row = r.n_channels / piece;
    const int n_rows = p.n_there + SW_ROWS_TAPS - 1;

    for (int i = (int)threadIdx.x; i < n_rows * per_row; i += (int)blockDim.x) {
        const int row = i / per_row, own = i % per_row * piece;
        const int token = p.token - (SW_ROWS_TAPS - 1) + row;
        sw_bf16 *to = s_raw + row * r.width + own;

        if (token < 0)
            for (int j = 0; j < piece; j++)
                to[j] = sw_round16(sw_conv_in(*r.conv, *r.part, p.seq, p.first, token,
                                              r.channel + own + j)); /* it was BF16 */
        else if (is_wide)
            sw_copy16_plain(sw_smem_addr(to), from + token * rows.stride + own);
        else
            *to = from[token * rows.stride + own];
    }
    sw_copy_commit();
}

static __device__ __forceinline__ void sw_rows_put(float *to, float x) { *to = x; }
static __device__ __forceinline__ void sw_rows_put(sw_bf16 *to, float x) { *to = sw_round16(x); }
static __device__ __forceinline__ void sw_rows_put(float *to, float x, float y)
{
    *(float2 *)to = make_float2(x, y);
}
static __device__ __forceinline__ void sw_rows_put(sw_bf16 *to, float x, float y)
{
    *(uint32_t *)to = sw_pack2(x, y);
}

/* Taps and bias of a channel, zeros where there is none. */
struct sw_rows_taps {
    float w[SW_ROWS_TAPS], bias;

    __device__ sw_rows_taps(const sw_rows_part &r, int own)
    {
        const bool is_there = own < r.n_channels;
        const float *taps = r.part->taps + r.channel + own;

#pragma unroll
        for (int j = 0; j < SW_ROWS_TAPS; j++) w[j] = is_there ? taps[j * r.conv->width] : 0;
        bias = is_there && r.part->bias ? r.part->bias[r.channel + own] : 0;
    }
    __device__ float sum(float a, float b, float c, float d) const
    {
        return bias + w[0] * a + w[1] * b + w[2] * c + w[3] * d;
    }
};

/* Tokens [at, at + n) of channels `own` and the next, out of raw rows. */
template <typename T>
static __device__ __forceinline__ void sw_rows_pair(T *s_to, int stride, const sw_bf16 *s_raw,
                                                    const sw_rows_part &r, int n_there, int own,
                                                    int at, int n)
{
    const sw_rows_taps left(r, own), right(r, own + 1);
    const float scale = r.part->x.scale;
    const bool has_left = own < r.n_channels, has_right = own + 1 < r.n_channels;
    float x[SW_ROWS_TAPS], y[SW_ROWS_TAPS];

#pragma unroll 4
    for (int i = -(SW_ROWS_TAPS - 1); i < n; i++) {
        const uint32_t two =
            *(const uint32_t *)(s_raw + (at + i + SW_ROWS_TAPS - 1) * r.width + own);

        x[3] = __uint_as_float(two << 16) * scale;
        y[3] = __uint_as_float(two & 0xffff0000u) * scale;
        if (i >= 0) {
            const bool is_there = at + i < n_there;
            const float a = sw_conv_out(*r.conv, left.sum(x[0], x[1], x[2], x[3]));
            const float b = sw_conv_out(*r.conv, right.sum(y[0], y[1], y[2], y[3]));

            sw_rows_put(s_to + (at + i) * stride + own, is_there && has_left ? a : 0.0f,
                        is_there && has_right ? b : 0.0f);
        }
        x[0] = x[1], x[1] = x[2], x[2] = x[3];
        y[0] = y[1], y[1] = y[2], y[2] = y[3];
    }
}

/* All tokens of a chunk, convolved, by threads [from, from + n_threads): each has a run of tokens
 * of a pair of channels. */
template <typename T>
static __device__ void sw_rows_fill(T *s_to, int stride, const sw_bf16 *s_raw,
                                    const sw_rows_part &r, const sw_rows_place &p, int from,
                                    int n_threads)
{
    const int me = (int)threadIdx.x - from, n_pairs = r.width / 2;
    const int n_runs = n_threads / n_pairs, per = (SW_FORM_TOKENS + n_runs - 1) / n_runs;
    const int own = me % n_pairs * 2, at = me / n_pairs * per, n = min(per, SW_FORM_TOKENS - at);

    if (me < 0 || me >= n_threads) return;
    if (r.conv->n_taps == SW_ROWS_TAPS) {
        sw_rows_pair(s_to, stride, s_raw, r, p.n_there, own, at, n);
        return;
    }
    for (int i = 0; i < 2 * n; i++) { /* rare: each element by itself */
        const int t = at + i / 2, c = own + i % 2;
        const bool is_there = t < p.n_there && c < r.n_channels;

        sw_rows_put(s_to + t * stride + c,
                    is_there ? sw_conv_at(*r.conv, *r.part, p.seq, p.first, p.token + t,
                                          r.channel + c)
                             : 0.0f);
    }
}

/* Rows of floats, at their length or divided by it, times `factor`, as a tile; a warp to a row. */
template <int WIDTH>
static __device__ void sw_rows_round(sw_bf16 *s_tile, const float *s_x, int stride, bool has_length,
                                     float factor)
{
    const int lane = (int)threadIdx.x % 32;

#pragma unroll 2
    for (int t = (int)threadIdx.x / 32; t < SW_FORM_TOKENS; t += (int)blockDim.x / 32) {
        float x[WIDTH / 32], sum = 0;

#pragma unroll
        for (int i = 0; i < WIDTH / 32; i++) {
            x[i] = s_x[t * stride + 32 * i + lane];
            sum += x[i] * x[i];
        }
        const float scale =
            has_length ? factor : factor / sqrtf(sw_warp_sum(sum) + SW_ROWS_LENGTH_EPS);

#pragma unroll
        for (int i = 0; i < WIDTH / 32; i++)
            s_tile[t * sw_tile_stride(WIDTH) + 32 * i + lane] = sw_round16(x[i] * scale);
    }
}

#endif
