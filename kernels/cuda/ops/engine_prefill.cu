/* engine_prefill.cu - causal attention of many queries on the tensor cores of any device. See
 * engine_ops.h.
 *
 * A CTA of four warps takes 64 queries of one head, a warp 16 of them, and walks the keys in tiles
 * with the running maximum of Milakov and Gimelshein, Online normalizer calculation for softmax
 * (2018), in the arrangement of Dao, FlashAttention-2 (2023): scores, weights and sums stay in
 * registers, the weights of a tile become the A operand of the product with the values. Copies of
 * the next tile run under the products of this one.
 *
 *   products   S [16, keys] = Q K^T     ldmatrix of Q and K rows
 *              O [16, dims] += P V      ldmatrix.trans of V rows
 */
#include <math.h>

#include "kernels/cuda/ops/engine_heads.cuh"
#include "kernels/cuda/ptx/ptx_mma.cuh"

#define N_WARPS 4
#define N_QUERIES (16 * N_WARPS)
#define LOG2_E 1.4426950408889634f

/* Queries and keys of D elements; a CTA sums up to 256 of a value's, so wider heads have two. */
template <int D> struct cut {
    static constexpr int n_keys = D > 128 ? 32 : 64; /* of a tile, so that two CTAs fit */
    static constexpr int pitch = D + 8;              /* elements: no two rows of 8 share a bank */
    static constexpr int v_dim = D > 256 ? 256 : D;
    static constexpr int v_pitch = v_dim + 8;
    static constexpr int shared_bytes = ((N_QUERIES + n_keys) * pitch + n_keys * v_pitch) * 2;
};

static __device__ uint32_t shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

static __device__ void copy16(void *s_to, const void *from, bool is_there)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(s_to)),
                 "l"(from), "r"(is_there ? 16 : 0)
                 : "memory");
}

static __device__ void end_copies(void) { asm volatile("cp.async.commit_group;" ::: "memory"); }

/* All but the latest N groups of copies of this thread have ended. */
template <int N> static __device__ void await_copies(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

static __device__ void load4(uint32_t (&r)[4], const sw_bf16 *s_row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(s_row)));
}

static __device__ void load4_transposed(uint32_t (&r)[4], const sw_bf16 *s_row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(s_row)));
}

/* n_rows rows of `dim` elements, W at most, into a tile; what lies outside becomes zero. */
template <int W>
static __device__ void load_tile(sw_bf16 *s_tile, const sw_bf16 *from, int64_t stride, int n_rows,
                                 int64_t n_there, int dim)
{
    for (int i = (int)threadIdx.x; i < n_rows * (W / 8); i += 32 * N_WARPS) {
        const int row = i / (W / 8), col = i % (W / 8) * 8;
        const bool is_there = row < n_there && col < dim;

        copy16(s_tile + row * (W + 8) + col, is_there ? from + row * stride + col : from,
               is_there);
    }
}

/* Codes become BF16, which holds them all, on the way. */
template <int W, typename T>
static __device__ void load_tile(sw_bf16 *s_tile, const T *from, int64_t stride, int n_rows,
                                 int64_t n_there, int dim)
{
    for (int i = (int)threadIdx.x; i < n_rows * (W / 8); i += 32 * N_WARPS) {
        const int row = i / (W / 8), col = i % (W / 8) * 8;
        sw_eight e = {};

        if (row < n_there && col < dim) e = sw_load8(from + row * stride + col);
        sw_store8(s_tile + row * (W + 8) + col, e);
    }
}

/* What a warp carries from tile to tile. */
template <int D> struct rows16 {
    float out[cut<D>::v_dim / 8][4];
    float top[2], sum[2]; /* of rows g and g + 8; sum is this lane's share */
};

template <int D>
static __device__ void score_tile(float (&s)[cut<D>::n_keys / 8][4], const sw_bf16 *s_q,
                                  const sw_bf16 *s_k)
{
    const int lane = threadIdx.x % 32, matrix = lane / 8, line = lane % 8;
    const sw_bf16 *q = s_q + (matrix % 2 * 8 + line) * cut<D>::pitch + matrix / 2 * 8;
    const sw_bf16 *k = s_k + (matrix / 2 * 8 + line) * cut<D>::pitch + matrix % 2 * 8;

#pragma unroll
    for (int n = 0; n < cut<D>::n_keys / 8; n++)
        for (int i = 0; i < 4; i++) s[n][i] = 0;
#pragma unroll
    for (int at = 0; at < D; at += 16) {
        uint32_t a[4], b[4];

        load4(a, q + at);
#pragma unroll
        for (int n = 0; n < cut<D>::n_keys / 16; n++) {
            load4(b, k + n * 16 * cut<D>::pitch + at);
            sw_mma_bf16(s[2 * n], a, b[0], b[1]);
            sw_mma_bf16(s[2 * n + 1], a, b[2], b[3]);
        }
    }
}

/* Scores of keys that a query may not see become -inf; of the others, in powers of two. */
template <int D>
static __device__ void mask_tile(float (&s)[cut<D>::n_keys / 8][4], const sw_attn_args &a,
                                 float slope, int position, int key0)
{
    const int column = threadIdx.x % 4 * 2;
    const int seen[2] = {sw_keys_seen(a, position), sw_keys_seen(a, position + 8)};

#pragma unroll
    for (int n = 0; n < cut<D>::n_keys / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int behind = position + i / 2 * 8 - (key0 + n * 8 + column + i % 2);
            float v = s[n][i] * a.scale;

            if (slope != 0) v -= slope * (float)behind;
            if (a.cap > 0) v = a.cap * tanhf(v / a.cap);
            s[n][i] = behind < 0 || behind >= seen[i / 2] ? -INFINITY : v * LOG2_E;
        }
}

/* The same where every query sees every key and nothing but the scale is wanted. */
template <int D>
static __device__ void scale_tile(float (&s)[cut<D>::n_keys / 8][4], float scale)
{
#pragma unroll
    for (int n = 0; n < cut<D>::n_keys / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) s[n][i] = s[n][i] * scale * LOG2_E;
}

/* Of queries from `first` on, the thread's beginning with `mine` of them. */
template <int D>
static __device__ void prepare_tile(float (&s)[cut<D>::n_keys / 8][4], const sw_attn_args &a,
                                    float slope, int first, int mine, int key0)
{
    const bool is_plain = slope == 0 && !(a.cap > 0) && !a.chunk && !a.window;

    if (is_plain && key0 + cut<D>::n_keys <= first + 1) scale_tile<D>(s, a.scale);
    else mask_tile<D>(s, a, slope, first + mine, key0);
}

/* Scores to weights relative to the running maximum; `rows` is rescaled where that has grown. */
template <int D>
static __device__ void weigh_tile(float (&s)[cut<D>::n_keys / 8][4], rows16<D> &rows)
{
    float peak[2] = {rows.top[0], rows.top[1]}, shrink[2];

#pragma unroll
    for (int n = 0; n < cut<D>::n_keys / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) peak[i / 2] = fmaxf(peak[i / 2], s[n][i]);
#pragma unroll
    for (int r = 0; r < 2; r++) {
        peak[r] = fmaxf(peak[r], __shfl_xor_sync(~0u, peak[r], 1));
        peak[r] = fmaxf(peak[r], __shfl_xor_sync(~0u, peak[r], 2));
        shrink[r] = peak[r] == -INFINITY ? 1.0f : exp2f(rows.top[r] - peak[r]);
        rows.top[r] = peak[r];
        rows.sum[r] *= shrink[r];
    }
#pragma unroll
    for (int n = 0; n < cut<D>::n_keys / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            s[n][i] = peak[i / 2] == -INFINITY ? 0.0f : exp2f(s[n][i] - peak[i / 2]);
            rows.sum[i / 2] += s[n][i];
        }
    if (__all_sync(~0u, shrink[0] == 1.0f && shrink[1] == 1.0f)) return;
#pragma unroll
    for (int n = 0; n < cut<D>::v_dim / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) rows.out[n][i] *= shrink[i / 2];
}

template <int D>
static __device__ void add_values(rows16<D> &rows, const float (&s)[cut<D>::n_keys / 8][4],
                                  const sw_bf16 *s_v)
{
    const int lane = threadIdx.x % 32, matrix = lane / 8, line = lane % 8;
    const sw_bf16 *v = s_v + (matrix % 2 * 8 + line) * cut<D>::v_pitch + matrix / 2 * 8;

#pragma unroll
    for (int k = 0; k < cut<D>::n_keys / 16; k++) {
        const uint32_t a[4] = {sw_pack2(s[2 * k][0], s[2 * k][1]),
                               sw_pack2(s[2 * k][2], s[2 * k][3]),
                               sw_pack2(s[2 * k + 1][0], s[2 * k + 1][1]),
                               sw_pack2(s[2 * k + 1][2], s[2 * k + 1][3])};
        uint32_t b[4];

#pragma unroll
        for (int n = 0; n < cut<D>::v_dim / 16; n++) {
            load4_transposed(b, v + k * 16 * cut<D>::v_pitch + n * 16);
            sw_mma_bf16(rows.out[2 * n], a, b[0], b[1]);
            sw_mma_bf16(rows.out[2 * n + 1], a, b[2], b[3]);
        }
    }
}

template <int D>
static __device__ void store_rows(const rows16<D> &rows, const sw_attn_args &a, sw_bf16 *out,
                                  int64_t row0, int v_dim)
{
    const int lane = threadIdx.x % 32;

#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int64_t row = row0 + lane / 4 + 8 * r;
        float sum = rows.sum[r];

        sum += __shfl_xor_sync(~0u, sum, 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        sum /= a.kv.v_scale;
        if (row >= a.seq_len) continue;
#pragma unroll
        for (int n = 0; n < cut<D>::v_dim / 8; n++) {
            const int col = n * 8 + lane % 4 * 2;

            if (col < v_dim)
                *(uint32_t *)(out + row * a.out.stride + col) =
                    sw_pack2(rows.out[n][2 * r] / sum, rows.out[n][2 * r + 1] / sum);
        }
    }
}

/* grid (query tiles, heads, of wide ones each half of the values, sequences); the longest rows
 * first */
template <int D, typename T>
static __global__ void __launch_bounds__(32 * N_WARPS)
    swk_attention(sw_attn_args a, const float *slopes)
{
    extern __shared__ __align__(16) sw_bf16 s_all[];
    constexpr int n_keys = cut<D>::n_keys;
    sw_bf16 *s_q = s_all, *s_k = s_q + N_QUERIES * cut<D>::pitch;
    sw_bf16 *s_v = s_k + n_keys * cut<D>::pitch;
    constexpr int halves = D / cut<D>::v_dim;
    const int head = blockIdx.y / halves, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int v_at = blockIdx.y % halves * cut<D>::v_dim, v_dim = a.v_head_dim - v_at;
    const int64_t seq = blockIdx.z, row0 = (int64_t)(gridDim.x - 1 - blockIdx.x) * N_QUERIES;
    rows16<D> rows;
    float s[n_keys / 8][4];

    sw_begin();
    const int64_t first = a.first ? a.first[seq] : 0, n_there = first + a.seq_len;
    const int64_t end = min(n_there, first + row0 + N_QUERIES);
    const int64_t oldest =
        max((int64_t)0, first + row0 + 1 - sw_keys_seen(a, (int)(first + row0)));
    const int kv_head = head / (a.n_heads / a.n_kv_heads);
    const T *k = (const T *)a.k.d + seq * a.k_seq + (int64_t)kv_head * a.head_dim;
    const T *v = (const T *)a.v.d + seq * a.v_seq + (int64_t)kv_head * a.v_head_dim +
                 v_at;
    const int64_t key_begin = oldest / n_keys * n_keys;
    const float sink = a.sinks ? a.sinks[head] * LOG2_E : -INFINITY;
    const float slope = slopes ? slopes[head] : 0.0f;

    for (int r = 0; r < 2; r++) {
        rows.top[r] = sink;
        rows.sum[r] = a.sinks && lane % 4 == 0 ? 1.0f : 0.0f;
    }
#pragma unroll
    for (int n = 0; n < cut<D>::v_dim / 8; n++)
        for (int i = 0; i < 4; i++) rows.out[n][i] = 0;
    load_tile<D>(s_q, a.q.d + (seq * a.seq_len + row0) * a.q.stride + (int64_t)head * a.head_dim,
                 a.q.stride, N_QUERIES, a.seq_len - row0, a.head_dim);
    load_tile<D>(s_k, k + key_begin * a.k.stride, a.k.stride, n_keys, n_there - key_begin,
                 a.head_dim);
    end_copies();
    for (int64_t key = key_begin; key < end; key += n_keys) {
        load_tile<cut<D>::v_dim>(s_v, v + key * a.v.stride, a.v.stride, n_keys, n_there - key,
                                 v_dim);
        end_copies();
        await_copies<1>();
        __syncthreads();
        score_tile<D>(s, s_q + warp * 16 * cut<D>::pitch, s_k);
        prepare_tile<D>(s, a, slope, (int)(first + row0), warp * 16 + lane / 4, (int)key);
        weigh_tile<D>(s, rows);
        __syncthreads();
        if (key + n_keys < end)
            load_tile<D>(s_k, k + (key + n_keys) * a.k.stride, a.k.stride, n_keys,
                         n_there - key - n_keys, a.head_dim);
        end_copies();
        await_copies<1>();
        __syncthreads();
        add_values<D>(rows, s, s_v);
        __syncthreads();
    }
    store_rows<D>(rows, a,
                  a.out.d + seq * a.seq_len * a.out.stride + (int64_t)head * a.v_head_dim + v_at,
                  row0 + warp * 16, v_dim);
}

template <int D, typename T>
static sw_code run(const sw_attn_args *a, const float *slopes, sw_launch how, sw_err *err)
{
    const dim3 grid(sw_blocks(a->seq_len, N_QUERIES),
                    (unsigned)(a->n_heads * (D / cut<D>::v_dim)), (unsigned)a->n_seqs);
    sw_code rc =
        sw_device_check((int)cudaFuncSetAttribute(swk_attention<D, T>,
                                                  cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                  cut<D>::shared_bytes),
                        "attention", err);

    if (rc != SW_OK) return rc;
    return sw_start("attention", swk_attention<D, T>, grid, 32 * N_WARPS, cut<D>::shared_bytes, how,
                    err, sw_settle_scales(a), slopes);
}

template <int D>
static sw_code run_dim(const sw_attn_args *a, const float *slopes, sw_launch how, sw_err *err)
{
    return sw_of_kind(a->kv.kind, run<D, sw_bf16>, run<D, uint8_t>, run<D, int8_t>)(a, slopes, how,
                                                                                    err);
}

extern "C" sw_code sw_cuda_attention_mma(const sw_attn_args *a, const float *slopes, sw_launch how,
                                         sw_err *err)
{
    const int dim = a->head_dim > a->v_head_dim ? a->head_dim : a->v_head_dim;

    if (dim > SW_HEAD_DIM_MAX || a->head_dim % 8 || a->v_head_dim % 8)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "heads of %d and %d; on the device they are "
                       "multiples of 8 up to %d", a->head_dim, a->v_head_dim, SW_HEAD_DIM_MAX);
    if (dim <= 64) return run_dim<64>(a, slopes, how, err);
    if (dim <= 128) return run_dim<128>(a, slopes, how, err);
    return dim <= 256 ? run_dim<256>(a, slopes, how, err) : run_dim<512>(a, slopes, how, err);
}
