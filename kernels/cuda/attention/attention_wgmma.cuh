/* attention_wgmma.cuh - causal attention of many queries by products of warpgroups (sm_90a).
 *
 * The arrangement of Shah et al., FlashAttention-3 (2024): scores, weights and sums stay in
 * registers, with the running maximum of Milakov and Gimelshein (2018).
 *
 *   grid:    one CTA a multiprocessor, which goes through its units (attention_units.cuh)
 *   copies:  one warp brings queries, keys and values of the units through rings of stages, by the
 *            copy engine with the 128-byte swizzle, and runs ahead into the next unit
 *   products S [64, keys] = Q K^T        both from shared memory
 *            O [64, dims] += P V         P from registers, V across
 *            by warpgroups of 64 queries each. The scores of a tile are multiplied while the
 *            weights of the tile before are multiplied with its values, and warpgroups take turns
 *            in asking for products, so that the exponentials of one run under products of another
 *   store:   through shared memory by the copy engine, which leaves out rows that are not there
 */
#ifndef SW_KERNELS_CUDA_ATTENTION_ATTENTION_WGMMA_CUH
#define SW_KERNELS_CUDA_ATTENTION_ATTENTION_WGMMA_CUH

#include <math.h>

#include "kernels/cuda/attention/attention_units.cuh"
#include "kernels/cuda/ptx/arrive.cuh"
#include "kernels/cuda/ptx/ptx_shared.cuh"
#include "kernels/cuda/ptx/ptx_store.cuh"
#include "kernels/cuda/ptx/ptx_warp.cuh"

/* D, DV: elements of a head of queries and keys, and of values, rounded up; KEYS: of a tile; NWG:
 * warpgroups of 64 queries. */
template <int D_, int DV_, int KEYS_, int NWG_, int STAGES_> struct aw_cut {
    static constexpr int D = D_, DV = DV_, KEYS = KEYS_, NWG = NWG_, STAGES = STAGES_;
    static constexpr int rows = 64 * NWG, consumers = 128 * NWG, threads = consumers + 128;

    /* shared memory: 64 elements of all rows, then the next 64. Of wide heads results lie where
     * the queries were, which leaves the room to the keys. */
    static constexpr bool shares_q = D > 128;
    static constexpr int q_bytes = rows * D * 2, out_bytes = rows * DV * 2;
    static constexpr int k_bytes = KEYS * D * 2, v_bytes = KEYS * DV * 2;
    static constexpr int q_at = 0, out_at = shares_q ? 0 : q_bytes;
    static constexpr int k_at = q_bytes + (shares_q ? 0 : out_bytes);
    static constexpr int v_at = k_at + STAGES * k_bytes;
    static constexpr int shared_bytes = v_at + STAGES * v_bytes + 1024;
    static_assert(shared_bytes <= 226 << 10, "a CTA has 227 KB, of which barriers take a little");
    static_assert(!shares_q || DV <= D, "results fit where queries were");

    /* registers; they are given in eights */
    static constexpr int copier = NWG == 2 ? 24 : 32, consumer = NWG == 2 ? 240 : 160;
    static_assert(copier * 128 + consumer * consumers <= 65536, "registers of a multiprocessor");
};

struct aw_maps {
    CUtensorMap q, k, v, out;
};

/* Addresses of barriers, of rings the first; `tail`: of a tile that the copying warp mends. */
struct aw_bars {
    uint32_t k_full, k_empty, v_full, v_empty, q_full, q_empty, tail;
};

/* A place in a ring as somebody goes through it. */
struct aw_place {
    int s;
    uint32_t parity;
};

template <class P> __device__ __forceinline__ void aw_step(aw_place &at)
{
    if (++at.s == P::STAGES) at.s = 0, at.parity ^= 1;
}

/* ---- the warp that copies ---- */

/* A tile of keys or values of heads of DIM. */
template <class P, int DIM>
__device__ __forceinline__ void aw_copy_tile(const CUtensorMap *map, const aw_unit &u, int key0,
                                             uint32_t to, uint32_t bar)
{
    sw_warp_expect(bar, P::KEYS * DIM * 2);
#pragma unroll
    for (int i = 0; i < DIM / 64; i++)
        sw_warp_load_4d(to + i * P::KEYS * 128, map, {64 * i, u.kv_head, key0, u.seq}, bar,
                        sw_policy_evict_last());
}

/* A tile of values of which rows from `n` on are not there, or are what a cache held before: their
 * weights are zero, which makes nothing of a NaN. */
template <class P>
__device__ __forceinline__ void aw_copy_tail(const CUtensorMap *map, const aw_unit &u, int key0,
                                             int n, uint32_t to, uint32_t bar, uint32_t tail,
                                             uint32_t parity)
{
    aw_copy_tile<P, P::DV>(map, u, key0, to, tail);
    sw_mbar_wait(tail, parity);
#pragma unroll 1
    for (int i = n * 8 + (int)threadIdx.x % 32; i < P::KEYS * 8; i += 32)
#pragma unroll
        for (int part = 0; part < P::DV / 64; part++)
            asm volatile("st.shared.v4.u32 [%0], {%1, %1, %1, %1};" ::"r"(
                             to + (uint32_t)(part * P::KEYS * 8 + i) * 16), "r"(0) : "memory");
    sw_proxy_fence();
    __syncwarp();
    if (SW_ARRIVES(0)) sw_mbar_arrive(bar);
}

template <class P> struct aw_copier {
    aw_bars bars;
    uint32_t base;
    aw_place k, v, q; /* turns: 1 at first, nothing is in the way then */
    uint32_t tail_parity;

    __device__ __forceinline__ void keys(const aw_maps &maps, const aw_unit &u, int tile)
    {
        sw_mbar_sleep(bars.k_empty + 8 * k.s, k.parity);
        aw_copy_tile<P, P::D>(&maps.k, u, tile * P::KEYS, base + P::k_at + k.s * P::k_bytes,
                              bars.k_full + 8 * k.s);
        aw_step<P>(k);
    }
    __device__ __forceinline__ void values(const aw_maps &maps, const aw_unit &u, int tile)
    {
        const int n = u.there - tile * P::KEYS;
        const uint32_t to = base + P::v_at + v.s * P::v_bytes, bar = bars.v_full + 8 * v.s;

        sw_mbar_sleep(bars.v_empty + 8 * v.s, v.parity);
        if (n >= P::KEYS) {
            aw_copy_tile<P, P::DV>(&maps.v, u, tile * P::KEYS, to, bar);
            if (SW_ARRIVALS > 1 && threadIdx.x % 32) sw_mbar_arrive(bar); /* one has, expecting */
        } else {
            aw_copy_tail<P>(&maps.v, u, tile * P::KEYS, n, to, bar, bars.tail, tail_parity);
            tail_parity ^= 1;
        }
        aw_step<P>(v);
    }
    __device__ __forceinline__ void queries(const aw_maps &maps, const aw_unit &u)
    {
        sw_mbar_sleep(bars.q_empty, q.parity);
        sw_warp_expect(bars.q_full, P::q_bytes);
#pragma unroll
        for (int i = 0; i < P::D / 64; i++)
            sw_warp_load_4d(base + P::q_at + i * P::rows * 128, &maps.q,
                            {64 * i, u.head, u.row0, u.seq}, bars.q_full,
                            sw_policy_evict_first());
        q.parity ^= 1;
    }
};

template <class P>
__device__ __forceinline__ void aw_copy_all(const aw_maps &maps, const aw_args &a, uint32_t base,
                                            const aw_bars &bars)
{
    aw_copier<P> to = {bars, base, {0, 1}, {0, 1}, {0, 1}, 0};

#pragma unroll 1
    for (int round = 0;; round++) {
        const int at = aw_unit_at(round);

        if (round * (int)gridDim.x >= aw_n_units(a)) break;
        if (at >= aw_n_units(a)) continue;
        const aw_unit u = aw_unit_of<P::rows, P::KEYS>(a, at);

        to.keys(maps, u, u.last_tile);
        to.queries(maps, u);
#pragma unroll 1
        for (int i = 1; i < u.n_tiles; i++) {
            to.keys(maps, u, u.last_tile - i);
            to.values(maps, u, u.last_tile - i + 1);
        }
        to.values(maps, u, u.last_tile - u.n_tiles + 1);
    }
}

/* ---- a tile of scores ---- */

/* What a warpgroup knows of its 64 queries in a unit. A lane has rows g and g + 8 of its warp's 16,
 * g its number / 4. */
template <class P> struct aw_rows {
    float out[P::DV / 2];
    uint32_t weights[P::KEYS / 4]; /* pairs, as the products with values take them */
    float top[2], sum[2];          /* sum is this lane's share */
    int position;                  /* of the first of the 64 */
    int mine, seen[2];             /* the position of row g, and what rows g and g + 8 see */
};

/* Is there a key in the tile that one of the 64 queries does not see? */
template <class P>
__device__ __forceinline__ bool aw_is_cut(const aw_args &a, const aw_rows<P> &r, int key0)
{
    const int last = r.position + 63;

    if (key0 + P::KEYS - 1 > r.position) return true;
    return (a.window || a.chunk) && last + 1 - sw_keys_seen(a, last) > key0;
}

template <class P>
__device__ __forceinline__ void aw_mask(float (&s)[P::KEYS / 2], const aw_rows<P> &r, int key0)
{
    const int behind0 = r.mine - key0 - (int)threadIdx.x % 4 * 2;

#pragma unroll
    for (int i = 0; i < P::KEYS / 2; i++) {
        const int row = i / 2 % 2, behind = behind0 + 8 * row - i / 4 * 8 - i % 2;

        if ((unsigned)behind >= (unsigned)r.seen[row]) s[i] = -INFINITY;
    }
}

/* Scores to weights relative to the running maximum; by how much what was summed before must shrink
 * for it. Rows that have not seen a key yet stay without a maximum. */
template <class P>
__device__ __forceinline__ void aw_weigh(float (&s)[P::KEYS / 2], aw_rows<P> &r, float factor,
                                         float (&shrink)[2])
{
    float top[2] = {r.top[0], r.top[1]}, base[2];

#pragma unroll
    for (int i = 0; i < P::KEYS / 2; i++) top[i / 2 % 2] = fmaxf(top[i / 2 % 2], s[i]);
#pragma unroll
    for (int row = 0; row < 2; row++) {
        top[row] = fmaxf(top[row], __shfl_xor_sync(~0u, top[row], 1));
        top[row] = fmaxf(top[row], __shfl_xor_sync(~0u, top[row], 2));
        base[row] = top[row] == -INFINITY ? 0.0f : top[row] * factor;
        shrink[row] = sw_exp2(fmaf(r.top[row], factor, -base[row]));
        r.top[row] = top[row];
        r.sum[row] *= shrink[row];
    }
#pragma unroll
    for (int i = 0; i < P::KEYS / 2; i++) {
        s[i] = sw_exp2(fmaf(s[i], factor, -base[i / 2 % 2]));
        r.sum[i / 2 % 2] += s[i];
    }
}

template <class P>
__device__ __forceinline__ void aw_pack(aw_rows<P> &r, const float (&s)[P::KEYS / 2])
{
#pragma unroll
    for (int i = 0; i < P::KEYS / 4; i++)
        r.weights[i] = sw_round16_pair(s[2 * i], s[2 * i + 1], true);
}

template <class P>
__device__ __forceinline__ void aw_shrink(aw_rows<P> &r, const float (&shrink)[2])
{
#pragma unroll
    for (int i = 0; i < P::DV / 2; i++) r.out[i] *= shrink[i / 2 % 2];
}

/* ---- products ---- */

/* s = Q K^T: q are the warpgroup's rows, k a stage. */
template <class P>
__device__ __forceinline__ void aw_ask_scores(float (&s)[P::KEYS / 2], uint32_t q, uint32_t k)
{
#pragma unroll
    for (int step = 0; step < P::D / 16; step++) {
        const uint32_t in_part = step % 4 * 32;

        sw_wgmma_shared(s, sw_wgmma_desc(q + step / 4 * P::rows * 128 + in_part),
                        sw_wgmma_desc(k + step / 4 * P::KEYS * 128 + in_part), step > 0);
    }
    sw_wgmma_commit();
}

template <class P>
__device__ __forceinline__ void aw_ask_sums(aw_rows<P> &r, uint32_t v, bool adds)
{
#pragma unroll
    for (int step = 0; step < P::KEYS / 16; step++)
        sw_wgmma_across(r.out, r.weights + 4 * step,
                        sw_wgmma_desc_across(v + step * 16 * 128, P::KEYS * 128),
                        adds || step > 0);
    sw_wgmma_commit();
}

/* Barriers of warpgroups: whose turn it is, and a meeting of one. */
template <class P> __device__ __forceinline__ void aw_await_turn(int group)
{
    sw_named_sync(1 + group, 256);
}

template <class P> __device__ __forceinline__ void aw_give_turn(int group)
{
    sw_named_arrive(1 + (group + 1) % P::NWG, 256);
}

template <class P> __device__ __forceinline__ void aw_meet(int group)
{
    sw_named_sync(1 + P::NWG + group, 128);
}

template <class P> struct aw_consumer {
    aw_bars bars;
    uint32_t base;
    aw_place k, v;
    uint32_t q_parity;
    int group;

    __device__ __forceinline__ uint32_t q_rows(void) const
    {
        return base + P::q_at + group * 64 * 128;
    }
    __device__ __forceinline__ uint32_t k_stage(void) const
    {
        return base + P::k_at + k.s * P::k_bytes;
    }
    __device__ __forceinline__ uint32_t v_stage(void) const
    {
        return base + P::v_at + v.s * P::v_bytes;
    }
    /* Also keeps the compiler from putting what is ahead of it behind it. */
    __device__ __forceinline__ void await_k(bool is_any)
    {
        if (is_any) sw_mbar_wait(bars.k_full + 8 * k.s, k.parity);
    }
    __device__ __forceinline__ void release_k(void)
    {
        sw_release_stage(bars.k_empty + 8 * k.s);
        aw_step<P>(k);
    }
    __device__ __forceinline__ void release_v(void)
    {
        sw_release_stage(bars.v_empty + 8 * v.s);
        aw_step<P>(v);
    }
};

/* ---- a unit ---- */

template <class P>
__device__ __forceinline__ void aw_begin(aw_rows<P> &r, const aw_args &a, const aw_unit &u,
                                         int group)
{
    const int thread = (int)threadIdx.x % 128, lane = thread % 32;
    const float sink = a.sinks ? a.sinks[u.head] * 1.4426950408889634f / a.factor : -INFINITY;

    r.position = u.position + 64 * group;
    r.mine = r.position + thread / 32 * 16 + lane / 4;
#pragma unroll
    for (int row = 0; row < 2; row++) {
        r.top[row] = sink;
        r.sum[row] = a.sinks && lane % 4 == 0 ? 1.0f : 0.0f;
        r.seen[row] = sw_keys_seen(a, r.mine + 8 * row);
    }
}

/* The scores of the first tile, which no product of values runs beside. */
template <class P>
__device__ __forceinline__ void aw_first_tile(aw_rows<P> &r, const aw_args &a, const aw_unit &u,
                                              aw_consumer<P> &c)
{
    float s[P::KEYS / 2], shrink[2];
    const int key0 = u.last_tile * P::KEYS;

    sw_mbar_wait(c.bars.q_full, c.q_parity);
    c.q_parity ^= 1;
    sw_mbar_wait(c.bars.k_full + 8 * c.k.s, c.k.parity);
    sw_wgmma_fence();
    aw_ask_scores<P>(s, c.q_rows(), c.k_stage());
    sw_wgmma_wait<0>();
    sw_hold(s);
    c.release_k();
    if (!P::shares_q && u.n_tiles == 1) sw_release_stage(c.bars.q_empty);
    if (aw_is_cut(a, r, key0)) aw_mask(s, r, key0);
    aw_weigh(s, r, a.factor, shrink);
    c.await_k(u.n_tiles > 1);
    aw_pack(r, s);
}

/* Tile i of the unit: its scores, and the values of the tile before. */
template <class P>
__device__ __forceinline__ void aw_next_tile(aw_rows<P> &r, const aw_args &a, const aw_unit &u,
                                             aw_consumer<P> &c, int i)
{
    float s[P::KEYS / 2], shrink[2];
    const int key0 = (u.last_tile - i) * P::KEYS;

    aw_await_turn<P>(c.group);
    sw_hold(r.out);
    sw_hold(r.weights);
    sw_wgmma_fence();
    aw_ask_scores<P>(s, c.q_rows(), c.k_stage());
    sw_mbar_wait(c.bars.v_full + 8 * c.v.s, c.v.parity);
    aw_ask_sums(r, c.v_stage(), i > 1);
    aw_give_turn<P>(c.group);
    sw_wgmma_wait<1>();
    sw_hold(s);
    c.release_k();
    if (!P::shares_q && i == u.n_tiles - 1) sw_release_stage(c.bars.q_empty);
    if (aw_is_cut(a, r, key0)) aw_mask(s, r, key0);
    aw_weigh(s, r, a.factor, shrink);
    sw_hold(s);
    c.await_k(i < u.n_tiles - 1);
    sw_wgmma_wait<0>();
    sw_hold(r.out);
    sw_hold(r.weights);
    c.release_v();
    aw_shrink(r, shrink);
    aw_pack(r, s);
}

template <class P>
__device__ __forceinline__ void aw_last_values(aw_rows<P> &r, const aw_unit &u, aw_consumer<P> &c)
{
    sw_mbar_wait(c.bars.v_full + 8 * c.v.s, c.v.parity);
    sw_hold(r.out);
    sw_hold(r.weights);
    sw_wgmma_fence();
    aw_ask_sums(r, c.v_stage(), u.n_tiles > 1);
    sw_wgmma_wait<0>();
    sw_hold(r.out);
    c.release_v();
}

/* Times `factor` and rounded, to shared memory as the copy engine takes it. Where that is where the
 * queries were, the next ones may come once it has been read. */
template <class P>
__device__ __forceinline__ void aw_store(const aw_rows<P> &r, const aw_maps &maps,
                                         const aw_unit &u, const aw_consumer<P> &c, float factor)
{
    const int thread = (int)threadIdx.x % 128, lane = thread % 32, line = lane % 8;
    const int matrix = lane / 8, line_of_all = thread / 32 * 16 + matrix % 2 * 8 + line;
    const uint32_t park = c.base + P::out_at + c.group * 64 * 128;
    float over[2];

#pragma unroll
    for (int row = 0; row < 2; row++) {
        over[row] = r.sum[row] + __shfl_xor_sync(~0u, r.sum[row], 1);
        over[row] = __fdividef(factor, over[row] + __shfl_xor_sync(~0u, over[row], 2));
    }
    if (thread == 0) sw_bulk_read_wait<0>();
    aw_meet<P>(c.group);
#pragma unroll
    for (int j = 0; j < P::DV / 8; j += 2) {
        uint32_t v[4];

#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int at = 4 * j + 2 * e;

            v[e] = sw_round16_pair(r.out[at] * over[e % 2], r.out[at + 1] * over[e % 2], true);
        }
        sw_store_matrices4(park + j / 8 * P::rows * 128 + line_of_all * 128 +
                               ((j % 8 + matrix / 2) ^ line) * 16, v);
    }
    sw_proxy_fence();
    aw_meet<P>(c.group);
    if (thread == 0) {
#pragma unroll
        for (int i = 0; i < P::DV / 64; i++)
            sw_tensor_store_4d(&maps.out, {64 * i, u.head, u.row0 + 64 * c.group, u.seq},
                               park + i * P::rows * 128);
        sw_bulk_commit();
        if (P::shares_q) sw_bulk_read_wait<0>();
    }
    if (P::shares_q) {
        __syncwarp();
        sw_release_stage(c.bars.q_empty);
    }
}

template <class P>
__device__ __forceinline__ void aw_attend_all(const aw_maps &maps, const aw_args &a, uint32_t base,
                                              const aw_bars &bars, int group)
{
    aw_consumer<P> c = {bars, base, {0, 0}, {0, 0}, 0, group};
    aw_rows<P> r;

    if (c.group == P::NWG - 1) aw_give_turn<P>(c.group);
#pragma unroll 1
    for (int round = 0;; round++) {
        const int at = aw_unit_at(round);

        if (round * (int)gridDim.x >= aw_n_units(a)) break;
        if (at >= aw_n_units(a)) continue;
        const aw_unit u = aw_unit_of<P::rows, P::KEYS>(a, at);

        aw_begin(r, a, u, c.group);
        aw_first_tile(r, a, u, c);
#pragma unroll 1
        for (int i = 1; i < u.n_tiles; i++) aw_next_tile(r, a, u, c, i);
        aw_last_values(r, u, c);
        aw_store(r, maps, u, c, a.out_factor);
    }
    if (c.group == 0) aw_await_turn<P>(c.group);
    if (threadIdx.x % 128 == 0) sw_bulk_wait();
}

/* ---- the whole ---- */

template <class P>
__device__ __forceinline__ aw_bars aw_make_bars(uint64_t *s_bars)
{
    const uint32_t at = sw_smem_addr(s_bars), ring = 8 * P::STAGES;
    const aw_bars b = {at, at + ring, at + 2 * ring, at + 3 * ring, at + 4 * ring,
                       at + 4 * ring + 8, at + 4 * ring + 16};

    if (threadIdx.x == 0) {
        for (int i = 0; i < P::STAGES; i++) {
            sw_mbar_init(b.k_full + 8 * i, 1);
            sw_mbar_init(b.v_full + 8 * i, SW_ARRIVALS);
            sw_mbar_init(b.k_empty + 8 * i, P::consumers / 32 * SW_ARRIVALS);
            sw_mbar_init(b.v_empty + 8 * i, P::consumers / 32 * SW_ARRIVALS);
        }
        sw_mbar_init(b.q_full, 1);
        sw_mbar_init(b.q_empty, P::consumers / 32 * SW_ARRIVALS);
        sw_mbar_init(b.tail, 1);
        sw_mbar_init_fence();
    }
    __syncthreads();
    return b;
}

template <class P>
__global__ void __launch_bounds__(P::threads, 1)
    swk_attention_sm90(const __grid_constant__ aw_maps maps, const aw_args args)
{
    extern __shared__ uint8_t s_bytes[];
    __shared__ uint64_t s_bars[4 * P::STAGES + 3];
    const uint32_t base = (sw_smem_addr(s_bytes) + 1023) & ~1023u;
    /* From lane 0, so that the compiler knows that a warp does not diverge here. */
    const int warp = __shfl_sync(~0u, (int)threadIdx.x / 32, 0);
    const aw_bars bars = aw_make_bars<P>(s_bars);

    sw_grid_launch_next();
    sw_grid_wait_previous();
    if (warp >= P::consumers / 32) {
        sw_fewer_registers<P::copier>();
        if (warp == P::consumers / 32) aw_copy_all<P>(maps, args, base, bars);
    } else {
        sw_more_registers<P::consumer>();
        aw_attend_all<P>(maps, args, base, bars, warp / 4);
    }
}

#endif
