/* quantize_group.c - see quantize_group.h. */
#include "tools/quantize/run/quantize_group.h"

#include <string.h>

#include "formats/io/watch.h"
#include "tools/calibrate/same_inputs.h"
#include "tools/device/device_opt.h"
#include "tools/quantize/run/quantize_output.h"
#include "tools/quantize/run/quantize_sink.h"

typedef sw_quantize_job job;

static const job *first_alive(job *const *jobs, int n)
{
    for (int i = 0; i < n; i++)
        if (jobs[i]->failure.code == SW_OK) return jobs[i];
    return NULL;
}

/* One step of every output that has not failed yet. */
typedef sw_code (*step_fn)(job *j, sw_err *err);

static void each(job *const *jobs, int n, step_fn step)
{
    for (int i = 0; i < n; i++) {
        sw_err local = {0};
        if (jobs[i]->failure.code == SW_OK && step(jobs[i], &local) != SW_OK)
            jobs[i]->failure = local;
    }
}

/* What its digests and its decoder read of an output is no input of those that come after. */
static sw_code publish(job *j, sw_err *err)
{
    sw_code rc = sw_quantize_output_commit(j, err);

    if (j->name) sw_watch_forget(j->o->out);
    return rc;
}

static sw_code read_back(job *j, sw_err *err)
{
    sw_code rc = sw_quantize_output_read_back(j, err);

    if (j->name) sw_watch_forget(j->o->out);
    return rc;
}

/* A failure of all that have none yet. */
static void fail_all(job *const *jobs, int n, const sw_err *why)
{
    for (int i = 0; i < n; i++)
        if (jobs[i]->failure.code == SW_OK) jobs[i]->failure = *why;
}

sw_code sw_quantize_same_inputs(const job *j, sw_err *err)
{
    return sw_same_model(j->team, &j->source, err);
}

sw_code sw_quantize_same_settings(const job *j, sw_err *err)
{
    cJSON *key = NULL;
    sw_code rc;

    if (sw_team_size(j->team) == 1) return SW_OK;
    if ((rc = sw_same_text(j->team, &j->calibration.calib, err)) != SW_OK ||
        (rc = sw_quantize_output_key(&key, j, err)) != SW_OK)
        return rc;
    if (cJSON_IsObject(sw_json_member(key, "settings")))
        rc = sw_same_settings(j->team, sw_json_member(key, "settings"), err);
    if (rc == SW_OK) rc = sw_same_settings(j->team, key, err);
    cJSON_Delete(key);
    return rc;
}

/* Of rank 0: is there an output to solve for? The others hear it, and all solve or none. */
static sw_code solve(job *const *jobs, int n, sw_err *err)
{
    bool has_output = first_alive(jobs, n) != NULL;
    sw_code rc = sw_team_broadcast(jobs[0]->team, 0, &has_output, sizeof has_output, err);

    return rc == SW_OK && has_output ? sw_quantize_solve(jobs, n, err) : rc;
}

/* What ends the run, and not only an output: a stop, and with several ranks whatever they have not
 * solved together. */
static sw_code find_end(job *const *jobs, int n, sw_code solved, sw_err *err)
{
    const bool is_lost = solved != SW_OK && sw_team_size(jobs[0]->team) > 1;

    for (int i = 0; i < n; i++) {
        const sw_err *why = &jobs[i]->failure;
        if (why->code != SW_E_CANCELLED && !(is_lost && why->code == solved)) continue;
        *err = *why;
        return err->code;
    }
    return SW_OK;
}

static sw_code make_outputs(job *const *jobs, int n, sw_err *err)
{
    sw_err local = {0};
    sw_code solved;

    each(jobs, n, sw_quantize_output_open);
    if ((solved = solve(jobs, n, &local)) != SW_OK) fail_all(jobs, n, &local);
    each(jobs, n, publish);
    for (int i = 0; i < n; i++)
        if (jobs[i]->failure.code != SW_OK) sw_quantize_output_keep(jobs[i], &jobs[i]->failure);
    each(jobs, n, read_back);
    return find_end(jobs, n, solved, err);
}

sw_code sw_quantize_group_run(job *const *jobs, int n, sw_err *err)
{
    job *lead = jobs[0];
    sw_err local = {0};
    sw_code rc = sw_device_option_open_backend(&lead->gpu, &lead->settings.quant, lead->o->device,
                                               lead->progress, &local);

    if (rc != SW_OK) {
        fail_all(jobs, n, &local);
        return find_end(jobs, n, rc, err);
    }
    lead->settings.quant.team = lead->team;
    return sw_team_rank(lead->team) == 0 ? make_outputs(jobs, n, err) : solve(jobs, n, err);
}

/* sw_qspec_same, and what it leaves to whoever packs: all that a solver may look at. */
static bool is_same_spec(const sw_qspec *a, const sw_qspec *b)
{
    return sw_qspec_same(a, b) && a->pow2_rule == b->pow2_rule &&
           (a->is_symmetric || a->zero_min == b->zero_min) &&
           a->is_sign_free == b->is_sign_free && a->scale_rows == b->scale_rows;
}

bool sw_quantize_is_alike(const job *a, const job *b)
{
    const sw_selection *x = &a->selection, *y = &b->selection;

    if (strcmp(a->o->scheme, b->o->scheme) != 0 || x->n_linears != y->n_linears ||
        a->settings.quant.algo != b->settings.quant.algo ||
        !is_same_spec(&a->settings.quant.spec, &b->settings.quant.spec))
        return false;
    for (int64_t i = 0; i < x->n_linears; i++)
        if (strcmp(x->linears[i].module_path, y->linears[i].module_path) != 0 ||
            !is_same_spec(x->linears[i].spec, y->linears[i].spec))
            return false;
    return true;
}
