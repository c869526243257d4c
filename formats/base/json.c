/* json.c - see json.h. */
#include "formats/base/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/file.h"
#include "formats/base/mem.h"

#define JSON_EXACT_MAX 9007199254740992.0 /* 2^53 */

const sw_json_caps sw_json_caps_config = {1u << 20, 32, 100000};

/* One pass over the raw text, so that hostile input is refused before anything is built. */
typedef struct json_scan {
    int depth, deepest;
    int64_t n_values;
    bool in_string, has_nul_escape;
} json_scan;

static size_t scan_string_byte(json_scan *scan, const char *text, size_t at, size_t n_bytes)
{
    if (text[at] == '"') scan->in_string = false;
    if (text[at] != '\\' || at + 1 >= n_bytes) return at + 1;
    if (n_bytes - at >= 6 && !memcmp(text + at, "\\u0000", 6)) scan->has_nul_escape = true;
    return at + 2;
}

static size_t scan_plain_byte(json_scan *scan, const char *text, size_t at)
{
    char c = text[at];

    if (c == '"') scan->in_string = true;
    if (c == '{' || c == '[') {
        scan->n_values++;
        if (++scan->depth > scan->deepest) scan->deepest = scan->depth;
    }
    if (c == '}' || c == ']') scan->depth--;
    if (c == ',') scan->n_values++;
    return at + 1;
}

static sw_code check_text(const char *text, size_t n_bytes, const sw_json_caps *caps,
                          const char *what, sw_err *err)
{
    json_scan scan = {0};
    size_t bad_at = 0;

    if (n_bytes > caps->max_bytes)
        return SW_FAIL(err, SW_E_FORMAT, "%s: JSON of %zu bytes, at most %zu are allowed", what,
                       n_bytes, caps->max_bytes);
    if (!sw_utf8_is_valid(text, n_bytes, &bad_at))
        return SW_FAIL(err, SW_E_FORMAT, "%s: invalid UTF-8 at byte %zu of the JSON", what, bad_at);
    for (size_t at = 0; at < n_bytes;) {
        if (text[at] == '\0')
            return SW_FAIL(err, SW_E_FORMAT, "%s: NUL at byte %zu of the JSON", what, at);
        at = scan.in_string ? scan_string_byte(&scan, text, at, n_bytes)
                            : scan_plain_byte(&scan, text, at);
        if (scan.deepest > caps->max_depth)
            return SW_FAIL(err, SW_E_FORMAT, "%s: JSON nested deeper than %d", what,
                           caps->max_depth);
        if (scan.n_values > caps->max_values)
            return SW_FAIL(err, SW_E_FORMAT, "%s: JSON with more than %lld values", what,
                           (long long)caps->max_values);
    }
    if (scan.has_nul_escape)
        return SW_FAIL(err, SW_E_FORMAT, "%s: \\u0000 in a JSON string", what);
    return SW_OK;
}

static int compare_keys(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static sw_code check_object_keys(const cJSON *object, const char *what, sw_err *err)
{
    const char **keys = NULL;
    int64_t n_keys = 0, i = 0;
    const cJSON *member;
    sw_code rc = SW_OK;

    cJSON_ArrayForEach(member, object) n_keys++;
    if (n_keys < 2) return SW_OK;
    if ((rc = SW_MEM_GET(&keys, n_keys, "JSON keys", err)) != SW_OK) return rc;
    cJSON_ArrayForEach(member, object) keys[i++] = member->string;
    qsort(keys, (size_t)n_keys, sizeof *keys, compare_keys);
    for (i = 1; i < n_keys && rc == SW_OK; i++)
        if (!strcmp(keys[i - 1], keys[i]))
            rc = SW_FAIL(err, SW_E_FORMAT, "%s: duplicate key \"%.100s\"", what, keys[i]);
    sw_mem_put(keys);
    return rc;
}

/* Depth is bounded by the caps, so recursion is too. */
static sw_code check_keys(const cJSON *value, const char *what, sw_err *err)
{
    const cJSON *child;
    sw_code rc;

    if (cJSON_IsObject(value) && (rc = check_object_keys(value, what, err)) != SW_OK) return rc;
    cJSON_ArrayForEach(child, value)
    {
        if (child->child && (rc = check_keys(child, what, err)) != SW_OK) return rc;
    }
    return SW_OK;
}

static bool only_blanks(const char *text, const char *end)
{
    while (text < end && strchr(" \t\r\n", *text)) text++;
    return text == end;
}

/* cJSON says only that it failed; when the text is plainly complete, memory is the reason. */
static sw_code parse_failure(const char *text, size_t n_bytes, const char *stopped_at,
                             const char *what, sw_err *err)
{
    size_t at = stopped_at && stopped_at >= text && stopped_at <= text + n_bytes
                    ? (size_t)(stopped_at - text)
                    : 0;
    void *probe = cJSON_malloc(64);

    if (!probe) return SW_FAIL(err, SW_E_NOMEM, "%s: no memory to parse JSON", what);
    cJSON_free(probe);
    return SW_FAIL(err, SW_E_FORMAT, "%s: not valid JSON near byte %zu of %zu", what, at, n_bytes);
}

sw_code sw_json_parse(cJSON **out, const char *text, size_t n_bytes, const sw_json_caps *caps,
                      const char *what, sw_err *err)
{
    const char *end = NULL;
    cJSON *root;
    sw_code rc;

    if ((rc = check_text(text, n_bytes, caps, what, err)) != SW_OK) return rc;
    root = cJSON_ParseWithLengthOpts(text, n_bytes, &end, 0);
    if (!root) return parse_failure(text, n_bytes, end, what, err);
    if (!only_blanks(end, text + n_bytes))
        rc = SW_FAIL(err, SW_E_FORMAT, "%s: text after the JSON value at byte %zu", what,
                     (size_t)(end - text));
    if (rc == SW_OK) rc = check_keys(root, what, err);
    if (rc != SW_OK) {
        cJSON_Delete(root);
        return rc;
    }
    *out = root;
    return SW_OK;
}

sw_code sw_json_read(cJSON **out, const char *path, const sw_json_caps *caps, sw_err *err)
{
    sw_map map = {0};
    sw_code rc;

    if ((rc = sw_map_open(&map, path, err)) != SW_OK) return rc;
    rc = sw_json_parse(out, (const char *)map.data, map.size_bytes, caps, path, err);
    sw_map_close(&map);
    return rc;
}

const cJSON *sw_json_member(const cJSON *object, const char *key)
{
    const cJSON *member = cJSON_GetObjectItemCaseSensitive(object, key);

    return member && !cJSON_IsNull(member) ? member : NULL;
}

sw_code sw_json_as_int(int64_t *out, const cJSON *number, int64_t min, int64_t max,
                       const char *what, sw_err *err)
{
    double v;

    if (!cJSON_IsNumber(number)) return SW_FAIL(err, SW_E_FORMAT, "%s: not a number", what);
    v = number->valuedouble;
    if (!(fabs(v) < JSON_EXACT_MAX) || v != floor(v))
        return SW_FAIL(err, SW_E_FORMAT, "%s: %.17g is no exact integer", what, v);
    if (v < (double)min || v > (double)max)
        return SW_FAIL(err, SW_E_FORMAT, "%s: %.17g, allowed %lld..%lld", what, v, (long long)min,
                       (long long)max);
    *out = (int64_t)v;
    return SW_OK;
}

sw_code sw_json_int(int64_t *out, const cJSON *object, const char *key, int64_t min, int64_t max,
                    sw_err *err)
{
    const cJSON *member = sw_json_member(object, key);

    return member ? sw_json_as_int(out, member, min, max, key, err) : SW_OK;
}

sw_code sw_json_real(double *out, const cJSON *object, const char *key, sw_err *err)
{
    const cJSON *member = sw_json_member(object, key);

    if (!member) return SW_OK;
    if (!cJSON_IsNumber(member) || !isfinite(member->valuedouble))
        return SW_FAIL(err, SW_E_FORMAT, "%s: not a finite number", key);
    *out = member->valuedouble;
    return SW_OK;
}

sw_code sw_json_bool(bool *out, const cJSON *object, const char *key, sw_err *err)
{
    const cJSON *member = sw_json_member(object, key);

    if (!member) return SW_OK;
    if (!cJSON_IsBool(member)) return SW_FAIL(err, SW_E_FORMAT, "%s: not true or false", key);
    *out = cJSON_IsTrue(member);
    return SW_OK;
}

sw_code sw_json_text(const char **out, const cJSON *object, const char *key, sw_err *err)
{
    const cJSON *member = sw_json_member(object, key);

    if (!member) return SW_OK;
    if (!cJSON_IsString(member)) return SW_FAIL(err, SW_E_FORMAT, "%s: not a string", key);
    *out = member->valuestring;
    return SW_OK;
}
