/* result.c - the JSON result of a command: see cmd.h. */
#include <stdio.h>

#include "tools/cli/cmd.h"

sw_code sw_cmd_json_added(const void *added, sw_err *err)
{
    return added ? SW_OK : SW_FAIL(err, SW_E_NOMEM, "no memory for the JSON result");
}

sw_code sw_cmd_json_new(cJSON **out, const char *name, sw_err *err)
{
    cJSON *object = cJSON_CreateObject();
    char result[64];

    (void)snprintf(result, sizeof result, "swage.%s/1", name);
    if (!cJSON_AddStringToObject(object, "result", result) ||
        !cJSON_AddStringToObject(object, "swage", SW_VERSION)) {
        cJSON_Delete(object);
        return sw_cmd_json_added(NULL, err);
    }
    *out = object;
    return SW_OK;
}

sw_code sw_cmd_json_print(sw_run *run, const cJSON *object, sw_err *err)
{
    char *text = NULL;
    sw_code rc = sw_json_print(&text, object, true, err);

    if (rc != SW_OK) return rc;
    (void)puts(text);
    sw_mem_put(text);
    run->has_result = true;
    return SW_OK;
}
