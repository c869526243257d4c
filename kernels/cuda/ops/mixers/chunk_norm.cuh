/* chunk_norm.cuh - the norm and the gate of what came out of chunks: the last of the kernels of
 * chunk_form.cuh. A warp takes 16 columns of 8 tokens at a time, as they lie: a piece.
 */
#ifndef SW_KERNELS_CUDA_OPS_MIXERS_CHUNK_NORM_CUH
#define SW_KERNELS_CUDA_OPS_MIXERS_CHUNK_NORM_CUH

#include "kernels/cuda/ops/mixers/chunk_operand.cuh"

#define SW_NORM_WARPS 8
#define SW_NORM_TOKENS 8
#define SW_NORM_SLICES (SW_FORM_TOKENS / SW_NORM_TOKENS)
#define SW_NORM_PIECES 8 /* that a warp keeps in registers from the sum to the store */

/* What a lane has: element e is of token 2 * (lane % 4) + e % 2 of the warp's and column
 * lane / 4 + e / 2 * 8 of the piece. */
struct sw_norm_piece {
    float x[4], z[4];
};

/* A warp's tokens, and the pieces of a run of heads, of which it has every n_shares-th. */
struct sw_norm_place {
    int64_t row;              /* of the first of its tokens */
    int n_there;              /* tokens that there are */
    int slice, share;         /* which 8 tokens of a chunk, which warp of those that have them */
    int head, n_pieces;
    const float4 *from;       /* the lane's sums of the first head's first tile */
    const sw_bf16 *z[2];      /* of the lane's tokens, or of the last that there is */
};

/* n_shares warps to the same tokens. */
static __device__ __forceinline__ sw_norm_place sw_norm_find(const sw_form_args &a, int n_heads,
                                                             int n_shares)
{
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int all = ((int)blockIdx.x * SW_NORM_WARPS + warp) / n_shares;
    const int chunk = all / SW_NORM_SLICES, seq = a.seq + chunk / a.n_chunks;
    sw_norm_place p;

    p.slice = all % SW_NORM_SLICES;
    p.share = warp % n_shares;
    const int token = chunk % a.n_chunks * SW_FORM_TOKENS + p.slice * SW_NORM_TOKENS;

    p.row = seq * a.walk.conv.seq_len + a.token + token;
    p.n_there = a.n_tokens - token;
    p.head = (int)blockIdx.y * n_heads;
    p.n_pieces = n_heads * a.n_tiles;
    p.from = (const float4 *)sw_form_values_at(a, chunk, p.head, 0) + p.slice * 32 + lane;
    for (int i = 0; i < 2; i++)
        p.z[i] = a.walk.gate.z.rows.d + (p.row + min(lane % 4 * 2 + i, p.n_there - 1)) *
                                            a.walk.gate.z.rows.stride;
    return p;
}

/* Loads do not depend on what is there, so that those of all pieces are under way at once; what is
 * not there becomes 0. */
static __device__ __forceinline__ sw_norm_piece sw_norm_load(const sw_form_args &a,
                                                             const sw_norm_place &p, int piece)
{
    const int lane = (int)threadIdx.x % 32, some = min(piece, p.n_pieces - 1);
    const int head = p.head + some / a.n_tiles;
    const int first = SW_FORM_COLUMNS * (some % a.n_tiles) + lane / 4;
    const float4 four = p.from[some * (sw_form_tile_bytes() / 16)];
    const float x[4] = {four.x, four.y, four.z, four.w};
    sw_norm_piece out;

#pragma unroll
    for (int e = 0; e < 4; e++) {
        const int column = first + e / 2 * 8;
        const int64_t channel = (int64_t)head * a.walk.d_v + min(column, a.walk.d_v - 1);
        const bool is_there = piece == some && column < a.walk.d_v &&
                              lane % 4 * 2 + e % 2 < p.n_there;
        const float z = sw_float(p.z[e % 2][sw_column(a.walk.gate.z, channel)]);

        out.x[e] = is_there ? x[e] : 0;
        out.z[e] = is_there ? z * a.walk.gate.z.scale : 0;
    }
    return out;
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

/* What a lane's two tokens are to be multiplied with, from the sums of all that share them. */
static __device__ __forceinline__ float2 sw_norm_scale(const sw_gate_args &g, float (&sum)[2],
                                                       int n_shares)
{
    __shared__ float s_part[SW_NORM_WARPS * SW_NORM_TOKENS];
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;

#pragma unroll
    for (int i = 0; i < 2; i++) {
#pragma unroll
        for (int step = 4; step < 32; step *= 2) sum[i] += __shfl_xor_sync(~0u, sum[i], step);
        if (lane < 4) s_part[warp * SW_NORM_TOKENS + 2 * lane + i] = sum[i];
    }
    if (n_shares > 1) {
        __syncthreads();
        sum[0] = sum[1] = 0;
        for (int w = warp / n_shares * n_shares, end = w + n_shares; w < end; w++) {
            sum[0] += s_part[w * SW_NORM_TOKENS + lane % 4 * 2];
            sum[1] += s_part[w * SW_NORM_TOKENS + lane % 4 * 2 + 1];
        }
    }
    return make_float2(1.0f / sqrtf(sum[0] / (float)g.group + g.eps),
                       1.0f / sqrtf(sum[1] / (float)g.group + g.eps));
}

/* Two columns of a token, if they are there. */
static __device__ __forceinline__ void sw_norm_put(sw_bf16 *to, int n_columns, uint32_t two)
{
    if (n_columns > 1 && (uintptr_t)to % 4 == 0)
        *(uint32_t *)to = two;
    else if (n_columns > 0) {
        to[0] = (sw_bf16)two;
        if (n_columns > 1) to[1] = (sw_bf16)(two >> 16);
    }
}

static __device__ __forceinline__ void sw_norm_store(const sw_form_args &a,
                                                     const sw_norm_place &p, int piece,
                                                     const sw_norm_piece &x, float2 scale)
{
    const sw_gate_args &g = a.walk.gate;
    const int lane = (int)threadIdx.x % 32, head = p.head + piece / a.n_tiles;
    const int d_v = a.walk.d_v, first = SW_FORM_COLUMNS * (piece % a.n_tiles);

#pragma unroll
    for (int half = 0; half < 2; half++) { /* a lane gets a token's neighbouring columns */
        const int column = first + 8 * half + lane / 4, at = first + 8 * half + lane % 4 * 2;
        const float w = g.w && column < d_v
                            ? g.w[g.w_width == d_v ? column : head * d_v + column]
                            : 1.0f;
        float y[2];

#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int e = 2 * half + i;

            y[i] = x.x[e] * sw_gate_of(g, x.z[e]) * ((i ? scale.y : scale.x) * w);
        }
        const uint32_t two = sw_transposed(sw_pack2(y[0], y[1]));

        if (lane / 4 < p.n_there)
            sw_norm_put(a.walk.out.d + (p.row + lane / 4) * a.walk.out.stride +
                            (int64_t)head * d_v + at,
                        d_v - at, two);
    }
}

/* grid (warps of sequences, chunks, slices of 8 tokens, n_shares to each: in x; runs of n_heads
 * heads). The order of the gate and the norm matters for the sum alone. */
static __global__ void __launch_bounds__(SW_NORM_WARPS * 32)
    swk_chunk_norm(sw_form_args a, int n_heads, int n_shares)
{
    sw_norm_piece own[SW_NORM_PIECES];
    float2 scale = {1, 1};
    float sum[2] = {};

    sw_begin();
    const sw_norm_place p = sw_norm_find(a, n_heads, n_shares);

#pragma unroll
    for (int i = 0; i < SW_NORM_PIECES; i++)
        own[i] = sw_norm_load(a, p, p.share + i * n_shares);
#pragma unroll
    for (int i = 0; i < SW_NORM_PIECES; i++) sw_norm_add(sum, a.walk.gate, own[i]);
    for (int i = p.share + SW_NORM_PIECES * n_shares; i < p.n_pieces; i += n_shares)
        if (a.walk.gate.w) sw_norm_add(sum, a.walk.gate, sw_norm_load(a, p, i));
    if (a.walk.gate.w) scale = sw_norm_scale(a.walk.gate, sum, n_shares);
#pragma unroll
    for (int i = 0; i < SW_NORM_PIECES; i++) {
        const int piece = p.share + i * n_shares;

        if (piece < p.n_pieces) sw_norm_store(a, p, piece, own[i], scale);
    }
    for (int i = p.share + SW_NORM_PIECES * n_shares; i < p.n_pieces; i += n_shares)
        sw_norm_store(a, p, i, sw_norm_load(a, p, i), scale);
}

#endif
