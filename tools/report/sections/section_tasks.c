/* section_tasks.c - answers to questions as `verify --task` measured them: accuracy with intervals
 * beside the original's, and the share of answers that changed, which perplexity hides. */
#include <math.h>
#include <stdio.h>

#include "tools/report/sections/section.h"

#define DOTS_MAX 64
#define NAME_BYTES 80

static const cJSON *tasks_of(const sw_exhibit *x) { return sw_json_member(x->verified, "tasks"); }

const char *sw_section_tasks_missing(const sw_exhibit *x, int n)
{
    for (int i = 0; i < n; i++)
        if (cJSON_GetArraySize(tasks_of(&x[i])) > 0) return NULL;
    return "no result of `swage verify OUT --against MODEL --task FILE`; its `--report FILE` is "
           "given to `swage report` by `--results FILE`";
}

/* How answers are counted: one row of the table each, where the report has it. */
static const struct measure {
    const char *name, *value, *original, *difference, *flips;
} measures[] = {
    {"acc", "acc", "acc_original", "acc_difference", "flips"},
    {"acc_norm, by bytes", "acc_norm", "acc_norm_original", "acc_norm_difference", "flips_norm"},
};

static double part(const cJSON *interval, const char *key)
{
    return sw_exhibit_number(interval, key);
}

/* "45.33 % [40.00, 50.67]", or a dash. */
static void put_share(sw_html *h, const cJSON *at)
{
    char value[SW_SHOWN_BYTES];

    if (!isfinite(part(at, "value"))) {
        sw_cell(h, "\xE2\x80\x93", part(at, "value"));
        return;
    }
    sw_html_put(h, "<td class=\"n\" data-v=\"%.9g\">%s <span class=\"muted\">[%.2f, %.2f]</span>"
                "</td>", part(at, "value"), sw_show_percent(value, part(at, "value")),
                100 * part(at, "low"), 100 * part(at, "high"));
}

static void put_rows(sw_html *h, const cJSON *task)
{
    const char *name = sw_exhibit_text(task, "name"), *kind = sw_exhibit_text(task, "kind");
    char items[SW_SHOWN_BYTES];

    for (size_t i = 0; i < sizeof measures / sizeof *measures; i++) {
        const struct measure *m = &measures[i];

        if (!sw_json_member(task, m->value)) continue;
        sw_html_put(h, "<tr><th scope=\"row\">%s<br/><span class=\"muted\">%s, %s</span></th>"
                    "<td>%s</td>", name, sw_show_count(items, part(task, "items")), kind, m->name);
        put_share(h, sw_json_member(task, m->value));
        put_share(h, sw_json_member(task, m->original));
        put_share(h, sw_json_member(task, m->difference));
        put_share(h, sw_json_member(task, m->flips));
        sw_html_raw(h, "</tr>\n");
    }
}

static void put_table(sw_html *h, const cJSON *tasks)
{
    static const char *const headings[] = {"task", "counted by", "#right", "#original",
                                           "#difference", "#changed"};
    const cJSON *task;

    sw_table_begin(h, false, "Right answers, and those that changed; brackets: bootstrap "
                             "intervals over items", headings, 6);
    cJSON_ArrayForEach(task, tasks) put_rows(h, task);
    sw_table_end(h);
}

static void add_dot(sw_dots *chart, sw_dot *dots, char name[NAME_BYTES], const char *of, int color,
                    const cJSON *task, const char *key)
{
    const cJSON *at = sw_json_member(task, key);
    const char *title = sw_exhibit_text(task, "name");

    if (chart->n == DOTS_MAX || !isfinite(part(at, "value"))) return;
    (void)snprintf(name, NAME_BYTES, "%.40s, %.30s", title ? title : "", of);
    dots[chart->n++] = (sw_dot){.name = name, .color = color, .at = part(at, "value"),
                                .low = part(at, "low"), .high = part(at, "high")};
}

static void draw_accuracy(sw_html *h, const sw_exhibit *x)
{
    char names[DOTS_MAX + 1][NAME_BYTES];
    sw_dot dots[DOTS_MAX];
    sw_dots chart = {.title = "Share of right answers",
                     .describe = "Accuracy with its interval: for each task a row of the original "
                                 "and one of the checkpoint. More is better.",
                     .at = dots, .limit = (double)NAN, .is_percent = true};
    const cJSON *task;

    cJSON_ArrayForEach(task, tasks_of(x)) {
        add_dot(&chart, dots, names[chart.n], "original", SW_COLOR_ORIGINAL, task, "acc_original");
        add_dot(&chart, dots, names[chart.n], x->name, 0, task, "acc");
    }
    if (chart.n) sw_dots_draw(h, &chart);
}

void sw_section_tasks(sw_html *h, const sw_exhibit *x, int n)
{
    for (int i = 0; i < n; i++) {
        if (cJSON_GetArraySize(tasks_of(&x[i])) < 1) continue;
        sw_section_name(h, &x[i], n);
        draw_accuracy(h, &x[i]);
        put_table(h, tasks_of(&x[i]));
    }
}
