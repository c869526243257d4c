/* engine_decode.cu - attention of one query a sequence over its cache. See engine_ops.h.
 *
 * The keys of a sequence are cut over CTAs, each of which serves up to eight heads that share them.
 * A CTA walks its keys by 64: products of eight lanes a key, weights relative to the running
 * maximum, then sums of values with a lane to two dims. Its partial sums go to scratch; the last
 * CTA of a group to arrive adds them up in the order of the keys, so that the bytes do not depend
 * on which that is.
 */
#define N_THREADS 256
#define N_HEADS_MAX 8
#include "kernels/cuda/engine_decode.cuh"

/* Two rounds of the card. */
static int n_splits(const sw_attn_args *a)
{
    const int64_t groups = a->n_seqs * a->n_kv_heads * head_tiles(a);

    return splits_of(a, (2 * a->n_sms + groups - 1) / groups);
}

extern "C" int64_t sw_cuda_decode_scratch_bytes(const sw_attn_args *a)
{
    return scratch_bytes(a, n_splits(a));
}

/* grid (splits, kv heads x tiles of heads, sequences) */
template <int H, typename T>
static __global__ void __launch_bounds__(N_THREADS)
    swk_attention_decode(sw_attn_args a, sw_heads_args heads, int splits, int64_t counters)
{
    extern __shared__ __align__(16) char s_bytes[];

    sw_begin();
    attend<H, T>(*(shared_state<H> *)s_bytes, a, heads, splits, (int)blockIdx.x,
                 (int)(blockIdx.z * gridDim.y + blockIdx.y), counters);
}

template <int H>
static sw_code run(const sw_attn_args *a, const sw_heads_args *heads, sw_launch how, sw_err *err)
{
    const sw_heads_args none = {};
    const dim3 grid((unsigned)n_splits(a), (unsigned)(a->n_kv_heads * head_tiles(a)),
                    (unsigned)a->n_seqs);

    return sw_start("attention",
                    a->kv.is_e4m3 ? swk_attention_decode<H, uint8_t>
                                  : swk_attention_decode<H, sw_bf16>,
                    grid, N_THREADS, sizeof(shared_state<H>), how, err, sw_settle_scales(a),
                    heads ? *heads : none, n_splits(a), counter_bytes(a));
}

extern "C" sw_code sw_cuda_attention_decode(const sw_attn_args *a, const sw_heads_args *heads,
                                            sw_launch how, sw_err *err)
{
    const int shared = a->n_heads / a->n_kv_heads;

    if (a->head_dim > DIM_MAX || a->v_head_dim > DIM_MAX || a->head_dim % 8 || a->v_head_dim % 8)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "heads of %d and %d; on the card they are multiples "
                       "of 8 up to %d", a->head_dim, a->v_head_dim, DIM_MAX);
    if (shared == 1) return run<1>(a, heads, how, err);
    if (shared == 2) return run<2>(a, heads, how, err);
    return shared <= 4 ? run<4>(a, heads, how, err) : run<8>(a, heads, how, err);
}
