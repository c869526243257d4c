/* block_job.c - see block_job.h. */
#include "quant/run/block_job.h"

#include <stdio.h>

void sw_block_job_free(sw_block_job *job)
{
    for (int64_t i = 0; job->values && i < job->n_linears; i++)
        sw_weight_room_put(job->rooms, job->values[i]);
    sw_mem_put(job->values);
    for (int64_t i = 0; job->ahead && i < job->n_linears; i++)
        sw_weight_room_put(job->rooms, job->ahead[i]);
    sw_mem_put(job->ahead);
    sw_mem_put(job->linears);
    sw_mem_put(job->specs);
    sw_site_scales_free(&job->scales);
    sw_block_free(&job->original);
    sw_block_free(&job->quantized);
    sw_block_free(&job->untouched);
}

int64_t sw_quant_n_layers(const sw_model *model, const sw_quant_sink *sink)
{
    sw_linear_ref head;
    char path[256];
    bool has_head = sw_model_linears(model, model->n_layers, &head, 1) == 1 &&
                    sw_model_slot_path(path, model, head.layer, head.slot, head.expert) &&
                    sink->is_selected(sink->self, &head, path);

    return model->n_layers + has_head;
}

static sw_code select_linears(sw_block_job *job, int64_t layer, sw_err *err)
{
    int64_t n = sw_model_linears(job->model, layer, NULL, 0), n_kept = 0;
    sw_code rc;

    if ((rc = SW_MEM_GET(&job->linears, n, "linears of a block", err)) != SW_OK ||
        (rc = SW_MEM_GET(&job->specs, n, "specs of a block", err)) != SW_OK)
        return rc;
    (void)sw_model_linears(job->model, layer, job->linears, n);
    for (int64_t i = 0; i < n; i++) {
        char path[256];
        const sw_quant_sink *sink = job->sink;
        const sw_linear_ref *ref = &job->linears[i];
        if (!sw_model_slot_path(path, job->model, layer, ref->slot, ref->expert)) continue;
        if (!sink->is_selected(sink->self, ref, path)) continue;
        job->specs[n_kept] = sink->spec_of ? *sink->spec_of(sink->self, ref, path)
                                           : job->options->spec;
        job->linears[n_kept++] = *ref;
    }
    job->n_linears = n_kept;
    return SW_MEM_GET(&job->values, n_kept, "quantized values", err);
}

/* The disk can begin with the weights of a block before anybody waits for them. A hint: what has
 * another name, as experts in one tensor do, comes when it is read. */
static sw_code want_block(const sw_block_job *job, const sw_st *st, int64_t layer, sw_err *err)
{
    int64_t n = sw_model_linears(job->model, layer, NULL, 0);
    sw_linear_ref *linears = NULL;
    sw_code rc;

    if (n < 1) return SW_OK;
    if ((rc = SW_MEM_GET(&linears, n, "linears of a block", err)) != SW_OK) return rc;
    (void)sw_model_linears(job->model, layer, linears, n);
    for (int64_t i = 0; i < n; i++) {
        char path[256], name[300];
        const sw_st_tensor *t;
        if (!sw_model_slot_path(path, job->model, layer, linears[i].slot, linears[i].expert))
            continue;
        (void)snprintf(name, sizeof name, "%s.weight", path);
        if ((t = sw_st_find(st, name))) sw_st_want_tensor(st, t);
    }
    sw_mem_put(linears);
    return SW_OK;
}

sw_code sw_block_job_new(sw_block_job *job, const sw_st *st, int64_t layer, sw_err *err)
{
    const sw_linear_source *from = job->options->source;
    sw_code rc;

    if ((rc = select_linears(job, layer, err)) != SW_OK) return rc;
    if (layer + 1 < job->model->n_layers &&
        (rc = want_block(job, st, layer + 1, err)) != SW_OK)
        return rc;
    rc = sw_block_load_from(&job->original, job->model, st, from, layer, err);
    if (rc == SW_OK && job->options->algo->transform)
        rc = sw_block_load_from(&job->untouched, job->model, st, from, layer, err);
    if (rc != SW_OK) return rc;
    return sw_block_load_from(&job->quantized, job->model, st, from, layer, err);
}

void sw_block_job_is_seen(const sw_block_job *job)
{
    if (job->streams && job->original.layer + 1 < sw_quant_n_layers(job->model, job->sink))
        sw_backend_of(&job->streams->place)
            ->streams_expect(job->streams, sw_block_job_original(job));
}

bool sw_block_job_uses_site(const sw_block_job *job, int site)
{
    for (int64_t i = 0; i < job->n_linears; i++)
        if ((int)job->linears[i].site == site) return true;
    return false;
}

const sw_block *sw_block_job_original(const sw_block_job *job)
{
    return job->options->algo->transform ? &job->untouched : &job->original;
}

sw_transform_job sw_block_job_transform(sw_block_job *job, sw_streams *streams)
{
    sw_transform_job t = {.model = job->model, .st = job->st, .options = job->options,
                          .sink = job->sink, .streams = streams, .original = &job->original,
                          .quantized = &job->quantized, .linears = job->linears,
                          .specs = job->specs, .n_linears = job->n_linears,
                          .scales = &job->scales};

    return t;
}

const sw_backend *sw_block_job_runs_on(const sw_block_job *job)
{
    return job->streams ? sw_backend_of(&job->streams->place) : &sw_backend_cpu;
}

void sw_block_job_use(sw_block_job *job, int64_t i, float *values)
{
    const sw_linear_ref *ref = &job->linears[i];
    sw_weight *slot = sw_block_weight(&job->quantized, ref->slot, ref->expert);

    slot->dense = job->values[i] = values;
    slot->dense_dtype = sw_block_job_runs_on(job)->values_dtype;
    slot->act = job->specs[i].act;
    slot->input_scale = job->input_scale[ref->site];
}
