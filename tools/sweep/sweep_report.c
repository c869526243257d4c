/* sweep_report.c - the telling half of sweep_job.h: sweep.json, the page, the table. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "formats/file/config_text.h"
#include "formats/io/file.h"
#include "formats/io/watch.h"
#include "tools/device/ranks.h"
#include "tools/report/report.h"
#include "tools/sweep/sweep_job.h"

static bool add_interval(cJSON *row, const char *key, const sw_sweep_interval *v)
{
    cJSON *o = cJSON_AddObjectToObject(row, key);

    return o && cJSON_AddNumberToObject(o, "value", v->at) &&
           cJSON_AddNumberToObject(o, "low", v->low) && cJSON_AddNumberToObject(o, "high", v->high);
}

static bool add_figures(cJSON *to, const sw_sweep_row *row, const sw_sweep_point *point)
{
    return cJSON_AddNumberToObject(to, "bytes", (double)point->bytes) &&
           cJSON_AddNumberToObject(to, "bits_per_weight", row->bits_per_weight) &&
           add_interval(to, "kl_mean", &row->kl) &&
           cJSON_AddNumberToObject(to, "ppl_ratio", row->ppl_ratio) &&
           cJSON_AddNumberToObject(to, "top1_agreement", row->top1) &&
           cJSON_AddBoolToObject(to, "on_front", point->is_on_front) &&
           cJSON_AddStringToObject(to, "measured_of", row->key);
}

static bool add_failure(cJSON *to, const sw_err *failure)
{
    cJSON *error = cJSON_AddObjectToObject(to, "error");

    return error && cJSON_AddNumberToObject(error, "exit", failure->code) &&
           cJSON_AddStringToObject(error, "message", failure->text);
}

static bool add_point(cJSON *list, const sw_sweep_row *row, const sw_sweep_point *point)
{
    cJSON *to = cJSON_CreateObject();
    bool ok = to && cJSON_AddItemToArray(list, to);

    if (!ok) cJSON_Delete(to);
    ok = ok && cJSON_AddStringToObject(to, "name", row->job->name) &&
         cJSON_AddStringToObject(to, "scheme", row->job->o->scheme) &&
         cJSON_AddStringToObject(to, "method", row->job->o->method) &&
         cJSON_AddStringToObject(to, "format", row->job->o->format);
    if (ok && row->is_measured) ok = add_figures(to, row, point);
    if (ok && row->failure.code != SW_OK) ok = add_failure(to, &row->failure);
    return ok;
}

static bool add_choice(cJSON *object, const sw_sweep_job *s)
{
    bool ok = true;

    if (s->o->max_kl >= 0) ok = cJSON_AddNumberToObject(object, "max_kl", s->o->max_kl) != NULL;
    if (ok && s->o->max_bytes)
        ok = cJSON_AddNumberToObject(object, "max_bytes", (double)s->o->max_bytes) != NULL;
    if (!ok) return false;
    return s->chosen < 0 ? cJSON_AddNullToObject(object, "chosen") != NULL
                         : cJSON_AddStringToObject(object, "chosen",
                                                   s->rows[s->chosen].job->name) != NULL;
}

sw_code sw_sweep_json(cJSON **out, const sw_sweep_job *s, sw_err *err)
{
    cJSON *object = NULL, *list;
    sw_code rc = sw_cmd_json_new(&object, "sweep", err);
    bool ok;

    if (rc != SW_OK) return rc;
    list = cJSON_AddArrayToObject(object, "points");
    ok = list != NULL;
    for (int i = 0; i < s->many.n && ok; i++)
        if (s->rows[i].job) ok = add_point(list, &s->rows[i], &s->points[i]);
    if (ok && add_choice(object, s)) {
        *out = object;
        return SW_OK;
    }
    cJSON_Delete(object);
    return sw_cmd_json_added(NULL, err);
}

sw_code sw_sweep_write(const sw_sweep_job *s, sw_err *err)
{
    char path[SW_PATH_BYTES], *text = NULL;
    cJSON *object = NULL;
    sw_code rc = sw_path_join(path, s->o->quantize.out, "sweep.json", err);

    if (rc == SW_OK) rc = sw_sweep_json(&object, s, err);
    if (rc == SW_OK) rc = sw_json_pretty(&text, object, 0, err);
    if (rc == SW_OK) rc = sw_file_put_new(path, text, strlen(text), true, err);
    sw_mem_put(text);
    cJSON_Delete(object);
    return rc;
}

sw_code sw_sweep_page(const sw_sweep_job *s, sw_err *err)
{
    const char *dirs[SW_REPORT_CHECKPOINTS_MAX], *results[SW_REPORT_CHECKPOINTS_MAX];
    char path[SW_PATH_BYTES];
    sw_html_request page = {.out = path, .may_replace = true, .checkpoints = dirs,
                            .results = results,
                            .n_threads = sw_ranks_threads_alone(
                                s->base.team, (int)s->o->quantize.common.threads),
                            .progress = s->base.progress};
    sw_code rc = sw_path_join(path, s->o->quantize.out, "sweep.html", err);

    for (int i = 0; i < s->many.n && page.n_checkpoints < SW_REPORT_CHECKPOINTS_MAX; i++) {
        if (!s->rows[i].is_measured) continue;
        results[page.n_results++] = s->rows[i].result_path;
        dirs[page.n_checkpoints++] = s->rows[i].job->o->out;
    }
    if (rc != SW_OK || !page.n_checkpoints) return rc;
    return sw_html_report(&page, err);
}

static void print_row(const sw_sweep_job *s, int i)
{
    const sw_sweep_row *row = &s->rows[i];
    char size[16];

    if (!row->is_measured) {
        (void)printf("%-30s %s\n", row->job->name, row->failure.text);
        return;
    }
    sw_term_bytes(size, (double)s->points[i].bytes);
    (void)printf("%-30s %9s %7.3f %9.5f [%.5f, %.5f] %9.4f %7.2f%%%s%s\n", row->job->name, size,
                 row->bits_per_weight, row->kl.at, row->kl.low, row->kl.high, row->ppl_ratio,
                 100 * row->top1, s->points[i].is_on_front ? "  front" : "",
                 row->failure.code != SW_OK ? "  not sound" : "");
    if (row->failure.code != SW_OK) (void)printf("    %s\n", row->failure.text);
}

static void print_choice(const sw_sweep_job *s)
{
    char size[16];

    if (s->chosen < 0 || (s->o->max_kl < 0 && !s->o->max_bytes)) return;
    sw_term_bytes(size, (double)s->points[s->chosen].bytes);
    (void)printf("\nchosen      %s: %s, %s with a KL of %.5f nats per token\n",
                 s->rows[s->chosen].job->o->out,
                 s->o->max_kl >= 0 ? "the smallest that keeps the limits"
                                   : "the closest to the original within the size",
                 size, s->points[s->chosen].kl);
}

void sw_sweep_print(const sw_sweep_job *s)
{
    (void)printf("%-30s %9s %7s %9s %-18s %9s %8s\n", "checkpoint", "size", "bits", "KL",
                 "95 % interval", "ppl ratio", "top-1");
    for (int i = 0; i < s->many.n; i++) print_row(s, i);
    print_choice(s);
    (void)printf("\npage        %s/sweep.html\n", s->o->quantize.out);
}

sw_code sw_sweep_keep_best(const sw_sweep_job *s, sw_err *err)
{
    sw_code rc = SW_OK;

    for (int i = 0; i < s->many.n && rc == SW_OK; i++) {
        const sw_sweep_row *row = &s->rows[i];
        if (i == s->chosen || !row->is_measured) continue;
        sw_watch_forget(row->job->o->out);
        if ((rc = sw_out_dir_remove(row->job->o->out, err)) != SW_OK) break;
        (void)unlink(row->result_path);
        sw_progress_note(s->base.progress, "%s is removed", row->job->o->out);
    }
    return rc;
}
