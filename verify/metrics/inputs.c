/* inputs.c - see inputs.h. */
#include "verify/metrics/inputs.h"

#include <stdio.h>
#include <string.h>

#include "formats/base/parallel.h"
#include "formats/io/file.h"
#include "formats/io/file_content.h"

#define MANIFEST "manifest.json"

/* Figures per tensor make manifests of large models long. */
static const sw_json_caps manifest_caps = {
    .max_bytes = (size_t)64 << 20, .max_depth = 32, .max_values = 4000000};

static const char *const side_files[] = {"config.json", "tokenizer.json"};

static int64_t capacity_for(const sw_subject *checkpoint, const sw_subject *original,
                            const cJSON *outputs, const sw_verify_options *options)
{
    int64_t n = options->n_texts + options->n_tasks + sw_st_n_files(checkpoint->st) +
                cJSON_GetArraySize(outputs) + 8;

    return original ? n + sw_st_n_files(original->st) : n;
}

static const char *base_of(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

static const sw_report_file *find_file(const sw_report *report, const char *role, const char *base)
{
    for (int64_t i = 0; i < report->n_files; i++)
        if (!strcmp(report->files[i].role, role) && !strcmp(base_of(report->files[i].path), base))
            return &report->files[i];
    return NULL;
}

/* `digest` NULL: nobody has found it yet. */
static sw_code add_file(sw_report *report, const char *role, const char *path, const char *digest,
                        const sw_progress *progress, sw_err *err)
{
    sw_report_file *f = &report->files[report->n_files];
    sw_map map = {0};
    char *kept;
    sw_code rc;

    if ((rc = sw_progress_check(progress, err)) != SW_OK ||
        (rc = sw_arena_text(&kept, &report->arena, path, strlen(path), err)) != SW_OK ||
        (rc = sw_map_open_any(&map, path, err)) != SW_OK)
        return rc;
    f->role = role;
    f->path = kept;
    f->size_bytes = map.size_bytes;
    sw_map_close(&map);
    if (digest)
        (void)snprintf(f->sha256, sizeof f->sha256, "%s", digest);
    else
        rc = sw_sha256_file(f->sha256, path, err);
    if (rc == SW_OK) report->n_files++;
    sw_progress_step(progress, "hashes", report->n_files, 0);
    return rc;
}

/* All files of a model; of one that this run wrote each by all threads, which find out whether the
 * disk has what was written, unless that was done on the way. The others, one thread each. */
static sw_code digest_files(char (*out)[SW_SHA256_HEX_BYTES], const char **paths, int32_t n,
                            const sw_st_writer *written, const sw_verify_options *options,
                            sw_err *err)
{
    const int n_threads = options->n_threads > 0 ? options->n_threads : sw_cpu_count();
    sw_code rc = SW_OK;

    if (!written) return sw_sha256_files(out, paths, n, options->progress, err);
    for (int32_t i = 0; i < n && rc == SW_OK; i++) {
        const sw_digest_steps *steps = sw_st_writer_digest(written, base_of(paths[i]));
        bool is_same = false;

        if ((rc = sw_progress_check(options->progress, err)) != SW_OK) return rc;
        if (steps) rc = sw_digest_steps_check(&is_same, steps, options->back, paths[i], n_threads,
                                              err);
        if (is_same) memcpy(out[i], steps->digest, sizeof out[i]);
        else if (rc == SW_OK) rc = sw_sha256_file(out[i], paths[i], err);
    }
    return rc;
}

static sw_code add_model(sw_report *report, const char *role, const sw_subject *s,
                         const sw_st_writer *written, const sw_verify_options *options,
                         sw_err *err)
{
    const sw_progress *progress = options->progress;
    char (*digests)[SW_SHA256_HEX_BYTES] = NULL;
    const char **paths = NULL;
    int32_t n = sw_st_n_files(s->st);
    sw_code rc;

    if ((rc = SW_ARENA_TAKE(&digests, &report->arena, n, err)) != SW_OK ||
        (rc = SW_ARENA_TAKE(&paths, &report->arena, n, err)) != SW_OK)
        return rc;
    for (int32_t i = 0; i < n; i++) paths[i] = sw_st_file_path(s->st, i);
    rc = digest_files(digests, paths, n, written, options, err);
    for (int32_t i = 0; rc == SW_OK && i < n; i++)
        rc = add_file(report, role, paths[i], digests[i], progress, err);
    for (size_t i = 0; rc == SW_OK && i < sizeof side_files / sizeof *side_files; i++) {
        char path[SW_PATH_BYTES];

        rc = sw_path_join(path, s->dir, side_files[i], err);
        if (rc == SW_OK && sw_path_exists(path))
            rc = add_file(report, role, path, NULL, progress, err);
    }
    return rc;
}

/* name and sha256 of one entry; false when it has none. */
static bool read_entry(const char **name, const char **sha256, const cJSON *entry)
{
    const cJSON *n = sw_json_member(entry, "name"), *h = sw_json_member(entry, "sha256");

    if (!cJSON_IsString(n) || !cJSON_IsString(h)) return false;
    *name = n->valuestring;
    *sha256 = h->valuestring;
    return true;
}

static sw_code check_output(sw_report *report, const sw_subject *checkpoint, const cJSON *entry,
                            bool is_card, const sw_progress *progress, sw_err *err)
{
    const char *name = "", *want = "";
    char path[SW_PATH_BYTES];
    const sw_report_file *f;
    sw_code rc;

    if (!read_entry(&name, &want, entry) || !sw_path_is_plain_name(name))
        return sw_report_find(report, "manifest", MANIFEST, err, "an output in %s has no plain "
                              "name and sha256", MANIFEST);
    if ((rc = sw_path_join(path, checkpoint->dir, name, err)) != SW_OK) return rc;
    if (!sw_path_exists(path))
        return sw_report_find(report, "missing", name, err, "%s is listed in %s, but is not there",
                              name, MANIFEST);
    if (!find_file(report, "checkpoint", name) &&
        (rc = add_file(report, "checkpoint", path, NULL, progress, err)) != SW_OK)
        return rc;
    f = find_file(report, "checkpoint", name);
    if (!strcmp(f->sha256, want)) return SW_OK;
    if (is_card)
        return sw_report_remark(report, err, "%s, the model card, was changed after it was written",
                                name);
    return sw_report_find(report, "differs", name, err, "%s has SHA-256 %.16s..., %s says %.16s...:"
                          " it was changed after it was written", name, f->sha256, MANIFEST, want);
}

/* The first file of the original whose hash the list of inputs has otherwise, or NULL; *n_same
 * counts those that it has alike. */
static const sw_report_file *other_file(const char **want, int64_t *n_same, const sw_report *report,
                                        const cJSON *inputs)
{
    const sw_report_file *first = NULL;
    const cJSON *entry;

    *n_same = 0;
    cJSON_ArrayForEach(entry, inputs)
    {
        const char *name = "", *sha256 = "";
        const sw_report_file *f = NULL;

        if (read_entry(&name, &sha256, entry)) f = find_file(report, "original", name);
        if (!f) continue;
        *n_same += !strcmp(f->sha256, sha256);
        if (first || !strcmp(f->sha256, sha256)) continue;
        first = f;
        *want = sha256;
    }
    return first;
}

/* Was the source made out of something else, which nothing tells? A conversion may be of what
 * another program quantized. */
static bool is_of_unknown(const cJSON *manifest)
{
    const cJSON *command = sw_json_member(manifest, "command"), *entry;

    if (sw_json_member(manifest, "origin")) return false;
    if (cJSON_IsString(command) && !strcmp(command->valuestring, "convert")) return true;
    cJSON_ArrayForEach(entry, sw_json_member(manifest, "inputs"))
    {
        const char *name = "", *sha256 = "";
        if (read_entry(&name, &sha256, entry) && !strcmp(name, MANIFEST)) return true;
    }
    return false;
}

/* The original must be what the checkpoint was made from, or what that was made from, and so on:
 * "origin" holds the inputs of the manifest before. */
static sw_code check_origins(sw_report *report, const cJSON *manifest, sw_err *err)
{
    const sw_report_file *first = NULL;
    const char *first_want = "", *want = "";
    bool is_source_unknown = false;

    for (const cJSON *at = manifest; at; at = sw_json_member(at, "origin")) {
        const cJSON *inputs = sw_json_member(at, "inputs");
        int64_t n_same;
        const sw_report_file *other = other_file(&want, &n_same, report, inputs);

        if (!other && (n_same || at == manifest)) return SW_OK;
        if (other && !first) {
            first = other;
            first_want = want;
        }
        is_source_unknown = is_of_unknown(at);
    }
    if (!first) return SW_OK; /* other names, of a file say: nothing to compare */
    if (is_source_unknown)
        return sw_report_remark(report, err, "%s of the original has another SHA-256 than the "
                                "source that the checkpoint was made from; what made that is not in"
                                " %s", base_of(first->path), MANIFEST);
    return sw_report_find(report, "other original", base_of(first->path), err, "%s of the original "
                          "has SHA-256 %.16s..., but the checkpoint was made from one with "
                          "%.16s...",
                          base_of(first->path), first->sha256, first_want);
}

/* The manifest, or NULL where there is none or none that can be read: `why` says so then. */
static sw_code read_manifest(cJSON **out, sw_err *why, const sw_subject *checkpoint, sw_err *err)
{
    char path[SW_PATH_BYTES];
    sw_code rc;

    *out = NULL;
    if ((rc = sw_path_join(path, checkpoint->dir, MANIFEST, err)) != SW_OK) return rc;
    if (!sw_path_exists(path)) return SW_OK;
    rc = sw_json_read(out, path, &manifest_caps, why);
    if (rc == SW_OK || rc == SW_E_FORMAT) return SW_OK;
    *err = *why;
    return rc;
}

sw_code sw_verify_manifest(cJSON **out, const sw_subject *checkpoint, sw_err *err)
{
    sw_err why = {0};

    return read_manifest(out, &why, checkpoint, err);
}

/* The same; an unreadable one is a finding. */
static sw_code open_manifest(cJSON **out, sw_report *report, const sw_subject *checkpoint,
                             sw_err *err)
{
    sw_err why = {0};
    sw_code rc = read_manifest(out, &why, checkpoint, err);

    if (rc != SW_OK || why.code != SW_E_FORMAT) return rc;
    return sw_report_find(report, "manifest", MANIFEST, err, "%s", why.text);
}

sw_code sw_verify_inputs(sw_report *report, const sw_subject *checkpoint,
                         const sw_subject *original, const sw_verify_options *options, sw_err *err)
{
    const sw_progress *progress = options->progress;
    const cJSON *outputs, *card, *entry;
    cJSON *manifest = NULL;
    int64_t capacity;
    sw_code rc;

    if ((rc = open_manifest(&manifest, report, checkpoint, err)) != SW_OK) return rc;
    outputs = sw_json_member(manifest, "outputs");
    card = sw_json_member(manifest, "card"); /* texts that people edit: no finding */
    capacity = capacity_for(checkpoint, original, outputs, options);
    if ((rc = SW_ARENA_TAKE(&report->files, &report->arena, capacity, err)) != SW_OK ||
        (rc = add_model(report, "checkpoint", checkpoint, options->written, options,
                        err)) != SW_OK)
        goto done;
    if (original && (rc = add_model(report, "original", original, NULL, options, err)) != SW_OK)
        goto done;
    for (int64_t i = 0; i < options->n_texts; i++)
        if ((rc = add_file(report, "text", options->text_paths[i], NULL, progress, err)) != SW_OK)
            goto done;
    for (int64_t i = 0; i < options->n_tasks; i++)
        if ((rc = add_file(report, "task", options->task_paths[i], NULL, progress, err)) != SW_OK)
            goto done;
    cJSON_ArrayForEach(entry, outputs)
    {
        const cJSON *name = sw_json_member(entry, "name");
        bool is_card = cJSON_IsString(name) && cJSON_IsString(card) &&
                       !strcmp(name->valuestring, card->valuestring);

        rc = check_output(report, checkpoint, entry, is_card, progress, err);
        if (rc != SW_OK) goto done;
    }
    rc = check_origins(report, manifest, err);
done:
    cJSON_Delete(manifest);
    return rc;
}
