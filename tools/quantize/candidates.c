/* candidates.c - see candidates.h. */
#include "tools/quantize/candidates.h"

#include <math.h>

static const int widths[] = {4, 8, 3, 2}; /* the wider option first at equal merit */
static const int64_t sizes[] = {128, 64, 32};
#define N(list) (int)(sizeof(list) / sizeof(list)[0])

static sw_qspec *add(sw_candidates *c, const sw_qspec *base, double share)
{
    c->specs[c->n] = *base;
    c->specs[c->n].n_outliers = 0;
    c->shares[c->n] = share;
    c->is_price[c->n] = false;
    return &c->specs[c->n++];
}

static void add_price(sw_candidates *c, const sw_qspec *base, int bits, int64_t group_elems)
{
    sw_qspec *spec = add(c, base, 0);

    spec->num = sw_num_by_bits(bits);
    spec->group_elems = group_elems;
    c->is_price[c->n - 1] = true;
}

void sw_candidates_of_sizes(sw_candidates *out, const sw_qspec *base, bool keep_group,
                            bool keep_symmetry, double share, bool with_shares)
{
    static const double shares[] = {0.01, 0.04}; /* each costs a factorization to measure */

    out->n = 0;
    for (int w = 0; w < N(widths); w++)
        for (int g = 0; g < (keep_group ? 1 : N(sizes)); g++)
            for (int s = 0; s < (keep_symmetry || widths[w] == 8 ? 1 : 2); s++) {
                sw_qspec *spec = add(out, base, share);
                spec->num = sw_num_by_bits(widths[w]);
                if (!keep_group) spec->group_elems = sizes[g];
                if (!keep_symmetry) spec->is_symmetric = s == 0;
            }
    for (int w = 0; with_shares && w < N(widths); w++)
        for (int i = 0; widths[w] <= 4 && i < N(shares); i++) {
            sw_qspec *spec = add(out, base, shares[i]);
            spec->num = sw_num_by_bits(widths[w]);
            if (!keep_symmetry) spec->is_symmetric = false;
        }
}

void sw_candidates_of_shares(sw_candidates *out, const sw_qspec *base)
{
    static const double shares[] = {0, 0.005, 0.01, 0.02, 0.04, 0.08};
    const int bits = base->num->bits;

    out->n = 0;
    for (int i = 0; i < N(shares); i++) (void)add(out, base, shares[i]);
    if (bits < 8) add_price(out, base, bits == 4 ? 8 : bits + 1, base->group_elems);
    if (base->group_elems > 32) add_price(out, base, bits, base->group_elems / 2);
    if (bits > 3) add_price(out, base, 3, base->group_elems); /* to measure with, if not to buy */
}

sw_qspec sw_candidate_spec(const sw_candidates *c, int64_t at, int64_t k_in)
{
    sw_qspec spec = c->specs[at];

    spec.n_outliers = llround(c->shares[at] * (double)k_in);
    return spec;
}
