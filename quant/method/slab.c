/* slab.c - see slab.h. */
#include "quant/method/slab.h"

#include <string.h>

#include "formats/base/size.h"
#include "quant/method/grid.h"

#define ROWS SW_SLAB_ROWS
#define TILE_COLS 16 /* that are turned at a time: in the first cache, both ways */

sw_code sw_slab_new(sw_slab *out, const sw_qspec *spec, int64_t k, sw_err *err)
{
    return sw_slab_new_part(out, spec, k, k, err);
}

sw_code sw_slab_new_part(sw_slab *out, const sw_qspec *spec, int64_t k_in, int64_t width,
                         sw_err *err)
{
    int64_t k = sw_min_i64(width, k_in), g = sw_qspec_groups(spec, k);
    sw_slab slab = {.k = k, .n_groups = g, .k_in = k_in, .width = k};
    sw_code rc = SW_MEM_GET(&slab.target, 2 * (k + g) * ROWS, "slab of rows", err);

    if (rc != SW_OK) return rc;
    slab.group_elems = spec->group_elems ? spec->group_elems : k_in;
    slab.codes = slab.target + k * ROWS;
    slab.scales = slab.codes + k * ROWS;
    slab.zeros = slab.scales + g * ROWS;
    *out = slab;
    return SW_OK;
}

void sw_slab_move(sw_slab *slab, int64_t first)
{
    slab->first = first;
    slab->k = sw_min_i64(slab->width, slab->k_in - first);
    slab->n_groups = sw_ceil_div(slab->k, slab->group_elems);
}

void sw_slab_free(sw_slab *slab)
{
    sw_mem_put(slab->target);
    memset(slab, 0, sizeof *slab);
}

void sw_slab_load(sw_slab *slab, const float *w, const double *shift, int64_t row0, int64_t n_rows)
{
    int64_t k = slab->k;
    double global = slab->frame ? (double)slab->frame->global : 1.0;

    slab->row0 = row0;
    slab->n_rows = n_rows;
    for (int64_t from = 0; from < k; from += TILE_COLS)
        for (int64_t r = 0; r < ROWS; r++) {
            int64_t n = sw_min_i64(TILE_COLS, k - from);
            int64_t at = (row0 + r) * slab->k_in + slab->first + from;
            double row[TILE_COLS] = {0};

            for (int64_t j = 0; j < n && r < n_rows; j++) row[j] = (double)w[at + j];
            for (int64_t j = 0; shift && j < n && r < n_rows; j++) row[j] += shift[at + j];
            for (int64_t j = 0; j < n; j++) slab->target[(from + j) * ROWS + r] = row[j];
        }
    for (int64_t i = 0; global != 1.0 && i < k * ROWS; i++) slab->target[i] /= global;
}

/* Shared scales into every row; zeros as the format has them. */
static bool take_shared(sw_slab *slab, const sw_qspec *spec)
{
    const sw_frame *f = slab->frame;
    const int64_t first = slab->first / slab->group_elems;

    if (!f || !f->shared) return false;
    for (int64_t g = 0; g < slab->n_groups; g++)
        for (int r = 0; r < ROWS; r++) {
            int64_t n = slab->row0 + sw_min_i64(r, slab->n_rows - 1);
            slab->scales[g * ROWS + r] = f->shared[n / f->rows * f->n_groups + first + g];
            slab->zeros[g * ROWS + r] = spec->num->values ? 0 : spec->num->sym_zero;
        }
    return true;
}

void sw_slab_fit_range(sw_slab *slab, const sw_qspec *spec)
{
    if (take_shared(slab, spec)) return;
    for (int64_t g = 0; g < slab->n_groups; g++) {
        int64_t from = g * slab->group_elems;
        sw_grid_range(slab->scales + g * ROWS, slab->zeros + g * ROWS, slab->target + from * ROWS,
                      sw_min_i64(slab->group_elems, slab->k - from), spec);
    }
}

void sw_slab_fit(sw_slab *slab, const double *weight, const sw_qspec *spec)
{
    int64_t gs = slab->group_elems;

    if (take_shared(slab, spec)) return;
    for (int64_t g = 0; g < slab->n_groups; g++)
        sw_grid_fit(slab->scales + g * ROWS, slab->zeros + g * ROWS, slab->target + g * gs * ROWS,
                    weight + g * gs, sw_min_i64(gs, slab->k - g * gs), spec);
}

void sw_slab_round(sw_slab *slab, const sw_num *num)
{
    for (int64_t j = 0; j < slab->k; j++) {
        int64_t g = j / slab->group_elems;
        sw_grid_codes(slab->codes + j * ROWS, slab->target + j * ROWS, slab->scales + g * ROWS,
                      slab->zeros + g * ROWS, num);
    }
}

/* A slab's "code" as stored bits; of a small float's two zeros the positive one. */
static uint8_t code_of(double code, const sw_num *num)
{
    if (!num->encode) return (uint8_t)code;
    return code == 0 ? 0 : num->encode((float)code);
}

void sw_slab_store(const sw_slab *slab, sw_qtensor *q, int64_t row0, int64_t n_rows)
{
    const sw_num *num = q->spec.num;
    int64_t k = slab->k, n_groups = sw_ceil_div(slab->k_in, slab->group_elems);
    uint8_t *codes = q->codes + slab->first;
    int64_t first = slab->first / slab->group_elems;

    for (int64_t from = 0; from < k; from += TILE_COLS)
        for (int64_t r = 0; r < n_rows; r++)
            for (int64_t j = from; j < sw_min_i64(from + TILE_COLS, k); j++)
                codes[(row0 + r) * slab->k_in + j] = code_of(slab->codes[j * ROWS + r], num);
    for (int64_t r = 0; r < n_rows; r++)
        for (int64_t g = 0; g < slab->n_groups; g++) {
            int64_t at = (row0 + r) * n_groups + first + g;
            q->scales[at] = (float)slab->scales[g * ROWS + r];
            if (q->zeros) q->zeros[at] = (uint8_t)slab->zeros[g * ROWS + r];
        }
}
