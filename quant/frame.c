/* frame.c - see frame.h. */
#include "quant/frame.h"

#include <math.h>
#include <string.h>

#include "formats/base/mem.h"
#include "formats/base/size.h"
#include "formats/num/pow2.h"
#include "quant/grid.h"

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

static void fit_shared(sw_frame *f, const float *w, int64_t n_out, int64_t k_in,
                       const sw_qspec *spec)
{
    int64_t group = spec->group_elems ? spec->group_elems : k_in;

    for (int64_t n = 0; n < n_out; n += f->rows)
        for (int64_t g = 0; g < f->n_groups; g++) {
            int64_t n_cols = sw_min_i64(group, k_in - g * group);
            double amax = 0;
            for (int64_t r = n; r < sw_min_i64(n + f->rows, n_out); r++)
                amax = fmax(amax, sw_weight_amax(w + r * k_in + g * group, n_cols));
            f->shared[n / f->rows * f->n_groups + g] = scale_of(amax, spec);
        }
}

sw_code sw_frame_new(sw_frame *out, const float *w, int64_t n_out, int64_t k_in, double amax,
                     const sw_qspec *spec, sw_err *err)
{
    sw_frame f = {.global = 1.0f, .rows = sw_qspec_rows(spec, n_out),
                  .n_groups = sw_qspec_groups(spec, k_in)};
    sw_code rc;

    if (!(amax > 0)) amax = sw_weight_amax(w, n_out * k_in);
    if (spec->has_global) f.global = global_of(amax, spec->num);
    if (f.rows > 1) {
        rc = SW_MEM_GET(&f.shared, sw_ceil_div(n_out, f.rows) * f.n_groups, "shared scales", err);
        if (rc != SW_OK) return rc;
        if (spec->scale_rows == SW_ROWS_ALL && !spec->group_elems)
            f.shared[0] = scale_of(amax, spec);
        else
            fit_shared(&f, w, n_out, k_in, spec);
    }
    *out = f;
    return SW_OK;
}

void sw_frame_free(sw_frame *frame)
{
    sw_mem_put(frame->shared);
    memset(frame, 0, sizeof *frame);
}
