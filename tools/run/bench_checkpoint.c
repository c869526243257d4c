/* bench_checkpoint.c - see bench_checkpoint.h. */
#include "tools/run/bench_checkpoint.h"

#include <stdio.h>
#include <unistd.h>

#include "formats/io/watch.h"
#include "tools/device/device_opt.h"
#include "tools/terminal/table.h"
#include "tools/terminal/terminal.h"
#include "tools/verify/speed_text.h"
#include "verify/base/report.h"
#include "verify/speed/checkpoint_speed.h"

static sw_code print_json(sw_run *run, const sw_report *report, sw_err *err)
{
    cJSON *object = NULL;
    sw_code rc = sw_cmd_json_new(&object, "bench_checkpoint", err);

    if (rc == SW_OK)
        rc = sw_cmd_json_added(
            cJSON_AddStringToObject(object, "checkpoint", report->checkpoint_dir), err);
    if (rc == SW_OK && report->original_dir)
        rc = sw_cmd_json_added(cJSON_AddStringToObject(object, "original", report->original_dir),
                               err);
    if (rc == SW_OK) rc = sw_report_gates_json(object, report, err);
    if (rc == SW_OK) rc = sw_speed_json(object, &report->speed, err);
    if (rc == SW_OK) rc = sw_cmd_json_print(run, object, err);
    cJSON_Delete(object);
    return rc;
}

static void print_text(sw_run *run, const sw_report *report)
{
    const int columns = sw_terminal_columns(STDOUT_FILENO);

    sw_line_print(stdout, "checkpoint", columns, "%s", report->checkpoint_dir);
    sw_line_print(stdout, "against", columns, "%s",
                  report->original_dir ? report->original_dir : "nothing: no original given");
    sw_speed_print(stdout, &report->speed, columns);
    run->has_result = true;
}

static void set_gate(sw_gate *gate, double limit)
{
    gate->is_set = limit >= 0;
    gate->limit = limit;
}

sw_code sw_bench_checkpoint_run(sw_run *run, const sw_bench_checkpoint *b, sw_err *err)
{
    const sw_cmd_common *common = run->options;
    sw_speed_job job = {.dir = b->checkpoint, .original_dir = b->against, .request = &b->request,
                        .kv_kind = b->kv_kind, .n_threads = (int)common->threads,
                        .progress = &run->term->progress};
    sw_report report = {.checkpoint_dir = b->checkpoint, .original_dir = b->against};
    sw_code rc;

    set_gate(&report.gates[SW_GATE_MIN_SPEEDUP], b->min_speedup);
    set_gate(&report.gates[SW_GATE_MIN_TOKENS_PER_S], b->min_tokens_s);
    if (!b->against && b->min_speedup >= 0)
        return SW_FAIL(err, SW_E_USAGE, "--min-speedup compares two models: give --against MODEL");
    if ((rc = sw_speed_request_check(&b->request, err)) != SW_OK ||
        (rc = sw_device_option_open(&job.gpu, b->device, b->device_bytes, err)) != SW_OK)
        return rc;
    rc = sw_checkpoint_speed(&report.speed, &report.arena, &job, err);
    if (rc == SW_OK) rc = sw_watch_check(err);
    if (rc == SW_OK) {
        sw_report_judge(&report);
        sw_term_clear(run->term);
        if (common->json) rc = print_json(run, &report, err);
        else print_text(run, &report);
    }
    if (rc == SW_OK) rc = sw_report_verdict(&report, err);
    sw_report_free(&report);
    sw_device_close(job.gpu);
    return rc;
}
