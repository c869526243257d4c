/* conversion_table.c - see conversions.h. */
#include "tools/convert/conversion_table.h"

#include <stdio.h>

#include "formats/dialect/conversions.h"
#include "formats/dialect/dialect_gguf.h"
#include "quant/run/scheme.h"

#define SIDE 4096 /* a shape that every format takes */
#define SCHEMES_MAX 64

static bool rounds(const sw_qspec *spec, const sw_dialect *to)
{
    sw_qspec all[SCHEMES_MAX], nearest;
    sw_err ignored = {0};
    int n = 0;

    for (; n < sw_n_schemes && n < SCHEMES_MAX; n++) all[n] = sw_scheme_spec(&sw_schemes[n]);
    return sw_conversion_nearest(&nearest, spec, to, all, n, SIDE, SIDE, SW_DTYPE_BF16, &ignored) ==
           SW_OK;
}

/* Scheme i, or behind them the same of integers in the blocks of GGUF; false: there is none. */
static bool scheme_at(sw_qspec *out, int i)
{
    *out = sw_scheme_spec(&sw_schemes[i % sw_n_schemes]);
    if (i < sw_n_schemes) return true;
    out->group_elems = 32;
    return out->num->kind == SW_NUM_INT && out->act.scope == SW_ACT_NONE;
}

/* A GGUF written here has all linears in one type, and where experts alone are quantized the others
 * are floats: so what holds experts alone cannot go there unchanged, nor come from there. */
static sw_conversion beside_floats(sw_conversion kind, const sw_dialect *from, const sw_dialect *to)
{
    if (from->is_stacked && to == &sw_dialect_gguf && kind != SW_CONVERSION_NONE)
        return SW_CONVERSION_REQUANTIZE;
    return to->is_stacked && from == &sw_dialect_gguf ? SW_CONVERSION_NONE : kind;
}

static sw_conversion of_schemes(const sw_dialect *from, const sw_dialect *to)
{
    int n_held = 0, n_exact = 0, n_some = 0, n_rounded = 0;

    for (int i = 0; i < 2 * sw_n_schemes; i++) {
        sw_qspec spec, target;
        bool is_conditional = false;
        sw_err ignored = {0};
        if (!scheme_at(&spec, i)) continue;
        sw_dialect_fit_spec(&spec, from, SW_DTYPE_BF16);
        if (from->can_hold(&spec, SIDE, SIDE, &ignored) != SW_OK) continue;
        n_held++;
        if (sw_conversion_exact(&target, &is_conditional, &spec, to, SIDE, SIDE, &ignored) != SW_OK)
            n_rounded += rounds(&spec, to);
        else if (is_conditional)
            n_some++;
        else
            n_exact++;
    }
    if (n_exact && n_exact == n_held) return SW_CONVERSION_EXACT;
    if (n_exact || n_some) return SW_CONVERSION_SOME;
    return n_rounded ? SW_CONVERSION_REQUANTIZE : SW_CONVERSION_NONE;
}

sw_conversion sw_conversion_of(int from_at, int to_at)
{
    const sw_dialect *from = sw_conversion_dialects[from_at], *to = sw_conversion_dialects[to_at];

    return beside_floats(of_schemes(from, to), from, to);
}

void sw_conversion_lists(char texts[SW_CONVERSION_COUNT][SW_CELL_BYTES], int from)
{
    size_t at[SW_CONVERSION_COUNT] = {0};

    for (int kind = 0; kind < SW_CONVERSION_COUNT; kind++)
        (void)snprintf(texts[kind], SW_CELL_BYTES, "-");
    for (int to = 0; sw_conversion_dialects[to]; to++) {
        sw_conversion kind;

        if (to == from) continue;
        kind = sw_conversion_of(from, to);
        if (at[kind] >= SW_CELL_BYTES) continue;
        at[kind] += (size_t)snprintf(texts[kind] + at[kind], SW_CELL_BYTES - at[kind], "%s%s",
                                     at[kind] ? ", " : "", sw_conversion_dialects[to]->name);
    }
}
