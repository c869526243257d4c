/* cmd_sweep.c - `swage sweep`: several schemes quantized, each judged, and the one to take. */
#include <stdio.h>
#include <string.h>

#include "formats/io/file.h"
#include "formats/num/pow2.h"
#include "tools/cli/names.h"
#include "tools/device/device_opt.h"
#include "tools/device/ranks.h"
#include "tools/recipe/group_sizes.h"
#include "tools/recipe/presets.h"
#include "tools/sweep/sweep_job.h"

#define AT(field) .offset = offsetof(sw_quantize_options, field), .listed_by = "quantize"
#define SWEEP_AT(field) .offset = offsetof(sw_sweep_options, field)

/* With all rows of quantize. */
static const sw_opt rows[] = {
#include "tools/quantize/quantize_rows.def"
    SW_DEVICE_ROW(sw_quantize_options, device),
    SW_RANKS_ROW,
    SW_CMD_THREADS_ROW,
    SW_CMD_MODEL_ROW,
    SW_CMD_COMMON_ROWS,
    {.name = "schemes", .group = SW_OPT_COMMON, .kind = SW_OPT_CHOICE,
     SWEEP_AT(quantize.scheme), .arg = "S,...", .choices = sw_name_of_scheme, .is_many = true,
     .help = "what to try"},
    {.name = "text", .group = SW_OPT_COMMON, .kind = SW_OPT_LIST, SWEEP_AT(texts), .arg = "FILE",
     .help = "held-out text (UTF-8), chats (.jsonl) or tokens (.u16, .u32, .safetensors) to "
             "measure the divergence from the original on (required)"},
    {.name = "max-kl", .group = SW_OPT_COMMON, .kind = SW_OPT_REAL, SWEEP_AT(max_kl), .arg = "X",
     .min = 0, .max = 1e9,
     .help = "choose the smallest checkpoint whose mean KL divergence is at most X nats"},
    {.name = "max-size", .group = SW_OPT_COMMON, .kind = SW_OPT_SIZE, SWEEP_AT(max_bytes),
     .arg = "BYTES",
     .help = "choose the checkpoint with the least divergence whose files are at most this large; "
             "with --max-kl, the smallest that keeps both"},
    {.name = "keep-best", .group = SW_OPT_COMMON, .kind = SW_OPT_FLAG, SWEEP_AT(keep_best),
     .set_to = 1,
     .help = "remove all checkpoints of the sweep but the chosen one"},
    {.name = "window", .group = SW_OPT_QUALITY, .kind = SW_OPT_INT, SWEEP_AT(window), .arg = "L",
     .min = 2, .max = 1 << 20,
     .help = "tokens per window of --text (default: 2048 or the model's context)"},
    {.name = "max-windows", .group = SW_OPT_QUALITY, .kind = SW_OPT_INT, SWEEP_AT(max_windows),
     .arg = "N", .min = 1, .max = 1e9,
     .help = "use the first N windows only"},
    {0},
};

static const sw_sweep_options defaults = {.quantize = {SW_QUANTIZE_DEFAULTS}, .max_kl = -1};

static bool is_given(const sw_run *run, const char *name)
{
    for (int i = 0; rows[i].name; i++)
        if (run->is_set[i] && !strcmp(rows[i].name, name)) return true;
    return false;
}

static sw_code check_request(const sw_run *run, const sw_sweep_options *o, sw_err *err)
{
    if (!o->quantize.out)
        return SW_FAIL(err, SW_E_USAGE, "say where the checkpoints go: -o DIR");
    if (!o->texts.n)
        return SW_FAIL(err, SW_E_USAGE, "a sweep measures the divergence from the original on "
                       "held-out text: --text FILE");
    if (o->quantize.html)
        return SW_FAIL(err, SW_E_USAGE, "the page of a sweep is sweep.html in the directory of -o; "
                       "leave --html out");
    if (is_given(run, "scheme") && is_given(run, "schemes"))
        return SW_FAIL(err, SW_E_USAGE, "--schemes and --scheme are the same; give one of them");
    if (o->keep_best && o->max_kl < 0 && !o->max_bytes)
        return SW_FAIL(err, SW_E_USAGE, "--keep-best keeps what --max-kl or --max-size chooses; "
                       "give one of them");
    return SW_OK;
}

/* Options and recipe as quantize reads them; --schemes counts as --scheme. */
static sw_code read_options(sw_sweep_job *s, sw_run *run, sw_err *err)
{
    int64_t n = (int64_t)(sizeof rows / sizeof *rows);
    sw_run own = *run;
    bool *is_set = NULL;
    sw_code rc = SW_ARENA_TAKE(&is_set, run->arena, n, err);

    if (rc != SW_OK) return rc;
    for (int i = 0; rows[i].name; i++)
        is_set[i] = run->is_set[i] || (!strcmp(rows[i].name, "scheme") && is_given(run, "schemes"));
    own.is_set = is_set;
    s->base.model_dir = run->args[0];
    s->base.progress = &run->term->progress;
    s->base.team = run->team;
    return sw_quantize_job_options(&s->base, &own, &s->o->quantize, rows, err);
}

/* What an earlier run found; a file that cannot be read says nothing, and all is measured anew. */
static void read_before(sw_sweep_job *s)
{
    static const sw_json_caps caps = {.max_bytes = (size_t)16 << 20, .max_depth = 8,
                                      .max_values = 100000};
    char path[SW_PATH_BYTES];
    sw_map map = {0};
    sw_err ignored = {0};

    if (sw_path_join(path, s->o->quantize.out, "sweep.json", &ignored) != SW_OK ||
        !sw_path_exists(path) || sw_map_open_own(&map, path, &ignored) != SW_OK)
        return;
    (void)!sw_json_parse(&s->before, (const char *)map.data, map.size_bytes, &caps, path, &ignored);
    sw_map_close(&map);
}

static sw_code show(sw_run *run, const sw_sweep_job *s, sw_err *err)
{
    cJSON *object = NULL;
    sw_code rc;

    sw_term_clear(run->term);
    if (!s->o->quantize.common.json) {
        sw_sweep_print(s);
        run->has_result = true;
        return SW_OK;
    }
    if ((rc = sw_sweep_json(&object, s, err)) == SW_OK) rc = sw_cmd_json_print(run, object, err);
    cJSON_Delete(object);
    return rc;
}

/* A checkpoint that failed goes before a choice that none fits: the choice may be another then. */
static sw_code verdict(const sw_sweep_job *s, const sw_sweep_limits *limits, sw_err *err)
{
    int near = sw_sweep_nearest(s->points, s->many.n, limits);
    char size[16];

    for (int i = 0; i < s->many.n; i++)
        if (s->rows[i].failure.code != SW_OK)
            return SW_FAIL(err, s->rows[i].failure.code, "%s: %s", s->rows[i].job->name,
                           s->rows[i].failure.text);
    if (s->chosen >= 0) return SW_OK;
    sw_term_bytes(size, near < 0 ? 0 : (double)s->points[near].bytes);
    return SW_FAIL(err, SW_E_GATE, "no checkpoint keeps the limits; the nearest is %s, %s with a "
                   "KL of %.5f", near < 0 ? "none" : s->rows[near].job->name, size,
                   near < 0 ? 0.0 : s->points[near].kl);
}

/* Of rank 0: which to take of what was made and measured. */
static sw_code choose(sw_sweep_job *s, sw_run *run, sw_err *err)
{
    const sw_sweep_limits limits = {s->o->max_kl, s->o->max_bytes};
    sw_code rc;

    sw_sweep_find_front(s->points, s->many.n);
    s->chosen = sw_sweep_choose(s->points, s->many.n, &limits);
    if ((rc = sw_sweep_write(s, err)) != SW_OK || (rc = sw_sweep_page(s, err)) != SW_OK ||
        (rc = show(run, s, err)) != SW_OK || (rc = verdict(s, &limits, err)) != SW_OK)
        return rc;
    return s->o->keep_best ? sw_sweep_keep_best(s, err) : SW_OK;
}

static sw_code work(sw_sweep_job *s, sw_run *run, sw_err *err)
{
    sw_code rc;

    if ((rc = sw_quantize_many_check(&s->many, run, &s->base, err)) != SW_OK ||
        (rc = SW_ARENA_TAKE(&s->rows, run->arena, s->many.n, err)) != SW_OK ||
        (rc = SW_ARENA_TAKE(&s->points, run->arena, s->many.n, err)) != SW_OK)
        return rc;
    read_before(s);
    if ((rc = sw_quantize_many_run(&s->many, err)) != SW_OK ||
        (rc = sw_device_option_open(&s->gpu, s->o->quantize.device, 0, err)) != SW_OK ||
        (rc = sw_sweep_measure(s, err)) != SW_OK) {
        sw_quantize_many_say_kept(&s->many, err);
        return rc;
    }
    return sw_team_rank(run->team) == 0 ? choose(s, run, err) : SW_OK;
}

static sw_code run_sweep(sw_run *run, sw_err *err)
{
    sw_sweep_job *s = NULL;
    sw_code rc;

    if ((rc = SW_ARENA_TAKE(&s, run->arena, 1, err)) != SW_OK) return rc;
    s->o = run->options;
    s->chosen = -1;
    if ((rc = check_request(run, s->o, err)) == SW_OK &&
        (rc = read_options(s, run, err)) == SW_OK)
        rc = work(s, run, err);
    cJSON_Delete(s->before);
    sw_kept_states_close(&s->states);
    sw_device_close(s->gpu);
    sw_quantize_many_free(&s->many);
    sw_quantize_job_free(&s->base);
    return rc;
}

static const char *const examples[] = {
    "swage sweep calib_data/tiny-llama -o build/sweep -m rtn -s W8A16 --text calib_data/eval.u16",
    "swage sweep MODEL -o DIR --schemes W3A16,W4A16 --calib C.txt --text T.txt --max-kl 0.05",
    "swage sweep MODEL -o DIR --schemes W4A16,W8A16 --calib C.txt --text T.txt --max-size 4.5G",
    "swage sweep MODEL -o DIR --schemes W4A16 --format gptq,swage --calib C.txt --text T.txt",
    NULL};

const sw_cmd sw_cmd_sweep = {
    .name = "sweep",
    .args = "MODEL -o DIR --schemes S,... --text FILE... [options of quantize]",
    .summary = "quantize by several schemes, measure each, and name the one to take",
    .more = "Each scheme becomes a checkpoint DIR/SCHEME-FORMAT, the same bytes as by quantize,\n"
            "and is verified against MODEL over --text (DIR/SCHEME-FORMAT.verify.json). Table and\n"
            "DIR/sweep.json name size, divergence and the front: those that no other one beats in\n"
            "both. DIR/sweep.html is the page of `swage report` for all of them.\n"
            "The same command again repeats nothing that is finished, and more schemes can be\n"
            "added. Nothing is removed without --keep-best. The exit code is 1 when no checkpoint\n"
            "keeps --max-kl and --max-size. Ranks share the quantizing, and of\n"
            "the measuring the windows of --text, as in `swage verify`.\n",
    .options = rows,
    .options_bytes = sizeof(sw_sweep_options),
    .defaults = &defaults,
    .min_args = 1,
    .max_args = 1,
    .has_ranks = true,
    .is_long = true,
    .examples = examples,
    .run = run_sweep,
};
