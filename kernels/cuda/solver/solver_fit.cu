/* solver_fit.cu - scales and zeros of groups: the search of quant/method/grid.c, operation for
 * operation.
 *
 * A thread tries candidates for one group of one row and walks its columns in order, as the CPU
 * does, so every sum has the CPU's bytes. Groups of many columns are few: eight threads share the
 * candidates of one. A block's groups pass through shared memory some columns at a time, once for
 * each batch of candidates.
 */

#include "formats/num/pow2.h"
#include "kernels/cuda/solver/solver_math.cuh"

#define THREADS 64
#define STAGED 2048 /* columns of all groups that are staged at a time */
#define TEAM 8      /* threads of a group from */
#define TEAM_ELEMS_MIN 512 /* so many columns on */
#define SHRINK_FIRST 1.08
#define SHRINK_LAST 0.32
#define SHRINK_STEPS 38
#define POLISH_ROUNDS 3
#define POW2_FIRST (-2)
#define POW2_STEPS 4
#define ZERO_REACH 1

/* A thread's group: where it lies and what was found of it. */
typedef struct group_at {
    int64_t row, i;
    double low, high;
    double range; /* a small float's scale of the whole range */
    double scale, zero, best;
} group_at;

/* Of a block whose groups have T threads each. */
template <int T> struct staged {
    static constexpr int groups = THREADS / T, cols = STAGED / groups;
    double v[groups][cols + 1], weight[groups][cols + 1];
};

/* All threads: columns c0.. of every group of the block; zeros of no weight beyond their ends. */
template <int T>
static __device__ void stage(staged<T> *s, const solve_rows *r, const fit_span *span, int64_t c0,
                             bool with_weight)
{
    const int cols = staged<T>::cols;

    __syncthreads();
    for (int at = threadIdx.x; at < STAGED; at += THREADS) {
        int64_t pair = (int64_t)blockIdx.x * staged<T>::groups + at / cols, c = c0 + at % cols;
        int64_t col = span->col0 + pair % span->n_fit * r->group_elems + c;
        bool is_there = pair < r->n * span->n_fit && c < r->group_elems && col < span->col_end;
        s->v[at / cols][at % cols] = is_there ? span->v[pair / span->n_fit * r->k + col] : 0.0;
        if (with_weight) s->weight[at / cols][at % cols] = is_there ? span->weight[col] : 0.0;
    }
    __syncthreads();
}

/* Of those staged, how many columns a group can have. */
template <int T> static __device__ int n_staged(const solve_rows *r, int64_t c0)
{
    int64_t left = r->group_elems - c0;

    return left < staged<T>::cols ? (int)left : staged<T>::cols;
}

template <int T>
static __device__ void find_range(group_at *at, staged<T> *s, const solve_rows *r,
                                  const fit_span *span)
{
    at->low = at->high = 0.0;
    for (int64_t c0 = 0; c0 < r->group_elems; c0 += staged<T>::cols) {
        const int n = n_staged<T>(r, c0);

        stage<T>(s, r, span, c0, false);
        for (int c = 0; c < n; c++) {
            double v = s->v[threadIdx.x / T][c];
            at->low = v < at->low ? v : at->low;
            at->high = v > at->high ? v : at->high;
        }
    }
}

/* sw_pow2_weight_scale of the range. */
static __device__ double pow2_range(double amax, const grid_shape *g)
{
    float a = (float)amax, mantissa, top_mantissa;
    int exponent, top_exponent, above;

    if (!(a > 0)) return 1.0;
    mantissa = 2.0f * frexpf(a, &exponent);
    top_mantissa = 2.0f * frexpf((float)g->top, &top_exponent);
    above = g->pow2_rule == SW_POW2_CEIL ? mantissa > top_mantissa
                                         : g->pow2_rule == SW_POW2_ROUND && mantissa >= 1.75f;
    return ldexp(1.0, min(max(exponent - top_exponent + above, -126), 127));
}

/* Scale and zero of a range shrunk so much; of a small float's range times so much. */
template <bool SMALL>
static __device__ void shrunk(double *scale, double *zero, const group_at *at, double shrink,
                              int shift, const grid_shape *g)
{
    double half_top = 0.5 * g->code_max, z;

    if (SMALL) {
        *scale = stored_scale(mul(at->range, shrink), g->scale_kind);
        *zero = 0.0;
        return;
    }
    if (g->is_symmetric) {
        double amax = -at->low > at->high ? -at->low : at->high;
        *scale = stored_scale(__ddiv_rn(mul(shrink, amax), half_top), g->scale_kind);
        *zero = g->sym_zero;
        return;
    }
    *scale = stored_scale(__ddiv_rn(mul(shrink, sub(at->high, at->low)), g->code_max),
                          g->scale_kind);
    z = sub(half_top, __ddiv_rn(mul(0.5, add(at->low, at->high)), *scale));
    z = add(nearest(z), shift);
    *zero = z < g->zero_min ? g->zero_min : z > g->code_max ? g->code_max : z;
}

/* From the range alone. */
template <bool SMALL>
static __device__ void take_range(group_at *at, const grid_shape *g)
{
    double amax = -at->low > at->high ? -at->low : at->high;

    if (!SMALL) {
        shrunk<false>(&at->scale, &at->zero, at, 1.0, 0, g);
        return;
    }
    at->zero = 0.0;
    at->scale = g->scale_kind == SCALE_POW2 ? pow2_range(amax, g)
                                            : stored_scale(__ddiv_rn(amax, g->top), g->scale_kind);
    at->range = at->scale;
}

/* Weighted squared errors of n candidates. */
template <bool SMALL, int T, int N>
static __device__ void errors(double (&error)[N], const double (&scale)[N],
                              const double (&zero)[N], staged<T> *s, const solve_rows *r,
                              const fit_span *span, const grid_shape &g)
{
    double inverse[N];

#pragma unroll
    for (int i = 0; i < N; i++) {
        error[i] = 0.0;
        inverse[i] = __ddiv_rn(1.0, scale[i]);
    }
    for (int64_t c0 = 0; c0 < r->group_elems; c0 += staged<T>::cols) {
        const int n = n_staged<T>(r, c0);

        stage<T>(s, r, span, c0, true);
        for (int c = 0; c < n; c++) {
            double v = s->v[threadIdx.x / T][c], h = s->weight[threadIdx.x / T][c];
#pragma unroll
            for (int i = 0; i < N; i++) {
                double level = level_near<SMALL>(mul(v, inverse[i]), zero[i], g);
                double d = sub(v, mul(scale[i], sub(level, zero[i])));
                error[i] = add(error[i], mul(mul(h, d), d));
            }
        }
    }
}

/* What the codes of a scale cost, and the sums of the least-squares scale for them. */
typedef struct code_sums {
    double error, wc, cc;
} code_sums;

template <bool SMALL, int T>
static __device__ code_sums sums_of(double scale, double zero, staged<T> *s, const solve_rows *r,
                                    const fit_span *span, const grid_shape &g)
{
    const double inverse = __ddiv_rn(1.0, scale);
    code_sums sums = {0.0, 0.0, 0.0};

    for (int64_t c0 = 0; c0 < r->group_elems; c0 += staged<T>::cols) {
        const int n = n_staged<T>(r, c0);

        stage<T>(s, r, span, c0, true);
#pragma unroll 4
        for (int c = 0; c < n; c++) {
            double v = s->v[threadIdx.x / T][c], h = s->weight[threadIdx.x / T][c];
            double level = sub(level_near<SMALL>(mul(v, inverse), zero, g), zero);
            double d = sub(v, mul(scale, level));
            sums.error = add(sums.error, mul(mul(h, d), d));
            sums.wc = add(sums.wc, mul(mul(h, v), level));
            sums.cc = add(sums.cc, mul(mul(h, level), level));
        }
    }
    return sums;
}

static __device__ void keep_better(group_at *at, double error, double scale, double zero)
{
    if (!(error < at->best)) return;
    at->best = error;
    at->scale = scale;
    at->zero = zero;
}

/* How much of the range candidate `step` takes. */
static __device__ double shrink_of(int step, bool is_pow2)
{
    if (is_pow2) return ldexp(1.0, POW2_FIRST + step);
    return add(SHRINK_FIRST, __ddiv_rn(mul(SHRINK_LAST - SHRINK_FIRST, step),
                                       (double)(SHRINK_STEPS - 1)));
}

/* Candidates of a group: the present scale is number 0, then the grid. */
typedef struct candidates {
    bool is_pow2;
    int reach, n_shifts, n; /* n: with number 0 */
} candidates;

template <bool SMALL>
static __device__ void candidate(double *scale, double *zero, const candidates *c, int number,
                                 const group_at *at, const grid_shape *g)
{
    const int step = (number - 1) / c->n_shifts, shift = (number - 1) % c->n_shifts - c->reach;

    *scale = at->scale;
    *zero = at->zero;
    if (number == 0) return;
    shrunk<SMALL>(scale, zero, at, shrink_of(step, c->is_pow2), shift, g);
    if (g->tries_signs && shift) *scale = -*scale;
}

/* Of the best that T threads have each, the first of the least error; and what number 0, which the
 * first of them tried, costs. */
template <int T>
static __device__ void choose(group_at *found, int *number, double *present)
{
    *present = __shfl_sync(~0u, *present, 0, T);
    for (int d = T / 2; d; d /= 2) {
        const double best = __shfl_xor_sync(~0u, found->best, d, T);
        const double scale = __shfl_xor_sync(~0u, found->scale, d, T);
        const double zero = __shfl_xor_sync(~0u, found->zero, d, T);
        const int other = __shfl_xor_sync(~0u, *number, d, T);

        if (!(best < found->best || (best == found->best && other < *number))) continue;
        found->best = best;
        found->scale = scale;
        found->zero = zero;
        *number = other;
    }
}

/* The best of the candidates; N at a time by each of T threads. */
template <bool SMALL, int T, int N>
static __device__ void try_all(group_at *at, const candidates *c, staged<T> *s,
                               const solve_rows *r, const fit_span *span, const grid_shape *g)
{
    group_at found = *at;
    double present = 0.0;
    int number = c->n;

    found.best = __longlong_as_double(0x7ff0000000000000ll);
    for (int from = 0; from < c->n; from += T * N) {
        const int first = from + (int)threadIdx.x % T * N;
        double error[N], scale[N], zero[N];

#pragma unroll
        for (int i = 0; i < N; i++) candidate<SMALL>(&scale[i], &zero[i], c, first + i, at, g);
        errors<SMALL, T, N>(error, scale, zero, s, r, span, *g);
        if (first == 0) present = error[0];
#pragma unroll
        for (int i = 0; i < N; i++) {
            if (first + i == 0 || first + i >= c->n || !(error[i] < found.best)) continue;
            keep_better(&found, error[i], scale[i], zero[i]);
            number = first + i;
        }
    }
    choose<T>(&found, &number, &present);
    at->best = present;
    keep_better(at, found.best, found.scale, found.zero);
}

/* All threads of a block: is one of them not done? */
static __device__ bool any_left(bool is_done)
{
    __shared__ int s_left;

    __syncthreads();
    if (threadIdx.x == 0) s_left = 0;
    __syncthreads();
    if (!is_done) s_left = 1;
    __syncthreads();
    return s_left;
}

/* Alternating least squares. A round that gains nothing would be repeated by those after it. */
template <bool SMALL, int T>
static __device__ void polish(group_at *at, staged<T> *s, const solve_rows *r,
                              const fit_span *span, const grid_shape *g)
{
    code_sums sums = sums_of<SMALL, T>(at->scale, at->zero, s, r, span, *g);
    bool is_done = false;

    for (int round = 0; round < POLISH_ROUNDS; round++) {
        const double scale = !is_done && sums.cc > 0 && sums.wc * at->scale > 0
                                 ? stored_scale(__ddiv_rn(sums.wc, sums.cc), g->scale_kind)
                                 : at->scale;

        is_done = is_done || scale == at->scale;
        if (!any_left(is_done)) return;
        sums = sums_of<SMALL, T>(scale, at->zero, s, r, span, *g);
        is_done = is_done || !(sums.error < at->best);
        if (!is_done) keep_better(at, sums.error, scale, at->zero);
    }
}

template <bool SMALL, int T>
static __device__ void search(group_at *at, staged<T> *s, const solve_rows *r,
                              const fit_span *span, const grid_shape *g)
{
    candidates c;

    c.is_pow2 = SMALL && g->scale_kind == SCALE_POW2;
    c.reach = g->is_symmetric ? 0 : ZERO_REACH;
    c.n_shifts = g->tries_signs ? 2 : 2 * c.reach + 1;
    c.n = 1 + (c.is_pow2 ? POW2_STEPS : SHRINK_STEPS) * c.n_shifts;
    try_all<SMALL, T, T == 1 ? 8 : 5>(at, &c, s, r, span, g);
    if (!c.is_pow2) polish<SMALL, T>(at, s, r, span, g);
}

/* grid (n * n_fit * T / 64), 64 threads: see the top. */
template <bool SMALL, int T>
__global__ void __launch_bounds__(THREADS)
swk_solver_fit(solve_rows r, fit_span span, grid_shape g, bool has_search)
{
    __shared__ staged<T> s;
    int64_t pair = (int64_t)blockIdx.x * staged<T>::groups + threadIdx.x / T;
    group_at at;

    at.row = pair / span.n_fit;
    at.i = pair % span.n_fit;
    find_range<T>(&at, &s, &r, &span);
    take_range<SMALL>(&at, &g);
    if (has_search && !g.is_range_final) search<SMALL, T>(&at, &s, &r, &span, &g);
    if (at.row >= r.n || threadIdx.x % T) return;
    r.scales[at.row * r.n_groups + span.out0 + at.i] = (float)at.scale;
    r.zeros[at.row * r.n_groups + span.out0 + at.i] = (float)at.zero;
}

sw_code sw_rows_fit(const solve_rows *r, const fit_span *span, const grid_shape *g, bool has_search,
                    cudaStream_t stream, sw_err *err)
{
    const bool is_wide = r->group_elems >= TEAM_ELEMS_MIN;
    unsigned grid = blocks_for(r->n * span->n_fit * (is_wide ? TEAM : 1), THREADS);
    auto *kernel = g->is_small ? is_wide ? swk_solver_fit<true, TEAM> : swk_solver_fit<true, 1>
                   : is_wide   ? swk_solver_fit<false, TEAM>
                               : swk_solver_fit<false, 1>;

    kernel<<<grid, THREADS, 0, stream>>>(*r, *span, *g, has_search);
    return launched("swk_solver_fit", err);
}

/* ---- elementwise, grid (rows, columns / 1024), 256 threads ---- */

#define EACH_COLUMN(col, k) \
    for (int64_t col = (int64_t)blockIdx.y * 1024 + threadIdx.x, end_ = col + 1024; \
         col < end_ && col < (k); col += 256)

static dim3 by_columns(int64_t n, int64_t k) { return dim3((unsigned)n, blocks_for(k, 1024)); }

__global__ void swk_solver_target(solve_rows r, bool with_shift)
{
    int64_t row = blockIdx.x;

    EACH_COLUMN(col, r.k) {
        int64_t at = row * r.k + col;
        double value = add((double)r.w[at], with_shift && r.shift ? r.shift[at] : 0.0);
        r.target[at] = __ddiv_rn(value, r.global);
    }
}

sw_code sw_rows_target(const solve_rows *r, bool with_shift, cudaStream_t stream, sw_err *err)
{
    swk_solver_target<<<by_columns(r->n, r->k), 256, 0, stream>>>(*r, with_shift);
    return launched("swk_solver_target", err);
}

__global__ void swk_solver_share(solve_rows r, const double *shared, int64_t row0, int64_t rows,
                                 float zero)
{
    int64_t row = blockIdx.x;

    EACH_COLUMN(g, r.n_groups) {
        r.scales[row * r.n_groups + g] = (float)shared[(row0 + row) / rows * r.n_groups + g];
        r.zeros[row * r.n_groups + g] = zero;
    }
}

sw_code sw_rows_share(const solve_rows *r, const double *d_shared, int64_t row0, int64_t rows,
                      const grid_shape *g, cudaStream_t stream, sw_err *err)
{
    swk_solver_share<<<by_columns(r->n, r->n_groups), 256, 0, stream>>>(
        *r, d_shared, row0, rows, g->is_small ? 0.0f : (float)g->sym_zero);
    return launched("swk_solver_share", err);
}

template <bool SMALL>
__global__ void swk_solver_round(solve_rows r, grid_shape shape)
{
    int64_t row = blockIdx.x;

    EACH_COLUMN(col, r.k) {
        int64_t at = row * r.k + col, g = row * r.n_groups + col / r.group_elems;
        double v = __ddiv_rn(r.target[at], r.scales[g]);
        r.codes[at] = code_of_level<SMALL>(level_near<SMALL>(v, r.zeros[g], shape), shape);
    }
}

sw_code sw_rows_round(const solve_rows *r, const grid_shape *g, cudaStream_t stream, sw_err *err)
{
    if (g->is_small) swk_solver_round<true><<<by_columns(r->n, r->k), 256, 0, stream>>>(*r, *g);
    else swk_solver_round<false><<<by_columns(r->n, r->k), 256, 0, stream>>>(*r, *g);
    return launched("swk_solver_round", err);
}

/* Columns [begin, end) alone. */
__global__ void swk_solver_error(solve_rows r, grid_shape shape, bool levels_alone, int64_t begin,
                                 int64_t end)
{
    int64_t row = blockIdx.x;

    EACH_COLUMN(i, end - begin) {
        int64_t col = begin + i, at = row * r.k + col, g = row * r.n_groups + col / r.group_elems;
        double c = sub(level_of_code(r.codes[at], shape), (double)r.zeros[g]);
        r.error[at] = levels_alone ? c : sub(mul((double)r.scales[g], c), r.target[at]);
    }
}

sw_code sw_rows_error(const solve_rows *r, const grid_shape *g, bool levels_alone,
                      cudaStream_t stream, sw_err *err)
{
    swk_solver_error<<<by_columns(r->n, r->k), 256, 0, stream>>>(*r, *g, levels_alone, 0, r->k);
    return launched("swk_solver_error", err);
}

sw_code sw_rows_error_of(const solve_rows *r, const grid_shape *g, int64_t begin, int64_t end,
                         cudaStream_t stream, sw_err *err)
{
    swk_solver_error<<<by_columns(r->n, end - begin), 256, 0, stream>>>(*r, *g, false, begin, end);
    return launched("swk_solver_error", err);
}

__global__ void swk_solver_decode(float *values, solve_rows r, grid_shape shape)
{
    int64_t row = blockIdx.x;

    EACH_COLUMN(col, r.k) {
        int64_t at = row * r.k + col, g = row * r.n_groups + col / r.group_elems;
        float c = __fsub_rn((float)level_of_code(r.codes[at], shape), r.zeros[g]);
        values[at] = __fmul_rn(__fmul_rn(r.scales[g], c), (float)r.global);
    }
}

sw_code sw_rows_decode(float *d_values, const solve_rows *r, const grid_shape *g,
                       cudaStream_t stream, sw_err *err)
{
    swk_solver_decode<<<by_columns(r->n, r->k), 256, 0, stream>>>(d_values, *r, *g);
    return launched("swk_solver_decode", err);
}

__global__ void swk_solver_permute(solve_rows r, const int32_t *perm)
{
    int64_t row = blockIdx.x;

    EACH_COLUMN(col, r.k) r.work[row * r.k + col] = r.target[row * r.k + perm[col]];
}

sw_code sw_rows_permute(const solve_rows *r, const int32_t *d_perm, cudaStream_t stream,
                        sw_err *err)
{
    swk_solver_permute<<<by_columns(r->n, r->k), 256, 0, stream>>>(*r, d_perm);
    return launched("swk_solver_permute", err);
}

/* The sum of what 256 threads hold, in a tree of fixed shape; of thread 0 alone. */
static __device__ double sum_of_block(double v)
{
    __shared__ double s_sum[256];

    s_sum[threadIdx.x] = v;
    for (int half = 128; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) s_sum[threadIdx.x] += s_sum[threadIdx.x + half];
    }
    return s_sum[0];
}

/* grid (rows), 256 threads: threads sum every 256th column. */
__global__ void swk_solver_dot(double *out, const double *a, const double *b, int64_t k)
{
    int64_t row = blockIdx.x;
    double sum = 0.0;

    for (int64_t col = threadIdx.x; col < k; col += 256)
        sum += a[row * k + col] * b[row * k + col];
    sum = sum_of_block(sum);
    if (threadIdx.x == 0) out[row] = sum;
}

sw_code sw_rows_dot(double *d_out, const double *d_a, const double *d_b, int64_t n, int64_t k,
                    cudaStream_t stream, sw_err *err)
{
    swk_solver_dot<<<(unsigned)n, 256, 0, stream>>>(d_out, d_a, d_b, k);
    return launched("swk_solver_dot", err);
}

__global__ void swk_solver_weigh(double *out, const double *error, const double *weight, int64_t k)
{
    int64_t row = blockIdx.x;
    double sum = 0.0;

    for (int64_t col = threadIdx.x; col < k; col += 256)
        sum += weight[col] * (error[row * k + col] * error[row * k + col]);
    sum = sum_of_block(sum);
    if (threadIdx.x == 0) out[row] = sum;
}

sw_code sw_rows_weigh(double *d_out, const solve_rows *r, const double *d_weight,
                      cudaStream_t stream, sw_err *err)
{
    swk_solver_weigh<<<(unsigned)r->n, 256, 0, stream>>>(d_out, r->error, d_weight, r->k);
    return launched("swk_solver_weigh", err);
}
