/* gated_delta.cu - the gated delta rules, one decay a head or one a key channel. See mixers.h. */
#include "kernels/cuda/ops/mixers/chunk_run.cuh"
#include "kernels/cuda/ops/mixers/mixer_walk.cuh"

template <bool BY_CHANNEL> struct delta_rule {
    static const bool corrects = true, by_channel = BY_CHANNEL;
    float step, decay; /* what makes those of the thread's token of the next chunk */

    static __device__ void gates(const sw_walk_args &a, int64_t row, int head, float &step,
                                 float &log_decay)
    {
        const float x = sw_mixer_load(a.decay, row, head) + a.dt_bias[head];

        step = sw_sigmoid_of(sw_mixer_load(a.step, row, head));
        log_decay = -expf(a.a_log[head]) * sw_softplus_of(x);
    }

    __device__ void fetch(const sw_walk_args &a, const sw_walk_place &p, int t)
    {
        const int64_t at = t + (int)threadIdx.x, row = p.seq * a.conv.seq_len + at;

        if (threadIdx.x >= SW_CHUNK_TOKENS_MAX || at >= a.conv.seq_len) return;
        step = sw_mixer_load(a.step, row, p.head);
        if (!BY_CHANNEL) decay = sw_mixer_load(a.decay, row, p.head) + a.dt_bias[p.head];
    }

    template <int PAD>
    __device__ void prepare(const sw_chunk<PAD> &s, const sw_walk_args &a, const sw_walk_place &p,
                            int t, int n)
    {
        const float rate = expf(a.a_log[p.head]), scale = a.decay.scale;
        const sw_chunk_section &c = s.section[SW_CHUNK_DECAY];

        if (threadIdx.x < n) {
            s.step[threadIdx.x] = sw_sigmoid_of(step);
            if (!BY_CHANNEL) s.decay[threadIdx.x] = sw_decay_of(rate, decay);
        }
        for (int i = (int)threadIdx.x; BY_CHANNEL && i < n * PAD; i += (int)blockDim.x) {
            const int own = i % PAD, row = (t + i / PAD + s.n_back) % s.n_rows;

            s.keep[i] = 0;
            if (own < c.n)
                s.keep[i] = sw_decay_of(rate, sw_float(s.raw[row * s.row + c.at + own]) * scale +
                                                  a.dt_bias[p.head * c.n + own]);
        }
    }
};

extern "C" int64_t sw_cuda_walk_state(int64_t n_heads, int64_t d_k, int64_t d_v)
{
    int64_t rows = 32;

    while (rows < d_k) rows *= 2;
    return n_heads * rows * sw_walk_width((int)d_v);
}

extern "C" sw_code sw_cuda_gated_delta(const sw_walk_args *a, sw_launch how, sw_err *err)
{
    bool done;
    const sw_code rc = a->is_by_channel ? sw_form_try<delta_rule<true>>(&done, a, how, err)
                                        : sw_form_try<delta_rule<false>>(&done, a, how, err);

    if (done || rc != SW_OK) return rc;
    return a->is_by_channel ? sw_walk_run<delta_rule<true>>(a, how, err)
                            : sw_walk_run<delta_rule<false>>(a, how, err);
}

extern "C" int64_t sw_cuda_gated_delta_scratch(const sw_walk_args *a)
{
    return sw_form_bytes(a, true);
}
