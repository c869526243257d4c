/* w8a8_flow.cuh - the main loop of a consumer warpgroup for many tokens whose sums leave the tensor
 * cores with every stage, which never run empty between the first stage of a block of Y and the
 * last: the tokens go through in pieces, and two are on their way at any time, be they of one stage
 * or of two. Where another block follows they go on to that, so that its first pieces are
 * multiplied while the sums of the one before are stored. w8a8_multiply_pieces lets them run empty
 * with every stage, with 16 registers less. Codes of 4 bits are converted beside two of the pieces
 * before, so that the tensor cores do not wait for that either.
 */
#ifndef SW_KERNELS_CUDA_GEMM_QUANTIZED_INPUT_W8A8_FLOW_CUH
#define SW_KERNELS_CUDA_GEMM_QUANTIZED_INPUT_W8A8_FLOW_CUH

#include "kernels/cuda/gemm/quantized_input/w8a8_pieces.cuh"

/* What is on its way of a block: the latest two pieces, and the A operands of two stages. */
template <int KIND, int PIECE>
struct w8a8_on_its_way {
    typename w8a8_sum<KIND>::type sum[2][PIECE / 2];
    uint32_t frag[2][16];
};

/* The first two pieces of the stage that `ring` stands at. */
template <int KIND, int T, int PIECE, int MODE, typename ring_type>
static __device__ __forceinline__ void
w8a8_flow_begin(w8a8_on_its_way<KIND, PIECE> &way, const ring_type &ring,
                const w8a8_args &a, const w8a8_place &p)
{
    ring.wait();
    w8a8_load<KIND, T, 2, w8a8_has_records(MODE)>(way.frag[0], a, p, ring.stage(),
                                                  (int)threadIdx.x / 128);
    w8a8_issue(way.sum[0], way.frag[0], ring.stage(), 0);
    w8a8_issue(way.sum[1], way.frag[0], ring.stage() + PIECE * 128, 0);
}

/* The stage that `ring` stands at, its A operand in frag[NOW], and with NEXT the operand of the one
 * after, to which the ring moves, and the first two pieces of that. `ends`: the last of a block. */
template <int KIND, int T, int PIECE, int MODE, int NOW, bool NEXT, typename ring_type>
static __device__ __forceinline__ void
w8a8_flow_stage(float (&total)[T / 2], w8a8_on_its_way<KIND, PIECE> &way, ring_type &ring,
                const w8a8_args &a, const w8a8_place &p, bool ends)
{
    constexpr bool grouped = w8a8_has_records(MODE);
    constexpr bool is_int4 = KIND == W8A8_INT4_E4M3;
    constexpr int n_pieces = T / PIECE, n_sums = PIECE / 2, box = PIECE * 128;
    static_assert(!is_int4 || n_pieces >= 4, "pieces to fetch and convert beside");
    using at = w8a8_stage<KIND, T, 2, grouped>;
    int tile = (int)threadIdx.x / 128;
    uint32_t stage = ring.stage(), bar = ring.bar(), x_scales = stage + at::xs_at;
    float scale[2] = {1.0f, 1.0f};
    uint32_t words[8];

    ring.turn();
    if constexpr (grouped) w8a8_group_scales<KIND>(scale, stage + at::s_at, tile, a);
#pragma unroll
    for (int i = 0; i < n_pieces; i++) {
        /* What the other fragment met has ended with the first piece of this stage. */
        if (NEXT && !is_int4 && i + 3 == n_pieces) {
            ring.wait();
            w8a8_load<KIND, T, 2, grouped>(way.frag[1 - NOW], a, p, ring.stage(), tile);
        }
        if (NEXT && is_int4 && (i + 3 == n_pieces || i + 2 == n_pieces))
            w8a8_convert(way.frag[1 - NOW], words, i + 3 - n_pieces);
        if (NEXT || i + 1 < n_pieces) sw_wgmma_wait<1>();
        else sw_wgmma_wait<0>();
        w8a8_add_piece<MODE>(total + i * n_sums, way.sum[i % 2], scale, a,
                             x_scales + i * PIECE * 4);
        if (i + 2 < n_pieces)
            w8a8_issue(way.sum[i % 2], way.frag[NOW], stage + (i + 2) * box, 0);
        else if (NEXT)
            w8a8_issue(way.sum[i % 2], way.frag[1 - NOW], ring.stage() + (i + 2 - n_pieces) * box,
                       0);
        /* Codes of 4 bits a piece ahead of their conversion. */
        if (NEXT && is_int4 && i + 4 == n_pieces) {
            ring.wait();
            w8a8_fetch(words, ring.stage() + at::w_at + tile * at::tile_bytes +
                                  threadIdx.x % 128 * 16);
        }
    }
    /* Scales of channels need no fence before the stage goes back: the third piece is multiplied to
     * where the first one's sums were, so these have met them. */
    static_assert(n_pieces > 2 && (MODE == W8A8_PLAIN || MODE == W8A8_GROUPED), "no scales of X");
    if (MODE != W8A8_PLAIN) sw_hold(total);
    __syncwarp();
    if (ends) w8a8_release_last(ring, bar);
    else ring.release(bar);
}

/* A block of Y whose products end with it. */
template <int KIND, int T, int PIECE, int MODE, typename ring_type>
static __device__ __forceinline__ void w8a8_multiply_flow(float (&total)[T / 2], ring_type &ring,
                                                          const w8a8_args &a, const w8a8_place &p)
{
    w8a8_on_its_way<KIND, PIECE> way;
    int left = p.n_stages;

    if (left == 0) return;
    w8a8_flow_begin<KIND, T, PIECE, MODE>(way, ring, a, p);
#pragma unroll 1
    for (; left > 2; left -= 2) {
        w8a8_flow_stage<KIND, T, PIECE, MODE, 0, true>(total, way, ring, a, p, false);
        w8a8_flow_stage<KIND, T, PIECE, MODE, 1, true>(total, way, ring, a, p, false);
    }
    if (left == 1) {
        w8a8_flow_stage<KIND, T, PIECE, MODE, 0, false>(total, way, ring, a, p, true);
        return;
    }
    w8a8_flow_stage<KIND, T, PIECE, MODE, 0, true>(total, way, ring, a, p, false);
    w8a8_flow_stage<KIND, T, PIECE, MODE, 1, false>(total, way, ring, a, p, true);
}

#endif
