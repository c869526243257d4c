/* report_text.c - the report as a table for people. The JSON object has everything; this has what
 * decides, and the tensors that are worst off. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "verify/base/report.h"

#define WORST_SHOWN 8
#define REMARKS_SHOWN 12
#define FINDINGS_SHOWN 20

/* A growing text; the first failure is kept and later prints do nothing. */
typedef struct text_out {
    char *text;
    size_t n_bytes, capacity;
    sw_code rc;
    sw_err *err;
} text_out;

static void print(text_out *o, const char *fmt, ...) SW_PRINTF(2, 3);

static void grow(text_out *o, size_t need_bytes)
{
    char *bigger = NULL;

    if (o->n_bytes + need_bytes <= o->capacity) return;
    o->rc = SW_MEM_GET(&bigger, (int64_t)(2 * (o->n_bytes + need_bytes) + 4096), "report text",
                       o->err);
    if (o->rc != SW_OK) return;
    if (o->n_bytes) memcpy(bigger, o->text, o->n_bytes);
    sw_mem_put(o->text);
    o->text = bigger;
    o->capacity = 2 * (o->n_bytes + need_bytes) + 4096;
}

static void print(text_out *o, const char *fmt, ...)
{
    va_list args;
    int n;

    if (o->rc != SW_OK) return;
    va_start(args, fmt);
    n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    grow(o, (size_t)n + 1);
    if (o->rc != SW_OK) return;
    va_start(args, fmt);
    (void)vsnprintf(o->text + o->n_bytes, (size_t)n + 1, fmt, args);
    va_end(args);
    o->n_bytes += (size_t)n;
}

static void print_head(text_out *o, const sw_report *r)
{
    const sw_report_coverage *c = &r->coverage;

    print(o, "checkpoint  %s\n", r->checkpoint_dir);
    print(o, "            %s, %s, %s\n", r->architecture, r->dialect, r->scheme);
    print(o, "against     %s\n", r->original_dir ? r->original_dir : "nothing: no original given");
    if (!c->is_measured) {
        print(o, "tensors     %lld quantized\n", (long long)r->n_tensors);
        return;
    }
    print(o, "tensors     %lld in the original: %lld quantized, %lld bit-identical",
          (long long)c->n_original, (long long)c->n_quantized, (long long)c->n_identical);
    if (c->n_rounded) print(o, ", %lld rounded", (long long)c->n_rounded);
    if (c->n_rescaled) print(o, ", %lld rescaled", (long long)c->n_rescaled);
    if (c->n_missing || c->n_differing || c->n_unexpected)
        print(o, ", %lld missing, %lld differing, %lld unexpected", (long long)c->n_missing,
              (long long)c->n_differing, (long long)c->n_unexpected);
    print(o, "\nsize        %.1f MB, original %.1f MB\n", (double)c->checkpoint_bytes / 1e6,
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

static void print_error(text_out *o, double v)
{
    if (v < 0) print(o, " %10s", "-");
    else print(o, " %9.3f%%", 100 * v);
}

static void print_tensors(text_out *o, const sw_report *r)
{
    const sw_report_tensor **order = NULL;
    int64_t n_shown = r->n_tensors < WORST_SHOWN ? r->n_tensors : WORST_SHOWN;

    if (o->rc != SW_OK || !r->n_tensors || r->tensors[0].weight_err < 0) return;
    if ((o->rc = SW_MEM_GET(&order, r->n_tensors, "tensor order", o->err)) != SW_OK) return;
    for (int64_t i = 0; i < r->n_tensors; i++) order[i] = &r->tensors[i];
    qsort(order, (size_t)r->n_tensors, sizeof *order, compare_worst);
    print(o, "\nworst of %lld linears %32s %10s %10s %10s\n", (long long)r->n_tensors,
          "weight err", "output err", "cosine", "/rounding");
    for (int64_t i = 0; i < n_shown; i++) {
        print(o, "  %-44.44s", order[i]->name);
        print_error(o, order[i]->weight_err);
        print_error(o, order[i]->output_err);
        print(o, " %10.6f %10.2f\n", order[i]->cosine, order[i]->step_rms);
    }
    sw_mem_put(order);
}

static void print_interval(text_out *o, const char *name, const sw_interval *i, const char *unit)
{
    print(o, "  %-26s %11.5f  [%.5f, %.5f]%s\n", name, i->at, i->low, i->high, unit);
}

/* The ways to show a metric, by their names in metrics.def. */
#define print_PLAIN(o, line, i) print_interval(o, line, i, "")
#define print_NATS(o, line, i) print_interval(o, line, i, "  nats")
#define print_PERCENT print_percent

static void print_percent(text_out *o, const char *name, const sw_interval *i)
{
    print(o, "  %-26s %10.3f%%  [%.3f, %.3f]\n", name, 100 * i->at, 100 * i->low, 100 * i->high);
}

static void print_gap(text_out *o, const sw_report_gap *gap)
{
    if (!gap->is_measured) return;
    print(o, "  %-26s %11.2e  relative, of logits\n", "kernel gap", gap->logits_err);
    print(o, "  %-26s %11.2e  nats; %.6f with kernels, %.6f dequantized\n", "kernel gap, nll",
          gap->nll_kernel - gap->nll_dequantized, gap->nll_kernel, gap->nll_dequantized);
}

/* How the device multiplied: figures from weights decoded on the device are those of the
 * checkpoint, but not of its kernels. */
static void print_device(text_out *o, const sw_report_eval *e)
{
    const sw_device_lm_linears *l = &e->linears;

    print(o, "on %s, in bf16; linears in products of their codes: %lld\n", e->device,
          (long long)l->n_coded);
    if (!l->n_decoded) return;
    print(o, "%lld decoded to bf16, as the device has no kernel for their format",
          (long long)l->n_decoded);
    if (l->n_rounded)
        print(o, ";\ninputs of %lld quantized as the checkpoint says and brought back",
              (long long)l->n_rounded);
    print(o, "\n");
}

static void print_eval(text_out *o, const sw_report_eval *e)
{
    if (!e->is_measured) return;
    print(o, "\n%lld predictions in %lld windows of %lld tokens%s; brackets: %.0f %% interval over "
          "windows\n", (long long)e->n_predictions, (long long)e->n_windows, (long long)e->window,
          e->has_bos ? " with BOS" : "", 100 * e->bootstrap.level);
    if (e->device[0]) print_device(o, e);
    print_interval(o, "perplexity", &e->ppl, "");
    if (e->has_original) {
        print_interval(o, "perplexity, original", &e->ppl_original, "");
        print_interval(o, "ratio", &e->ppl_ratio, e->is_significant ? "" : "  not significant");
        print_interval(o, "nll difference", &e->nll_diff,
                       e->is_significant ? "  nats" : "  nats, not significant");
        print_interval(o, "KL(original || checkpoint)", &e->kl, "  nats");
        print(o, "  %-26s %11.5f  largest %.5f\n", "KL, 99th percentile", e->kl_p99, e->kl_max);
        if (e->is_probed)
            print(o, "  %-26s %11.5f  nats, by noise of %.2f%%\n", "KL that rounding explains",
                  e->noise_kl, 100 * e->noise);
#define SW_METRIC(id, field, key, line, shown) print_##shown(o, line, &e->field);
#include "verify/base/metrics.def"
#undef SW_METRIC
    }
    print_gap(o, &e->gap);
}

static void print_share(text_out *o, const char *name, const sw_interval *i, const char *more)
{
    print(o, "  %-26s %10.3f%%  [%.3f, %.3f]%s\n", name, 100 * i->at, 100 * i->low, 100 * i->high,
          more);
}

static void print_task(text_out *o, const sw_report_task *t)
{
    const char *plain = "  not significant";

    print(o, "\ntask %s: %lld items, %s; brackets: interval over items\n", t->name,
          (long long)t->n_items, t->kind);
    if (t->n_cut)
        print(o, "  %lld sequences were longer than the window and lost their beginning\n",
              (long long)t->n_cut);
    print_share(o, "acc", &t->acc, "");
    if (t->has_original) {
        print_share(o, "acc, original", &t->acc_original, "");
        print_share(o, "acc, difference", &t->acc_diff,
                    sw_interval_has_zero(&t->acc_diff) ? plain : "");
        print_share(o, "flips", &t->flips, "  answers that are not the original's");
    }
    if (!t->has_norm) return;
    print_share(o, "acc_norm, by bytes", &t->acc_norm, "");
    if (!t->has_original) return;
    print_share(o, "acc_norm, original", &t->acc_norm_original, "");
    print_share(o, "acc_norm, difference", &t->acc_norm_diff,
                sw_interval_has_zero(&t->acc_norm_diff) ? plain : "");
    print_share(o, "flips, by bytes", &t->flips_norm, "");
}

static void print_verdict(text_out *o, const sw_report *r)
{
    int64_t n_shown = r->n_findings < FINDINGS_SHOWN ? r->n_findings : FINDINGS_SHOWN;
    sw_err verdict = {0};

    print(o, "\n");
    if (r->note) print(o, "note        %s\n", r->note);
    for (int64_t i = 0; i < n_shown; i++)
        print(o, "%-11s %s\n", r->findings[i].what, r->findings[i].text);
    if (r->n_findings > n_shown)
        print(o, "            and %lld more\n", (long long)(r->n_findings - n_shown));
    for (int64_t i = 0; i < r->n_remarks && i < REMARKS_SHOWN; i++)
        print(o, "remark      %s\n", r->remarks[i]);
    for (int64_t i = 0; i < r->loaders.n; i++) {
        char text[SW_LOAD_TEXT_BYTES];
        print(o, "loaders     %s\n", sw_load_text(text, &r->loaders.at[i]));
    }
    for (int i = 0; i < SW_GATE_COUNT; i++) {
        const sw_gate *gate = &r->gates[i];

        if (!gate->is_set) continue;
        print(o, "gate        %s: have %.6g, limit %.6g, %s\n", sw_gate_name((sw_gate_id)i),
              gate->have, gate->limit,
              gate->has_passed ? "passed" : gate->is_undecided ? "undecided" : "FAILED");
    }
    if (sw_report_verdict(r, &verdict) == SW_OK) print(o, "verdict     passed\n");
    else print(o, "verdict     %s: %s\n", verdict.code == SW_E_NOISY ? "undecided" : "FAILED",
               verdict.text);
}

static void print_speed(text_out *o, const sw_report_speed *speed)
{
    sw_print_buf text = {0};

    if (o->rc != SW_OK || !speed->is_measured) return;
    if ((o->rc = sw_speed_text(&text, speed, o->err)) == SW_OK)
        print(o, "%.*s", (int)text.n_bytes, text.at);
    sw_mem_put(text.at);
}

static void print_experts(text_out *o, const sw_report_experts *x)
{
    if (!x->n_experts) return;
    print(o, "\nexperts     %lld got %lld to %lld of %lld tokens, %lld got none%s\n",
          (long long)x->n_experts, (long long)x->tokens_min, (long long)x->tokens_max,
          (long long)x->n_tokens, (long long)x->n_unreached,
          x->n_unreached ? ", so that their output errors are unknown" : "");
}

sw_code sw_report_text(char **out, const sw_report *report, sw_err *err)
{
    text_out o = {.rc = SW_OK, .err = err};

    print_head(&o, report);
    print_tensors(&o, report);
    print_experts(&o, &report->experts);
    print_eval(&o, &report->eval);
    for (int64_t i = 0; i < report->n_tasks; i++) print_task(&o, &report->tasks[i]);
    print_speed(&o, &report->speed);
    print_verdict(&o, report);
    if (o.rc != SW_OK) {
        sw_mem_put(o.text);
        return o.rc;
    }
    *out = o.text;
    return SW_OK;
}
