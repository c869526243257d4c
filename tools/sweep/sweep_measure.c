/* sweep_measure.c - the measuring half of sweep_job.h. */
#include <stdio.h>
#include <string.h>

#include "formats/io/file.h"
#include "formats/io/file_content.h"
#include "formats/io/watch.h"
#include "tools/device/ranks.h"
#include "tools/sweep/sweep_job.h"
#include "tools/verify/verify_ranks.h"
#include "verify/verify.h"

static const sw_json_caps caps = {
    .max_bytes = (size_t)256 << 20, .max_depth = 32, .max_values = 16000000};

/* The manifest of a checkpoint of ours, which names every file of it by its digest; no input. */
static sw_code read_manifest(cJSON **out, const sw_sweep_row *row, uint64_t *size_bytes,
                             sw_err *err)
{
    char path[SW_PATH_BYTES];
    sw_map map = {0};
    sw_code rc = sw_path_join(path, row->job->o->out, "manifest.json", err);

    if (rc == SW_OK) rc = sw_map_open_own(&map, path, err);
    if (rc != SW_OK) return rc;
    *size_bytes = map.size_bytes;
    rc = sw_json_parse(out, (const char *)map.data, map.size_bytes, &caps, path, err);
    sw_map_close(&map);
    return rc;
}

static uint64_t listed_bytes(const cJSON *manifest)
{
    const cJSON *file;
    uint64_t sum = 0;

    cJSON_ArrayForEach(file, sw_json_member(manifest, "outputs")) {
        const cJSON *bytes = sw_json_member(file, "bytes");
        if (cJSON_IsNumber(bytes)) sum += (uint64_t)bytes->valuedouble;
    }
    return sum;
}

static bool add_copy(cJSON *to, const char *key, const cJSON *item)
{
    cJSON *copy = cJSON_Duplicate(item, true);

    if (copy && cJSON_AddItemToObject(to, key, copy)) return true;
    cJSON_Delete(copy);
    return false;
}

static sw_code add_texts(cJSON *to, const sw_opt_list *texts, sw_err *err)
{
    cJSON *list = cJSON_AddArrayToObject(to, "texts");
    sw_code rc = sw_cmd_json_added(list, err);

    for (int i = 0; i < texts->n && rc == SW_OK; i++) {
        char digest[SW_SHA256_HEX_BYTES];
        cJSON *item;
        if ((rc = sw_sha256_file(digest, texts->items[i], err)) != SW_OK) break;
        item = cJSON_CreateString(digest);
        if (!item || !cJSON_AddItemToArray(list, item)) {
            cJSON_Delete(item);
            rc = sw_cmd_json_added(NULL, err);
        }
    }
    return rc;
}

/* One digest of the bytes of checkpoint, original and text, and of how they are measured. */
static sw_code find_key(char key[SW_SHA256_HEX_BYTES], const sw_sweep_job *s,
                        const cJSON *manifest, sw_err *err)
{
    cJSON *all = cJSON_CreateObject();
    char *text = NULL;
    bool ok = all && add_copy(all, "checkpoint", sw_json_member(manifest, "outputs")) &&
              add_copy(all, "original", sw_json_member(s->many.sources, "inputs")) &&
              cJSON_AddNumberToObject(all, "window", (double)s->o->window) &&
              cJSON_AddNumberToObject(all, "max_windows", (double)s->o->max_windows) &&
              cJSON_AddStringToObject(all, "device", s->gpu ? "cuda" : "cpu") &&
              cJSON_AddStringToObject(all, "swage", SW_VERSION);
    sw_code rc = ok ? add_texts(all, &s->o->texts, err) : sw_cmd_json_added(NULL, err);

    if (rc == SW_OK) rc = sw_json_print(&text, all, false, err);
    if (rc == SW_OK) rc = sw_sha256_hex(key, text, strlen(text), err);
    sw_mem_put(text);
    cJSON_Delete(all);
    return rc;
}

static double number_of(const cJSON *object, const char *key)
{
    const cJSON *item = sw_json_member(object, key);

    return cJSON_IsNumber(item) ? item->valuedouble : -1;
}

/* Figures of a result of verify; false: it is none with a comparison. */
static bool take_figures(sw_sweep_row *row, const cJSON *verified)
{
    const cJSON *eval = sw_json_member(verified, "evaluation");
    const cJSON *kl = sw_json_member(eval, "kl_mean");

    row->kl = (sw_sweep_interval){number_of(kl, "value"), number_of(kl, "low"),
                                  number_of(kl, "high")};
    row->ppl_ratio = number_of(sw_json_member(eval, "ppl_ratio"), "value");
    row->top1 = number_of(sw_json_member(eval, "top1_agreement"), "value");
    row->is_measured = cJSON_IsNumber(sw_json_member(kl, "value"));
    return row->is_measured;
}

/* Did an earlier run measure exactly this? Then its result is read again. */
static bool take_result(sw_sweep_row *row, const sw_sweep_job *s)
{
    const cJSON *point, *verdict;
    cJSON *verified = NULL;
    sw_map map = {0};
    sw_err ignored = {0};
    bool is_known = false, is_sound = false;

    cJSON_ArrayForEach(point, sw_json_member(s->before, "points")) {
        const cJSON *name = sw_json_member(point, "name");
        const cJSON *key = sw_json_member(point, "measured_of");
        is_known = is_known || (cJSON_IsString(name) && cJSON_IsString(key) &&
                                !strcmp(name->valuestring, row->job->name) &&
                                !strcmp(key->valuestring, row->key));
    }
    if (!is_known || sw_map_open_own(&map, row->result_path, &ignored) != SW_OK) return false;
    if (sw_json_parse(&verified, (const char *)map.data, map.size_bytes, &caps, row->result_path,
                      &ignored) == SW_OK) {
        verdict = sw_json_member(verified, "verdict");
        is_sound = take_figures(row, verified) && cJSON_IsString(verdict) &&
                   !strcmp(verdict->valuestring, "passed");
    }
    sw_map_close(&map);
    cJSON_Delete(verified);
    row->is_measured = row->was_measured_before = is_sound;
    return is_sound;
}

static sw_code put_result(const sw_sweep_row *row, const cJSON *verified, sw_err *err)
{
    char *text = NULL;
    sw_code rc = sw_json_print(&text, verified, true, err);

    if (rc == SW_OK) rc = sw_file_put_new(row->result_path, text, strlen(text), true, err);
    sw_mem_put(text);
    return rc;
}

/* Of rank 0: what the judge says of a checkpoint. */
static sw_code keep(sw_sweep_row *row, const sw_report *report, sw_err *err)
{
    cJSON *verified = NULL;
    sw_code rc = sw_report_json(&verified, report, err);

    if (rc == SW_OK && !take_figures(row, verified) &&
        (rc = sw_report_verdict(report, err)) == SW_OK) /* why it was not run */
        rc = SW_FAIL(err, SW_E_BUG, "%s: verify has no divergence to tell", row->job->o->out);
    if (rc == SW_OK && (rc = put_result(row, verified, err)) != SW_OK) row->is_measured = false;
    if (rc == SW_OK) rc = sw_report_verdict(report, err);
    cJSON_Delete(verified);
    return rc;
}

/* Every rank calls it. *is_alone: what went wrong, no other rank may know of. */
static sw_code judge(sw_sweep_row *row, sw_sweep_job *s, bool keeps_states, bool *is_alone,
                     sw_err *err)
{
    const sw_quantize_options *q = &s->o->quantize;
    sw_judge_ranks ranks;
    sw_verify_options v = {.checkpoint_dir = row->job->o->out, .original_dir = s->base.model_dir,
                           .text_paths = s->o->texts.items, .n_texts = s->o->texts.n,
                           .window = s->o->window, .max_windows = s->o->max_windows,
                           .n_threads = (int)q->common.threads,
                           .n_threads_alone = sw_ranks_threads_alone(s->base.team,
                                                                     (int)q->common.threads),
                           .kept = keeps_states ? &s->states : NULL, .gpu = s->gpu,
                           .ranks = sw_verify_ranks_of(&ranks, s->base.team),
                           .progress = s->base.progress};
    sw_report report = {0};
    sw_code rc = sw_verify_run(&report, &v, err);

    if (rc != SW_OK) return rc;
    rc = sw_watch_check(err); /* figures of bytes that the result does not name */
    *is_alone = rc != SW_OK;
    if (rc == SW_OK && sw_team_rank(s->base.team) == 0) rc = keep(row, &report, err);
    sw_report_free(&report);
    sw_watch_forget(row->job->o->out);
    return rc;
}

/* Size and key of a checkpoint that is there; and its figures, if they are known. */
static sw_code look(sw_sweep_job *s, int i, sw_err *err)
{
    sw_sweep_row *row = &s->rows[i];
    cJSON *manifest = NULL;
    uint64_t manifest_bytes = 0;
    sw_code rc = read_manifest(&manifest, row, &manifest_bytes, err);

    if (rc != SW_OK) return rc;
    s->points[i].bytes = listed_bytes(manifest) + manifest_bytes;
    row->bits_per_weight = number_of(manifest, "bits_per_weight");
    rc = find_key(row->key, s, manifest, err);
    cJSON_Delete(manifest);
    if (rc == SW_OK && take_result(row, s))
        sw_progress_note(s->base.progress, "%s is measured already", row->job->o->out);
    return rc;
}

/* Of rank 0: what is known already, and what there is to measure. */
static void begin_rows(bool *is_open, sw_sweep_job *s)
{
    for (int i = 0; i < s->many.n; i++) {
        sw_sweep_row *row = &s->rows[i];
        sw_err local = {0};
        row->failure = row->job->failure;
        if (row->failure.code != SW_OK && row->failure.code != SW_E_GATE) continue;
        if (look(s, i, &local) != SW_OK) row->failure = local;
        is_open[i] = row->failure.code == SW_OK && !row->is_measured;
    }
}

static sw_code name_rows(sw_sweep_job *s, sw_err *err)
{
    sw_code rc = SW_OK;

    for (int i = 0; i < s->many.n && rc == SW_OK; i++) {
        sw_sweep_row *row = &s->rows[i];
        char name[160];
        row->job = s->many.jobs[i];
        (void)snprintf(name, sizeof name, "%s.verify.json", row->job->name);
        rc = sw_path_join(row->result_path, s->o->quantize.out, name, err);
    }
    return rc;
}

/* What ends the run is returned; else it is the row's failure, of which rank 0 tells. */
static sw_code measure(sw_sweep_job *s, int i, bool keeps_states, sw_err *err)
{
    sw_sweep_row *row = &s->rows[i];
    sw_team *team = s->base.team;
    const char *const models[2] = {row->job->o->out, NULL};
    bool is_alone = false;
    sw_err local = {0};
    sw_code why, rc = sw_verify_ranks_check(team, models, NULL, err);

    if (rc != SW_OK) return rc;
    sw_progress_note(s->base.progress, "%s: measuring", row->job->o->out);
    why = judge(row, s, keeps_states, &is_alone, &local);
    if (why == SW_OK) return why;
    row->failure = local;
    is_alone = is_alone && sw_team_rank(team) > 0;
    if (why != SW_E_CANCELLED && !is_alone && !sw_team_has_failed(team) &&
        sw_team_agreed(team) == SW_OK) /* else a rank has another text */
        return SW_OK;
    return SW_FAIL(err, why, "%s", local.text);
}

sw_code sw_sweep_measure(sw_sweep_job *s, sw_err *err)
{
    const bool is_first = sw_team_rank(s->base.team) == 0;
    bool is_open[SW_QUANTIZE_OUTPUTS_MAX] = {false};
    int n_open = 0;
    sw_code rc = name_rows(s, err);

    s->states.dir = s->o->quantize.out;
    if (rc == SW_OK && is_first) begin_rows(is_open, s);
    if (rc == SW_OK) rc = sw_team_broadcast(s->base.team, 0, is_open, sizeof is_open, err);
    for (int i = 0; i < s->many.n; i++) n_open += is_open[i];
    for (int i = 0; i < s->many.n && rc == SW_OK; i++) {
        const sw_sweep_row *row = &s->rows[i];
        if (is_open[i]) rc = measure(s, i, n_open > 1, err);
        s->points[i].kl = row->kl.at;
        s->points[i].is_sound = row->is_measured && row->failure.code == SW_OK;
        if (rc == SW_OK && is_first) rc = sw_sweep_write(s, err);
    }
    return rc;
}
