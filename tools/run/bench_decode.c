/* bench_decode.c - see bench_decode.h. */
#include "tools/run/bench_decode.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "tools/cli/names.h"
#include "tools/device/device_opt.h"
#include "tools/terminal/table.h"
#include "tools/terminal/terminal.h"
#include "verify/speed/decode_speed.h"

static bool decode_row(const void *self, int64_t i, sw_cells out)
{
    const sw_decode_report *r = self;
    const sw_decode_row *row = &r->rows[i];

    if (i >= r->n_rows) return false;
    (void)snprintf(out[0], SW_CELL_BYTES, "%s", row->weights);
    (void)snprintf(out[1], SW_CELL_BYTES, "%" PRId64, row->batch);
    (void)snprintf(out[2], SW_CELL_BYTES, "%.1f", row->step_us);
    (void)snprintf(out[3], SW_CELL_BYTES, "%.1f", row->tokens_s);
    (void)snprintf(out[4], SW_CELL_BYTES, "%.1f", row->bound_tokens_s);
    (void)snprintf(out[5], SW_CELL_BYTES, "%.0f%%", 100 * row->bound_share);
    return true;
}

static const char *cache_note(sw_kv_kind kind)
{
    static const char *const notes[] = {
        [SW_KV_FLOATS] = "", [SW_KV_E4M3] = ", FP8 cache", [SW_KV_INT8] = ", int8 cache"};

    return notes[kind];
}

static void print_table(const sw_bench_decode *b, const sw_decode_report *r)
{
    const int columns = sw_terminal_columns(STDOUT_FILENO);
    const sw_table table = {
        .headings = {"weights", "batch", "step us", "tokens/s", "bound", "of it"},
        .kinds = {SW_CELL_FIXED, SW_CELL_NUMBER, SW_CELL_NUMBER, SW_CELL_NUMBER, SW_CELL_NUMBER,
                  SW_CELL_NUMBER},
        .n_columns = 6, .self = r, .row = decode_row};

    sw_line_print(stdout, NULL, columns, "%s, %s-shaped model of random weights, %" PRId64
                  " tokens before%s, steps in a graph", r->device, b->shape, b->context,
                  cache_note(b->kv_kind));
    sw_line_print(stdout, NULL, columns, "copies at %.0f GB/s; bound: weights, keys and values "
                  "once a step at that rate", r->copy_gb_s);
    (void)putchar('\n');
    sw_table_print(stdout, &table, columns);
}

static void print_csv(const sw_bench_decode *b, const sw_decode_report *r)
{
    for (int i = 0; i < r->n_rows; i++) {
        const sw_decode_row *row = &r->rows[i];

        (void)printf("%s,%s,%s,%" PRId64 ",%" PRId64 ",%" PRId64 ",%.1f,%.1f,%.1f,%.3f,%.0f\n",
                     r->device, b->shape, row->weights, b->group_elems, row->batch, b->context,
                     row->step_us, row->tokens_s, row->bound_tokens_s, row->bound_share,
                     r->copy_gb_s);
    }
}

static bool add_row(cJSON *rows, const sw_decode_row *row)
{
    cJSON *entry = cJSON_CreateObject();

    if (!entry || !cJSON_AddItemToArray(rows, entry)) return false;
    return cJSON_AddStringToObject(entry, "weights", row->weights) &&
           cJSON_AddNumberToObject(entry, "batch", (double)row->batch) &&
           cJSON_AddNumberToObject(entry, "weight_bytes", (double)row->weight_bytes) &&
           cJSON_AddNumberToObject(entry, "step_bytes", (double)row->step_bytes) &&
           cJSON_AddNumberToObject(entry, "step_us", row->step_us) &&
           cJSON_AddNumberToObject(entry, "tokens_per_second", row->tokens_s) &&
           cJSON_AddNumberToObject(entry, "bound_tokens_per_second", row->bound_tokens_s) &&
           cJSON_AddNumberToObject(entry, "bound_share", row->bound_share);
}

static sw_code print_json(sw_run *run, const sw_bench_decode *b, const sw_decode_report *r,
                          sw_err *err)
{
    cJSON *object = NULL, *rows;
    sw_code rc = sw_cmd_json_new(&object, "bench_decode", err);
    bool ok;

    if (rc != SW_OK) return rc;
    ok = cJSON_AddStringToObject(object, "device", r->device) &&
         cJSON_AddStringToObject(object, "shape", b->shape) &&
         cJSON_AddStringToObject(object, "kv_cache", sw_kv_cache_name(b->kv_kind)) &&
         cJSON_AddNumberToObject(object, "group_size", (double)b->group_elems) &&
         cJSON_AddNumberToObject(object, "context", (double)b->context) &&
         cJSON_AddNumberToObject(object, "steps", (double)b->steps) &&
         cJSON_AddNumberToObject(object, "copy_gb_s", r->copy_gb_s);
    rows = ok ? cJSON_AddArrayToObject(object, "rows") : NULL;
    for (int i = 0; rows && i < r->n_rows; i++)
        if (!add_row(rows, &r->rows[i])) rows = NULL;
    if ((rc = sw_cmd_json_added(rows, err)) == SW_OK) rc = sw_cmd_json_print(run, object, err);
    cJSON_Delete(object);
    return rc;
}

sw_code sw_bench_decode_run(sw_run *run, const sw_bench_decode *b, sw_err *err)
{
    const sw_cmd_common *common = run->options;
    sw_decode_options o = {.shape = b->shape, .weights = b->weights,
                           .group_elems = b->group_elems, .batches = b->batches,
                           .n_batches = b->n_batches, .context = b->context, .steps = b->steps,
                           .rounds = b->rounds, .n_threads = (int)common->threads,
                           .kv_kind = b->kv_kind,
                           .progress = &run->term->progress};
    sw_decode_report report = {.n_rows = 0};
    sw_code rc = sw_device_option_open(&o.gpu, b->device, b->device_bytes, err);

    if (rc == SW_OK && !o.gpu)
        rc = SW_FAIL(err, SW_E_USAGE, "--decode measures a CUDA device; give --device cuda");
    if (rc == SW_OK) rc = sw_decode_speed_run(&report, &o, err);
    if (rc == SW_OK) {
        sw_term_clear(run->term);
        if (common->json) rc = print_json(run, b, &report, err);
        else (b->is_csv ? print_csv : print_table)(b, &report);
    }
    sw_decode_report_free(&report);
    sw_device_close(o.gpu);
    return rc;
}
