/* clip.c - rounding to nearest on ranges that were searched: what is left of AWQ once its scales
 * are folded (Lin et al., arXiv 2306.00978, section 3.2, "clip").
 *
 * Cutting a group's range costs its few largest weights and makes the step finer for all others.
 * A group's loss is e^T H e with the Hessian of its own inputs, so errors that cancel on real
 * inputs are not counted. Candidates lie around the fit that ignores those cancellations
 * (grid.h); the whole range is one of them, so by this measure it is never worse than rounding.
 */
#include "formats/base/hot.h"
#include "formats/base/size.h"
#include "quant/method/grid.h"
#include "quant/method/refine.h"
#include "quant/method/rounding.h"

#define ROWS SW_SLAB_ROWS
#define STEP_FIRST 0.80 /* of the fitted scale */
#define STEP_LAST 1.24
#define N_STEPS 12
#define GROUP_ELEMS_MAX 256 /* beyond, the product with H would cost more than the solve */

typedef struct clip_work {
    double *error, *slope, *weight; /* [group][ROWS], likewise, [k] */
} clip_work;

static SW_HOT void errors_of(double *error, const double *codes, const double *w,
                             const double *scale, const double *zero)
{
    for (int r = 0; r < ROWS; r++) error[r] = scale[r] * (codes[r] - zero[r]) - w[r];
}

static void loss_of(double loss[ROWS], const clip_work *work, const double *w, const double *scale,
                    const double *zero, const double *h, int64_t k, int64_t n,
                    const sw_num *num)
{
    double codes[ROWS];

    for (int64_t j = 0; j < n; j++) {
        sw_grid_codes(codes, w + j * ROWS, scale, zero, num);
        errors_of(work->error + j * ROWS, codes, w + j * ROWS, scale, zero);
    }
    sw_row_forms(loss, work->slope, h, k, work->error, n);
}

static void keep_better(double *best, double *best_scale, double *best_zero, const double *loss,
                        const double *scale, const double *zero)
{
    for (int r = 0; r < ROWS; r++) {
        if (!(loss[r] < best[r])) continue;
        best[r] = loss[r];
        best_scale[r] = scale[r];
        best_zero[r] = zero[r];
    }
}

/* Scale and zero of one group of every row; `h` is the group's corner of the Hessian. */
static void clip_group(double *scale, double *zero, const clip_work *work, const double *w,
                       const double *weight, const double *h, int64_t k, int64_t n,
                       const sw_qspec *spec)
{
    double fit[ROWS], fit_zero[ROWS], s[ROWS], loss[ROWS], best[ROWS];

    sw_grid_fit(fit, fit_zero, w, weight, n, spec);
    sw_grid_range(scale, zero, w, n, spec);
    if (spec->pow2_rule) return; /* the range decides */
    loss_of(best, work, w, scale, zero, h, k, n, spec->num);
    for (int i = 0; i < N_STEPS; i++) {
        double step = STEP_FIRST + (STEP_LAST - STEP_FIRST) * i / (double)(N_STEPS - 1);
        for (int r = 0; r < ROWS; r++)
            s[r] = sw_grid_stored_scale(fit[r] * step, spec);
        loss_of(loss, work, w, s, fit_zero, h, k, n, spec->num);
        keep_better(best, scale, zero, loss, s, fit_zero);
    }
}

static sw_code fit_clip(sw_slab *slab, const sw_solve_problem *p, sw_err *err)
{
    const sw_factor *f = p->factor;
    int64_t k = slab->k, gs = slab->group_elems;
    clip_work work = {0};
    sw_code rc = SW_MEM_GET(&work.error, 2 * gs * ROWS + k, "clip search", err);

    if (rc != SW_OK) return rc;
    work.slope = work.error + gs * ROWS;
    work.weight = work.slope + gs * ROWS;
    for (int64_t j = 0; j < k; j++) work.weight[j] = f->h[j * k + j];
    if (gs > GROUP_ELEMS_MAX || slab->frame->shared)
        sw_slab_fit(slab, work.weight, &p->spec);
    else
        for (int64_t g = 0; g < slab->n_groups; g++) {
            int64_t from = g * gs;
            clip_group(slab->scales + g * ROWS, slab->zeros + g * ROWS, &work,
                       slab->target + from * ROWS, work.weight + from, f->h + from * k + from, k,
                       sw_min_i64(gs, k - from), &p->spec);
        }
    sw_mem_put(work.error);
    return SW_OK;
}

sw_code sw_clip_rows(sw_qtensor *q, const sw_solve_problem *p, sw_solve_report *report,
                     sw_err *err)
{
    return sw_round_solve(q, p, fit_clip, report, err);
}
