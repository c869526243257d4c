/* round_rows.c - see round_rows.h. */
#include "quant/method/round_rows.h"

#include <math.h>

#include "formats/base/hot.h"
#include "formats/base/size.h"
#include "formats/num/half.h"
#include "quant/method/grid.h"

bool sw_round_rows_serves(const sw_solve_problem *p, const sw_frame *frame)
{
    const sw_num *num = p->spec.num;

    return !num->values && !num->encode && !p->importance && !p->factor && !frame->shared &&
           frame->global == 1.0f;
}

/* Lowest and highest of n weights and 0, which are finite. Bits of positive floats are in the order
 * of the floats as signed integers, those of negative ones in the order of their magnitudes as
 * unsigned ones; and the largest of integers is found by vectors. */
static SW_HOT void range_of(double *low, double *high, const float *w, int64_t n)
{
    const uint32_t sign = 0x80000000u; /* and with no other bit: minus 0 */
    uint32_t least = sign;
    int32_t most = 0;

    for (int64_t j = 0; j < n; j++) {
        const uint32_t bits = sw_f32_bits(w[j]);
        const int32_t as_signed = (int32_t)bits;

        least = bits > least ? bits : least;
        most = as_signed > most ? as_signed : most;
    }
    *low = least > sign ? (double)sw_f32_from_bits(least) : 0.0;
    *high = (double)sw_f32_from_bits((uint32_t)most);
}

/* As sw_grid_codes rounds: by division, ties to even. */
static SW_HOT void codes_of(uint8_t *codes, const float *w, int64_t n, double scale, double zero,
                            double top)
{
    for (int64_t j = 0; j < n; j++) {
        double c = rint((double)w[j] / scale) + zero;
        c = c < 0.0 ? 0.0 : c;
        c = c > top ? top : c;
        codes[j] = (uint8_t)(int32_t)c;
    }
}

void sw_round_rows(sw_qtensor *q, const sw_solve_problem *p, int64_t row0, int64_t n_rows)
{
    const int64_t k_in = p->k_in, group = p->spec.group_elems ? p->spec.group_elems : k_in;
    const int64_t n_groups = sw_ceil_div(k_in, group);
    const double top = p->spec.num->code_max;

    for (int64_t row = row0; row < row0 + n_rows; row++)
        for (int64_t g = 0; g < n_groups; g++) {
            const int64_t at = row * k_in + g * group, n = sw_min_i64(group, k_in - g * group);
            double low, high, scale, zero;

            range_of(&low, &high, p->w + at, n);
            sw_grid_of_range(&scale, &zero, low, high, &p->spec);
            codes_of(q->codes + at, p->w + at, n, scale, zero, top);
            q->scales[row * n_groups + g] = (float)scale;
            if (q->zeros) q->zeros[row * n_groups + g] = (uint8_t)zero;
        }
}
