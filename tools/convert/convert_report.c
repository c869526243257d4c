/* convert_report.c - see convert_job.h: what a conversion did, as JSON. */
#include <string.h>

#include "tools/cli/cmd.h"
#include "tools/cli/family.h"
#include "tools/convert/convert_job.h"

const char *sw_convert_from(const sw_convert_job *job)
{
    const sw_checkpoint *source = &job->source;

    if (source->dialect) return source->dialect->name;
    return source->is_file ? "gguf" : sw_dtype_name(source->model.dtype);
}

static bool add_scheme(cJSON *row, const char *key, const sw_qspec *spec)
{
    cJSON *o = cJSON_AddObjectToObject(row, key);

    return o && cJSON_AddStringToObject(o, "number", spec->num->name) &&
           cJSON_AddNumberToObject(o, "group_size", (double)spec->group_elems) &&
           cJSON_AddBoolToObject(o, "symmetric", spec->is_symmetric) &&
           cJSON_AddStringToObject(o, "scales", sw_dtype_name(spec->scale_dtype)) &&
           (!spec->is_scattered || cJSON_AddBoolToObject(o, "act_order", true));
}

static bool add_row(cJSON *rows, const sw_convert_linear *l)
{
    cJSON *row = cJSON_CreateObject();

    if (!row || !cJSON_AddItemToArray(rows, row)) {
        cJSON_Delete(row);
        return false;
    }
    return cJSON_AddStringToObject(row, "name", l->path) &&
           cJSON_AddNumberToObject(row, "n_out", (double)l->ref.n_out) &&
           cJSON_AddNumberToObject(row, "k_in", (double)l->ref.k_in) &&
           cJSON_AddStringToObject(row, "fate", sw_fate_name(l->fate)) &&
           (l->blocks ? cJSON_AddStringToObject(row, "from", l->blocks) != NULL
                      : add_scheme(row, "from", &l->from)) &&
           (l->fate != SW_FATE_REQUANTIZED || add_scheme(row, "to", &l->to)) &&
           (!l->why || cJSON_AddStringToObject(row, "why", l->why)) &&
           (l->fate != SW_FATE_REQUANTIZED ||
            cJSON_AddNumberToObject(row, "relative_error", l->error));
}

static bool add_rows(cJSON *root, const sw_convert_job *job)
{
    cJSON *rows = cJSON_AddArrayToObject(root, "tensors");
    bool ok = rows != NULL;

    for (int64_t i = 0; i < job->n_linears && ok; i++) ok = add_row(rows, &job->linears[i]);
    return ok;
}

sw_code sw_convert_json(cJSON **out, const sw_convert_job *job, const char *result,
                        bool with_tensors, sw_err *err)
{
    const char *from = sw_convert_from(job);
    cJSON *root = NULL;
    sw_code rc = sw_cmd_json_new(&root, result, err);
    bool ok;

    if (rc != SW_OK) return rc;
    ok = cJSON_AddStringToObject(root, "command", "convert") &&
         cJSON_AddStringToObject(root, "from", from) &&
         cJSON_AddStringToObject(root, "format", job->options.target->name);
    for (int i = 0; i < SW_FATE_COUNT && ok; i++)
        ok = cJSON_AddNumberToObject(root, sw_fate_name((sw_fate)i), (double)job->n_of[i]);
    if (ok && with_tensors) ok = add_rows(root, job);
    if (ok) ok = sw_family_add_json(root, &job->source.model, err) == SW_OK;
    if (ok) {
        *out = root;
        return SW_OK;
    }
    cJSON_Delete(root);
    return sw_cmd_json_added(NULL, err);
}
