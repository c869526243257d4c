/* bench_decode.c - see bench_decode.h. */
#include "tools/run/bench_decode.h"

#include <inttypes.h>
#include <stdio.h>

#include "tools/device/device_opt.h"
#include "verify/speed/decode_speed.h"

static void print_table(const sw_bench_decode *b, const sw_decode_report *r)
{
    (void)printf("%s, %s-shaped model of random weights, %" PRId64 " tokens before%s, steps in "
                 "a graph\ncopies at %.0f GB/s; bound: weights, keys and values once a step at "
                 "that rate\n\n%-10s %6s %10s %12s %12s %8s\n",
                 r->device, b->shape, b->context, b->keeps_e4m3 ? ", FP8 cache" : "", r->copy_gb_s,
                 "weights", "batch", "step us", "tokens/s", "bound", "of it");
    for (int i = 0; i < r->n_rows; i++) {
        const sw_decode_row *row = &r->rows[i];

        (void)printf("%-10s %6" PRId64 " %10.1f %12.1f %12.1f %7.0f%%\n", row->weights, row->batch,
                     row->step_us, row->tokens_s, row->bound_tokens_s, 100 * row->bound_share);
    }
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
         cJSON_AddStringToObject(object, "kv_cache", b->keeps_e4m3 ? "fp8" : "bf16") &&
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
                           .keeps_e4m3 = b->keeps_e4m3,
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
