/* section_timed.c - speed as `verify --speed` measured it: tokens per second beside the original's,
 * speed-up with its interval, and what each kind of linear gains or loses. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tools/report/sections/section.h"
#include "verify/base/speed_report.h"

#define CELLS_MAX (2 * SW_SPEED_BATCHES_MAX)
#define NAME_BYTES 48

static const cJSON *speed_of(const sw_exhibit *x) { return sw_json_member(x->verified, "speed"); }

const char *sw_section_timed_missing(const sw_exhibit *x, int n)
{
    for (int i = 0; i < n; i++)
        if (cJSON_IsObject(speed_of(&x[i]))) return NULL;
    return "no result of `swage verify OUT --against MODEL --speed`; its `--report FILE` is given "
           "to `swage report` by `--results FILE`";
}

static double number(const cJSON *at, const char *key) { return sw_exhibit_number(at, key); }

/* "1.87 [1.85, 1.90]", or a dash. */
static void put_interval(sw_html *h, const cJSON *at)
{
    char value[SW_SHOWN_BYTES], low[SW_SHOWN_BYTES], high[SW_SHOWN_BYTES];

    if (!isfinite(number(at, "value"))) {
        sw_cell(h, "\xE2\x80\x93", number(at, "value"));
        return;
    }
    sw_html_put(h, "<td class=\"n\" data-v=\"%.9g\">%s <span class=\"muted\">[%s, %s]</span></td>",
                number(at, "value"), sw_show_real(value, number(at, "value")),
                sw_show_real(low, number(at, "low")), sw_show_real(high, number(at, "high")));
}

static void name_cell(char name[NAME_BYTES], const cJSON *cell)
{
    const char *what = sw_exhibit_text(cell, "what");

    (void)snprintf(name, NAME_BYTES, "%.16s, batch %.0f", what ? what : "", number(cell, "batch"));
}

static void put_machine(sw_html *h, const cJSON *speed)
{
    const char *device = sw_exhibit_text(speed, "device"), *cpu = sw_exhibit_text(speed, "cpu");
    char spread[SW_SHOWN_BYTES], gb[SW_SHOWN_BYTES], gflop[SW_SHOWN_BYTES];

    sw_html_put(h, "<p>Measured on %s (%s, %.0f threads): medians of %.0f rounds, the models in "
                "turns; intervals hold 95 %% or more of where the median lies. Prompts of %.0f "
                "tokens. The roof: memory at %s GB/s, arithmetic at %s GFLOP/s, both measured in "
                "that run.</p>\n", device ? device : "?", cpu ? cpu : "?",
                number(speed, "threads"), number(speed, "rounds"), number(speed, "prompt"),
                sw_show_real(gb, number(speed, "memory_gb_s")),
                sw_show_count(gflop, number(speed, "arithmetic_gflop_s")));
    if (cJSON_IsTrue(sw_json_member(speed, "noisy")))
        sw_html_put(h, "<p class=\"warn\">No verdict on speed: times spread by %s, more than "
                    "10 %%. The machine had other work.</p>\n",
                    sw_show_percent(spread, number(speed, "spread")));
    if (cJSON_IsTrue(sw_json_member(speed, "sequences_in_turns")))
        sw_html_raw(h, "<p class=\"muted\">Sequences of a batch were decoded one after the "
                       "other.</p>\n");
}

/* Gates look at decoding, so its speed-ups stand in the chart with the gate's limit. */
static void draw_gains(sw_html *h, const sw_exhibit *x, const cJSON *speed)
{
    char names[CELLS_MAX][NAME_BYTES];
    sw_dot dots[CELLS_MAX];
    sw_dots chart = {.title = "Times as fast as the original",
                     .describe = "Speed-up with its interval, a row per batch of decoding and "
                                 "prefill. Below one the checkpoint is slower.",
                     .at = dots, .limit_name = "gate: least speed-up of decoding",
                     .limit = sw_exhibit_number(
                         sw_json_member(sw_json_member(x->verified, "gates"), "min_speedup"),
                         "limit")};
    const cJSON *cell;

    cJSON_ArrayForEach(cell, sw_json_member(speed, "cells")) {
        const cJSON *gain = sw_json_member(cell, "speedup");

        if (chart.n == CELLS_MAX || !isfinite(number(gain, "value"))) continue;
        name_cell(names[chart.n], cell);
        dots[chart.n] = (sw_dot){.name = names[chart.n], .at = number(gain, "value"),
                                 .low = number(gain, "low"), .high = number(gain, "high")};
        chart.n++;
    }
    if (chart.n) sw_dots_draw(h, &chart);
}

static void put_cells(sw_html *h, const cJSON *speed)
{
    static const char *const headings[] = {"what", "#tokens/s", "#original", "#speed-up",
                                           "#of the roof", "#spread"};
    const cJSON *cell;

    sw_table_begin(h, false, "Tokens per second, all sequences of a batch together", headings, 6);
    cJSON_ArrayForEach(cell, sw_json_member(speed, "cells")) {
        const cJSON *own = sw_json_member(cell, "checkpoint");
        const double spread = fmax(number(own, "spread"), /* without an original, a NaN */
                                   number(sw_json_member(cell, "original"), "spread"));
        char name[NAME_BYTES], text[SW_SHOWN_BYTES];

        name_cell(name, cell);
        sw_html_put(h, "<tr><th scope=\"row\">%s</th>", name);
        put_interval(h, sw_json_member(own, "tokens_per_second"));
        put_interval(h, sw_json_member(sw_json_member(cell, "original"), "tokens_per_second"));
        put_interval(h, sw_json_member(cell, "speedup"));
        sw_cell(h, sw_show_percent(text, number(own, "roof_share")), number(own, "roof_share"));
        sw_cell(h, sw_show_percent(text, spread), spread);
        sw_html_raw(h, "</tr>\n");
    }
    sw_table_end(h);
}

static void put_linears(sw_html *h, const cJSON *speed)
{
    static const char *const headings[] = {"linear", "outputs \xC3\x97 inputs", "#tokens", "kernel",
                                           "#us", "#original", "#speed-up", "#of the roof"};
    const cJSON *list = sw_json_member(speed, "linears"), *l;

    if (!list || !list->child) return;
    sw_table_begin(h, true, "Linears, each by itself; where dequantizing eats the gain the "
                            "speed-up is below one", headings, 8);
    cJSON_ArrayForEach(l, list) {
        const char *name = sw_exhibit_text(l, "name"), *kernel = sw_exhibit_text(l, "kernel");
        const char *what = sw_exhibit_text(l, "what"); /* older results lack it */
        char text[SW_SHOWN_BYTES], tokens[SW_SHOWN_BYTES + 16];

        sw_html_put(h, "<tr><th class=\"kind\" scope=\"row\"><code>%s</code></th>"
                    "<td>%.0f &#215; %.0f</td>", name,
                    number(l, "n_out"), number(l, "k_in"));
        (void)snprintf(tokens, sizeof tokens, "%s%s", sw_show_count(text, number(l, "tokens")),
                       what && !strcmp(what, "prefill") ? ", prefill" : "");
        sw_cell(h, tokens, number(l, "tokens"));
        sw_html_put(h, "<td><code class=\"nb\">%s</code></td>", kernel);
        sw_cell(h, sw_show_real(text, number(l, "us")), number(l, "us"));
        sw_cell(h, sw_show_real(text, number(l, "us_original")), number(l, "us_original"));
        put_interval(h, sw_json_member(l, "speedup"));
        sw_cell(h, sw_show_percent(text, number(l, "roof_share")), number(l, "roof_share"));
        sw_html_raw(h, "</tr>\n");
    }
    sw_table_end(h);
}

void sw_section_timed(sw_html *h, const sw_exhibit *x, int n)
{
    for (int i = 0; i < n; i++) {
        const cJSON *speed = speed_of(&x[i]);

        if (!cJSON_IsObject(speed)) continue;
        sw_section_name(h, &x[i], n);
        put_machine(h, speed);
        draw_gains(h, &x[i], speed);
        put_cells(h, speed);
        put_linears(h, speed);
    }
}
