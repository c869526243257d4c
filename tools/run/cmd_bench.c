/* cmd_bench.c - `swage bench`: the matrix kernels against OpenBLAS and the memory, as a table, as
 * JSON, or as the lines that tests/bench keeps. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "kernels/kernel.h"
#include "tools/cli/cmd.h"
#include "tools/cli/names.h"
#include "tools/cli/speed_opt.h"
#include "tools/device/device_opt.h"
#include "tools/run/bench_checkpoint.h"
#include "tools/run/bench_decode.h"
#include "tools/terminal/table.h"
#include "tools/terminal/terminal.h"
#include "verify/speed/speed.h"
#include "verify/speed/speed_data.h"

typedef struct bench_options {
    sw_cmd_common common;
    const char *shape, *tokens, *weights, *device, *decode, *kv_cache, *against, *batches;
    uint64_t device_bytes;
    int64_t group_size, rounds, context, steps, prompt;
    double seconds, min_speedup, min_tokens_s;
    int is_asymmetric, csv, all;
} bench_options;

static const bench_options defaults = {
    .shape = "4096x14336", .tokens = "1,4,16,64,256", .group_size = 128, .rounds = 7,
    .seconds = 2.0, .context = 128, .steps = 128, .batches = SW_SPEED_BATCHES, .prompt = 512,
    .min_speedup = -1, .min_tokens_s = -1};

static const char *weights_name(int i)
{
    return i < sw_n_speed_stores ? sw_speed_stores[i].name : NULL;
}

static const sw_opt options[] = {
    {.name = "against", .group = SW_OPT_COMMON, .kind = SW_OPT_TEXT,
     .offset = offsetof(bench_options, against), .arg = "MODEL", .is_model = true,
     .help = "of CHECKPOINT: time the original in turns with it"},
    SW_BATCH_ROW(bench_options, batches),
    SW_PROMPT_ROW(bench_options, prompt),
    {.name = "min-speedup", .group = SW_OPT_COMMON, .kind = SW_OPT_REAL,
     .offset = offsetof(bench_options, min_speedup), .arg = "X", .max = 1e9,
     .help = "of CHECKPOINT: exit 1 when it decodes less than X times as fast as the original, in "
             "any batch"},
    {.name = "min-tokens-per-s", .group = SW_OPT_COMMON, .kind = SW_OPT_REAL,
     .offset = offsetof(bench_options, min_tokens_s), .arg = "X", .max = 1e15,
     .help = "of CHECKPOINT: exit 1 when it decodes fewer tokens per second, all sequences "
             "together, in any batch"},
    {.name = "shape", .group = SW_OPT_COMMON, .kind = SW_OPT_TEXT,
     .offset = offsetof(bench_options, shape), .arg = "KxN",
     .help = "inputs x outputs of the weight (default 4096x14336)"},
    {.name = "m", .group = SW_OPT_COMMON, .kind = SW_OPT_TEXT,
     .offset = offsetof(bench_options, tokens), .arg = "M,M,...",
     .help = "tokens per product (default 1,4,16,64,256)"},
    {.name = "weights", .group = SW_OPT_COMMON, .kind = SW_OPT_TEXT,
     .offset = offsetof(bench_options, weights), .arg = "W,W,...", .offers = weights_name,
     .help = "only these kinds of weights: bf16, w4a16, w8a8, fp8, nvfp4a16, ... (default all)"},
    {.name = "group-size", .group = SW_OPT_QUALITY, .kind = SW_OPT_INT,
     .offset = offsetof(bench_options, group_size), .arg = "N", .min = 0, .max = 1 << 20,
     .help = "weights that share one scale; 0: one scale per output channel (default 128)"},
    {.name = "asym", .group = SW_OPT_QUALITY, .kind = SW_OPT_FLAG,
     .offset = offsetof(bench_options, is_asymmetric), .set_to = 1,
     .help = "give quantized weights zero points"},
    {.name = "rounds", .group = SW_OPT_EXPERT, .kind = SW_OPT_INT,
     .offset = offsetof(bench_options, rounds), .arg = "N", .min = 1, .max = SW_SPEED_ROUNDS_MAX,
     .help = "least number of timed rounds (default 7)"},
    {.name = "seconds", .group = SW_OPT_EXPERT, .kind = SW_OPT_REAL,
     .offset = offsetof(bench_options, seconds), .arg = "S", .min = 0, .max = 3600,
     .help = "time further rounds of an M until this many seconds have passed (default 2)"},
    {.name = "all", .group = SW_OPT_EXPERT, .kind = SW_OPT_FLAG,
     .offset = offsetof(bench_options, all), .set_to = 1,
     .help = "also time the kernels that would not be chosen"},
    SW_DEVICE_ROW(bench_options, device),
    SW_DEVICE_MEMORY_ROW(bench_options, device_bytes),
    {.name = "decode", .group = SW_OPT_COMMON, .kind = SW_OPT_TEXT,
     .offset = offsetof(bench_options, decode), .arg = "SHAPE",
     .help = "time a whole model of this shape (1b, 8b, 70b; of experts 30b-a3b, mixtral, "
             "gpt-oss-20b) on a CUDA device instead, decoding --m sequences together"},
    SW_KV_CACHE_ROW(bench_options, kv_cache),
    {.name = "context", .group = SW_OPT_QUALITY, .kind = SW_OPT_INT,
     .offset = offsetof(bench_options, context), .arg = "N", .min = 1, .max = 1 << 20,
     .help = "tokens of each sequence before the first timed one (default 128)"},
    {.name = "steps", .group = SW_OPT_EXPERT, .kind = SW_OPT_INT,
     .offset = offsetof(bench_options, steps), .arg = "N", .min = 1, .max = 1 << 20,
     .help = "tokens decoded per round (default 128)"},
    {.name = "csv", .group = SW_OPT_COMMON, .kind = SW_OPT_FLAG,
     .offset = offsetof(bench_options, csv), .set_to = 1,
     .help = "print comma-separated lines without a heading"},
    SW_CMD_THREADS_ROW,
    SW_CMD_MODEL_ROW,
    SW_CMD_COMMON_ROWS,
    {0},
};

static sw_code read_shape(sw_speed_options *o, const char *text, sw_err *err)
{
    const char *cross = strchr(text, 'x');
    sw_code rc;

    if (!cross) return SW_FAIL(err, SW_E_USAGE, "--shape %s: give inputs x outputs, as 4096x14336",
                               text);
    if ((rc = sw_int_between(&o->k_in, text, cross, "--shape", err)) != SW_OK) return rc;
    return sw_int_between(&o->n_out, cross + 1, text + strlen(text), "--shape", err);
}

static bool kernel_row(const void *self, int64_t i, sw_cells out)
{
    const sw_speed_report *r = self;
    const sw_speed_row *row = &r->rows[i];

    if (i >= r->n_rows) return false;
    (void)snprintf(out[0], SW_CELL_BYTES, "%" PRId64, row->m);
    (void)snprintf(out[1], SW_CELL_BYTES, "%s", row->name);
    (void)snprintf(out[2], SW_CELL_BYTES, "%s", row->weights);
    (void)snprintf(out[3], SW_CELL_BYTES, "%.1f", row->time.median_us);
    (void)snprintf(out[4], SW_CELL_BYTES, "%.1f .. %.1f", row->time.min_us, row->time.max_us);
    (void)snprintf(out[5], SW_CELL_BYTES, "%.1f", row->gb_s);
    (void)snprintf(out[6], SW_CELL_BYTES, "%.0f%%", 100 * row->bandwidth_share);
    (void)snprintf(out[7], SW_CELL_BYTES, "%.1f", row->gflop_s);
    (void)snprintf(out[8], SW_CELL_BYTES, "%.2fx", row->speedup);
    return true;
}

static void print_table(const bench_options *o, const sw_speed_report *r)
{
    const int columns = sw_terminal_columns(STDOUT_FILENO);
    const sw_table table = {
        .headings = {"M", "kernel", "weights", "us", "min .. max", "GB/s", "of mem", "GFLOP/s",
                     "speed"},
        .kinds = {SW_CELL_NUMBER, SW_CELL_NAME, SW_CELL_FIXED, SW_CELL_NUMBER, SW_CELL_TEXT,
                  SW_CELL_NUMBER, SW_CELL_NUMBER, SW_CELL_NUMBER, SW_CELL_NUMBER},
        .n_columns = 9, .self = r, .row = kernel_row};

    sw_line_print(stdout, NULL, columns, "%s, %d thread%s, last-level cache %.0f MB", r->cpu,
                  r->n_threads, r->n_threads == 1 ? "" : "s", (double)r->cache_bytes * 1e-6);
    sw_line_print(stdout, NULL, columns, "reads %.1f GB/s; OpenBLAS (%s) sgemm reaches %.0f "
                  "GFLOP/s", r->read_gb_s, r->blas_core, r->sgemm_gflop_s);
    sw_line_print(stdout, NULL, columns, "weights %s (inputs x outputs), group %" PRId64
                  "%s; medians, all checked first", o->shape, o->group_size,
                  o->is_asymmetric ? " with zeros" : "");
    (void)putchar('\n');
    sw_table_print(stdout, &table, columns);
    (void)putchar('\n');
    sw_line_print(stdout, NULL, columns, "speed: against OpenBLAS float32 on the same shape and "
                  "threads, same rounds");
}

static void print_csv(const bench_options *o, const sw_speed_report *r)
{
    for (int i = 0; i < r->n_rows; i++) {
        const sw_speed_row *row = &r->rows[i];

        (void)printf("%s,%d,%s,%" PRId64 ",%s,%" PRId64 ",%s,%s,%d,%.1f,%.1f,%.1f,%.2f,%.1f,%.2f,"
                     "%.3f,%.3f\n",
                     r->cpu, r->n_threads, o->shape, o->group_size,
                     o->is_asymmetric ? "asym" : "sym", row->m, row->name, row->weights,
                     row->time.n_rounds, row->time.median_us, row->time.min_us, row->time.max_us,
                     row->gb_s, row->gflop_s, r->read_gb_s, row->bandwidth_share, row->speedup);
    }
}

static bool add_row(cJSON *rows, const sw_speed_row *row)
{
    cJSON *entry = cJSON_CreateObject();

    if (!entry || !cJSON_AddItemToArray(rows, entry)) return false;
    return cJSON_AddNumberToObject(entry, "m", (double)row->m) &&
           cJSON_AddStringToObject(entry, "kernel", row->name) &&
           cJSON_AddStringToObject(entry, "weights", row->weights) &&
           cJSON_AddBoolToObject(entry, "selected", row->is_selected) &&
           cJSON_AddNumberToObject(entry, "rounds", row->time.n_rounds) &&
           cJSON_AddNumberToObject(entry, "median_us", row->time.median_us) &&
           cJSON_AddNumberToObject(entry, "min_us", row->time.min_us) &&
           cJSON_AddNumberToObject(entry, "max_us", row->time.max_us) &&
           cJSON_AddNumberToObject(entry, "error", row->error) &&
           cJSON_AddNumberToObject(entry, "gb_s", row->gb_s) &&
           cJSON_AddNumberToObject(entry, "gflop_s", row->gflop_s) &&
           cJSON_AddNumberToObject(entry, "bandwidth_share", row->bandwidth_share) &&
           cJSON_AddNumberToObject(entry, "speedup", row->speedup);
}

static sw_code print_json(sw_run *run, const bench_options *o, const sw_speed_report *r,
                          sw_err *err)
{
    cJSON *object = NULL, *rows;
    sw_code rc = sw_cmd_json_new(&object, "bench", err);
    bool ok;

    if (rc != SW_OK) return rc;
    ok = cJSON_AddStringToObject(object, "cpu", r->cpu) &&
         cJSON_AddNumberToObject(object, "threads", r->n_threads) &&
         cJSON_AddStringToObject(object, "shape", o->shape) &&
         cJSON_AddNumberToObject(object, "group_size", (double)o->group_size) &&
         cJSON_AddBoolToObject(object, "symmetric", !o->is_asymmetric) &&
         cJSON_AddNumberToObject(object, "cache_bytes", (double)r->cache_bytes) &&
         cJSON_AddNumberToObject(object, "read_gb_s", r->read_gb_s) &&
         cJSON_AddStringToObject(object, "openblas_core", r->blas_core) &&
         cJSON_AddNumberToObject(object, "openblas_sgemm_gflop_s", r->sgemm_gflop_s);
    rows = ok ? cJSON_AddArrayToObject(object, "rows") : NULL;
    for (int i = 0; rows && i < r->n_rows; i++)
        if (!add_row(rows, &r->rows[i])) rows = NULL;
    if ((rc = sw_cmd_json_added(rows, err)) == SW_OK) rc = sw_cmd_json_print(run, object, err);
    cJSON_Delete(object);
    return rc;
}

static sw_code bench_decode(sw_run *run, const bench_options *o, const int64_t *batches,
                            int n_batches, sw_err *err)
{
    const sw_bench_decode b = {.shape = o->decode, .device = o->device,
                               .device_bytes = o->device_bytes, .weights = o->weights,
                               .group_elems = o->group_size, .context = o->context,
                               .steps = o->steps, .batches = batches, .n_batches = n_batches,
                               .rounds = (int)o->rounds, .is_csv = o->csv != 0,
                               .kv_kind = sw_kv_kind_of(o->kv_cache)};

    return sw_bench_decode_run(run, &b, err);
}

static sw_code bench_checkpoint(sw_run *run, const bench_options *o, sw_err *err)
{
    sw_bench_checkpoint b = {.checkpoint = run->args[0], .against = o->against,
                             .device = o->device, .device_bytes = o->device_bytes,
                             .request = {.prompt = o->prompt, .n_steps = o->steps,
                                         .n_rounds = (int)o->rounds},
                             .kv_kind = sw_kv_kind_of(o->kv_cache),
                             .min_speedup = o->min_speedup, .min_tokens_s = o->min_tokens_s};
    sw_code rc = sw_int_list(b.request.batches, &b.request.n_batches, SW_SPEED_BATCHES_MAX,
                             o->batches, "--batch", err);

    if (o->decode || o->csv || o->weights)
        return SW_FAIL(err, SW_E_USAGE, "--decode, --weights and --csv are about random weights: "
                       "leave them or %s out", run->args[0]);
    return rc == SW_OK ? sw_bench_checkpoint_run(run, &b, err) : rc;
}

static sw_code run_bench(sw_run *run, sw_err *err)
{
    const bench_options *o = run->options;
    int64_t tokens[SW_SPEED_TOKENS_MAX];
    sw_speed_report report = {0};
    sw_speed_options speed = {
        .group_elems = o->group_size, .is_asymmetric = o->is_asymmetric != 0,
        .is_all = o->all != 0, .tokens = tokens,
        .weights = o->weights, .n_threads = (int)o->common.threads,
        .rounds = (int)o->rounds, .seconds = o->seconds,
        .progress = &run->term->progress};
    sw_code rc;

    if (run->n_args) return bench_checkpoint(run, o, err);
    rc = sw_int_list(tokens, &speed.n_tokens, SW_SPEED_TOKENS_MAX, o->tokens, "--m", err);
    if (rc != SW_OK) return rc;
    if (o->decode) return bench_decode(run, o, tokens, speed.n_tokens, err);
    if (o->device && strcmp(o->device, "cpu") != 0)
        return SW_FAIL(err, SW_E_USAGE, "a CUDA device runs --decode only so far; make "
                       "gpu-bench times its matrix kernels");
    if ((rc = read_shape(&speed, o->shape, err)) != SW_OK ||
        (rc = sw_speed_run(&report, &speed, err)) != SW_OK)
        return rc;
    sw_term_clear(run->term);
    if (o->common.json) rc = print_json(run, o, &report, err);
    else (o->csv ? print_csv : print_table)(o, &report);
    sw_speed_free(&report);
    return rc;
}

static const char *const examples[] = {
    "swage bench OUT --against MODEL",
    "swage bench OUT --against MODEL --batch 1,8 --prompt 128 --min-speedup 1.2",
    "swage bench OUT --against MODEL --device cuda --json",
    "swage bench", "swage bench --shape 14336x4096 --m 1,8 --threads 1 --all",
    "swage bench --shape 4096x4096 --weights w8a16,w8a8 --m 1,64",
    "swage bench --shape 4096x4096 --group-size 32 --asym --json",
    "swage bench --decode 8b --device cuda --m 1,8,64 --weights w4a16,bf16", NULL};

const sw_cmd sw_cmd_bench = {
    .name = "bench",
    .args = "[CHECKPOINT [--against MODEL]] [--shape KxN] [--m M,...]",
    .summary = "time a checkpoint beside its original, or the matrix kernels",
    .more = "With CHECKPOINT: the model itself, decoding and prefill at each --batch, and each\n"
            "kind of its linears, in turns with those of --against, on the processor or with\n"
            "--device cuda on the card: tokens per second, speed-up with its interval, share of\n"
            "the roofline, and linears that are slower than the original's. Gates decide the\n"
            "exit code: 1, or 8 where times scatter too much for a verdict.\n"
            "Without: the matrix kernels against OpenBLAS and the memory bandwidth. It first\n"
            "compares every kernel with its reference and exits with 1 if one is outside its\n"
            "tolerance. Then it times all of them in turns, on random weights larger than the\n"
            "caches.\n",
    .options = options,
    .options_bytes = sizeof(bench_options),
    .defaults = &defaults,
    .max_args = 1,
    .is_long = true,
    .examples = examples,
    .run = run_bench,
};
