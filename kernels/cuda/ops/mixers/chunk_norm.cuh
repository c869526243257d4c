/* chunk_norm.cuh - the norm and the gate of what came out of chunks: the last of the kernels of
 * chunk_form.cuh. A warp takes 16 columns of 8 tokens at a time, as they lie.
 */
#ifndef SW_KERNELS_CUDA_OPS_MIXERS_CHUNK_NORM_CUH
#define SW_KERNELS_CUDA_OPS_MIXERS_CHUNK_NORM_CUH

#include "kernels/cuda/ops/mixers/chunk_operand.cuh"

#define SW_NORM_WARPS_MAX 8
#define SW_NORM_TOKENS 8

/* What a lane has: element e is of token `row` + e % 2 and column `column` + e / 2 * 8. */
struct sw_norm_piece {
    int column, n_rows;   /* of the head; rows that there are: 0, 1, 2 */
    float x[4], z[4];
};

struct sw_norm_place {
    int64_t chunk, row;   /* of all chunks; of the first of 8 tokens */
    int n_there;          /* of these */
    int slice, head, n_units;
};

static __device__ sw_norm_place sw_norm_find(const sw_form_args &a, int n_heads)
{
    const int item = (int)blockIdx.x / SW_NORM_TOKENS, seq = a.seq + item / a.n_chunks;
    sw_norm_place p;

    p.slice = (int)blockIdx.x % SW_NORM_TOKENS;
    const int token = item % a.n_chunks * SW_FORM_TOKENS + p.slice * SW_NORM_TOKENS;

    p.chunk = item;
    p.row = seq * a.walk.conv.seq_len + a.token + token;
    p.n_there = a.n_tokens - token;
    p.head = (int)blockIdx.y * n_heads;
    p.n_units = n_heads * a.n_tiles;
    return p;
}

static __device__ sw_norm_piece sw_norm_load(const sw_form_args &a, const sw_norm_place &p,
                                             int unit)
{
    const int lane = (int)threadIdx.x % 32, head = p.head + unit / a.n_tiles;
    const int tile = unit % a.n_tiles, token = lane % 4 * 2;
    const sw_gate_args &g = a.walk.gate;
    const float4 four = ((const float4 *)sw_form_values_at(a, p.chunk, head,
                                                           tile))[p.slice * 32 + lane];
    sw_norm_piece x = {};

    x.x[0] = four.x, x.x[1] = four.y, x.x[2] = four.z, x.x[3] = four.w;
    x.n_rows = min(2, p.n_there - token);
    x.column = SW_FORM_COLUMNS * tile + lane / 4;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int column = x.column + 8 * half;
        const sw_bf16 *z = g.z.rows.d + (p.row + token) * g.z.rows.stride +
                           sw_column(g.z, (int64_t)head * a.walk.d_v + column);

#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; e++) {
            if (e % 2 < x.n_rows && column < a.walk.d_v)
                x.z[e] = sw_float(z[e % 2 * g.z.rows.stride]) * g.z.scale;
            else
                x.x[e] = 0;
        }
    }
    return x;
}

static __device__ __forceinline__ void sw_norm_add(float (&sum)[2], const sw_gate_args &g,
                                                   const sw_norm_piece &x)
{
#pragma unroll
    for (int e = 0; e < 4; e++) {
        const float y = sw_gate_before(g, x.x[e], x.z[e]);

        sum[e % 2] += y * y;
    }
}

/* What a lane's two tokens are to be multiplied with, from all of a block's sums. */
static __device__ float2 sw_norm_scale(const sw_gate_args &g, float (&sum)[2], float *s_part)
{
    const int lane = (int)threadIdx.x % 32, n_warps = (int)blockDim.x / 32;

#pragma unroll
    for (int i = 0; i < 2; i++) {
#pragma unroll
        for (int step = 4; step < 32; step *= 2) sum[i] += __shfl_xor_sync(~0u, sum[i], step);
        if (lane < 4) s_part[(int)threadIdx.x / 32 * SW_NORM_TOKENS + 2 * lane + i] = sum[i];
    }
    __syncthreads();
    sum[0] = sum[1] = 0;
    for (int w = 0; w < n_warps; w++) {
        sum[0] += s_part[w * SW_NORM_TOKENS + lane % 4 * 2];
        sum[1] += s_part[w * SW_NORM_TOKENS + lane % 4 * 2 + 1];
    }
    return make_float2(1.0f / sqrtf(sum[0] / (float)g.group + g.eps),
                       1.0f / sqrtf(sum[1] / (float)g.group + g.eps));
}

/* Two columns of a token, if they are there. */
static __device__ void sw_norm_put(const sw_form_args &a, int64_t row, int head, int column,
                                   uint32_t two)
{
    sw_bf16 *to = a.walk.out.d + row * a.walk.out.stride + (int64_t)head * a.walk.d_v + column;

    if (column + 1 < a.walk.d_v && (uintptr_t)to % 4 == 0)
        *(uint32_t *)to = two;
    else if (column < a.walk.d_v) {
        to[0] = (sw_bf16)two;
        if (column + 1 < a.walk.d_v) to[1] = (sw_bf16)(two >> 16);
    }
}

static __device__ void sw_norm_store(const sw_form_args &a, const sw_norm_place &p, int unit,
                                     const sw_norm_piece &x, float2 scale)
{
    const sw_gate_args &g = a.walk.gate;
    const int lane = (int)threadIdx.x % 32, column = unit % a.n_tiles * SW_FORM_COLUMNS;
    const int head = p.head + unit / a.n_tiles, channel = head * a.walk.d_v + x.column;

#pragma unroll
    for (int half = 0; half < 2; half++) { /* a lane gets a token's neighbouring columns */
        const int at = g.w ? (int)((unsigned)(channel + 8 * half) % (unsigned)g.w_width) : 0;
        float y[2];

#pragma unroll
        for (int i = 0; i < 2; i++) {
            const float z = x.z[2 * half + i];

            y[i] = sw_gate_after(g, sw_gate_before(g, x.x[2 * half + i], z),
                                 i ? scale.y : scale.x, z, at);
        }
        const uint32_t two = sw_transposed(sw_pack2(y[0], y[1]));

        if (lane / 4 < p.n_there)
            sw_norm_put(a, p.row + lane / 4, head, column + 8 * half + lane % 4 * 2, two);
    }
}

/* grid (sequences, chunks, 8 times 8 tokens: in x; runs of n_heads heads). A warp's first piece
 * stays in registers from the sum to the store. */
static __global__ void __launch_bounds__(SW_NORM_WARPS_MAX * 32)
    swk_chunk_norm(sw_form_args a, int n_heads)
{
    __shared__ float s_part[SW_NORM_WARPS_MAX * SW_NORM_TOKENS];
    const int warp = (int)threadIdx.x / 32, n_warps = (int)blockDim.x / 32;
    float2 scale = {1, 1};

    sw_begin();
    const sw_norm_place p = sw_norm_find(a, n_heads);

    if (p.n_there <= 0) return;
    const sw_norm_piece own = sw_norm_load(a, p, warp);

    if (a.walk.gate.w) {
        float sum[2] = {};

        sw_norm_add(sum, a.walk.gate, own);
        for (int unit = warp + n_warps; unit < p.n_units; unit += n_warps)
            sw_norm_add(sum, a.walk.gate, sw_norm_load(a, p, unit));
        scale = sw_norm_scale(a.walk.gate, sum, s_part);
    }
    sw_norm_store(a, p, warp, own, scale);
    for (int unit = warp + n_warps; unit < p.n_units; unit += n_warps)
        sw_norm_store(a, p, unit, sw_norm_load(a, p, unit), scale);
}

#endif
