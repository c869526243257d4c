/* quantize_many.c - see quantize_many.h. */
#include "tools/quantize/run/quantize_many.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/checkpoint/manifest.h"
#include "tools/calibrate/same_inputs.h"
#include "tools/cli/names.h"
#include "tools/quantize/run/quantize_finished.h"
#include "tools/quantize/run/quantize_group.h"
#include "tools/quantize/run/quantize_output.h"

typedef sw_quantize_job job;

bool sw_quantize_is_many(const sw_quantize_options *o)
{
    return strchr(o->scheme, ',') || strchr(o->format, ',');
}

/* The job of one pair, with options of its own: what they say is what a run of it alone would. */
static sw_code add_job(sw_quantize_many *many, sw_run *run, const job *base, const char *scheme,
                       const char *format, sw_err *err)
{
    char name[128], path[SW_PATH_BYTES], *kept_name = NULL, *kept_path = NULL;
    job *j = NULL;
    sw_code rc;

    if (many->n == SW_QUANTIZE_OUTPUTS_MAX)
        return SW_FAIL(err, SW_E_USAGE, "more than %d outputs; give fewer schemes or formats",
                       SW_QUANTIZE_OUTPUTS_MAX);
    (void)snprintf(name, sizeof name, "%s-%s", scheme, format);
    if ((rc = sw_path_join(path, base->o->out, name, err)) != SW_OK ||
        (rc = SW_ARENA_TAKE(&j, run->arena, 1, err)) != SW_OK ||
        (rc = SW_ARENA_TAKE(&j->o, run->arena, 1, err)) != SW_OK ||
        (rc = sw_arena_text(&kept_name, run->arena, name, strlen(name), err)) != SW_OK ||
        (rc = sw_arena_text(&kept_path, run->arena, path, strlen(path), err)) != SW_OK)
        return rc;
    *j->o = *base->o;
    j->o->scheme = scheme;
    j->o->format = format;
    j->o->out = kept_path;
    j->o->html = NULL;
    j->name = kept_name;
    j->recipe = base->recipe;
    j->model_dir = base->model_dir;
    j->progress = base->progress;
    j->team = base->team;
    many->jobs[many->n++] = j;
    return SW_OK;
}

/* The i-th of the names in `chosen`, as its table spells it: texts of the tables outlive all. */
static const char *nth(const char *chosen, int i, sw_opt_choice_fn names)
{
    while (i-- && chosen) chosen = strchr(chosen, ',') ? strchr(chosen, ',') + 1 : NULL;
    for (int k = 0; chosen && names(k); k++)
        if (strcspn(chosen, ",") == strlen(names(k)) &&
            !strncmp(chosen, names(k), strlen(names(k))))
            return names(k);
    return NULL;
}

static sw_code add_jobs(sw_quantize_many *many, sw_run *run, const job *base, sw_err *err)
{
    const char *scheme, *format;
    sw_code rc = SW_OK;

    for (int s = 0; (scheme = nth(base->o->scheme, s, sw_name_of_scheme)) != NULL; s++)
        for (int f = 0; (format = nth(base->o->format, f, sw_name_of_format)) != NULL; f++)
            if (rc == SW_OK) rc = add_job(many, run, base, scheme, format, err);
    return rc;
}

/* What is wrong with one of them is wrong with the command: nothing is begun. */
static sw_code check_all(const sw_quantize_many *many, sw_err *err)
{
    const sw_calibration *text = NULL;
    sw_code rc = SW_OK;

    for (int i = 0; i < many->n && rc == SW_OK; i++) {
        job *j = many->jobs[i];
        j->lent = text;
        if ((rc = sw_quantize_job_check(j, err)) == SW_OK)
            rc = sw_paths_keep_apart(j->source.dir, j->o->out, err);
        if (rc != SW_OK) sw_err_prefix(err, "%s", j->name);
        if (!text && j->calibration.calib.n_seqs) text = &j->calibration;
    }
    for (int i = 0; i < many->n && rc == SW_OK; i++)
        if ((rc = sw_quantize_job_settle(many->jobs[i], err)) != SW_OK)
            sw_err_prefix(err, "%s", many->jobs[i]->name);
    return rc;
}

/* Of several ranks: the same outputs, from the same model and text, by the same settings. */
static sw_code check_ranks(const sw_quantize_many *many, sw_err *err)
{
    sw_code rc = sw_quantize_same_inputs(many->jobs[0], err);

    for (int i = 0; i < many->n && rc == SW_OK; i++)
        if ((rc = sw_quantize_same_settings(many->jobs[i], err)) != SW_OK)
            sw_err_prefix(err, "%s", many->jobs[i]->name);
    return rc;
}

static sw_code digest_source(sw_quantize_many *many, sw_err *err)
{
    const sw_checkpoint *source = &many->jobs[0]->source;
    sw_arena arena = {0};
    sw_dir_list list = {0};
    sw_code rc = source->is_file ? SW_OK : sw_dir_read(&list, source->dir, &arena, err);

    if (rc == SW_OK)
        rc = sw_manifest_sources(&many->sources, source, &list, many->jobs[0]->progress, err);
    sw_arena_free(&arena);
    for (int i = 0; i < many->n; i++) many->jobs[i]->sources = many->sources;
    return rc;
}

static sw_code find_finished(job *j, sw_err *err)
{
    const char *why = NULL;
    sw_code rc;

    if (!sw_path_exists(j->o->out)) return SW_OK;
    if ((rc = sw_quantize_find_finished(&why, j, err)) != SW_OK) return rc;
    j->is_finished = !why && !j->o->is_restart;
    if (j->is_finished) sw_progress_note(j->progress, "%s is finished already", j->o->out);
    if (j->is_finished || j->o->may_replace) return SW_OK;
    return SW_FAIL(err, SW_E_USAGE, "%s: exists and %s; give --force to replace it", j->o->out,
                   why ? why : "is finished");
}

/* Of rank 0, which makes the outputs: what is there already, and where they go. */
static sw_code look_at_outputs(sw_quantize_many *many, const char *dir, sw_err *err)
{
    sw_code rc = digest_source(many, err);

    for (int i = 0; i < many->n && rc == SW_OK; i++) rc = find_finished(many->jobs[i], err);
    if (rc == SW_OK && mkdir(dir, 0777) != 0 && errno != EEXIST)
        rc = SW_FAIL(err, SW_E_IO, "%s: cannot make the directory: %s", dir, strerror(errno));
    return rc;
}

/* All ranks leave out what rank 0 has found finished. */
static sw_code share_finished(sw_quantize_many *many, sw_team *team, sw_err *err)
{
    bool is_finished[SW_QUANTIZE_OUTPUTS_MAX] = {false};
    sw_code rc;

    for (int i = 0; i < many->n; i++) is_finished[i] = many->jobs[i]->is_finished;
    rc = sw_team_broadcast(team, 0, is_finished, sizeof is_finished, err);
    for (int i = 0; i < many->n; i++) many->jobs[i]->is_finished = is_finished[i];
    return rc;
}

sw_code sw_quantize_many_check(sw_quantize_many *many, sw_run *run, const job *base, sw_err *err)
{
    sw_code rc;

    if (!base->o->out)
        return SW_FAIL(err, SW_E_USAGE, "say where the checkpoints go: -o DIR");
    if ((rc = sw_same_setting(base->team, "scheme", base->o->scheme, err)) != SW_OK ||
        (rc = sw_same_setting(base->team, "format", base->o->format, err)) != SW_OK ||
        (rc = add_jobs(many, run, base, err)) != SW_OK || (rc = check_all(many, err)) != SW_OK ||
        (rc = check_ranks(many, err)) != SW_OK)
        return rc;
    if (sw_team_rank(base->team) == 0 &&
        (rc = look_at_outputs(many, base->o->out, err)) != SW_OK)
        return rc;
    return share_finished(many, base->team, err);
}

/* All that share the solve of job `at` and are yet to be made, which they are marked for. */
static int gather(job **group, const sw_quantize_many *many, int at, bool *is_taken)
{
    int n = 0;

    for (int i = at; i < many->n; i++) {
        job *j = many->jobs[i];
        if (j->is_finished || is_taken[i] || !sw_quantize_is_alike(many->jobs[at], j)) continue;
        is_taken[i] = true;
        group[n++] = j;
    }
    return n;
}

/* What comes back ends the run; what else fails is told by the jobs. */
static sw_code run_group(job *const *group, int n, sw_err *err)
{
    sw_code rc = SW_OK;

    for (int i = 0; i < n && rc == SW_OK; i++) {
        sw_progress_note(group[i]->progress, "%s%s", group[i]->o->out,
                         i ? ", from the same solve" : "");
        rc = sw_timeline_begin(&group[i]->timeline, err);
    }
    if (rc != SW_OK || (rc = sw_quantize_group_run(group, n, err)) != SW_OK) return rc;
    for (int i = 0; i < n; i++)
        if (group[i]->failure.code == SW_OK)
            (void)!sw_quantize_output_fallbacks(group[i], &group[i]->failure);
    return SW_OK;
}

sw_code sw_quantize_many_run(const sw_quantize_many *many, sw_err *err)
{
    bool is_taken[SW_QUANTIZE_OUTPUTS_MAX] = {false};
    sw_code rc = SW_OK;

    for (int i = 0; i < many->n && rc == SW_OK; i++) {
        job *group[SW_QUANTIZE_OUTPUTS_MAX];
        int n = is_taken[i] ? 0 : gather(group, many, i, is_taken);
        if (n) rc = run_group(group, n, err);
    }
    return rc;
}

void sw_quantize_many_say_kept(const sw_quantize_many *many, sw_err *err)
{
    const bool is_plain = strstr(err->text, "nothing was written") != NULL;
    int n = 0;
    size_t at;

    for (int i = 0; i < many->n; i++)
        n += many->jobs[i]->is_finished || many->jobs[i]->is_published;
    if (err->code != SW_E_CANCELLED || !n) return;
    if (is_plain) (void)snprintf(err->text, sizeof err->text, "interrupted");
    at = strlen(err->text);
    (void)snprintf(err->text + at, sizeof err->text - at, "; %d of %d outputs are complete%s", n,
                   many->n, is_plain ? ": the same command goes on" : "");
}

sw_code sw_quantize_many_verdict(const sw_quantize_many *many, sw_err *err)
{
    const job *first = NULL;
    int n_failed = 0;

    for (int i = 0; i < many->n; i++) {
        if (many->jobs[i]->failure.code == SW_OK) continue;
        if (!n_failed++) first = many->jobs[i];
    }
    if (!first) return SW_OK;
    if (n_failed == 1)
        return SW_FAIL(err, first->failure.code, "1 of %d outputs failed, %s: %s", many->n,
                       first->name, first->failure.text);
    return SW_FAIL(err, first->failure.code, "%d of %d outputs failed, the first %s: %s", n_failed,
                   many->n, first->name, first->failure.text);
}

void sw_quantize_many_free(sw_quantize_many *many)
{
    for (int i = many->n; i-- > 0;) sw_quantize_job_free(many->jobs[i]);
    cJSON_Delete(many->sources);
    memset(many, 0, sizeof *many);
}
