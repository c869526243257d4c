/* section_speed.c - what the formats can gain: bytes per decoded token, the kernel that each linear
 * gets on this machine, and the ceiling that the memory of a device sets. Nothing is timed. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/mem.h"
#include "tools/device/devices.h"
#include "tools/report/sections/section.h"

#define CLASSES_MAX 64
#define DEVICES_MAX 8

const char *sw_section_speed_missing(const sw_exhibit *x, int n)
{
    for (int i = 0; i < n; i++)
        if (x[i].n_linears) return NULL;
    return "linears; the model has none";
}

/* Linears of one kind, shape and scheme. */
typedef struct linear_class {
    const sw_exhibit_linear *like;
    int64_t n;
    double bytes;
} linear_class;

/* What decoding one token of one sequence reads. An expert counts as often as it is used. */
typedef struct traffic {
    double before, after;   /* bytes */
    double seconds_before, seconds_after; /* by a device's figures of its kernels; or NaN */
} traffic;

static double share_used(const sw_exhibit *x, const sw_exhibit_linear *l)
{
    const sw_model *m = &x->ckpt.model;

    return l->expert >= 0 && m->n_experts ? (double)m->n_experts_used / (double)m->n_experts : 1;
}

static double bytes_before(const sw_exhibit *x, const sw_exhibit_linear *l)
{
    return (double)l->n_out * (double)l->k_in * (double)sw_dtype_bits(x->ckpt.model.dtype) / 8;
}

/* The figures are of integers up to 4 bits with float inputs. */
static bool has_figures(const sw_exhibit *x, const sw_device_figures *d)
{
    if (!d->int4.gb_s) return false;
    for (int64_t i = 0; i < x->n_linears; i++) {
        const sw_exhibit_linear *l = &x->linears[i];
        if (l->is_quantized && !(l->has_codes && l->spec.num->kind == SW_NUM_INT &&
                                 l->spec.num->bits <= 4 && l->spec.act.scope == SW_ACT_NONE))
            return false;
    }
    return true;
}

static traffic traffic_of(const sw_exhibit *x, const sw_device_figures *d)
{
    traffic t = {0};
    bool by_kernel = d && has_figures(x, d);

    for (int64_t i = 0; i < x->n_linears; i++) {
        const sw_exhibit_linear *l = &x->linears[i];
        double used = share_used(x, l), before = bytes_before(x, l);
        t.before += used * before;
        t.after += used * l->bytes;
        if (!by_kernel) continue;
        t.seconds_before += used * sw_device_product_s(&d->dense16, d->nominal_gb_s, before);
        t.seconds_after += used * sw_device_product_s(l->is_quantized ? &d->int4 : &d->dense16,
                                                      d->nominal_gb_s, l->bytes);
    }
    if (!by_kernel) t.seconds_before = t.seconds_after = (double)NAN;
    return t;
}

static int classes_of(linear_class out[CLASSES_MAX], const sw_exhibit *x)
{
    int n = 0;

    for (int64_t i = 0; i < x->n_linears; i++) {
        const sw_exhibit_linear *l = &x->linears[i];
        int at = 0;
        while (at < n && (out[at].like->kind != l->kind || out[at].like->n_out != l->n_out ||
                          out[at].like->k_in != l->k_in ||
                          strcmp(out[at].like->scheme, l->scheme) != 0))
            at++;
        if (at == CLASSES_MAX) continue;
        if (at == n) out[n++].like = l;
        out[at].n++;
        out[at].bytes += l->bytes;
    }
    return n;
}

static const char *kernel_of(const sw_exhibit *x, const sw_exhibit_linear *l, int64_t m)
{
    sw_kernel_shape shape = {l->has_codes ? &l->spec : NULL, x->ckpt.model.dtype, l->n_out,
                             l->k_in, x->n_threads};

    if (l->is_quantized && !l->has_codes) return "decoded to floats";
    return sw_kernel_name_for(&shape, m);
}

static void put_times(sw_html *h, const sw_exhibit *x, const linear_class *c,
                      const sw_device_figures *d)
{
    double n = (double)c->n, after, before;
    char text[SW_SHOWN_BYTES];

    before = sw_device_product_s(&d->dense16, d->nominal_gb_s, bytes_before(x, c->like));
    after = sw_device_product_s(c->like->is_quantized ? &d->int4 : &d->dense16, d->nominal_gb_s,
                                c->bytes / n);
    sw_cell(h, sw_show_real(text, 1e6 * before), 1e6 * before);
    sw_cell(h, sw_show_real(text, 1e6 * after), 1e6 * after);
    sw_cell(h, sw_show_real(text, before / after), before / after);
}

static void put_table(sw_html *h, const sw_exhibit *x)
{
    static const char *const headings[] = {
        "kind of linear", "#count", "outputs \xC3\x97 inputs", "#bytes of one, before", "#after",
        "kernel here, 1 and 64 tokens", "#H200 before, us", "#after, us", "#gain"};
    const sw_device_figures *d = sw_device_figures_find("h200");
    linear_class classes[CLASSES_MAX] = {{0}};
    int n = classes_of(classes, x);
    bool has_times = d && has_figures(x, d);

    sw_table_begin(h, true, has_times ? "Products of one token; times on an H200 are of a fit to "
                                        "measured kernels (devices.def), not measured here"
                                      : "Products of one token", headings, has_times ? 9 : 6);
    for (int i = 0; i < n; i++) {
        const sw_exhibit_linear *l = classes[i].like;
        double after = classes[i].bytes / (double)classes[i].n, before = bytes_before(x, l);
        char text[SW_SHOWN_BYTES];
        sw_html_put(h, "<tr><th scope=\"row\">%s</th>", l->kind < 0 ? "others" : x->kinds[l->kind]);
        sw_cell(h, sw_show_count(text, (double)classes[i].n), (double)classes[i].n);
        sw_html_put(h, "<td>%lld &#215; %lld</td>", (long long)l->n_out, (long long)l->k_in);
        sw_cell(h, sw_show_bytes(text, before), before);
        sw_cell(h, sw_show_bytes(text, after), after);
        sw_html_put(h, "<td><code class=\"nb\">%s</code><br/><code class=\"nb\">%s</code></td>",
                    kernel_of(x, l, 1), kernel_of(x, l, 64));
        if (has_times) put_times(h, x, &classes[i], d);
        sw_html_raw(h, "</tr>\n");
    }
    sw_table_end(h);
}

static void put_payoff(sw_html *h, const sw_exhibit *x)
{
    traffic t = traffic_of(x, sw_device_figures_find("h200"));
    char before[SW_SHOWN_BYTES], after[SW_SHOWN_BYTES];

    sw_html_put(h, "<p>One decoded token reads %s of linears, %s before: <b>%.2f times</b> less, "
                "which is the most that decoding of one sequence can gain.",
                sw_show_bytes(after, t.after), sw_show_bytes(before, t.before),
                t.before / t.after);
    if (isfinite(t.seconds_after))
        sw_html_put(h, " With the time of starting each product counted as well, an H200 is "
                    "predicted to gain <b>%.2f times</b>%s.", t.seconds_before / t.seconds_after,
                    t.seconds_after > t.seconds_before ? ": these products are too small to gain"
                                                       : "");
    sw_html_raw(h, "</p>\n");
}

/* Room for what the chart borrows. */
typedef struct roof {
    sw_xy_point line[DEVICES_MAX][2];
    sw_xy_series series[2 * DEVICES_MAX];
    sw_xy_point *points; /* [n + 1] a device */
    char (*labels)[SW_LABEL_BYTES];
} roof;

static void add_point(sw_xy_point *at, char *label, const char *name, double bytes,
                      const sw_device_figures *d, int color, bool is_named)
{
    double rate = 1e9 * d->nominal_gb_s / bytes;
    char mb[SW_SHOWN_BYTES], tokens[SW_SHOWN_BYTES];

    (void)snprintf(label, SW_LABEL_BYTES, "%.200s on %s; %s per token; at most %s tokens/s", name,
                   d->name, sw_show_bytes(mb, bytes), sw_show_count(tokens, rate));
    *at = (sw_xy_point){.x = bytes / 1e6, .y = rate, .low = (double)NAN, .high = (double)NAN,
                        .color = color, .name = is_named ? name : NULL, .label = label};
}

/* The lines of devices, and on them every checkpoint and the first one's original. */
static int build(roof *r, const sw_exhibit *x, int n)
{
    double least = (double)NAN, most = (double)NAN;
    int n_series = 0;

    for (int i = 0; i < n; i++) {
        traffic t = traffic_of(&x[i], NULL);
        sw_heat_range(&least, &most, &t.after, 1);
        sw_heat_range(&least, &most, &t.before, 1);
    }
    for (int d = 0; d < DEVICES_MAX && sw_device_figures_table[d].name; d++) {
        const sw_device_figures *f = &sw_device_figures_table[d];
        const double ends[2] = {least / 1.6, most * 1.6};
        sw_xy_point *points = r->points + d * (n + 1);
        for (int e = 0; e < 2; e++)
            r->line[d][e] = (sw_xy_point){.x = ends[e] / 1e6, .y = 1e9 * f->nominal_gb_s / ends[e],
                                          .low = (double)NAN, .high = (double)NAN};
        r->series[n_series++] = (sw_xy_series){.name = f->name, .color = SW_COLOR_ORIGINAL,
                                               .is_line = true,
                                               .at = r->line[d], .n = 2};
        for (int i = 0; i <= n; i++)
            add_point(&points[i], r->labels[d * (n + 1) + i], i ? x[i - 1].name : "original",
                      i ? traffic_of(&x[i - 1], NULL).after : traffic_of(&x[0], NULL).before, f,
                      i ? sw_section_color(i - 1) : SW_COLOR_ORIGINAL, d == 0);
        r->series[n_series++] = (sw_xy_series){.at = points, .n = n + 1};
    }
    return n_series;
}

static void draw_roof(sw_html *h, const sw_exhibit *x, int n)
{
    roof r = {.points = NULL};
    sw_xy chart = {.title = "Ceiling of decoding one sequence: nominal memory bandwidth over the "
                            "bytes of linears that a token reads",
                   .describe = "A line per device. No kernel can be above it; caches, attention, "
                               "norms and the time of starting kernels are not counted.",
                   .x_name = "MB read per token", .y_name = "tokens/s at most", .is_log_x = true,
                   .is_log_y = true, .series = r.series};

    if (h->err.code == SW_OK &&
        SW_MEM_GET(&r.points, DEVICES_MAX * (n + 1), "points", &h->err) == SW_OK &&
        SW_MEM_GET(&r.labels, DEVICES_MAX * (n + 1), "labels", &h->err) == SW_OK) {
        chart.n_series = build(&r, x, n);
        sw_xy_draw(h, &chart);
    }
    sw_mem_put(r.points);
    sw_mem_put(r.labels);
}

void sw_section_speed(sw_html *h, const sw_exhibit *x, int n)
{
    sw_html_raw(h, "<p class=\"lead\">Nothing here was timed: `swage verify --speed` does that. "
                   "\"Here\" is the machine that made the report.</p>\n");
    draw_roof(h, x, n);
    for (int i = 0; i < n; i++) {
        sw_section_name(h, &x[i], n);
        put_payoff(h, &x[i]);
        put_table(h, &x[i]);
    }
}
