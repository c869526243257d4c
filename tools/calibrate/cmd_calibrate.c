/* cmd_calibrate.c - `swage calibrate`: one pass over the text, kept in a file for any scheme. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "formats/checkpoint/manifest.h"
#include "formats/io/profile.h"
#include "kernels/engine/lm_open.h"
#include "quant/stats/stats.h"
#include "tools/calibrate/calibration.h"
#include "tools/calibrate/expert_report.h"
#include "tools/calibrate/imatrix_output.h"
#include "tools/calibrate/same_inputs.h"
#include "tools/cli/cmd.h"
#include "tools/device/device_opt.h"
#include "tools/device/ranks.h"

typedef struct calibrate_options {
    sw_cmd_common common;
    const char *out, *experts, *device, *imatrix;
    sw_opt_list calib;
    int64_t samples, seq_len, seed;
    int may_replace, has_no_text;
} calibrate_options;

#define AT(field) .offset = offsetof(calibrate_options, field)

static const sw_opt options[] = {
    {.name = "out", .group = SW_OPT_COMMON, .letter = 'o', .kind = SW_OPT_TEXT, AT(out),
     .arg = "FILE",
     .help = "where the statistics go; the file appears there only when it is complete"},
    {.name = "calib", .group = SW_OPT_COMMON, .kind = SW_OPT_LIST, AT(calib), .arg = "FILE",
     .help = "calibration text (UTF-8), chats (.jsonl) or tokens (.u16, .u32, .safetensors)"},
    {.name = "imatrix", .group = SW_OPT_COMMON, .kind = SW_OPT_TEXT, AT(imatrix), .arg = "FILE",
     .help = "also write the mean squares of all inputs as an importance matrix, FILE.gguf or "
             "FILE.dat, for `convert --to gguf --imatrix` or llama-quantize"},
    {.name = "samples", .group = SW_OPT_QUALITY, .kind = SW_OPT_INT, AT(samples), .arg = "N",
     .min = 1, .max = 1e7,
     .help = "calibration windows (default 128)"},
    {.name = "seq-len", .group = SW_OPT_QUALITY, .kind = SW_OPT_INT, AT(seq_len), .arg = "L",
     .min = 8, .max = 1 << 20,
     .help = "tokens per window (default 2048 or the model's context)"},
    {.name = "seed", .group = SW_OPT_EXPERT, .kind = SW_OPT_INT, AT(seed), .arg = "N", .min = 0,
     .max = 9e15,
     .help = "draw the windows at random from the whole text, with this seed (default 0: the "
             "first windows)"},
    {.name = "experts", .group = SW_OPT_EXPERT, .kind = SW_OPT_CHOICE, AT(experts), .arg = "E",
     .choices = sw_name_of_experts,
     .help = "what to keep of each expert; statistics for shrink serve all three (default shrink)"},
    {.name = "no-text", .group = SW_OPT_EXPERT, .kind = SW_OPT_FLAG, AT(has_no_text), .set_to = 1,
     .help = "keep no windows of the text in the file; awq, smoothquant and --target-bits cannot "
             "use it then"},
    {.name = "force", .group = SW_OPT_COMMON, .kind = SW_OPT_FLAG, AT(may_replace), .set_to = 1,
     .help = "replace an existing file"},
    SW_DEVICE_ROW(calibrate_options, device),
    SW_RANKS_ROW,
    SW_CMD_THREADS_ROW,
    SW_CMD_MODEL_ROW,
    SW_CMD_COMMON_ROWS,
    {0},
};

static const calibrate_options defaults = {.experts = "shrink"};

/* What one run holds. */
typedef struct job {
    const calibrate_options *o;
    const char *model_dir;
    sw_checkpoint source;
    sw_calibration calibration;
    sw_zpack_writer *writer; /* of rank 0, which alone writes; the others': NULL */
    sw_device *gpu;
    sw_quant_options quant;
    sw_linear_source decoding; /* of a source that is quantized itself */
    int64_t n_tensors;
} job;

static void job_free(job *j)
{
    sw_zpack_writer_free(j->writer);
    sw_calibration_free(&j->calibration);
    sw_checkpoint_close(&j->source);
    sw_device_option_close_backend(j->gpu, &j->quant);
}

/* Before anything is computed: can there be a file of this name, for this model, of these sums? */
static sw_code check_imatrix(const job *j, sw_err *err)
{
    const calibrate_options *o = j->o;

    if (j->source.model.n_experts && !strcmp(o->experts, "all"))
        return SW_FAIL(err, SW_E_UNSUPPORTED, "%s: --experts all has no sums of an expert alone, "
                       "which an imatrix holds; take --experts shrink or routed", o->imatrix);
    return sw_imatrix_output_check(o->imatrix, &j->source.model, o->may_replace != 0, err);
}

static sw_code open_inputs(job *j, const sw_progress *progress, sw_err *err)
{
    const calibrate_options *o = j->o;
    sw_calibration_options c = {j->model_dir, &o->calib, o->samples, o->seq_len, o->seed,
                                progress};
    sw_code rc;

    if (!o->out) return SW_FAIL(err, SW_E_USAGE, "say where the statistics go: -o FILE");
    if (!o->calib.n) return SW_FAIL(err, SW_E_USAGE, "give calibration text: --calib FILE");
    if (!o->may_replace && sw_path_exists(o->out))
        return SW_FAIL(err, SW_E_USAGE, "%s: exists; give --force to replace it", o->out);
    if (sw_path_is_dir(o->out))
        return SW_FAIL(err, SW_E_USAGE, "%s: is a directory; name a file", o->out);
    if ((rc = sw_checkpoint_open(&j->source, j->model_dir, err)) != SW_OK) return rc;
    if (o->imatrix && (rc = check_imatrix(j, err)) != SW_OK) return rc;
    if (!j->source.dialect && sw_json_member(j->source.config, "quantization_config"))
        return SW_FAIL(err, SW_E_UNSUPPORTED, "%s is quantized already, in a format that is not "
                       "known; calibrate the original instead", j->model_dir);
    j->decoding = sw_decoding_source(&j->source);
    return sw_calibration_read(&j->calibration, &j->source.model, &c, err);
}

/* Several ranks make one file: what decides its bytes must be the same at each. */
static sw_code check_ranks(const job *j, sw_err *err)
{
    const sw_calib *calib = &j->calibration.calib;
    sw_team *team = j->quant.team;
    char seq_len[24];
    sw_code rc;

    (void)snprintf(seq_len, sizeof seq_len, "%lld", (long long)calib->seq_len);
    if ((rc = sw_same_model(team, &j->source, err)) != SW_OK ||
        (rc = sw_same_setting(team, "seq-len", seq_len, err)) != SW_OK ||
        (rc = sw_same_setting(team, "experts", j->o->experts, err)) != SW_OK)
        return rc;
    return sw_same_text(team, calib, err);
}

/* Everything that tells one set of statistics from another. */
static sw_code write_keys(job *j, sw_err *err)
{
    const sw_calib *calib = &j->calibration.calib;
    char model[SW_SHA256_HEX_BYTES], ids[SW_SHA256_HEX_BYTES], samples[24], seq_len[24];
    const char *pairs[][2] = {{"kind", SW_STATS_KIND}, {"model_sha256", model},
                              {"ids_sha256", ids},     {"samples", samples},
                              {"seq_len", seq_len},    {"experts", j->o->experts}};
    sw_code rc;

    if ((rc = sw_checkpoint_identity(model, &j->source, err)) != SW_OK) return rc;
    rc = sw_sha256_hex(ids, calib->ids,
                       (size_t)(calib->n_seqs * calib->seq_len) * sizeof *calib->ids, err);
    (void)snprintf(samples, sizeof samples, "%lld", (long long)calib->n_seqs);
    (void)snprintf(seq_len, sizeof seq_len, "%lld", (long long)calib->seq_len);
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0] && rc == SW_OK; i++)
        rc = sw_zpack_writer_meta(j->writer, pairs[i][0], pairs[i][1], err);
    return rc;
}

static sw_code print_result(sw_run *run, const job *j, uint64_t n_bytes, double seconds,
                            sw_err *err)
{
    const sw_calib *calib = &j->calibration.calib;
    int64_t n_tokens = calib->n_seqs * calib->seq_len;
    cJSON *object = NULL;
    char size[16];
    sw_code rc;

    if (!j->o->common.json) {
        sw_term_bytes(size, (double)n_bytes);
        (void)printf("output      %s, %s\ncalibrated  %lld layers on %lld tokens (%lld windows of "
                     "%lld)\ntime        %.1f s\n",
                     j->o->out, size, (long long)j->source.model.n_layers, (long long)n_tokens,
                     (long long)calib->n_seqs, (long long)calib->seq_len, seconds);
        run->has_result = true;
        return SW_OK;
    }
    if ((rc = sw_cmd_json_new(&object, "calibrate", err)) != SW_OK) return rc;
    if (cJSON_AddStringToObject(object, "output", j->o->out) &&
        cJSON_AddNumberToObject(object, "bytes", (double)n_bytes) &&
        cJSON_AddNumberToObject(object, "layers", (double)j->source.model.n_layers) &&
        cJSON_AddNumberToObject(object, "samples", (double)calib->n_seqs) &&
        cJSON_AddNumberToObject(object, "seq_len", (double)calib->seq_len) &&
        sw_corpus_add_note(object, &j->calibration.corpus) &&
        cJSON_AddNumberToObject(object, "seconds", seconds))
        rc = sw_cmd_json_print(run, object, err);
    else
        rc = sw_cmd_json_added(NULL, err);
    cJSON_Delete(object);
    return rc;
}

static int policy_of(const char *name)
{
    int i = 0;

    while (strcmp(sw_name_of_experts(i), name) != 0) i++; /* the parser took it from this table */
    return i;
}

/* Out of the statistics that are there now. */
static sw_code write_imatrix(const job *j, sw_err *err)
{
    sw_zpack *stats = NULL;
    sw_code rc = sw_zpack_open(&stats, j->o->out, err);

    if (rc == SW_OK)
        rc = sw_imatrix_output_write(j->o->imatrix, stats, &j->source.model,
                                     &j->calibration.calib, j->o->calib.items[0],
                                     j->o->may_replace != 0, err);
    sw_zpack_close(stats);
    return rc;
}

static sw_code begin_file(job *j, sw_err *err)
{
    sw_code rc = sw_zpack_writer_new(&j->writer, j->o->out, j->o->may_replace != 0, err);

    if (rc == SW_OK) rc = write_keys(j, err);
    if (rc != SW_OK || j->o->has_no_text) return rc;
    return sw_stats_put_windows(j->writer, &j->calibration.calib, err);
}

static sw_code end_file(uint64_t *n_bytes, const job *j, sw_err *err)
{
    sw_code rc = sw_zpack_writer_commit(j->writer, err);

    *n_bytes = sw_zpack_writer_bytes(j->writer);
    return rc == SW_OK && j->o->imatrix ? write_imatrix(j, err) : rc;
}

static sw_code run_calibrate(sw_run *run, sw_err *err)
{
    const bool writes = sw_team_rank(run->team) == 0;
    double start_s = sw_clock_s();
    uint64_t n_bytes;
    job *j = NULL;
    sw_code rc;

    if ((rc = SW_ARENA_TAKE(&j, run->arena, 1, err)) != SW_OK) return rc;
    j->o = run->options;
    j->model_dir = run->args[0];
    j->quant = sw_quant_defaults();
    j->quant.source = &j->decoding;
    j->quant.experts = (sw_experts)policy_of(j->o->experts);
    j->quant.n_threads = (int)j->o->common.threads;
    j->quant.team = run->team;
    if ((rc = open_inputs(j, &run->term->progress, err)) != SW_OK ||
        (rc = check_ranks(j, err)) != SW_OK)
        goto done;
    rc = sw_device_option_open_backend(&j->gpu, &j->quant, j->o->device, &run->term->progress, err);
    if (rc != SW_OK || (writes && (rc = begin_file(j, err)) != SW_OK)) goto done;
    rc = sw_stats_collect(j->writer, &j->source.model, j->source.st, &j->calibration.calib,
                          &j->quant, &run->term->progress, err);
    if (rc != SW_OK || (rc = sw_progress_check(&run->term->progress, err)) != SW_OK || !writes ||
        (rc = end_file(&n_bytes, j, err)) != SW_OK)
        goto done;
    sw_term_clear(run->term);
    rc = print_result(run, j, n_bytes, sw_clock_s() - start_s, err);
done:
    job_free(j);
    return rc;
}

static const char *const examples[] = {
    "swage calibrate calib_data/tiny-llama --calib calib_data/calib.u16 --samples 9 "
    "-o build/t.stats",
    "swage quantize calib_data/tiny-llama --stats build/t.stats -o build/out64 --group-size 64",
    "swage calibrate MODEL --calib *.txt --samples 256 --seq-len 2048 -o MODEL.stats",
    "swage calibrate MODEL --device cuda --calib text.txt -o MODEL.stats",
    "swage calibrate MODEL --device cuda:0,1 --calib text.txt -o MODEL.stats", NULL};

const sw_cmd sw_cmd_calibrate = {
    .name = "calibrate",
    .args = "MODEL --calib FILE... -o STATS",
    .summary = "run calibration text once and store the statistics for any number of schemes",
    .more = "A model that is served chats can be calibrated with chats: each line of a .jsonl\n"
            "file is {\"messages\": [...]} or {\"conversations\": [{\"from\", \"value\"}]},\n"
            "which the model's chat template renders, or {\"text\": ...}. They are joined in\n"
            "their order and cut into windows. strftime_now gives 26 July 2024 in them, so\n"
            "that a run can be repeated.\n\n"
            "The statistics (Hessians, magnitudes of channels, ranges of inputs, tokens per\n"
            "expert) belong to this model; `quantize --stats` checks that. They are taken while\n"
            "no linear is quantized. `quantize --calib` also compensates the errors of earlier\n"
            "layers and is more accurate.\n"
            "Methods that measure their choices (awq, smoothquant, --target-bits) do so on\n"
            "windows of the text. The file holds up to about 20 thousand token ids for them,\n"
            "which anybody who has the file can read; --no-text leaves them out.\n"
            "With --device cuda the model runs on the CUDA device, with activations in BF16.\n",
    .options = options,
    .options_bytes = sizeof(calibrate_options),
    .defaults = &defaults,
    .min_args = 1,
    .max_args = 1,
    .has_ranks = true,
    .is_long = true,
    .examples = examples,
    .run = run_calibrate,
};
