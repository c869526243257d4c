/* engine_key_ranks.cu - scores of all keys that queries may choose of. See engine_chosen.h.
 *
 * A block takes one query and 64 keys at a time. The query's heads are the rows of a product on
 * tensor cores, 16 to a warp, the keys its columns; what a head adds is taken from the registers
 * that the product leaves it in, and summed over the lanes, the warps and further heads in a fixed
 * order. Products are nowhere written: a text of 128k keys has 64 heads times as many.
 */
#include "kernels/cuda/ops/engine_key_choose.cuh"
#include "kernels/cuda/ops/engine_launch.cuh"
#include "kernels/cuda/ptx/ptx_mma.cuh"

#define N_WARPS 4
#define HEADS (16 * N_WARPS)
#define KEYS 64
#define DIMS 128        /* of a head at once */
#define PITCH (DIMS + 8) /* elements: no two rows of 8 share a bank */
#define TILES_MOST 65535 /* blocks to a query */

struct rank_state {
    sw_bf16 q[HEADS * PITCH], keys[KEYS * PITCH];
    float sums[N_WARPS][KEYS];
};

/* Rows `stride` apart into a tile: DIMS columns or n_cols, n_there rows; zeros for the others. */
static __device__ void load_rows(sw_bf16 *s_tile, const sw_bf16 *from, int64_t stride, int n_rows,
                                 int64_t n_there, int64_t n_cols)
{
    for (int i = (int)threadIdx.x; i < n_rows * (DIMS / 8); i += 32 * N_WARPS) {
        const int row = i / (DIMS / 8), col = i % (DIMS / 8) * 8;
        uint4 some = make_uint4(0, 0, 0, 0);

        if (row < n_there && col < n_cols) some = *(const uint4 *)(from + row * stride + col);
        *(uint4 *)(s_tile + row * PITCH + col) = some;
    }
}

static __device__ uint4 matrices(const sw_bf16 *s_row)
{
    return sw_load_matrices((uint32_t)__cvta_generic_to_shared(s_row));
}

/* s += the warp's 16 heads times the keys, over the columns of the tiles. */
static __device__ void multiply(float (&s)[KEYS / 8][4], const sw_bf16 *s_q, const sw_bf16 *s_keys)
{
    const int lane = threadIdx.x % 32, matrix = lane / 8, line = lane % 8;
    const sw_bf16 *q = s_q + (matrix % 2 * 8 + line) * PITCH + matrix / 2 * 8;
    const sw_bf16 *k = s_keys + (matrix / 2 * 8 + line) * PITCH + matrix % 2 * 8;

#pragma unroll
    for (int at = 0; at < DIMS; at += 16) {
        const uint4 some = matrices(q + at);
        const uint32_t a[4] = {some.x, some.y, some.z, some.w};

#pragma unroll
        for (int n = 0; n < KEYS / 16; n++) {
            const uint4 b = matrices(k + n * 16 * PITCH + at);

            sw_mma_bf16(s[2 * n], a, b.x, b.y);
            sw_mma_bf16(s[2 * n + 1], a, b.z, b.w);
        }
    }
}

/* What the warp's heads add to each key, of which n_there have a weight. */
static __device__ void add_heads(float *s_sums, const float (&s)[KEYS / 8][4],
                                 const float *weights, int64_t n_there)
{
    const int lane = threadIdx.x % 32, head = lane / 4;
    const float one = head < n_there ? weights[head] : 0.0f;
    const float two = head + 8 < n_there ? weights[head + 8] : 0.0f;

#pragma unroll
    for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float sum = sw_key_share(one, s[n][i]) + sw_key_share(two, s[n][i + 2]);

#pragma unroll
            for (int step = 4; step < 32; step *= 2) sum += __shfl_xor_sync(~0u, sum, step);
            if (lane < 4) s_sums[n * 8 + lane * 2 + i] = sum;
        }
}

/* The score of key key0 + threadIdx.x; 0 in threads that have none. */
static __device__ float score_tile(rank_state &s, const sw_choice_args &a, int64_t t,
                                   const sw_bf16 *keys, int64_t n_keys)
{
    const int warp = threadIdx.x / 32;
    float total = 0;

    for (int64_t head0 = 0; head0 < a.n_heads; head0 += HEADS) {
        const int64_t mine = head0 + warp * 16;
        float products[KEYS / 8][4] = {};

        for (int64_t col = 0; col < a.dim; col += DIMS) {
            __syncthreads(); /* nobody reads what the tiles hold */
            load_rows(s.q, a.q.d + t * a.q.stride + head0 * a.dim + col, a.dim, HEADS,
                      a.n_heads - head0, a.dim - col);
            load_rows(s.keys, keys + col, a.dim, KEYS, n_keys, a.dim - col);
            __syncthreads();
            multiply(products, s.q + warp * 16 * PITCH, s.keys);
        }
        add_heads(s.sums[warp], products, a.weights + t * a.n_heads + mine, a.n_heads - mine);
        __syncthreads();
        for (int w = 0; w < N_WARPS && threadIdx.x < KEYS; w++) total += s.sums[w][threadIdx.x];
    }
    return total;
}

/* grid (queries, tiles of keys at once) */
static __global__ void __launch_bounds__(32 * N_WARPS) swk_key_ranks(sw_choice_args a)
{
    __shared__ __align__(16) rank_state s;
    const int64_t row = blockIdx.x, t = a.row0 + row;

    sw_begin();
    const int64_t n = sw_keys_before(a, t);
    const sw_bf16 *keys = a.keys + t / a.seq_len * a.capacity * a.dim;

    if (n <= a.top_k) return;
    for (int64_t key0 = (int64_t)blockIdx.y * KEYS; key0 < n; key0 += (int64_t)gridDim.y * KEYS) {
        const float score = score_tile(s, a, t, keys + key0 * a.dim, n - key0);

        if (threadIdx.x < KEYS && key0 + threadIdx.x < n)
            a.ranks[row * a.capacity + key0 + threadIdx.x] = sw_key_rank(score);
    }
}

extern "C" sw_code sw_cuda_key_ranks(const sw_choice_args *a, sw_launch how, sw_err *err)
{
    const int64_t n_tiles = (a->capacity + KEYS - 1) / KEYS;
    const dim3 grid((unsigned)a->n, (unsigned)(n_tiles < TILES_MOST ? n_tiles : TILES_MOST));

    return sw_start("scores of keys", swk_key_ranks, grid, 32 * N_WARPS, 0, how, err, *a);
}
