/* cmd_convert.c - `swage convert`: one dialect into another, exact or an explained refusal. */
#include <stdio.h>
#include <string.h>

#include "formats/io/file.h"
#include "formats/io/profile.h"
#include "tools/card/card_command.h"
#include "tools/cli/cmd.h"
#include "tools/cli/loader_notes.h"
#include "tools/cli/names.h"
#include "tools/convert/convert_gguf.h"
#include "tools/convert/convert_job.h"
#include "tools/convert/sidecar.h"
#include "tools/recipe/left_parts.h"
#include "tools/terminal/next_steps.h"
#include "verify/verify.h"

typedef struct convert_options {
    sw_cmd_common common;
    const char *out, *to, *scheme, *type, *embed_type, *imatrix;
    int may_replace, may_requantize, weights_only, checks, with_sidecar, no_card;
    int plain_rule, no_tokenizer; /* gguf */
    uint64_t shard_bytes;
} convert_options;

#define AT(field) .offset = offsetof(convert_options, field)

static const sw_opt options[] = {
    {.name = "to", .group = SW_OPT_COMMON, .letter = 't', .kind = SW_OPT_CHOICE, AT(to),
     .arg = "F", .choices = sw_name_of_target,
     .help = "format of the output"},
    {.name = "format", .group = SW_OPT_COMMON, .letter = 'f', .kind = SW_OPT_CHOICE, AT(to),
     .arg = "F", .choices = sw_name_of_target,
     .alias_of = "to"},
    {.name = "out", .group = SW_OPT_COMMON, .letter = 'o', .kind = SW_OPT_TEXT, AT(out),
     .arg = "DIR",
     .help = "where the output goes (FILE.gguf for gguf); it appears there only when it is "
             "complete"},
    {.name = "type", .group = SW_OPT_COMMON, .kind = SW_OPT_CHOICE, AT(type), .arg = "T",
     .choices = sw_name_of_block_type,
     .help = "gguf: how linears are stored (default: as in the source; tensors of a GGUF keep "
             "their types and bytes; MXFP4 and NVFP4 of weights that are stored so)"},
    {.name = "embed-type", .group = SW_OPT_EXPERT, .kind = SW_OPT_CHOICE, AT(embed_type),
     .arg = "T", .choices = sw_name_of_block_type,
     .help = "gguf: how embedding and lm_head are stored (default: as linears; Q6_K where those "
             "have 4 bits)"},
    {.name = "plain-rule", .group = SW_OPT_EXPERT, .kind = SW_OPT_FLAG, AT(plain_rule),
     .set_to = 1,
     .help = "gguf: take scales of Q4_0 and Q4_1 from the largest magnitude, without a search"},
    {.name = "imatrix", .group = SW_OPT_QUALITY, .kind = SW_OPT_TEXT, AT(imatrix), .arg = "FILE",
     .help = "gguf: weigh rounding errors by the mean squares of inputs in this file: the "
             "importance matrix that llama-imatrix or `swage calibrate --imatrix` has written "
             "(.gguf or .dat)"},
    {.name = "no-tokenizer", .group = SW_OPT_EXPERT, .kind = SW_OPT_FLAG, AT(no_tokenizer),
     .set_to = 1,
     .help = "gguf: leave the tokenizer out"},
    {.name = "allow-requantize", .group = SW_OPT_QUALITY, .kind = SW_OPT_FLAG, AT(may_requantize),
     .set_to = 1,
     .help = "where the target cannot hold a weight as it is, decode it and round it again, to "
             "the nearest scheme that the target holds; the output tells the error. `swage "
             "quantize` of the same source with calibration text loses less"},
    {.name = "scheme", .group = SW_OPT_QUALITY, .letter = 's', .kind = SW_OPT_CHOICE, AT(scheme),
     .arg = "S", .choices = sw_name_of_scheme,
     .help = "scheme of weights that are rounded again, instead of the nearest"},
    {.name = "weights-only", .group = SW_OPT_QUALITY, .kind = SW_OPT_FLAG, AT(weights_only),
     .set_to = 1,
     .help = "drop how the source quantizes inputs: they stay in 16 bits"},
    {.name = "sidecar", .group = SW_OPT_EXPERT, .kind = SW_OPT_FLAG, AT(with_sidecar),
     .set_to = 1,
     .help = "also write the kernel-ready tiles of every linear, as " SW_SIDECAR_NAME},
    {.name = "no-card", .group = SW_OPT_COMMON, .kind = SW_OPT_FLAG, AT(no_card), .set_to = 1,
     .help = "write no model card (README.md, or SWAGE.md if the source has a README.md)"},
    {.name = "verify", .group = SW_OPT_COMMON, .kind = SW_OPT_FLAG, AT(checks), .set_to = 1,
     .help = "afterwards read the output back with the second decoder"},
    {.name = "shard-size", .group = SW_OPT_RESOURCES, .kind = SW_OPT_SIZE, AT(shard_bytes),
     .arg = "BYTES",
     .help = "largest size of an output file (default 5G)"},
    {.name = "force", .group = SW_OPT_COMMON, .kind = SW_OPT_FLAG, AT(may_replace), .set_to = 1,
     .help = "replace an existing output; refused for a directory that holds other files"},
    SW_CMD_THREADS_ROW,
    SW_CMD_MODEL_ROW,
    SW_CMD_COMMON_ROWS,
    {0},
};

static const convert_options defaults = {.shard_bytes = (uint64_t)5 << 30};

static sw_code check_line(const convert_options *o, sw_err *err)
{
    if (!o->to) return SW_FAIL(err, SW_E_USAGE, "say what the checkpoint becomes: --to F");
    if (!o->out) return SW_FAIL(err, SW_E_USAGE, "say where the checkpoint goes: -o DIR");
    if (o->scheme && !o->may_requantize)
        return SW_FAIL(err, SW_E_USAGE, "--scheme says what to requantize to: give "
                       "--allow-requantize as well");
    if (!o->may_replace && sw_path_exists(o->out))
        return SW_FAIL(err, SW_E_USAGE, "%s: exists; give --force to replace it", o->out);
    return SW_OK;
}

static sw_code read_back(const sw_convert_job *job, sw_err *err)
{
    const sw_progress shown = sw_progress_kept(job->progress);
    sw_verify_options v = {.checkpoint_dir = job->options.out_dir,
                           .n_threads = job->options.n_threads, .progress = &shown};
    sw_report report = {0};
    sw_code rc = sw_verify_run(&report, &v, err);

    if (rc == SW_OK) rc = sw_report_verdict(&report, err);
    sw_loader_notes(&report.loaders, job->progress);
    sw_report_free(&report);
    if (rc != SW_OK)
        sw_err_prefix(err, "%s was written, but does not read back", job->options.out_dir);
    return rc;
}

static sw_code print_json(sw_run *run, const sw_convert_job *job, double seconds, sw_err *err)
{
    cJSON *object = NULL;
    sw_code rc = sw_convert_json(&object, job, "convert", true, err);

    if (rc != SW_OK) return rc;
    if (!cJSON_AddStringToObject(object, "out", job->options.out_dir) ||
        !cJSON_AddNumberToObject(object, "source_bytes", (double)job->source_bytes) ||
        !cJSON_AddNumberToObject(object, "out_bytes", (double)job->out_bytes) ||
        !cJSON_AddNumberToObject(object, "seconds", seconds) || !sw_convert_cost_json(object, job))
        rc = sw_cmd_json_added(NULL, err);
    if (rc == SW_OK) rc = sw_cmd_json_print(run, object, err);
    cJSON_Delete(object);
    return rc;
}

/* Floats are compared as well: what a conversion copies is exactly what there was. */
static void print_next(const sw_run *run, const char *out)
{
    const sw_cmd_common *common = run->options;
    sw_next_steps next = {.is_silent = common->quiet != 0};

    SW_NEXT_STEP(&next, "compare it with what it was made of", "verify", out, "--against",
                 run->args[0]);
    SW_NEXT_STEP(&next, "which engines load it", "inspect", out);
}

static sw_code print_text(sw_run *run, const sw_convert_job *job, double seconds)
{
    const char *from = sw_convert_from(job);
    char in[16], out[16];

    sw_term_bytes(in, (double)job->source_bytes);
    sw_term_bytes(out, (double)job->out_bytes);
    (void)printf("%s: %s -> %s, %s -> %s in %.1f s\n", job->options.out_dir, from,
                 job->options.target->name, in, out, seconds);
    for (int i = 0; i < SW_FATE_COUNT; i++)
        if (job->n_of[i])
            (void)printf("  %lld linears %s\n", (long long)job->n_of[i],
                         sw_fate_name((sw_fate)i));
    sw_convert_cost_print(job);
    sw_left_files_print(&job->source);
    print_next(run, job->options.out_dir);
    run->has_result = true;
    return SW_OK;
}

/* --- one file instead of a directory --- */

static bool is_gguf(const convert_options *o) { return o->to && !strcmp(o->to, SW_GGUF_TARGET); }

static sw_code print_gguf_json(sw_run *run, const sw_gguf_job *job, double seconds, sw_err *err)
{
    const sw_gguf_report *r = &job->report;
    const struct {
        const char *key;
        double v;
    } rows[] = {{"exact", (double)r->n_exact}, {"rounded", (double)r->n_rounded},
                {"requantized", (double)r->n_requantized}, {"fallback", (double)r->n_fallback},
                {"data_bytes", (double)r->data_bytes}, {"seconds", seconds}};
    cJSON *object = NULL;
    sw_code rc = sw_cmd_json_new(&object, "convert", err);
    bool ok = rc == SW_OK && cJSON_AddStringToObject(object, "out", job->out) &&
              cJSON_AddStringToObject(object, "to", SW_GGUF_TARGET) &&
              cJSON_AddStringToObject(object, "type", sw_block_sizes[job->types[0]].name) &&
              cJSON_AddStringToObject(object, "embed_type", sw_block_sizes[job->types[1]].name) &&
              cJSON_AddBoolToObject(object, "as_stored", job->is_as_stored);

    for (size_t i = 0; ok && i < sizeof rows / sizeof *rows; i++)
        ok = cJSON_AddNumberToObject(object, rows[i].key, rows[i].v) != NULL;
    if (rc == SW_OK)
        rc = ok ? sw_cmd_json_print(run, object, err) : sw_cmd_json_added(NULL, err);
    cJSON_Delete(object);
    return rc;
}

/* What engines would make of the file; LIMITED ones are for inspect. */
static sw_code note_loaders(const sw_gguf_job *job, sw_err *err)
{
    sw_load_findings found = {.n = 0};
    sw_checkpoint written = {0};
    sw_code rc = sw_checkpoint_open(&written, job->out, err);

    if (rc == SW_OK) rc = sw_loaders_check(&found, &written, err);
    if (rc == SW_OK) sw_loader_notes(&found, job->progress);
    sw_loaders_free(&found);
    sw_checkpoint_close(&written);
    if (rc != SW_OK) sw_err_prefix(err, "%s was written, but does not read back", job->out);
    return rc;
}

static sw_code run_gguf(sw_run *run, const convert_options *o, sw_err *err)
{
    sw_gguf_job job = {.source = run->args[0], .out = o->out, .type = o->type,
                       .embed_type = o->embed_type, .imatrix = o->imatrix,
                       .may_replace = o->may_replace != 0,
                       .may_requantize = o->may_requantize != 0,
                       .plain_rule = o->plain_rule != 0, .no_tokenizer = o->no_tokenizer != 0,
                       .n_threads = (int)o->common.threads, .progress = &run->term->progress};
    double start_s = sw_clock_s();
    char bytes[16];
    sw_code rc;

    if (o->scheme)
        return SW_FAIL(err, SW_E_USAGE, "--scheme is for checkpoints; give --type TYPE");
    if (o->imatrix && o->plain_rule)
        return SW_FAIL(err, SW_E_USAGE, "--plain-rule looks at no weights: leave out --imatrix or "
                       "it");
    if ((rc = sw_gguf_job_run(&job, err)) != SW_OK ||
        (o->checks && (rc = note_loaders(&job, err)) != SW_OK))
        return rc;
    sw_term_clear(run->term);
    if (o->common.json) return print_gguf_json(run, &job, sw_clock_s() - start_s, err);
    sw_term_bytes(bytes, (double)job.report.data_bytes);
    (void)printf("%s: %s%s, embedding %s, %s in %.1f s\n", o->out,
                 sw_block_sizes[job.types[0]].name, job.is_as_stored ? " (most, as stored)" : "",
                 sw_block_sizes[job.types[1]].name, bytes, sw_clock_s() - start_s);
    (void)printf("  %lld tensors exact, %lld rounded, %lld requantized\n",
                 (long long)job.report.n_exact, (long long)job.report.n_rounded,
                 (long long)job.report.n_requantized);
    if (job.report.n_fallback)
        (void)printf("  %lld linears in a wider type, since their rows are not whole "
                     "blocks\n", (long long)job.report.n_fallback);
    print_next(run, o->out);
    run->has_result = true;
    return SW_OK;
}

static sw_code run_convert(sw_run *run, sw_err *err)
{
    const convert_options *o = run->options;
    const sw_card_command command = {"convert", o, &defaults, options, NULL};
    sw_convert_options c = {.source_dir = run->args[0], .out_dir = o->out,
                            .may_replace = o->may_replace != 0,
                            .may_requantize = o->may_requantize != 0,
                            .weights_only = o->weights_only != 0,
                            .with_sidecar = o->with_sidecar != 0,
                            .no_card = o->no_card != 0, .command = &command,
                            .shard_bytes = o->shard_bytes,
                            .n_threads = (int)o->common.threads};
    double start_s = sw_clock_s();
    sw_convert_job *job = NULL;
    sw_code rc = check_line(o, err);

    if (rc == SW_OK && is_gguf(o)) return run_gguf(run, o, err);
    if (rc == SW_OK && (o->type || o->embed_type || o->imatrix))
        rc = SW_FAIL(err, SW_E_USAGE, "--type, --embed-type and --imatrix are for --to gguf");
    if (rc != SW_OK || (rc = SW_ARENA_TAKE(&job, run->arena, 1, err)) != SW_OK) return rc;
    c.target = sw_dialect_find(o->to) ? sw_dialect_find(o->to) : sw_dense_find(o->to);
    c.scheme = o->scheme ? sw_scheme_find(o->scheme) : NULL;
    if ((rc = sw_convert_plan(job, &c, &run->term->progress, err)) == SW_OK)
        rc = sw_convert_run(job, err);
    if (rc == SW_OK && o->checks && !c.target->is_dense) rc = read_back(job, err);
    sw_term_clear(run->term);
    if (rc == SW_OK)
        rc = o->common.json ? print_json(run, job, sw_clock_s() - start_s, err)
                            : print_text(run, job, sw_clock_s() - start_s);
    sw_convert_free(job);
    return rc;
}

static const char *const examples[] = {
    "swage convert MODEL-gptq --to compressed-tensors -o OUT",
    "swage convert MODEL --to gguf --type Q4_K -o MODEL.gguf",
    "swage convert MODEL-fp8 --to bf16 -o OUT",
    "swage convert MODEL-w8a8 --to gptq_v2 --weights-only -o OUT",
    "swage convert MODEL.gguf --to bf16 -o OUT",
    "swage convert MODEL-mxfp4 --to gptq --allow-requantize --scheme W4A16 -o OUT", NULL};

const sw_cmd sw_cmd_convert = {
    .name = "convert",
    .args = "IN --to F -o OUT [--allow-requantize]",
    .summary = "rewrite a checkpoint in another format, exactly, or refuse with the reason",
    .more = "IN is a model directory or a GGUF, quantized or not. Codes, scales, zero points\n"
            "and g_idx are copied unchanged. If the output format cannot hold them, convert\n"
            "refuses and names the tensor, the reason and the remedy. manifest.json lists what\n"
            "was done with every tensor.\n",
    .options = options,
    .options_bytes = sizeof(convert_options),
    .defaults = &defaults,
    .takes_any_family = true,
    .min_args = 1,
    .max_args = 1,
    .is_long = true,
    .examples = examples,
    .run = run_convert,
};
