/* frame.c - see frame.h. */
#include "quant/method/frame.h"

#include <math.h>
#include <string.h>

#include "formats/base/mem.h"
#include "formats/base/size.h"
#include "formats/num/pow2.h"
#include "quant/method/grid.h"

/* Most that an E4M3 block scale holds: the global scale maps the largest block onto it. */
#define BLOCK_SCALE_TOP 448.0

double sw_weight_amax(const float *w, int64_t n)
{
    double amax = 0;

    for (int64_t i = 0; i < n; i++) amax = fabs((double)w[i]) > amax ? fabs((double)w[i]) : amax;
    return amax;
}

static float global_of(double amax, const sw_num *num)
{
    float divisor = (float)(BLOCK_SCALE_TOP * (double)num->top / amax);
    float global = 1.0f / divisor;

    return amax > 0 && isfinite(divisor) && isfinite(global) ? global : 1.0f;
}

static double scale_of(double amax, const sw_qspec *spec)
{
    if (spec->is_pow2_scale) return (double)sw_pow2_weight_scale((float)amax, spec);
    return sw_grid_stored_scale(amax / (spec->num->values ? (double)spec->num->top
                                                          : 0.5 * spec->num->code_max),
                                spec);
}

/* One scale for all there is, also for what is loaded as one with it. */
static bool is_whole(const sw_qspec *spec)
{
    return spec->scale_rows == SW_ROWS_ALL && !spec->group_elems;
}

static int64_t group_of(const sw_qspec *spec, int64_t k_in)
{
    return spec->group_elems ? spec->group_elems : k_in;
}

/* Largest magnitudes of the weights that share a scale, as sw_solver_amax has them. */
static void find_ranges(float *ranges, const sw_frame *f, const float *w, int64_t n_out,
                        int64_t k_in, int64_t group)
{
    for (int64_t n = 0; n < n_out; n += f->rows)
        for (int64_t g = 0; g < f->n_groups; g++) {
            int64_t n_cols = sw_min_i64(group, k_in - g * group);
            double amax = 0;
            for (int64_t r = n; r < sw_min_i64(n + f->rows, n_out); r++)
                amax = fmax(amax, sw_weight_amax(w + r * k_in + g * group, n_cols));
            ranges[n / f->rows * f->n_groups + g] = (float)amax;
        }
}

/* Scales that rows share, from w or from d_w on a device. */
static sw_code share(sw_frame *f, sw_solver *solver, const float *w, const float *d_w,
                     int64_t n_out, int64_t k_in, const sw_qspec *spec, sw_err *err)
{
    int64_t n = sw_ceil_div(n_out, f->rows) * f->n_groups, group = group_of(spec, k_in);
    float *ranges = NULL;
    sw_code rc = SW_MEM_GET(&ranges, n, "ranges", err);

    if (rc != SW_OK) return rc;
    if (d_w) rc = sw_solver_amax(ranges, solver, d_w, n_out, k_in, f->rows, group, err);
    else find_ranges(ranges, f, w, n_out, k_in, group);
    for (int64_t i = 0; i < n && rc == SW_OK; i++) f->shared[i] = scale_of((double)ranges[i], spec);
    sw_mem_put(ranges);
    return rc;
}

static sw_code new_frame(sw_frame *out, sw_solver *solver, const float *w, const float *d_w,
                         int64_t n_out, int64_t k_in, double amax, const sw_qspec *spec,
                         sw_err *err)
{
    sw_frame f = {.global = 1.0f, .rows = sw_qspec_rows(spec, n_out),
                  .n_groups = sw_qspec_groups(spec, k_in)};
    sw_code rc = SW_OK;

    if (spec->has_global) f.global = global_of(amax, spec->num);
    if (f.rows > 1) {
        rc = SW_MEM_GET(&f.shared, sw_ceil_div(n_out, f.rows) * f.n_groups, "shared scales", err);
        if (rc != SW_OK) return rc;
        if (is_whole(spec)) f.shared[0] = scale_of(amax, spec);
        else rc = share(&f, solver, w, d_w, n_out, k_in, spec, err);
    }
    if (rc == SW_OK) *out = f;
    else sw_frame_free(&f);
    return rc;
}

static bool needs_amax(const sw_qspec *spec) { return spec->has_global || is_whole(spec); }

sw_code sw_frame_new(sw_frame *out, const float *w, int64_t n_out, int64_t k_in, double amax,
                     const sw_qspec *spec, sw_err *err)
{
    if (needs_amax(spec) && !(amax > 0)) amax = sw_weight_amax(w, n_out * k_in);
    return new_frame(out, NULL, w, NULL, n_out, k_in, amax, spec, err);
}

sw_code sw_frame_new_there(sw_frame *out, sw_solver *solver, const float *d_w, int64_t n_out,
                           int64_t k_in, double amax, const sw_qspec *spec, sw_err *err)
{
    float *rows = NULL;
    sw_code rc = SW_OK;

    if (needs_amax(spec) && !(amax > 0)) {
        if ((rc = SW_MEM_GET(&rows, n_out, "ranges", err)) != SW_OK) return rc;
        rc = sw_solver_amax(rows, solver, d_w, n_out, k_in, 1, k_in, err);
        if (rc == SW_OK) amax = sw_weight_amax(rows, n_out);
    }
    if (rc == SW_OK) rc = new_frame(out, solver, NULL, d_w, n_out, k_in, amax, spec, err);
    sw_mem_put(rows);
    return rc;
}

void sw_frame_free(sw_frame *frame)
{
    sw_mem_put(frame->shared);
    memset(frame, 0, sizeof *frame);
}
