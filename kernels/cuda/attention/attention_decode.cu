/* attention_decode.cu - the choice and the launch of attention_decode.cuh. */
#include "kernels/cuda/attention/attention_decode.h"

#include "kernels/cuda/attention/attention_decode.cuh"
#include "kernels/cuda/attention/attention_few.h"
#include "kernels/cuda/gemm/tensor_map.cuh"

#define KEYS_MAX 65536 /* of all sequences */
#define GPC_SMS 16     /* at least */

static int elem_bytes(const sw_attn_args *a) { return a->kv.kind ? 1 : 2; }

/* The copy engine wants multiples of 16 bytes, and sequences in whole rows. */
static bool is_readable(const sw_attn_args *a, const sw_bf16_rows *rows, int64_t seq_elems, int dim)
{
    return (uintptr_t)rows->d % 16 == 0 && dim * elem_bytes(a) % 16 == 0 && rows->stride > 0 &&
           rows->stride * elem_bytes(a) % 16 == 0 && seq_elems % rows->stride == 0 &&
           seq_elems / rows->stride >= a->capacity && seq_elems / rows->stride <= INT32_MAX - 256;
}

extern "C" bool sw_attention_decode_can_run(const sw_attn_args *a)
{
    return a->sm == 90 && a->n_sms > 0 && a->head_dim <= 256 && a->v_head_dim <= 256 &&
           is_readable(a, &a->k, a->k_seq, a->head_dim) &&
           is_readable(a, &a->v, a->v_seq, a->v_head_dim);
}

/* Where it was faster: heads of 128 and more that share keys; others up to a CTA a multiprocessor,
 * since 32 heads of 64 over long caches took twice as long. */
static bool is_faster(const sw_attn_args *a)
{
    const bool is_short = a->n_seqs * a->capacity <= KEYS_MAX && n_groups(a) <= a->n_sms;

    return is_short || (a->head_dim >= 128 && a->v_head_dim >= 128 && a->n_heads > a->n_kv_heads);
}

static sw_code make_maps(decode_maps *maps, const sw_attn_args *a, sw_err *err)
{
    const sw_heads_map k = {a->k.d, a->head_dim, a->n_kv_heads, a->k_seq / a->k.stride, a->n_seqs,
                            a->k.stride, a->k_seq, elem_bytes(a)};
    const sw_heads_map v = {a->v.d, a->v_head_dim, a->n_kv_heads, a->v_seq / a->v.stride,
                            a->n_seqs, a->v.stride, a->v_seq, elem_bytes(a)};
    sw_code rc = sw_tensor_map_heads(&maps->k, &k, TILE_KEYS, err);

    return rc != SW_OK ? rc : sw_tensor_map_heads(&maps->v, &v, TILE_KEYS, err);
}

/* CTAs of a cluster: all parts of a group's keys, or one where they are more. A cluster lies within
 * a GPC, of 16 multiprocessors or more; one that does not fit would wait for another to end. The
 * kernel ahead leaves multiprocessors one by one: more than a pair find enough of them free at once
 * where they take half of the device at most. */
static unsigned cluster_of(const sw_attn_args *a)
{
    const int splits = n_splits(a), n_gpcs = a->n_sms / GPC_SMS / (splits > 2 ? 2 : 1);
    const int64_t n_fit = splits > NEAR_MAX ? 0 : n_gpcs * (GPC_SMS / splits);

    return n_groups(a) <= n_fit ? (unsigned)splits : 1;
}

template <typename T, int D, int WARPS, bool CHUNKED> struct copied_launch {
    static sw_code run(const sw_attn_args *a, const sw_heads_args *heads, sw_launch how,
                       sw_err *err)
    {
        const sw_heads_args none = {};
        const dim3 grid((unsigned)n_splits(a), (unsigned)(a->n_kv_heads * head_tiles(a)),
                        (unsigned)a->n_seqs);
        const auto kernel = swk_attention_decode_sm90<T, D, WARPS, CHUNKED>;
        const int shared_bytes = (int)sizeof(copied_state<T, D, WARPS>);
        decode_maps maps;
        sw_code rc;

        if (a->n_seqs == 0) return SW_OK;
        if ((rc = make_maps(&maps, a, err)) != SW_OK ||
            (rc = allow_shared((const void *)kernel, shared_bytes, err)) != SW_OK)
            return rc;
        return sw_start_clusters("attention", kernel, cluster_of(a), grid, 32 * WARPS,
                                 (size_t)shared_bytes, how, err, maps, sw_settle_scales(a),
                                 heads ? *heads : none, n_splits(a), counter_bytes(a));
    }
};

extern "C" sw_code sw_cuda_attention_decode_copied(const sw_attn_args *a,
                                                   const sw_heads_args *heads, sw_launch how,
                                                   sw_err *err)
{
    if (sw_attention_few_suits(a, heads)) return sw_cuda_attention_few(a, heads, how, err);
    return run_decode<copied_launch>(a, heads, how, err);
}

extern "C" sw_code sw_cuda_attention_decode(const sw_attn_args *a, const sw_heads_args *heads,
                                            sw_launch how, sw_err *err)
{
    return sw_attention_decode_can_run(a) && is_faster(a)
               ? sw_cuda_attention_decode_copied(a, heads, how, err)
               : sw_cuda_attention_decode_any(a, heads, how, err);
}
