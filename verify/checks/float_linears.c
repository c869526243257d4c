/* float_linears.c - see checks.h. */
#include "verify/checks/checks.h"

#include <math.h>
#include <string.h>

#include "formats/base/mem.h"
#include "formats/num/num.h"
#include "verify/decoders/decode_spec_parts.h"
#include "verify/metrics/original.h"

bool sw_is_float_linear(const sw_subject *checkpoint, const sw_subject *original, const char *path)
{
    return sw_original_is_quantized(original, path) &&
           !sw_spec_is_quantized(&checkpoint->scheme, checkpoint->st, path);
}

/* One unit in the last place of a dtype at `value`. */
static double last_place(float value, sw_dtype dtype)
{
    const int bits = dtype == SW_DTYPE_BF16 ? 8 : dtype == SW_DTYPE_F16 ? 11 : 24;
    const int lowest = dtype == SW_DTYPE_F16 ? -24 : -149;
    int exponent;

    (void)frexp((double)value, &exponent);
    return ldexp(1, exponent - bits < lowest ? lowest : exponent - bits);
}

/* Of products of several factors, two readers may round in another order: one place is free. */
static int64_t first_other(const float *have, const float *want, int64_t n, sw_dtype dtype,
                           bool is_exact)
{
    for (int64_t i = 0; i < n; i++) {
        float rounded = sw_num_round_to(want[i], dtype);

        if (have[i] >= rounded && have[i] <= rounded) continue;
        if (is_exact || !(fabs((double)have[i] - (double)rounded) <= last_place(rounded, dtype)))
            return i;
    }
    return -1;
}

static bool has_one_factor(const sw_subject *original, const char *path)
{
    sw_spec_scheme scheme;
    sw_err ignored = {0};

    return sw_spec_scheme_of(&scheme, &original->scheme, path, &ignored) == SW_OK &&
           !scheme.has_global && !scheme.blocks;
}

/* The dtype that the linear is stored in: of its own tensor, or of all experts'. */
static sw_dtype dtype_of(const sw_subject *s, const char *path)
{
    const sw_st_tensor *t = sw_spec_find(s->st, path, "weight");

    return t ? t->view.dtype : s->model.dtype;
}

static sw_code check_one(sw_report *report, const sw_subject *checkpoint,
                         const sw_subject *original, const sw_subject_linear *l, sw_err *err)
{
    float *have = NULL, *want = NULL;
    sw_err why = {0};
    int64_t at;
    sw_code rc;

    rc = sw_original_weight(&have, checkpoint, l, &why);
    if (rc == SW_E_FORMAT) return sw_report_find(report, "decode", l->path, err, "%s", why.text);
    if (rc != SW_OK) *err = why;
    if (rc == SW_OK) rc = sw_original_weight(&want, original, l, err);
    if (rc == SW_OK) {
        at = first_other(have, want, l->ref.n_out * l->ref.k_in, dtype_of(checkpoint, l->path),
                         has_one_factor(original, l->path));
        if (at >= 0)
            rc = sw_report_find(report, "differs", l->path, err, "%s: channel %lld, input %lld is "
                                "%.9g, the original's codes stand for %.9g", l->path,
                                (long long)(at / l->ref.k_in), (long long)(at % l->ref.k_in),
                                (double)have[at], (double)want[at]);
    }
    sw_mem_put(have);
    sw_mem_put(want);
    return rc;
}

sw_code sw_verify_float_linears(sw_report *report, const sw_subject *checkpoint,
                                const sw_subject *original, const sw_progress *progress,
                                sw_err *err)
{
    sw_arena arena = {0};
    sw_subject_linear *linears = NULL;
    int64_t n = 0;
    sw_code rc = sw_subject_linears(&linears, &n, &checkpoint->model, &arena, err);

    for (int64_t i = 0; i < n && rc == SW_OK; i++) {
        if (!sw_is_float_linear(checkpoint, original, linears[i].path)) continue;
        if (!sw_original_holds(checkpoint, &linears[i])) continue; /* said to be missing */
        sw_progress_step(progress, "floats", i, n);
        sw_progress_item(progress, linears[i].path);
        rc = check_one(report, checkpoint, original, &linears[i], err);
        if (rc == SW_OK) rc = sw_progress_check(progress, err);
        sw_st_forget(checkpoint->st);
        sw_st_forget(original->st);
    }
    sw_arena_free(&arena);
    return rc;
}
