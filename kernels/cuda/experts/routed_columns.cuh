/* routed_columns.cuh - phase 2 of routed_bytes.cuh where codes of E4M3 lie in columns: products of
 * the stages of a unit, each added up in fp32. P: a cut of routed_bytes.cuh.
 */
#ifndef SW_KERNELS_CUDA_EXPERTS_ROUTED_COLUMNS_CUH
#define SW_KERNELS_CUDA_EXPERTS_ROUTED_COLUMNS_CUH

#include "kernels/cuda/experts/routed_unit.cuh"
#include "kernels/cuda/gemm/quantized_input/w8a8_block_scales.cuh"

#define RT_AT_ONCE 32 /* rows of which a thread has registers for both tiles' products */

/* What a sum of a stage is multiplied by: nothing yet, where scales do not change along k. */
template <bool BLOCKS> struct rt_column_scale {
    __device__ __forceinline__ void load(uint32_t, const rt_args &) {}
    template <int N>
    __device__ __forceinline__ void add(float *total, float (&sum)[N], uint32_t) const
    {
        sw_hold(sum);
#pragma unroll
        for (int i = 0; i < N; i++) total[i] += sum[i];
    }
    /* Of a stage that goes back. */
    static __device__ __forceinline__ void wait(void) {}
};

/* The scale of its tile of W, and those of X, which lie at `x_scales`. */
template <> struct rt_column_scale<true> {
    float w;

    __device__ __forceinline__ void load(uint32_t record, const rt_args &a)
    {
        w = rt_scale_value(sw_shared4(record), a); /* those of a record are all alike */
    }
    template <int N>
    __device__ __forceinline__ void add(float *total, float (&sum)[N], uint32_t x_scales) const
    {
        sw_hold(sum);
#pragma unroll
        for (int j = 0; j < N; j += 8) {
            uint32_t x[4], scale[4];

            w8a8_load_scales<8>(x, x_scales + (uint32_t)j * 8);
#pragma unroll
            for (int i = 0; i < 4; i++) scale[i] = __float_as_uint(w * __uint_as_float(x[i]));
            w8a8_add_scaled<8>(total + j, sum + j, scale);
        }
    }
    /* An arrival does not wait for loads in flight, and ptxas puts it ahead of additions. */
    static __device__ __forceinline__ void wait(void) { __threadfence_block(); }
};

/* Of a block multiplied as T rows: those of which a thread has registers for the sums of two
 * products; 0: it has not. With scales of blocks it has not where others have more rows. */
template <class P, int T> __host__ __device__ constexpr int rt_rows_at_once(void)
{
    if (P::BLOCKS && P::SHORTENS) return 0;
    return T == 64 ? 64 : T == 96 ? 48 : 0;
}

/* All products of the stage that `ring` stands at, whose first tile's codes are in frag[0], and of
 * the next one those codes, unless this is the last. A tile is multiplied by AT_ONCE rows after the
 * other; while sums of one piece are added up, the tensor cores have the next. */
template <class P, int T, int AT_ONCE>
static __device__ __forceinline__ void rt_column_stage(float (&total)[2][T / 2],
                                                       uint32_t (&frag)[2][16],
                                                       w8a8_ring<P::STAGES> &ring,
                                                       const rt_args &a, bool is_last)
{
    constexpr int PER_TILE = T / AT_ONCE, PIECES = 2 * PER_TILE;
    using at = w8a8_stage<P::KIND, T, RT_TILES, P::GROUPED>;
    const uint32_t stage = ring.stage(), bar = ring.bar();
    const uint32_t codes = (uint32_t)(at::w_at + rt_group() * P::MT * at::tile_bytes);
    const uint32_t records = stage + at::s_at + (uint32_t)(rt_group() * P::MT * P::record_room);
    rt_column_scale<P::BLOCKS> scale[2];
    float sum[2][AT_ONCE / 2];

    ring.turn();
    w8a8_issue(sum[0], frag[0], stage, 0);
    w8a8_load_columns(frag[1], stage + codes + at::tile_bytes);
    for (int m = 0; m < 2; m++) scale[m].load(records + (uint32_t)(m * P::record_room), a);
#pragma unroll
    for (int i = 0; i < PIECES; i++) {
        const int next = i + 1, tile = i / PER_TILE, row = i % PER_TILE * AT_ONCE;

        if (next < PIECES)
            w8a8_issue(sum[next % 2], frag[next / PER_TILE],
                       stage + (uint32_t)(next % PER_TILE * AT_ONCE * 128), 0);
        if (next < PIECES) sw_wgmma_wait<1>();
        else sw_wgmma_wait<0>();
        if (next == PIECES - 1 && !is_last) {
            ring.wait();
            w8a8_load_columns(frag[0], ring.stage() + codes);
        }
        scale[tile].add(total[tile] + row / 2, sum[i % 2], stage + at::xs_at + (uint32_t)row * 4);
    }
    rt_column_scale<P::BLOCKS>::wait();
    __syncwarp();
    ring.release(bar);
}

/* n stages of codes in columns. */
template <class P, int T, int AT_ONCE>
static __device__ __forceinline__ void rt_column_stages(float (&total)[2][T / 2],
                                                        w8a8_ring<P::STAGES> &ring,
                                                        const rt_args &a, int n)
{
    using at = w8a8_stage<P::KIND, T, RT_TILES, P::GROUPED>;
    uint32_t frag[2][16];

    if (n == 0) return;
    ring.wait();
    w8a8_load_columns(frag[0], ring.stage() + at::w_at +
                                   (uint32_t)(rt_group() * P::MT * at::tile_bytes));
#pragma unroll 1
    for (; n > 0; n--) rt_column_stage<P, T, AT_ONCE>(total, frag, ring, a, n == 1);
}

/* n stages of codes in columns. Of few rows both tiles are on their way at once, so that a stage
 * goes back earlier. */
template <class P, int T>
static __device__ __forceinline__ void rt_column_tiles(float (&total)[2][T / 2],
                                                       w8a8_ring<P::STAGES> &ring,
                                                       const rt_args &a, int n)
{
    constexpr int AT_ONCE = T <= RT_AT_ONCE ? 2 : 1;
    using at = w8a8_stage<P::KIND, T, RT_TILES, P::GROUPED>;
    const int tile0 = rt_group() * P::MT;

#pragma unroll 1
    for (; n > 0; n--) {
        const uint32_t stage = ring.stage(), bar = ring.bar();

        ring.wait();
        ring.turn();
#pragma unroll
        for (int m = 0; m < P::MT; m += AT_ONCE) {
            uint32_t frag[AT_ONCE][16];
            float sum[AT_ONCE][T / 2];
            rt_column_scale<P::BLOCKS> scale[AT_ONCE];

#pragma unroll
            for (int i = 0; i < AT_ONCE; i++) {
                w8a8_load_columns(frag[i],
                                  stage + at::w_at + (uint32_t)((tile0 + m + i) * at::tile_bytes));
                w8a8_issue(sum[i], frag[i], stage, 0);
            }
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++)
                scale[i].load(stage + at::s_at + (uint32_t)((tile0 + m + i) * P::record_room), a);
            if (AT_ONCE > 1) sw_wgmma_wait<1>();
            else sw_wgmma_wait<0>();
            scale[0].add(total[m], sum[0], stage + at::xs_at);
            if constexpr (AT_ONCE > 1) {
                sw_wgmma_wait<0>();
                scale[1].add(total[m + 1], sum[1], stage + at::xs_at);
            }
        }
        rt_column_scale<P::BLOCKS>::wait();
        __syncwarp();
        ring.release(bar);
    }
}

#endif
