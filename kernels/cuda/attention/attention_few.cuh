/* attention_few.cuh - attention of one query a sequence over short caches, where there are few
 * groups of heads: what a single sequence takes a step, on Hopper.
 *
 * As attention_decode.cuh has it, for heads of D = 64 or 128 in BF16 and nothing unusual. What such
 * a step waits for is not keys but what stands between two products: so this is small, in code and
 * in what a CTA takes of a multiprocessor. CTAs of four warps find room beside those of the product
 * ahead, ask for their keys and wait while it runs, and the product behind fills its rings beside
 * them.
 *
 *   one cluster    the heads of a sequence that share keys: 8 CTAs, 32 warps
 *   one warp       tiles of 16 keys, w, w + 32, ...; neighbours go to different CTAs
 *   D / 16 lanes   prepare a head: each has 8 dims and those D / 2 further on, which turn together
 *
 * Each warp sends what it found for head h to CTA h, whose mbarrier counts the bytes; that CTA adds
 * them up in the order of the warps.
 */
#ifndef SW_KERNELS_CUDA_ATTENTION_ATTENTION_FEW_CUH
#define SW_KERNELS_CUDA_ATTENTION_ATTENTION_FEW_CUH

#include "kernels/cuda/attention/decode_tile.cuh"
#include "kernels/cuda/ops/engine_heads.cuh"
#include "kernels/cuda/ptx/ptx_cluster.cuh"
#include "kernels/cuda/ptx/ptx_shared.cuh"
#include "kernels/cuda/ptx/ptx_warp.cuh"

#define FEW_CTAS 8
#define FEW_WARPS 4
#define FEW_PARTS (FEW_CTAS * FEW_WARPS) /* one lane each when they are added up */
#define FEW_HEADS 8
#define FEW_SLOTS 2 /* at most */
#define LOG2_E 1.4426950408889634f

struct few_maps {
    CUtensorMap k, v;
};

struct few_args {
    sw_bf16_rows q, out;
    sw_bf16_rows k, v;          /* the newest, as their products left them; NULL: in the cache */
    sw_bf16 *k_cache, *v_cache; /* where these go */
    const float *q_norm, *k_norm, *cos, *sin, *sinks;
    const int32_t *first;
    int64_t capacity;
    int n_heads, n_kv_heads; /* heads of a group; groups of a sequence */
    int window, n_slots;
    float scale, eps;        /* scale: for powers of two */
    bool prepares_queries, cache_is_there;
};

/* Behind the rings. */
template <int D> struct few_state {
    static constexpr int dims = D, steps = D / 16;
    static constexpr int tile_bytes = TILE_KEYS * D * 4; /* keys, then values */
    float sums[FEW_PARTS][D]; /* of this CTA's head, dims as few_finish reads them */
    float2 tops[FEW_PARTS];   /* the maximum and the sum of weights */
    uint4 q[D / 16][33];      /* operands A of a step, by lane */
    uint4 fresh[2][D / 8];    /* the new key and value */
    uint64_t bars[FEW_WARPS][FEW_SLOTS], done;
};

/* What a warp works on. */
struct few_job {
    int seq, kv_head, there, oldest, n_tiles;
    bool remembers; /* the newest key is not in the cache */
};

static __device__ __forceinline__ few_job few_job_of(const few_args &a)
{
    few_job j;

    j.seq = (int)blockIdx.z;
    j.kv_head = (int)blockIdx.y;
    j.there = (a.first ? __ldcg(a.first + j.seq) : 0) + 1;
    j.oldest = a.window ? max(0, j.there - a.window) : 0;
    j.n_tiles = (j.there - j.oldest + TILE_KEYS - 1) / TILE_KEYS;
    j.remembers = a.k.d;
    return j;
}

/* Which of the cluster's warps this is; a tile's number, and those FEW_PARTS further on. */
static __device__ __forceinline__ int few_part(void)
{
    return (int)(threadIdx.x / 32 * FEW_CTAS + blockIdx.x);
}

/* Keys and values of a tile into a slot; a warp. */
template <int D>
static __device__ __forceinline__ void few_ask(const few_maps &maps, const few_job &j, int tile,
                                               uint32_t to, uint32_t bar)
{
    const uint64_t policy = sw_policy_evict_first();

    sw_warp_expect(bar, few_state<D>::tile_bytes);
#pragma unroll
    for (int i = 0; i < 2 * D / 64; i++) {
        const int at[4] = {i % (D / 64) * 64, j.kv_head, j.oldest + tile * TILE_KEYS, j.seq};

        sw_warp_load_4d(to + i * BLOCK_BYTES, i < D / 64 ? &maps.k : &maps.v, at, bar, policy);
    }
}

/* ---- heads ---- */

/* What D / 16 lanes prepare: queries, then the new key and value. A lane has dims 8i to 8i + 7 and
 * those D / 2 further on. */
template <int D> struct few_item {
    static constexpr int lanes = D / 16;
    int at, lane; /* of the group; of the item's */
    bool is_query, is_there, is_turned;
    const sw_bf16 *from;
    sw_eight c, s, low, high; /* by how much dims turn; the norm's weights */
};

template <int D>
static __device__ __forceinline__ void few_hold(few_item<D> &item, const few_args &a,
                                                const few_job &j)
{
    const int i = item.at = (int)threadIdx.x / few_item<D>::lanes;
    const bool is_value = i > a.n_heads;
    const sw_bf16_rows &rows = i < a.n_heads ? a.q : is_value ? a.v : a.k;
    const float *norm = i < a.n_heads ? a.q_norm : a.k_norm;

    item.lane = (int)threadIdx.x % few_item<D>::lanes;
    item.is_query = i < a.n_heads;
    item.is_there = i < a.n_heads + 2 * j.remembers;
    item.is_turned = item.is_query ? a.prepares_queries : !is_value;
    item.from = rows.d + j.seq * rows.stride +
                (item.is_query ? j.kv_head * a.n_heads + i : j.kv_head) * D + 8 * item.lane;
#pragma unroll
    for (int e = 0; e < 8; e++) item.c.v[e] = item.low.v[e] = item.high.v[e] = 1, item.s.v[e] = 0;
    if (item.is_turned && a.cos) {
        const int64_t at = (int64_t)(j.there - 1) * (D / 2) + 8 * item.lane;

        item.c = sw_load_floats(a.cos + at);
        item.s = sw_load_floats(a.sin + at);
    }
    if (item.is_turned && norm) {
        item.low = sw_load_floats(norm + 8 * item.lane);
        item.high = sw_load_floats(norm + D / 2 + 8 * item.lane);
    }
}

/* Norm and turn. */
template <int D>
static __device__ __forceinline__ void few_turn(sw_eight &x, sw_eight &y, const few_item<D> &item,
                                                const few_args &a)
{
    if (a.q_norm || a.k_norm) {
        const bool has_norm = item.is_turned && (item.is_query ? a.q_norm : a.k_norm);
        float sum = 0;

#pragma unroll
        for (int e = 0; e < 8; e++) sum += x.v[e] * x.v[e] + y.v[e] * y.v[e];
#pragma unroll
        for (int step = few_item<D>::lanes / 2; step; step /= 2)
            sum += __shfl_xor_sync(~0u, sum, step);
        const float scale = has_norm ? rsqrtf(sum / D + a.eps) : 1.0f;

#pragma unroll
        for (int e = 0; e < 8; e++) {
            x.v[e] *= scale * item.low.v[e];
            y.v[e] *= scale * item.high.v[e];
        }
    }
#pragma unroll
    for (int e = 0; e < 8; e++) {
        const float one = x.v[e], two = y.v[e];

        x.v[e] = one * item.c.v[e] - two * item.s.v[e];
        y.v[e] = two * item.c.v[e] + one * item.s.v[e];
    }
}

/* Eight dims of a query, half of a step: rounded, and what that left. */
template <int D>
static __device__ __forceinline__ void few_lay_out(few_state<D> &s, const few_item<D> &item,
                                                   sw_eight &x, int step)
{
    uint2 *to = (uint2 *)&s.q[step + item.lane / 2][item.at * 4] + item.lane % 2;

#pragma unroll
    for (int c = 0; c < 4; c++) {
        const uint32_t rounded = elements<sw_bf16>::round(x.v[2 * c], x.v[2 * c + 1]);

        to[2 * c] = make_uint2(rounded, sw_pack2(x.v[2 * c], x.v[2 * c + 1]));
    }
}

/* Queries as operands, the new key and value as the cache has them: into shared memory, and by one
 * CTA of the cluster into the cache. */
template <int D>
static __device__ __forceinline__ void few_prepare(few_state<D> &s, const few_item<D> &item,
                                                   const few_args &a, const few_job &j)
{
    const uint4 none = make_uint4(0, 0, 0, 0);

    if ((int)threadIdx.x / 32 * 32 / few_item<D>::lanes >= a.n_heads + 2 * j.remembers) return;
    const uint4 raw_low = item.is_there ? *(const uint4 *)item.from : none;
    const uint4 raw_high = item.is_there ? *(const uint4 *)(item.from + D / 2) : none;
    sw_eight x = sw_unpack8(raw_low), y = sw_unpack8(raw_high);

    few_turn(x, y, item, a);
    if (item.is_query) {
        few_lay_out(s, item, x, 0);
        few_lay_out(s, item, y, few_state<D>::steps / 2);
    } else if (item.is_there) {
        const bool is_value = item.at > a.n_heads;
        sw_bf16 *fresh = (sw_bf16 *)s.fresh[is_value] + 8 * item.lane;
        sw_bf16 *cache = (is_value ? a.v_cache : a.k_cache) + 8 * item.lane +
                         ((j.seq * a.capacity + j.there - 1) * a.n_kv_heads + j.kv_head) * D;

        sw_store8(fresh, x);
        sw_store8(fresh + D / 2, y);
        if (blockIdx.x) return;
        sw_store8(cache, x);
        sw_store8(cache + D / 2, y);
    }
}

/* ---- a warp's tiles ---- */

/* Of the head lane / 4 the maximum and this lane's share of the weights' sum; of heads
 * lane % 4 * 2 and the next the sums of values. */
template <int D> struct few_sums {
    float top, sum, out[D / 16][4];
};

/* Row n_rows - 1 of the last tile's keys or values, and zeros in those behind. */
template <int D>
static __device__ __forceinline__ void few_put_fresh(uint32_t tile, const few_state<D> &s,
                                                     int which, int n_rows, int remembers)
{
    constexpr int chunks = D / 8;
    const int lane = threadIdx.x % 32, chunk = lane % chunks;

#pragma unroll 1
    for (int row = n_rows - remembers + lane / chunks; row < TILE_KEYS; row += 32 / chunks) {
        const uint4 v = row < n_rows ? s.fresh[which][chunk] : make_uint4(0, 0, 0, 0);

        asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(tile + chunk_at(row, chunk)),
                     "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                     : "memory");
    }
}

/* Weights of a lane's four keys of a tile relative to the running maximum, to which `sums` is
 * brought. */
template <int D>
static __device__ __forceinline__ void few_weigh(float (&weight)[4], few_sums<D> &sums,
                                                 const few_state<D> &s, uint32_t tile,
                                                 float scale, int n_keys, bool is_first)
{
    const int lane = threadIdx.x % 32;
    float product[2][4] = {};

#pragma unroll
    for (int at = 0; at < D / 16; at += 2)
#pragma unroll
        for (int t = 0; t < 2; t++) {
            const uint4 v =
                sw_load_matrices(tile + chunk_at(8 * t + lane % 8, at * 2 + lane / 8));

#pragma unroll
            for (int step = 0; step < 2; step++) {
                const uint4 q = s.q[at + step][lane];
                const uint32_t operand[4] = {q.x, q.y, q.z, q.w};

                sw_mma_bf16(product[t], operand, step ? v.z : v.x, step ? v.w : v.y);
            }
        }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int key = lane % 4 * 2 + i % 2 + i / 2 * 8;
        const float v = (product[i / 2][i % 2] + product[i / 2][i % 2 + 2]) * scale;

        weight[i] = key < n_keys ? v : -INFINITY;
    }
    float top = fmaxf(fmaxf(weight[0], weight[1]), fmaxf(weight[2], weight[3]));

    top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
    top = fmaxf(sums.top, fmaxf(top, __shfl_xor_sync(~0u, top, 2)));
    if (!is_first && __any_sync(~0u, top != sums.top)) {
        const float shrink = sw_exp2(sums.top - top);
        const float one = __shfl_sync(~0u, shrink, lane % 4 * 8);
        const float two = __shfl_sync(~0u, shrink, lane % 4 * 8 + 4);

        sums.sum *= shrink;
#pragma unroll
        for (int i = 0; i < D / 16; i++) {
            sums.out[i][0] *= one, sums.out[i][2] *= one;
            sums.out[i][1] *= two, sums.out[i][3] *= two;
        }
    }
    sums.top = top;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        weight[i] = sw_exp2(weight[i] - top);
        sums.sum += weight[i];
    }
}

template <int D>
static __device__ __forceinline__ void few_add(few_sums<D> &sums, float (&weight)[4], uint32_t tile)
{
    const int lane = threadIdx.x % 32;
    typedef elements<sw_bf16> E;
    const uint32_t rounded[2] = {E::round(weight[0], weight[1]), E::round(weight[2], weight[3])};
    const uint32_t rest[2] = {sw_pack2(weight[0], weight[1]), sw_pack2(weight[2], weight[3])};

#pragma unroll
    for (int at = 0; at < D / 16; at++) {
        const uint4 v = sw_load_transposed(
            tile + chunk_at(lane % 8 + lane / 16 * 8, at * 2 + lane / 8 % 2));
        const uint32_t operand[4] = {v.x, v.y, v.z, v.w};

        sw_mma_bf16(sums.out[at], operand, rounded[0], rounded[1]);
        sw_mma_bf16(sums.out[at], operand, rest[0], rest[1]);
    }
}

template <int D>
static __device__ __forceinline__ void few_walk(few_sums<D> &sums, few_state<D> &s, uint32_t ring,
                                                const few_maps &maps, const few_args &a,
                                                const few_job &j)
{
    constexpr int tile_bytes = few_state<D>::tile_bytes;
    const uint32_t bars = sw_smem_addr(s.bars[threadIdx.x / 32]);
    int slot = 0;
    uint32_t parity = 0;

#pragma unroll 1
    for (int i = few_part(); i < j.n_tiles; i += FEW_PARTS) {
        const uint32_t tile = ring + slot * tile_bytes;
        const int n_keys = j.there - j.oldest - i * TILE_KEYS;
        float weight[4];

        sw_mbar_wait(bars + 8 * slot, parity);
        if (n_keys <= TILE_KEYS) {
            if (j.remembers) few_put_fresh(tile, s, 0, n_keys, true);
            few_put_fresh(tile + tile_bytes / 2, s, 1, n_keys, j.remembers);
            __syncwarp();
        }
        few_weigh(weight, sums, s, tile, a.scale, n_keys, i < FEW_PARTS);
        few_add(sums, weight, tile + tile_bytes / 2);
        __syncwarp();
        if (i + a.n_slots * FEW_PARTS < j.n_tiles)
            few_ask<D>(maps, j, i + a.n_slots * FEW_PARTS, tile, bars + 8 * slot);
        if (++slot == a.n_slots) slot = 0, parity ^= 1;
    }
}

/* ---- the sum ---- */

/* To another CTA of the cluster, whose mbarrier is told of it. */
static __device__ __forceinline__ void few_send16(uint32_t to, const float (&v)[4], uint32_t bar)
{
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], "
                 "{%1, %2, %3, %4}, [%5];" ::"r"(to), "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3]),
                 "r"(bar)
                 : "memory");
}

static __device__ __forceinline__ void few_send8(uint32_t to, float x, float y, uint32_t bar)
{
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, "
                 "[%3];" ::"r"(to), "f"(x), "f"(y), "r"(bar)
                 : "memory");
}

/* A part's sums: those of two heads by a lane, each to the CTA of that number; 4 D + 8 bytes. */
template <int D>
static __device__ __forceinline__ void few_send(few_state<D> &s, few_sums<D> &sums, int n_heads)
{
    const int lane = threadIdx.x % 32, row = lane / 4, part = few_part();
    const uint32_t bar = sw_smem_addr(&s.done);

    sums.sum += __shfl_xor_sync(~0u, sums.sum, 1);
    sums.sum += __shfl_xor_sync(~0u, sums.sum, 2);
    if (lane % 4 == 0 && row < n_heads)
        few_send8(sw_cluster_map(sw_smem_addr(&s.tops[part]), row), sums.top, sums.sum,
                  sw_cluster_map(bar, row));
#pragma unroll
    for (int one = 0; one < 2; one++) {
        const int head = lane % 4 * 2 + one;

        if (head >= n_heads) break;
        const uint32_t to = sw_cluster_map(sw_smem_addr(&s.sums[part][4 * row]), head);
        const uint32_t its_bar = sw_cluster_map(bar, head);

#pragma unroll
        for (int i = 0; i < D / 32; i++) {
            const float v[4] = {sums.out[2 * i][one], sums.out[2 * i][one + 2],
                                sums.out[2 * i + 1][one], sums.out[2 * i + 1][one + 2]};

            few_send16(to + i * 128, v, its_bar);
        }
    }
}

/* This CTA's head: a thread to a dim. A part's sums lie by 4 of rows of two steps' operands. */
template <int D>
static __device__ __forceinline__ void few_finish(const few_state<D> &s, const few_args &a,
                                                  const few_job &j, int n_parts)
{
    const int lane = threadIdx.x % 32, head = j.kv_head * a.n_heads + (int)blockIdx.x;
    const int dim = (int)threadIdx.x / 32 * 32 + lane % 4 * 8 + lane / 4;
    const float sink = a.sinks ? a.sinks[head] * LOG2_E : -INFINITY;
    float value = 0;

    if ((int)threadIdx.x >= D) return;
    sw_mbar_wait(sw_smem_addr(&s.done), 0);
    const float2 its = lane < n_parts ? s.tops[lane] : make_float2(-INFINITY, 0);
    const float top = fmaxf(sw_warp_max(its.x), sink), weight = sw_exp2(its.x - top);
    const float sum = sw_warp_sum(weight * its.y) + sw_exp2(sink - top);

#pragma unroll 4
    for (int p = 0; p < n_parts; p++)
        value += __shfl_sync(~0u, weight, p) * s.sums[p][threadIdx.x];
    a.out.d[j.seq * a.out.stride + head * D + dim] = sw_round16(__fdividef(value, sum));
}

/* ---- the kernel ---- */

template <int D> static __device__ __forceinline__ void few_begin(few_state<D> &s)
{
    if (threadIdx.x % 32 == 0) {
#pragma unroll
        for (int i = 0; i < FEW_SLOTS; i++)
            sw_mbar_init(sw_smem_addr(&s.bars[threadIdx.x / 32][i]), 1);
        if (threadIdx.x == 0) sw_mbar_init(sw_smem_addr(&s.done), 1);
        sw_mbar_init_fence();
    }
    __syncwarp();
    /* Heads that are not there are zeros. */
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < D / 16 * 33; i += 32 * FEW_WARPS)
        ((uint4 *)s.q)[i] = make_uint4(0, 0, 0, 0);
}

/* grid (FEW_CTAS, groups of a sequence, sequences), clusters of FEW_CTAS */
template <int D>
static __global__ void __launch_bounds__(32 * FEW_WARPS, 5)
    swk_attention_few_sm90(const __grid_constant__ few_maps maps, few_args a)
{
    extern __shared__ __align__(1024) uint8_t s_ring[];
    constexpr int tile_bytes = few_state<D>::tile_bytes;
    few_state<D> &s = *(few_state<D> *)(s_ring + a.n_slots * FEW_WARPS * tile_bytes);
    const int warp = threadIdx.x / 32;
    const uint32_t ring = sw_smem_addr(s_ring) + warp * a.n_slots * tile_bytes;
    few_sums<D> sums = {-INFINITY};
    few_item<D> item;

    few_begin(s);
    sw_let_next();
    if (!a.cache_is_there) sw_await_ahead();
    const few_job j = few_job_of(a);
    const int n_parts = min(j.n_tiles, FEW_PARTS);

    if (threadIdx.x == 0 && (int)blockIdx.x < a.n_heads)
        sw_mbar_expect(sw_smem_addr(&s.done), (uint32_t)n_parts * (4 * D + 8));
#pragma unroll 1
    for (int i = 0; i < a.n_slots; i++)
        if (few_part() + i * FEW_PARTS < j.n_tiles)
            few_ask<D>(maps, j, few_part() + i * FEW_PARTS, ring + i * tile_bytes,
                    sw_smem_addr(&s.bars[warp][i]));
    few_hold(item, a, j);
    sw_cluster_sync();
    sw_await_ahead();
    few_prepare(s, item, a, j);
    __syncthreads();
    few_walk(sums, s, ring, maps, a, j);
    if (few_part() < n_parts) few_send(s, sums, a.n_heads);
    if ((int)blockIdx.x < a.n_heads) few_finish(s, a, j, n_parts);
}

#endif
