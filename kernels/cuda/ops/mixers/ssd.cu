/* ssd.cu - the state space of Mamba-2: queries are C, keys are B, values are x. See mixers.h. */
#include "kernels/cuda/ops/mixers/mixer_walk.cuh"

struct ssd_rule {
    static const bool corrects = false, by_channel = false;
    float step; /* what makes that of the thread's token of the next chunk */

    __device__ void fetch(const sw_walk_args &a, const sw_walk_place &p, int t)
    {
        const int64_t at = t + (int)threadIdx.x, row = p.seq * a.conv.seq_len + at;

        if (threadIdx.x >= SW_CHUNK_TOKENS_MAX || at >= a.conv.seq_len) return;
        step = sw_mixer_load(a.step, row, p.head) + a.dt_bias[p.head];
    }

    template <int PAD>
    __device__ void prepare(const sw_chunk<PAD> &s, const sw_walk_args &a, const sw_walk_place &p,
                            int t, int n)
    {
        const float dt = fminf(fmaxf(sw_softplus_of(step), a.dt_min), a.dt_max);

        (void)t;
        if (threadIdx.x >= n) return;
        s.step[threadIdx.x] = dt;
        s.decay[threadIdx.x] = expf(-expf(a.a_log[p.head]) * dt);
    }
};

extern "C" sw_code sw_cuda_ssd(const sw_walk_args *a, sw_launch how, sw_err *err)
{
    return sw_walk_run<ssd_rule>(a, how, err);
}
