/* decode_spec_rules.c - rules of mixed checkpoints, as the second decoder reads them. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "verify/decoders/decode_spec_parts.h"

/* Steps of a match before a pattern counts as hostile. */
#define MATCH_LIMIT 100000

sw_code sw_spec_override(sw_spec_scheme *scheme, const cJSON *object, sw_err *err)
{
    int64_t bits = scheme->bits, group_size = scheme->group_elems ? scheme->group_elems : -1;
    sw_code rc;

    if (!cJSON_IsObject(object)) return SW_FAIL(err, SW_E_FORMAT, "not an object");
    if ((rc = sw_json_int(&bits, object, "bits", 0, 64, err)) != SW_OK ||
        (rc = sw_json_int(&group_size, object, "group_size", -1, INT32_MAX, err)) != SW_OK ||
        (rc = sw_json_bool(&scheme->is_symmetric, object, "sym", err)) != SW_OK ||
        (rc = sw_json_bool(&scheme->wants_g_idx, object, "desc_act", err)) != SW_OK)
        return rc;
    rc = sw_json_int(&scheme->n_outliers, object, "outliers", 0, INT32_MAX, err);
    return rc == SW_OK ? sw_spec_sizes(scheme, bits, group_size, err) : rc;
}

static int match(pcre2_code *code, const char *text)
{
    pcre2_match_context *limits = pcre2_match_context_create(NULL);
    pcre2_match_data *data = pcre2_match_data_create(1, NULL);
    int result = PCRE2_ERROR_NOMEMORY;

    if (limits && data) {
        (void)pcre2_set_match_limit(limits, MATCH_LIMIT);
        result = pcre2_match(code, (PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED, 0, 0, data, limits);
    }
    pcre2_match_data_free(data);
    pcre2_match_context_free(limits);
    return result;
}

sw_code sw_spec_match(bool *out, const char *pattern, const char *text, sw_err *err)
{
    PCRE2_SIZE at;
    int number, result;
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                                     PCRE2_UTF | PCRE2_ANCHORED, &number, &at, NULL);

    if (!code)
        return SW_FAIL(err, SW_E_FORMAT, "\"%.80s\" is no pattern: error at character %zu",
                       pattern, (size_t)at);
    result = match(code, text);
    pcre2_code_free(code);
    if (result == PCRE2_ERROR_NOMEMORY) return SW_FAIL(err, SW_E_NOMEM, "no memory for a match");
    if (result < 0 && result != PCRE2_ERROR_NOMATCH)
        return SW_FAIL(err, SW_E_FORMAT, "\"%.80s\" is too expensive to match", pattern);
    *out = result >= 0;
    return SW_OK;
}
