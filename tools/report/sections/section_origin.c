/* section_origin.c - from what and how: settings, files and their digests. */
#include <math.h>
#include <stdio.h>

#include "tools/report/sections/section.h"

#define FILES_SHOWN 300
#define DEPTH_MAX 6
#define ITEMS_SHOWN 40

const char *sw_section_origin_missing(const sw_exhibit *x, int n)
{
    for (int i = 0; i < n; i++)
        if (x[i].manifest || x[i].verified) return NULL;
    return "manifest.json, which Swage writes beside the weights, or a result of `swage verify`";
}

/* Any JSON value, as nested lists. */
static void put_value(sw_html *h, const cJSON *v, int depth)
{
    const cJSON *item;
    int n = 0;

    if (cJSON_IsString(v)) sw_html_put(h, "<code>%s</code>", v->valuestring);
    else if (cJSON_IsNumber(v)) sw_html_put(h, "%.10g", v->valuedouble);
    else if (cJSON_IsBool(v)) sw_html_raw(h, cJSON_IsTrue(v) ? "yes" : "no");
    else if (!v || !v->child || depth == DEPTH_MAX) sw_html_raw(h, "–");
    if (!v || !v->child || depth == DEPTH_MAX) return;
    sw_html_raw(h, "<ul>");
    cJSON_ArrayForEach(item, v) {
        if (n++ == ITEMS_SHOWN) {
            sw_html_raw(h, "<li class=\"muted\">and more</li>");
            break;
        }
        sw_html_raw(h, "<li>");
        if (item->string) sw_html_put(h, "%s: ", item->string);
        put_value(h, item, depth + 1);
        sw_html_raw(h, "</li>");
    }
    sw_html_raw(h, "</ul>\n");
}

static void put_facts(sw_html *h, const char *caption, const cJSON *object)
{
    static const char *const headings[] = {"what", "value"};
    const cJSON *item;

    if (!object || !object->child) return;
    sw_table_begin(h, false, caption, headings, 2);
    cJSON_ArrayForEach(item, object) {
        sw_html_put(h, "<tr><th scope=\"row\">%s</th><td>", item->string ? item->string : "");
        put_value(h, item, 0);
        sw_html_raw(h, "</td></tr>\n");
    }
    sw_table_end(h);
}

static void put_files(sw_html *h, const char *caption, const cJSON *list, const char *name_key)
{
    static const char *const headings[] = {"file", "#bytes", "SHA-256"};
    const cJSON *file;
    int n = 0;

    if (!list || !list->child) return;
    sw_html_put(h, "<details><summary>%s: %d</summary>\n", caption, cJSON_GetArraySize(list));
    sw_table_begin(h, false, caption, headings, 3);
    cJSON_ArrayForEach(file, list) {
        double bytes = sw_exhibit_number(file, "bytes");
        const char *role = sw_exhibit_text(file, "role");
        char text[SW_SHOWN_BYTES];
        if (n++ == FILES_SHOWN) break;
        sw_html_put(h, "<tr><th scope=\"row\"><span class=\"path\">%s</span>%s%s</th>",
                    sw_exhibit_text(file, name_key), role ? ", " : "", role ? role : "");
        sw_cell(h, sw_show_count(text, bytes), bytes);
        sw_html_put(h, "<td><code>%s</code></td></tr>\n", sw_exhibit_text(file, "sha256"));
    }
    sw_table_end(h);
    if (n > FILES_SHOWN) sw_html_put(h, "<p class=\"muted\">The first %d.</p>\n", FILES_SHOWN);
    sw_html_raw(h, "</details>\n");
}

static void put_list(sw_html *h, const char *summary, const cJSON *list)
{
    if (!list || !list->child) return;
    sw_html_put(h, "<details><summary>%s</summary>\n", summary);
    put_value(h, list, 0);
    sw_html_raw(h, "</details>\n");
}

/* Norms and rows that scales were folded into. */
static void put_transforms(sw_html *h, const sw_exhibit *x)
{
    const cJSON *list = sw_json_member(x->manifest, "transforms"), *row;
    int n = 0, n_accepted = 0;

    cJSON_ArrayForEach(row, list) {
        n++;
        n_accepted += cJSON_IsTrue(sw_json_member(row, "accepted"));
    }
    if (!n) return;
    sw_html_put(h, "<p>Scales were folded into %d of %d groups; the others gained nothing on "
                "held-out windows.</p>\n", n_accepted, n);
}

static void draw(sw_html *h, const sw_exhibit *x)
{
    const char *made_by = sw_exhibit_text(x->manifest, "swage");
    const char *judged_by = sw_exhibit_text(x->verified, "tool");

    sw_html_put(h, "<p><span class=\"path\">%s</span>", x->path);
    if (made_by) sw_html_put(h, "; made by swage %s", made_by);
    if (judged_by) sw_html_put(h, "; judged by %s", judged_by);
    sw_html_raw(h, "</p>\n");
    put_facts(h, "Settings", sw_json_member(x->manifest, "settings"));
    put_facts(h, "Calibration", sw_json_member(x->manifest, "calibration"));
    put_transforms(h, x);
    put_files(h, "What it was made from", sw_json_member(x->manifest, "inputs"), "name");
    put_files(h, "What was written", sw_json_member(x->manifest, "outputs"), "name");
    put_files(h, "What verify read", sw_json_member(x->verified, "inputs"), "path");
    put_list(h, "Linears left in floats", sw_json_member(x->manifest, "ignored"));
    put_list(h, "Files left behind", sw_json_member(x->manifest, "left_behind"));
    put_list(h, "The run before this one", sw_json_member(x->manifest, "origin"));
    if (x->n_strangers)
        sw_html_put(h, "<p class=\"warn\">%lld rows of the manifest or of verify's result name no "
                    "linear of this model, and are not shown.</p>\n", (long long)x->n_strangers);
}

void sw_section_origin(sw_html *h, const sw_exhibit *x, int n)
{
    for (int i = 0; i < n; i++) {
        sw_section_name(h, &x[i], n);
        draw(h, &x[i]);
    }
}
