/* results.c - see results.h. */
#include "tools/report/data/results.h"

#include <stdio.h>
#include <string.h>

#include "formats/io/file.h"
#include "formats/io/file_content.h"

static const sw_json_caps result_caps = {
    .max_bytes = (size_t)256 << 20, .max_depth = 32, .max_values = 16000000};

static const char *base_of(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

/* The path of the file by this name in the checkpoint; "": it has none. */
static sw_code locate(char path[SW_PATH_BYTES], const sw_exhibit *x, const char *name, sw_err *err)
{
    sw_code rc = SW_OK;

    path[0] = '\0';
    if (x->ckpt.is_file) {
        if (!strcmp(base_of(x->path), name)) (void)snprintf(path, SW_PATH_BYTES, "%s", x->path);
        return SW_OK;
    }
    if (!sw_path_is_plain_name(name)) return SW_OK;
    rc = sw_path_join_inside(path, x->ckpt.dir, name, err);
    if (rc == SW_OK && !sw_path_exists(path)) path[0] = '\0';
    return rc;
}

/* A size that differs says so before the bytes are read. */
static sw_code has_digest(bool *out, const char *path, const cJSON *file, sw_err *err)
{
    const char *want = sw_exhibit_text(file, "sha256");
    double bytes = sw_exhibit_number(file, "bytes");
    char have[SW_SHA256_HEX_BYTES];
    sw_map map = {0};
    sw_code rc = sw_map_open_any(&map, path, err);

    *out = false;
    if (rc != SW_OK) return rc;
    if ((double)map.size_bytes >= bytes && (double)map.size_bytes <= bytes) {
        rc = sw_sha256_file(have, path, err);
        *out = rc == SW_OK && want && !strcmp(have, want);
    }
    sw_map_close(&map);
    return rc;
}

/* Every file of the checkpoint that verify read is here, with the same bytes. */
static sw_code is_about(bool *out, const sw_exhibit *x, const cJSON *verified, sw_err *err)
{
    const cJSON *file;
    bool has_any = false;

    *out = false;
    cJSON_ArrayForEach(file, sw_json_member(verified, "inputs")) {
        const char *role = sw_exhibit_text(file, "role"), *name = sw_exhibit_text(file, "path");
        char path[SW_PATH_BYTES];
        sw_code rc;
        if (!role || !name || strcmp(role, "checkpoint") != 0) continue;
        if ((rc = locate(path, x, base_of(name), err)) != SW_OK) return rc;
        if (!path[0]) return SW_OK;
        if ((rc = has_digest(&has_any, path, file, err)) != SW_OK || !has_any) return rc;
    }
    *out = has_any;
    return SW_OK;
}

static sw_code take_verified(bool *is_taken, sw_exhibit *x, cJSON *result, const char *path,
                             sw_err *err)
{
    bool is_its = false;
    sw_code rc = is_about(&is_its, x, result, err);

    if (rc != SW_OK || !is_its) return rc;
    if (x->verified)
        return SW_FAIL(err, SW_E_USAGE, "%s: a second result of verify for %s; give one of them",
                       path, x->path);
    *is_taken = true;
    rc = sw_exhibit_add_verified(x, result, err);
    sw_err_prefix(err, "%s", path);
    return rc;
}

static sw_code take_made(bool *is_taken, sw_exhibit *x, cJSON *result, const char *path,
                         sw_err *err)
{
    const cJSON *mine = sw_json_member(x->manifest, "tensors");

    if (!mine || !cJSON_Compare(mine, sw_json_member(result, "tensors"), true) ||
        !cJSON_Compare(sw_json_member(x->manifest, "settings"), sw_json_member(result, "settings"),
                       true))
        return SW_OK;
    if (x->made)
        return SW_FAIL(err, SW_E_USAGE, "%s: a second result of quantize for %s; give one of them",
                       path, x->path);
    *is_taken = true;
    sw_exhibit_add_made(x, result);
    return SW_OK;
}

sw_code sw_results_add(sw_exhibit *x, int n, const char *path, sw_err *err)
{
    cJSON *result = NULL;
    const char *kind;
    bool is_taken = false, is_made;
    sw_code rc = sw_json_read(&result, path, &result_caps, err);

    if (rc != SW_OK) return rc;
    kind = sw_exhibit_text(result, "result");
    is_made = kind && !strcmp(kind, "swage.quantize/1");
    if (!is_made && !sw_json_member(result, "report_version"))
        rc = SW_FAIL(err, SW_E_USAGE, "%s: not a result of `verify --report` or `quantize --json`",
                     path);
    for (int i = 0; i < n && rc == SW_OK && !is_taken; i++)
        rc = is_made ? take_made(&is_taken, &x[i], result, path, err)
                     : take_verified(&is_taken, &x[i], result, path, err);
    if (rc == SW_OK && !is_taken)
        rc = SW_FAIL(err, SW_E_USAGE, "%s: about none of the checkpoints given: %s", path,
                     is_made ? "their manifests have other figures"
                             : "their files have other digests; verify them again");
    if (!is_taken) cJSON_Delete(result);
    return rc;
}
