/* chunk_make.cuh - what a chunk of tokens asks of the state and gives to it, for each head: the
 * first of the kernels of chunk_form.cuh.
 *
 * A block has a chunk and a head of keys, and some or all of the heads of values that share it: the
 * products of keys and queries stay in registers while it goes from head to head.
 */
#ifndef SW_KERNELS_CUDA_OPS_MIXERS_CHUNK_MAKE_CUH
#define SW_KERNELS_CUDA_OPS_MIXERS_CHUNK_MAKE_CUH

#include "kernels/cuda/ops/mixers/chunk_rows.cuh"
#include "kernels/cuda/ops/mixers/chunk_solve.cuh"

#define SW_MAKE_THREADS 256
#define SW_MAKE_VALUES 128 /* columns of values at a time */

struct sw_make_place {
    sw_rows_place rows;
    int64_t chunk;              /* of all */
    int group, head, head_end;
    bool owns_keys;
};

/* Shared memory of a block. Raw rows of queries and keys come where later t, w and v are, those of
 * values behind l. */
template <int DK> struct sw_make_shared {
    float *x;                   /* [64, x_stride], queries or keys; then */
    float *l;                   /* what the inverse needs, */
    sw_bf16 *raw_values;        /* [SW_ROWS_RAW, SW_MAKE_VALUES] */
    float *log_decay, *step;    /* [2, 64] of a head and the next one, the first the sums from the
                                 * chunk's start on */
    sw_bf16 *q, *k;             /* tiles [64, DK] */
    sw_bf16 *t, *w;             /* tiles [64, 64]: the inverse times steps, and times decays too */
    sw_bf16 *v;                 /* tile [64, SW_MAKE_VALUES] */

    static const int x_stride = DK + 4;
    static const int raw_keys = SW_ROWS_RAW * DK, raw_at = sw_solve_shared::floats;
    static const int x_least = raw_at + SW_ROWS_RAW * SW_MAKE_VALUES / 2;
    static const int x_rows = SW_FORM_TOKENS * x_stride;
    static const int x_floats = x_rows > x_least ? x_rows : x_least;
    static const int keys = SW_FORM_TOKENS * (DK + 8), squares = SW_FORM_TOKENS * 72;
    static const int values = SW_FORM_TOKENS * (SW_MAKE_VALUES + 8);
    static const int bytes =
        4 * (x_floats + 4 * SW_FORM_TOKENS) + 2 * (2 * keys + 2 * squares + values);
    static const bool has_both = DK <= 128; /* raw rows of queries and keys at once */
    static_assert((has_both ? 2 : 1) * raw_keys <= 2 * squares + values, "raw rows have room");
    static_assert(raw_at % 4 == 0 && x_floats % 4 == 0, "16 bytes are copied at a time");

    __device__ explicit sw_make_shared(float *s_all)
    {
        x = l = s_all;
        raw_values = (sw_bf16 *)(s_all + raw_at);
        log_decay = s_all + x_floats;
        step = log_decay + 2 * SW_FORM_TOKENS;
        q = (sw_bf16 *)(step + 2 * SW_FORM_TOKENS);
        k = q + keys;
        t = k + keys;
        w = t + squares;
        v = w + squares;
    }
};

static __device__ sw_make_place sw_make_find(const sw_form_args &a)
{
    const int per_key = a.walk.n_heads / a.walk.n_groups;
    const int per_block = (per_key + a.n_splits - 1) / a.n_splits;
    const int split = (int)blockIdx.x % a.n_splits, item = (int)blockIdx.x / a.n_splits;
    const int chunk = item / a.walk.n_groups;
    sw_make_place p;

    p.chunk = chunk;
    p.group = item % a.walk.n_groups;
    p.head = p.group * per_key + split * per_block;
    p.head_end = min(p.head + per_block, (p.group + 1) * per_key);
    p.owns_keys = split == 0;
    p.rows.seq = a.seq + chunk / a.n_chunks;
    p.rows.token = a.token + chunk % a.n_chunks * SW_FORM_TOKENS;
    p.rows.n_there = min(SW_FORM_TOKENS, a.token + a.n_tokens - p.rows.token);
    p.rows.first = sw_first_of(a.walk.conv, p.rows.seq);
    return p;
}

/* ---- keys and queries ---- */

/* Queries (0) or keys (1). */
static __device__ __forceinline__ sw_rows_part sw_make_part(const sw_walk_args &w,
                                                            const sw_make_place &p, int which,
                                                            int width)
{
    return {&w.conv, &w.conv.part[which], (int64_t)p.group * w.d_k, w.d_k, width};
}

template <class RULE, int DK>
static __device__ void sw_make_tile(sw_bf16 *s_tile, const sw_make_shared<DK> &s,
                                    const sw_form_args &a, const sw_make_place &p, int which,
                                    float factor)
{
    const sw_bf16 *s_raw = s.t + (s.has_both ? which * s.raw_keys : 0);

    sw_rows_fill(s.x, s.x_stride, s_raw, sw_make_part(a.walk, p, which, DK), p.rows, 0,
                 SW_MAKE_THREADS);
    __syncthreads();
    sw_rows_round<DK>(s_tile, s.x, s.x_stride, !RULE::corrects, factor);
    __syncthreads();
}

template <class RULE, int DK>
static __device__ void sw_make_tiles(const sw_make_shared<DK> &s, const sw_form_args &a,
                                     const sw_make_place &p)
{
    const sw_walk_args &w = a.walk;
    const bool fetches = w.conv.n_taps == SW_ROWS_TAPS;

    if (fetches) sw_rows_fetch(s.t, sw_make_part(w, p, 0, DK), p.rows);
    if (fetches && s.has_both)
        sw_rows_fetch(s.t + s.raw_keys, sw_make_part(w, p, 1, DK), p.rows);
    sw_copy_wait<0>();
    __syncthreads();
    sw_make_tile<RULE, DK>(s.q, s, a, p, 0, RULE::corrects ? rsqrtf((float)w.d_k) : 1.0f);
    if (fetches && !s.has_both) {
        sw_rows_fetch(s.t, sw_make_part(w, p, 1, DK), p.rows);
        sw_copy_wait<0>();
        __syncthreads();
    }
    sw_make_tile<RULE, DK>(s.k, s, a, p, 1, 1.0f);
}

/* Q and K^T as operands, for all heads of the key's. */
template <int DK>
static __device__ void sw_make_keys(const sw_make_shared<DK> &s, const sw_form_args &a,
                                    const sw_make_place &p)
{
    char *keys = a.keys + (p.chunk * a.walk.n_groups + p.group) * sw_form_keys_bytes(DK);
    uint4 *q = (uint4 *)keys, *k = q + sw_form_operand_bytes(SW_FORM_TOKENS, DK) / 16;
    const int lane = (int)threadIdx.x % 32, n_tiles = SW_FORM_TOKENS / 8 * (DK / 32);

    for (int i = (int)threadIdx.x / 32; i < n_tiles; i += SW_MAKE_THREADS / 32) {
        q[i * 32 + lane] =
            sw_tile_second(s.q, sw_tile_stride(DK), i / (DK / 32), i % (DK / 32));
        k[i * 32 + lane] = sw_tile_second_turned(s.k, sw_tile_stride(DK), i / 2, i % 2);
    }
}

/* A warp's 16 tokens of a times 32 of b. */
template <int DK>
static __device__ __forceinline__ void sw_make_products(float (&sum)[4][4], const sw_bf16 *s_a,
                                                        const sw_bf16 *s_b, int m, int half)
{
#pragma unroll
    for (int k = 0; k < DK / 32; k++) {
        const uint4 left = sw_tile_first(s_a, sw_tile_stride(DK), m, 2 * k);
        const uint4 right = sw_tile_first(s_a, sw_tile_stride(DK), m, 2 * k + 1);

#pragma unroll
        for (int n = 0; n < 4; n++) {
            const uint4 b = sw_tile_second(s_b, sw_tile_stride(DK), 4 * half + n, k);

            sw_mma_add(sum[n], left, b.x, b.y);
            sw_mma_add(sum[n], right, b.z, b.w);
        }
    }
}

/* ---- a head ---- */

template <class RULE, int DK>
static __device__ char *sw_make_head_at(const sw_form_args &a, const sw_make_place &p, int head)
{
    return a.heads + (p.chunk * a.walk.n_heads + head) * sw_form_head_bytes(DK, RULE::corrects);
}

/* Steps, sums of decays, and what the second kernel needs of them, by a warp; of a head that is
 * there. */
template <class RULE, int DK>
static __device__ void sw_make_gates(const sw_make_shared<DK> &s, const sw_form_args &a,
                                     const sw_make_place &p, int head)
{
    const int lane = (int)threadIdx.x % 32, at = (head - p.head) % 2 * SW_FORM_TOKENS;
    float step[2] = {}, sum[2] = {}, last;

    if (head >= p.head_end) return;
    float *gates = (float *)(sw_make_head_at<RULE, DK>(a, p, head) +
                             sw_form_operand_bytes(SW_FORM_TOKENS, SW_FORM_TOKENS));

#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int t = 32 * i + lane;
        const int64_t row = p.rows.seq * a.walk.conv.seq_len + p.rows.token + t;

        if (t < p.rows.n_there) RULE::gates(a.walk, row, head, step[i], sum[i]);
        sum[i] = fmaxf(sum[i], SW_LOG_KEEP_MIN);
#pragma unroll
        for (int d = 1; d < 32; d *= 2) {
            const float before = __shfl_up_sync(~0u, sum[i], d);

            if (lane >= d) sum[i] += before;
        }
    }
    sum[1] += __shfl_sync(~0u, sum[0], 31);
    last = __shfl_sync(~0u, sum[1], 31);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int t = 32 * i + lane;

        s.step[at + t] = step[i];
        s.log_decay[at + t] = sum[i];
        gates[t] = expf(sum[i]);
        gates[SW_FORM_TOKENS + t] = expf(last - sum[i]) * (RULE::corrects ? 1.0f : step[i]);
    }
    if (lane == 0) gates[SW_FORM_CARRY] = expf(last);
}

/* L to shared memory and P to its place, of a warp's 16 tokens and 32 before them. */
template <class RULE>
static __device__ void sw_make_squares(const sw_solve_shared &s, const float *s_step,
                                       const float *s_log_decay, char *to,
                                       const float (&kk)[4][4], const float (&qk)[4][4], int m,
                                       int half)
{
    const int row = (int)threadIdx.x % 32 / 4, column = (int)threadIdx.x % 4 * 2;
    float sums[4][4];

#pragma unroll
    for (int n = 0; n < 4; n++) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int t = 16 * m + row + e / 2 * 8, i = 32 * half + 8 * n + column + e % 2;
            const float keep = i <= t ? __expf(s_log_decay[t] - s_log_decay[i]) : 0.0f;

            sums[n][e] = keep * qk[n][e] * (RULE::corrects ? 1.0f : s_step[i]);
            if (RULE::corrects && i < t) s.put(t, i, s_step[t] * keep * kk[n][e]);
        }
    }
    sw_sums_to_operand(to, SW_FORM_TOKENS, m, half, sums);
}

/* The inverse, but for what is below its halves, by two warps; a mixer that corrects nothing has
 * ones on a diagonal. The second of the warps then has time for the next head's gates. */
template <class RULE, int DK>
static __device__ void sw_make_inverse(const sw_make_shared<DK> &s, const sw_solve_shared &solve,
                                       const sw_form_args &a, const sw_make_place &p, int head)
{
    const int j = (int)threadIdx.x, stride = sw_tile_stride(SW_FORM_TOKENS);
    const int at = (head - p.head) % 2 * SW_FORM_TOKENS + j;

    if (j >= SW_FORM_TOKENS) return;
    if (RULE::corrects)
        sw_solve_column(solve, j, s.step[at], expf(s.log_decay[at]));
    else if (head == p.head)
        for (int t = 0; t < SW_FORM_TOKENS; t++) s.t[t * stride + j] = sw_round16(t == j);
    if (j >= 32) sw_make_gates<RULE, DK>(s, a, p, head + 1);
}

/* U of a warp's 16 columns. */
template <int DK>
static __device__ void sw_make_u(const sw_make_shared<DK> &s, char *to)
{
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    uint4 values[4];

#pragma unroll
    for (int k = 0; k < 4; k++)
        values[k] = sw_tile_first_turned(s.v, sw_tile_stride(SW_MAKE_VALUES), warp, k);
#pragma unroll
    for (int n = 0; n < SW_FORM_TOKENS / 8; n++) {
        float sum[4] = {};

#pragma unroll
        for (int k = 0; k <= n / 4; k++) {
            const uint4 b = sw_tile_second(s.t, sw_tile_stride(SW_FORM_TOKENS), n, k);

            sw_mma_add(sum, values[2 * k], b.x, b.y);
            sw_mma_add(sum, values[2 * k + 1], b.z, b.w);
        }
        ((float4 *)to)[n * 32 + lane] = make_float4(sum[0], sum[1], sum[2], sum[3]);
    }
}

/* -W of a warp's 16 tokens and half of the keys' channels. */
template <int DK>
static __device__ void sw_make_w(const sw_make_shared<DK> &s, char *to, int m, int half)
{
    const uint32_t minus = 0x80008000u;
    uint4 rows[4];

#pragma unroll
    for (int k = 0; k < 4; k++) {
        rows[k] = sw_tile_first(s.w, sw_tile_stride(SW_FORM_TOKENS), m, k);
        rows[k] = make_uint4(rows[k].x ^ minus, rows[k].y ^ minus, rows[k].z ^ minus,
                             rows[k].w ^ minus);
    }
#pragma unroll
    for (int j = 0; j < DK / 64; j++) {
        const int at = half * (DK / 64) + j;
        float sum[4][4] = {};

#pragma unroll
        for (int k = 0; k < 2; k++) {
            if (k > m / 2) continue; /* nothing before its time */
#pragma unroll
            for (int n = 0; n < 4; n++) {
                const uint4 b = sw_tile_second_turned(s.k, sw_tile_stride(DK), 4 * at + n, k);

                sw_mma_add(sum[n], rows[2 * k], b.x, b.y);
                sw_mma_add(sum[n], rows[2 * k + 1], b.z, b.w);
            }
        }
        sw_sums_to_operand(to, DK, m, at, sum);
    }
}

/* The values' columns from `column` on, of a head. */
static __device__ __forceinline__ sw_rows_part sw_make_values(const sw_walk_args &w, int head,
                                                              int column)
{
    return {&w.conv, &w.conv.part[2], (int64_t)head * w.d_v + column,
            min(SW_MAKE_VALUES, w.d_v - column), SW_MAKE_VALUES};
}

template <int DK>
static __device__ __forceinline__ void sw_make_fetch(const sw_make_shared<DK> &s,
                                                     const sw_form_args &a, const sw_make_place &p,
                                                     int head, int column)
{
    if (head < p.head_end && a.walk.conv.n_taps == SW_ROWS_TAPS)
        sw_rows_fetch(s.raw_values, sw_make_values(a.walk, head, column), p.rows);
}

/* Values' columns from `column` on as a tile, by the warps that do not invert. */
template <int DK>
static __device__ __forceinline__ void sw_make_v(const sw_make_shared<DK> &s,
                                                 const sw_form_args &a, const sw_make_place &p,
                                                 int head, int column)
{
    sw_rows_fill(s.v, sw_tile_stride(SW_MAKE_VALUES), s.raw_values,
                 sw_make_values(a.walk, head, column), p.rows, SW_FORM_TOKENS,
                 SW_MAKE_THREADS - SW_FORM_TOKENS);
}

/* U of a head in runs of columns, of which the first are there as a tile; raw values of the next
 * begin to come, after the last those of the next head. */
template <int DK>
static __device__ void sw_make_columns(const sw_make_shared<DK> &s, const sw_form_args &a,
                                       const sw_make_place &p, int head)
{
    for (int column = 0; column < a.walk.d_v; column += SW_MAKE_VALUES) {
        const int tile = column / SW_FORM_COLUMNS + (int)threadIdx.x / 32;
        const bool is_last = column + SW_MAKE_VALUES >= a.walk.d_v;

        sw_make_fetch<DK>(s, a, p, is_last ? head + 1 : head,
                          is_last ? 0 : column + SW_MAKE_VALUES);
        if (tile < a.n_tiles) sw_make_u<DK>(s, sw_form_values_at(a, p.chunk, head, tile));
        if (is_last) return;
        sw_copy_wait<0>();
        __syncthreads();
        sw_make_v<DK>(s, a, p, head, column + SW_MAKE_VALUES);
        __syncthreads();
    }
}

template <class RULE, int DK>
static __device__ void sw_make_head(const sw_make_shared<DK> &s, const sw_form_args &a,
                                    const sw_make_place &p, int head, const float (&kk)[4][4],
                                    const float (&qk)[4][4])
{
    const int warp = (int)threadIdx.x / 32, m = warp / 2, half = warp % 2;
    const int at = (head - p.head) % 2 * SW_FORM_TOKENS;
    const sw_solve_shared solve(s.l, s.t, s.w);
    char *to = sw_make_head_at<RULE, DK>(a, p, head);

    sw_make_squares<RULE>(solve, s.step + at, s.log_decay + at, to, kk, qk, m, half);
    sw_copy_wait<0>();
    __syncthreads();
    sw_make_inverse<RULE, DK>(s, solve, a, p, head); /* while other warps make values */
    sw_make_v<DK>(s, a, p, head, 0);
    __syncthreads();
    if (RULE::corrects) {
        sw_solve_below(solve, s.step + at, s.log_decay + at);
        __syncthreads();
    }
    sw_make_columns<DK>(s, a, p, head);
    if (RULE::corrects)
        sw_make_w<DK>(s,
                      to + sw_form_operand_bytes(SW_FORM_TOKENS, SW_FORM_TOKENS) +
                          4 * SW_FORM_GATES,
                      m, half);
    __syncthreads();
}

/* grid (sequences, chunks, heads of keys, splits: all in x) */
template <class RULE, int DK>
static __global__ void __launch_bounds__(SW_MAKE_THREADS, DK > 128 ? 1 : 2)
    swk_chunk_make(sw_form_args a)
{
    extern __shared__ float4 s_all[];
    const int warp = (int)threadIdx.x / 32;
    float kk[4][4] = {}, qk[4][4] = {};

    sw_begin();
    const sw_make_place p = sw_make_find(a);
    const sw_make_shared<DK> s((float *)s_all);

    sw_make_tiles<RULE, DK>(s, a, p);
    sw_make_fetch<DK>(s, a, p, p.head, 0);
    if (warp == SW_MAKE_THREADS / 32 - 1) sw_make_gates<RULE, DK>(s, a, p, p.head);
    if (p.owns_keys) sw_make_keys<DK>(s, a, p);
    if (warp % 2 <= warp / 4) { /* else all of these tokens come later */
        sw_make_products<DK>(qk, s.q, s.k, warp / 2, warp % 2);
        if (RULE::corrects) sw_make_products<DK>(kk, s.k, s.k, warp / 2, warp % 2);
    }
    __syncthreads();
    for (int head = p.head; head < p.head_end; head++)
        sw_make_head<RULE, DK>(s, a, p, head, kk, qk);
}

#endif
