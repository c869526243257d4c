/* plan_text.c - a plan as a table, and as JSON. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/cli/family.h"
#include "tools/plan/plan_device.h"
#include "tools/recipe/left_parts.h"
#include "tools/recipe/linear_counts.h"
#include "tools/terminal/table.h"
#include "tools/terminal/terminal.h"

static const char *spec_text(char out[SW_SPEC_TEXT_BYTES], const sw_qspec *spec)
{
    return spec ? sw_qspec_text(out, spec) : "not quantized";
}

static bool class_row(const void *self, int64_t i, sw_cells out)
{
    const sw_plan *plan = self;
    const sw_plan_class *c = &plan->classes[i];
    char spec[SW_SPEC_TEXT_BYTES];

    if (i >= plan->n_classes) return false;
    (void)snprintf(out[0], SW_CELL_BYTES, "%s", c->slot);
    (void)snprintf(out[1], SW_CELL_BYTES, "%lld", (long long)c->n_linears);
    (void)snprintf(out[2], SW_CELL_BYTES, "[%lld, %lld]", (long long)c->n_out,
                   (long long)c->k_in);
    (void)snprintf(out[3], SW_CELL_BYTES, "%s", spec_text(spec, c->spec));
    sw_term_bytes(out[4], c->bytes_before);
    sw_term_bytes(out[5], c->bytes_after);
    (void)snprintf(out[6], SW_CELL_BYTES, "%s", c->kernel_1);
    (void)snprintf(out[7], SW_CELL_BYTES, "%s", c->kernel_64);
    return true;
}

static void print_classes(const sw_plan *plan)
{
    const sw_table table = {
        .headings = {"linear", "count", "[out, in]", "becomes", "before", "after",
                     "kernel, 1 token", "kernel, 64 tokens"},
        .kinds = {SW_CELL_NAME, SW_CELL_NUMBER, SW_CELL_NUMBER, SW_CELL_TEXT, SW_CELL_NUMBER,
                  SW_CELL_NUMBER, SW_CELL_NAME, SW_CELL_NAME},
        .n_columns = 8, .self = plan, .row = class_row};

    sw_table_print(stdout, &table, sw_terminal_columns(STDOUT_FILENO));
}

static void print_speed(const sw_plan_speed *s)
{
    if (s->after_s <= 0) return;
    (void)printf("decoding    %s: %.0f tokens/s at most before, %.0f after (%.2f times), %s\n",
                 s->name, 1 / s->before_s, 1 / s->after_s, s->before_s / s->after_s,
                 s->is_measured ? "by measured kernels" : "by bandwidth alone");
    if (s->slow[0]) (void)printf("warning     %s\n", s->slow);
}

static void print_eta(double seconds)
{
    if (seconds < 90)
        (void)printf("time        about %.0f s on this machine with its present load\n", seconds);
    else
        (void)printf("time        about %.0f min on this machine with its present load\n",
                     seconds / 60);
}

static void print_ranks(const sw_plan *plan, const sw_quantize_job *job)
{
    char traffic[16], all[16];

    if (job->o->common.ranks < 2) return;
    sw_term_bytes(traffic, plan->needs.forecast.traffic_bytes);
    sw_term_bytes(all, sw_plan_host_bytes(plan, job));
    (void)printf("ranks       %d: memory and time are those of one, and all on one host take %s; "
                 "%s go in and out of the busiest, which takes time besides\n",
                 (int)job->o->common.ranks, all, traffic);
}

/* The whole output; and of a size to be kept, the least that it can be set to. */
static void print_files(const sw_plan *plan, const sw_quantize_job *job)
{
    if (plan->files_bytes)
        (void)printf("files       %llu bytes, and at most %llu of manifest and card\n",
                     (unsigned long long)plan->files_bytes, (unsigned long long)plan->papers_bytes);
    if (job->o->target_bytes)
        (void)printf("target      at most %llu bytes of files; %llu at least, with the smallest "
                     "widths\n", (unsigned long long)job->o->target_bytes,
                     (unsigned long long)job->least_bytes);
}

void sw_plan_print(const sw_plan *plan, const sw_quantize_job *job)
{
    char before[16], after[16], copied[16], peak[16], spilled[16], disk[16];
    const sw_model *m = &job->source.model;
    char family[SW_FAMILY_TEXT_BYTES];
    sw_linear_counts counts;
    sw_left_parts left;

    if (m->is_like || m->found)
        (void)printf("model_type  %s\n", sw_family_text(family, m, job->source.config));
    sw_term_bytes(before, plan->before_bytes);
    sw_term_bytes(after, plan->after_bytes);
    sw_term_bytes(copied, plan->copied_bytes);
    sw_term_bytes(peak, plan->needs.peak_bytes);
    sw_term_bytes(spilled, plan->needs.peak_spilled_bytes);
    sw_term_bytes(disk, plan->disk_bytes);
    print_classes(plan);
    (void)printf("copied      %lld tensors, %s\n", (long long)plan->n_copied, copied);
    sw_left_parts_find(&left, &job->source);
    sw_left_parts_print(&left);
    sw_linear_counts_find(&counts, &job->source, &job->selection);
    sw_linear_counts_print(&counts);
    (void)printf("tensors     %s -> %s\n", before, after);
    print_files(plan, job);
    if (plan->needs.peak_spilled_bytes < plan->needs.peak_bytes)
        (void)printf("memory      %s at the peak; %s with activations on disk (--memory)\n", peak,
                     spilled);
    else
        (void)printf("memory      %s at the peak\n", peak);
    (void)printf("disk        %s\n", disk);
    if (!job->device_bytes) print_eta(plan->seconds);
    sw_plan_device_print(plan, job);
    print_ranks(plan, job);
    for (int i = 0; i < plan->n_tp; i++)
        (void)printf("tp %-8lld %s%s\n", (long long)plan->tp[i].degree,
                     plan->tp[i].is_legal ? "legal" : "no: ", plan->tp[i].why);
    /* else preparing has refused it */
    if (!m->found) (void)printf("fused       linears that run as one have the same scheme\n");
    print_speed(&plan->device);
    print_speed(&plan->here);
    if (sw_quantize_chooser(job->o))
        (void)printf("note        %s decides by measuring; this plan shows the run without it\n",
                     sw_quantize_chooser(job->o));
}

static bool number(cJSON *o, const char *key, double v)
{
    return cJSON_AddNumberToObject(o, key, v) != NULL;
}

static bool text(cJSON *o, const char *key, const char *v)
{
    return cJSON_AddStringToObject(o, key, v) != NULL;
}

static bool add_tensors(cJSON *root, const sw_quantize_job *job)
{
    cJSON *list = cJSON_AddArrayToObject(root, "tensors");
    char spec[SW_SPEC_TEXT_BYTES];

    for (int64_t i = 0; list && i < job->selection.n_linears; i++) {
        const sw_ckpt_linear *l = &job->selection.linears[i];
        double n = (double)l->n_out * (double)l->k_in;
        cJSON *row = cJSON_CreateObject();
        if (!cJSON_AddItemToArray(list, row) || !text(row, "name", l->module_path) ||
            !text(row, "becomes", spec_text(spec, l->spec)) ||
            !number(row, "bytes_before", n * sw_dtype_bits(job->source.model.dtype) / 8) ||
            !number(row, "bytes_after",
                    sw_plan_linear_bytes(job->dialect, l->spec, l->n_out, l->k_in)))
            return false;
    }
    return list != NULL;
}

static bool add_classes(cJSON *root, const sw_plan *plan)
{
    cJSON *list = cJSON_AddArrayToObject(root, "classes");
    char spec[SW_SPEC_TEXT_BYTES];

    for (int i = 0; list && i < plan->n_classes; i++) {
        const sw_plan_class *c = &plan->classes[i];
        cJSON *row = cJSON_CreateObject();
        if (!cJSON_AddItemToArray(list, row) || !text(row, "linear", c->slot) ||
            !number(row, "count", (double)c->n_linears) ||
            !number(row, "n_out", (double)c->n_out) ||
            !number(row, "k_in", (double)c->k_in) ||
            !text(row, "becomes", spec_text(spec, c->spec)) ||
            !number(row, "bytes_before", c->bytes_before) ||
            !number(row, "bytes_after", c->bytes_after) || !text(row, "kernel_1", c->kernel_1) ||
            !text(row, "kernel_64", c->kernel_64))
            return false;
    }
    return list != NULL;
}

static bool add_tp(cJSON *root, const sw_plan *plan)
{
    cJSON *list = cJSON_AddArrayToObject(root, "tensor_parallel");

    for (int i = 0; list && i < plan->n_tp; i++) {
        cJSON *row = cJSON_CreateObject();
        if (!cJSON_AddItemToArray(list, row) ||
            !number(row, "degree", (double)plan->tp[i].degree) ||
            !cJSON_AddBoolToObject(row, "legal", plan->tp[i].is_legal) ||
            (plan->tp[i].why[0] && !text(row, "why", plan->tp[i].why)))
            return false;
    }
    return list != NULL;
}

static bool add_speed(cJSON *root, const char *key, const sw_plan_speed *s)
{
    cJSON *o = cJSON_AddObjectToObject(root, key);

    return o && text(o, "device", s->name) && number(o, "before_s", s->before_s) &&
           number(o, "after_s", s->after_s) &&
           cJSON_AddBoolToObject(o, "measured", s->is_measured) &&
           (!s->slow[0] || text(o, "warning", s->slow));
}

static bool add_ranks(cJSON *root, const sw_plan *plan, const sw_quantize_job *job)
{
    if (job->o->common.ranks < 2) return true;
    return number(root, "ranks", (double)job->o->common.ranks) &&
           number(root, "host_bytes", sw_plan_host_bytes(plan, job)) &&
           number(root, "rank_traffic_bytes", plan->needs.forecast.traffic_bytes);
}

sw_code sw_plan_add_json(cJSON *root, const sw_plan *plan, const sw_quantize_job *job, sw_err *err)
{
    bool ok = number(root, "tensor_bytes_before", plan->before_bytes) &&
              number(root, "tensor_bytes_after", plan->after_bytes) &&
              number(root, "copied_bytes", plan->copied_bytes) &&
              number(root, "peak_bytes", plan->needs.peak_bytes) &&
              number(root, "peak_bytes_spilled", plan->needs.peak_spilled_bytes) &&
              number(root, "disk_bytes", plan->disk_bytes) &&
              (!plan->files_bytes || number(root, "files_bytes", (double)plan->files_bytes)) &&
              (!plan->files_bytes || number(root, "papers_bytes", (double)plan->papers_bytes)) &&
              (!job->o->target_bytes ||
               number(root, "least_bytes", (double)job->least_bytes)) &&
              add_ranks(root, plan, job) &&
              (job->device_bytes || number(root, "seconds", plan->seconds)) &&
              add_classes(root, plan) && add_tensors(root, job) && add_tp(root, plan) &&
              (job->source.model.found || (add_speed(root, "decode", &plan->device) &&
                                           (job->device_bytes ||
                                            add_speed(root, "decode_here", &plan->here))));
    sw_linear_counts counts;
    sw_left_parts left;
    sw_code rc;

    if (!ok) return sw_cmd_json_added(NULL, err);
    if ((rc = sw_plan_device_add_json(root, plan, job, err)) != SW_OK) return rc;
    sw_linear_counts_find(&counts, &job->source, &job->selection);
    if ((rc = sw_linear_counts_add_json(root, &counts, err)) != SW_OK ||
        (rc = sw_family_add_json(root, &job->source.model, err)) != SW_OK)
        return rc;
    sw_left_parts_find(&left, &job->source);
    return sw_left_parts_add_json(root, &left, err);
}
