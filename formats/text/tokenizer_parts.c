/* tokenizer_parts.c - what the stages of tokenizer.json have in common: a type, and sequences. */
#include <string.h>

#include "formats/base/json.h"
#include "formats/text/tokenizer_parts.h"

sw_code sw_part_type(const char **type, const cJSON *json, const char *stage, sw_err *err)
{
    sw_code rc;

    *type = NULL;
    if (!cJSON_IsObject(json)) return SW_FAIL(err, SW_E_FORMAT, "%s: not an object", stage);
    if ((rc = sw_json_text(type, json, "type", err)) != SW_OK) {
        sw_err_prefix(err, "%s", stage);
        return rc;
    }
    return *type ? SW_OK : SW_FAIL(err, SW_E_FORMAT, "%s: no \"type\"", stage);
}

sw_code sw_part_unsupported(const char *stage, const char *type, sw_err *err)
{
    return SW_FAIL(err, SW_E_UNSUPPORTED, "%s of type \"%.60s\" is not supported", stage, type);
}

/* The depth of nesting is bounded by the limit on the depth of JSON. */
sw_code sw_part_each(const cJSON *json, const char *stage, const char *members, sw_part_fn parse,
                     void *self, sw_arena *arena, sw_err *err)
{
    const char *type;
    const cJSON *member;
    sw_code rc;

    if (!json) return SW_OK;
    if ((rc = sw_part_type(&type, json, stage, err)) != SW_OK) return rc;
    if (strcmp(type, "Sequence") != 0) return parse(self, json, type, arena, err);
    member = sw_json_member(json, members);
    if (!cJSON_IsArray(member))
        return SW_FAIL(err, SW_E_FORMAT, "%s Sequence: no \"%s\"", stage, members);
    for (member = member->child; member; member = member->next)
        if ((rc = sw_part_each(member, stage, members, parse, self, arena, err)) != SW_OK)
            return rc;
    return SW_OK;
}
