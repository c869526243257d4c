/* spec_rows.c - see spec_rows.h. */
#include "verify/decoders/spec_rows.h"

#include <math.h>
#include <string.h>

#include "formats/base/hot.h"
#include "formats/base/mem.h"
#include "formats/base/size.h"

static bool is_of_run(const sw_spec_weight *w, const sw_spec_run *run, int64_t k)
{
    return w->group_of[k] == run->group && (w->is_outlier && w->is_outlier[k]) == run->is_outlier;
}

/* Returns how many there are; `runs` NULL: only counts. */
static int64_t find_runs(sw_spec_run *runs, const sw_spec_weight *w)
{
    int64_t n_runs = 0;

    for (int64_t k = 0; k < w->k_in; n_runs++) {
        sw_spec_run run = {k, 0, w->group_of[k], w->is_outlier && w->is_outlier[k]};

        while (k < w->k_in && is_of_run(w, &run, k)) k++;
        run.n = k - run.k;
        if (runs) runs[n_runs] = run;
    }
    return n_runs;
}

sw_code sw_spec_rows_new(sw_spec_rows *out, const sw_spec_weight *w, sw_err *err)
{
    const bool has_zeros = !w->exponent_bits && !w->levels;
    const int n_levels = w->levels ? w->n_levels : has_zeros ? 256 : 1 << w->bits;
    sw_spec_rows rows = {.w = w, .n_runs = find_runs(NULL, w)};
    sw_code rc = SW_MEM_GET(&rows.runs, rows.n_runs, "runs of groups", err);

    if (rc != SW_OK) return rc;
    for (int code = 0; code < 256; code++)
        rows.levels[code] = code < n_levels ? (float)sw_spec_level(w, code, 0) : NAN;
    (void)find_runs(rows.runs, w);
    *out = rows;
    return SW_OK;
}

void sw_spec_rows_free(sw_spec_rows *rows)
{
    sw_mem_put(rows->runs);
    memset(rows, 0, sizeof *rows);
}

int64_t sw_spec_rows_run_at(const sw_spec_rows *rows, int64_t k)
{
    int64_t low = 0, high = rows->n_runs;

    while (low < high) {
        const int64_t middle = (low + high) / 2;

        if (rows->runs[middle].k + rows->runs[middle].n <= k) low = middle + 1;
        else high = middle;
    }
    return low;
}

void sw_spec_rows_levels(float *out, const sw_spec_rows *rows, int64_t n, int64_t k,
                         int64_t n_inputs)
{
    const uint8_t *codes = rows->w->codes + n * rows->w->k_in + k;

    for (int64_t i = 0; i < n_inputs; i++) out[i] = rows->levels[codes[i]];
}

/* In the order of decode_spec.h, so that every reader rounds alike. */
static SW_HOT void scale_run(float *out, const float *levels, int64_t n, float scale, float zero,
                             float global)
{
    for (int64_t i = 0; i < n; i++) out[i] = scale * (levels[i] - zero) * global;
}

static SW_HOT void shift_run(float *out, int64_t n, float offset)
{
    for (int64_t i = 0; i < n; i++) out[i] += offset;
}

void sw_spec_rows_values(float *out, const float *levels, const sw_spec_rows *rows, int64_t n,
                         int64_t k, int64_t n_inputs)
{
    const sw_spec_weight *w = rows->w;
    const bool has_zeros = !w->exponent_bits && !w->levels;

    if (w->values) {
        memcpy(out, w->values + n * w->k_in + k, (size_t)n_inputs * sizeof *out);
        return;
    }
    for (int64_t at = sw_spec_rows_run_at(rows, k); at < rows->n_runs; at++) {
        const sw_spec_run *run = &rows->runs[at];
        const int64_t from = sw_max_i64(run->k, k), cell = n * w->n_groups + run->group;
        const int64_t count = sw_min_i64(run->k + run->n, k + n_inputs) - from;

        if (count <= 0) break;
        scale_run(out + (from - k), levels + (from - k), count, w->scales[cell],
                  has_zeros ? (float)w->zeros[cell] : 0, w->global);
        if (w->offsets) shift_run(out + (from - k), count, w->offsets[cell]);
    }
}
