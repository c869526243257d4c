/* report_text.c - see report_text.h. */
#include "tools/verify/report_text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/terminal/table.h"
#include "tools/verify/speed_text.h"
#include "verify/base/apart.h"

#define WORST_SHOWN 8
#define REMARKS_SHOWN 12
#define FINDINGS_SHOWN 20

typedef struct text_out {
    FILE *to;
    int columns;
} text_out;

/* A label and what it is about. */
#define line(o, label, ...) sw_line_print((o)->to, label, (o)->columns, __VA_ARGS__)

static void print_head(const text_out *o, const sw_report *r)
{
    const sw_report_coverage *c = &r->coverage;
    char rounded[40] = "", rescaled[40] = "", lost[120] = "";

    line(o, "checkpoint", "%s", r->checkpoint_dir);
    line(o, "", "%s, %s, %s", r->architecture, r->dialect, r->scheme);
    line(o, "against", "%s", r->original_dir ? r->original_dir : "nothing: no original given");
    if (!c->is_measured) {
        line(o, "tensors", "%lld quantized", (long long)r->n_tensors);
        return;
    }
    if (c->n_rounded)
        (void)snprintf(rounded, sizeof rounded, ", %lld rounded", (long long)c->n_rounded);
    if (c->n_rescaled)
        (void)snprintf(rescaled, sizeof rescaled, ", %lld rescaled", (long long)c->n_rescaled);
    if (c->n_missing || c->n_differing || c->n_unexpected)
        (void)snprintf(lost, sizeof lost, ", %lld missing, %lld differing, %lld unexpected",
                       (long long)c->n_missing, (long long)c->n_differing,
                       (long long)c->n_unexpected);
    line(o, "tensors", "%lld in the original: %lld quantized, %lld bit-identical%s%s%s",
         (long long)c->n_original, (long long)c->n_quantized, (long long)c->n_identical, rounded,
         rescaled, lost);
    line(o, "size", "%.1f MB, original %.1f MB", (double)c->checkpoint_bytes / 1e6,
         (double)c->original_bytes / 1e6);
}

/* Worst first; a NaN is worse than anything, and the name decides between equals. */
static int compare_worst(const void *a, const void *b)
{
    const sw_report_tensor *x = *(const sw_report_tensor *const *)a;
    const sw_report_tensor *y = *(const sw_report_tensor *const *)b;
    double ex = x->output_err >= 0 ? x->output_err : x->weight_err;
    double ey = y->output_err >= 0 ? y->output_err : y->weight_err;

    if (isnan(ex) != isnan(ey)) return isnan(ex) ? -1 : 1;
    if (ex < ey || ex > ey) return ex < ey ? 1 : -1;
    return strcmp(x->name, y->name);
}

typedef struct worst {
    const sw_report_tensor **at;
    int64_t n_shown;
} worst;

static void put_share(char out[SW_CELL_BYTES], double v)
{
    (void)snprintf(out, SW_CELL_BYTES, v < 0 ? "-" : "%.3f%%", 100 * v);
}

static bool worst_row(const void *self, int64_t i, sw_cells out)
{
    const worst *w = self;

    if (i >= w->n_shown) return false;
    (void)snprintf(out[0], SW_CELL_BYTES, "%s", w->at[i]->name);
    put_share(out[1], w->at[i]->weight_err);
    put_share(out[2], w->at[i]->output_err);
    (void)snprintf(out[3], SW_CELL_BYTES, "%.6f", w->at[i]->cosine);
    (void)snprintf(out[4], SW_CELL_BYTES, "%.2f", w->at[i]->step_rms);
    return true;
}

static sw_code print_tensors(const text_out *o, const sw_report *r, sw_err *err)
{
    worst w = {.n_shown = r->n_tensors < WORST_SHOWN ? r->n_tensors : WORST_SHOWN};
    char heading[48];
    const sw_table table = {
        .headings = {heading, "weight err", "output err", "cosine", "/rounding"},
        .kinds = {SW_CELL_NAME, SW_CELL_NUMBER, SW_CELL_NUMBER, SW_CELL_NUMBER, SW_CELL_NUMBER},
        .n_columns = 5, .self = &w, .row = worst_row};
    sw_code rc;

    if (!r->n_tensors || r->tensors[0].weight_err < 0) return SW_OK;
    if ((rc = SW_MEM_GET(&w.at, r->n_tensors, "tensor order", err)) != SW_OK) return rc;
    for (int64_t i = 0; i < r->n_tensors; i++) w.at[i] = &r->tensors[i];
    qsort(w.at, (size_t)r->n_tensors, sizeof *w.at, compare_worst);
    (void)snprintf(heading, sizeof heading, "worst of %lld linears", (long long)r->n_tensors);
    (void)fputc('\n', o->to);
    sw_table_print(o->to, &table, o->columns);
    sw_mem_put(w.at);
    return SW_OK;
}

/* ---- figures with intervals ---- */

#define FIGURES_MAX 24
#define FIGURE_BYTES 96

/* Name, value, and its interval and unit. */
typedef struct figures {
    char at[FIGURES_MAX][3][FIGURE_BYTES];
    int n;
} figures;

static void add(figures *f, const char *name, const char *value, const char *more)
{
    if (f->n == FIGURES_MAX) return;
    (void)snprintf(f->at[f->n][0], FIGURE_BYTES, "%s", name);
    (void)snprintf(f->at[f->n][1], FIGURE_BYTES, "%s", value);
    (void)snprintf(f->at[f->n++][2], FIGURE_BYTES, "%s", more);
}

static bool figure_row(const void *self, int64_t i, sw_cells out)
{
    const figures *f = self;

    if (i >= f->n) return false;
    for (int c = 0; c < 3; c++) memcpy(out[c], f->at[i][c], FIGURE_BYTES);
    return true;
}

static void print_figures(const text_out *o, const figures *f)
{
    const sw_table table = {.kinds = {SW_CELL_TEXT, SW_CELL_NUMBER, SW_CELL_TEXT}, .n_columns = 3,
                            .has_no_heading = true, .self = f, .row = figure_row};

    sw_table_print(o->to, &table, o->columns);
}

static void add_interval(figures *f, const char *name, const sw_interval *i, const char *unit)
{
    char value[FIGURE_BYTES], more[FIGURE_BYTES];

    (void)snprintf(value, sizeof value, "%.5f", i->at);
    (void)snprintf(more, sizeof more, "[%.5f, %.5f]%s", i->low, i->high, unit);
    add(f, name, value, more);
}

static void add_share(figures *f, const char *name, const sw_interval *i, const char *unit)
{
    char value[FIGURE_BYTES], more[FIGURE_BYTES];

    (void)snprintf(value, sizeof value, "%.3f%%", 100 * i->at);
    (void)snprintf(more, sizeof more, "[%.3f, %.3f]%s", 100 * i->low, 100 * i->high, unit);
    add(f, name, value, more);
}

/* The ways to show a metric, by their names in metrics.def. */
#define add_PLAIN(f, name, i) add_interval(f, name, i, "")
#define add_NATS(f, name, i) add_interval(f, name, i, "  nats")
#define add_PERCENT(f, name, i) add_share(f, name, i, "")

static void add_gap(figures *f, const sw_report_gap *gap)
{
    char value[FIGURE_BYTES], more[FIGURE_BYTES];

    if (!gap->is_measured) return;
    (void)snprintf(value, sizeof value, "%.2e", gap->logits_err);
    add(f, "kernel gap", value, "relative, of logits");
    (void)snprintf(value, sizeof value, "%.2e", gap->nll_kernel - gap->nll_dequantized);
    (void)snprintf(more, sizeof more, "nats; %.6f with kernels, %.6f dequantized",
                   gap->nll_kernel, gap->nll_dequantized);
    add(f, "kernel gap, nll", value, more);
}

static void add_comparison(figures *f, const sw_report_eval *e)
{
    char value[FIGURE_BYTES], more[FIGURE_BYTES];

    add_interval(f, "perplexity, original", &e->ppl_original, "");
    add_interval(f, "ratio", &e->ppl_ratio, e->is_significant ? "" : "  not significant");
    add_interval(f, "nll difference", &e->nll_diff,
                 e->is_significant ? "  nats" : "  nats, not significant");
    add_interval(f, "KL(original || checkpoint)", &e->kl, "  nats");
    (void)snprintf(value, sizeof value, "%.5f", e->kl_p99);
    (void)snprintf(more, sizeof more, "largest %.5f", e->kl_max);
    add(f, "KL, 99th percentile", value, more);
    if (e->is_probed) {
        (void)snprintf(value, sizeof value, "%.5f", e->noise_kl);
        (void)snprintf(more, sizeof more, "nats, by noise of %.2f%%", 100 * e->noise);
        add(f, "KL that rounding explains", value, more);
    }
#define SW_METRIC(id, field, key, name, shown, reads) add_##shown(f, name, &e->field);
#include "verify/base/metrics.def"
#undef SW_METRIC
}

/* How the device multiplied: figures from weights decoded on the device are those of the
 * checkpoint, but not of its kernels. */
static void print_device(const text_out *o, const sw_report_eval *e)
{
    const sw_device_lm_linears *l = &e->linears;

    line(o, NULL, "on %s, in bf16; linears in products of their codes: %lld", e->device,
         (long long)l->n_coded);
    if (!l->n_decoded) return;
    line(o, NULL, "%lld decoded to bf16, as the device has no kernel for their format",
         (long long)l->n_decoded);
    if (l->n_rounded)
        line(o, NULL, "inputs of %lld quantized as the checkpoint says and brought back",
             (long long)l->n_rounded);
}

static void print_eval(const text_out *o, const sw_report_eval *e)
{
    figures f = {.n = 0};

    if (!e->is_measured) return;
    (void)fputc('\n', o->to);
    line(o, NULL, "%lld predictions in %lld windows of %lld tokens%s; brackets: %.0f %% interval "
         "over windows", (long long)e->n_predictions, (long long)e->n_windows,
         (long long)e->window, e->has_bos ? " with BOS" : "", 100 * e->bootstrap.level);
    if (e->device[0]) print_device(o, e);
    add_interval(&f, "perplexity", &e->ppl, "");
    if (e->has_original) add_comparison(&f, e);
    add_gap(&f, &e->gap);
    print_figures(o, &f);
}

static void add_difference(figures *f, const char *name, const sw_interval *i)
{
    add_share(f, name, i, sw_interval_has_zero(i) ? "  not significant" : "");
}

static void print_task(const text_out *o, const sw_report_task *t)
{
    figures f = {.n = 0};

    (void)fputc('\n', o->to);
    line(o, NULL, "task %s: %lld items, %s; brackets: interval over items", t->name,
         (long long)t->n_items, t->kind);
    if (t->n_cut)
        line(o, NULL, "%lld sequences were longer than the window and lost their beginning",
             (long long)t->n_cut);
    add_share(&f, "acc", &t->acc, "");
    if (t->has_original) {
        add_share(&f, "acc, original", &t->acc_original, "");
        add_difference(&f, "acc, difference", &t->acc_diff);
        add_share(&f, "flips", &t->flips, "  answers that are not the original's");
    }
    if (t->has_norm) add_share(&f, "acc_norm, by bytes", &t->acc_norm, "");
    if (t->has_norm && t->has_original) {
        add_share(&f, "acc_norm, original", &t->acc_norm_original, "");
        add_difference(&f, "acc_norm, difference", &t->acc_norm_diff);
        add_share(&f, "flips, by bytes", &t->flips_norm, "");
    }
    print_figures(o, &f);
}

static void print_gates(const text_out *o, const sw_report *r)
{
    for (int i = 0; i < SW_GATE_COUNT; i++) {
        const sw_gate *gate = &r->gates[i];
        sw_apart a;

        if (!gate->is_set) continue;
        a = sw_apart_digits(gate->have, gate->limit, 6);
        line(o, "gate", "%s: have %s, limit %s, %s", sw_gate_name((sw_gate_id)i), a.have, a.limit,
             gate->has_passed ? "passed" : gate->is_undecided ? "undecided" : "FAILED");
    }
}

static void print_verdict(const text_out *o, const sw_report *r)
{
    int64_t n_shown = r->n_findings < FINDINGS_SHOWN ? r->n_findings : FINDINGS_SHOWN;
    sw_err verdict = {0};

    (void)fputc('\n', o->to);
    if (r->note) line(o, "note", "%s", r->note);
    for (int64_t i = 0; i < n_shown; i++)
        line(o, r->findings[i].what, "%s", r->findings[i].text);
    if (r->n_findings > n_shown)
        line(o, "", "and %lld more", (long long)(r->n_findings - n_shown));
    for (int64_t i = 0; i < r->n_remarks && i < REMARKS_SHOWN; i++)
        line(o, "remark", "%s", r->remarks[i]);
    for (int64_t i = 0; i < r->loaders.n; i++) {
        char text[SW_LOAD_TEXT_BYTES];
        line(o, "loaders", "%s", sw_load_text(text, &r->loaders.at[i]));
    }
    print_gates(o, r);
    if (sw_report_verdict(r, &verdict) == SW_OK) line(o, "verdict", "passed");
    else line(o, "verdict", "%s: %s", verdict.code == SW_E_NOISY ? "undecided" : "FAILED",
              verdict.text);
}

static void print_experts(const text_out *o, const sw_report_experts *x)
{
    if (!x->n_experts) return;
    (void)fputc('\n', o->to);
    line(o, "experts", "%lld got %lld to %lld of %lld tokens, %lld got none%s",
         (long long)x->n_experts, (long long)x->tokens_min, (long long)x->tokens_max,
         (long long)x->n_tokens, (long long)x->n_unreached,
         x->n_unreached ? ", so that their output errors are unknown" : "");
}

sw_code sw_report_print(FILE *out, const sw_report *report, int columns, sw_err *err)
{
    const text_out o = {out, columns};
    sw_code rc;

    print_head(&o, report);
    if ((rc = print_tensors(&o, report, err)) != SW_OK) return rc;
    print_experts(&o, &report->experts);
    print_eval(&o, &report->eval);
    for (int64_t i = 0; i < report->n_tasks; i++) print_task(&o, &report->tasks[i]);
    sw_speed_print(out, &report->speed, columns);
    print_verdict(&o, report);
    return SW_OK;
}
