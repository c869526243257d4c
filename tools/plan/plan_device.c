/* plan_device.c - see plan_device.h. */
#include "tools/plan/plan_device.h"

#include <stdio.h>
#include <string.h>

#include "tools/device/device_opt.h"

#define PART_SHOWN_BYTES 0.005 /* of the peak, from which a part is named */

static int count_devices(const char *word)
{
    int n = 1;

    for (; *word; word++) n += *word == ',';
    return n;
}

sw_code sw_plan_device_options(sw_plan_options *o, sw_err *err)
{
    const char *word = o->quantize.device;

    if (word && sw_device_figures_find(word)) {
        o->decodes_on = word;
        o->quantize.device = word = NULL;
    }
    if (word && !strncmp(word, "cuda:", 5) && strchr(word, ',') && !o->quantize.common.ranks)
        o->quantize.common.ranks = count_devices(word);
    if (!word && o->device_bytes && !o->quantize.recipe)
        return SW_FAIL(err, SW_E_USAGE, "--device-memory says how large the device of quantize is: "
                       "give --device cuda with it");
    return SW_OK;
}

/* Of a list the first: the others are taken for alike. */
static sw_code first_of(char out[16], const char *word, sw_err *err)
{
    const size_t n = word ? strcspn(word, ",") : 0;

    if (n >= 16) return SW_FAIL(err, SW_E_USAGE, "--device %.40s: there are cpu, cuda, cuda:N, "
                                "cuda:N,... and auto", word);
    (void)snprintf(out, 16, "%.*s", (int)n, word ? word : "");
    return SW_OK;
}

sw_code sw_plan_device_find(sw_quantize_job *job, const sw_plan_options *o, sw_err *err)
{
    sw_device *gpu = NULL;
    int64_t index = -1;
    char word[16];
    sw_code rc = first_of(word, job->o->device, err);

    if (rc != SW_OK || !job->o->device) return rc;
    if (o->device_bytes > INT64_MAX)
        return SW_FAIL(err, SW_E_USAGE, "--device-memory: more than any device has");
    if (o->device_bytes && !strcmp(word, "auto")) (void)snprintf(word, sizeof word, "cuda");
    if ((rc = sw_device_option_index(&index, word, err)) != SW_OK || index < 0) return rc;
    job->device_bytes = (int64_t)o->device_bytes;
    if (o->device_bytes) return SW_OK;
    if ((rc = sw_device_option_open(&gpu, word, 0, err)) != SW_OK) {
        const size_t at = strlen(err->text);
        (void)snprintf(err->text + at, sizeof err->text - at,
                       "; or give --device-memory BYTES to plan for one that is not here");
        return rc;
    }
    job->device_bytes = sw_device_about(gpu)->cap_bytes;
    sw_device_close(gpu);
    return SW_OK;
}

double sw_plan_host_bytes(const sw_plan *plan, const sw_quantize_job *job)
{
    const double n = job->o->common.ranks > 1 ? (double)job->o->common.ranks : 1;
    const double shared = (double)plan->needs.forecast.read_bytes;
    const double peak = plan->needs.peak_bytes;

    return shared < peak ? n * (peak - shared) + shared : n * peak;
}

static void print_parts(const sw_device_forecast *d)
{
    const char *before = "";

    (void)printf("            ");
    for (int i = 0; i < SW_DEVICE_PARTS; i++) {
        char bytes[16];

        if ((double)d->part_bytes[i] < PART_SHOWN_BYTES * (double)d->peak_bytes) continue;
        sw_term_bytes(bytes, (double)d->part_bytes[i]);
        (void)printf("%s%s %s", before, sw_device_part_names[i], bytes);
        before = ", ";
    }
    (void)printf("\n");
}

static void print_passes(const sw_device_forecast *d)
{
    if (d->n_pieces)
        (void)printf("            the text is summed in %lld pieces, at most %d sums of an input "
                     "at a time\n", (long long)d->n_pieces, d->n_alive);
    if (d->n_passes)
        (void)printf("            %lld passes over the text for the experts of a layer, at "
                     "least %lld experts at a time\n", (long long)d->n_passes,
                     (long long)d->n_experts_at_a_time);
}

/* What is wrong, and what to change so that all is on the device. */
static void print_remedy(const sw_device_forecast *d, bool is_spilled)
{
    const bool fits = sw_device_forecast_fits(d), stays = d->n_pieces && !d->has_streams;

    if (fits && !stays) return;
    (void)printf("warning     ");
    if (!fits) (void)printf("it does not fit%s", stays ? ", although " : "");
    if (stays) (void)printf("blocks run on the CPU: %s", d->why);
    if (d->samples_fit)
        (void)printf("; --samples %lld would fit", (long long)d->samples_fit);
    if (d->ranks_fit)
        (void)printf("; %lld such devices would fit: --device cuda:0,1,...",
                     (long long)d->ranks_fit);
    if (is_spilled)
        (void)printf("; give more --memory");
    else if (!d->samples_fit && !d->ranks_fit && d->solves)
        (void)printf("; take a device with more memory, or --device cpu");
    (void)printf("\n");
}

void sw_plan_device_print(const sw_plan *plan, const sw_quantize_job *job)
{
    const sw_device_forecast *d = &plan->needs.device;
    char peak[16], cap[16];

    if (!job->device_bytes) return;
    sw_term_bytes(peak, (double)d->peak_bytes);
    sw_term_bytes(cap, (double)d->cap_bytes);
    (void)printf("device      %s of %s at the peak, %s in layer %lld\n", peak, cap, d->peak_step,
                 (long long)d->peak_layer);
    print_parts(d);
    print_passes(d);
    print_remedy(d, job->settings.quant.spill_dir != NULL);
    if (job->settings.quant.algo->transform)
        (void)printf("note        what method %s tries out takes more of the device than is said "
                     "here\n", job->settings.quant.algo->name);
}

static bool number(cJSON *o, const char *key, double v)
{
    return cJSON_AddNumberToObject(o, key, v) != NULL;
}

sw_code sw_plan_device_add_json(cJSON *root, const sw_plan *plan, const sw_quantize_job *job,
                                sw_err *err)
{
    const sw_device_forecast *d = &plan->needs.device;
    cJSON *o, *parts;
    bool ok;

    if (!job->device_bytes) return SW_OK;
    o = cJSON_AddObjectToObject(root, "device");
    ok = o && number(o, "bytes", (double)d->cap_bytes) &&
         number(o, "peak_bytes", (double)d->peak_bytes) &&
         cJSON_AddBoolToObject(o, "fits", sw_device_forecast_fits(d)) &&
         cJSON_AddBoolToObject(o, "runs_blocks", d->has_streams) &&
         cJSON_AddStringToObject(o, "why_not", d->why) &&
         cJSON_AddStringToObject(o, "peak_step", d->peak_step) &&
         number(o, "peak_layer", (double)d->peak_layer) &&
         number(o, "text_pieces", (double)d->n_pieces) &&
         number(o, "sums_alive", d->n_alive) && number(o, "expert_passes", (double)d->n_passes) &&
         number(o, "experts_at_a_time", (double)d->n_experts_at_a_time) &&
         number(o, "samples_fit", (double)d->samples_fit) &&
         number(o, "ranks_fit", (double)d->ranks_fit) &&
         (parts = cJSON_AddObjectToObject(o, "parts")) != NULL;
    for (int i = 0; ok && i < SW_DEVICE_PARTS; i++)
        ok = number(parts, sw_device_part_names[i], (double)d->part_bytes[i]);
    return ok ? SW_OK : sw_cmd_json_added(NULL, err);
}
