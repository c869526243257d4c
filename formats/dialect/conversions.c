/* conversions.c - see conversions.h. */
#include "formats/dialect/conversions.h"

#include <limits.h>
#include <stdio.h>

typedef struct attempt {
    sw_qspec spec;
    bool is_conditional;
} attempt;

#define ATTEMPTS_MAX 10

static int add(attempt *out, int n, const sw_qspec *spec, bool is_conditional)
{
    for (int i = 0; i < n; i++)
        if (sw_qspec_same(&out[i].spec, spec) && out[i].spec.zero_min == spec->zero_min) return n;
    out[n] = (attempt){*spec, is_conditional};
    return n + 1;
}

/* The source's scheme, and the same with one group per channel spelt the other way. */
static int add_spellings(attempt *out, int n, const sw_qspec *spec, int64_t k_in,
                         bool is_conditional)
{
    sw_qspec other = *spec;

    n = add(out, n, spec, is_conditional);
    if (spec->group_elems && spec->group_elems != k_in) return n;
    other.group_elems = spec->group_elems ? 0 : k_in;
    return spec->is_scattered || spec->scale_rows > 1 ? n : add(out, n, &other, is_conditional);
}

static int attempts(attempt out[ATTEMPTS_MAX], const sw_qspec *source, const sw_dialect *target,
                    int64_t k_in)
{
    static const sw_dtype dtypes[] = {SW_DTYPE_F32, SW_DTYPE_F16, SW_DTYPE_BF16};
    sw_qspec spec = *source;
    int n = add_spellings(out, 0, &spec, k_in, false);

    spec.zero_min = target->zero_min;
    if (!spec.is_symmetric) n = add_spellings(out, n, &spec, k_in, true);
    for (int i = 0; i < 3 && sw_dtype_bits(source->scale_dtype) >= 16; i++) {
        if (target->scale_dtype(dtypes[i]) != dtypes[i] && source->scale_dtype != SW_DTYPE_F32)
            continue;
        spec.scale_dtype = dtypes[i];
        n = add_spellings(out, n, &spec, k_in, dtypes[i] != SW_DTYPE_F32 || !spec.is_symmetric);
    }
    return n;
}

sw_code sw_conversion_exact(sw_qspec *out, bool *is_conditional, const sw_qspec *source,
                            const sw_dialect *target, int64_t n_out, int64_t k_in, sw_err *err)
{
    int at = 0;

    return sw_conversion_next(out, is_conditional, &at, source, target, n_out, k_in, err);
}

sw_code sw_conversion_next(sw_qspec *out, bool *is_conditional, int *at, const sw_qspec *source,
                           const sw_dialect *target, int64_t n_out, int64_t k_in, sw_err *err)
{
    attempt tries[ATTEMPTS_MAX];
    int n = attempts(tries, source, target, k_in);
    sw_err why = {.text = "there is no other way"};

    for (int i = *at; i < n; i++) {
        sw_err one = {0};
        if (target->can_hold(&tries[i].spec, n_out, k_in, &one) == SW_OK) {
            *out = tries[i].spec;
            *at = i + 1;
            *is_conditional = tries[i].is_conditional ||
                              (target->check_values && !tries[i].spec.is_symmetric);
            return SW_OK;
        }
        if (!i) why = one; /* of the scheme as it is */
    }
    return SW_FAIL(err, SW_E_UNSUPPORTED, "%s", why.text);
}

sw_code sw_conversion_check(const sw_qtensor *q, const sw_dialect *target, const sw_qspec *spec,
                            sw_err *err)
{
    for (int64_t i = 0; i < q->n_out * q->n_groups; i++) {
        long long n = i / q->n_groups, g = i % q->n_groups;
        if (q->zeros && q->zeros[i] < spec->zero_min)
            return SW_FAIL(err, SW_E_UNSUPPORTED, "zero point %d at row %lld, group %lld; the "
                           "target stores them from %d on", q->zeros[i], n, g, spec->zero_min);
        if (sw_num_round_to(q->scales[i], spec->scale_dtype) != q->scales[i])
            return SW_FAIL(err, SW_E_UNSUPPORTED, "scale %.9g at row %lld, group %lld is no %s "
                           "value, as the target stores them", (double)q->scales[i], n, g,
                           sw_dtype_name(spec->scale_dtype));
    }
    return target->check_values ? target->check_values(q, err) : SW_OK;
}

/* How many doublings lie between two group sizes; negative when `to` is finer. */
static int coarsening(int64_t from, int64_t to, int64_t k_in)
{
    int n = 0;

    from = from ? from : k_in;
    to = to ? to : k_in;
    for (; from < to; from *= 2) n++;
    for (; to < from; to *= 2) n--;
    return n;
}

static bool same_inputs(const sw_act *a, const sw_act *b)
{
    if (a->scope == SW_ACT_NONE || b->scope == SW_ACT_NONE) return a->scope == b->scope;
    return a->num == b->num && a->scope == b->scope && a->group_elems == b->group_elems;
}

static int distance(const sw_qspec *from, const sw_qspec *to, int64_t k_in)
{
    int bits = to->num->bits - from->num->bits;
    int coarser = coarsening(from->group_elems, to->group_elems, k_in);
    int sum = bits < 0 ? 1000 * -bits : 20 * bits;

    if (!same_inputs(&from->act, &to->act)) sum += to->act.scope == SW_ACT_NONE ? 150 : 400;
    if (from->num->kind != to->num->kind) sum += 100;
    sum += coarser > 0 ? 4 * coarser : -coarser;
    if (from->is_symmetric != to->is_symmetric) sum += to->is_symmetric ? 10 : 2;
    if (to->scale_rows > 1 || to->scale_rows == SW_ROWS_ALL) sum += 3;
    return sum;
}

typedef struct search {
    const sw_qspec *source;
    const sw_dialect *target;
    int64_t n_out, k_in;
    int best;
    sw_qspec spec;
} search;

static void consider(search *s, const sw_qspec *spec)
{
    int d = distance(s->source, spec, s->k_in);
    sw_err ignored = {0};

    if (d >= s->best || s->target->can_hold(spec, s->n_out, s->k_in, &ignored) != SW_OK) return;
    s->best = d;
    s->spec = *spec;
}

static void consider_variations(search *s, const sw_qspec *candidate)
{
    const int64_t groups[] = {s->source->group_elems, 128, 64, 32, 0};
    sw_qspec spec = *candidate;

    consider(s, candidate);
    if (candidate->num->kind != SW_NUM_INT) return;
    for (size_t g = 0; g < sizeof groups / sizeof *groups; g++)
        for (int sym = 0; sym < 2; sym++) {
            spec.group_elems = groups[g];
            spec.is_symmetric = sym != 0;
            consider(s, &spec);
        }
}

sw_code sw_conversion_nearest(sw_qspec *out, const sw_qspec *source, const sw_dialect *target,
                              const sw_qspec *candidates, int n_candidates, int64_t n_out,
                              int64_t k_in, sw_dtype model_dtype, sw_err *err)
{
    search s = {.source = source, .target = target, .n_out = n_out, .k_in = k_in,
                .best = INT_MAX};

    for (int i = 0; i < n_candidates; i++) {
        sw_qspec spec = candidates[i];
        if (sw_act_needs_input_scale(&spec.act)) continue;
        sw_dialect_fit_spec(&spec, target, model_dtype);
        consider_variations(&s, &spec);
    }
    if (s.best == INT_MAX)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "%s: holds no scheme for a weight of %lld outputs "
                       "and %lld inputs that needs no calibration", target->name,
                       (long long)n_out, (long long)k_in);
    *out = s.spec;
    return SW_OK;
}
