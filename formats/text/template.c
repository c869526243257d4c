/* template.c - the "post_processor" of tokenizer.json: what goes around the ids of a text. */
#include <string.h>

#include "formats/base/json.h"
#include "formats/text/tokenizer_parts.h"

static sw_code add_special(sw_ids *list, const cJSON *special, const cJSON *all, sw_err *err)
{
    const char *name = NULL;
    const cJSON *ids;
    sw_code rc = sw_json_text(&name, special, "id", err);

    if (rc != SW_OK) return rc;
    if (!name) return SW_FAIL(err, SW_E_FORMAT, "SpecialToken without \"id\"");
    ids = sw_json_member(sw_json_member(all, name), "ids");
    if (!cJSON_IsArray(ids))
        return SW_FAIL(err, SW_E_FORMAT, "special_tokens has no ids for \"%.60s\"", name);
    for (ids = ids->child; ids; ids = ids->next) {
        int64_t id = 0;
        rc = sw_json_as_int(&id, ids, 0, SW_TOKEN_ID_LIMIT - 1, "special token id", err);
        if (rc == SW_OK) rc = sw_ids_push(list, (uint32_t)id, err);
        if (rc != SW_OK) return rc;
    }
    return SW_OK;
}

/* Each stage goes around the one before. Without a limit, a file with many stages would take
 * quadratic time, and would add as many ids to each text as the file has bytes. */
#define TEMPLATE_IDS_MAX 1024
#define TEMPLATE_STAGES_MAX 32

static sw_code check_sequence(const cJSON *sequence, bool *has_text, sw_err *err)
{
    const char *name = NULL;
    sw_code rc = sw_json_text(&name, sequence, "id", err);

    if (rc != SW_OK) return rc;
    if (!name || strcmp(name, "A") != 0 || *has_text)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "\"single\" needs Sequence A exactly once");
    *has_text = true;
    return SW_OK;
}

/* Put the template around what is there already, since the stages of a Sequence apply in turn. */
static sw_code wrap(sw_template *out, const sw_template *outer, sw_err *err)
{
    sw_ids before = {0};
    sw_code rc = SW_OK;

    if (++out->n_stages > TEMPLATE_STAGES_MAX ||
        outer->before.n + outer->after.n + out->before.n + out->after.n > TEMPLATE_IDS_MAX)
        return SW_FAIL(err, SW_E_FORMAT, "more than %d stages or %d special tokens",
                       TEMPLATE_STAGES_MAX, TEMPLATE_IDS_MAX);
    for (int64_t i = 0; i < outer->before.n && rc == SW_OK; i++)
        rc = sw_ids_push(&before, outer->before.ids[i], err);
    for (int64_t i = 0; i < out->before.n && rc == SW_OK; i++)
        rc = sw_ids_push(&before, out->before.ids[i], err);
    for (int64_t i = 0; i < outer->after.n && rc == SW_OK; i++)
        rc = sw_ids_push(&out->after, outer->after.ids[i], err);
    sw_ids_free(rc == SW_OK ? &out->before : &before);
    if (rc == SW_OK) out->before = before;
    return rc;
}

static sw_code parse_template(sw_template *out, const cJSON *json, sw_err *err)
{
    const cJSON *single = sw_json_member(json, "single");
    const cJSON *all = sw_json_member(json, "special_tokens");
    sw_template outer = {0};
    bool has_text = false;
    sw_code rc = SW_OK;

    if (!cJSON_IsArray(single)) return SW_FAIL(err, SW_E_FORMAT, "no \"single\" array");
    for (single = single->child; single && rc == SW_OK; single = single->next) {
        const cJSON *special = sw_json_member(single, "SpecialToken");
        const cJSON *sequence = sw_json_member(single, "Sequence");
        if (special && !sequence)
            rc = add_special(has_text ? &outer.after : &outer.before, special, all, err);
        else if (sequence && !special) rc = check_sequence(sequence, &has_text, err);
        else rc = SW_FAIL(err, SW_E_FORMAT, "\"single\": neither SpecialToken nor Sequence");
    }
    if (rc == SW_OK && !has_text)
        rc = SW_FAIL(err, SW_E_UNSUPPORTED, "\"single\" needs Sequence A exactly once");
    if (rc == SW_OK) rc = wrap(out, &outer, err);
    sw_template_free(&outer);
    return rc;
}

static sw_code parse_processor(void *self, const cJSON *json, const char *type, sw_arena *arena,
                               sw_err *err)
{
    sw_code rc;

    (void)arena;
    if (!strcmp(type, "ByteLevel")) return SW_OK; /* ByteLevel only changes offsets */
    if (strcmp(type, "TemplateProcessing") != 0)
        return sw_part_unsupported("post_processor", type, err);
    rc = parse_template(self, json, err);
    if (rc != SW_OK) sw_err_prefix(err, "post_processor TemplateProcessing");
    return rc;
}

sw_code sw_template_parse(sw_template *out, const cJSON *json, sw_err *err)
{
    return sw_part_each(json, "post_processor", "processors", parse_processor, out, NULL, err);
}

void sw_template_free(sw_template *tmpl)
{
    sw_ids_free(&tmpl->before);
    sw_ids_free(&tmpl->after);
}
