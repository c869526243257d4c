/* mixer_walk.cuh - the walk of a recurrent mixer over its tokens. See mixers.h.
 *
 * A block has some columns of the state [d_k, d_v] of one head of one sequence, eight neighbouring
 * threads two columns, for the walk is bound by what it reads of keys and queries from shared
 * memory; of the rows these threads have four at a time in turns. Columns do not need each other:
 * within a chunk of tokens nobody waits. While a chunk is walked, the rows of the next one come.
 *
 * A RULE makes steps and decays of a chunk (`prepare`) and says whether the state is read before
 * it is replaced (`corrects`) and whether each key has a decay of its own (`by_channel`).
 */
#ifndef SW_KERNELS_CUDA_OPS_MIXERS_MIXER_WALK_CUH
#define SW_KERNELS_CUDA_OPS_MIXERS_MIXER_WALK_CUH

#include "kernels/cuda/ops/mixers/mixer_chunk.cuh"

#define SW_WALK_COLUMNS_MAX 128 /* of a block */
#define SW_WALK_LANES 8         /* threads of a pair of columns */
#define SW_WALK_THREADS 4       /* that is, of a column */
#define SW_SHARED_FREE 49152    /* bytes of shared memory that need not be asked for */

static __device__ sw_walk_place sw_walk_find(const sw_walk_args &a, int n_tiles)
{
    const int item = (int)(blockIdx.x / n_tiles);
    sw_walk_place p;

    p.n_columns = (int)blockDim.x / SW_WALK_THREADS;
    p.column = (int)(blockIdx.x % n_tiles) * p.n_columns;
    p.n_there = min(p.n_columns, a.d_v - p.column);
    p.seq = item / a.n_heads;
    p.head = item % a.n_heads;
    p.group = p.head / (a.n_heads / a.n_groups);
    p.first = (int)sw_first_of(a.conv, p.seq);
    return p;
}

/* ---- the state ---- */

static inline __host__ __device__ int sw_walk_width(int d_v) { return (d_v + 7) / 8 * 8; }

/* What a thread keeps of two columns, the first one's rows before the second one's; NULL where
 * there are none. Neighbouring threads have neighbouring places. */
template <int PAD>
static __device__ float4 *sw_walk_state(const sw_walk_args &a, const sw_walk_place &p)
{
    const int64_t width = sw_walk_width(a.d_v);
    const int64_t at = p.column * SW_WALK_THREADS + (int64_t)threadIdx.x;

    if (!a.state || at >= width * SW_WALK_THREADS) return NULL;
    return (float4 *)(a.state + p.seq * a.conv.state_seq + p.head * PAD * width) + at;
}

template <int PAD>
static __device__ void sw_walk_load(float4 (&mine)[2][PAD / 32], const sw_walk_args &a,
                                    const sw_walk_place &p)
{
    const int64_t row = sw_walk_width(a.d_v) * SW_WALK_THREADS;
    const float4 *from = p.first == 0 ? NULL : sw_walk_state<PAD>(a, p);

#pragma unroll
    for (int i = 0; i < PAD / 16; i++)
        mine[i / (PAD / 32)][i % (PAD / 32)] = from ? from[i * row] : make_float4(0, 0, 0, 0);
}

template <int PAD>
static __device__ void sw_walk_save(const float4 (&mine)[2][PAD / 32], const sw_walk_args &a,
                                    const sw_walk_place &p)
{
    const int64_t row = sw_walk_width(a.d_v) * SW_WALK_THREADS;
    float4 *to = sw_walk_state<PAD>(a, p);

    if (!to) return;
#pragma unroll
    for (int i = 0; i < PAD / 16; i++) to[i * row] = mine[i / (PAD / 32)][i % (PAD / 32)];
}

/* ---- tokens ---- */

static __device__ __forceinline__ float sw_lanes_sum(float4 x)
{
    float sum = (x.x + x.y) + (x.z + x.w);

#pragma unroll
    for (int step = 1; step < SW_WALK_LANES; step *= 2) sum += __shfl_xor_sync(~0u, sum, step);
    return sum;
}

static __device__ __forceinline__ void sw_add_product(float4 &to, const float4 &a, const float4 &b)
{
    to.x += a.x * b.x, to.y += a.y * b.y, to.z += a.z * b.z, to.w += a.w * b.w;
}

static __device__ __forceinline__ void sw_add_scaled(float4 &to, const float4 &a, float b)
{
    to.x += a.x * b, to.y += a.y * b, to.z += a.z * b, to.w += a.w * b;
}

/* S = g * S, d = step * (v - S^T k), S = S + k d^T. What comes out, S^T q, is made of the first S
 * and of the product of k and q, so that one pass reads both. */
template <class RULE, int PAD>
static __device__ __forceinline__ float2 sw_walk_correct(float4 (&mine)[2][PAD / 32],
                                                         const sw_chunk<PAD> &s, int t, int lane,
                                                         float2 v)
{
    const float4 *k4 = (const float4 *)(s.k + t * PAD) + lane;
    const float4 *q4 = (const float4 *)(s.q + t * PAD) + lane;
    const float4 *keep4 = (const float4 *)(s.keep + t * PAD) + lane;
    const float g = RULE::by_channel ? 0 : s.decay[t], scale_k = s.scale_k[t];
    const float value[2] = {v.x, v.y};
    float4 by_k[2] = {}, by_q[2] = {};
    float out[2];

#pragma unroll
    for (int i = 0; i < PAD / 32; i++) {
        const float4 k = k4[SW_WALK_LANES * i], q = q4[SW_WALK_LANES * i];
        const float4 keep = RULE::by_channel ? keep4[SW_WALK_LANES * i] : make_float4(g, g, g, g);

#pragma unroll
        for (int c = 0; c < 2; c++) {
            float4 &m = mine[c][i];

            m.x *= keep.x, m.y *= keep.y, m.z *= keep.z, m.w *= keep.w;
            sw_add_product(by_k[c], m, k);
            sw_add_product(by_q[c], m, q);
        }
    }
#pragma unroll
    for (int c = 0; c < 2; c++) {
        const float d = s.step[t] * (value[c] - scale_k * sw_lanes_sum(by_k[c]));

        out[c] = sw_lanes_sum(by_q[c]) * s.scale_q[t] + s.through[t] * d;
#pragma unroll
        for (int i = 0; i < PAD / 32; i++)
            sw_add_scaled(mine[c][i], k4[SW_WALK_LANES * i], scale_k * d);
    }
    return make_float2(out[0], out[1]);
}

/* S = decay * S + k (step * v)^T, and S^T q; x goes through to what comes out. */
template <int PAD>
static __device__ __forceinline__ float2 sw_walk_add(float4 (&mine)[2][PAD / 32],
                                                     const sw_chunk<PAD> &s, int t, int lane,
                                                     float2 v, float through)
{
    const float4 *k4 = (const float4 *)(s.k + t * PAD) + lane;
    const float4 *q4 = (const float4 *)(s.q + t * PAD) + lane;
    const float g = s.decay[t], d[2] = {s.step[t] * v.x, s.step[t] * v.y};
    float4 by_q[2] = {};

#pragma unroll
    for (int i = 0; i < PAD / 32; i++) {
        const float4 k = k4[SW_WALK_LANES * i], q = q4[SW_WALK_LANES * i];

#pragma unroll
        for (int c = 0; c < 2; c++) {
            float4 &m = mine[c][i];

            m.x *= g, m.y *= g, m.z *= g, m.w *= g;
            sw_add_scaled(m, k, d[c]);
            sw_add_product(by_q[c], m, q);
        }
    }
    return make_float2(sw_lanes_sum(by_q[0]) + through * v.x,
                       sw_lanes_sum(by_q[1]) + through * v.y);
}

/* Values become what comes out. */
template <class RULE, int PAD>
static __device__ void sw_walk_tokens(float4 (&mine)[2][PAD / 32], const sw_chunk<PAD> &s,
                                      int n_columns, int n, float through)
{
    const int lane = (int)threadIdx.x % SW_WALK_LANES, pair = (int)threadIdx.x / SW_WALK_LANES;

    for (int t = 0; t < n; t++) {
        float2 *at = (float2 *)(s.v + t * n_columns) + pair;
        const float2 out = RULE::corrects
                               ? sw_walk_correct<RULE, PAD>(mine, s, t, lane, *at)
                               : sw_walk_add<PAD>(mine, s, t, lane, *at, through);

        __syncwarp();
        if (lane == 0) *at = out;
    }
}

/* What came out of n tokens from row `t` of the sequence on, a warp to a token; normed and gated
 * where that needs this block alone. */
template <int PAD>
static __device__ void sw_walk_store(const sw_chunk<PAD> &s, const sw_walk_args &a,
                                     const sw_walk_place &p, int t, int n)
{
    const int lane = (int)threadIdx.x % 32, n_warps = (int)blockDim.x / 32;
    const sw_gate_args &g = a.gate;
    const int64_t row = p.seq * a.conv.seq_len + t, first = (int64_t)p.head * a.d_v + p.column;
    const sw_chunk_section &z = s.section[SW_CHUNK_Z];

    for (int i = (int)threadIdx.x / 32; i < n; i += n_warps) {
        const float *x = s.v + i * p.n_columns;
        const sw_bf16 *gate = s.raw + (t + i + s.n_back) % s.n_rows * s.row + z.at;
        sw_bf16 *to = a.out.d + (row + i) * a.out.stride + first;
        float sum = 0, scale = 1;

        for (int c = lane; g.w && c < z.n; c += 32) {
            const float y = sw_gate_before(g, x[c], sw_float(gate[c]) * g.z.scale);

            sum += y * y;
        }
        if (g.w && z.n) scale = 1.0f / sqrtf(sw_warp_sum(sum) / (float)g.group + g.eps);
        for (int c = lane; c < p.n_there; c += 32) {
            float y = x[c];

            if (z.n) {
                const float by = sw_float(gate[c]) * g.z.scale;

                y = sw_gate_after(g, sw_gate_before(g, y, by), scale, by, first + c);
            }
            to[c] = sw_round16(y);
        }
    }
}

/* Of the blocks that make a group of channels of a sequence's only token, the last one norms it. */
static __device__ void sw_walk_meet(const sw_walk_args &a, const sw_walk_place &p, int n_tiles,
                                    float *s_part)
{
    __shared__ bool s_is_last;
    const int64_t n_groups = (int64_t)a.n_heads * a.d_v / a.gate.group;
    const int64_t group = (int64_t)p.head * a.d_v / a.gate.group;
    const unsigned n_blocks = (unsigned)(a.gate.group / a.d_v * n_tiles);

    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0)
        s_is_last = atomicInc(&a.counters[p.seq * n_groups + group], n_blocks - 1) == n_blocks - 1;
    __syncthreads();
    if (!s_is_last) return;
    __threadfence();
    sw_gate_group(a.gate, a.out, p.seq, group * a.gate.group, s_part);
}

/* ---- the kernel ---- */

template <class RULE, int PAD>
static __device__ void sw_walk_all(const sw_chunk<PAD> &s, const sw_walk_args &a,
                                   const sw_walk_place &p)
{
    const int most = sw_chunk_size<PAD>::tokens, len = (int)a.conv.seq_len;
    const float through = a.d ? a.d[p.head] : 0;
    float4 mine[2][PAD / 32];
    RULE rule;

    sw_chunk_fetch<PAD>(s, 0, min(most, len));
    rule.fetch(a, p, 0);
    sw_walk_load<PAD>(mine, a, p);
    sw_chunk_look_back<PAD>(s, a, p);
    for (int t = 0; t < len; t += most) {
        const int n = min(most, len - t);

        sw_copy_wait<0>();
        __syncthreads();
        rule.template prepare<PAD>(s, a, p, t, n);
        if (t + most < len) {
            sw_chunk_fetch<PAD>(s, t + most, min(most, len - t - most));
            rule.fetch(a, p, t + most);
        }
        sw_chunk_make<PAD>(s, a, p, t, n);
        __syncthreads();
        if (RULE::corrects) {
            sw_chunk_lengths<PAD>(s, a.d_k, n);
            __syncthreads();
        }
        sw_walk_tokens<RULE, PAD>(mine, s, p.n_columns, n, through);
        __syncthreads();
        sw_walk_store<PAD>(s, a, p, t, n);
    }
    sw_walk_save<PAD>(mine, a, p);
}

/* grid (sequences, heads, tiles of columns: all in x). is_split: a norm takes several blocks;
 * meets: and the last of them does it. */
template <class RULE, int PAD>
static __global__ void __launch_bounds__(SW_WALK_COLUMNS_MAX *SW_WALK_THREADS)
    swk_walk(sw_walk_args a, int n_tiles, bool is_split, bool meets)
{
    extern __shared__ float4 s_all[];
    __shared__ sw_chunk_section s_section[SW_CHUNK_SECTIONS];
    __shared__ float s_part[32];

    sw_begin();
    const sw_walk_place p = sw_walk_find(a, n_tiles);
    const sw_chunk<PAD> s = sw_chunk_cut<PAD>((float *)s_all, s_section, RULE::by_channel,
                                              p.n_columns, a.conv.n_taps);

    if (threadIdx.x < SW_CHUNK_SECTIONS)
        sw_chunk_describe<PAD>(&s_section[threadIdx.x], (int)threadIdx.x, a, p, !is_split);
    __syncthreads();
    sw_walk_all<RULE, PAD>(s, a, p);
    if (a.conv.seq_len == 1) sw_chunk_keep<PAD>(s, a, p);
    if (meets) sw_walk_meet(a, p, n_tiles, s_part);
}

/* Columns of a block: as many as one can have, or fewer where that leaves the device idle. */
static inline int sw_walk_columns(const sw_walk_args *a)
{
    int n = sw_walk_width(a->d_v);

    if (n > SW_WALK_COLUMNS_MAX) n = SW_WALK_COLUMNS_MAX;
    while (n > 32 && n % 16 == 0 &&
           a->conv.n_seqs * a->n_heads * ((a->d_v + n - 1) / n) < a->n_sms)
        n /= 2;
    return n;
}

template <class RULE, int PAD>
static sw_code sw_walk_start(const sw_walk_args *a, sw_launch how, sw_err *err)
{
    const int n_columns = sw_walk_columns(a), n_tiles = (a->d_v + n_columns - 1) / n_columns;
    const int64_t n_groups = a->gate.w ? (int64_t)a->n_heads * a->d_v / a->gate.group : 0;
    const bool is_split = a->gate.w && (n_tiles > 1 || a->gate.group != a->d_v);
    const bool meets = is_split && a->conv.seq_len == 1 &&
                       a->conv.n_seqs * n_groups <= SW_MIXER_COUNTERS;
    const int64_t n_blocks = a->conv.n_seqs * a->n_heads * n_tiles;
    const size_t shared_bytes =
        sw_chunk_size<PAD>::bytes(RULE::by_channel, n_columns, a->conv.n_taps);
    sw_code rc = SW_OK;

    if (shared_bytes > SW_SHARED_FREE)
        rc = sw_device_check((int)cudaFuncSetAttribute(swk_walk<RULE, PAD>,
                                                       cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                       (int)shared_bytes),
                             "recurrent mixer", err);
    if (rc == SW_OK)
        rc = sw_start("recurrent mixer", swk_walk<RULE, PAD>, (unsigned)n_blocks,
                      (unsigned)(n_columns * SW_WALK_THREADS), shared_bytes, how, err, *a, n_tiles,
                      is_split, meets);
    if (rc == SW_OK && is_split && !meets)
        rc = sw_start("gated norm", swk_mixer_gate,
                      dim3((unsigned)(a->conv.n_seqs * a->conv.seq_len), (unsigned)n_groups), 256,
                      0, how, err, a->gate, a->out);
    return rc == SW_OK ? sw_cuda_conv_keep(&a->conv, how, err) : rc;
}

template <class RULE>
static sw_code sw_walk_run(const sw_walk_args *a, sw_launch how, sw_err *err)
{
    if (a->d_k <= 32) return sw_walk_start<RULE, 32>(a, how, err);
    if (a->d_k <= 64) return sw_walk_start<RULE, 64>(a, how, err);
    if (a->d_k <= 128) return sw_walk_start<RULE, 128>(a, how, err);
    if (a->d_k <= SW_MIXER_KEYS_MAX) return sw_walk_start<RULE, 256>(a, how, err);
    return SW_FAIL(err, SW_E_UNSUPPORTED, "a state of %d keys; on the device there are at most %d",
                   a->d_k, SW_MIXER_KEYS_MAX);
}

#endif
