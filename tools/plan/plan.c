/* plan.c - see plan.h. */
#include "tools/plan/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/size.h"
#include "formats/gguf/gguf_model.h"
#include "tools/quantize/output_size.h"

typedef struct planner {
    sw_plan *out;
    const sw_quantize_job *job;
    const sw_plan_options *options;
} planner;

double sw_plan_linear_bytes(const sw_dialect *dialect, const sw_qspec *spec, int64_t n_out,
                            int64_t k_in)
{
    sw_part parts[SW_DIALECT_TENSORS_MAX];
    int n = dialect->declare(parts, spec, n_out, k_in);
    double bytes = 0;

    for (int i = 0; i < n; i++) {
        uint64_t part = 0;
        if (sw_shape_bytes(&part, parts[i].dtype, parts[i].n_dims, parts[i].shape, NULL) == SW_OK)
            bytes += (double)part;
    }
    return bytes;
}

static bool is_same_class(const sw_plan_class *a, const sw_plan_class *b)
{
    return !strcmp(a->slot, b->slot) && a->n_out == b->n_out && a->k_in == b->k_in &&
           a->is_expert == b->is_expert && !a->spec == !b->spec &&
           (!a->spec || sw_qspec_same(a->spec, b->spec));
}

static sw_code add_linear(planner *p, const sw_linear_ref *ref, const char *path, sw_err *err)
{
    const sw_model *m = &p->job->source.model;
    const char *dot = strrchr(path, '.');
    double n_bits = (double)sw_dtype_bits(m->dtype);
    sw_plan_class c = {.site = ref->site, .n_out = ref->n_out, .k_in = ref->k_in, .n_linears = 1,
                       .is_expert = ref->expert >= 0};
    sw_kernel_shape shape;
    char *slot = NULL;
    int i = 0;
    sw_code rc;

    c.slot = dot ? dot + 1 : path;
    c.is_row_cut = sw_slot_is_row_cut(ref->slot);
    c.spec = sw_selection_spec(&p->job->selection, path);
    c.bytes_before = (double)c.n_out * (double)c.k_in * n_bits / 8;
    c.bytes_after = c.spec ? sw_plan_linear_bytes(p->job->dialect, c.spec, c.n_out, c.k_in)
                           : c.bytes_before;
    while (i < p->out->n_classes && !is_same_class(&p->out->classes[i], &c)) i++;
    if (i < p->out->n_classes) {
        p->out->classes[i].n_linears++;
        p->out->classes[i].bytes_before += c.bytes_before;
        p->out->classes[i].bytes_after += c.bytes_after;
        return SW_OK;
    }
    if (i == SW_PLAN_CLASSES_MAX)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "more than %d kinds of linears",
                       SW_PLAN_CLASSES_MAX);
    rc = sw_arena_text(&slot, (sw_arena *)(uintptr_t)&p->job->selection.arena, c.slot,
                       strlen(c.slot), err);
    if (rc != SW_OK) return rc;
    c.slot = slot;
    shape = (sw_kernel_shape){c.spec, m->dtype, c.n_out, c.k_in, p->job->settings.quant.n_threads};
    c.kernel_1 = sw_kernel_name_for(&shape, 1);
    c.kernel_64 = sw_kernel_name_for(&shape, 64);
    p->out->classes[p->out->n_classes++] = c;
    return SW_OK;
}

static sw_code add_layer(planner *p, int64_t layer, sw_err *err)
{
    const sw_model *m = &p->job->source.model;
    int64_t n = sw_model_linears(m, layer, NULL, 0);
    sw_linear_ref *refs = NULL;
    char path[256];
    sw_code rc = SW_MEM_GET(&refs, n, "linears of a block", err);

    if (rc != SW_OK) return rc;
    n = sw_model_linears(m, layer, refs, n);
    for (int64_t i = 0; i < n && rc == SW_OK; i++)
        if (sw_model_slot_path(path, m, layer, refs[i].slot, refs[i].expert))
            rc = add_linear(p, &refs[i], path, err);
    sw_mem_put(refs);
    return rc;
}

/* What tensor t of a quantized source comes to in the output where no linear of the selection takes
 * it, 0 where one does: codes become floats, and their scales go. */
static double kept_bytes(const planner *p, const sw_st_tensor *t)
{
    const sw_checkpoint *source = &p->job->source;
    const char *dot = strrchr(t->name, '.');
    sw_part parts[SW_DIALECT_TENSORS_MAX];
    sw_err ignored = {0};
    char path[256];
    sw_qspec spec;

    if (!dot || (size_t)(dot - t->name) >= sizeof path) return (double)t->view.size_bytes;
    (void)snprintf(path, sizeof path, "%.*s", (int)(dot - t->name), t->name);
    if (sw_selection_has(&p->job->selection, path))
        return strcmp(dot, ".bias") ? 0 : (double)t->view.size_bytes;
    if (source->dialect->is_stacked) /* all experts, or the source is refused */
        return strstr(dot, "_blocks") || strstr(dot, "_scales") ? 0 : (double)t->view.size_bytes;
    if (!sw_checkpoint_is_quantized(source, path) ||
        sw_checkpoint_spec(&spec, source, path, &ignored) != SW_OK || !strcmp(dot, ".bias"))
        return (double)t->view.size_bytes;
    (void)source->dialect->declare(parts, &spec, 64, 64);
    if (strcmp(dot + 1, parts[0].suffix) != 0) return 0;
    return (double)t->view.size_bytes * sw_dtype_bits(source->model.dtype) / spec.num->bits;
}

static void add_kept(sw_plan *out, const planner *p)
{
    const sw_st *st = p->job->source.st;

    out->copied_bytes = 0;
    out->n_copied = 0;
    for (int64_t i = 0; i < sw_st_count(st); i++) {
        const double bytes = kept_bytes(p, sw_st_at(st, i));

        out->copied_bytes += bytes;
        out->n_copied += bytes > 0;
    }
}

static void add_totals(planner *p)
{
    const sw_st *st = p->job->source.st;
    double linears_before = 0, linears_after = 0, selected_after = 0, as_floats = 0;
    sw_plan *out = p->out;

    for (int i = 0; i < out->n_classes; i++) {
        linears_before += out->classes[i].bytes_before;
        linears_after += out->classes[i].bytes_after;
        if (out->classes[i].spec) selected_after += out->classes[i].bytes_after;
    }
    for (int64_t i = 0; i < sw_st_count(st); i++) {
        const sw_st_tensor *t = sw_st_at(st, i);
        const sw_dtype kept = sw_checkpoint_kept_dtype(&p->job->source, p->job->dialect, t);

        out->before_bytes += (double)sw_gguf_stored_bytes(t);
        as_floats += (double)t->view.size_bytes * sw_dtype_bits(kept) /
                     sw_dtype_bits(t->view.dtype);
    }
    out->copied_bytes = as_floats - linears_before;
    out->n_copied = sw_st_count(st);
    for (int i = 0; i < out->n_classes; i++) out->n_copied -= out->classes[i].n_linears;
    if (out->n_copied < 0) out->n_copied = 0; /* experts of one tensor */
    if (p->job->source.dialect && !p->job->source.is_file) {
        add_kept(out, p);
        linears_after = selected_after;
    }
    out->after_bytes = out->copied_bytes + linears_after;
    out->disk_bytes = out->after_bytes + 4e6;
    if (p->job->settings.quant.spill_dir)
        out->disk_bytes += (double)out->needs.forecast.stream_bytes;
}

/* Column-cut linears give each device a share of their outputs, row-cut ones of their inputs;
 * groups and packed words stay whole, and so do heads. */
static bool check_class(sw_plan_tp *tp, const sw_plan_class *c, const sw_model *m)
{
    int64_t d = tp->degree, cut = c->is_row_cut ? c->k_in : c->n_out, share = cut / d;
    int64_t group = c->spec && c->spec->group_elems ? c->spec->group_elems : 1;
    int64_t heads = c->n_out == m->n_kv_heads * m->head_dim ? m->n_kv_heads : m->n_heads;

    if (cut % d)
        (void)snprintf(tp->why, sizeof tp->why, "%s: %lld %s are not divisible by %lld", c->slot,
                       (long long)cut, c->is_row_cut ? "inputs" : "outputs", (long long)d);
    else if (c->site == SW_SITE_ATTN_IN && heads % d && d % heads)
        (void)snprintf(tp->why, sizeof tp->why, "%s: %lld heads on %lld devices", c->slot,
                       (long long)heads, (long long)d);
    else if (c->is_row_cut && share % group)
        (void)snprintf(tp->why, sizeof tp->why, "%s: %lld inputs per device would cut groups "
                       "of %lld", c->slot, (long long)share, (long long)group);
    else if (c->spec && share % SW_TILE_N)
        (void)snprintf(tp->why, sizeof tp->why, "%s: %lld %s per device are not a multiple of "
                       "the %d of a tile", c->slot, (long long)share,
                       c->is_row_cut ? "inputs" : "outputs", SW_TILE_N);
    return !tp->why[0];
}

static sw_code add_tp(planner *p, sw_err *err)
{
    const char *at = p->options->tp ? p->options->tp : "1,2,4,8";

    if (p->job->source.model.found) return SW_OK; /* nobody knows which way engines cut them */
    while (*at) {
        sw_plan_tp *tp = &p->out->tp[p->out->n_tp];
        char *end = NULL;
        long degree = strtol(at, &end, 10);
        if (end == at || degree < 1 || degree > 1024 || (*end && *end != ',') ||
            p->out->n_tp == SW_PLAN_TP_MAX)
            return SW_FAIL(err, SW_E_USAGE,
                           "--tp wants up to %d degrees of 1 to 1024 with commas between, as in "
                           "1,2,4,8; not \"%s\"", SW_PLAN_TP_MAX, p->options->tp);
        tp->degree = degree;
        tp->is_legal = true;
        for (int i = 0; i < p->out->n_classes && tp->is_legal && degree > 1; i++)
            tp->is_legal = check_class(tp, &p->out->classes[i], &p->job->source.model);
        p->out->n_tp++;
        at = *end ? end + 1 : end;
    }
    return SW_OK;
}

static bool is_int4(const sw_qspec *spec)
{
    return spec && spec->num->kind == SW_NUM_INT && spec->num->bits <= 4 &&
           spec->act.scope == SW_ACT_NONE;
}

/* Figures of kernels count only when there are some for every linear: else bandwidth alone, for
 * before and after alike. */
static bool has_figures(const sw_plan *plan, const sw_device_figures *device)
{
    bool all = device && device->int4.gb_s > 0;

    for (int i = 0; i < plan->n_classes; i++)
        if (plan->classes[i].spec && !is_int4(plan->classes[i].spec)) all = false;
    return all;
}

/* Each linear is a product of its own. Those of a layer's routed experts are one grouped product,
 * which reads the experts that a token uses. */
static void add_speed(planner *p, sw_plan_speed *speed, const char *name, double nominal_gb_s,
                      const sw_device_figures *device)
{
    const sw_model *m = &p->job->source.model;
    bool by_kernel = has_figures(p->out, device);

    speed->name = name;
    speed->is_measured = by_kernel;
    for (int i = 0; i < p->out->n_classes; i++) {
        const sw_plan_class *c = &p->out->classes[i];
        double n = (double)c->n_linears, before, after;
        double calls = c->is_expert ? n / (double)m->n_experts : n;
        double linears = c->is_expert ? (double)m->n_experts_used : 1; /* of a call */
        const sw_device_cost *dense = by_kernel ? &device->dense16 : NULL;
        const sw_device_cost *cost = by_kernel && c->spec ? &device->int4 : dense;
        before = sw_device_product_s(dense, nominal_gb_s, linears * c->bytes_before / n);
        after = sw_device_product_s(cost, nominal_gb_s, linears * c->bytes_after / n);
        speed->before_s += calls * before;
        speed->after_s += calls * after;
        if (c->spec && after > 0.9 * before && !speed->slow[0])
            (void)snprintf(speed->slow, sizeof speed->slow,
                           "%s [%lld, %lld]: %.1f us quantized, %.1f us before: dequantization and "
                           "launch cost more than is gained", c->slot, (long long)c->n_out,
                           (long long)c->k_in, 1e6 * after, 1e6 * before);
    }
}

static void add_payoff(planner *p)
{
    const sw_device_figures *device = sw_device_figures_find(p->options->decodes_on);

    if (p->job->source.model.found) return; /* nor what a token runs through */
    if (p->options->bandwidth > 0)
        add_speed(p, &p->out->device, "bandwidth", p->options->bandwidth, NULL);
    else
        add_speed(p, &p->out->device, device->name, device->nominal_gb_s, device);
    if (p->out->rates.read_bytes_s > 0)
        add_speed(p, &p->out->here, "this machine", p->out->rates.read_bytes_s / 1e9, NULL);
}

static int64_t widest(const sw_plan *plan)
{
    int64_t k = 64;

    for (int i = 0; i < plan->n_classes; i++)
        if (plan->classes[i].spec) k = sw_max_i64(k, plan->classes[i].k_in);
    return k;
}

sw_code sw_plan_new(sw_plan *out, const sw_quantize_job *job, const sw_plan_options *options,
                    sw_err *err)
{
    planner p = {out, job, options};
    sw_code rc = SW_OK;

    memset(out, 0, sizeof *out);
    for (int64_t layer = 0; layer < job->source.model.n_layers + job->selection.has_head &&
                            rc == SW_OK; layer++)
        rc = add_layer(&p, layer, err);
    if (rc != SW_OK || (rc = add_tp(&p, err)) != SW_OK) return rc;
    rc = sw_quantize_job_needs(&out->needs, job, err);
    if (rc != SW_OK) return rc;
    add_totals(&p);
    if (!job->source.is_file &&
        ((rc = sw_output_size_rest(&out->files_bytes, job, err)) != SW_OK ||
         (rc = sw_output_size_papers(&out->papers_bytes, job, err)) != SW_OK))
        return rc;
    if (!job->device_bytes) /* these processors are not what such a run waits for */
        rc = sw_rates_measure(&out->rates, &job->settings.quant, widest(out), err);
    if (rc == SW_OK && !job->device_bytes)
        out->seconds = sw_rates_seconds(&out->rates, &out->needs.forecast, out->before_bytes,
                                        out->after_bytes);
    if (rc == SW_OK) add_payoff(&p);
    return rc;
}
