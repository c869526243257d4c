/* solver_sweep.cu - the steps of a solve that go column by column, and the small systems of the
 * refinement. See quant/method/gptq.c and quant/method/refine.c for what they compute.
 *
 * Columns depend on each other, rows do not: eight lanes own a row and hold 128 of its columns in
 * registers (lane l those at l, l + 8, ...), sixteen rows are a block. The triangle of U or H
 * that a block of columns needs lies in shared memory: row i from column 8 (i / 8) on, 68 KB.
 * A column costs one division and a shuffle on the critical path, no launch and no barrier.
 */
#include "kernels/cuda/solver/solver_math.cuh"

#define LANES 8
#define ROWS 16
#define COLS 128
#define STRIDES (COLS / LANES)
#define TRIANGLE (4 * STRIDES * (STRIDES + 1) * LANES) /* doubles */
#define SLAB 64 /* SW_SLAB_ROWS */

/* Where row LANES * stride + t of the triangle begins; it holds columns LANES * stride and on. */
static __device__ __forceinline__ int triangle_at(int stride, int t)
{
    return LANES * (COLS * stride - LANES / 2 * stride * (stride - 1)) +
           t * (COLS - LANES * stride);
}

/* All threads: rows and columns [begin, begin + n) of m [k, k]; zeros beyond. */
static __device__ void load_triangle(double *s_m, const double *m, int64_t k, int64_t begin, int n)
{
    for (int i = threadIdx.x / 32; i < COLS; i += blockDim.x / 32) {
        int first = i / LANES * LANES;
        double *to = s_m + triangle_at(i / LANES, i % LANES);
        for (int c = first + threadIdx.x % 32; c < COLS; c += 32)
            to[c - first] = i < n && c < n ? m[(begin + i) * k + begin + c] : 0.0;
    }
    __syncthreads();
}

/* What a lane keeps of its columns. */
typedef struct lane_columns {
    double v[STRIDES];    /* weights or slopes */
    float scale[STRIDES], zero[STRIDES];
} lane_columns;

/* grid (n / 16), 128 threads. */
template <bool SMALL>
__global__ void __launch_bounds__(ROWS *LANES)
swk_solver_sweep(solve_rows r, const double *u, const int32_t *perm, grid_shape shape,
                 int64_t block_begin, int64_t begin, int n_steps, int width)
{
    extern __shared__ double s_u[];
    int lane = threadIdx.x % LANES;
    int64_t row = (int64_t)blockIdx.x * ROWS + threadIdx.x / LANES;
    bool is_row = row < r.n;
    lane_columns l;

    load_triangle(s_u, u, r.k, begin, width);
#pragma unroll
    for (int j = 0; j < STRIDES; j++) {
        int c = lane + LANES * j;
        int64_t g = c < n_steps ? perm[begin + c] / r.group_elems : 0;
        l.v[j] = is_row && c < width ? r.work[row * r.k + begin + c] : 0.0;
        l.scale[j] = is_row ? r.scales[row * r.n_groups + g] : 1.0f;
        l.zero[j] = is_row ? r.zeros[row * r.n_groups + g] : 0.0f;
    }
#pragma unroll
    for (int stride = 0; stride < STRIDES; stride++) {
        const double scale = l.scale[stride], zero = l.zero[stride];
        const double inverse = __drcp_rn(scale);
#pragma unroll 1
        for (int t = 0; t < LANES && LANES * stride + t < n_steps; t++) {
            int i = LANES * stride + t;
            /* every lane for its own column; that of lane t is the one in turn */
            double w = l.v[stride];
            double level = level_near<SMALL>(quotient(w, scale, inverse), zero, shape);
            double own = sub(w, mul(scale, sub(level, zero)));
            double e = __shfl_sync(~0u, own, t, LANES);
            const double *s_row = s_u + triangle_at(stride, t) + lane;
#pragma unroll
            for (int j = stride; j < STRIDES; j++)
                l.v[j] = sub(l.v[j], mul(s_row[LANES * (j - stride)], e));
            if (is_row && lane == t) {
                r.codes[row * r.k + perm[begin + i]] = code_of_level<SMALL>(level, shape);
                r.block[row * COLS + (begin - block_begin) + i] = e;
            }
        }
    }
#pragma unroll
    for (int j = 0; j < STRIDES; j++) {
        int c = lane + LANES * j;
        if (is_row && c >= n_steps && c < width) r.work[row * r.k + begin + c] = l.v[j];
    }
}

#define STEP_MIN 0.6
#define STEP_MAX 1.6

/* Row `t` of stride + i by column `lane` of stride `stride`, i = 0 or 1, of a symmetric matrix. */
static __device__ __forceinline__ double corner_at(const double *s_h, int stride, int i, int t,
                                                   int lane)
{
    return i ? s_h[triangle_at(stride, lane) + LANES + t] : s_h[triangle_at(stride, t) + lane];
}

/* The sum of what lanes hold of the group of 16 columns that begins with a stride, in order. */
static __device__ __forceinline__ double sum_group(double first, double second)
{
    double sum = 0.0;

#pragma unroll
    for (int t = 0; t < LANES; t++) sum = add(sum, __shfl_sync(~0u, first, t, LANES));
#pragma unroll
    for (int t = 0; t < LANES; t++) sum = add(sum, __shfl_sync(~0u, second, t, LANES));
    return sum;
}

/* step_scale of quant/method/refine.c for the group that begins with `stride`: slopes further right
 * and `steps` of its columns, two a lane, follow. Returns whether the scale has moved. */
template <int STRIDE>
static __device__ __forceinline__ bool step_scale(lane_columns *l, double (&steps)[2],
                                                  const float (&levels)[STRIDES],
                                                  const double *s_h, int lane,
                                                  const grid_shape &shape)
{
    const double own[2] = {levels[STRIDE], levels[STRIDE + 1]}, old = l->scale[STRIDE];
    double t[STRIDES], bend, slope, wish, scale = old, by;

#pragma unroll
    for (int j = STRIDE; j < STRIDES; j++) t[j] = 0.0;
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll 1
        for (int at = 0; at < LANES; at++) {
            const double c = __shfl_sync(~0u, own[i], at, LANES);
            const double *s_row = s_h + triangle_at(STRIDE + i, at) + lane;
            t[STRIDE] = add(t[STRIDE], mul(corner_at(s_h, STRIDE, i, at, lane), c));
#pragma unroll
            for (int j = STRIDE + 1; j < STRIDES; j++)
                t[j] = add(t[j], mul(s_row[LANES * (j - STRIDE - i)], c));
        }
    bend = sum_group(mul(own[0], t[STRIDE]), mul(own[1], t[STRIDE + 1]));
    slope = sum_group(mul(own[0], l->v[STRIDE]), mul(own[1], l->v[STRIDE + 1]));
    wish = sub(old, __ddiv_rn(slope, bend));
    if (bend > 0 && wish > mul(STEP_MIN, old) && wish < mul(STEP_MAX, old))
        scale = stored_scale(wish, shape.scale_kind);
    by = sub(scale, old);
#pragma unroll
    for (int j = STRIDE; j < STRIDES; j++) l->v[j] = add(l->v[j], mul(t[j], by));
#pragma unroll
    for (int i = 0; i < 2; i++) {
        steps[i] = mul(own[i], by);
        l->scale[STRIDE + i] = (float)scale;
    }
    return scale != old;
}

/* The codes of a stride, column after column. */
template <bool SMALL, int STRIDE>
static __device__ __forceinline__ void descend_stride(lane_columns *l,
                                                      const float (&levels)[STRIDES],
                                                      double moved, const solve_rows &r,
                                                      const grid_shape &shape, const double *s_h,
                                                      int64_t row, int64_t begin, int width)
{
    const int lane = threadIdx.x % LANES;
    const bool is_row = row < r.n, is_there = LANES * STRIDE + lane < width;
    const double scale = l->scale[STRIDE], zero = l->zero[STRIDE], old = levels[STRIDE];
    const double curvature = is_there ? s_h[triangle_at(STRIDE, lane) + lane] : 1.0;
    const double bend = mul(curvature, scale), inverse = __drcp_rn(bend);

#pragma unroll 1
    for (int t = 0; t < LANES && LANES * STRIDE + t < width; t++) {
        /* every lane for its own column; that of lane t is the one in turn */
        const double *s_row = s_h + triangle_at(STRIDE, t);
        double wish = sub(sub(old, zero), quotient(l->v[STRIDE], bend, inverse));
        double level = level_near<SMALL>(wish, zero, shape);
        double step = __shfl_sync(~0u, mul(scale, sub(level, old)), t, LANES);
#pragma unroll
        for (int j = STRIDE; j < STRIDES; j++)
            l->v[j] = add(l->v[j], mul(s_row[lane + LANES * (j - STRIDE)], step));
        if (is_row && lane == t) {
            int64_t c = LANES * STRIDE + t;
            r.codes[row * r.k + begin + c] = code_of_level<SMALL>(level, shape);
            r.block[row * COLS + c] = add(moved, step);
        }
    }
}

/* Two strides, a stepped group, and all behind them. */
template <bool SMALL, bool STEPS, int STRIDE>
static __device__ __forceinline__ void descend_from(lane_columns *l, const float (&levels)[STRIDES],
                                                    const solve_rows &r, const grid_shape &shape,
                                                    const double *s_h, int64_t row, int64_t begin,
                                                    int width)
{
    double moved[2] = {0.0, 0.0};

    if constexpr (STRIDE < STRIDES) {
        if (STEPS && LANES * STRIDE < width &&
            step_scale<STRIDE>(l, moved, levels, s_h, threadIdx.x % LANES, shape) && row < r.n &&
            threadIdx.x % LANES == 0)
            r.scales[row * r.n_groups + (begin + LANES * STRIDE) / r.group_elems] =
                l->scale[STRIDE];
        descend_stride<SMALL, STRIDE>(l, levels, moved[0], r, shape, s_h, row, begin, width);
        descend_stride<SMALL, STRIDE + 1>(l, levels, moved[1], r, shape, s_h, row, begin, width);
        descend_from<SMALL, STEPS, STRIDE + 2>(l, levels, r, shape, s_h, row, begin, width);
    }
}

/* grid (n / 16), 128 threads. */
template <bool SMALL, bool STEPS>
__global__ void __launch_bounds__(ROWS *LANES)
swk_solver_descend(solve_rows r, const double *h, grid_shape shape, int64_t begin, int width)
{
    extern __shared__ double s_h[];
    int lane = threadIdx.x % LANES;
    int64_t row = (int64_t)blockIdx.x * ROWS + threadIdx.x / LANES;
    bool is_row = row < r.n;
    float levels[STRIDES];
    lane_columns l;

    load_triangle(s_h, h, r.k, begin, width);
#pragma unroll
    for (int j = 0; j < STRIDES; j++) {
        int c = lane + LANES * j;
        bool is_there = is_row && c < width;
        int64_t g = (begin + (c < width ? c : 0)) / r.group_elems;
        l.v[j] = is_there ? r.slope[row * r.k + begin + c] : 0.0;
        l.scale[j] = is_row ? r.scales[row * r.n_groups + g] : 1.0f;
        l.zero[j] = is_row ? r.zeros[row * r.n_groups + g] : 0.0f;
        levels[j] = is_there ? (float)level_of_code(r.codes[row * r.k + begin + c], shape) : 0.0f;
    }
    descend_from<SMALL, STEPS, 0>(&l, levels, r, shape, s_h, row, begin, width);
}

static sw_code allow_shared(const void *kernel, sw_err *err)
{
    sw_code rc = SW_OK;

    CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              TRIANGLE * (int)sizeof(double)));
done:
    return rc;
}

sw_code sw_rows_sweep(const solve_rows *r, const double *d_u, const int32_t *d_perm,
                      const grid_shape *g, int64_t block_begin, int64_t begin, int64_t end,
                      int64_t block_end, cudaStream_t stream, sw_err *err)
{
    auto *kernel = g->is_small ? swk_solver_sweep<true> : swk_solver_sweep<false>;
    sw_code rc = allow_shared((const void *)kernel, err);

    if (rc != SW_OK) return rc;
    kernel<<<blocks_for(r->n, ROWS), ROWS * LANES, TRIANGLE * sizeof(double), stream>>>(
        *r, d_u, d_perm, *g, block_begin, begin, (int)(end - begin), (int)(block_end - begin));
    return launched("swk_solver_sweep", err);
}

sw_code sw_rows_descend(const solve_rows *r, const double *d_h, const grid_shape *g, int64_t begin,
                        int64_t end, cudaStream_t stream, sw_err *err)
{
    auto *kernel = g->steps_scales ? swk_solver_descend<true, true>
                   : g->is_small   ? swk_solver_descend<true, false>
                                   : swk_solver_descend<false, false>;
    sw_code rc = allow_shared((const void *)kernel, err);

    if (rc != SW_OK) return rc;
    kernel<<<blocks_for(r->n, ROWS), ROWS * LANES, TRIANGLE * sizeof(double), stream>>>(
        *r, d_h, *g, begin, (int)(end - begin));
    return launched("swk_solver_descend", err);
}

static __device__ double warp_sum(double v)
{
    for (int d = 16; d; d /= 2) v += __shfl_xor_sync(~0u, v, d);
    return v;
}

/* grid (rows, groups / 8), 256 threads, a warp each: A[g][h] = c_g H c_h for h <= g, from
 * work = c_g H; rhs[g] = c_g H t from aim = H t. */
__global__ void swk_solver_system(solve_rows r, int64_t g, int64_t row0)
{
    int64_t row = row0 + blockIdx.x, h = (int64_t)blockIdx.y * 8 + threadIdx.x / 32;
    int64_t from = h * r.group_elems, end = from + r.group_elems < r.k ? from + r.group_elems : r.k;
    const double *c = r.error + row * r.k, *t = r.work + row * r.k, *aim = r.aim + row * r.k;
    double sum = 0.0, rhs = 0.0;

    if (h > g) return;
    for (int64_t col = from + threadIdx.x % 32; col < end; col += 32) sum += t[col] * c[col];
    if (h == g)
        for (int64_t col = from + threadIdx.x % 32; col < end; col += 32) rhs += aim[col] * c[col];
    sum = warp_sum(sum);
    rhs = warp_sum(rhs);
    if (threadIdx.x % 32) return;
    r.system[(int64_t)blockIdx.x * r.n_groups * r.n_groups + g * r.n_groups + h] = sum;
    if (h == g) r.rhs[row * r.n_groups + g] = rhs;
}

sw_code sw_rows_system(const solve_rows *r, int64_t g, int64_t row0, int64_t n_rows,
                       cudaStream_t stream, sw_err *err)
{
    dim3 grid((unsigned)n_rows, blocks_for(g + 1, 8));

    swk_solver_system<<<grid, 256, 0, stream>>>(*r, g, row0);
    return launched("swk_solver_system", err);
}

#define RIDGE 1e-7

/* grid (rows), 32 threads: pulled, ever so lightly, towards the present scales. A row without
 * any code gets the system whose answer they are. */
__global__ void swk_solver_ridge(solve_rows r, int64_t row0)
{
    int64_t n_g = r.n_groups, row = row0 + blockIdx.x;
    double *a = r.system + (int64_t)blockIdx.x * n_g * n_g, *b = r.rhs + row * n_g;
    const float *scale = r.scales + row * n_g;
    double trace = 0.0;

    for (int64_t g = 0; g < n_g; g++) trace = add(trace, a[g * n_g + g]);
    __syncwarp();
    for (int64_t g = threadIdx.x; g < n_g; g += 32) {
        double ridge = __ddiv_rn(mul(RIDGE, trace), (double)n_g);
        if (trace > 0) {
            a[g * n_g + g] = add(a[g * n_g + g], ridge);
            b[g] = add(b[g], mul(ridge, scale[g]));
            continue;
        }
        for (int64_t h = 0; h <= g; h++) a[g * n_g + h] = h == g;
        b[g] = scale[g];
    }
    if (threadIdx.x) return;
    r.system_at[blockIdx.x] = a;
    r.rhs_at[blockIdx.x] = b;
}

sw_code sw_rows_ridge(const solve_rows *r, int64_t row0, int64_t n_rows, cudaStream_t stream,
                      sw_err *err)
{
    swk_solver_ridge<<<(unsigned)n_rows, 32, 0, stream>>>(*r, row0);
    return launched("swk_solver_ridge", err);
}

/* grid (rows), 32 threads: scales of rows whose system was definite, unless implausible. */
__global__ void swk_solver_take_scales(solve_rows r, grid_shape shape, int64_t row0)
{
    int64_t row = row0 + blockIdx.x;

    if (r.info[blockIdx.x] != 0) return;
    for (int64_t g = threadIdx.x; g < r.n_groups; g += 32) {
        double wish = r.rhs[row * r.n_groups + g], old = r.scales[row * r.n_groups + g];
        double along = old < 0 ? -wish : wish, size = fabs(old);
        if (along > mul(STEP_MIN, size) && along < mul(STEP_MAX, size))
            r.scales[row * r.n_groups + g] = (float)stored_scale(wish, shape.scale_kind);
    }
}

sw_code sw_rows_take_scales(const solve_rows *r, const grid_shape *g, int64_t row0, int64_t n_rows,
                            cudaStream_t stream, sw_err *err)
{
    swk_solver_take_scales<<<(unsigned)n_rows, 32, 0, stream>>>(*r, *g, row0);
    return launched("swk_solver_take_scales", err);
}

/* grid (n / 64), 256 threads. */
__global__ void swk_solver_accept(solve_rows r)
{
    __shared__ bool s_is_better[SLAB];
    __shared__ int s_gained;
    int64_t row0 = (int64_t)blockIdx.x * SLAB;
    int n_rows = (int)(r.n - row0 < SLAB ? r.n - row0 : SLAB);

    if (threadIdx.x == 0) s_gained = 0;
    __syncthreads();
    if (threadIdx.x < n_rows) {
        double now = r.new_loss[row0 + threadIdx.x], before = r.loss[row0 + threadIdx.x];
        bool is_better = now < before && !r.is_settled[blockIdx.x];
        s_is_better[threadIdx.x] = is_better;
        if (is_better && now < mul(before, 1 - 1e-4)) s_gained = 1;
        if (is_better) r.loss[row0 + threadIdx.x] = now;
    }
    __syncthreads();
    for (int i = 0; i < n_rows; i++) {
        int64_t row = row0 + i;
        if (s_is_better[i]) continue;
        for (int64_t col = threadIdx.x; col < r.k; col += 256)
            r.codes[row * r.k + col] = r.old_codes[row * r.k + col];
        for (int64_t g = threadIdx.x; g < r.n_groups; g += 256)
            r.scales[row * r.n_groups + g] = r.old_scales[row * r.n_groups + g];
    }
    if (threadIdx.x == 0 && !s_gained) r.is_settled[blockIdx.x] = 1;
}

sw_code sw_rows_accept(const solve_rows *r, cudaStream_t stream, sw_err *err)
{
    swk_solver_accept<<<blocks_for(r->n, SLAB), 256, 0, stream>>>(*r);
    return launched("swk_solver_accept", err);
}
