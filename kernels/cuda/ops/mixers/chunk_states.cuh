/* chunk_states.cuh - from chunk to chunk with the state in registers: the second of the kernels of
 * chunk_form.cuh.
 *
 * A warp has 16 columns of a head's state, all of its rows, and makes D of a chunk and the state
 * behind it; another, one chunk later, makes what comes out. Sums of one product are the first
 * operand of the next where they are, as all is turned: columns are the rows of the products. What
 * a chunk brings comes some chunks ahead into a ring of stages in shared memory.
 */
#ifndef SW_KERNELS_CUDA_OPS_MIXERS_CHUNK_STATES_CUH
#define SW_KERNELS_CUDA_OPS_MIXERS_CHUNK_STATES_CUH

#include "kernels/cuda/ops/mixers/chunk_operand.cuh"

#define SW_STATES_TILES_MAX 4   /* of columns, a block's */
#define SW_STATES_STAGES_MAX 3
#define SW_STATES_SLICES (SW_FORM_TOKENS / 8)

/* A block has tiles from `tile` on, n_tiles of them or the n_here that there are, and two warps to
 * each: the first n_tiles warps have states. */
struct sw_states_place {
    int seq, head, tile, n_tiles, n_here, n_stages; /* seq: of these sequences */
    bool has_state;
    int own;                                        /* tile of the warp, of the block's */
};

static inline __host__ __device__ int sw_states_stage_bytes(int d_k, bool corrects, int n_tiles)
{
    return sw_form_keys_bytes(d_k) + sw_form_head_bytes(d_k, corrects) +
           n_tiles * sw_form_tile_bytes();
}

/* What a tile's warps hand over for a chunk: its state and D as first operands. */
static inline __host__ __device__ int sw_states_given_bytes(int d_k)
{
    return 2 * SW_FORM_COLUMNS * (d_k + SW_FORM_TOKENS);
}

static inline __host__ __device__ int sw_states_bytes(int d_k, bool corrects, int n_tiles,
                                                      int n_stages)
{
    return n_stages * sw_states_stage_bytes(d_k, corrects, n_tiles) +
           2 * n_tiles * sw_states_given_bytes(d_k);
}

static __device__ sw_states_place sw_states_find(const sw_form_args &a, int n_stages)
{
    const int warp = (int)threadIdx.x / 32, n_tiles = (int)blockDim.x / 64;
    const int n_parts = (a.n_tiles + n_tiles - 1) / n_tiles, item = (int)blockIdx.x / n_parts;
    sw_states_place p;

    p.seq = item / a.walk.n_heads;
    p.head = item % a.walk.n_heads;
    p.tile = (int)blockIdx.x % n_parts * n_tiles;
    p.n_tiles = n_tiles;
    p.n_here = min(n_tiles, a.n_tiles - p.tile);
    p.n_stages = n_stages;
    p.has_state = warp < n_tiles;
    p.own = p.has_state ? warp : warp - n_tiles;
    return p;
}

/* ---- the state ---- */

/* Two neighbouring rows of a column in the order of mixer_walk.cuh, or NULL. */
static __device__ float2 *sw_states_at(const sw_form_args &a, const sw_states_place &p, int row,
                                       int column)
{
    const int width = (a.walk.d_v + 7) / 8 * 8, lane = row % 32 / 4;
    int pad = 32;

    while (pad < a.walk.d_k) pad *= 2;
    if (!a.state || row >= pad || column >= width) return NULL;
    const int64_t four = (int64_t)(column % 2 * (pad / 32) + row / 32) * width * 4 +
                         column / 2 * 8 + lane;

    return (float2 *)(a.state + p.seq * a.state_seq + (int64_t)p.head * pad * width + four * 4 +
                      row % 4);
}

template <int DK>
static __device__ void sw_states_move(float (&s)[DK / 8][4], const sw_form_args &a,
                                      const sw_states_place &p, int tile, bool saves)
{
    const int lane = (int)threadIdx.x % 32;

#pragma unroll
    for (int i = 0; i < DK / 8; i++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float2 *at = sw_states_at(a, p, 8 * i + lane % 4 * 2,
                                      SW_FORM_COLUMNS * tile + lane / 4 + 8 * half);

            if (saves) {
                if (at) *at = make_float2(s[i][2 * half], s[i][2 * half + 1]);
                continue;
            }
            const float2 two = at ? *at : make_float2(0, 0);

            s[i][2 * half] = two.x, s[i][2 * half + 1] = two.y;
        }
    }
}

/* ---- a stage ---- */

/* Where a lane finds what. */
template <class RULE, int DK> struct sw_states_stage {
    const uint4 *q, *keys, *p, *w;
    const float4 *u;
    const float2 *decay, *to_end; /* of the lane's tokens of the first 8; by channel, decay of the
                                   * lane's rows of the first 8 */
    float carry;

    __device__ sw_states_stage(const char *stage, int tile)
    {
        const int lane = (int)threadIdx.x % 32;
        const char *head = stage + sw_form_keys_bytes(DK);
        const char *gates = head + sw_form_operand_bytes(SW_FORM_TOKENS, SW_FORM_TOKENS);

        q = (const uint4 *)stage + lane;
        keys = q + sw_form_operand_bytes(SW_FORM_TOKENS, DK) / 16;
        p = (const uint4 *)head + lane;
        w = (const uint4 *)(gates + 4 * SW_FORM_GATES) + lane;
        u = (const float4 *)(head + sw_form_head_bytes(DK, RULE::corrects) +
                             tile * sw_form_tile_bytes()) +
            lane;
        decay = (const float2 *)gates + lane % 4;
        to_end = decay + SW_FORM_TOKENS / 2;
        carry = ((const float *)gates)[SW_FORM_CARRY];
    }
};

/* The same address and number of bytes in all threads. */
static __device__ void sw_states_copy(char *s_to, const char *from, int n_bytes, uint32_t bar)
{
#if __CUDA_ARCH__ >= 900
    sw_bulk_load(sw_smem_addr(s_to), from, (uint32_t)n_bytes, bar, sw_policy_evict_first());
#else
    for (int i = (int)threadIdx.x * 16; i < n_bytes; i += (int)blockDim.x * 16)
        sw_copy16_plain(sw_smem_addr(s_to + i), from + i);
#endif
}

/* A chunk begins to come: on Hopper one thread asks the copy engine. */
template <class RULE, int DK>
static __device__ void sw_states_fetch(char *stages, const sw_form_args &a,
                                       const sw_states_place &p, int chunk, uint64_t *s_full)
{
    const int64_t at = sw_form_chunk_of(a, p.seq, chunk);
    const int group = p.head / (a.walk.n_heads / a.walk.n_groups), slot = chunk % p.n_stages;
    const int keys = sw_form_keys_bytes(DK), head = sw_form_head_bytes(DK, RULE::corrects);
    const int values = p.n_here * sw_form_tile_bytes();
    char *stage = stages + slot * sw_states_stage_bytes(DK, RULE::corrects, p.n_tiles);
    const uint32_t bar = sw_smem_addr(&s_full[slot]);

#if __CUDA_ARCH__ >= 900
    if ((int)threadIdx.x != 32 * p.n_tiles || chunk >= a.n_chunks) return;
    sw_mbar_expect(bar, (uint32_t)(keys + head + values));
#endif
    if (chunk < a.n_chunks) {
        sw_states_copy(stage, a.keys + (at * a.walk.n_groups + group) * keys, keys, bar);
        sw_states_copy(stage + keys, a.heads + (at * a.walk.n_heads + p.head) * head, head, bar);
        sw_states_copy(stage + keys + head, sw_form_values_at(a, at, p.head, p.tile), values, bar);
    }
#if __CUDA_ARCH__ < 900
    sw_copy_commit();
#endif
}

static __device__ __forceinline__ void sw_states_await(const sw_states_place &p, int chunk,
                                                       uint64_t *s_full)
{
#if __CUDA_ARCH__ >= 900
    sw_mbar_wait(sw_smem_addr(&s_full[chunk % p.n_stages]), chunk / p.n_stages % 2);
#else
    if (p.n_stages == 2) sw_copy_wait<0>();
    else sw_copy_wait<SW_STATES_STAGES_MAX - 2>();
    __syncthreads();
#endif
}

/* ---- a chunk ---- */

/* d = U - W S; S and d as operands to `given`. */
template <class RULE, int DK>
static __device__ __forceinline__ void sw_states_correct(float (&d)[SW_STATES_SLICES][4],
                                                         const float (&s)[DK / 8][4],
                                                         const sw_states_stage<RULE, DK> &from,
                                                         uint4 *given)
{
#pragma unroll
    for (int n = 0; n < SW_STATES_SLICES; n++) {
        const float4 x = from.u[n * 32];

        d[n][0] = x.x, d[n][1] = x.y, d[n][2] = x.z, d[n][3] = x.w;
    }
#pragma unroll
    for (int k = 0; k < DK / 32; k++) {
        const uint4 left = sw_sums_as_first(s[4 * k], s[4 * k + 1]);
        const uint4 right = sw_sums_as_first(s[4 * k + 2], s[4 * k + 3]);

        given[2 * k * 32] = left;
        given[(2 * k + 1) * 32] = right;
#pragma unroll
        for (int n = 0; RULE::corrects && n < SW_STATES_SLICES; n++) {
            const uint4 b = from.w[(n * (DK / 32) + k) * 32];

            sw_mma_add(d[n], left, b.x, b.y);
            sw_mma_add(d[n], right, b.z, b.w);
        }
    }
#pragma unroll
    for (int k = 0; k < SW_FORM_TOKENS / 16; k++)
        given[(DK / 16 + k) * 32] = sw_sums_as_first(d[2 * k], d[2 * k + 1]);
}

/* S = carry * S + K^T (to_end * d) */
template <class RULE, int DK>
static __device__ __forceinline__ void sw_states_add(float (&s)[DK / 8][4],
                                                     float (&d)[SW_STATES_SLICES][4],
                                                     const sw_states_stage<RULE, DK> &from)
{
#pragma unroll
    for (int n = 0; n < SW_STATES_SLICES; n++) {
        const float2 by = from.to_end[4 * n];

        if (RULE::by_channel) break; /* keys have it */
        d[n][0] *= by.x, d[n][1] *= by.y, d[n][2] *= by.x, d[n][3] *= by.y;
    }
#pragma unroll
    for (int i = 0; i < DK / 8; i++) {
        const float2 by =
            RULE::by_channel ? from.decay[4 * i] : make_float2(from.carry, from.carry);

        s[i][0] *= by.x, s[i][1] *= by.y, s[i][2] *= by.x, s[i][3] *= by.y;
    }
#pragma unroll
    for (int k = 0; k < SW_FORM_TOKENS / 32; k++) {
        const uint4 left = sw_sums_as_first(d[4 * k], d[4 * k + 1]);
        const uint4 right = sw_sums_as_first(d[4 * k + 2], d[4 * k + 3]);

#pragma unroll
        for (int i = 0; i < DK / 8; i++) {
            const uint4 b = from.keys[(i * 2 + k) * 32];

            sw_mma_add(s[i], left, b.x, b.y);
            sw_mma_add(s[i], right, b.z, b.w);
        }
    }
}

/* decay * (Q S) + through * U + P D, to where U was. */
template <class RULE, int DK>
static __device__ __forceinline__ void sw_states_out(float4 *to,
                                                     const sw_states_stage<RULE, DK> &from,
                                                     const uint4 *given, float through)
{
    float out[SW_STATES_SLICES][4] = {};

#pragma unroll
    for (int k = 0; k < DK / 32; k++) {
        const uint4 left = given[2 * k * 32], right = given[(2 * k + 1) * 32];

#pragma unroll
        for (int n = 0; n < SW_STATES_SLICES; n++) {
            const uint4 b = from.q[(n * (DK / 32) + k) * 32];

            sw_mma_add(out[n], left, b.x, b.y);
            sw_mma_add(out[n], right, b.z, b.w);
        }
    }
#pragma unroll
    for (int n = 0; n < SW_STATES_SLICES; n++) {
        const float2 by = RULE::by_channel ? make_float2(1, 1) : from.decay[4 * n];
        const float4 u = RULE::corrects ? make_float4(0, 0, 0, 0) : from.u[n * 32];

        out[n][0] = out[n][0] * by.x + through * u.x;
        out[n][1] = out[n][1] * by.y + through * u.y;
        out[n][2] = out[n][2] * by.x + through * u.z;
        out[n][3] = out[n][3] * by.y + through * u.w;
    }
#pragma unroll
    for (int k = 0; k < SW_FORM_TOKENS / 32; k++) {
        const uint4 left = given[(DK / 16 + 2 * k) * 32], right = given[(DK / 16 + 2 * k + 1) * 32];

#pragma unroll
        for (int n = 4 * k; n < SW_STATES_SLICES; n++) {
            const uint4 b = from.p[(n * 2 + k) * 32];

            sw_mma_add(out[n], left, b.x, b.y);
            sw_mma_add(out[n], right, b.z, b.w);
        }
    }
#pragma unroll
    for (int n = 0; n < SW_STATES_SLICES; n++)
        to[n * 32] = make_float4(out[n][0], out[n][1], out[n][2], out[n][3]);
}

/* ---- the kernel ---- */

/* All chunks of a warp. In each all warps of the block meet once, when S and D are handed over:
 * then nobody is at the chunk before, and its stage is free. */
template <class RULE, int DK>
static __device__ void sw_states_go(const sw_form_args &a, const sw_states_place &p, char *stages,
                                    uint64_t *s_full)
{
    const int stage_bytes = sw_states_stage_bytes(DK, RULE::corrects, p.n_tiles);
    const float through = a.walk.d ? a.walk.d[p.head] : 0;
    const bool is_there = p.own < p.n_here;
    char *given = stages + p.n_stages * stage_bytes + 2 * p.own * sw_states_given_bytes(DK);
    float s[DK / 8][4] = {}, d[SW_STATES_SLICES][4];

    if (p.has_state && is_there && (a.token > 0 || sw_first_of(a.walk.conv, a.seq + p.seq) > 0))
        sw_states_move<DK>(s, a, p, p.tile + p.own, false);
    for (int chunk = 0; chunk < a.n_chunks; chunk++) {
        uint4 *mine = (uint4 *)(given + chunk % 2 * sw_states_given_bytes(DK)) + threadIdx.x % 32;

        sw_states_await(p, chunk, s_full);
        const sw_states_stage<RULE, DK> from(stages + chunk % p.n_stages * stage_bytes, p.own);

        if (p.has_state && is_there) sw_states_correct<RULE, DK>(d, s, from, mine);
        __syncthreads();
        sw_states_fetch<RULE, DK>(stages, a, p, chunk + p.n_stages - 1, s_full);
        if (p.has_state && is_there)
            sw_states_add<RULE, DK>(s, d, from);
        else if (is_there)
            sw_states_out<RULE, DK>(
                (float4 *)sw_form_values_at(a, sw_form_chunk_of(a, p.seq, chunk), p.head,
                                            p.tile + p.own) +
                    threadIdx.x % 32,
                from, mine, through);
    }
    if (p.has_state && is_there) sw_states_move<DK>(s, a, p, p.tile + p.own, true);
}

/* grid (sequences, heads, runs of tiles: all in x), two warps to a tile */
template <class RULE, int DK>
static __global__ void __launch_bounds__(SW_STATES_TILES_MAX * 64, 1)
    swk_chunk_states(sw_form_args a, int n_stages)
{
    extern __shared__ float4 s_all[];
    __shared__ uint64_t s_full[SW_STATES_STAGES_MAX];

    sw_begin();
    const sw_states_place p = sw_states_find(a, n_stages);

#if __CUDA_ARCH__ >= 900
    if ((int)threadIdx.x == 32 * p.n_tiles) {
        for (int i = 0; i < n_stages; i++) sw_mbar_init(sw_smem_addr(&s_full[i]), 1);
        sw_mbar_init_fence();
    }
    __syncthreads();
#endif
    for (int chunk = 0; chunk < n_stages - 1; chunk++)
        sw_states_fetch<RULE, DK>((char *)s_all, a, p, chunk, s_full);
    sw_states_go<RULE, DK>(a, p, (char *)s_all, s_full);
}

#endif
