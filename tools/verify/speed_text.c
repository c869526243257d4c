/* speed_text.c - see speed_text.h. */
#include "tools/verify/speed_text.h"

#include <math.h>

#include "tools/terminal/table.h"

#define LOSERS_SHOWN 20

static void print_head(FILE *out, const sw_report_speed *s, int columns)
{
    (void)fputc('\n', out);
    if (s->device[0])
        sw_line_print(out, "speed", columns, "on %s", s->device);
    else
        sw_line_print(out, "speed", columns, "on %.60s, %d thread%s", s->cpu, s->n_threads,
                      s->n_threads == 1 ? "" : "s");
    sw_line_print(out, "", columns, "medians of %d rounds%s; brackets hold 95 %% or more",
                  s->n_rounds, s->has_original ? ", in turns with the original" : "");
    sw_line_print(out, "", columns, "the roof: memory at %.1f GB/s, arithmetic at %.0f GFLOP/s, "
                  "measured in this run", s->read_gb_s, s->gflop_s);
    for (int side = 0; side < SW_SPEED_SIDES; side++)
        if (s->n_streamed[side])
            sw_line_print(out, "", columns, "%lld blocks of the %s did not fit the device: its "
                          "times are those of copying", (long long)s->n_streamed[side],
                          side ? "original" : "checkpoint");
    if (s->is_in_turns)
        sw_line_print(out, "", columns, "sequences of a batch decode one after the other: the "
                      "CPU engine cannot batch this model");
    if (s->cache_bytes && s->weight_bytes[0] < (double)s->cache_bytes)
        sw_line_print(out, "", columns, "the weights fit the last-level cache, which is faster "
                      "than the memory's roof");
}

static void put_gain(char out[SW_CELL_BYTES], const sw_interval *gain)
{
    (void)snprintf(out, SW_CELL_BYTES, "%.2fx [%.2f, %.2f]", gain->at, gain->low, gain->high);
}

static bool cell_row(const void *self, int64_t i, sw_cells out)
{
    const sw_report_speed *s = self;
    const sw_speed_cell *c = &s->cells[i];
    int column = 2;

    if (i >= s->n_cells) return false;
    if (c->is_prefill)
        (void)snprintf(out[0], SW_CELL_BYTES, "prefill %lld, batch %lld", (long long)c->n_steps,
                       (long long)c->batch);
    else
        (void)snprintf(out[0], SW_CELL_BYTES, "decode, batch %lld", (long long)c->batch);
    (void)snprintf(out[1], SW_CELL_BYTES, "%.1f", c->tokens_s[0].median.at);
    if (s->has_original) {
        (void)snprintf(out[column++], SW_CELL_BYTES, "%.1f", c->tokens_s[1].median.at);
        put_gain(out[column++], &c->speedup.median);
    }
    (void)snprintf(out[column++], SW_CELL_BYTES, "%.0f%% %-6s", 100 * c->roof_share[0],
                   c->is_by_bytes[0] ? "memory" : "arith.");
    (void)snprintf(out[column], SW_CELL_BYTES, "%.0f%%", 100 * fmax(c->spread[0], c->spread[1]));
    return true;
}

static void print_cells(FILE *out, const sw_report_speed *s, int columns)
{
    sw_table table = {.headings = {"", "tokens/s", "of the roof", "spread"},
                      .kinds = {SW_CELL_TEXT, SW_CELL_NUMBER, SW_CELL_NUMBER, SW_CELL_NUMBER},
                      .n_columns = 4, .self = s, .row = cell_row};

    if (s->has_original) {
        static const char *const headings[] = {"original", "speed-up", "of the roof", "spread"};

        table.n_columns = 6;
        for (int c = 0; c < 4; c++) {
            table.headings[c + 2] = headings[c];
            table.kinds[c + 2] = SW_CELL_NUMBER;
        }
    }
    (void)fputc('\n', out);
    sw_table_print(out, &table, columns);
}

/* Linears that lose, up to LOSERS_SHOWN. */
typedef struct losers {
    const sw_speed_linear *at[LOSERS_SHOWN];
    int64_t n, n_shown;
} losers;

static bool loser_row(const void *self, int64_t i, sw_cells out)
{
    const losers *all = self;
    const sw_speed_linear *l;

    if (i >= all->n_shown) return false;
    l = all->at[i];
    (void)snprintf(out[0], SW_CELL_BYTES, "%s", l->name);
    (void)snprintf(out[1], SW_CELL_BYTES, "[%lld, %lld]", (long long)l->n_out, (long long)l->k_in);
    (void)snprintf(out[2], SW_CELL_BYTES, "%s %lld", l->is_prefill ? "prefill" : "decode",
                   (long long)l->m);
    put_gain(out[3], &l->speedup);
    (void)snprintf(out[4], SW_CELL_BYTES, "%s%s", l->kernel,
                   l->spread > SW_SPREAD_MAX ? ", noisy" : "");
    return true;
}

/* Where dequantizing costs more than the smaller weights save. */
static void print_losers(FILE *out, const sw_report_speed *s, int columns)
{
    losers all = {.n = 0};
    const sw_table table = {
        .headings = {"linear", "[out, in]", "tokens", "speed-up", "kernel"},
        .kinds = {SW_CELL_NAME, SW_CELL_NUMBER, SW_CELL_NUMBER, SW_CELL_NUMBER, SW_CELL_NAME},
        .n_columns = 5, .self = &all, .row = loser_row};

    if (!s->has_original || !s->n_linears) return;
    for (int64_t i = 0; i < s->n_linears; i++) {
        if (!sw_speed_linear_loses(&s->linears[i])) continue;
        if (all.n_shown < LOSERS_SHOWN) all.at[all.n_shown++] = &s->linears[i];
        all.n++;
    }
    (void)fputc('\n', out);
    if (!all.n) {
        sw_line_print(out, NULL, columns, "no kind of linear is slower than the original's, of "
                      "%lld kinds and numbers of tokens", (long long)s->n_linears);
        return;
    }
    sw_line_print(out, NULL, columns, "linears slower than the original's, each by itself: %lld "
                  "of %lld kinds and numbers of tokens", (long long)all.n, (long long)s->n_linears);
    sw_table_print(out, &table, columns);
    if (all.n > all.n_shown)
        (void)fprintf(out, "and %lld more, see --json\n", (long long)(all.n - all.n_shown));
}

void sw_speed_print(FILE *out, const sw_report_speed *s, int columns)
{
    const sw_speed_cell *c;
    double spread = 0;

    if (!s->is_measured) return;
    print_head(out, s, columns);
    print_cells(out, s, columns);
    print_losers(out, s, columns);
    c = sw_speed_noisiest(s, &spread);
    if (!c || spread <= SW_SPREAD_MAX) return;
    (void)fputc('\n', out);
    sw_line_print(out, NULL, columns, "no verdict on speed: times of %s, batch %lld spread by "
                  "%.0f %%, more than %.0f %%;", c->is_prefill ? "prefill" : "decode",
                  (long long)c->batch, 100 * spread, 100 * SW_SPREAD_MAX);
    sw_line_print(out, NULL, columns, "run it on a quieter machine, or with more --rounds and "
                  "--steps");
}
