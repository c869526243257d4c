/* chunk_channels.cuh - the first of the kernels of chunk_form.cuh where each channel of keys decays
 * by itself. Queries and keys take the decays along:
 *
 *   L_ti = step_t * sum over c of k_t[c] k_i[c] exp(G_t[c] - G_i[c]), P_ti likewise of q_t
 *
 * A product of matrices needs a factor of t and one of i. Tokens come in blocks of 16; with R the
 * sums at the end of the block before that of t, exp(G_t - R) and exp(R - G_i) have no exponent
 * above 0 for i in earlier blocks. Within a block each pair has an exponential of its own.
 *
 * Sources: Kimi Team, Kimi Linear: An Expressive, Efficient Attention Architecture (2025), section
 * 3; Yang et al., Gated Linear Attention Transformers (2024), section 4.3, for blocks in chunks.
 */
#ifndef SW_KERNELS_CUDA_OPS_MIXERS_CHUNK_CHANNELS_CUH
#define SW_KERNELS_CUDA_OPS_MIXERS_CHUNK_CHANNELS_CUH

#include "kernels/cuda/ops/mixers/chunk_make.cuh"

#define SW_CHANNEL_BLOCK 16
#define SW_CHANNEL_BLOCKS (SW_FORM_TOKENS / SW_CHANNEL_BLOCK)
#define SW_CHANNEL_STRIDE 18 /* floats of a row of a block's pairs */
#define SW_CHANNEL_AHEAD 8   /* decays of a channel on their way at once */
#define SW_CHANNEL_PAIRS 4   /* of tokens at once */

#define SW_CHANNEL_KEYS 128  /* of a head: the one size that was run and timed */

/* Shared memory beside that of sw_make_shared. Operands take decays along in registers, so that
 * two blocks fit a multiprocessor. */
template <int DK> struct sw_channel_shared {
    float *g;     /* [64, stride] sums of decays from the chunk's first token on; over t, w and v,
                   * which come later */
    float *pairs; /* [4, 16, SW_CHANNEL_STRIDE] of P within blocks; before, sums of parts */

    static const int stride = DK + 8;
    static const int n_pairs = SW_CHANNEL_BLOCKS * SW_CHANNEL_BLOCK * SW_CHANNEL_STRIDE;
    static const int bytes = sw_make_shared<DK>::bytes + 4 * n_pairs;
    static_assert(2 * SW_FORM_TOKENS * stride <=
                      2 * sw_make_shared<DK>::squares + sw_make_shared<DK>::values,
                  "sums have room");
    static_assert(SW_MAKE_THREADS <= n_pairs, "so have sums of parts");

    __device__ sw_channel_shared(const sw_make_shared<DK> &s, float *s_all)
    {
        g = (float *)s.t;
        pairs = s_all + sw_make_shared<DK>::bytes / 4;
    }
};

/* ---- decays ---- */

/* The logarithm of a decay. */
static __device__ __forceinline__ float sw_channel_log(const sw_walk_args &w, int64_t row,
                                                       int head, int own, float rate)
{
    const int64_t channel = (int64_t)head * w.d_k + own;
    const float x = sw_mixer_load(w.decay, row, channel) + w.dt_bias[channel];

    return fmaxf(-rate * sw_softplus_of(x), SW_LOG_KEEP_MIN);
}

/* g of the chunk, by threads that have a part of the tokens of a channel each. */
template <int DK>
static __device__ void sw_channel_sums(const sw_channel_shared<DK> &c, const sw_form_args &a,
                                       const sw_make_place &p)
{
    const sw_walk_args &w = a.walk;
    const int n_parts = SW_MAKE_THREADS / DK, per = SW_FORM_TOKENS / n_parts;
    const int own = (int)threadIdx.x % DK, part = (int)threadIdx.x / DK;
    const int64_t row = p.rows.seq * w.conv.seq_len + p.rows.token;
    const float rate = expf(w.a_log[p.head]);
    float sum = 0;

#pragma unroll 1
    for (int at = 0; at < per; at += SW_CHANNEL_AHEAD) {
        const int t0 = part * per + at;
        float logs[SW_CHANNEL_AHEAD];

#pragma unroll
        for (int i = 0; i < SW_CHANNEL_AHEAD; i++)
            logs[i] = t0 + i < p.rows.n_there && own < w.d_k
                          ? sw_channel_log(w, row + t0 + i, p.head, own, rate)
                          : 0.0f;
#pragma unroll
        for (int i = 0; i < SW_CHANNEL_AHEAD; i++) {
            sum += logs[i];
            c.g[(t0 + i) * c.stride + own] = sum;
        }
    }
    c.pairs[part * DK + own] = sum;
    __syncthreads();
    sum = 0;
    for (int i = 0; i < part; i++) sum += c.pairs[i * DK + own];
    if (!part) return;
    /* Of a loop over t up to (part + 1) * per nvcc 13.0 made 37 rows instead of 16. */
#pragma unroll
    for (int i = 0; i < per; i++) c.g[(part * per + i) * c.stride + own] += sum;
}

template <int DK>
static __device__ void sw_channel_steps(const sw_make_shared<DK> &s, const sw_form_args &a,
                                        const sw_make_place &p)
{
    const int t = (int)threadIdx.x;
    const int64_t row = p.rows.seq * a.walk.conv.seq_len + p.rows.token + t;

    if (t >= SW_FORM_TOKENS) return;
    s.step[t] = t < p.rows.n_there ? sw_sigmoid_of(sw_mixer_load(a.walk.step, row, p.head)) : 0.0f;
    s.log_decay[t] = 0; /* keys have them */
}

/* Two elements times exponentials. */
static __device__ __forceinline__ uint32_t sw_channel_scaled(uint32_t two, float2 log_keep)
{
    return sw_pack2(__uint_as_float(two << 16) * __expf(log_keep.x),
                    __uint_as_float(two & 0xffff0000u) * __expf(log_keep.y));
}

/* x - y, two neighbours each. */
static __device__ __forceinline__ float2 sw_channel_less(const float *x, const float *y)
{
    const float2 a = *(const float2 *)x, b = *(const float2 *)y;

    return make_float2(a.x - b.x, a.y - b.y);
}

/* ---- within blocks ---- */

/* Two neighbouring channels of a token, or two more. */
struct sw_channel_two {
    float2 k, g;
};

template <int DK>
static __device__ __forceinline__ void sw_channel_load(sw_channel_two (&to)[DK / 64],
                                                       const sw_bf16 *rows,
                                                       const sw_channel_shared<DK> &c, int t)
{
#pragma unroll
    for (int j = 0; j < DK / 64; j++) {
        const int at = 64 * j + (int)threadIdx.x % 32 * 2;
        const uint32_t two = *(const uint32_t *)(rows + t * sw_tile_stride(DK) + at);

        to[j].k = make_float2(__uint_as_float(two << 16), __uint_as_float(two & 0xffff0000u));
        to[j].g = *(const float2 *)(c.g + t * c.stride + at);
    }
}

/* Eight sums over a warp, one for every four lanes: that of x[lane / 4]. */
static __device__ __forceinline__ float sw_channel_sums_of(float (&x)[2 * SW_CHANNEL_PAIRS])
{
    const int lane = (int)threadIdx.x % 32;

#pragma unroll
    for (int step = 16, n = SW_CHANNEL_PAIRS; n; step /= 2, n /= 2) {
        const bool is_high = lane & step;

#pragma unroll
        for (int i = 0; i < n; i++) {
            const float given = is_high ? x[i] : x[n + i];

            x[i] = (is_high ? x[n + i] : x[i]) + __shfl_xor_sync(~0u, given, step);
        }
    }
    x[0] += __shfl_xor_sync(~0u, x[0], 2);
    return x[0] + __shfl_xor_sync(~0u, x[0], 1);
}

/* Products of keys and of queries of token t with keys of tokens from i on, as x[2 pair] and
 * x[2 pair + 1]. Tokens behind t give what nobody reads. */
template <int DK>
static __device__ __forceinline__ void sw_channel_some(float (&x)[2 * SW_CHANNEL_PAIRS],
                                                       const sw_channel_two (&q)[DK / 64],
                                                       const sw_channel_two (&k)[DK / 64],
                                                       const sw_channel_shared<DK> &c,
                                                       const sw_bf16 *s_k, int i)
{
#pragma unroll
    for (int pair = 0; pair < SW_CHANNEL_PAIRS; pair++) {
        sw_channel_two its[DK / 64];
        float kk = 0, qk = 0;

        sw_channel_load<DK>(its, s_k, c, i + pair);
#pragma unroll
        for (int j = 0; j < DK / 64; j++) {
            const float left = its[j].k.x * __expf(k[j].g.x - its[j].g.x);
            const float right = its[j].k.y * __expf(k[j].g.y - its[j].g.y);

            kk += k[j].k.x * left + k[j].k.y * right;
            qk += q[j].k.x * left + q[j].k.y * right;
        }
        x[2 * pair] = kk;
        x[2 * pair + 1] = qk;
    }
}

/* L and P of pairs of a block: two warps have it, every second token each. */
template <int DK>
static __device__ void sw_channel_within(const sw_channel_shared<DK> &c,
                                         const sw_make_shared<DK> &s, const sw_solve_shared &solve)
{
    const int warp = (int)threadIdx.x / 32, mine = (int)threadIdx.x % 32 / 4;
    const int m = warp / 2, first = m * SW_CHANNEL_BLOCK;

    for (int t = first + warp % 2; t < first + SW_CHANNEL_BLOCK; t += 2) {
        sw_channel_two q[DK / 64], k[DK / 64];

        sw_channel_load<DK>(q, s.q, c, t);
        sw_channel_load<DK>(k, s.k, c, t);
        for (int i0 = first; i0 <= t; i0 += SW_CHANNEL_PAIRS) {
            float x[2 * SW_CHANNEL_PAIRS];

            sw_channel_some<DK>(x, q, k, c, s.k, i0);
            const float sum = sw_channel_sums_of(x);
            const int i = i0 + mine / 2;

            if (threadIdx.x % 4 || i > t) continue;
            if (mine % 2) c.pairs[t * SW_CHANNEL_STRIDE + i - first] = sum;
            else if (i < t) solve.put(t, i, s.step[t] * sum);
        }
    }
}

/* ---- between blocks ---- */

/* What a lane's elements of a first operand, 16 tokens of block m and 16 channels from 16 k on,
 * are multiplied with, as logarithms: decays since the block before ended. */
struct sw_channel_since {
    float2 log[4];
};

template <int DK>
static __device__ __forceinline__ sw_channel_since sw_channel_since_of(
    const sw_channel_shared<DK> &c, int m, int k)
{
    const int lane = (int)threadIdx.x % 32, at = 16 * k + lane % 4 * 2;
    const float *rows = c.g + (16 * m + lane / 4) * c.stride + at;
    const float *before = c.g + (16 * m - 1) * c.stride + at;

    return {{sw_channel_less(rows, before), sw_channel_less(rows + 8 * c.stride, before),
             sw_channel_less(rows + 8, before + 8),
             sw_channel_less(rows + 8 * c.stride + 8, before + 8)}};
}

static __device__ __forceinline__ uint4 sw_channel_decayed(const uint4 &x,
                                                           const sw_channel_since &by)
{
    return make_uint4(sw_channel_scaled(x.x, by.log[0]), sw_channel_scaled(x.y, by.log[1]),
                      sw_channel_scaled(x.z, by.log[2]), sw_channel_scaled(x.w, by.log[3]));
}

/* A second operand of 8 tokens from 8 n on and 32 channels from 32 k on, with decays of
 * x[channel] - y[channel] as `less` says them for a lane's token. */
template <class LESS>
static __device__ __forceinline__ uint4 sw_channel_second(const sw_bf16 *tile, int stride, int n,
                                                          int k, const LESS &less)
{
    const int at = 32 * k + (int)threadIdx.x % 4 * 2;
    const uint4 x = sw_tile_second(tile, stride, n, k);

    return make_uint4(sw_channel_scaled(x.x, less(at)), sw_channel_scaled(x.y, less(at + 8)),
                      sw_channel_scaled(x.z, less(at + 16)),
                      sw_channel_scaled(x.w, less(at + 24)));
}

/* A warp's 16 tokens, block m, times those of 32 earlier ones that are in earlier blocks. */
template <int DK>
static __device__ __forceinline__ void sw_channel_products(float (&kk)[4][4], float (&qk)[4][4],
                                                           const sw_channel_shared<DK> &c,
                                                           const sw_make_shared<DK> &s, int m,
                                                           int half)
{
    const int stride = sw_tile_stride(DK), row = (int)threadIdx.x % 32 / 4;
    const float *before = c.g + (16 * m - 1) * c.stride;

#pragma unroll 1
    for (int k = 0; k < DK / 32; k++) {
        const sw_channel_since left = sw_channel_since_of<DK>(c, m, 2 * k);
        const sw_channel_since right = sw_channel_since_of<DK>(c, m, 2 * k + 1);
        const uint4 k0 = sw_channel_decayed(sw_tile_first(s.k, stride, m, 2 * k), left);
        const uint4 k1 = sw_channel_decayed(sw_tile_first(s.k, stride, m, 2 * k + 1), right);
        const uint4 q0 = sw_channel_decayed(sw_tile_first(s.q, stride, m, 2 * k), left);
        const uint4 q1 = sw_channel_decayed(sw_tile_first(s.q, stride, m, 2 * k + 1), right);

#pragma unroll
        for (int n = 0; n < 4; n++) {
            const int at = 4 * half + n;
            const float *g = c.g + (8 * at + row) * c.stride;

            if (at >= 2 * m) continue;
            const uint4 b = sw_channel_second(s.k, stride, at, k, [&](int i) {
                return sw_channel_less(before + i, g + i);
            });

            sw_mma_add(kk[n], k0, b.x, b.y);
            sw_mma_add(kk[n], k1, b.z, b.w);
            sw_mma_add(qk[n], q0, b.x, b.y);
            sw_mma_add(qk[n], q1, b.z, b.w);
        }
    }
}

/* The rest of L to shared memory, and P to its place. */
template <int DK>
static __device__ void sw_channel_squares(const sw_channel_shared<DK> &c,
                                          const sw_make_shared<DK> &s,
                                          const sw_solve_shared &solve, char *to)
{
    const int warp = (int)threadIdx.x / 32, m = warp / 2, half = warp % 2;
    const int row = (int)threadIdx.x % 32 / 4, column = (int)threadIdx.x % 4 * 2;
    float kk[4][4] = {}, qk[4][4] = {};

    if (2 * half < m) /* else there is nothing earlier here */
        sw_channel_products<DK>(kk, qk, c, s, m, half);
#pragma unroll
    for (int n = 0; n < 4; n++) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int t = 16 * m + row + e / 2 * 8, i = 32 * half + 8 * n + column + e % 2;
            const int block = i / SW_CHANNEL_BLOCK;

            if (block < m) solve.put(t, i, s.step[t] * kk[n][e]);
            if (block == m)
                qk[n][e] = i <= t ? c.pairs[t * SW_CHANNEL_STRIDE + i % SW_CHANNEL_BLOCK] : 0.0f;
        }
    }
    sw_sums_to_operand(to, SW_FORM_TOKENS, m, half, qk);
}

/* ---- a chunk ---- */

/* Keys as a second operand, turned: 32 tokens from 32 k on, 8 channels from 8 n on, with the decays
 * to the chunk's end. */
template <int DK>
static __device__ __forceinline__ uint4 sw_channel_turned(const sw_channel_shared<DK> &c,
                                                          const sw_make_shared<DK> &s, int n,
                                                          int k)
{
    const int lane = (int)threadIdx.x % 32;
    const float *g = c.g + (32 * k + lane % 4 * 2) * c.stride + 8 * n + lane / 4;
    const float last = c.g[(SW_FORM_TOKENS - 1) * c.stride + 8 * n + lane / 4];
    const uint4 x = sw_tile_second_turned(s.k, sw_tile_stride(DK), n, k);
    const auto less = [&](int j) {
        return make_float2(last - g[8 * j * c.stride], last - g[(8 * j + 1) * c.stride]);
    };

    return make_uint4(sw_channel_scaled(x.x, less(0)), sw_channel_scaled(x.y, less(1)),
                      sw_channel_scaled(x.z, less(2)), sw_channel_scaled(x.w, less(3)));
}

/* Q with all decays since the chunk began, and K^T with those to its end, as operands; and what
 * the state keeps, row by row. */
template <int DK>
static __device__ void sw_channel_keys(const sw_channel_shared<DK> &c, const sw_make_shared<DK> &s,
                                       const sw_form_args &a, const sw_make_place &p, float *gates)
{
    char *keys = a.keys + (p.chunk * a.walk.n_groups + p.group) * sw_form_keys_bytes(DK);
    uint4 *q = (uint4 *)keys, *k = q + sw_form_operand_bytes(SW_FORM_TOKENS, DK) / 16;
    const int lane = (int)threadIdx.x % 32, n_tiles = SW_FORM_TOKENS / 8 * (DK / 32);

    for (int i = (int)threadIdx.x / 32; i < n_tiles; i += SW_MAKE_THREADS / 32) {
        const float *g = c.g + (8 * (i / (DK / 32)) + lane / 4) * c.stride;

        q[i * 32 + lane] =
            sw_channel_second(s.q, sw_tile_stride(DK), i / (DK / 32), i % (DK / 32),
                              [&](int at) { return *(const float2 *)(g + at); });
        k[i * 32 + lane] = sw_channel_turned<DK>(c, s, i / 2, i % 2);
    }
    if (threadIdx.x < DK)
        gates[threadIdx.x] = expf(c.g[(SW_FORM_TOKENS - 1) * c.stride + threadIdx.x]);
}

/* Keys with all decays since the chunk began, where W wants them. */
template <int DK>
static __device__ void sw_channel_begin(const sw_channel_shared<DK> &c, const sw_make_shared<DK> &s)
{
#pragma unroll 4
    for (int i = (int)threadIdx.x; i < SW_FORM_TOKENS * (DK / 2); i += SW_MAKE_THREADS) {
        const int t = i / (DK / 2), at = i % (DK / 2) * 2;
        uint32_t *two = (uint32_t *)(s.k + t * sw_tile_stride(DK) + at);

        *two = sw_channel_scaled(*two, *(const float2 *)(c.g + t * c.stride + at));
    }
}

/* T, U and W. */
template <int DK>
static __device__ void sw_channel_solve(const sw_make_shared<DK> &s, const sw_solve_shared &solve,
                                        const sw_form_args &a, const sw_make_place &p, char *w)
{
    const int warp = (int)threadIdx.x / 32, j = (int)threadIdx.x;

    if (j < SW_FORM_TOKENS) sw_solve_column(solve, j, s.step[j], 1.0f);
    sw_make_v<DK>(s, a, p, p.head, 0);
    __syncthreads();
    sw_solve_below(solve, s.step, s.log_decay);
    __syncthreads();
    sw_make_columns<DK>(s, a, p, p.head);
    sw_make_w<DK>(s, w, warp / 2, warp % 2);
}

/* grid (sequences, chunks, heads: all in x) */
template <class RULE, int DK>
static __global__ void __launch_bounds__(SW_MAKE_THREADS, 2) swk_chunk_channels(sw_form_args a)
{
    extern __shared__ float4 s_all[];

    sw_begin();
    const sw_make_place p = sw_make_find(a);
    const sw_make_shared<DK> s((float *)s_all);
    const sw_channel_shared<DK> c(s, (float *)s_all);
    const sw_solve_shared solve(s.l, s.t, s.w);
    char *to = sw_make_head_at<RULE, DK>(a, p, p.head);
    float *gates = (float *)(to + sw_form_operand_bytes(SW_FORM_TOKENS, SW_FORM_TOKENS));

    sw_make_tiles<RULE, DK>(s, a, p);
    sw_make_fetch<DK>(s, a, p, p.head, 0);
    sw_channel_steps<DK>(s, a, p);
    sw_channel_sums<DK>(c, a, p);
    __syncthreads();
    sw_channel_within<DK>(c, s, solve);
    __syncthreads();
    sw_channel_squares<DK>(c, s, solve, to);
    sw_channel_keys<DK>(c, s, a, p, gates);
    __syncthreads();
    sw_channel_begin<DK>(c, s);
    sw_copy_wait<0>();
    __syncthreads();
    sw_channel_solve<DK>(s, solve, a, p, (char *)(gates + SW_FORM_GATES));
}

#endif
