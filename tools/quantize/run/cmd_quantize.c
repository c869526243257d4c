/* cmd_quantize.c - `swage quantize`: a model directory in, a quantized one out.
 *
 * Order matters: whatever can be known to fail is checked before the first weight is read. The
 * output appears under its name when everything is in it, and is then read back with the
 * decoder that shares no code with what wrote it.
 */
#include <stdio.h>

#include "formats/io/file.h"
#include "formats/io/watch.h"
#include "tools/quantize/run/quantize_group.h"
#include "tools/quantize/run/quantize_many.h"
#include "tools/quantize/run/quantize_many_report.h"
#include "tools/quantize/run/quantize_output.h"
#include "tools/recipe/left_parts.h"
#include "tools/report/report.h"

typedef sw_quantize_job job;

/* The checkpoint is published, out of files that were renamed for it: what is watched from here on
 * is what the page reads. It goes over none of the inputs all the same. */
static sw_code begin_page(const char *path, sw_err *err)
{
    struct stat info;

    if (stat(path, &info) == 0 && sw_watch_reads(&info))
        return SW_FAIL(err, SW_E_USAGE, "%s: is an input of this run and stays as it is", path);
    sw_watch_end();
    sw_watch_begin();
    return SW_OK;
}

/* --html: the page of what this run did. */
static sw_code write_page(const job *j, const sw_quantize_outcome *outcome, sw_err *err)
{
    sw_html_request page = {.out = j->o->html, .may_replace = j->o->may_replace != 0,
                            .checkpoints = (const char *const *)&j->o->out, .n_checkpoints = 1,
                            .verified = j->verified, .n_threads = (int)j->o->common.threads,
                            .progress = j->progress};
    cJSON *made = NULL;
    sw_code rc;

    if (!j->o->html) return SW_OK;
    if ((rc = begin_page(j->o->html, err)) != SW_OK ||
        (rc = sw_quantize_report_json(&made, &j->report, outcome, err)) != SW_OK)
        return rc;
    page.made = made;
    rc = sw_html_report(&page, err);
    cJSON_Delete(made);
    return rc;
}

static sw_code run_one(sw_run *run, job *j, sw_err *err)
{
    sw_quantize_outcome outcome;
    sw_code rc;

    if ((rc = sw_timeline_begin(&j->timeline, err)) != SW_OK ||
        (rc = sw_quantize_job_prepare(j, err)) != SW_OK ||
        (rc = sw_quantize_same_inputs(j, err)) != SW_OK ||
        (rc = sw_quantize_same_settings(j, err)) != SW_OK ||
        (rc = sw_quantize_group_run(&j, 1, err)) != SW_OK || sw_team_rank(j->team) > 0)
        return rc;
    if ((rc = j->failure.code) != SW_OK) {
        *err = j->failure;
        return rc;
    }
    if ((rc = sw_quantize_output_outcome(&outcome, j, err)) != SW_OK ||
        (rc = write_page(j, &outcome, err)) != SW_OK)
        return rc;
    sw_term_clear(run->term);
    rc = sw_quantize_report_print(run, &j->report, &j->settings, &outcome, err);
    if (rc == SW_OK && !j->o->common.json) sw_left_files_print(&j->source);
    return rc == SW_OK ? sw_quantize_output_fallbacks(j, err) : rc;
}

/* One page that compares all that are there. */
static sw_code write_comparison(const job *base, const sw_quantize_many *many, sw_err *err)
{
    const char *dirs[SW_QUANTIZE_OUTPUTS_MAX];
    sw_html_request page = {.out = base->o->html, .may_replace = base->o->may_replace != 0,
                            .checkpoints = dirs, .n_threads = (int)base->o->common.threads,
                            .progress = base->progress};
    sw_code rc;

    for (int i = 0; i < many->n; i++)
        if (sw_path_exists(many->jobs[i]->o->out))
            dirs[page.n_checkpoints++] = many->jobs[i]->o->out;
    if (!base->o->html || !page.n_checkpoints) return SW_OK;
    if ((rc = begin_page(base->o->html, err)) != SW_OK) return rc;
    return sw_html_report(&page, err);
}

static sw_code run_many(sw_run *run, const job *base, sw_err *err)
{
    sw_quantize_many many = {.n = 0};
    sw_code rc;

    if ((rc = sw_quantize_many_check(&many, run, base, err)) != SW_OK ||
        (rc = sw_quantize_many_run(&many, err)) != SW_OK || sw_team_rank(run->team) > 0 ||
        (rc = write_comparison(base, &many, err)) != SW_OK) {
        sw_quantize_many_say_kept(&many, err);
        goto done;
    }
    sw_term_clear(run->term);
    rc = sw_quantize_many_print(run, &many, err);
    if (rc == SW_OK) rc = sw_quantize_many_verdict(&many, err);
done:
    sw_quantize_many_free(&many);
    return rc;
}

static sw_code run_quantize(sw_run *run, sw_err *err)
{
    job *j = NULL;
    sw_code rc;

    if ((rc = SW_ARENA_TAKE(&j, run->arena, 1, err)) != SW_OK) return rc; /* too large a frame */
    rc = sw_quantize_job_options(j, run, run->options, sw_quantize_rows, err);
    if (rc != SW_OK) return rc;
    j->model_dir = run->args[0];
    j->progress = &run->term->progress;
    j->team = run->team;
    if (j->o->html &&
        (rc = sw_html_report_check(j->o->html, j->o->may_replace != 0, err)) != SW_OK)
        return rc;
    rc = sw_quantize_is_many(j->o) ? run_many(run, j, err) : run_one(run, j, err);
    sw_quantize_job_free(j);
    return rc;
}

static const char *const examples[] = {
    "swage quantize calib_data/tiny-llama -o build/out --calib calib_data/calib.u16 --samples 64",
    "swage quantize MODEL -o OUT --scheme W4A16 --format compressed-tensors --calib text.txt",
    "swage quantize MODEL -o DIR --scheme W4A16,W8A16 --format gptq,awq --calib text.txt",
    "swage quantize org/name -o OUT --calib text.txt --format compressed-tensors",
    "swage quantize MODEL -o OUT --device cuda --calib text.txt --samples 512",
    "swage quantize MODEL -o OUT --target-bits 3.5 --format gptq_v2 --calib text.txt",
    "swage quantize MODEL -o OUT --scheme W3A16 --outliers auto --calib text.txt",
    "swage quantize MODEL -o OUT --recipe nvfp4-experts-fp8 --calib text.txt",
    "swage quantize MODEL -o OUT --recipe recipe.json --calib text.txt",
    "swage quantize MODEL -o OUT --calib text.txt --html OUT.html",
    "swage quantize MODEL -o OUT --lm-head --format gptq --calib text.txt",
    "swage quantize MODEL -o OUT --method awq+gptq --calib text.txt",
    "swage quantize MODEL -o OUT --scheme W8A8 --method smoothquant --calib text.txt",
    "swage quantize MODEL -o OUT --scheme W8A16 --method rtn --format compressed-tensors",
    "swage quantize MODEL -o OUT --method rtn --imatrix MODEL.imatrix.gguf",
    "swage quantize MODEL -o OUT --arch-like llama --calib text.txt",
    "swage quantize MODEL -o OUT --calib *.txt --group-size 32 --ignore 'layers.0' down_proj",
    NULL};

const sw_cmd sw_cmd_quantize = {
    .name = "quantize",
    .args = "MODEL -o OUT [--scheme S] (--calib FILE... | --stats FILE)",
    .summary = "quantize a model to few bits, calibrated block by block",
    .more = "MODEL is a Hugging Face model directory, a GGUF, or an id (org/name, or\n"
            "org/name@revision) that is in the Hugging Face cache. Tensors that are not\n"
            "quantized are copied bit by bit. The same inputs give the same bytes for any\n"
            "number of threads.\n"
            "If a run is stopped or killed, the same command continues it from DIR.partial\n"
            "after the last finished decoder block, unless an input has changed.\n"
            "Several schemes or formats make DIR/SCHEME-FORMAT each, the same bytes as runs of\n"
            "their own. Formats of one scheme that hold the same numbers are solved once and\n"
            "packed several times. Schemes share the text, read and tokenized once, and with\n"
            "--stats every statistic. With --calib each scheme runs the text through blocks that\n"
            "it has quantized itself, so its statistics serve no other. If one output fails, the\n"
            "others are finished, and the exit code is that of the first failure.\n"
            "A model_type that is not known can be read as a known one, --arch-like FAMILY; or\n"
            "its weights are rounded alone, --method rtn, without calibration or a check of\n"
            "logits.\n",
    .options = sw_quantize_rows,
    .options_bytes = sizeof(sw_quantize_options),
    .defaults = &sw_quantize_defaults,
    .min_args = 1,
    .max_args = 1,
    .has_ranks = true,
    .is_long = true,
    .examples = examples,
    .run = run_quantize,
};
