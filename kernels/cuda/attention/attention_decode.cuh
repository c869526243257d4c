/* attention_decode.cuh - attention of one query a sequence over its cache, on Hopper.
 *
 * As engine_decode.cu has it, whose plan, heads and sums these are; but keys and values come
 * by the copy engine, in blocks of 16 keys x 128 bytes. A warp has a ring of its own in shared
 * memory: half a tile a slot, the keys of one, then its values. It asks for as many halves as the
 * ring holds before the heads are prepared, and for another one whenever it has read one. So the
 * 16 warps of a multiprocessor keep 192 KB on their way, and nobody waits for anybody. Where the
 * caches are known to be there, it asks while the kernel ahead still makes the heads.
 *
 * Where the parts of a group's keys are a cluster, it adds their sums up from shared memory to
 * shared memory; others go through scratch.
 *
 * The new key and value are not in the cache yet, or on their way there: its warp puts them into
 * the tile, and zeros in the place of values behind them.
 */
#ifndef SW_KERNELS_CUDA_ATTENTION_ATTENTION_DECODE_CUH
#define SW_KERNELS_CUDA_ATTENTION_ATTENTION_DECODE_CUH

#define N_THREADS 512 /* at most */
#define N_HEADS_MAX 8
#include "kernels/cuda/attention/decode_cta.cuh"
#include "kernels/cuda/attention/decode_tile.cuh"
#include "kernels/cuda/ptx/ptx_cluster.cuh"
#include "kernels/cuda/ptx/ptx_shared.cuh"
#include "kernels/cuda/ptx/ptx_warp.cuh"

#define RING_BYTES (192 * 1024) /* of a multiprocessor */

typedef struct decode_maps {
    CUtensorMap k, v;
} decode_maps;

/* Half a tile of heads of D dims. */
template <typename T, int D> static constexpr int half_bytes(void)
{
    return (D * (int)sizeof(T) + COLUMN_BYTES - 1) / COLUMN_BYTES * BLOCK_BYTES;
}

template <typename T, int D, int WARPS> struct copied_state {
    static constexpr int dims = D, warps = WARPS;
    static constexpr int half = half_bytes<T, D>(), slots = RING_BYTES / warps_of(D) / half;
    uint8_t ring[WARPS][slots][half]; /* at the end the warps' sums */
    uint4 q[D / 16][32];              /* operands A of a step, by lane */
    uint8_t fresh[2][2 * D];          /* the new key and value, as they lie in the cache */
    uint64_t bars[WARPS][slots];
    float factor[N_HEADS_MAX];        /* what scores are multiplied by */
    float head[WARPS][D];             /* a warp's own, while heads are prepared */
    float top[WARPS][N_HEADS_MAX], sum[WARPS][N_HEADS_MAX];
    bool is_last;

    static constexpr int sums_bytes = N_HEADS_MAX * (D + 4) * 4;
    static_assert(slots * half >= 2 * sums_bytes, "sums lie where tiles were");
    /* Behind the first warp's sums, those of this CTA. */
    __device__ float *of_cta(void) { return (float *)((uint8_t *)ring + sums_bytes); }
    __device__ float (*out_of(int warp))[D + 4] { return (float (*)[D + 4])ring[warp]; }
    __device__ const float (*out_of(int warp) const)[D + 4]
    {
        return (const float (*)[D + 4])ring[warp];
    }
};

/* What a warp has asked for and read of its ring, in halves of tiles. */
template <typename T, int D, int WARPS> struct ring_of_warp {
    typedef copied_state<T, D, WARPS> state;
    uint32_t tiles, bars;      /* where they begin */
    int n_halves, asked, read; /* in all, so far */
    int asked_slot, slot;      /* of the next of each */
    uint32_t parity;
    int first_key, seq, kv_head;
    uint64_t policy;

    __device__ __forceinline__ void begin(state &s)
    {
        const int warp = threadIdx.x / 32;

        tiles = sw_smem_addr(s.ring[warp]);
        bars = sw_smem_addr(s.bars[warp]);
        asked = read = asked_slot = slot = 0;
        parity = 0;
        if (threadIdx.x % 32 == 0) {
            for (int i = 0; i < state::slots; i++) sw_mbar_init(bars + 8 * i, 1);
            sw_mbar_init_fence();
        }
        __syncwarp();
        policy = sw_policy_evict_first();
    }
    /* Tiles `warp`, `warp + WARPS`, ... of the keys of a job. */
    __device__ __forceinline__ void of(const attn_job &j)
    {
        const int warp = threadIdx.x / 32;
        const int n_tiles = (int)(j.end - j.begin + TILE_KEYS - 1) / TILE_KEYS;

        n_halves = warp < n_tiles ? 2 * ((n_tiles - warp + WARPS - 1) / WARPS) : 0;
        first_key = (int)j.begin + warp * TILE_KEYS;
        seq = j.seq;
        kv_head = j.kv_head;
    }
    __device__ __forceinline__ void ask(const decode_maps &maps)
    {
        if (asked >= n_halves) return;
        const uint32_t to = tiles + asked_slot * state::half, bar = bars + 8 * asked_slot;
        const CUtensorMap *map = asked % 2 ? &maps.v : &maps.k;
        const int key = first_key + asked / 2 * WARPS * TILE_KEYS;

        sw_warp_expect(bar, state::half);
#pragma unroll
        for (int i = 0; i < state::half / BLOCK_BYTES; i++) {
            const int at[4] = {i * COLUMN_BYTES / (int)sizeof(T), kv_head, key, seq};

            sw_warp_load_4d(to + i * BLOCK_BYTES, map, at, bar, policy);
        }
        asked++;
        asked_slot = asked_slot + 1 == state::slots ? 0 : asked_slot + 1;
    }
    /* The next half when it is there; its address. */
    __device__ __forceinline__ uint32_t await(void)
    {
        sw_mbar_wait(bars + 8 * slot, parity);
        return tiles + slot * state::half;
    }
    /* Its slot is free. */
    __device__ __forceinline__ void pass(const decode_maps &maps)
    {
        __syncwarp();
        read++;
        if (++slot == state::slots) {
            slot = 0;
            parity ^= 1;
        }
        ask(maps);
    }
};

/* Key or value `row` of a tile from s_fresh (NULL: zeros), and zeros in those of n_rows behind. */
template <int D, typename T>
static __device__ __noinline__ void put_fresh(uint8_t *tile, const uint8_t *s_fresh, int row,
                                              int n_rows, int n_bytes)
{
    constexpr int chunks = D * (int)sizeof(T) / 16;

#pragma unroll 1
    for (int i = (int)threadIdx.x % 32; i < n_rows * chunks; i += 32) {
        const int key = row + i / chunks, chunk = i % chunks;
        uint4 v = make_uint4(0, 0, 0, 0);

        if (s_fresh && key == row && chunk * 16 < n_bytes)
            v = *(const uint4 *)(s_fresh + chunk * 16);
        *(uint4 *)(tile + chunk_at(key, chunk)) = v;
    }
    __syncwarp();
}

/* Products of a tile's keys and the queries, times LOG2_E; of keys that are not there -INFINITY. */
template <typename T, typename S>
static __device__ __forceinline__ void score_tile(float (&weight)[4], const S &s, uint32_t tile,
                                                  const sw_attn_args &a, int n_keys)
{
    typedef in_tile<T> I;
    constexpr int steps = 4 * I::chunk_dims / 16; /* of four chunks */
    const int lane = threadIdx.x % 32;
    const float factor = elements<T>::scales_queries ? s.factor[lane / 4] * a.scale : a.scale;
    float sum[2][4] = {};

#pragma unroll
    for (int at = 0; at < S::dims / 16; at += steps) {
        uint32_t m[2][4];

#pragma unroll
        for (int t = 0; t < 2; t++) {
            const uint4 v = sw_load_matrices(
                tile + chunk_at(8 * t + lane % 8, at * 16 / I::chunk_dims + lane / 8));

            m[t][0] = v.x, m[t][1] = v.y, m[t][2] = v.z, m[t][3] = v.w;
        }
#pragma unroll
        for (int step = 0; step < steps; step++) {
            const uint4 q = s.q[at + step][lane];
            const uint32_t operand[4] = {q.x, q.y, q.z, q.w};

#pragma unroll
            for (int t = 0; t < 2; t++) {
                uint32_t b[2];

                I::keys(b, m[t], step);
                elements<T>::multiply(sum[t], operand, b);
            }
        }
    }
    weigh(weight, sum, factor, a, n_keys);
}

template <typename T, int D>
static __device__ __forceinline__ void add_tile(warp_sums<D> &sums, float (&weight)[4],
                                                uint32_t tile)
{
    typedef elements<T> E;
    typedef in_tile<T> I;
    const int lane = threadIdx.x % 32;
    const uint32_t rounded[2] = {E::round(weight[0], weight[1]), E::round(weight[2], weight[3])};
    const uint32_t rest[2] = {E::round(weight[0], weight[1]), E::round(weight[2], weight[3])};

#pragma unroll
    for (int at = 0; at < D / 16; at += I::value_operands) {
        const uint4 v = sw_load_transposed(
            tile + chunk_at(lane % 8 + I::value_key(lane / 8),
                            at * 16 / I::chunk_dims + I::value_chunk(lane / 8)));
        const uint32_t m[4] = {v.x, v.y, v.z, v.w};

#pragma unroll
        for (int i = 0; i < I::value_operands; i++) {
            uint32_t operand[4];

            I::values(operand, m, i);
            E::multiply(sums.out[at + i], operand, rounded);
            E::multiply(sums.out[at + i], operand, rest);
        }
    }
}

/* The tiles of this warp, of which the first were asked for before. */
template <typename T, int D, int WARPS>
static __device__ __forceinline__ void walk_tiles(warp_sums<D> &sums,
                                                  copied_state<T, D, WARPS> &s,
                                                  ring_of_warp<T, D, WARPS> &ring,
                                                  const decode_maps &maps, const sw_attn_args &a,
                                                  const attn_job &j, bool remembers)
{
    const int n_keys = (int)(j.end - j.begin), n_cached = n_keys - remembers;
    int key = (int)threadIdx.x / 32 * TILE_KEYS;

#pragma unroll 1
    for (; key < n_keys; key += WARPS * TILE_KEYS) {
        const int row = n_cached - key; /* of the tile: the first that is not in the cache */
        float weight[4];
        uint32_t tile = ring.await();

        if (remembers && row < TILE_KEYS)
            put_fresh<D, T>(s.ring[threadIdx.x / 32][ring.slot], s.fresh[0], row, 1,
                            a.head_dim * (int)sizeof(T));
        score_tile<T>(weight, s, tile, a, n_keys - key);
        ring.pass(maps);
        weigh(weight, sums);
        tile = ring.await();
        if (row < TILE_KEYS)
            put_fresh<D, T>(s.ring[threadIdx.x / 32][ring.slot], remembers ? s.fresh[1] : NULL,
                            row, TILE_KEYS - row, a.v_head_dim * (int)sizeof(T));
        add_tile<T>(sums, weight, tile);
        ring.pass(maps);
    }
}

/* A warp's sums where its tiles were; all threads meet. */
template <typename T, int D, int WARPS>
static __device__ void park_tiles(copied_state<T, D, WARPS> &s, warp_sums<D> &sums)
{
    typedef in_tile<T> I;
    const int warp = threadIdx.x / 32, row = threadIdx.x % 32 / 4, column = threadIdx.x % 4;
    float(*out)[D + 4] = s.out_of(warp);

    sums.sum += __shfl_xor_sync(~0u, sums.sum, 1);
    sums.sum += __shfl_xor_sync(~0u, sums.sum, 2);
    if (column == 0) {
        s.top[warp][row] = sums.top;
        s.sum[warp][row] = sums.sum;
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < D / 16; i++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            out[2 * column + e % 2][16 * i + row * I::row_dims + e / 2 * I::next_dim] =
                sums.out[i][e];
    __syncthreads();
}

/* Zeros in the place of heads that are not there: of what the memory held each tile could bring a
 * new maximum, for which sums are scaled. */
template <typename S> static __device__ void clear_absent(S &s, const attn_job &j)
{
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < 2 * S::dims; i += 32 * S::warps)
        if (i % 32 / 4 >= j.n_heads) s.q[i / 32][i % 32] = make_uint4(0, 0, 0, 0);
    if ((int)threadIdx.x >= j.n_heads && threadIdx.x < N_HEADS_MAX) s.factor[threadIdx.x] = 0;
}

#define NEAR_MAX 8 /* CTAs of a cluster on any Hopper */

/* Two dims of head h as all CTAs of a cluster have them, of which MOST at most have keys, in the
 * order of the keys; sums begin at `from` of this CTA's shared memory. */
template <int MOST>
static __device__ float2 add_parts(const sw_attn_args &a, const attn_job &j, uint32_t from, int h,
                                   int d)
{
    const uint32_t row = from + h * (a.v_head_dim + 2) * 4;
    const float sink = a.sinks ? a.sinks[j.head0 + h] * LOG2_E : -INFINITY;
    float2 values[MOST], tops[MOST], value = make_float2(0, 0);
    float top = sink, sum;

#pragma unroll
    for (int p = 0; p < MOST; p++) {
        const uint32_t there = sw_cluster_map(row, min(p, j.n_parts - 1));
        const uint2 two = sw_cluster_load2(there + d * 4);
        const uint2 its = sw_cluster_load2(there + a.v_head_dim * 4);

        values[p] = make_float2(__uint_as_float(two.x), __uint_as_float(two.y));
        tops[p] = make_float2(p < j.n_parts ? __uint_as_float(its.x) : -INFINITY,
                              __uint_as_float(its.y));
    }
#pragma unroll
    for (int p = 0; p < MOST; p++) top = fmaxf(top, tops[p].x);
    sum = a.sinks ? exp2f(sink - top) : 0;
#pragma unroll
    for (int p = 0; p < MOST; p++) {
        const float weight = exp2f(tops[p].x - top);

        sum += weight * tops[p].y;
        value.x += weight * values[p].x;
        value.y += weight * values[p].y;
    }
    return make_float2(value.x / sum * a.kv.v_scale, value.y / sum * a.kv.v_scale);
}

/* As `finish`, where the parts of a group are a cluster: sums stay in shared memory, and the CTAs
 * take pairs of dims in turn. */
template <typename S>
static __device__ void finish_near(S &s, sw_bf16 *out, const sw_attn_args &a, const attn_job &j)
{
    store_warps(s.of_cta(), out, s, a, j);
    if (j.n_parts == 1) return;
    __syncwarp();
    sw_cluster_sync();
#pragma unroll 1
    for (int i = (int)threadIdx.x * j.n_parts + j.split; 2 * i < j.n_heads * a.v_head_dim;
         i += 32 * S::warps * j.n_parts) {
        const int h = 2 * i / a.v_head_dim, d = 2 * i % a.v_head_dim;
        const uint32_t from = sw_smem_addr(s.of_cta());
        const float2 two = j.n_parts <= 2 ? add_parts<2>(a, j, from, h, d)
                                          : add_parts<NEAR_MAX>(a, j, from, h, d);

        *(uint32_t *)(out + 2 * i) = sw_pack2(two.x, two.y);
    }
    __syncwarp();
    sw_cluster_part();
}

/* grid (splits, kv heads x tiles of heads, sequences), clusters of all splits or none */
template <typename T, int D, int WARPS, bool CHUNKED>
static __global__ void __launch_bounds__(32 * WARPS, warps_of(D) / WARPS)
    swk_attention_decode_sm90(const __grid_constant__ decode_maps maps, sw_attn_args a,
                              sw_heads_args heads, int splits, int64_t counters)
{
    extern __shared__ __align__(1024) char s_bytes[];
    copied_state<T, D, WARPS> &s = *(copied_state<T, D, WARPS> *)s_bytes;
    const int item = (int)(blockIdx.z * gridDim.y + blockIdx.y), split = (int)blockIdx.x;
    ring_of_warp<T, D, WARPS> ring;

    if (threadIdx.x == 0) {
        sw_tensor_prefetch(&maps.k);
        sw_tensor_prefetch(&maps.v);
    }
    ring.begin(s);
    sw_let_next();
    if (!a.cache_is_there) sw_await_ahead();
    attn_job j = heads_of_job(a, split, item);

    cut_keys<CHUNKED>(j, a, splits, PART_KEYS);
    if (split >= j.n_parts) return;
    const bool remembers = heads.k.d && j.end == j.there;
    warp_sums<D> sums = {-INFINITY};
    held_heads<D, WARPS> held;
    sw_turns turns;

    ring.of(j);
#pragma unroll 1
    for (int i = 0; i < copied_state<T, D, WARPS>::slots; i++) ring.ask(maps);
    sw_hold_turns(turns, heads, j.there - 1);
    clear_absent(s, j);
    sw_await_ahead();
    held.load(a, heads, j);
    prepare<T, in_tile<T>>(s, a, heads, j, held, turns, remembers);
    __syncthreads();
    walk_tiles(sums, s, ring, maps, a, j, remembers);
    park_tiles(s, sums);
    sw_bf16 *out = a.out.d + j.seq * a.out.stride + (int64_t)j.head0 * a.v_head_dim;

    if (sw_cluster_size() > 1) finish_near(s, out, a, j);
    else
        finish(s, (float *)((char *)a.scratch + counters) +
                      (int64_t)item * splits * partial_floats(&a),
               (unsigned *)a.scratch + item, out, a, j);
}

#endif
