/* tensor_look.c - see tensor_look.h. */
#include "tools/inspect/tensor_look.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/mem.h"
#include "formats/base/size.h"
#include "tools/cli/opt.h"

#define BAR_CHARS 48
#define NEAR_EDITS 12
#define CHUNK_ELEMS ((int64_t)1024)

typedef struct walker {
    sw_histogram *h;
    double sum, sum_squares;
} walker;

static void begin(walker *w, sw_histogram *h, const char *what)
{
    *h = (sw_histogram){.what = what, .n_bins = SW_BINS, .min = HUGE_VAL, .max = -HUGE_VAL};
    *w = (walker){.h = h};
}

/* First pass: the range and the figures. */
static void measure(walker *w, double v)
{
    sw_histogram *h = w->h;

    h->n_total++;
    if (!isfinite(v)) {
        h->n_bad++;
        return;
    }
    if (!(v > 0 || v < 0)) h->n_zero++;
    if (v < h->min) h->min = v;
    if (v > h->max) h->max = v;
    w->sum += v;
    w->sum_squares += v * v;
}

static void settle(walker *w)
{
    sw_histogram *h = w->h;
    int64_t n = h->n_total - h->n_bad;

    if (!n) h->min = h->max = 0;
    h->mean = n ? w->sum / (double)n : 0;
    h->rms = n ? sqrt(w->sum_squares / (double)n) : 0;
    h->low = h->min;
    h->high = h->max > h->min ? h->max : h->min + 1;
    if (!h->is_log) return;
    h->low = floor(log2(h->min > 0 ? h->min : 0x1p-149));
    h->high = floor(log2(h->max > 0 ? h->max : 1)) + 1;
    h->n_bins = (int)fmin(h->high - h->low, SW_BINS);
    if (h->n_bins < 1) h->n_bins = 1;
}

/* Second pass. */
static void place(sw_histogram *h, double v)
{
    double at = h->is_log ? log2(fabs(v)) : v;
    int bin;

    if (!isfinite(v) || (h->is_log && v == 0)) return;
    bin = (int)((at - h->low) / (h->high - h->low) * h->n_bins);
    h->n[bin < 0 ? 0 : bin >= h->n_bins ? h->n_bins - 1 : bin]++;
}

static void of_floats(sw_histogram *h, const char *what, bool is_log, const float *v, int64_t n)
{
    walker w;

    begin(&w, h, what);
    h->is_log = is_log;
    for (int64_t i = 0; i < n; i++) measure(&w, is_log ? fabs((double)v[i]) : (double)v[i]);
    if (is_log) /* zeros have no exponent */
        for (int64_t i = 0; h->min <= 0 && i < n; i++) {
            double size = fabs((double)v[i]);
            if (size > 0 && (!(h->min > 0) || size < h->min)) h->min = size;
        }
    settle(&w);
    for (int64_t i = 0; i < n; i++) place(h, (double)v[i]);
}

/* The same values in finer steps. */
static void refine(sw_histogram *out, const sw_histogram *h, const float *v, int64_t n)
{
    int parts = 1;

    *out = *h;
    while (2 * parts * h->n_bins <= SW_BINS) parts *= 2;
    out->n_bins = parts * h->n_bins;
    memset(out->n, 0, sizeof out->n);
    for (int64_t i = 0; i < n; i++) place(out, (double)v[i]);
}

/* Whole numbers from 0 to top, one bin each, or several in one where there are more than bins. */
static void of_codes(sw_histogram *h, const char *what, const uint8_t *v, int64_t n, int top)
{
    walker w;

    begin(&w, h, what);
    for (int64_t i = 0; i < n; i++) measure(&w, v[i]);
    settle(&w);
    h->low = 0;
    h->high = top + 1;
    h->n_bins = top + 1 < SW_BINS ? top + 1 : SW_BINS;
    for (int64_t i = 0; i < n; i++) place(h, v[i]);
}

/* n elements as numbers; false: the dtype is none. */
static bool as_numbers(double *out, const unsigned char *p, sw_dtype dtype, int64_t n)
{
    float floats[CHUNK_ELEMS];

    if (sw_float_decode_n(floats, p, dtype, n, NULL) == SW_OK) {
        for (int64_t i = 0; i < n; i++) out[i] = (double)floats[i];
        return true;
    }
    for (int64_t i = 0; i < n; i++) {
        if (dtype == SW_DTYPE_U8 || dtype == SW_DTYPE_BOOL) out[i] = p[i];
        else if (dtype == SW_DTYPE_I8) out[i] = (int8_t)p[i];
        else if (dtype == SW_DTYPE_I16) out[i] = (int16_t)sw_load_le16(p + 2 * i);
        else if (dtype == SW_DTYPE_I32) out[i] = (int32_t)sw_load_le32(p + 4 * i);
        else if (dtype == SW_DTYPE_I64) out[i] = (double)(int64_t)sw_load_le64(p + 8 * i);
        else return false;
    }
    return true;
}

/* One pass over the elements: they are measured, or placed. */
static bool pass(walker *w, const sw_cview *view, bool is_measure)
{
    const int64_t bytes = sw_dtype_bits(view->dtype) / 8, n = sw_view_elems(view);
    double chunk[CHUNK_ELEMS];

    for (int64_t at = 0; at < n; at += CHUNK_ELEMS) {
        int64_t part = sw_min_i64(CHUNK_ELEMS, n - at);
        if (!as_numbers(chunk, (const unsigned char *)view->data + at * bytes, view->dtype, part))
            return false;
        for (int64_t i = 0; i < part; i++) {
            if (is_measure) measure(w, chunk[i]);
            else place(w->h, chunk[i]);
        }
    }
    return n > 0;
}

static sw_code of_tensor(sw_histogram *h, const sw_st_tensor *tensor, sw_err *err)
{
    sw_cview view = tensor->view;
    sw_st_bytes bytes = {0};
    sw_histogram made;
    walker w;
    sw_code rc = sw_st_fetch(&bytes, tensor, err);

    view.data = bytes.data;
    begin(&w, &made, "values");
    if (rc == SW_OK && pass(&w, &view, true)) {
        settle(&w);
        (void)pass(&w, &view, false);
        *h = made;
    }
    sw_st_drop(&bytes);
    return rc;
}

static sw_code look_at_linear(sw_tensor_look *out, const sw_checkpoint *ckpt,
                              const sw_linear_ref *ref, sw_err *err)
{
    float *values = NULL;
    sw_qtensor q = {0};
    sw_code rc = sw_checkpoint_qtensor(&q, ckpt, out->name, ref->n_out, ref->k_in, err);

    if (rc == SW_OK) rc = SW_MEM_GET(&values, q.n_out * q.k_in, "decoded values", err);
    if (rc == SW_OK) {
        sw_qtensor_decode(values, &q);
        out->spec = q.spec;
        out->n_out = q.n_out;
        out->k_in = q.k_in;
        out->global_scale = q.spec.has_global ? q.global_scale : 0;
        out->input_scale = q.input_scale;
        of_codes(&out->codes, "codes", q.codes, q.n_out * q.k_in, q.spec.num->code_max);
        of_floats(&out->scales, "sizes of scales", true, q.scales, q.n_out * q.n_groups);
        refine(&out->fine_scales, &out->scales, q.scales, q.n_out * q.n_groups);
        if (q.zeros)
            of_codes(&out->zeros, "zero points", q.zeros, q.n_out * q.n_groups,
                     q.spec.num->code_max);
        of_floats(&out->values, "values", false, values, q.n_out * q.k_in);
    }
    sw_mem_put(values);
    sw_qtensor_free(&q);
    return rc;
}

static sw_code find_linear(bool *is_found, sw_linear_ref *out, const sw_checkpoint *ckpt,
                           const char *path, sw_err *err)
{
    sw_code rc = SW_OK;

    for (int64_t l = 0; ckpt && !*is_found && l <= ckpt->model.n_layers && rc == SW_OK; l++) {
        int64_t n = sw_model_linears(&ckpt->model, l, NULL, 0);
        sw_linear_ref *refs = NULL;
        char have[256];
        if ((rc = SW_MEM_GET(&refs, n, "linears of a layer", err)) != SW_OK) return rc;
        (void)sw_model_linears(&ckpt->model, l, refs, n);
        for (int64_t i = 0; i < n && !*is_found; i++) {
            *is_found = sw_model_slot_path(have, &ckpt->model, l, refs[i].slot, refs[i].expert) &&
                        !strcmp(have, path) && sw_checkpoint_is_quantized(ckpt, path);
            if (*is_found) *out = refs[i];
        }
        sw_mem_put(refs);
    }
    return rc;
}

static sw_code refuse_name(const sw_st *st, const char *name, sw_err *err)
{
    const char *nearest = NULL;
    int best = NEAR_EDITS;

    for (int64_t i = 0; i < sw_st_count(st) && strlen(name) < 200; i++) {
        const char *have = sw_st_at(st, i)->name;
        int edits = strlen(have) < 200 ? sw_opt_distance(name, have) : best;
        if (edits >= best) continue;
        best = edits;
        nearest = have;
    }
    return SW_FAIL(err, SW_E_USAGE, "--tensor: \"%.200s\" is neither a tensor nor a quantized "
                   "linear%s%s%s", name, nearest ? "; did you mean " : "; --tensors lists them",
                   nearest ? nearest : "", nearest ? "?" : "");
}

sw_code sw_tensor_look_at(sw_tensor_look *out, const sw_st *st, const sw_checkpoint *ckpt,
                          const char *name, sw_err *err)
{
    sw_tensor_look look = {.name = name, .tensor = sw_st_find(st, name)};
    sw_linear_ref ref = {0};
    bool is_linear = false;
    sw_code rc = SW_OK;

    if (!look.tensor) rc = find_linear(&is_linear, &ref, ckpt, name, err);
    if (rc != SW_OK) return rc;
    if (look.tensor) rc = of_tensor(&look.values, look.tensor, err);
    else if (is_linear) rc = look_at_linear(&look, ckpt, &ref, err);
    else rc = refuse_name(st, name, err);
    if (rc == SW_OK) *out = look;
    return rc;
}

static void print_histogram(const sw_histogram *h)
{
    static const char bar[] = "################################################";
    double step = (h->high - h->low) / h->n_bins;
    int64_t most = 1;

    if (!h->what) return;
    (void)printf("\n%s  %lld, from %.6g to %.6g, mean %.6g, rms %.6g", h->what,
                 (long long)h->n_total, h->min, h->max, h->mean, h->rms);
    if (h->n_zero) (void)printf(", %lld zero", (long long)h->n_zero);
    if (h->n_bad) (void)printf(", %lld NOT FINITE", (long long)h->n_bad);
    (void)puts("");
    for (int b = 0; b < h->n_bins; b++)
        if (h->n[b] > most) most = h->n[b];
    for (int b = 0; b < h->n_bins; b++) {
        int length = (int)((double)h->n[b] / (double)most * BAR_CHARS + 0.5);
        char from[24];
        (void)snprintf(from, sizeof from, h->is_log ? "2^%.0f" : "%.4g", h->low + step * b);
        (void)printf("  %12s  %-*.*s %lld\n", from, BAR_CHARS, length, bar, (long long)h->n[b]);
    }
}

void sw_tensor_look_print(const sw_tensor_look *look)
{
    char text[160];

    if (look->tensor) {
        sw_view_describe(text, sizeof text, &look->tensor->view);
        (void)printf("%s\n%s, %zu bytes\n", look->name, text, look->tensor->view.size_bytes);
    } else {
        (void)printf("%s\n%lld outputs, %lld inputs, %s in groups of %lld, %s", look->name,
                     (long long)look->n_out, (long long)look->k_in, look->spec.num->name,
                     (long long)look->spec.group_elems,
                     look->spec.is_symmetric ? "symmetric" : "with zero points");
        if (look->global_scale > 0)
            (void)printf(", global scale %.9g", (double)look->global_scale);
        if (look->input_scale > 0) (void)printf(", input scale %.9g", (double)look->input_scale);
        (void)puts("");
    }
    print_histogram(&look->codes);
    print_histogram(&look->scales);
    print_histogram(&look->zeros);
    print_histogram(&look->values);
}

static bool add_real(cJSON *object, const char *key, double v)
{
    return (isfinite(v) ? cJSON_AddNumberToObject(object, key, v)
                        : cJSON_AddNullToObject(object, key)) != NULL;
}

static bool add_histogram(cJSON *object, const char *key, const sw_histogram *h)
{
    cJSON *row, *bins;

    if (!h->what) return true;
    row = cJSON_AddObjectToObject(object, key);
    if (!row || !add_real(row, "total", (double)h->n_total) ||
        !add_real(row, "zero", (double)h->n_zero) || !add_real(row, "bad", (double)h->n_bad) ||
        !add_real(row, "min", h->min) || !add_real(row, "max", h->max) ||
        !add_real(row, "mean", h->mean) || !add_real(row, "rms", h->rms) ||
        !cJSON_AddBoolToObject(row, "log2", h->is_log) || !add_real(row, "low", h->low) ||
        !add_real(row, "high", h->high) || !(bins = cJSON_AddArrayToObject(row, "bins")))
        return false;
    for (int b = 0; b < h->n_bins; b++) {
        cJSON *n = cJSON_CreateNumber((double)h->n[b]);
        if (n && cJSON_AddItemToArray(bins, n)) continue;
        cJSON_Delete(n);
        return false;
    }
    return true;
}

bool sw_tensor_look_json(cJSON *object, const sw_tensor_look *look)
{
    cJSON *row = cJSON_AddObjectToObject(object, "tensor");

    if (!row || !cJSON_AddStringToObject(row, "name", look->name)) return false;
    if (look->tensor && !cJSON_AddStringToObject(row, "dtype",
                                                 sw_dtype_name(look->tensor->view.dtype)))
        return false;
    if (!look->tensor && (!cJSON_AddStringToObject(row, "format", look->spec.num->name) ||
                          !add_real(row, "outputs", (double)look->n_out) ||
                          !add_real(row, "inputs", (double)look->k_in) ||
                          !add_real(row, "group", (double)look->spec.group_elems) ||
                          !add_real(row, "global_scale", (double)look->global_scale) ||
                          !add_real(row, "input_scale", (double)look->input_scale)))
        return false;
    return add_histogram(row, "codes", &look->codes) &&
           add_histogram(row, "scales", &look->scales) &&
           add_histogram(row, "zeros", &look->zeros) &&
           add_histogram(row, "values", &look->values);
}
