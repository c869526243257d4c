/* attention_widen.cu - see attention_widen.h. */
#include "kernels/cuda/attention/attention_widen.h"

#include "kernels/cuda/ops/engine_heads.cuh"

#define N_WARPS 8
#define CTAS_PER_SM 8
#define TILE_MAX 128 /* keys: the first tile that is read may begin so far before those seen */

/* Keys or values: rows of `width` codes, and where they become rows without gaps. */
struct widened {
    const void *from;
    sw_bf16 *to;
    int64_t stride, from_seq, to_seq; /* elements */
    int width;
};

/* The first position of a sequence that its first query sees, or one a little before it. */
static __device__ int64_t begin_of(const sw_attn_args &a, int64_t first)
{
    return max((int64_t)0, first + 1 - sw_keys_seen(a, (int)first) - TILE_MAX);
}

/* grid (some, sequences, keys and values): a warp to a row */
template <typename T>
static __global__ void __launch_bounds__(32 * N_WARPS)
    swk_widen(widened keys, widened values, sw_attn_args a)
{
    const widened &w = blockIdx.z ? values : keys;
    const int64_t seq = blockIdx.y;

    sw_begin();
    const int64_t first = a.first ? a.first[seq] : 0;
    const T *from = (const T *)w.from + seq * w.from_seq;
    sw_bf16 *to = w.to + seq * w.to_seq;
    int64_t row = begin_of(a, first) + blockIdx.x * N_WARPS + threadIdx.x / 32;

    for (; row < first + a.seq_len; row += gridDim.x * N_WARPS)
#pragma unroll 4
        for (int col = (int)(threadIdx.x % 32) * 8; col < w.width; col += 256)
            sw_store8(to + row * w.width + col, sw_load8(from + row * w.stride + col));
}

static int64_t rows_of(const sw_attn_args *a)
{
    if (!a->first) return a->seq_len;
    return a->end ? a->end : a->capacity;
}

static int64_t k_width(const sw_attn_args *a) { return (int64_t)a->n_kv_heads * a->head_dim; }

static int64_t v_width(const sw_attn_args *a) { return (int64_t)a->n_kv_heads * a->v_head_dim; }

extern "C" int64_t sw_attention_widened_bytes(const sw_attn_args *a)
{
    return a->n_seqs * rows_of(a) * (k_width(a) + v_width(a)) * (int64_t)sizeof(sw_bf16);
}

extern "C" sw_code sw_attention_widen(sw_attn_args *a, sw_launch how, sw_err *err)
{
    const int64_t rows = rows_of(a);
    sw_bf16 *k = (sw_bf16 *)a->scratch, *v = k + a->n_seqs * rows * k_width(a);
    const widened keys = {a->k.d, k, a->k.stride, a->k_seq, rows * k_width(a), (int)k_width(a)};
    const widened values = {a->v.d, v, a->v.stride, a->v_seq, rows * v_width(a), (int)v_width(a)};
    const int64_t most = (int64_t)a->n_sms * CTAS_PER_SM;
    const unsigned n = sw_blocks(rows, N_WARPS);
    const sw_code rc =
        sw_start("widen", sw_of_kind(a->kv.kind, swk_widen<sw_bf16>, swk_widen<uint8_t>,
                                     swk_widen<int8_t>),
                 dim3(n < most ? n : (unsigned)most, (unsigned)a->n_seqs, 2), 32 * N_WARPS, 0, how,
                 err, keys, values, *a);

    a->k = {k, k_width(a)};
    a->v = {v, v_width(a)};
    a->k_seq = keys.to_seq;
    a->v_seq = values.to_seq;
    return rc;
}
