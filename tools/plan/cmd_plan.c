/* cmd_plan.c - `swage plan`: what quantize would do, without reading a weight. */
#include <string.h>

#include "formats/file/config_text.h"
#include "tools/plan/plan_device.h"

static sw_code emit_recipe(const sw_quantize_job *job, const char *path, sw_err *err)
{
    sw_quantize_options was = sw_quantize_defaults;
    cJSON *object = NULL;
    char *text = NULL;
    sw_code rc;

    rc = sw_recipe_object(&object, job->o, &was, sw_quantize_rows, &job->recipe, err);
    if (rc == SW_OK && (rc = sw_json_pretty(&text, object, 0, err)) == SW_OK)
        rc = sw_file_put_new(path, text, strlen(text), job->o->may_replace != 0, err);
    cJSON_Delete(object);
    sw_mem_put(text);
    return rc;
}

static sw_code print(sw_run *run, const sw_plan *plan, const sw_quantize_job *job, sw_err *err)
{
    cJSON *object = NULL;
    sw_code rc;

    sw_term_clear(run->term);
    if (!job->o->common.json) {
        sw_plan_print(plan, job);
        run->has_result = true;
        return SW_OK;
    }
    if ((rc = sw_cmd_json_new(&object, "plan", err)) == SW_OK &&
        (rc = sw_plan_add_json(object, plan, job, err)) == SW_OK)
        rc = sw_cmd_json_print(run, object, err);
    cJSON_Delete(object);
    return rc;
}

static sw_code run_plan(sw_run *run, sw_err *err)
{
    sw_plan_options o = *(const sw_plan_options *)run->options;
    sw_quantize_job *job = NULL;
    sw_plan *plan = NULL;
    sw_code rc;

    if ((rc = sw_plan_device_options(&o, err)) != SW_OK ||
        (rc = SW_ARENA_TAKE(&job, run->arena, 1, err)) != SW_OK ||
        (rc = SW_ARENA_TAKE(&plan, run->arena, 1, err)) != SW_OK ||
        (rc = sw_quantize_job_options(job, run, &o.quantize, sw_plan_rows, err)) != SW_OK ||
        (rc = sw_plan_device_find(job, &o, err)) != SW_OK)
        return rc;
    job->model_dir = run->args[0];
    job->progress = &run->term->progress;
    job->is_dry = true;
    if ((rc = sw_quantize_job_prepare(job, err)) == SW_OK &&
        (rc = sw_plan_new(plan, job, &o, err)) == SW_OK && o.emit_recipe)
        rc = emit_recipe(job, o.emit_recipe, err);
    if (rc == SW_OK) rc = print(run, plan, job, err);
    sw_quantize_job_free(job);
    return rc;
}

static const char *const examples[] = {
    "swage plan calib_data/tiny-llama --scheme W4A16",
    "swage plan MODEL --scheme W8A16 --method rtn --format gptq --tp 1,2,4,8",
    "swage plan MODEL --device cuda --device-memory 80G --samples 512",
    "swage plan MODEL --bandwidth 1000 --group-size 64 --emit-recipe recipe.json",
    NULL};

static const sw_plan_options defaults = {
    .quantize = {SW_QUANTIZE_DEFAULTS},
    .decodes_on = "h200"};

const sw_cmd sw_cmd_plan = {
    .name = "plan",
    .args = "MODEL [options of quantize]",
    .summary = "predict what quantize would do: sizes, memory, time, tensor-parallel cuts, kernels",
    .more = "plan takes the options of quantize and refuses what quantize would refuse. It\n"
            "reads no weights and works without --calib: it then assumes --samples windows of\n"
            "--seq-len tokens.\n"
            "Memory is the largest resident set, including that of the trials before a choice\n"
            "is made. Times are predicted from about one second of measurements with the real\n"
            "kernels. Decoding speed counts only reading the weights, without attention, KV\n"
            "cache and lm_head.\n"
            "With --device cuda it plans a run on that device: how much of its memory is taken\n"
            "at the peak, of what, in which step, and what to change where that does not fit;\n"
            "memory is then that of the host beside it, without what the driver and its\n"
            "libraries take there. How long it takes is not predicted. --ranks N, or a list of\n"
            "devices, plans one of N processes; all of them together are in the line of ranks.\n",
    .options = sw_plan_rows,
    .options_bytes = sizeof(sw_plan_options),
    .defaults = &defaults,
    .min_args = 1,
    .max_args = 1,
    .examples = examples,
    .run = run_plan,
};
