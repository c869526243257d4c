/* checkpoint_speed.c - see checkpoint_speed.h: opens the models, measures the machine, and has both
 * run. */
#include "verify/speed/checkpoint_speed.h"

#include <stdio.h>
#include <string.h>

#include "formats/base/size.h"
#include "kernels/engine/device_engine.h"
#include "kernels/engine/lm_open.h"
#include "verify/speed/roof.h"
#include "verify/speed/speed_data.h"

#define CPU_TOKENS 1024    /* of one call: prompts beyond go one call after the other */
#define DEVICE_TOKENS 8192
#define PROMPT_MAX (1 << 20)
#define ROOF_SIZE 8192     /* of the dense product that stands for a device's arithmetic */
#define ROOF_ROUNDS 9

typedef struct model {
    sw_checkpoint checkpoint;
    sw_lm lm;
    bool is_opened;
} model;

sw_code sw_speed_request_check(const sw_speed_request *q, sw_err *err)
{
    if (q->n_batches < 1 || q->n_batches > SW_SPEED_BATCHES_MAX)
        return SW_FAIL(err, SW_E_USAGE, "%d batches to time; give 1 to %d", q->n_batches,
                       SW_SPEED_BATCHES_MAX);
    for (int i = 0; i < q->n_batches; i++)
        if (q->batches[i] < 1 || q->batches[i] > CPU_TOKENS)
            return SW_FAIL(err, SW_E_USAGE, "a batch of %lld sequences; give 1 to %d",
                           (long long)q->batches[i], CPU_TOKENS);
    if (q->prompt < 1 || q->prompt > PROMPT_MAX || q->n_steps < 1 || q->n_steps > PROMPT_MAX)
        return SW_FAIL(err, SW_E_USAGE, "a prompt of %lld tokens and %lld steps; give 1 to %d of "
                       "each", (long long)q->prompt, (long long)q->n_steps, PROMPT_MAX);
    if (q->n_rounds < SW_TURNS_MIN || q->n_rounds > SW_TURNS_MAX)
        return SW_FAIL(err, SW_E_USAGE, "%d rounds; give %d to %d: of fewer no interval holds "
                       "95 %%", q->n_rounds, SW_TURNS_MIN, SW_TURNS_MAX);
    return SW_OK;
}

/* As it is stored; scattered groups, which tiles cannot hold, as floats. */
static sw_code open_model(model *m, const sw_speed_job *job, const char *dir, sw_kv_kind kv_kind,
                          sw_err *err)
{
    sw_lm_options options = {.n_threads = job->n_threads, .kv_kind = kv_kind};
    sw_err why = {0};
    sw_code rc = sw_checkpoint_open_codes(&m->checkpoint, dir, err);

    if (rc != SW_OK) return rc;
    options.keeps_marlin = job->gpu && sw_checkpoint_has_marlin(&m->checkpoint);
    rc = sw_lm_open(&m->lm, &m->checkpoint, &options, &why);
    if (rc == SW_E_UNSUPPORTED) {
        options.dequantize = true;
        rc = sw_lm_open(&m->lm, &m->checkpoint, &options, err);
    } else if (rc != SW_OK) {
        *err = why;
    }
    m->is_opened = rc == SW_OK;
    return rc;
}

static sw_code check_positions(const sw_model *m, const sw_speed_request *q, sw_err *err)
{
    const int64_t need = q->prompt + (q->n_rounds + 1) * q->n_steps + 2;

    if (!m->n_position_rows || need <= m->max_positions) return SW_OK;
    return SW_FAIL(err, SW_E_USAGE, "prompt, steps and rounds need %lld positions; the model has "
                   "%lld: give a smaller --prompt, --steps or --rounds", (long long)need,
                   (long long)m->max_positions);
}

static sw_code start_runner(sw_speed_trial *trial, int side, const sw_speed_job *job,
                            const sw_lm *lm, sw_err *err)
{
    const sw_speed_request *q = job->request;
    const int64_t max_seq = q->prompt + (q->n_rounds + 1) * q->n_steps + 2;
    sw_speed_runner *r = &trial->runner[side];
    sw_model_cost *cost = &trial->cost[side];
    sw_code rc = check_positions(lm->model, q, err);

    if (rc != SW_OK) return rc;
    rc = job->gpu ? sw_speed_runner_on_device(r, job->gpu, lm, trial->max_tokens, max_seq, err)
                  : sw_speed_runner_on_cpu(r, lm, trial->max_tokens, max_seq, job->n_threads, err);
    if (rc != SW_OK) return rc;
    *cost = sw_model_cost_of(lm, r->kv_elem_bytes);
    if (r->weight_bytes > 0) { /* a device widens some, and decodes what it has no kernel for */
        const double factor = r->weight_bytes / (cost->dense_bytes + cost->expert_bytes);

        cost->dense_bytes *= factor;
        cost->expert_bytes *= factor;
    }
    return SW_OK;
}

/* A large dense product on the device, in the engine that is timed as well. */
static sw_code device_flops(double *gflop_s, sw_speed_runner *r, const sw_progress *progress,
                            sw_err *err)
{
    const double flops = 2.0 * ROOF_SIZE * ROOF_SIZE * ROOF_SIZE;
    uint16_t *values = NULL;
    sw_weight w = {.n_out = ROOF_SIZE, .k_in = ROOF_SIZE, .dense_dtype = SW_DTYPE_BF16};
    const sw_weight *const list[] = {&w};
    double us[ROOF_ROUNDS];
    int64_t per_pass = 1;
    sw_code rc = SW_MEM_GET(&values, (int64_t)ROOF_SIZE * ROOF_SIZE, "a weight", err);

    for (int64_t i = 0; i < (int64_t)ROOF_SIZE * ROOF_SIZE && rc == SW_OK; i++)
        values[i] = (uint16_t)(0x3f00u | ((i * 2654435761u >> 13) & 0x80ffu)); /* +-0.5 to 2 */
    w.dense = values;
    if (rc == SW_OK) rc = r->linear_begin(r->self, &per_pass, list, 1, ROOF_SIZE, err);
    for (int i = -1; i < ROOF_ROUNDS && rc == SW_OK; i++) {
        const double start = sw_clock_real.now_us(NULL);

        if ((rc = sw_progress_check(progress, err)) == SW_OK) rc = r->linear(r->self, 1, err);
        if (i >= 0) us[i] = (sw_clock_real.now_us(NULL) - start) / (double)per_pass;
    }
    if (rc == SW_OK) *gflop_s = 1e-3 * flops / sw_turns_figure(us, ROOF_ROUNDS).median.at;
    r->linear_end(r->self);
    sw_mem_put(values);
    return rc;
}

static sw_code measure_machine(sw_report_speed *s, const sw_speed_job *job, sw_speed_runner *r,
                               sw_err *err)
{
    sw_code rc;

    s->n_threads = job->n_threads;
    sw_roof_cpu_name(s->cpu, sizeof s->cpu);
    if (!job->gpu) {
        s->cache_bytes = sw_roof_cache_bytes();
        rc = sw_roof_memory(&s->read_gb_s, job->n_threads, err);
        return rc == SW_OK ? sw_roof_sgemm(&s->gflop_s, job->n_threads, 3, err) : rc;
    }
    memcpy(s->device, sw_device_about(job->gpu)->name, sizeof s->device);
    s->cache_bytes = sw_device_about(job->gpu)->l2_bytes;
    rc = sw_device_copy_rate(job->gpu, &s->read_gb_s, err);
    return rc == SW_OK ? device_flops(&s->gflop_s, r, job->progress, err) : rc;
}

static void describe_models(sw_report_speed *s, const sw_speed_trial *trial)
{
    for (int side = 0; side < trial->n_sides; side++) {
        s->weight_bytes[side] = trial->cost[side].dense_bytes + trial->cost[side].expert_bytes;
        s->n_streamed[side] = trial->runner[side].n_streamed;
        s->is_in_turns = s->is_in_turns || trial->runner[side].is_in_turns;
    }
}

static sw_code measure(sw_report_speed *s, sw_arena *arena, const sw_speed_job *job, model *models,
                       int n_models, sw_err *err)
{
    const sw_model *m = &models[0].checkpoint.model;
    sw_linear_kinds kinds;
    sw_speed_trial trial = {
        .request = job->request, .n_sides = n_models, .kinds = &kinds, .clock = &sw_clock_real,
        .progress = job->progress,
        .max_tokens = sw_max_i64(job->gpu ? DEVICE_TOKENS : CPU_TOKENS, job->request->prompt),
        .experts_share = m->n_experts ? (double)m->n_experts_used / (double)m->n_experts : 1};
    sw_code rc = sw_linear_kinds_of(&kinds, arena, &models[0].lm,
                                    n_models > 1 ? &models[1].lm : NULL, err);

    for (int side = 0; side < n_models && rc == SW_OK; side++)
        rc = start_runner(&trial, side, job, &models[side].lm, err);
    if (rc == SW_OK) rc = measure_machine(s, job, &trial.runner[0], err);
    if (rc == SW_OK) {
        describe_models(s, &trial);
        rc = sw_speed_try(s, arena, &trial, err);
    }
    for (int side = 0; side < n_models; side++) sw_speed_runner_free(&trial.runner[side]);
    return rc;
}

static bool is_same_shape(const sw_model *a, const sw_model *b)
{
    return a->arch == b->arch && a->n_layers == b->n_layers && a->hidden == b->hidden &&
           a->vocab == b->vocab && a->intermediate == b->intermediate &&
           a->n_heads == b->n_heads && a->n_experts == b->n_experts;
}

sw_code sw_checkpoint_speed(sw_report_speed *out, sw_arena *arena, const sw_speed_job *job,
                            sw_err *err)
{
    sw_report_speed speed = {.is_measured = false};
    model *models = NULL;
    const int n = job->original_dir ? 2 : 1;
    sw_code rc = sw_speed_request_check(job->request, err);

    if (rc != SW_OK || (rc = SW_MEM_GET(&models, 2, "models", err)) != SW_OK) return rc;
    if ((rc = open_model(&models[0], job, job->dir, job->kv_kind, err)) == SW_OK && n > 1)
        rc = open_model(&models[1], job, job->original_dir, false, err);
    if (rc == SW_OK && n > 1 &&
        !is_same_shape(&models[0].checkpoint.model, &models[1].checkpoint.model))
        rc = SW_FAIL(err, SW_E_USAGE, "%s: another model than %s, of another shape", job->dir,
                     job->original_dir);
    if (rc == SW_OK) rc = measure(&speed, arena, job, models, n, err);
    for (int i = 0; i < n; i++) {
        sw_lm_free(&models[i].lm);
        sw_checkpoint_close(&models[i].checkpoint);
    }
    sw_mem_put(models);
    if (rc == SW_OK) *out = speed;
    return rc;
}
