/* attention_wgmma.cu - the choice and the launch of attention_wgmma.cuh. */
#include "kernels/cuda/attention/attention_wgmma.h"

#include "kernels/cuda/attention/attention_wgmma.cuh"
#include "kernels/cuda/attention/attention_widen.h"
#include "kernels/cuda/gemm/tensor_map.cuh"
#include "kernels/cuda/ops/engine_heads.cuh"
#include "kernels/cuda/runtime/cuda_check.h"

#define LOG2_E 1.4426950408889634f
#define SECTION_BYTES ((int64_t)24 << 20) /* of keys and values: half of an L2 of 50 MB */

/* Rows of a sequence's keys or values, 0 where they do not lie in rows. */
static int64_t n_rows(const sw_bf16_rows *rows, int64_t seq_elems)
{
    return rows->stride > 0 && seq_elems % rows->stride == 0 ? seq_elems / rows->stride : 0;
}

/* The copy engine wants multiples of 16 bytes. */
static bool is_aligned(const sw_bf16_rows *rows)
{
    return (uintptr_t)rows->d % 16 == 0 && rows->stride % 8 == 0;
}

/* Has it such heads? */
static bool has_heads(const sw_attn_args *a)
{
    return a->sm == 90 && a->n_sms > 0 && !(a->cap > 0) && a->head_dim <= 256 &&
           a->v_head_dim <= 256 && a->head_dim % 8 == 0 && a->v_head_dim % 8 == 0;
}

extern "C" int64_t sw_attention_wide_bytes(const sw_attn_args *a)
{
    return a->kv.kind && has_heads(a) ? sw_attention_widened_bytes(a) : 0;
}

/* Codes that can be widened: a warp loads eight a lane. */
static bool can_widen(const sw_attn_args *a)
{
    return a->scratch && a->scratch_bytes >= sw_attention_widened_bytes(a) &&
           ((uintptr_t)a->k.d | (uintptr_t)a->v.d | (uintptr_t)a->k.stride |
            (uintptr_t)a->v.stride) % 8 == 0;
}

extern "C" bool sw_attention_wgmma_can_run(const sw_attn_args *a, const float *slopes)
{
    if (!has_heads(a) || slopes || !(a->scale > 0) || a->seq_len > INT32_MAX - 256 ||
        !is_aligned(&a->q) || !is_aligned(&a->out))
        return false;
    if (a->kv.kind) return can_widen(a);
    return is_aligned(&a->k) && is_aligned(&a->v) && n_rows(&a->k, a->k_seq) >= a->seq_len &&
           n_rows(&a->v, a->v_seq) >= a->seq_len;
}

static sw_code make_maps(aw_maps *maps, const sw_attn_args *a, int rows, int keys, sw_err *err)
{
    const sw_heads_map q = {a->q.d, a->head_dim, a->n_heads, a->seq_len, a->n_seqs, a->q.stride,
                            a->seq_len * a->q.stride, 2};
    const sw_heads_map k = {a->k.d, a->head_dim, a->n_kv_heads, n_rows(&a->k, a->k_seq),
                            a->n_seqs, a->k.stride, a->k_seq, 2};
    const sw_heads_map v = {a->v.d, a->v_head_dim, a->n_kv_heads, n_rows(&a->v, a->v_seq),
                            a->n_seqs, a->v.stride, a->v_seq, 2};
    const sw_heads_map out = {a->out.d, a->v_head_dim, a->n_heads, a->seq_len, a->n_seqs,
                              a->out.stride, a->seq_len * a->out.stride, 2};
    sw_code rc;

    if ((rc = sw_tensor_map_heads(&maps->q, &q, rows, err)) != SW_OK ||
        (rc = sw_tensor_map_heads(&maps->k, &k, keys, err)) != SW_OK ||
        (rc = sw_tensor_map_heads(&maps->v, &v, keys, err)) != SW_OK)
        return rc;
    return sw_tensor_map_heads(&maps->out, &out, 64, err);
}

static aw_args plan(const sw_attn_args *a, int rows)
{
    const int64_t group_bytes =
        n_rows(&a->k, a->k_seq) * 2 * (a->head_dim + a->v_head_dim);
    const int64_t n_groups = a->n_seqs * a->n_kv_heads;
    const int64_t section = SECTION_BYTES / group_bytes;
    aw_args p = {};

    p.sinks = a->sinks;
    p.first = a->first;
    p.seq_len = (int)a->seq_len;
    p.n_kv_heads = a->n_kv_heads;
    p.heads_per_kv = a->n_heads / a->n_kv_heads;
    p.window = a->window > INT32_MAX ? 0 : (int)a->window;
    p.chunk = a->chunk;
    p.factor = a->scale * LOG2_E;
    p.out_factor = a->kv.v_scale;
    p.n_blocks = (int)sw_blocks(a->seq_len, rows);
    p.n_groups = (int)n_groups;
    p.section = (int)(section < 1 ? 1 : section < n_groups ? section : n_groups);
    return p;
}

template <class P>
static sw_code run(const sw_attn_args *a, sw_launch how, sw_err *err)
{
    const aw_args args = plan(a, P::rows);
    const int64_t n_units = (int64_t)args.n_groups * args.heads_per_kv * args.n_blocks;
    aw_maps maps;
    sw_code rc;

    if (n_units == 0) return SW_OK;
    if ((rc = sw_checked_fill(a->out.d, a->out.stride * 2, (int64_t)a->n_heads * a->v_head_dim * 2,
                              a->n_seqs * a->seq_len, how.stream, err)) != SW_OK ||
        (rc = make_maps(&maps, a, P::rows, P::KEYS, err)) != SW_OK ||
        (rc = sw_device_check((int)cudaFuncSetAttribute(swk_attention_sm90<P>,
                                                        cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                        P::shared_bytes),
                              "attention", err)) != SW_OK)
        return rc;
    return sw_start("attention", swk_attention_sm90<P>,
                    dim3((unsigned)(n_units < a->n_sms ? n_units : a->n_sms)), P::threads,
                    P::shared_bytes, how, err, maps, args);
}

extern "C" sw_code sw_cuda_attention(const sw_attn_args *a, const float *slopes, sw_launch how,
                                     sw_err *err)
{
    if (!sw_attention_wgmma_can_run(a, slopes)) return sw_cuda_attention_mma(a, slopes, how, err);
    const int dim = a->head_dim > a->v_head_dim ? a->head_dim : a->v_head_dim;
    sw_attn_args wide = sw_settle_scales(a);
    sw_code rc = a->kv.kind ? sw_attention_widen(&wide, how, err) : SW_OK;

    if (rc != SW_OK) return rc;
    if (dim <= 64) return run<aw_cut<64, 64, 128, 3, 4>>(&wide, how, err);
    if (dim <= 128) return run<aw_cut<128, 128, 128, 2, 2>>(&wide, how, err);
    if (dim <= 192 && a->v_head_dim <= 128)
        return run<aw_cut<192, 128, 128, 2, 2>>(&wide, how, err);
    return run<aw_cut<256, 256, 80, 2, 2>>(&wide, how, err);
}
