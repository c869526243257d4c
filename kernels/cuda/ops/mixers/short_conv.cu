/* short_conv.cu - a gated short convolution as a mixer, and what convolutions of several tokens
 * leave behind. See mixers.h.
 */
#include "kernels/cuda/ops/mixers/mixer_conv.cuh"

#define N_THREADS 256

/* grid (rows, parts of a row) */
static __global__ void swk_short_conv(sw_short_conv_args a)
{
    const sw_conv_part &p = a.conv.part[0];
    const int64_t channel = blockIdx.y * (int64_t)N_THREADS + threadIdx.x, row = blockIdx.x;
    const int64_t seq = row / a.conv.seq_len, t = row % a.conv.seq_len;

    sw_begin();
    if (channel >= p.n) return;
    const int64_t first = sw_first_of(a.conv, seq);
    float y = sw_conv_at(a.conv, p, seq, first, t, channel);

    if (a.after) y *= sw_float(a.after[row * p.x.rows.stride + sw_column(p.x, channel)]);
    a.out.d[row * a.out.stride + channel] = sw_round16(y);
    sw_conv_keep_one(a.conv, p, seq, first, channel);
}

/* grid (rows that are kept of all sequences, parts of a row, parts of the convolution) */
static __global__ void swk_conv_keep(sw_conv_args a, int n_kept)
{
    const sw_conv_part &p = a.part[blockIdx.z];
    const int64_t channel = blockIdx.y * (int64_t)N_THREADS + threadIdx.x;
    const int64_t seq = blockIdx.x / n_kept, t = a.seq_len - n_kept + blockIdx.x % n_kept;

    sw_begin();
    if (!p.kept || channel >= p.n) return;
    const int64_t first = sw_first_of(a, seq);

    *sw_kept_at(a, p, seq, first + t, channel) = sw_conv_in(a, p, seq, first, t, channel);
}

extern "C" sw_code sw_cuda_conv_keep(const sw_conv_args *a, sw_launch how, sw_err *err)
{
    const int64_t most = a->n_taps - 1, n_kept = a->seq_len < most ? a->seq_len : most;
    int64_t widest = 0;

    if (a->seq_len == 1) return SW_OK; /* done along the way */
    for (int i = 0; i < a->n_parts; i++)
        if (a->part[i].kept && a->part[i].n > widest) widest = a->part[i].n;
    return sw_start("convolution state", swk_conv_keep,
                    dim3((unsigned)(a->n_seqs * n_kept), sw_blocks(widest, N_THREADS),
                         (unsigned)a->n_parts),
                    N_THREADS, 0, how, err, *a, (int)n_kept);
}

extern "C" sw_code sw_cuda_short_conv(const sw_short_conv_args *a, sw_launch how, sw_err *err)
{
    const dim3 grid((unsigned)(a->conv.n_seqs * a->conv.seq_len),
                    sw_blocks(a->conv.part[0].n, N_THREADS));
    sw_code rc = sw_start("short convolution", swk_short_conv, grid, N_THREADS, 0, how, err, *a);

    return rc == SW_OK ? sw_cuda_conv_keep(&a->conv, how, err) : rc;
}
