/* report.c - see report.h: findings, gates, verdict, and the JSON object. */
#include "verify/base/report.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "verify/base/apart.h"

typedef struct gate_row {
    const char *name, *option;
    bool is_minimum;
    bool is_alone; /* about one model */
    sw_gate_topic topic;
} gate_row;

static const gate_row gate_rows[SW_GATE_COUNT] = {
#define AT_MOST false
#define AT_LEAST true
#define TEXT false, SW_GATE_OF_TEXT
#define TASKS false, SW_GATE_OF_TASKS
#define TASKS_ALONE true, SW_GATE_OF_TASKS
#define SPEED false, SW_GATE_OF_SPEED
#define SPEED_ALONE true, SW_GATE_OF_SPEED
#define SW_GATE(id, key, option, side, about, have, highest, help) {key, "--" option, side, about},
#include "verify/base/gates.def"
#undef SW_GATE
};

const char *sw_gate_name(sw_gate_id id) { return gate_rows[id].name; }

sw_gate_topic sw_gate_is_about(sw_gate_id id, bool *needs_original)
{
    *needs_original = !gate_rows[id].is_alone;
    return gate_rows[id].topic;
}

/* The lowest accuracy of a task; NaN: none was measured. */
static double worst_acc(const sw_report *report)
{
    double acc = (double)NAN;

    for (int64_t i = 0; i < report->n_tasks; i++)
        if (!(report->tasks[i].acc.at >= acc)) acc = report->tasks[i].acc.at;
    return acc;
}

/* The largest share of answers of a task that changed. */
static double most_flips(const sw_report *report)
{
    double flips = (double)NAN;

    for (int64_t i = 0; i < report->n_tasks; i++) {
        const sw_report_task *t = &report->tasks[i];
        if (t->has_original && !(t->flips.at <= flips)) flips = t->flips.at;
    }
    return flips;
}

/* The figures that gates on speed look at; NaN: none was measured. */
static const sw_speed_figure unmeasured = {
    {(double)NAN, (double)NAN, (double)NAN}, (double)NAN, (double)NAN};

static const sw_speed_figure *least_speedup(const sw_report *report)
{
    const sw_speed_cell *c = sw_speed_least_speedup(&report->speed);

    return c ? &c->speedup : &unmeasured;
}

static const sw_speed_figure *least_tokens(const sw_report *report)
{
    const sw_speed_cell *c = sw_speed_least_tokens(&report->speed);

    return c ? &c->tokens_s[SW_SPEED_CHECKPOINT] : &unmeasured;
}

/* Whether scatter leaves it open. The least figure of a noisy run may truly be another batch's, so
 * all that decode are asked; one that fails in spite of the scatter decides. */
static bool is_undecided(const sw_report *report, sw_gate_id id, double limit)
{
    bool is_open = false;

    for (int64_t i = 0; i < report->speed.n_cells; i++) {
        const sw_speed_cell *c = &report->speed.cells[i];
        const sw_speed_figure *f = id == SW_GATE_MIN_SPEEDUP ? &c->speedup
                                                             : &c->tokens_s[SW_SPEED_CHECKPOINT];

        if (c->is_prefill) continue;
        if (sw_speed_is_undecided(c, f, limit)) is_open = true;
        else if (!(f->median.at >= limit)) return false;
    }
    return is_open;
}

void sw_report_judge(sw_report *report)
{
    const sw_report_eval *e = &report->eval;
    bool is_measured = e->is_measured && e->has_original;

#define SW_GATE(id, key, option, side, about, figure, highest, help) \
    report->gates[SW_GATE_##id].have = figure;
#include "verify/base/gates.def"
#undef SW_GATE
    for (int i = 0; i < SW_GATE_COUNT; i++) {
        sw_gate *gate = &report->gates[i];

        if (!is_measured && gate_rows[i].topic == SW_GATE_OF_TEXT) gate->have = (double)NAN;
        /* written so that a NaN fails */
        gate->has_passed = gate_rows[i].is_minimum ? gate->have >= gate->limit
                                                   : gate->have <= gate->limit;
        gate->is_undecided = gate->is_set && gate_rows[i].topic == SW_GATE_OF_SPEED &&
                             is_undecided(report, (sw_gate_id)i, gate->limit);
        if (gate->is_undecided) gate->has_passed = false;
    }
}

/* Appends to a text of SW_ERR_TEXT_BYTES; cuts off what does not fit. */
static void append(char *text, const char *fmt, ...) SW_PRINTF(2, 3);
static void append(char *text, const char *fmt, ...)
{
    size_t at = strlen(text);
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(text + at, SW_ERR_TEXT_BYTES - at, fmt, args);
    va_end(args);
}

/* SW_E_NOISY with the first gate that scatter leaves open. */
static sw_code verdict_of_noise(const sw_report *report, sw_err *err)
{
    double spread = 0;

    (void)sw_speed_noisiest(&report->speed, &spread);
    for (int i = 0; i < SW_GATE_COUNT; i++)
        if (report->gates[i].is_set && report->gates[i].is_undecided)
            return SW_FAIL(err, SW_E_NOISY, "no verdict on %s %.6g: times spread by %.0f %%, more "
                           "than %.0f %%, around %.6g; run it on a quieter machine, or with more "
                           "--rounds and --steps", gate_rows[i].option, report->gates[i].limit,
                           100 * spread, 100 * SW_SPREAD_MAX, report->gates[i].have);
    return SW_OK;
}

sw_code sw_report_verdict(const sw_report *report, sw_err *err)
{
    char text[SW_ERR_TEXT_BYTES] = "";

    for (int i = 0; i < SW_GATE_COUNT; i++) {
        const sw_gate *gate = &report->gates[i];
        sw_apart a;

        if (!gate->is_set || gate->has_passed || gate->is_undecided) continue;
        a = sw_apart_digits(gate->have, gate->limit, 6);
        append(text, "%s%s failed: have %s, want at %s %s", *text ? "; " : "", gate_rows[i].option,
               a.have, gate_rows[i].is_minimum ? "least" : "most", a.limit);
    }
    if (report->n_findings)
        append(text, "%s%lld %s, first: %s: %s", *text ? "; " : "", (long long)report->n_findings,
               report->n_findings == 1 ? "finding" : "findings", report->findings[0].what,
               report->findings[0].text);
    return *text ? SW_FAIL(err, SW_E_GATE, "%s", text) : verdict_of_noise(report, err);
}

sw_code sw_report_find(sw_report *report, const char *what, const char *name, sw_err *err,
                       const char *fmt, ...)
{
    char text[SW_ERR_TEXT_BYTES], *kept_text, *kept_name;
    va_list args;
    sw_code rc;

    if (!report->findings &&
        (rc = SW_ARENA_TAKE(&report->findings, &report->arena, SW_FINDINGS_MAX, err)) != SW_OK)
        return rc;
    if (report->n_findings >= SW_FINDINGS_MAX) {
        report->n_findings++;
        return SW_OK;
    }
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if ((rc = sw_arena_text(&kept_text, &report->arena, text, strlen(text), err)) != SW_OK ||
        (rc = sw_arena_text(&kept_name, &report->arena, name, strlen(name), err)) != SW_OK)
        return rc;
    report->findings[report->n_findings++] = (sw_finding){what, kept_name, kept_text};
    return SW_OK;
}

sw_code sw_report_remark(sw_report *report, sw_err *err, const char *fmt, ...)
{
    char text[SW_ERR_TEXT_BYTES], *kept;
    va_list args;
    sw_code rc;

    if (!report->remarks &&
        (rc = SW_ARENA_TAKE(&report->remarks, &report->arena, SW_REMARKS_MAX, err)) != SW_OK)
        return rc;
    if (report->n_remarks++ >= SW_REMARKS_MAX) return SW_OK;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if ((rc = sw_arena_text(&kept, &report->arena, text, strlen(text), err)) != SW_OK) return rc;
    report->remarks[report->n_remarks - 1] = kept;
    return SW_OK;
}

void sw_report_free(sw_report *report)
{
    sw_loaders_free(&report->loaders);
    sw_arena_free(&report->arena);
    memset(report, 0, sizeof *report);
}

/* JSON building: every add is remembered in one flag, so that a failed one is seen at the end.
 * Numbers that JSON cannot say (NaN, infinity) become null. */
typedef struct json_out {
    cJSON *at;
    bool ok;
} json_out;

static void put_text(json_out *o, const char *key, const char *value)
{
    if (!(value ? cJSON_AddStringToObject(o->at, key, value) : cJSON_AddNullToObject(o->at, key)))
        o->ok = false;
}

static void put_num(json_out *o, const char *key, double value)
{
    if (!(isfinite(value) ? cJSON_AddNumberToObject(o->at, key, value)
                          : cJSON_AddNullToObject(o->at, key)))
        o->ok = false;
}

/* Not measured: null. */
static void put_err(json_out *o, const char *key, double value)
{
    put_num(o, key, value < 0 ? (double)NAN : value);
}

static void put_bool(json_out *o, const char *key, bool value)
{
    if (!cJSON_AddBoolToObject(o->at, key, value)) o->ok = false;
}

static json_out sub_object(json_out *o, const char *key)
{
    json_out sub = {cJSON_AddObjectToObject(o->at, key), o->ok};

    if (!sub.at) o->ok = sub.ok = false;
    return sub;
}

static json_out item_of(json_out *o, cJSON *array)
{
    json_out item = {cJSON_CreateObject(), o->ok};

    if (item.at && !cJSON_AddItemToArray(array, item.at)) {
        cJSON_Delete(item.at);
        item.at = NULL;
    }
    if (!item.at) o->ok = item.ok = false;
    return item;
}

static void put_interval(json_out *o, const char *key, const sw_interval *value)
{
    json_out i = sub_object(o, key);

    put_num(&i, "value", value->at);
    put_num(&i, "low", value->low);
    put_num(&i, "high", value->high);
    o->ok = o->ok && i.ok;
}

static void put_files(json_out *o, const sw_report *r)
{
    cJSON *array = cJSON_AddArrayToObject(o->at, "inputs");

    if (!array) o->ok = false;
    for (int64_t i = 0; o->ok && i < r->n_files; i++) {
        json_out f = item_of(o, array);

        put_text(&f, "role", r->files[i].role);
        put_text(&f, "path", r->files[i].path);
        put_num(&f, "bytes", (double)r->files[i].size_bytes);
        put_text(&f, "sha256", r->files[i].sha256);
        o->ok = o->ok && f.ok;
    }
}

static void put_tensors(json_out *o, const sw_report *r)
{
    cJSON *array = cJSON_AddArrayToObject(o->at, "tensors");

    if (!array) o->ok = false;
    for (int64_t i = 0; o->ok && i < r->n_tensors; i++) {
        const sw_report_tensor *t = &r->tensors[i];
        json_out j = item_of(o, array);

        put_text(&j, "name", t->name);
        put_num(&j, "n_out", (double)t->n_out);
        put_num(&j, "k_in", (double)t->k_in);
        put_num(&j, "bits", t->bits);
        put_num(&j, "group_size", t->group_elems ? (double)t->group_elems : -1);
        put_bool(&j, "symmetric", t->is_symmetric);
        put_err(&j, "scale_min", t->scale_min);
        put_err(&j, "scale_max", t->scale_max);
        put_err(&j, "weight_error", t->weight_err);
        put_err(&j, "weight_error_bound", t->weight_bound);
        put_err(&j, "output_error", t->output_err);
        put_num(&j, "cosine", t->weight_err < 0 ? (double)NAN : t->cosine);
        put_err(&j, "error_over_rounding", t->step_rms);
        put_err(&j, "worst_group_misfit", t->worst_cell);
        put_err(&j, "nearest_code_share", t->rounded);
        o->ok = o->ok && j.ok;
    }
}

static void put_findings(json_out *o, const sw_report *r)
{
    cJSON *array = cJSON_AddArrayToObject(o->at, "findings");
    int64_t n_kept = r->n_findings < SW_FINDINGS_MAX ? r->n_findings : SW_FINDINGS_MAX;

    if (!array) o->ok = false;
    for (int64_t i = 0; o->ok && i < n_kept; i++) {
        json_out f = item_of(o, array);

        put_text(&f, "what", r->findings[i].what);
        put_text(&f, "name", r->findings[i].name);
        put_text(&f, "text", r->findings[i].text);
        o->ok = o->ok && f.ok;
    }
}

static void put_remarks(json_out *o, const sw_report *r)
{
    cJSON *array = cJSON_AddArrayToObject(o->at, "remarks");

    if (!array) o->ok = false;
    for (int64_t i = 0; o->ok && i < r->n_remarks && i < SW_REMARKS_MAX; i++) {
        cJSON *text = cJSON_CreateString(r->remarks[i]);

        if (text && cJSON_AddItemToArray(array, text)) continue;
        cJSON_Delete(text);
        o->ok = false;
    }
}

static void put_loaders(json_out *o, const sw_report *r)
{
    if (o->ok) o->ok = sw_loaders_json(o->at, &r->loaders);
}

static void put_coverage(json_out *o, const sw_report_coverage *c)
{
    json_out j;

    if (!c->is_measured) {
        if (!cJSON_AddNullToObject(o->at, "coverage")) o->ok = false;
        return;
    }
    j = sub_object(o, "coverage");
    put_num(&j, "original_tensors", (double)c->n_original);
    put_num(&j, "identical", (double)c->n_identical);
    put_num(&j, "quantized", (double)c->n_quantized);
    put_num(&j, "rescaled", (double)c->n_rescaled);
    if (c->n_rounded) put_num(&j, "rounded", (double)c->n_rounded);
    put_num(&j, "missing", (double)c->n_missing);
    put_num(&j, "differing", (double)c->n_differing);
    put_num(&j, "unexpected", (double)c->n_unexpected);
    put_num(&j, "original_bytes", (double)c->original_bytes);
    put_num(&j, "identical_bytes", (double)c->identical_bytes);
    put_num(&j, "checkpoint_bytes", (double)c->checkpoint_bytes);
    o->ok = o->ok && j.ok;
}

static void put_gap(json_out *o, const sw_report_gap *gap)
{
    json_out j;

    if (!gap->is_measured) {
        if (!cJSON_AddNullToObject(o->at, "kernel_gap")) o->ok = false;
        return;
    }
    j = sub_object(o, "kernel_gap");
    put_num(&j, "windows", (double)gap->n_windows);
    put_num(&j, "nll_kernel", gap->nll_kernel);
    put_num(&j, "nll_dequantized", gap->nll_dequantized);
    put_num(&j, "relative_logits_error", gap->logits_err);
    put_num(&j, "kl_mean", gap->kl);
    o->ok = o->ok && j.ok;
}

static void put_against(json_out *o, const sw_report_eval *e)
{
    put_interval(o, "nll_original", &e->nll_original);
    put_interval(o, "ppl_original", &e->ppl_original);
    put_interval(o, "nll_difference", &e->nll_diff);
    put_interval(o, "ppl_ratio", &e->ppl_ratio);
    put_bool(o, "difference_is_significant", e->is_significant);
    put_interval(o, "kl_mean", &e->kl);
    put_num(o, "kl_p99", e->kl_p99);
    put_num(o, "kl_max", e->kl_max);
    if (e->is_probed) {
        put_num(o, "kl_of_noise", e->noise_kl);
        put_num(o, "noise", e->noise);
    }
#define SW_METRIC(id, field, key, line, shown, reads) put_interval(o, key, &e->field);
#include "verify/base/metrics.def"
#undef SW_METRIC
}

static void put_linears(json_out *o, const sw_device_lm_linears *l)
{
    json_out j = sub_object(o, "device_linears");

    put_num(&j, "as_codes", (double)l->n_coded);
    put_num(&j, "decoded", (double)l->n_decoded);
    put_num(&j, "decoded_with_rounded_inputs", (double)l->n_rounded);
    o->ok = o->ok && j.ok;
}

static void put_eval(json_out *o, const sw_report_eval *e)
{
    json_out j, b;

    if (!e->is_measured) {
        if (!cJSON_AddNullToObject(o->at, "evaluation")) o->ok = false;
        return;
    }
    j = sub_object(o, "evaluation");
    put_num(&j, "tokens", (double)e->n_tokens);
    if (e->unspelled.n && !sw_unspelled_json(j.at, &e->unspelled, e->unspelled_in)) j.ok = false;
    put_num(&j, "window", (double)e->window);
    put_num(&j, "windows", (double)e->n_windows);
    put_num(&j, "predictions", (double)e->n_predictions);
    put_bool(&j, "bos", e->has_bos);
    put_text(&j, "device", e->device[0] ? e->device : "cpu");
    if (e->device[0]) put_linears(&j, &e->linears);
    b = sub_object(&j, "bootstrap");
    put_num(&b, "seed", (double)e->bootstrap.seed);
    put_num(&b, "samples", (double)e->bootstrap.n_samples);
    put_num(&b, "level", e->bootstrap.level);
    put_interval(&j, "nll", &e->nll);
    put_interval(&j, "ppl", &e->ppl);
    if (e->has_original) put_against(&j, e);
    put_gap(&j, &e->gap);
    o->ok = o->ok && j.ok && b.ok;
}

static void put_task(json_out *o, const sw_report_task *t)
{
    put_text(o, "name", t->name);
    put_text(o, "kind", t->kind);
    put_num(o, "items", (double)t->n_items);
    put_num(o, "cut", (double)t->n_cut);
    put_interval(o, "acc", &t->acc);
    if (t->has_norm) put_interval(o, "acc_norm", &t->acc_norm);
    if (!t->has_original) return;
    put_interval(o, "acc_original", &t->acc_original);
    put_interval(o, "acc_difference", &t->acc_diff);
    put_interval(o, "flips", &t->flips);
    if (!t->has_norm) return;
    put_interval(o, "acc_norm_original", &t->acc_norm_original);
    put_interval(o, "acc_norm_difference", &t->acc_norm_diff);
    put_interval(o, "flips_norm", &t->flips_norm);
}

static void put_tasks(json_out *o, const sw_report *r)
{
    cJSON *array = r->n_tasks ? cJSON_AddArrayToObject(o->at, "tasks") : NULL;

    if (r->n_tasks && !array) o->ok = false;
    for (int64_t i = 0; o->ok && i < r->n_tasks; i++) {
        json_out t = item_of(o, array);

        put_task(&t, &r->tasks[i]);
        o->ok = o->ok && t.ok;
    }
}

static void put_experts(json_out *o, const sw_report_experts *x)
{
    json_out j;

    if (!x->n_experts) return;
    j = sub_object(o, "experts");
    put_num(&j, "tokens", (double)x->n_tokens);
    put_num(&j, "experts", (double)x->n_experts);
    put_num(&j, "unreached", (double)x->n_unreached);
    put_num(&j, "tokens_min", (double)x->tokens_min);
    put_num(&j, "tokens_max", (double)x->tokens_max);
    o->ok = o->ok && j.ok;
}

static void put_gates(json_out *o, const sw_report *r)
{
    json_out gates = sub_object(o, "gates");

    for (int i = 0; gates.ok && i < SW_GATE_COUNT; i++) {
        json_out g;

        if (!r->gates[i].is_set) continue;
        g = sub_object(&gates, gate_rows[i].name);
        put_num(&g, "limit", r->gates[i].limit);
        put_num(&g, "have", r->gates[i].have);
        if (!r->gates[i].is_undecided)
            put_bool(&g, "passed", r->gates[i].has_passed);
        else if (!cJSON_AddNullToObject(g.at, "passed"))
            g.ok = false;
        gates.ok = gates.ok && g.ok;
    }
    o->ok = o->ok && gates.ok;
}

static void put_verdict(json_out *o, const sw_report *report)
{
    sw_err verdict = {0};
    const sw_code code = sw_report_verdict(report, &verdict);

    put_text(o, "verdict", code == SW_OK        ? "passed"
                           : code == SW_E_NOISY ? "undecided"
                                                : "failed");
    put_text(o, "reason", code == SW_OK ? NULL : verdict.text);
}

sw_code sw_report_gates_json(cJSON *object, const sw_report *report, sw_err *err)
{
    json_out o = {object, true};

    put_verdict(&o, report);
    put_gates(&o, report);
    return o.ok ? SW_OK : SW_FAIL(err, SW_E_NOMEM, "no memory for the report");
}

sw_code sw_report_json(cJSON **out, const sw_report *report, sw_err *err)
{
    json_out o = {cJSON_CreateObject(), true};

    if (!o.at) return SW_FAIL(err, SW_E_NOMEM, "no memory for the report");
    put_num(&o, "report_version", SW_REPORT_VERSION);
    put_text(&o, "tool", "swage " SW_VERSION);
    put_verdict(&o, report);
    put_text(&o, "checkpoint", report->checkpoint_dir);
    put_text(&o, "original", report->original_dir);
    put_text(&o, "architecture", report->architecture);
    put_text(&o, "format", report->dialect);
    put_text(&o, "scheme", report->scheme);
    put_text(&o, "note", report->note);
    put_num(&o, "seconds", report->seconds);
    put_gates(&o, report);
    put_num(&o, "n_findings", (double)report->n_findings);
    put_findings(&o, report);
    put_remarks(&o, report);
    put_loaders(&o, report);
    put_coverage(&o, &report->coverage);
    put_eval(&o, &report->eval);
    put_tasks(&o, report);
    if (o.ok && sw_speed_json(o.at, &report->speed, NULL) != SW_OK) o.ok = false;
    put_experts(&o, &report->experts);
    put_tensors(&o, report);
    put_files(&o, report);
    if (!o.ok) {
        cJSON_Delete(o.at);
        return SW_FAIL(err, SW_E_NOMEM, "no memory for the report");
    }
    *out = o.at;
    return SW_OK;
}
