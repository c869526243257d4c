/* division.cuh - products of few tokens: how CTAs share out the strips of channels, two CTAs a
 * multiprocessor and as many strips on each: one that has more than another reads on when that is
 * done. */
#ifndef SW_KERNELS_CUDA_DECODE_DIVISION_CUH
#define SW_KERNELS_CUDA_DECODE_DIVISION_CUH

#include "kernels/cuda/ops/engine_launch.cuh"

/* So many strips each of the first CTAs has, one on each multiprocessor, and each that is second
 * there. */
struct division {
    int first, second;
};

struct strips {
    int begin, n;
};

/* Of the CTA; the last may have fewer. */
static __device__ strips strips_of(int n_sms, const division &d)
{
    const int at = (int)blockIdx.x, behind = at - n_sms;

    if (behind < 0) return {at * d.first, d.first};
    return {n_sms * d.first + behind * d.second, d.second};
}

static division divide(int64_t n_strips, int n_sms)
{
    const int each = (int)sw_blocks(n_strips, n_sms), first = (each + 1) / 2;

    return {first, each > first ? each - first : 1};
}

/* CTAs of it. */
static unsigned ctas_of(int64_t n_strips, int n_sms, const division &d)
{
    const int64_t behind = n_strips - (int64_t)n_sms * d.first;

    if (behind <= 0) return sw_blocks(n_strips, d.first);
    return (unsigned)n_sms + sw_blocks(behind, d.second);
}

#endif
