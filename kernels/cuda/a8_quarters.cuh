/* a8_quarters.cuh - the main loop of a consumer warpgroup for 256 tokens whose sums leave the
 * tensor cores with every stage: the tokens go through in quarters of 64, and while one is added up
 * in fp32 the next is multiplied.
 */
#ifndef SW_KERNELS_CUDA_A8_QUARTERS_CUH
#define SW_KERNELS_CUDA_A8_QUARTERS_CUH

#include "kernels/cuda/a8_loop.cuh"

#define SW_A8_QUARTERS_T 256

/* What changes along k: nothing, scales of W, scales of X too. */
enum { A8_PLAIN, A8_GROUPED, A8_X_GROUPS };

template <int KIND, int MODE>
using a8_quarters_stage =
    a8_stage<KIND, SW_A8_QUARTERS_T, 2, MODE != A8_PLAIN>;

/* Sums that leave the tensor cores with every stage. */
template <int KIND, int MODE, typename ring_type>
static __device__ __forceinline__ void a8_multiply_quarters(float (&total)[128],
                                                             ring_type &ring,
                                                             const a8_args &a, const a8_place &p)
{
    using at = a8_quarters_stage<KIND, MODE>;
    constexpr bool grouped = MODE != A8_PLAIN, x_groups = MODE == A8_X_GROUPS;
    int tile = (int)threadIdx.x / 128;
    typename a8_sum<KIND>::type sum[2][32];
    uint32_t frag[16];

    if (p.n_stages == 0) return;
    ring.wait();
    a8_load<KIND, SW_A8_QUARTERS_T, 2, grouped>(frag, a, p, ring.stage(), tile);
#pragma unroll 1
    for (int it = 0; it < p.n_stages; it++) {
        uint32_t stage = ring.stage(), bar = ring.bar(), x_scales = stage + at::xs_at;
        float scale[2] = {1.0f, 1.0f};

        ring.turn();
        a8_issue(sum[0], frag, stage, 0);
        a8_issue(sum[1], frag, stage + 8192, 0);
        if constexpr (grouped) a8_group_scales<KIND>(scale, stage + at::s_at, tile, a);
        sw_wgmma_wait<1>();
        a8_add_group<32, x_groups>(total, sum[0], scale, a, x_scales);
        a8_issue(sum[0], frag, stage + 2 * 8192, 0);
        sw_wgmma_wait<1>();
        a8_add_group<32, x_groups>(total + 32, sum[1], scale, a, x_scales + 256);
        a8_issue(sum[1], frag, stage + 3 * 8192, 0);
        sw_wgmma_wait<1>();
        a8_add_group<32, x_groups>(total + 64, sum[0], scale, a, x_scales + 512);
        sw_wgmma_wait<0>();
        if (it + 1 < p.n_stages) {
            ring.wait();
            a8_load<KIND, SW_A8_QUARTERS_T, 2, grouped>(frag, a, p, ring.stage(), tile);
        }
        a8_add_group<32, x_groups>(total + 96, sum[1], scale, a, x_scales + 768);
        /* An arrival does not wait for loads in flight: the scales must be there before. */
        if (grouped) __threadfence_block();
        __syncwarp();
        ring.release(bar);
    }
}

#endif
