/* cmd_report.c - `swage report`: checkpoints on disk, and what is known of them, as a page to look
 * at. */
#include "tools/cli/cmd.h"
#include "tools/report/report.h"

typedef struct report_options {
    sw_cmd_common common;
    const char *out;
    sw_opt_list results, stats;
    int may_replace;
} report_options;

#define AT(field) .offset = offsetof(report_options, field)

static const sw_opt options[] = {
    {.name = "out", .letter = 'o', .group = SW_OPT_COMMON, .kind = SW_OPT_TEXT, AT(out),
     .arg = "FILE", .help = "the page to write (required)"},
    {.name = "results", .group = SW_OPT_COMMON, .kind = SW_OPT_LIST, AT(results), .arg = "FILE",
     .help = "what `verify --report` and `quantize --json` wrote; each finds its checkpoint by the "
             "digests or figures in it"},
    {.name = "stats", .group = SW_OPT_COMMON, .kind = SW_OPT_LIST, AT(stats), .arg = "FILE",
     .help = "statistics of `calibrate`, for activations and outlier channels: one for all "
             "checkpoints, or one for each"},
    {.name = "force", .group = SW_OPT_COMMON, .kind = SW_OPT_FLAG, AT(may_replace), .set_to = 1,
     .help = "replace an existing page"},
    SW_CMD_THREADS_ROW,
    SW_CMD_MODEL_ROW,
    SW_CMD_COMMON_ROWS,
    {0},
};

static sw_code say(sw_run *run, const report_options *o, sw_err *err)
{
    cJSON *object = NULL;
    sw_code rc;

    if (!o->common.json) {
        (void)printf("report      %s\n", o->out);
        run->has_result = true;
        return SW_OK;
    }
    if ((rc = sw_cmd_json_new(&object, "report", err)) != SW_OK) return rc;
    rc = sw_cmd_json_added(cJSON_AddStringToObject(object, "output", o->out), err);
    if (rc == SW_OK)
        rc = sw_cmd_json_added(cJSON_AddNumberToObject(object, "checkpoints", run->n_args), err);
    if (rc == SW_OK) rc = sw_cmd_json_print(run, object, err);
    cJSON_Delete(object);
    return rc;
}

static sw_code run_report(sw_run *run, sw_err *err)
{
    const report_options *o = run->options;
    sw_html_request request = {
        .out = o->out, .may_replace = o->may_replace != 0, .checkpoints = run->args,
        .n_checkpoints = run->n_args, .results = o->results.items, .n_results = o->results.n,
        .stats = o->stats.items, .n_stats = o->stats.n, .n_threads = (int)o->common.threads,
        .progress = &run->term->progress};
    sw_code rc;

    if (!o->out) return SW_FAIL(err, SW_E_USAGE, "say where the page goes: -o FILE");
    rc = sw_html_report(&request, err);
    sw_term_clear(run->term);
    return rc == SW_OK ? say(run, o, err) : rc;
}

static const char *const examples[] = {
    "swage report build/demo/gptq -o build/report.html",
    "swage report OUT --results verify.json -o report.html",
    "swage report OUT4 OUT8 --results verify4.json verify8.json -o compare.html",
    "swage report OUT --results verify.json --stats MODEL.stats -o report.html", NULL};

const sw_cmd sw_cmd_report = {
    .name = "report",
    .args = "CHECKPOINT... -o FILE",
    .summary = "show checkpoints as one HTML page: verdict, errors, sizes, kernels",
    .more = "CHECKPOINT is a model directory or a GGUF; several are compared side by side. The\n"
            "page is one file that loads nothing, with charts, for any browser and for paper.\n"
            "It shows what is on disk and in manifest.json, and what --results and --stats add;\n"
            "what it lacks it names, with the command that would find it out. Nothing is run.\n"
            "`verify --html FILE` and `quantize --html FILE` write the page of their result.\n",
    .options = options,
    .options_bytes = sizeof(report_options),
    .takes_any_family = true,
    .min_args = 1,
    .max_args = SW_REPORT_CHECKPOINTS_MAX,
    .is_long = true,
    .examples = examples,
    .run = run_report,
};
