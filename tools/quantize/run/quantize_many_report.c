/* quantize_many_report.c - see quantize_many_report.h. */
#include "tools/quantize/run/quantize_many_report.h"

#include <stdio.h>

#include "tools/quantize/run/quantize_output.h"
#include "tools/recipe/left_parts.h"

typedef sw_quantize_job job;

/* SW_E_GATE is a remark on an output that is there. */
static const char *state_of(const job *j)
{
    if (j->is_finished) return "finished before";
    return j->failure.code == SW_OK || j->failure.code == SW_E_GATE ? "made" : "failed";
}

static bool is_made(const job *j)
{
    return !j->is_finished && (j->failure.code == SW_OK || j->failure.code == SW_E_GATE);
}

static sw_code print_one(sw_run *run, const job *j, sw_err *err)
{
    sw_quantize_outcome outcome;
    sw_code rc;

    if (!is_made(j)) {
        (void)printf("output      %s: %s%s%s\n", j->o->out, state_of(j),
                     j->failure.code != SW_OK ? ": " : "", j->failure.text);
        return SW_OK;
    }
    if ((rc = sw_quantize_output_outcome(&outcome, j, err)) != SW_OK) return rc;
    return sw_quantize_report_print(run, &j->report, &j->settings, &outcome, err);
}

static sw_code print_text(sw_run *run, const sw_quantize_many *many, sw_err *err)
{
    sw_code rc = SW_OK;

    for (int i = 0; i < many->n && rc == SW_OK; i++) {
        if (i) (void)putchar('\n');
        rc = print_one(run, many->jobs[i], err);
    }
    if (rc == SW_OK && is_made(many->jobs[0])) sw_left_files_print(&many->jobs[0]->source);
    run->has_result = true;
    return rc;
}

static sw_code add_made(cJSON *row, const job *j, sw_err *err)
{
    sw_quantize_outcome outcome;
    cJSON *result = NULL;
    sw_code rc = sw_quantize_output_outcome(&outcome, j, err);

    if (rc == SW_OK) rc = sw_quantize_report_json(&result, &j->report, &outcome, err);
    if (rc != SW_OK || cJSON_AddItemToObject(row, "made", result)) return rc;
    cJSON_Delete(result);
    return sw_cmd_json_added(NULL, err);
}

static sw_code add_row(cJSON *list, const job *j, sw_err *err)
{
    cJSON *row = cJSON_CreateObject(), *error = NULL;
    sw_code rc;

    if (!row || !cJSON_AddItemToArray(list, row)) {
        cJSON_Delete(row);
        return sw_cmd_json_added(NULL, err);
    }
    rc = sw_cmd_json_added(cJSON_AddStringToObject(row, "name", j->name) &&
                           cJSON_AddStringToObject(row, "output", j->o->out) ?
                           cJSON_AddStringToObject(row, "state", state_of(j)) : NULL, err);
    if (rc == SW_OK && j->failure.code != SW_OK) {
        error = cJSON_AddObjectToObject(row, "error");
        rc = sw_cmd_json_added(
            error && cJSON_AddNumberToObject(error, "exit", j->failure.code)
                ? cJSON_AddStringToObject(error, "message", j->failure.text) : NULL, err);
    }
    return rc == SW_OK && is_made(j) ? add_made(row, j, err) : rc;
}

sw_code sw_quantize_many_print(sw_run *run, const sw_quantize_many *many, sw_err *err)
{
    cJSON *object = NULL, *list;
    sw_code rc;

    if (!many->jobs[0]->o->common.json) return print_text(run, many, err);
    if ((rc = sw_cmd_json_new(&object, "quantize_outputs", err)) != SW_OK) return rc;
    list = cJSON_AddArrayToObject(object, "outputs");
    rc = sw_cmd_json_added(list, err);
    for (int i = 0; i < many->n && rc == SW_OK; i++) rc = add_row(list, many->jobs[i], err);
    if (rc == SW_OK) rc = sw_cmd_json_print(run, object, err);
    cJSON_Delete(object);
    return rc;
}
