/* plain_blocks.c - see plausible.h. */
#include "verify/checks/plausible.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/mem.h"
#include "verify/base/apart.h"

/* A weight follows the rule when this share of its blocks do. Plain ones measure 1, searched and
 * converted ones 0.02 at most. Fewer than BLOCKS_MIN blocks tell nothing. */
#define PLAIN_SHARE 0.99
#define BLOCKS_MIN 200
/* Half of the smallest half float: original values may have been half floats on their way. */
#define SMALLEST 0x1p-25
#define SLACK 1e-3 /* of single precision, in steps and in halves of the last place */

static const struct rule {
    const char *blocks;
    double steps; /* of the largest magnitude; with offsets of the width */
} rules[] = {{"Q4_0", 8}, {"Q4_1", 15}, {"Q5_0", 16}, {"Q5_1", 31}, {"Q8_0", 127}};

typedef struct misfit {
    int64_t n, at, k; /* channel, group, input */
    double have, want;
} misfit;

typedef struct tally {
    int64_t n_blocks, n_plain, n_scales, n_codes; /* of the latter two those that are off */
    misfit scale, code;                           /* the first of each */
} tally;

/* Half of the last place of a half float. */
static double half_place(double value)
{
    int exponent;

    (void)frexp(value, &exponent);
    return fmax(ldexp(1, exponent - 12), SMALLEST);
}

static bool is_rounded_to_half(double have, double want)
{
    return fabs(have - want) <= half_place(want) * (1 + SLACK) + SMALLEST;
}

/* The codes of a block with a sound scale: what rounding to this grid could make at most. */
static void look_at_codes(tally *t, const sw_spec_weight *w, const float *v, int64_t n, int64_t g)
{
    const int64_t cell = n * w->n_groups + g, from = g * w->group_elems;
    const double s = (double)w->scales[cell], m = w->offsets ? (double)w->offsets[cell] : 0;
    const int last = (1 << w->bits) - 1;

    for (int64_t k = from; k < from + w->group_elems && fabs(s) > 0; k++) {
        const int code = w->codes[n * w->k_in + k];
        double at = ((double)v[k] - m) / s, err = at - (code - w->zeros[cell]), most;

        most = 0.5 + SLACK + (fabs(at) * half_place(s) + SMALLEST) / fabs(s) +
               (w->offsets ? half_place(m) / fabs(s) : 0);
        if (fabs(err) <= most || (code == last && err > 0) || (code == 0 && err < 0)) continue;
        if (!t->n_codes++) t->code = (misfit){n, g, k, fabs(err), most};
    }
}

/* Values that are those of the original, as where its codes were taken over: any scale is right. */
static bool holds_exactly(const float *have, const float *v, int64_t from, int64_t n_elems)
{
    bool is_same = true;

    for (int64_t k = from; k < from + n_elems && is_same; k++)
        is_same = !(fabsf(have[k] - v[k]) > 0.0f);
    return is_same;
}

/* v, have: the row of the original, and as it is decoded. */
static void look_at_block(tally *t, const sw_spec_weight *w, const struct rule *rule,
                          const float *v, const float *have_row, int64_t n, int64_t g)
{
    const int64_t cell = n * w->n_groups + g, from = g * w->group_elems;
    double low = (double)v[from], high = low, have = (double)w->scales[cell], want;
    bool is_plain;

    for (int64_t k = from; k < from + w->group_elems; k++) {
        low = fmin(low, (double)v[k]);
        high = fmax(high, (double)v[k]);
    }
    want = (w->offsets ? high - low : fmax(high, -low)) / rule->steps;
    is_plain = is_rounded_to_half(fabs(have), want);
    if (is_plain && w->offsets) {
        have = (double)w->offsets[cell];
        want = low;
        is_plain = is_rounded_to_half(have, want);
    }
    t->n_blocks++;
    t->n_plain += is_plain;
    if (is_plain) look_at_codes(t, w, v, n, g);
    else if (!holds_exactly(have_row, v, from, w->group_elems) && !t->n_scales++)
        t->scale = (misfit){n, g, from, have, want};
}

static void say(char *why, size_t size, const tally *t, const sw_spec_weight *w)
{
    const misfit *s = &t->scale, *c = &t->code;
    const sw_apart scale = sw_apart_digits(s->have, s->want, 7);
    const sw_apart code = sw_apart_places(c->have, c->want, 3);

    if (t->n_scales)
        (void)snprintf(why, size, "channel %lld, inputs %lld to %lld: the block has %s where the "
                       "range of the original gives %s, as in %lld of %lld blocks",
                       (long long)s->n, (long long)s->k, (long long)(s->k + w->group_elems - 1),
                       scale.have, scale.limit, (long long)t->n_plain, (long long)t->n_blocks);
    else
        (void)snprintf(why, size, "channel %lld, input %lld: the code is %s steps from the "
                       "original, and rounding to this grid makes %s at most; so are %lld codes "
                       "in all", (long long)c->n, (long long)c->k, code.have, code.limit,
                       (long long)t->n_codes);
}

static sw_code look_at_rows(tally *t, const sw_spec_weight *w, const struct rule *rule,
                            const sw_linear_rows *original, sw_err *err)
{
    sw_linear_rows have = {0};
    float *rows = NULL;
    sw_code rc = SW_MEM_GET(&rows, 2 * w->k_in, "rows", err);

    if (rc == SW_OK) rc = sw_linear_rows_of_codes(&have, w, err);
    for (int64_t n = 0; n < w->n_out && rc == SW_OK; n++) {
        sw_linear_rows_get(rows, original, n, 0, w->k_in);
        sw_linear_rows_get(rows + w->k_in, &have, n, 0, w->k_in);
        for (int64_t g = 0; g < w->n_groups; g++)
            look_at_block(t, w, rule, rows, rows + w->k_in, n, g);
    }
    sw_linear_rows_free(&have);
    sw_mem_put(rows);
    return rc;
}

sw_code sw_plain_blocks_check(char *why, size_t size, const sw_spec_weight *w,
                              const sw_linear_rows *original, sw_err *err)
{
    const size_t n_rules = sizeof rules / sizeof *rules;
    size_t at = 0;
    tally t = {0};
    sw_code rc;

    why[0] = '\0';
    while (at < n_rules && !(w->blocks && !strcmp(w->blocks, rules[at].blocks))) at++;
    if (at == n_rules || w->n_out * w->n_groups < BLOCKS_MIN) return SW_OK;
    if ((rc = look_at_rows(&t, w, &rules[at], original, err)) != SW_OK) return rc;
    if ((double)t.n_plain < PLAIN_SHARE * (double)t.n_blocks ||
        (double)t.n_codes > (1 - PLAIN_SHARE) * (double)(w->n_out * w->k_in))
        return SW_OK;
    if (t.n_scales || t.n_codes) say(why, size, &t, w);
    return SW_OK;
}
