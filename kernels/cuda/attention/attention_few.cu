/* attention_few.cu - the launch of attention_few.cuh. */
#include "kernels/cuda/attention/attention_few.h"

#include "kernels/cuda/attention/attention_few.cuh"
#include "kernels/cuda/gemm/tensor_map.cuh"
#include "kernels/cuda/ptx/caches.cuh"

#define CAPACITY_MAX 6144 /* beyond it twice as many CTAs have more requests under way */

static bool is_aligned(const void *p, int64_t stride_bytes)
{
    return (uintptr_t)p % 16 == 0 && stride_bytes % 16 == 0;
}

static bool are_usual(const sw_heads_args *h)
{
    if (!h) return true;
    return (!h->cos || (h->rope_dim == h->head_dim && !h->rope_at && !h->is_paired &&
                        is_aligned(h->cos, 0) && is_aligned(h->sin, 0))) &&
           is_aligned(h->q_norm, 0) && is_aligned(h->k_norm, 0) &&
           is_aligned(h->k.d, 2 * h->k.stride) && is_aligned(h->v.d, 2 * h->v.stride) &&
           is_aligned(h->k_cache, 0) && is_aligned(h->v_cache, 0) && !h->k.d == !h->v.d;
}

extern "C" bool sw_attention_few_suits(const sw_attn_args *a, const sw_heads_args *heads)
{
    return a->sm == 90 && !a->kv.kind && (a->head_dim == 64 || a->head_dim == 128) &&
           a->v_head_dim == a->head_dim && !a->chunk && !(a->cap > 0) &&
           a->n_heads / a->n_kv_heads <= FEW_HEADS && a->capacity <= CAPACITY_MAX &&
           a->n_seqs * a->n_kv_heads * FEW_CTAS <= a->n_sms &&
           is_aligned(a->q.d, 2 * a->q.stride) && are_usual(heads);
}

static sw_code make_maps(few_maps *maps, const sw_attn_args *a, sw_err *err)
{
    sw_heads_map of = {a->k.d, a->head_dim, a->n_kv_heads, a->k_seq / a->k.stride, a->n_seqs,
                       a->k.stride, a->k_seq, 2};
    sw_code rc = sw_tensor_map_heads(&maps->k, &of, TILE_KEYS, err);

    if (rc != SW_OK) return rc;
    of.d_start = a->v.d;
    of.rows = a->v_seq / a->v.stride;
    of.row_pitch = a->v.stride;
    of.seq_pitch = a->v_seq;
    return sw_tensor_map_heads(&maps->v, &of, TILE_KEYS, err);
}

static few_args args_of(const sw_attn_args *a, const sw_heads_args *h)
{
    few_args f = {};

    f.q = a->q;
    f.out = a->out;
    f.first = a->first;
    f.sinks = a->sinks;
    f.n_heads = a->n_heads / a->n_kv_heads;
    f.n_kv_heads = a->n_kv_heads;
    f.window = (int)a->window;
    f.n_slots = a->capacity > FEW_PARTS * TILE_KEYS ? FEW_SLOTS : 1;
    f.scale = a->scale * LOG2_E;
    f.cache_is_there = a->cache_is_there;
    if (!h) return f;
    f.k = h->k;
    f.v = h->v;
    f.k_cache = (sw_bf16 *)h->k_cache;
    f.v_cache = (sw_bf16 *)h->v_cache;
    f.q_norm = h->q_norm;
    f.k_norm = h->k_norm;
    f.cos = h->cos;
    f.sin = h->sin;
    f.capacity = h->capacity;
    f.eps = h->eps;
    f.prepares_queries = h->q.d;
    return f;
}

template <int D>
static sw_code run(const sw_attn_args *a, const sw_heads_args *heads, sw_launch how, sw_err *err)
{
    const few_args f = args_of(a, heads);
    const int n_bytes = f.n_slots * FEW_WARPS * few_state<D>::tile_bytes +
                        (int)sizeof(few_state<D>);
    few_maps maps;
    sw_code rc;

    if (a->n_seqs == 0) return SW_OK;
    if ((rc = make_maps(&maps, a, err)) != SW_OK) return rc;
    rc = sw_device_check((int)cudaFuncSetAttribute(swk_attention_few_sm90<D>,
                                                   cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                   n_bytes),
                         "attention", err);
    if (rc != SW_OK) return rc;
    sw_divide_as_products(swk_attention_few_sm90<D>);
    return sw_start_clusters("attention", swk_attention_few_sm90<D>, FEW_CTAS,
                             dim3(FEW_CTAS, (unsigned)a->n_kv_heads, (unsigned)a->n_seqs),
                             32 * FEW_WARPS, (size_t)n_bytes, how, err, maps, f);
}

extern "C" sw_code sw_cuda_attention_few(const sw_attn_args *a, const sw_heads_args *heads,
                                         sw_launch how, sw_err *err)
{
    return a->head_dim == 64 ? run<64>(a, heads, how, err) : run<128>(a, heads, how, err);
}
