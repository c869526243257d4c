/* same_inputs.c - see same_inputs.h. */
#include "tools/calibrate/same_inputs.h"

#include <stdio.h>
#include <string.h>

#include "formats/base/hash.h"
#include "tools/cli/cmd.h"

#define SAMPLE_BYTES ((size_t)1 << 12) /* of a tensor's beginning, and of its end */
#define WHAT_BYTES 160

static sw_code check_json(sw_team *team, const char *what, const cJSON *json, sw_err *err)
{
    char *text = cJSON_PrintUnformatted(json);
    sw_code rc = text ? sw_team_check_same(team, what, text, strlen(text), err)
                      : sw_cmd_json_added(NULL, err);

    cJSON_free(text);
    return rc;
}

/* --- settings --- */

static void name_setting(char what[WHAT_BYTES], const char *name)
{
    (void)snprintf(what, WHAT_BYTES, "setting \"%.120s\"", name);
}

sw_code sw_same_setting(sw_team *team, const char *name, const char *text, sw_err *err)
{
    char what[WHAT_BYTES];

    name_setting(what, name);
    return sw_team_check_same(team, what, text ? text : "", text ? strlen(text) + 1 : 0, err);
}

static sw_code check_names(sw_team *team, const cJSON *object, sw_err *err)
{
    sw_sha256 *sum = NULL;
    char hex[SW_SHA256_HEX_BYTES];
    const cJSON *item;
    sw_code rc = sw_sha256_new(&sum, err);

    cJSON_ArrayForEach(item, object)
        if (rc == SW_OK) rc = sw_sha256_add(sum, item->string, strlen(item->string) + 1, err);
    if (rc == SW_OK) rc = sw_sha256_finish(hex, sum, err);
    sw_sha256_free(sum);
    return rc == SW_OK ? sw_team_check_same(team, "set of options", hex, sizeof hex, err) : rc;
}

sw_code sw_same_settings(sw_team *team, const cJSON *object, sw_err *err)
{
    const cJSON *item;
    char what[WHAT_BYTES];
    sw_code rc;

    if (sw_team_size(team) == 1) return SW_OK;
    rc = check_names(team, object, err);
    cJSON_ArrayForEach(item, object) {
        if (rc != SW_OK) break;
        name_setting(what, item->string);
        rc = check_json(team, what, item, err);
    }
    return rc;
}

/* --- the model --- */

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

static sw_code check_file(sw_team *team, const sw_st *st, int32_t shard, sw_err *err)
{
    const char *path = sw_st_file_path(st, shard), *slash = strrchr(path, '/');
    char hex[SW_SHA256_HEX_BYTES];
    sw_sha256 *sum = NULL;
    sw_code rc = sw_sha256_new(&sum, err);

    for (int64_t i = 0; i < sw_st_count(st) && rc == SW_OK; i++)
        if (sw_st_at(st, i)->shard == shard) rc = add_tensor(sum, sw_st_at(st, i), err);
    if (rc == SW_OK) rc = sw_sha256_finish(hex, sum, err);
    sw_sha256_free(sum);
    if (rc != SW_OK) return rc;
    return sw_team_check_same(team, slash ? slash + 1 : path, hex, sizeof hex, err);
}

sw_code sw_same_model(sw_team *team, const sw_checkpoint *source, sw_err *err)
{
    const int32_t n = sw_st_n_files(source->st);
    sw_code rc;

    if (sw_team_size(team) == 1) return SW_OK;
    rc = sw_team_check_same(team, "version of swage", SW_VERSION, sizeof SW_VERSION, err);
    if (rc == SW_OK) rc = check_json(team, "config.json", source->config, err);
    if (rc == SW_OK) rc = sw_team_check_same(team, "number of weight files", &n, sizeof n, err);
    for (int32_t shard = 0; shard < n && rc == SW_OK; shard++)
        rc = check_file(team, source->st, shard, err);
    return rc;
}

sw_code sw_same_text(sw_team *team, const sw_calib *calib, sw_err *err)
{
    return sw_team_check_same(team, "calibration text", calib->ids,
                              (size_t)(calib->n_seqs * calib->seq_len) * sizeof *calib->ids, err);
}
