/* cmd_verify.c - `swage verify`: judge a quantized checkpoint; gates decide the exit code. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "formats/io/file.h"
#include "formats/io/watch.h"
#include "tools/card/card.h"
#include "tools/cli/cmd.h"
#include "tools/cli/names.h"
#include "tools/cli/speed_opt.h"
#include "tools/device/device_opt.h"
#include "tools/device/ranks.h"
#include "tools/report/report.h"
#include "tools/terminal/next_steps.h"
#include "tools/terminal/terminal.h"
#include "tools/verify/report_text.h"
#include "tools/verify/verify_ranks.h"
#include "verify/speed/turns.h"
#include "verify/verify.h"

#define NO_GATE (-1.0)

typedef struct verify_options {
    sw_cmd_common common;
    const char *against, *states, *report, *card, *html, *device, *kv_cache, *batches;
    sw_opt_list texts, tasks;
    int64_t window, max_windows, gap_windows, seed, prompt, steps, rounds;
    int with_speed, with_bos, no_gap, may_replace;
    uint64_t device_bytes;
    double gate[SW_GATE_COUNT];
} verify_options;

#define GATE_ROW(id, option, limit, text)                                                   \
    {.name = option, .group = SW_OPT_COMMON, .kind = SW_OPT_REAL,                           \
     .offset = offsetof(verify_options, gate[id]), .arg = "X", .min = 0, .max = limit,      \
     .help = text}

static const sw_opt options[] = {
    {.name = "against", .group = SW_OPT_COMMON, .kind = SW_OPT_TEXT,
     .offset = offsetof(verify_options, against), .arg = "MODEL", .is_model = true,
     .help = "the original, a directory, a GGUF or an id, to compare with; a quantized original "
             "counts as the values that its codes stand for"},
    {.name = "text", .group = SW_OPT_COMMON, .kind = SW_OPT_LIST,
     .offset = offsetof(verify_options, texts), .arg = "FILE",
     .help = "held-out text (UTF-8), chats (.jsonl) or tokens (.u16, .u32, .safetensors)"},
    {.name = "original-states", .group = SW_OPT_RESOURCES, .kind = SW_OPT_TEXT,
     .offset = offsetof(verify_options, states), .arg = "FILE",
     .help = "keep what the original computes for the text in FILE, or read it from there if FILE "
             "exists; halves the time of every further checkpoint"},
#define SW_GATE(id, key, option, side, about, have, highest, help) \
    GATE_ROW(SW_GATE_##id, option, highest, help),
#include "verify/base/gates.def"
#undef SW_GATE
    {.name = "task", .group = SW_OPT_COMMON, .kind = SW_OPT_LIST,
     .offset = offsetof(verify_options, tasks), .arg = "FILE",
     .help = "questions with known answers (.jsonl): accuracy, and which answers changed"},
    {.name = "speed", .group = SW_OPT_COMMON, .kind = SW_OPT_FLAG,
     .offset = offsetof(verify_options, with_speed), .set_to = 1,
     .help = "time decoding, prefill and linears, in turns with the original's"},
    SW_BATCH_ROW(verify_options, batches),
    SW_PROMPT_ROW(verify_options, prompt),
    {.name = "steps", .group = SW_OPT_EXPERT, .kind = SW_OPT_INT,
     .offset = offsetof(verify_options, steps), .arg = "N", .min = 1, .max = 1 << 20,
     .help = "with --speed: tokens decoded per turn at most (default 64)"},
    {.name = "rounds", .group = SW_OPT_EXPERT, .kind = SW_OPT_INT,
     .offset = offsetof(verify_options, rounds), .arg = "N", .min = SW_TURNS_MIN,
     .max = SW_TURNS_MAX, .help = "with --speed: rounds of turns (default 9)"},
    {.name = "window", .group = SW_OPT_QUALITY, .kind = SW_OPT_INT,
     .offset = offsetof(verify_options, window), .arg = "L", .min = 2, .max = 1 << 20,
     .help = "tokens per window (default: 2048 or the model's context)"},
    {.name = "max-windows", .group = SW_OPT_QUALITY, .kind = SW_OPT_INT,
     .offset = offsetof(verify_options, max_windows), .arg = "N", .min = 1, .max = 1e9,
     .help = "use the first N windows only"},
    {.name = "bos", .group = SW_OPT_QUALITY, .kind = SW_OPT_FLAG,
     .offset = offsetof(verify_options, with_bos), .set_to = 1,
     .help = "begin every window with the BOS token"},
    {.name = "gap-windows", .group = SW_OPT_EXPERT, .kind = SW_OPT_INT,
     .offset = offsetof(verify_options, gap_windows), .arg = "N", .min = 1, .max = 1e9,
     .help = "windows on which the kernels are compared with dequantized weights (default 4)"},
    {.name = "no-gap", .group = SW_OPT_EXPERT, .kind = SW_OPT_FLAG,
     .offset = offsetof(verify_options, no_gap), .set_to = 1,
     .help = "do not compare the kernels with dequantized weights"},
    {.name = "seed", .group = SW_OPT_EXPERT, .kind = SW_OPT_INT,
     .offset = offsetof(verify_options, seed), .arg = "N", .min = 0, .max = 9e15,
     .help = "seed of the bootstrap intervals (default 0)"},
    {.name = "report", .group = SW_OPT_COMMON, .kind = SW_OPT_TEXT,
     .offset = offsetof(verify_options, report), .arg = "FILE",
     .help = "also write the JSON report to FILE"},
    {.name = "card", .group = SW_OPT_COMMON, .kind = SW_OPT_TEXT,
     .offset = offsetof(verify_options, card), .arg = "FILE",
     .help = "write the checkpoint's model card with the figures of this run to FILE, for the Hub"},
    {.name = "html", .group = SW_OPT_COMMON, .kind = SW_OPT_TEXT,
     .offset = offsetof(verify_options, html), .arg = "FILE",
     .help = "also write a page to look at: verdict, errors by layer, sizes, kernels"},
    {.name = "force", .group = SW_OPT_COMMON, .kind = SW_OPT_FLAG,
     .offset = offsetof(verify_options, may_replace), .set_to = 1,
     .help = "replace an existing report, card or page"},
    SW_KV_CACHE_ROW(verify_options, kv_cache),
    SW_DEVICE_ROW(verify_options, device),
    SW_DEVICE_MEMORY_ROW(verify_options, device_bytes),
    SW_RANKS_ROW,
    SW_SPREAD_ROW,
    SW_CMD_THREADS_ROW,
    SW_CMD_MODEL_ROW,
    SW_CMD_COMMON_ROWS,
    {0},
};

static const verify_options defaults = {
    .batches = SW_SPEED_BATCHES, .prompt = 512, .steps = 64, .rounds = 9,
#define SW_GATE(id, key, option, side, about, have, highest, help) NO_GATE,
    .gate = {
#include "verify/base/gates.def"
    },
#undef SW_GATE
};

static sw_verify_options settings_of(const verify_options *o, const sw_run *run)
{
    sw_verify_options v = {0};

    v.checkpoint_dir = run->args[0];
    v.original_dir = o->against;
    v.states_path = o->states;
    v.text_paths = o->texts.items;
    v.n_texts = o->texts.n;
    v.task_paths = o->tasks.items;
    v.n_tasks = o->tasks.n;
    v.window = o->window;
    v.max_windows = o->max_windows;
    v.with_bos = o->with_bos != 0;
    v.kv_kind = sw_kv_kind_of(o->kv_cache);
    v.gap_windows = o->no_gap ? -1 : o->gap_windows;
    v.bootstrap.seed = (uint64_t)o->seed;
    for (int g = 0; g < SW_GATE_COUNT; g++) {
        v.has_gate[g] = o->gate[g] >= 0;
        v.gate[g] = o->gate[g];
    }
    v.n_threads = (int)o->common.threads;
    v.n_threads_alone = sw_ranks_threads_alone(run->team, v.n_threads);
    v.progress = &run->term->progress;
    return v;
}

static sw_code write_report(const char *path, const cJSON *object, bool may_replace, sw_err *err)
{
    char *text = NULL;
    sw_code rc = sw_json_print(&text, object, true, err);

    if (rc != SW_OK) return rc;
    rc = sw_file_put_new(path, text, strlen(text), may_replace, err);
    sw_mem_put(text);
    return rc;
}

static sw_code write_page(const sw_run *run, const cJSON *object, sw_err *err)
{
    const verify_options *o = run->options;
    sw_html_request page = {.out = o->html, .may_replace = o->may_replace != 0,
                            .checkpoints = run->args, .n_checkpoints = 1, .verified = object,
                            .n_threads = (int)o->common.threads,
                            .progress = &run->term->progress};

    return sw_html_report(&page, err);
}

/* What the run has not looked at yet comes first. */
static void print_next(const sw_run *run, const verify_options *o)
{
    const char *checkpoint = run->args[0];
    sw_next_steps next = {.is_silent = o->common.quiet != 0};

    if (!o->against)
        SW_NEXT_STEP(&next, "errors against the original, KL divergence", "verify", checkpoint,
                     "--against", "MODEL", "--text", "FILE");
    else if (!o->texts.n)
        SW_NEXT_STEP(&next, "KL divergence and perplexity", "verify", checkpoint, "--against",
                     o->against, "--text", "FILE");
    if (o->report)
        SW_NEXT_STEP(&next, "a page of all this", "report", checkpoint, "--results", o->report,
                     "-o", "report.html");
    else if (o->against && o->texts.n && !o->html)
        SW_NEXT_STEP(&next, "a page of all this", "verify", checkpoint, "--against", o->against,
                     "--text", o->texts.items[0], "--html", "report.html");
}

static sw_code show(sw_run *run, const verify_options *o, const sw_report *report, sw_err *err)
{
    cJSON *object = NULL;
    sw_err failed = {0};
    sw_code rc;

    if ((rc = sw_report_json(&object, report, err)) != SW_OK) goto done;
    if (o->report &&
        (rc = write_report(o->report, object, o->may_replace != 0, err)) != SW_OK)
        goto done;
    if (o->card &&
        (rc = sw_card_of_report(o->card, report, o->may_replace != 0, err)) != SW_OK)
        goto done;
    if (o->html && (rc = write_page(run, object, err)) != SW_OK) goto done;
    sw_term_clear(run->term);
    if (o->common.json) {
        rc = sw_cmd_json_print(run, object, err);
    } else if ((rc = sw_report_print(stdout, report, sw_terminal_columns(STDOUT_FILENO), err)) ==
               SW_OK) {
        if (sw_report_verdict(report, &failed) == SW_OK) print_next(run, o);
        run->has_result = true;
    }
done:
    cJSON_Delete(object);
    return rc;
}

/* Nothing is judged for a file that may not be written. */
static sw_code check_outputs(const verify_options *o, sw_err *err)
{
    if (o->report && !o->may_replace && sw_path_exists(o->report))
        return SW_FAIL(err, SW_E_USAGE, "%s: exists; give --force to replace it", o->report);
    if (o->card && !o->may_replace && sw_path_exists(o->card))
        return SW_FAIL(err, SW_E_USAGE, "%s: exists; give --force to replace it", o->card);
    return o->html ? sw_html_report_check(o->html, o->may_replace != 0, err) : SW_OK;
}

static sw_code run_verify(sw_run *run, sw_err *err)
{
    const verify_options *o = run->options;
    sw_verify_options settings = settings_of(o, run);
    const char *const models[2] = {settings.checkpoint_dir, settings.original_dir};
    sw_speed_request speed = {.prompt = o->prompt, .n_steps = o->steps,
                              .n_rounds = (int)o->rounds};
    sw_judge_ranks ranks;
    sw_device_set gpus = {.n = 0};
    sw_report report = {0};
    sw_code rc = sw_int_list(speed.batches, &speed.n_batches, SW_SPEED_BATCHES_MAX, o->batches,
                             "--batch", err);

    if (rc != SW_OK || (rc = check_outputs(o, err)) != SW_OK ||
        (rc = sw_verify_ranks_check(run->team, models, o->kv_cache, err)) != SW_OK ||
        (rc = sw_device_option_open_set(&gpus, o->device, o->device_bytes, run->devices,
                                        o->common.spread_layers != 0, err)) != SW_OK)
        return rc;
    if (gpus.n) settings.gpu = gpus.gpus[0];
    if (gpus.n > 1) settings.gpus = &gpus;
    gpus.may_stream = !o->common.spread_layers; /* as it would in a process of each device */
    if (o->with_speed) settings.speed = &speed;
    settings.ranks = sw_verify_ranks_of(&ranks, run->team);
    if ((rc = sw_verify_run(&report, &settings, err)) != SW_OK ||
        (rc = sw_watch_check(err)) != SW_OK || /* figures of bytes that the report does not name */
        sw_team_rank(run->team) > 0)
        goto done;
    sw_term_clear(run->term);
    rc = show(run, o, &report, err);
    if (rc == SW_OK) rc = sw_report_verdict(&report, err);
done:
    sw_report_free(&report);
    sw_device_set_close(&gpus);
    return rc;
}

/* What is timed is one device's. */
static bool may_spread(const void *given)
{
    return !((const verify_options *)given)->with_speed;
}

/* Both models are on the device for a text. */
static int64_t model_bytes(int64_t *cap_bytes, const void *given, const char *const *args)
{
    const verify_options *o = given;
    const int64_t have = sw_verify_files_bytes(args[0]);
    const int64_t against = o->against ? sw_verify_files_bytes(o->against) : 0;

    *cap_bytes = o->device_bytes > INT64_MAX ? INT64_MAX : (int64_t)o->device_bytes;
    return have && (against || !o->against) ? have + against : 0;
}

/* Ranks share the windows of a text and nothing else. */
static bool is_alone(const void *given)
{
    const verify_options *o = given;

    return o->with_speed || o->states || !o->texts.n;
}

static const char *const examples[] = {
    "swage verify build/demo/gptq --against calib_data/tiny-llama --text calib_data/eval.u16",
    "swage verify OUT --against MODEL --text heldout.txt --max-kl 0.1 --min-top1 0.85",
    "swage verify OUT --against MODEL --text heldout.txt --device cuda",
    "swage verify OUT --against MODEL --text heldout.txt --device cuda:0,1",
    "swage verify OUT --against MODEL --task calib_data/tasks.jsonl --max-flips 0.05",
    "swage verify OUT --against org/name --text heldout.txt --card card.md",
    "swage verify OUT --against MODEL --text heldout.txt --html report.html",
    "swage verify OUT --against MODEL --speed --min-speedup 1.5 --batch 1,8",
    "swage verify MODEL.gguf --against MODEL --text heldout.txt",
    "swage verify MODEL --text heldout.txt",
    "swage verify OUT --against MODEL --text heldout.txt --arch-like llama",
    "for q in rtn gptq; do swage verify $q --against MODEL --text T --original-states T.st; done",
    "swage verify OUT --json --report report.json", NULL};

const sw_cmd sw_cmd_verify = {
    .name = "verify",
    .args = "CHECKPOINT [--against MODEL] [--text FILE...] [--task FILE...] [--speed]",
    .summary = "judge a checkpoint with a decoder that shares no code with quantize",
    .more = "CHECKPOINT and MODEL are model directories, GGUF files, or ids (org/name,\n"
            "org/name@revision) in the Hugging Face cache, quantized or not.\n"
            "Always: every tensor is decoded and checked, and the config must describe what is\n"
            "stored. With --against: the error of every tensor; config, tokenizer and other\n"
            "files must be those of the original. With --text: perplexity. With both: KL\n"
            "divergence and top-1 agreement, computed with the integer kernels. With --task:\n"
            "accuracy on questions of multiple choice (a line: query, choices, gold), cloze\n"
            "(context, continuation) or short generations (prompt, answer). With --speed:\n"
            "tokens per second of decoding and prefill, in turns with the original, speed-up\n"
            "with its interval, share of the roofline, linears that lose. The exit code\n"
            "is 1 if a gate fails, a tensor is broken, or a field or file differs from the\n"
            "original, and 8 if times scatter too much to decide a gate on speed.\n"
            "manifest.json tells through which conversions a checkpoint comes from its\n"
            "original.\n"
            "With --device cuda both models run on the CUDA device, in bf16. Linears of a\n"
            "format without a CUDA kernel are decoded, and their inputs are quantized and\n"
            "dequantized; the report counts them. The kernel gap and the output errors are\n"
            "measured on the CPU.\n"
            "With --ranks, several devices or a launcher such as mpirun the windows of the text\n"
            "are run by several processes, each with both models in memory; the report is that\n"
            "of one process. Everything else is done by the first. Where several devices are\n"
            "taken and the models have no room on each, but on all of them together, one process\n"
            "spreads their layers instead, and says so; the report is the same.\n",
    .options = options,
    .options_bytes = sizeof(verify_options),
    .defaults = &defaults,
    .takes_any_family = true,
    .min_args = 1,
    .max_args = 1,
    .is_long = true,
    .has_ranks = true,
    .is_alone = is_alone,
    .may_spread = may_spread,
    .model_bytes = model_bytes,
    .examples = examples,
    .run = run_verify,
};
