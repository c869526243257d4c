/* stats_input.c - see stats_input.h. */
#include "tools/calibrate/stats_input.h"

#include <stdlib.h>

#include "formats/checkpoint/manifest.h"

sw_code sw_stats_input_open(sw_zpack **out, const char *path, const sw_checkpoint *source,
                            sw_experts policy, sw_err *err)
{
    char identity[SW_SHA256_HEX_BYTES];
    sw_zpack *z = NULL;
    sw_code rc;

    if ((rc = sw_zpack_open(&z, path, err)) != SW_OK) return rc;
    if ((rc = sw_checkpoint_identity(identity, source, err)) != SW_OK) goto done;
    if ((rc = sw_stats_check(z, identity, &source->model, policy, err)) != SW_OK)
        sw_err_prefix(err, "%s", path);
done:
    if (rc != SW_OK)
        sw_zpack_close(z);
    else
        *out = z;
    return rc;
}

/* A number stays a number. */
static bool copy_number(cJSON *to, const sw_zpack *stats, const char *key)
{
    const char *text = sw_zpack_meta(stats, key);

    return cJSON_AddNumberToObject(to, key, text ? strtod(text, NULL) : 0) != NULL;
}

sw_code sw_stats_input_describe(cJSON *manifest, const sw_zpack *stats, sw_err *err)
{
    const char *ids = sw_zpack_meta(stats, "ids_sha256");
    cJSON *o = cJSON_AddObjectToObject(manifest, "calibration");
    bool ok = o && cJSON_AddStringToObject(o, "statistics_sha256", sw_zpack_sha256(stats)) &&
              cJSON_AddStringToObject(o, "ids_sha256", ids ? ids : "") &&
              copy_number(o, stats, "samples") && copy_number(o, stats, "seq_len") &&
              cJSON_AddStringToObject(o, "error_propagation", "not re-run");

    return ok ? SW_OK : sw_cmd_json_added(NULL, err);
}
