/* speed_text.c - the figures of speed_report.h as a table for people. */
#include <stdio.h>

#include "verify/base/speed_report.h"

#define LOSERS_SHOWN 10

static sw_code put_head(sw_print_buf *out, const sw_report_speed *s, sw_err *err)
{
    sw_code rc;

    if (s->device[0])
        rc = sw_print_fmt(out, err, "\nspeed       on %s", s->device);
    else
        rc = sw_print_fmt(out, err, "\nspeed       on %.60s, %d thread%s", s->cpu, s->n_threads,
                          s->n_threads == 1 ? "" : "s");
    if (rc == SW_OK)
        rc = sw_print_fmt(out, err, "\n            medians of %d rounds%s; brackets hold 95 %% or "
                          "more\n            the roof: memory at %.1f GB/s, arithmetic at %.0f "
                          "GFLOP/s, measured in this run\n", s->n_rounds,
                          s->has_original ? ", in turns with the original" : "", s->read_gb_s,
                          s->gflop_s);
    for (int side = 0; side < SW_SPEED_SIDES && rc == SW_OK; side++)
        if (s->n_streamed[side])
            rc = sw_print_fmt(out, err, "            %lld blocks of the %s did not fit the device: "
                              "its times are those of copying\n", (long long)s->n_streamed[side],
                              side ? "original" : "checkpoint");
    if (rc == SW_OK && s->is_in_turns)
        rc = sw_print_fmt(out, err, "            sequences of a batch decode one after the other: "
                          "the CPU engine cannot batch this model\n");
    if (rc == SW_OK && s->cache_bytes && s->weight_bytes[0] < (double)s->cache_bytes)
        rc = sw_print_fmt(out, err, "            the weights fit the last-level cache, which is "
                          "faster than the memory's roof\n");
    return rc;
}

static sw_code put_roof(sw_print_buf *out, const sw_speed_cell *c, sw_err *err)
{
    return sw_print_fmt(out, err, " %4.0f%% %-6s %5.0f%%\n", 100 * c->roof_share[0],
                        c->is_by_bytes[0] ? "memory" : "arith.", 100 * c->spread[0]);
}

static sw_code put_cell(sw_print_buf *out, const sw_report_speed *s, const sw_speed_cell *c,
                        sw_err *err)
{
    const sw_interval *gain = &c->speedup.median;
    char name[64], interval[40];
    sw_code rc;

    if (c->is_prefill)
        (void)snprintf(name, sizeof name, "prefill %lld, batch %lld", (long long)c->n_steps,
                       (long long)c->batch);
    else
        (void)snprintf(name, sizeof name, "decode, batch %lld", (long long)c->batch);
    rc = sw_print_fmt(out, err, "  %-24s %11.1f", name, c->tokens_s[0].median.at);
    if (rc == SW_OK && s->has_original) {
        (void)snprintf(interval, sizeof interval, "[%.2f, %.2f]", gain->low, gain->high);
        rc = sw_print_fmt(out, err, " %11.1f %7.2fx %-16s", c->tokens_s[1].median.at, gain->at,
                          interval);
    }
    return rc == SW_OK ? put_roof(out, c, err) : rc;
}

static sw_code put_cells(sw_print_buf *out, const sw_report_speed *s, sw_err *err)
{
    sw_code rc = sw_print_fmt(out, err, "\n  %-24s %11s", "", "tokens/s");

    if (rc == SW_OK && s->has_original)
        rc = sw_print_fmt(out, err, " %11s %8s %-16s", "original", "speed-up", "");
    if (rc == SW_OK) rc = sw_print_fmt(out, err, " %12s %6s\n", "of the roof", "spread");
    for (int64_t i = 0; i < s->n_cells && rc == SW_OK; i++)
        rc = put_cell(out, s, &s->cells[i], err);
    return rc;
}

static sw_code put_loser(sw_print_buf *out, const sw_speed_linear *l, sw_err *err)
{
    char shape[48];

    (void)snprintf(shape, sizeof shape, "%lld x %lld, %lld token%s", (long long)l->n_out,
                   (long long)l->k_in, (long long)l->m, l->m == 1 ? "" : "s");
    return sw_print_fmt(out, err, "  %-26.26s %-26s %5.2fx [%.2f, %.2f] %s%s\n", l->name,
                        shape, l->speedup.at, l->speedup.low, l->speedup.high, l->kernel,
                        l->spread > SW_SPREAD_MAX ? ", noisy" : "");
}

/* Where dequantizing costs more than the smaller weights save. */
static sw_code put_losers(sw_print_buf *out, const sw_report_speed *s, sw_err *err)
{
    int64_t n = 0, n_shown = 0;
    sw_code rc;

    if (!s->has_original || !s->n_linears) return SW_OK;
    for (int64_t i = 0; i < s->n_linears; i++) n += sw_speed_linear_loses(&s->linears[i]);
    if (!n)
        return sw_print_fmt(out, err, "\nno kind of linear is slower than the original's, of %lld "
                            "kinds and sizes of batch\n", (long long)s->n_linears);
    rc = sw_print_fmt(out, err, "\nlinears slower than the original's, each by itself: %lld of "
                      "%lld kinds and sizes of batch\n", (long long)n, (long long)s->n_linears);
    for (int64_t i = 0; i < s->n_linears && rc == SW_OK && n_shown < LOSERS_SHOWN; i++) {
        if (!sw_speed_linear_loses(&s->linears[i])) continue;
        rc = put_loser(out, &s->linears[i], err);
        n_shown++;
    }
    return rc == SW_OK && n > n_shown ? sw_print_fmt(out, err, "  and %lld more, see --json\n",
                                                     (long long)(n - n_shown))
                                      : rc;
}

sw_code sw_speed_text(sw_print_buf *out, const sw_report_speed *s, sw_err *err)
{
    const sw_speed_cell *c;
    double spread = 0;
    sw_code rc;

    if (!s->is_measured) return SW_OK;
    if ((rc = put_head(out, s, err)) != SW_OK || (rc = put_cells(out, s, err)) != SW_OK ||
        (rc = put_losers(out, s, err)) != SW_OK)
        return rc;
    c = sw_speed_noisiest(s, &spread);
    if (!c || spread <= SW_SPREAD_MAX) return SW_OK;
    return sw_print_fmt(out, err, "\nno verdict on speed: times of %s, batch %lld spread by "
                        "%.0f %%, more than %.0f %%;\nrun it on a quieter machine, or with more "
                        "--rounds and --steps\n", c->is_prefill ? "prefill" : "decode",
                        (long long)c->batch, 100 * spread, 100 * SW_SPREAD_MAX);
}
