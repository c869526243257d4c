/* json.c - see json.h. */
#include "formats/base/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/mem.h"

#define FEW_KEYS 8
#define JSON_EXACT_MAX 9007199254740992.0 /* 2^53 */

const sw_json_caps sw_json_caps_config = {
    .max_bytes = 1u << 20, .max_depth = 32, .max_values = 100000};

static int compare_keys(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static sw_code duplicate_key(const char *key, const char *what, sw_err *err)
{
    return SW_FAIL(err, SW_E_FORMAT, "%s: duplicate key \"%.100s\"", what, key);
}

/* For the many small objects of a header, comparing all pairs beats sorting. */
static sw_code check_few_keys(const cJSON *object, const char *what, sw_err *err)
{
    const cJSON *a, *b;

    cJSON_ArrayForEach(a, object)
    {
        for (b = a->next; b; b = b->next)
            if (!strcmp(a->string, b->string)) return duplicate_key(a->string, what, err);
    }
    return SW_OK;
}

static sw_code check_object_keys(const cJSON *object, const char *what, sw_err *err)
{
    const char **keys = NULL;
    int64_t n_keys = 0, i = 0;
    const cJSON *member;
    sw_code rc = SW_OK;

    cJSON_ArrayForEach(member, object) n_keys++;
    if (n_keys <= FEW_KEYS) return check_few_keys(object, what, err);
    if ((rc = SW_MEM_GET(&keys, n_keys, "JSON keys", err)) != SW_OK) return rc;
    cJSON_ArrayForEach(member, object) keys[i++] = member->string;
    qsort(keys, (size_t)n_keys, sizeof *keys, compare_keys);
    for (i = 1; i < n_keys && rc == SW_OK; i++)
        if (!strcmp(keys[i - 1], keys[i])) rc = duplicate_key(keys[i], what, err);
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

sw_code sw_json_parse(cJSON **out, const char *text, size_t n_bytes, const sw_json_caps *caps,
                      const char *what, sw_err *err)
{
    cJSON *root;
    sw_code rc;

    if ((rc = sw_json_check(text, n_bytes, caps, what, err)) != SW_OK) return rc;
    root = cJSON_ParseWithLength(text, n_bytes);
    if (!root) /* the text is known to be good */
        return SW_FAIL(err, SW_E_NOMEM, "%s: no memory to parse %zu bytes of JSON", what, n_bytes);
    if ((rc = check_keys(root, what, err)) != SW_OK) {
        cJSON_Delete(root);
        return rc;
    }
    *out = root;
    return SW_OK;
}

#define ESCAPED_BYTES 5 /* "\\xNN" */

/* Copies with every byte that is no UTF-8 escaped; returns the length. NULL `to` only counts. */
static size_t escape_bytes(char *to, const char *text, size_t n_bytes)
{
    static const char digits[] = "0123456789abcdef";
    size_t n = 0, at = 0;

    while (at < n_bytes) {
        size_t good = n_bytes - at, bad_at = 0;
        if (!sw_utf8_is_valid(text + at, good, &bad_at)) good = bad_at;
        if (to) memcpy(to + n, text + at, good);
        n += good;
        at += good;
        if (at == n_bytes) break;
        if (to) {
            const unsigned byte = (unsigned char)text[at];
            const char escaped[ESCAPED_BYTES] = {'\\', '\\', 'x', digits[byte >> 4],
                                                 digits[byte & 15]};
            memcpy(to + n, escaped, ESCAPED_BYTES);
        }
        n += ESCAPED_BYTES;
        at++;
    }
    return n;
}

sw_code sw_json_print(char **out, const cJSON *value, bool is_indented, sw_err *err)
{
    char *raw = is_indented ? cJSON_Print(value) : cJSON_PrintUnformatted(value), *text = NULL;
    size_t n_raw = raw ? strlen(raw) : 0;
    sw_code rc;

    if (!raw) return SW_FAIL(err, SW_E_NOMEM, "no memory to print JSON");
    rc = SW_MEM_GET(&text, escape_bytes(NULL, raw, n_raw) + 1, "JSON text", err);
    if (rc == SW_OK) {
        (void)escape_bytes(text, raw, n_raw);
        *out = text;
    }
    cJSON_free(raw);
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
