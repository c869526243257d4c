/* decode_spec_float.c - small floats and shared scales, as the second decoder reads them: straight
 * from the definitions, with ldexp. */
#include "verify/decoders/decode_spec_parts.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct float_name {
    const char *name;
    int exponent_bits, mantissa_bits;
} float_name;

#define SW_SPEC_WIDTH(bits)
#define SW_SPEC_FLOAT(name, exponent, mantissa, last) {name, exponent, mantissa},
static const float_name float_names[] = {
#include "verify/decoders/numbers.def"
};
#define N_FLOATS (sizeof float_names / sizeof *float_names)

/* By exponent and mantissa bits, for it is asked about every code. */
#undef SW_SPEC_FLOAT
#define SW_SPEC_FLOAT(name, exponent, mantissa, last) [exponent][mantissa] = last,
static const uint8_t last_finite[8][8] = {
#include "verify/decoders/numbers.def"
};
#undef SW_SPEC_WIDTH
#undef SW_SPEC_FLOAT

int sw_spec_float_last(int exponent_bits, int mantissa_bits)
{
    return last_finite[exponent_bits][mantissa_bits];
}

sw_code sw_spec_float_kind(sw_spec_scheme *scheme, const char *name, sw_err *err)
{
    char known[100] = "integers";
    size_t at = strlen(known);

    for (size_t i = 0; i < N_FLOATS; i++) {
        const float_name *f = &float_names[i];

        if (at < sizeof known)
            at += (size_t)snprintf(known + at, sizeof known - at, "%s%s",
                                   i + 1 < N_FLOATS ? ", " : " and ", f->name);
        if (strcmp(f->name, name)) continue;
        scheme->bits = 1 + f->exponent_bits + f->mantissa_bits;
        scheme->exponent_bits = f->exponent_bits;
        scheme->mantissa_bits = f->mantissa_bits;
        scheme->is_symmetric = true;
        return SW_OK;
    }
    return SW_FAIL(err, SW_E_UNSUPPORTED, "weights of format \"%.30s\"; %s can be verified", name,
                   known);
}

double sw_spec_small_float(int code, int exponent_bits, int mantissa_bits)
{
    int bias = (1 << (exponent_bits - 1)) - 1, sign = code >> (exponent_bits + mantissa_bits);
    int exponent = (code >> mantissa_bits) & ((1 << exponent_bits) - 1);
    int fraction = code & ((1 << mantissa_bits) - 1);
    int size = exponent << mantissa_bits | fraction;
    double v;

    if (size > last_finite[exponent_bits][mantissa_bits]) /* with no fraction IEEE's infinity */
        return fraction ? (double)NAN : sign ? -(double)INFINITY : (double)INFINITY;
    v = exponent ? ldexp((1 << mantissa_bits) + fraction, exponent - bias - mantissa_bits)
                 : ldexp(fraction, 1 - bias - mantissa_bits);
    return sign ? -v : v;
}

double sw_spec_level(const sw_spec_weight *w, int code, int zero)
{
    if (w->levels) return (double)w->levels[code];
    if (!w->exponent_bits) return code - zero;
    return sw_spec_small_float(code, w->exponent_bits, w->mantissa_bits);
}

double sw_spec_step(const sw_spec_weight *w, double level)
{
    int lowest, exponent, above = 1;

    if (w->levels) {
        while (above < w->n_levels - 1 && (double)w->levels[above] <= level) above++;
        return (double)(w->levels[above] - w->levels[above - 1]);
    }
    if (!w->exponent_bits) return 1;
    lowest = 2 - (1 << (w->exponent_bits - 1));
    (void)frexp(level, &exponent);
    exponent = level < 0 || level > 0 ? exponent - 1 : lowest;
    return ldexp(1, (exponent < lowest ? lowest : exponent) - w->mantissa_bits);
}

static sw_code check_codes(const sw_spec_weight *w, sw_err *err)
{
    const int n_codes = 1 << w->bits;
    bool is_number[256] = {false};

    for (int code = 0; code < n_codes && code < 256; code++)
        is_number[code] = isfinite(sw_spec_level(w, code, 0));
    for (int64_t i = 0; i < w->n_out * w->k_in; i++)
        if (!is_number[w->codes[i]])
            return SW_FAIL(err, SW_E_FORMAT, "code of channel %lld, input %lld is 0x%02x, which is "
                           "no number", (long long)(i / w->k_in), (long long)(i % w->k_in),
                           w->codes[i]);
    return SW_OK;
}

static sw_code check_one(const sw_spec_weight *w, const sw_spec_scheme *s, int64_t n, int64_t g,
                         sw_err *err)
{
    int64_t rows = s->scale_rows < 0 ? w->n_out : s->scale_rows > 1 ? s->scale_rows : 1;
    float scale = w->scales[n * w->n_groups + g];
    float first = w->scales[n / rows * rows * w->n_groups + g];
    double top = sw_spec_small_float(sw_spec_float_last(w->exponent_bits, w->mantissa_bits),
                                     w->exponent_bits, w->mantissa_bits);
    int exponent;
    /* the formats of MX and block scales know no sign, that of E4M3 ones a zero besides */
    bool is_free = !s->has_global && !s->is_pow2;
    bool is_legal = is_free || scale > 0 || (s->has_global && scale >= 0);

    if (!isfinite(scale) || !is_legal)
        return SW_FAIL(err, SW_E_FORMAT, "scale of channel %lld, group %lld is %g, want a finite "
                       "number%s", (long long)n, (long long)g, (double)scale,
                       is_free ? "" : " above 0");
    if (s->is_pow2 && !(frexp((double)scale, &exponent) <= 0.5))
        return SW_FAIL(err, SW_E_FORMAT, "scale of channel %lld, group %lld is %g, want a power "
                       "of two", (long long)n, (long long)g, (double)scale);
    if (scale < first || scale > first)
        return SW_FAIL(err, SW_E_FORMAT, "scale of channel %lld, group %lld is %g, but its block "
                       "has %g", (long long)n, (long long)g, (double)scale, (double)first);
    if (fabs((double)scale) * top * (double)w->global > 65504)
        return SW_FAIL(err, SW_E_FORMAT, "scale of channel %lld, group %lld is %g: codes up to %g "
                       "leave half precision", (long long)n, (long long)g, (double)scale, top);
    return SW_OK;
}

sw_code sw_spec_check_floats(const sw_spec_weight *w, const sw_spec_scheme *scheme, sw_err *err)
{
    sw_code rc = check_codes(w, err);

    if (rc == SW_OK && !(isfinite(w->global) && w->global > 0))
        rc = SW_FAIL(err, SW_E_FORMAT, "global scale is %g, want a finite number above 0",
                     (double)w->global);
    for (int64_t n = 0; n < w->n_out; n++)
        for (int64_t g = 0; g < w->n_groups && rc == SW_OK; g++)
            rc = check_one(w, scheme, n, g, err);
    return rc;
}

/* Any float of one element. */
static sw_code single(float *out, const sw_st *st, const char *module_path, const char *suffix,
                      sw_err *err)
{
    static const int64_t one = 1;
    const sw_st_tensor *t = sw_spec_find(st, module_path, suffix);
    sw_spec_floats floats;
    sw_code rc;

    rc = sw_spec_scales(&floats, st, module_path, suffix, t && t->view.n_dims == 0 ? 0 : 1, &one,
                        err);
    if (rc != SW_OK) return rc;
    *out = sw_spec_float_at(&floats, 0);
    return SW_OK;
}

sw_code sw_spec_single(float *out, const sw_st *st, const char *module_path, const char *suffix,
                       sw_err *err)
{
    sw_code rc = single(out, st, module_path, suffix, err);

    if (rc != SW_OK || (isfinite(*out) && *out > 0)) return rc;
    return SW_FAIL(err, SW_E_FORMAT, "%s.%s is %g, want a finite number above 0", module_path,
                   suffix, (double)*out);
}

sw_code sw_spec_single_scale(float *out, const sw_st *st, const char *module_path,
                             const char *suffix, sw_err *err)
{
    sw_code rc = single(out, st, module_path, suffix, err);

    if (rc != SW_OK || isfinite(*out)) return rc;
    return SW_FAIL(err, SW_E_FORMAT, "%s.%s is %g, want a finite number", module_path, suffix,
                   (double)*out);
}
