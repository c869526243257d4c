/* ranges.c - see ranges.h. */
#include "quant/stats/ranges.h"

#include <math.h>
#include <string.h>

#include "quant/team/team.h"

#define BINS_PER_OCTAVE 32
#define LOWEST_OCTAVE (-40)
#define CLIP_STEPS 60 /* the scale shrinks to 40 % of the range in steps of 1 % */
#define BLOCK_SCALE_TOP 448.0

/* 2^(i / 32): where the bins of an octave begin. */
static const double bin_begins[BINS_PER_OCTAVE + 1] = {
    1.0, 1.0218971486541166, 1.0442737824274138, 1.0671404006768237,
    1.0905077326652577, 1.1143867425958924, 1.1387886347566916, 1.1637248587775775,
    1.189207115002721, 1.215247359980469, 1.241857812073484, 1.2690509571917332,
    1.2968395546510096, 1.3252366431597413, 1.3542555469368927, 1.383909881963832,
    1.4142135623730951, 1.4451808069770467, 1.4768261459394993, 1.5091644275934228,
    1.5422108254079407, 1.5759808451078865, 1.6104903319492543, 1.645755478153965,
    1.681792830507429, 1.718619298122478, 1.7562521603732995, 1.7947090750031072,
    1.8340080864093424, 1.8741676341103, 1.9152065613971474, 1.9571441241754002,
    2.0};

/* floor(32 log2 |x|), counted from the lowest octave: the mantissa's first five bits are at most
 * three bins short of it. */
static int bin_of(float magnitude)
{
    uint32_t bits, one;
    int octave, i, bin;
    float mantissa;

    memcpy(&bits, &magnitude, sizeof bits);
    octave = (int)(bits >> 23) - 127;
    if (octave < LOWEST_OCTAVE) return 0;
    one = (bits & 0x7fffffu) | 0x3f800000u;
    memcpy(&mantissa, &one, sizeof mantissa);
    i = (int)(bits >> 18 & 31);
    for (int step = 0; step < 3; step++) i += (double)mantissa >= bin_begins[i + 1];
    bin = (octave - LOWEST_OCTAVE) * BINS_PER_OCTAVE + i;
    return bin < SW_RANGE_BINS ? bin : SW_RANGE_BINS - 1;
}

static double middle_of(int bin)
{
    return exp2(LOWEST_OCTAVE + (bin + 0.5) / BINS_PER_OCTAVE);
}

void sw_range_add(sw_range *range, const float *x, int64_t n)
{
    float amax = (float)range->amax; /* it came from a float */

    for (int64_t i = 0; i < n; i++) {
        float magnitude = fabsf(x[i]);
        if (magnitude > amax) amax = magnitude;
        if (magnitude > 0) range->counts[bin_of(magnitude)]++;
    }
    range->amax = (double)amax;
}

void sw_range_add_many(sw_range *range, float magnitude, int64_t n)
{
    range->counts[bin_of(magnitude)] += n;
}

/* Squared error of rounding to steps of `scale` and clipping beyond `top` of them. */
static double clip_error(const sw_range *range, double scale, double top)
{
    double sum = 0;

    for (int bin = 0; bin < SW_RANGE_BINS; bin++) {
        double v = middle_of(bin), beyond = v - top * scale;
        double error = beyond > 0 ? beyond * beyond : scale * scale / 12;
        if (range->counts[bin]) sum += (double)range->counts[bin] * fmin(error, v * v);
    }
    return sum;
}

static double best_clip(const sw_range *range, double top)
{
    double best = range->amax / top, least = clip_error(range, best, top);

    for (int step = 1; step <= CLIP_STEPS; step++) {
        double scale = range->amax / top * (1 - 0.01 * step);
        double error = clip_error(range, scale, top);
        if (!(error < least)) continue;
        least = error;
        best = scale;
    }
    return best;
}

float sw_range_scale(const sw_range *range, const sw_act *act)
{
    double top = (double)act->num->top, scale;
    float stored;

    if (!(range->amax > 0)) return 1.0f;
    if (act->scope == SW_ACT_GROUP) /* some store the reciprocal: take one that survives it */
        return 1.0f / (float)(BLOCK_SCALE_TOP * top / range->amax);
    scale = act->num->values ? range->amax / top : best_clip(range, top);
    stored = (float)scale;
    return stored > 0x1p-126f ? stored : 0x1p-126f;
}

static void merge(sw_range *into, const sw_range *from)
{
    into->amax = fmax(into->amax, from->amax);
    for (int bin = 0; bin < SW_RANGE_BINS; bin++) into->counts[bin] += from->counts[bin];
}

sw_code sw_ranges_gather(sw_range ranges[SW_SITE_COUNT], sw_team *team, sw_err *err)
{
    const size_t n_bytes = SW_SITE_COUNT * sizeof *ranges;
    sw_range *theirs = NULL;
    sw_code rc;

    if (sw_team_size(team) == 1) return SW_OK;
    if (sw_team_rank(team) > 0) {
        rc = sw_team_send(team, 0, ranges, n_bytes, err);
    } else {
        rc = SW_MEM_GET(&theirs, SW_SITE_COUNT, "input ranges", err);
        for (int rank = 1; rank < sw_team_size(team) && rc == SW_OK; rank++) {
            rc = sw_team_receive(team, rank, theirs, n_bytes, err);
            for (int site = 0; site < SW_SITE_COUNT; site++) merge(&ranges[site], &theirs[site]);
        }
        sw_mem_put(theirs);
    }
    return rc == SW_OK ? sw_team_broadcast(team, 0, ranges, n_bytes, err) : rc;
}

sw_code sw_ranges_find(sw_range ranges[SW_SITE_COUNT], sw_streams *streams,
                       const bool is_wanted[SW_SITE_COUNT], const sw_block *block,
                       const sw_progress *progress, sw_err *err)
{
    sw_code rc = SW_OK;

    if (streams->n_seqs)
        rc = sw_backend_of(&streams->place)
                 ->find_ranges(ranges, streams, is_wanted, block, progress, err);
    return rc == SW_OK ? sw_ranges_gather(ranges, streams->carrier.team, err) : rc;
}

static sw_code find_scales(float *input_scale, sw_site_stats *stats, sw_streams *streams,
                           const bool needs_range[SW_SITE_COUNT], const sw_block *quantized,
                           const sw_progress *progress, sw_err *err)
{
    sw_range *ranges = NULL;
    sw_code rc = SW_MEM_GET(&ranges, SW_SITE_COUNT, "input ranges", err);

    if (rc != SW_OK) return rc;
    rc = sw_ranges_find(ranges, streams, needs_range, quantized, progress, err);
    for (int site = 0; site < SW_SITE_COUNT && rc == SW_OK; site++)
        if (needs_range[site])
            input_scale[site] = stats->input_scale[site] =
                sw_range_scale(&ranges[site], &stats->act[site]);
    sw_mem_put(ranges);
    return rc;
}

sw_code sw_inputs_settle(float *input_scale, sw_site_stats *stats, sw_streams *streams,
                         const sw_linear_ref *linears, const sw_qspec *specs, int64_t n,
                         const sw_block *quantized, const sw_progress *progress, sw_err *err)
{
    bool needs_range[SW_SITE_COUNT] = {false}, any = false;

    for (int64_t i = 0; i < n; i++) {
        sw_site site = linears[i].site;
        if (!stats->is_wanted[site] || needs_range[site]) continue; /* one reader is enough */
        stats->act[site] = specs[i].act;
        needs_range[site] = sw_act_needs_input_scale(&specs[i].act);
        any = any || needs_range[site];
    }
    if (!any) return SW_OK;
    return find_scales(input_scale, stats, streams, needs_range, quantized, progress, err);
}
