/* section_bytes.c - what the bytes of a checkpoint are for, and which schemes they are in. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/mem.h"
#include "tools/report/sections/section.h"

#define GROUPS_MAX 64

const char *sw_section_bytes_missing(const sw_exhibit *x, int n)
{
    (void)x;
    (void)n;
    return NULL;
}

/* Linears of one kind that are stored alike. */
typedef struct group {
    const char *kind, *scheme;
    int64_t n;
    double bytes, weights;
} group;

/* Returns how many; what is beyond GROUPS_MAX is left out, and told. */
static int gather(group out[GROUPS_MAX], const sw_exhibit *x, bool *is_whole)
{
    int n = 0;

    *is_whole = true;
    for (int64_t i = 0; i < x->n_linears; i++) {
        const sw_exhibit_linear *l = &x->linears[i];
        const char *kind = l->kind < 0 ? "others" : x->kinds[l->kind];
        int at = 0;
        while (at < n &&
               (strcmp(out[at].kind, kind) != 0 || strcmp(out[at].scheme, l->scheme) != 0))
            at++;
        if (at == GROUPS_MAX) {
            *is_whole = false;
            continue;
        }
        if (at == n) out[n++] = (group){.kind = kind, .scheme = l->scheme};
        out[at].n++;
        out[at].bytes += l->bytes;
        out[at].weights += (double)l->n_out * (double)l->k_in;
    }
    return n;
}

static void put_groups(sw_html *h, const sw_exhibit *x)
{
    static const char *const headings[] = {"kind of linear", "stored as", "#linears", "#weights",
                                           "#bytes", "#bits per weight", "#of all bytes"};
    group groups[GROUPS_MAX];
    bool is_whole;
    int n = gather(groups, x, &is_whole);

    sw_table_begin(h, true, "Linears by kind and scheme", headings, 7);
    for (int i = 0; i < n; i++) {
        char text[SW_SHOWN_BYTES];
        double bits = 8 * groups[i].bytes / groups[i].weights, share = groups[i].bytes / x->bytes;
        sw_html_put(h, "<tr><th scope=\"row\">%s</th><td class=\"wide\">%s</td>", groups[i].kind,
                    groups[i].scheme);
        sw_cell(h, sw_show_count(text, (double)groups[i].n), (double)groups[i].n);
        sw_cell(h, sw_show_count(text, groups[i].weights), groups[i].weights);
        sw_cell(h, sw_show_bytes(text, groups[i].bytes), groups[i].bytes);
        sw_cell(h, sw_show_real(text, bits), bits);
        sw_cell(h, sw_show_percent(text, share), share);
        sw_html_raw(h, "</tr>\n");
    }
    sw_table_end(h);
    if (!is_whole)
        sw_html_raw(h, "<p class=\"warn\">There are more kinds than this table shows.</p>\n");
}

/* Parts that some checkpoint has. */
static int used_parts(int out[SW_PART_COUNT], const sw_exhibit *x, int n)
{
    int n_used = 0;

    for (int p = 0; p < SW_PART_COUNT; p++) {
        bool is_used = false;
        for (int i = 0; i < n; i++) is_used |= x[i].part_bytes[p] > 0;
        if (is_used) out[n_used++] = p;
    }
    return n_used;
}

static void draw(sw_html *h, const sw_exhibit *x, int n)
{
    const char **rows = NULL, *names[SW_PART_COUNT];
    double *values = NULL;
    int used[SW_PART_COUNT], n_used = used_parts(used, x, n);
    sw_stack stack = {.title = "Bytes of all tensors by what they are for",
                      .describe = "A bar per checkpoint, of parts that add up to the size of its "
                                  "tensors.",
                      .parts = names, .n_rows = n, .n_parts = n_used, .show = sw_show_bytes};

    if (h->err.code == SW_OK && SW_MEM_GET(&rows, n, "rows", &h->err) == SW_OK &&
        SW_MEM_GET(&values, n * SW_PART_COUNT, "parts", &h->err) == SW_OK) {
        for (int p = 0; p < n_used; p++) {
            names[p] = sw_exhibit_part_names[used[p]];
            for (int i = 0; i < n; i++) values[i * n_used + p] = x[i].part_bytes[used[p]];
        }
        for (int i = 0; i < n; i++) rows[i] = x[i].name;
        stack.rows = rows;
        stack.values = values;
        sw_stack_draw(h, &stack);
    }
    sw_mem_put(rows);
    sw_mem_put(values);
}

void sw_section_bytes(sw_html *h, const sw_exhibit *x, int n)
{
    draw(h, x, n);
    for (int i = 0; i < n; i++) {
        char before[SW_SHOWN_BYTES], after[SW_SHOWN_BYTES], part[SW_SHOWN_BYTES];
        sw_section_name(h, &x[i], n);
        if (isfinite(x[i].original_bytes))
            sw_html_put(h, "<p>%s from %s%s: %s.</p>\n", sw_show_bytes(after, x[i].bytes),
                        sw_show_bytes(before, x[i].original_bytes),
                        x[i].is_original_of_files ? " (the original's files)" : "",
                        sw_show_percent(part, x[i].bytes / x[i].original_bytes));
        put_groups(h, &x[i]);
    }
}
