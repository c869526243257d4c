/* quantize_finished.c - see quantize_finished.h. */
#include "tools/quantize/run/quantize_finished.h"

#include <string.h>
#include <sys/stat.h>

#include "formats/io/file.h"
#include "formats/io/file_content.h"
#include "formats/io/watch.h"
#include "tools/quantize/run/quantize_output.h"

static const sw_json_caps caps = {
    .max_bytes = (size_t)256 << 20, .max_depth = 32, .max_values = 16000000};

/* Settings, calibration and what else the manifest begins with: all but the list that grows. */
static bool has_same_settings(const cJSON *there, const cJSON *wanted)
{
    const cJSON *member;

    cJSON_ArrayForEach(member, wanted)
        if (strcmp(member->string, "tensors") != 0 &&
            !cJSON_Compare(member, sw_json_member(there, member->string), true))
            return false;
    return true;
}

/* Settings of single linears, which an override of a recipe or a choice by measuring gave. */
static bool has_same_linears(const cJSON *there, const sw_selection *selection)
{
    const cJSON *rows = sw_json_member(there, "tensors"), *row;
    int64_t n = 0;

    cJSON_ArrayForEach(row, rows) {
        const cJSON *name = sw_json_member(row, "name"), *bits = sw_json_member(row, "bits");
        const cJSON *group = sw_json_member(row, "group_size");
        const cJSON *outliers = sw_json_member(row, "outliers");
        const sw_qspec *spec = cJSON_IsString(name)
                                   ? sw_selection_spec(selection, name->valuestring) : NULL;
        if (!spec || !cJSON_IsNumber(bits) || bits->valueint != spec->num->bits ||
            !cJSON_IsNumber(group) || (int64_t)group->valuedouble != spec->group_elems ||
            cJSON_IsTrue(sw_json_member(row, "symmetric")) != spec->is_symmetric ||
            (int64_t)(cJSON_IsNumber(outliers) ? outliers->valuedouble : 0) != spec->n_outliers)
            return false;
        n++;
    }
    return n == selection->n_linears;
}

static sw_code has_same_command(bool *out, const cJSON *there, const sw_quantize_job *j,
                                sw_err *err)
{
    cJSON *wanted = cJSON_CreateObject();
    sw_code rc = wanted ? sw_quantize_output_command(wanted, j, err)
                        : sw_cmd_json_added(NULL, err);

    *out = rc == SW_OK && cJSON_Compare(sw_json_member(wanted, "made_by"),
                                        sw_json_member(there, "made_by"), true);
    cJSON_Delete(wanted);
    return rc;
}

static bool has_files(const char *dir, const cJSON *there)
{
    const cJSON *file, *list = sw_json_member(there, "outputs");

    cJSON_ArrayForEach(file, list) {
        const cJSON *name = sw_json_member(file, "name"), *bytes = sw_json_member(file, "bytes");
        char path[SW_PATH_BYTES];
        sw_err ignored = {0};
        struct stat info;
        if (!cJSON_IsString(name) || !cJSON_IsNumber(bytes) ||
            !sw_path_is_plain_name(name->valuestring) ||
            sw_path_join(path, dir, name->valuestring, &ignored) != SW_OK ||
            stat(path, &info) != 0 || info.st_size != (off_t)bytes->valuedouble)
            return false;
    }
    return cJSON_GetArraySize(list) > 0;
}

static sw_code compare(const char **why, const sw_quantize_job *j, const cJSON *there,
                       sw_err *err)
{
    bool is_same_command = false;
    sw_code rc = has_same_command(&is_same_command, there, j, err);

    if (rc != SW_OK) return rc;
    if (!has_same_settings(there, j->report.manifest) || !is_same_command ||
        !has_same_linears(there, &j->selection))
        *why = "was made with other settings or another version";
    else if (!cJSON_Compare(sw_json_member(there, "inputs"),
                            sw_json_member(j->sources, "inputs"), true))
        *why = "was made from another model";
    else
        *why = has_files(j->o->out, there) ? NULL : "lacks files that its manifest names";
    return SW_OK;
}

sw_code sw_quantize_find_finished(const char **why, const sw_quantize_job *j, sw_err *err)
{
    char path[SW_PATH_BYTES];
    cJSON *there = NULL;
    sw_err local = {0};
    sw_code rc = sw_path_join(path, j->o->out, "manifest.json", err);

    *why = "is no checkpoint of swage";
    if (rc != SW_OK || !sw_path_exists(path)) return rc;
    if ((rc = sw_json_read(&there, path, &caps, &local)) == SW_E_FORMAT) return SW_OK;
    if (rc != SW_OK) {
        *err = local;
        return rc;
    }
    sw_watch_forget(j->o->out); /* it may be replaced by this very run */
    rc = compare(why, j, there, err);
    cJSON_Delete(there);
    return rc;
}
