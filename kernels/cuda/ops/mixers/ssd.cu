/* ssd.cu - the state space of Mamba-2: queries are C, keys are B, values are x. See mixers.h. */
#include "kernels/cuda/ops/mixers/chunk_run.cuh"
#include "kernels/cuda/ops/mixers/mixer_walk.cuh"

struct ssd_rule {
    static const bool corrects = false, by_channel = false;
    float step; /* what makes that of the thread's token of the next chunk */

    static __device__ void gates(const sw_walk_args &a, int64_t row, int head, float &step,
                                 float &log_decay)
    {
        const float x = sw_mixer_load(a.step, row, head) + a.dt_bias[head];

        step = fminf(fmaxf(sw_softplus_of(x), a.dt_min), a.dt_max);
        log_decay = -expf(a.a_log[head]) * step;
    }

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
    bool done;
    const sw_code rc = sw_form_try<ssd_rule>(&done, a, how, err);

    return done || rc != SW_OK ? rc : sw_walk_run<ssd_rule>(a, how, err);
}

extern "C" int64_t sw_cuda_ssd_scratch(const sw_walk_args *a) { return sw_form_bytes(a, false); }
