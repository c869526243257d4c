/* solver_clip.cu - what solver_clip.c launches: candidates of every group, and the best of them. */
#include "kernels/cuda/solver/solver_math.cuh"

/* A thread a group, 256 of them. */
__global__ void swk_clip_scales(solve_rows r, clip_best best, double step, int kind)
{
    int64_t at = (int64_t)blockIdx.x * 256 + threadIdx.x;

    if (at >= r.n * r.n_groups) return;
    r.scales[at] = (float)stored_scale(mul((double)best.fit[at], step), kind);
    r.zeros[at] = best.fit_zeros[at];
}

sw_code sw_rows_clip(const solve_rows *r, const clip_best *best, double step, const grid_shape *g,
                     cudaStream_t stream, sw_err *err)
{
    swk_clip_scales<<<blocks_for(r->n * r->n_groups, 256), 256, 0, stream>>>(*r, *best, step,
                                                                            g->scale_kind);
    return launched("swk_clip_scales", err);
}

/* A warp a group, 8 of them: columns in turn, then a tree of fixed shape. */
__global__ void swk_clip_keep(solve_rows r, clip_best best)
{
    int64_t at = (int64_t)blockIdx.x * 8 + threadIdx.x / 32, row = at / r.n_groups;
    int64_t from = at % r.n_groups * r.group_elems, end = from + r.group_elems;
    double loss = 0.0;

    if (row >= r.n) return;
    if (end > r.k) end = r.k;
    for (int64_t col = from + threadIdx.x % 32; col < end; col += 32)
        loss += r.error[row * r.k + col] * r.slope[row * r.k + col];
    for (int d = 16; d; d /= 2) loss += __shfl_xor_sync(~0u, loss, d);
    if (threadIdx.x % 32 || !(loss < best.loss[at])) return;
    best.loss[at] = loss;
    best.scales[at] = r.scales[at];
    best.zeros[at] = r.zeros[at];
}

sw_code sw_rows_keep_clip(const solve_rows *r, const clip_best *best, cudaStream_t stream,
                          sw_err *err)
{
    swk_clip_keep<<<blocks_for(r->n * r->n_groups, 8), 256, 0, stream>>>(*r, *best);
    return launched("swk_clip_keep", err);
}
