/* solver_systems.cu - the systems that least-squares scales are the answers of, for groups of 128
 * columns, without the products in between. See quant/method/refine.c for what they are.
 *
 * A[g][h] = c_g H c_h, c_g what the codes of group g are worth in scales: small whole numbers or
 * small floats, all of them BF16. 256 rows of a weight are a block, 32 of them a warp. It holds c_g
 * in registers and goes through h = 0..g: C_g H[g][h], 256 x 128, is summed on the tensor cores
 * over both halves of H and multiplied by c_h where it lies, so that a number a row and pair of
 * groups is all that is written.
 */
#include "kernels/cuda/ptx/ptx_mma.cuh"
#include "kernels/cuda/solver/solver_math.cuh"

#define GROUP SW_SYSTEM_GROUP
#define WARPS 8
#define WARP_ROWS 32
#define ROWS (WARPS * WARP_ROWS)
#define THREADS (32 * WARPS)
#define PITCH (GROUP + 8) /* elements of a row in shared memory: 8 rows begin in different banks */
#define K_STEPS (GROUP / 16)
#define HALF_COLS 64      /* of a tile that sums are held for at a time */
#define N_TILES (HALF_COLS / 8)

typedef struct systems_shared {
    __nv_bfloat16 h[2][2][GROUP][PITCH]; /* two tiles, both halves: [column of h][column of g] */
    __nv_bfloat16 c[ROWS][PITCH];        /* of group h */
} systems_shared;

static __device__ __forceinline__ void copy16(void *to, const void *from, bool is_there)
{
    unsigned at = (unsigned)__cvta_generic_to_shared(to);

    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from),
                 "r"(is_there ? 16 : 0)
                 : "memory");
}

static __device__ __forceinline__ void commit(void) { asm volatile("cp.async.commit_group;"); }

template <int LEFT> static __device__ __forceinline__ void wait_but(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

/* H of group h's rows and group g's columns, both halves, into a buffer. */
static __device__ void load_tile(systems_shared *s, int buffer, const __nv_bfloat16 *h_halves,
                                 int64_t k, int64_t g, int64_t h)
{
    for (int at = threadIdx.x; at < 2 * GROUP * (GROUP / 8); at += THREADS) {
        const int half = at / (GROUP * (GROUP / 8)), row = at / (GROUP / 8) % GROUP;
        const int c = at % (GROUP / 8) * 8;

        copy16(&s->h[buffer][half][row][c],
               h_halves + half * k * k + (h * GROUP + row) * k + g * GROUP + c, true);
    }
}

static __device__ void load_levels(systems_shared *s, const __nv_bfloat16 *levels, int64_t n,
                                   int64_t k, int64_t row0, int64_t h)
{
    for (int at = threadIdx.x; at < ROWS * (GROUP / 8); at += THREADS) {
        const int row = at / (GROUP / 8), c = at % (GROUP / 8) * 8;
        const bool is_there = row0 + row < n;

        copy16(&s->c[row][c], levels + (is_there ? row0 + row : 0) * k + h * GROUP + c, is_there);
    }
}

/* The rows of a warp, group g, as operands. */
static __device__ void take_rows(uint32_t a[2][K_STEPS][4], const __nv_bfloat16 *levels, int64_t n,
                                 int64_t k, int64_t row0, int64_t g)
{
    const int lane = threadIdx.x % 32;

#pragma unroll
    for (int m = 0; m < 2; m++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int64_t row = row0 + 16 * m + lane / 4 + 8 * (i % 2);
            const __nv_bfloat16 *from =
                levels + row * k + g * GROUP + 2 * (lane % 4) + 8 * (i / 2);
#pragma unroll
            for (int step = 0; step < K_STEPS; step++)
                a[m][step][i] = row < n ? *(const uint32_t *)(from + 16 * step) : 0u;
        }
}

/* d = C_g H of columns [first, first + 64) of the tile. */
static __device__ __forceinline__ void multiply(float d[2][N_TILES][4],
                                                const uint32_t a[2][K_STEPS][4],
                                                const systems_shared *s, int buffer, int first)
{
    const int lane = threadIdx.x % 32;

#pragma unroll
    for (int i = 0; i < 2 * N_TILES * 4; i++) (&d[0][0][0])[i] = 0.0f;
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
        for (int step = 0; step < K_STEPS; step++)
#pragma unroll
            for (int j = 0; j < N_TILES; j += 2) {
                const int row = first + 8 * j + lane / 16 * 8 + lane % 8;
                const uint4 b = sw_load_matrices((uint32_t)__cvta_generic_to_shared(
                    &s->h[buffer][half][row][16 * step + lane / 8 % 2 * 8]));
#pragma unroll
                for (int m = 0; m < 2; m++) {
                    sw_mma_bf16(d[m][j], a[m][step], b.x, b.y);
                    sw_mma_bf16(d[m][j + 1], a[m][step], b.z, b.w);
                }
            }
}

/* sums [2][2] += d by c_h: of a row by four lanes. */
static __device__ __forceinline__ void add_columns(float sums[2][2], const float d[2][N_TILES][4],
                                                   const systems_shared *s, int first)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;

#pragma unroll
    for (int m = 0; m < 2; m++)
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int j = 0; j < N_TILES; j++) {
                const int row = WARP_ROWS * warp + 16 * m + 8 * i + lane / 4;
                const float2 c = __bfloat1622float2(*(const __nv_bfloat162 *)&s->c[row][
                    first + 8 * j + 2 * (lane % 4)]);
                sums[m][i] += d[m][j][2 * i] * c.x + d[m][j][2 * i + 1] * c.y;
            }
}

/* grid (groups, rows / 256), the last group first. levels [n, k]. */
__global__ void __launch_bounds__(THREADS)
swk_solver_systems(double *system, const __nv_bfloat16 *levels, const __nv_bfloat16 *h_halves,
                   int64_t n, int64_t k, int n_groups)
{
    extern __shared__ __align__(16) unsigned char s_bytes[];
    systems_shared *s = (systems_shared *)s_bytes;
    const int lane = threadIdx.x % 32, g = n_groups - 1 - (int)blockIdx.x;
    const int64_t row0 = (int64_t)blockIdx.y * ROWS;
    const int64_t warp_row = row0 + threadIdx.x / 32 * WARP_ROWS;
    uint32_t a[2][K_STEPS][4];

    load_tile(s, 0, h_halves, k, g, 0);
    commit();
    take_rows(a, levels, n, k, warp_row, g);
    for (int h = 0; h <= g; h++) {
        float sums[2][2] = {}, d[2][N_TILES][4];

        load_levels(s, levels, n, k, row0, h);
        commit();
        if (h < g) load_tile(s, (h + 1) % 2, h_halves, k, g, h + 1);
        commit();
        wait_but<2>(); /* for this tile, */
        __syncthreads();
        multiply(d, a, s, h % 2, 0);
        wait_but<1>(); /* and for what it is multiplied by */
        __syncthreads();
        add_columns(sums, d, s, 0);
        multiply(d, a, s, h % 2, HALF_COLS);
        add_columns(sums, d, s, HALF_COLS);
#pragma unroll
        for (int at = 0; at < 4; at++) {
            const int64_t row = warp_row + at / 2 * 16 + at % 2 * 8 + lane / 4;
            float sum = sums[at / 2][at % 2];

            sum += __shfl_xor_sync(~0u, sum, 1);
            sum += __shfl_xor_sync(~0u, sum, 2);
            if (lane % 4 == 0 && row < n)
                system[row * n_groups * n_groups + (int64_t)g * n_groups + h] = (double)sum;
        }
        __syncthreads();
    }
}

/* grid (rows, groups / 8), 256 threads, a warp each: rhs[g] = c_g H t from aim = H t. */
__global__ void swk_solver_wishes(double *rhs, const __nv_bfloat16 *levels, const double *aim,
                                  int64_t k, int n_groups)
{
    const int64_t row = blockIdx.x, g = (int64_t)blockIdx.y * 8 + threadIdx.x / 32;
    const int64_t from = row * k + g * GROUP;
    double sum = 0.0;

    if (g >= n_groups) return;
    for (int c = threadIdx.x % 32; c < GROUP; c += 32)
        sum += aim[from + c] * (double)__bfloat162float(levels[from + c]);
    for (int d = 16; d; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
    if (threadIdx.x % 32 == 0) rhs[row * n_groups + g] = sum;
}

/* grid (rows, columns / 1024), 256 threads. */
__global__ void swk_solver_levels(__nv_bfloat16 *levels, solve_rows r, grid_shape shape)
{
    const int64_t row = blockIdx.x, first = (int64_t)blockIdx.y * 1024;

    for (int64_t col = first + threadIdx.x; col < first + 1024 && col < r.k; col += 256) {
        const int64_t at = row * r.k + col;
        const double zero = r.zeros[row * r.n_groups + col / GROUP];

        levels[at] = __float2bfloat16_rn((float)sub(level_of_code(r.codes[at], shape), zero));
    }
}

sw_code sw_rows_levels(uint16_t *d_levels, const solve_rows *r, const grid_shape *g,
                       cudaStream_t stream, sw_err *err)
{
    const dim3 grid((unsigned)r->n, blocks_for(r->k, 1024));
    __nv_bfloat16 *levels = (__nv_bfloat16 *)d_levels;
    sw_code rc;

    swk_solver_levels<<<grid, 256, 0, stream>>>(levels, *r, *g);
    if ((rc = launched("swk_solver_levels", err)) != SW_OK) return rc;
    swk_solver_wishes<<<dim3((unsigned)r->n, blocks_for(r->n_groups, 8)), 256, 0, stream>>>(
        r->rhs, levels, r->aim, r->k, (int)r->n_groups);
    return launched("swk_solver_wishes", err);
}

sw_code sw_rows_systems(const solve_rows *r, const uint16_t *d_levels, const uint16_t *d_h_halves,
                        int64_t row0, int64_t n_rows, cudaStream_t stream, sw_err *err)
{
    const dim3 grid((unsigned)r->n_groups, blocks_for(n_rows, ROWS));
    sw_code rc = SW_OK;

    CUDA(cudaFuncSetAttribute((const void *)swk_solver_systems,
                              cudaFuncAttributeMaxDynamicSharedMemorySize,
                              (int)sizeof(systems_shared)));
    swk_solver_systems<<<grid, THREADS, sizeof(systems_shared), stream>>>(
        r->system, (const __nv_bfloat16 *)d_levels + row0 * r->k,
        (const __nv_bfloat16 *)d_h_halves, n_rows, r->k, (int)r->n_groups);
    TRY(launched("swk_solver_systems", err));
done:
    return rc;
}
