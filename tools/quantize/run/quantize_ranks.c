/* quantize_ranks.c - see quantize_ranks.h. */
#include "tools/quantize/run/quantize_ranks.h"

#include <stdio.h>
#include <string.h>

#include "formats/base/hash.h"
#include "formats/base/size.h"
#include "tools/quantize/run/quantize_output.h"

#define SAMPLE_BYTES ((size_t)1 << 12) /* of a tensor's beginning, and of its end */

typedef sw_quantize_job job;

static sw_code check_json(const job *j, const char *what, const cJSON *json, sw_err *err)
{
    char *text = cJSON_PrintUnformatted(json);
    sw_code rc = text ? sw_team_check_same(j->team, what, text, strlen(text), err)
                      : sw_cmd_json_added(NULL, err);

    cJSON_free(text);
    return rc;
}

/* --- settings, one by one, so that the refusal names one --- */

static sw_code check_names(const job *j, const cJSON *key, sw_err *err)
{
    sw_sha256 *sum = NULL;
    char hex[SW_SHA256_HEX_BYTES];
    const cJSON *item;
    sw_code rc = sw_sha256_new(&sum, err);

    cJSON_ArrayForEach(item, key)
        if (rc == SW_OK) rc = sw_sha256_add(sum, item->string, strlen(item->string) + 1, err);
    if (rc == SW_OK) rc = sw_sha256_finish(hex, sum, err);
    sw_sha256_free(sum);
    return rc == SW_OK ? sw_team_check_same(j->team, "set of options", hex, sizeof hex, err) : rc;
}

static sw_code check_members(const job *j, const cJSON *object, sw_err *err)
{
    const cJSON *item;
    char what[160];
    sw_code rc = check_names(j, object, err);

    cJSON_ArrayForEach(item, object) {
        if (rc != SW_OK) break;
        (void)snprintf(what, sizeof what, "setting \"%.120s\"", item->string);
        rc = check_json(j, what, item, err);
    }
    return rc;
}

static sw_code check_settings(const job *j, sw_err *err)
{
    cJSON *key = NULL;
    sw_code rc = sw_quantize_output_key(&key, j, err);

    if (rc == SW_OK && cJSON_IsObject(sw_json_member(key, "settings")))
        rc = check_members(j, sw_json_member(key, "settings"), err);
    if (rc == SW_OK) rc = check_members(j, key, err);
    cJSON_Delete(key);
    return rc;
}

/* --- weights --- */

/* Name, type, shape, and some bytes. */
static sw_code add_tensor(sw_sha256 *sum, const sw_st_tensor *t, sw_err *err)
{
    const size_t n_bytes = t->view.size_bytes, n = SAMPLE_BYTES;
    const char *data = t->view.data;
    sw_code rc = sw_sha256_add(sum, t->name, strlen(t->name) + 1, err);

    if (rc == SW_OK) rc = sw_sha256_add(sum, &t->view.dtype, sizeof t->view.dtype, err);
    if (rc == SW_OK)
        rc = sw_sha256_add(sum, t->view.shape, (size_t)t->view.n_dims * sizeof *t->view.shape,
                           err);
    if (rc != SW_OK || !data) return rc;
    if (n_bytes <= 2 * n) return sw_sha256_add(sum, data, n_bytes, err);
    rc = sw_sha256_add(sum, data, n, err);
    return rc == SW_OK ? sw_sha256_add(sum, data + n_bytes - n, n, err) : rc;
}

static sw_code check_file(const job *j, int32_t shard, sw_err *err)
{
    const char *path = sw_st_file_path(j->source.st, shard), *slash = strrchr(path, '/');
    char hex[SW_SHA256_HEX_BYTES];
    sw_sha256 *sum = NULL;
    sw_code rc = sw_sha256_new(&sum, err);

    for (int64_t i = 0; i < sw_st_count(j->source.st) && rc == SW_OK; i++)
        if (sw_st_at(j->source.st, i)->shard == shard)
            rc = add_tensor(sum, sw_st_at(j->source.st, i), err);
    if (rc == SW_OK) rc = sw_sha256_finish(hex, sum, err);
    sw_sha256_free(sum);
    if (rc != SW_OK) return rc;
    return sw_team_check_same(j->team, slash ? slash + 1 : path, hex, sizeof hex, err);
}

static sw_code check_weights(const job *j, sw_err *err)
{
    const int32_t n = sw_st_n_files(j->source.st);
    sw_code rc = sw_team_check_same(j->team, "number of weight files", &n, sizeof n, err);

    for (int32_t shard = 0; shard < n && rc == SW_OK; shard++) rc = check_file(j, shard, err);
    return rc;
}

sw_code sw_quantize_ranks_check(const sw_quantize_job *j, sw_err *err)
{
    const sw_calib *calib = &j->calibration.calib;
    sw_code rc;

    if (sw_team_size(j->team) == 1) return SW_OK;
    if ((rc = sw_team_check_same(j->team, "version of swage", SW_VERSION, sizeof SW_VERSION,
                                 err)) != SW_OK ||
        (rc = check_json(j, "config.json", j->source.config, err)) != SW_OK ||
        (rc = check_weights(j, err)) != SW_OK)
        return rc;
    rc = sw_team_check_same(j->team, "calibration text", calib->ids,
                            (size_t)(calib->n_seqs * calib->seq_len) * sizeof *calib->ids, err);
    return rc == SW_OK ? check_settings(j, err) : rc;
}
