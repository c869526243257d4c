/* family.c - see family.h. */
#include "tools/cli/family.h"

#include <stdio.h>

const char *sw_family_type(const cJSON *config)
{
    const cJSON *type = sw_json_member(config, "model_type");

    return cJSON_IsString(type) ? type->valuestring : "(absent)";
}

char *sw_family_text(char out[SW_FAMILY_TEXT_BYTES], const sw_model *model, const cJSON *config)
{
    const char *type = sw_family_type(config);

    if (model->is_like)
        (void)snprintf(out, SW_FAMILY_TEXT_BYTES, "%.60s, read as %s", type, model->arch->name);
    else if (model->arch == &sw_arch_unknown)
        (void)snprintf(out, SW_FAMILY_TEXT_BYTES, "%.60s, which is not known: weights alone", type);
    else
        (void)snprintf(out, SW_FAMILY_TEXT_BYTES, "%s", model->arch->name);
    return out;
}

sw_code sw_family_add_json(cJSON *root, const sw_model *model, sw_err *err)
{
    const cJSON *added = root;

    if (model->is_like)
        added = cJSON_AddStringToObject(root, "arch_like", model->arch->name);
    else if (model->arch == &sw_arch_unknown)
        added = cJSON_AddBoolToObject(root, "weights_alone", true);
    return added ? SW_OK : SW_FAIL(err, SW_E_NOMEM, "no memory for the result");
}
