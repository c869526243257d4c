/* w8a8_whole.cuh - the main loop of a consumer warpgroup whose sums leave the tensor cores with
 * every stage, all of its tokens at once: while it adds them up another warpgroup of the CTA
 * multiplies. X has no scales by groups but those of blocks.
 *
 * For 64 or 128 tokens: the fewest products, of the most tokens each, and one wait a stage. More
 * would want more registers than there are; see w8a8_pieces.cuh.
 */
#ifndef SW_KERNELS_CUDA_GEMM_QUANTIZED_INPUT_W8A8_WHOLE_CUH
#define SW_KERNELS_CUDA_GEMM_QUANTIZED_INPUT_W8A8_WHOLE_CUH

#include "kernels/cuda/gemm/quantized_input/w8a8_pieces.cuh"

/* What a warpgroup takes of a stage. */
struct w8a8_share {
    int tile;      /* of channels */
    uint32_t x_at; /* where its tokens begin */
};

/* 0, which no compiler knows to be so, since the grid has one layer: what has it waits until the
 * scales of a part have been loaded, where a fence would wait for all that is on its way. */
static __device__ __forceinline__ uint32_t w8a8_zero_of(const uint32_t (&part)[8])
{
    return (part[0] | part[4]) & blockIdx.z;
}

/* total += sum with scales of blocks, those of a part of the tokens loaded before those of the part
 * ahead are used: part[0] has been, while the products were on their way. Returns 0 when all of
 * them have been loaded. */
template <int N>
static __device__ __forceinline__ uint32_t w8a8_add_parts(float (&total)[N], float (&sum)[N],
                                                          uint32_t (&part)[2][8],
                                                          uint32_t x_scales)
{
    uint32_t zero = w8a8_zero_of(part[0]);

    sw_hold(sum);
#pragma unroll
    for (int i = 0; i < N; i += 16) {
        if (i + 16 < N) {
            w8a8_load_scales<16>(part[1 - i / 16 % 2], x_scales + (i + 16) * 8u);
            zero |= w8a8_zero_of(part[1 - i / 16 % 2]);
        }
        w8a8_add_scaled<16>(total + i, sum + i, part[i / 16 % 2]);
        sw_hold(*(float(*)[16]) & total[i]);
    }
    return zero;
}

/* The stage that `ring` stands at, its A operand in frag[NOW], and with NEXT the operand of the one
 * after, to which the ring moves. T, NT: of a stage. */
template <int KIND, int T, int NT, int MODE, int NOW, bool NEXT, int N, typename type,
          typename ring_type>
static __device__ __forceinline__ void
w8a8_whole_stage(float (&total)[N], type (&sum)[N], uint32_t (&frag)[2][16], ring_type &ring,
                 const w8a8_args &a, const w8a8_place &p, const w8a8_share &own)
{
    constexpr bool GROUPED = w8a8_has_records(MODE);
    using at = w8a8_stage<KIND, T, NT, GROUPED>;
    uint32_t stage = ring.stage(), bar = ring.bar();
    uint32_t x_scales = stage + at::xs_at + own.x_at / 32; /* 4 bytes a token for its 128 */
    float scale[2] = {1.0f, 1.0f};
    uint32_t part[2][8];

    ring.turn();
    w8a8_issue(sum, frag[NOW], stage + own.x_at, 0);
    if constexpr (GROUPED) w8a8_group_scales<KIND>(scale, stage + at::s_at, own.tile, a);
    if constexpr (MODE == W8A8_X_BLOCKS) w8a8_load_scales<16>(part[0], x_scales);
    if (NEXT) {
        ring.wait();
        w8a8_load<KIND, T, NT, GROUPED, MODE == W8A8_X_BLOCKS>(frag[1 - NOW], a, p, ring.stage(),
                                                               own.tile);
    }
    sw_wgmma_wait<0>();
    if constexpr (MODE == W8A8_X_BLOCKS) {
        bar |= w8a8_add_parts(total, sum, part, x_scales);
    } else {
        /* A part at a time, or the compiler converts all before it adds one, which takes
         * registers. */
#pragma unroll
        for (int i = 0; i < N; i += 16) {
            w8a8_add_piece<MODE>(total + i, *(type(*)[16]) & sum[i], scale, a,
                                 x_scales + (uint32_t)i * 8);
            sw_hold(*(float(*)[16]) & total[i]);
        }
        if (MODE != W8A8_PLAIN) w8a8_scales_are_used(total);
    }
    __syncwarp();
    ring.release(bar);
}

/* All stages of a block of Y, added up in `total`: N / 2 tokens. Two a turn, so that every index of
 * a fragment is a constant. */
template <int KIND, int T, int NT, int MODE, int N, typename ring_type>
static __device__ __forceinline__ void w8a8_whole(float (&total)[N], ring_type &ring,
                                                  const w8a8_args &a, const w8a8_place &p,
                                                  const w8a8_share &own)
{
    typename w8a8_sum<KIND>::type sum[N];
    uint32_t frag[2][16];
    int left = p.n_stages;

    ring.wait();
    w8a8_load<KIND, T, NT, w8a8_has_records(MODE), MODE == W8A8_X_BLOCKS>(frag[0], a, p,
                                                                          ring.stage(), own.tile);
#pragma unroll 1
    for (; left > 2; left -= 2) {
        w8a8_whole_stage<KIND, T, NT, MODE, 0, true>(total, sum, frag, ring, a, p, own);
        w8a8_whole_stage<KIND, T, NT, MODE, 1, true>(total, sum, frag, ring, a, p, own);
    }
    if (left == 2) {
        w8a8_whole_stage<KIND, T, NT, MODE, 0, true>(total, sum, frag, ring, a, p, own);
        w8a8_whole_stage<KIND, T, NT, MODE, 1, false>(total, sum, frag, ring, a, p, own);
    } else {
        w8a8_whole_stage<KIND, T, NT, MODE, 0, false>(total, sum, frag, ring, a, p, own);
    }
}

#endif
