/* section_time.c - where the time of the run went, step by step. A manifest holds no times, so that
 * the same inputs give the same bytes: they come from the run itself. */
#include <math.h>
#include <stdio.h>

#include "formats/base/size.h"
#include "tools/report/sections/section.h"

#define ROWS_MAX 400
#define LEFT 150.0
#define WIDTH 760.0
#define ROW 18.0

const char *sw_section_time_missing(const sw_exhibit *x, int n)
{
    for (int i = 0; i < n; i++)
        if (sw_json_member(x[i].made, "timeline")) return NULL;
    return "the times of a run: `swage quantize ... --html FILE` shows them, and `quantize --json` "
           "prints them, for `--results FILE`";
}

static void draw_step(sw_html *h, const cJSON *step, int row, double per_second)
{
    const char *what = sw_exhibit_text(step, "step");
    double begin = sw_exhibit_number(step, "begin_s"), end = sw_exhibit_number(step, "end_s");
    char label[SW_LABEL_BYTES];

    if (!what || !(begin >= 0) || !(end >= begin)) return;
    (void)snprintf(label, sizeof label, "%.200s; %.2f s; from %.2f s to %.2f s", what, end - begin,
                   begin, end);
    sw_mark_begin(h, label);
    sw_html_put(h, "<rect class=\"hit\" x=\"0\" y=\"%.1f\" width=\"%.0f\" height=\"%.0f\"/>"
                "<text class=\"end\" x=\"%.0f\" y=\"%.1f\">%s</text>"
                "<rect class=\"c0\" x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"12\"/>",
                row * ROW, WIDTH, ROW, LEFT - 8, row * ROW + 13, what, LEFT + begin * per_second,
                row * ROW + 3, fmax((end - begin) * per_second, 1));
    sw_html_put(h, "<text x=\"%.1f\" y=\"%.1f\">%.2f s</text>", LEFT + end * per_second + 5,
                row * ROW + 13, end - begin);
    sw_mark_end(h);
}

static void draw(sw_html *h, const sw_exhibit *x)
{
    const cJSON *list = sw_json_member(x->made, "timeline"), *step;
    int n = (int)sw_min_i64(cJSON_GetArraySize(list), ROWS_MAX), row = 0;
    double last = 0;

    cJSON_ArrayForEach(step, list) {
        double end = sw_exhibit_number(step, "end_s");
        if (end > last && end < 1e9) last = end;
    }
    sw_figure_begin(h, WIDTH, n * ROW + 2, "Steps of the run",
                    "A bar per step from its beginning to its end.");
    cJSON_ArrayForEach(step, list) {
        if (row == n) break;
        draw_step(h, step, row++, last > 0 ? (WIDTH - LEFT - 60) / last : 0);
    }
    sw_figure_end(h);
}

void sw_section_time(sw_html *h, const sw_exhibit *x, int n)
{
    for (int i = 0; i < n; i++) {
        double seconds = sw_exhibit_number(x[i].made, "seconds");
        double peak = sw_exhibit_number(x[i].made, "peak_bytes");
        double judged = sw_exhibit_number(x[i].verified, "seconds");
        char text[SW_SHOWN_BYTES];
        if (!sw_json_member(x[i].made, "timeline")) continue;
        sw_section_name(h, &x[i], n);
        sw_html_raw(h, "<p>");
        if (isfinite(seconds))
            sw_html_put(h, "Quantized in %.1f s, with %s of memory at the peak.", seconds,
                        sw_show_bytes(text, peak));
        if (isfinite(judged)) sw_html_put(h, " Verified in %.1f s.", judged);
        sw_html_raw(h, "</p>\n");
        draw(h, &x[i]);
    }
}
