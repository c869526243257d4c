/* front_matter.c - see front_matter.h.
 *
 * Not a reader of YAML: lines "key: value" at the left edge between two lines of "---" are all that
 * is looked at, which is how cards give these keys.
 */
#include "tools/card/front_matter.h"

#include <string.h>

#include "formats/io/file.h"

#define LOOKED_AT_BYTES ((size_t)64 << 10)

static const struct {
    const char *key;
    size_t offset;
} fields[] = {{"license", offsetof(sw_front_matter, license)},
              {"license_name", offsetof(sw_front_matter, license_name)},
              {"license_link", offsetof(sw_front_matter, license_link)},
              {"pipeline_tag", offsetof(sw_front_matter, pipeline_tag)}};

/* The text of a scalar without its quotes, blanks and comment. false: it is another kind. */
static bool scalar(const char **begin, size_t *n)
{
    const char *at = *begin, *whole = at + *n, *end = whole;
    char quote;

    while (at < end && *at == ' ') at++;
    quote = at < end && (*at == '"' || *at == '\'') ? *at++ : '\0';
    for (const char *p = at; p < end; p++)
        if (quote ? *p == quote : *p == '#' && p > at && p[-1] == ' ') end = p;
    while (!quote && end > at && (end[-1] == ' ' || end[-1] == '\r')) end--;
    *begin = at;
    *n = (size_t)(end - at);
    if (!*n || *n >= SW_FRONT_VALUE_BYTES || (quote && end == whole) ||
        (!quote && strchr("[{|>&*!%@`", *at)))
        return false;
    for (const char *p = at; p < end; p++)
        if (*p < ' ' || *p > '~' || *p == '\\') return false;
    return true;
}

static void take_line(sw_front_matter *out, const char *line, size_t n)
{
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        size_t n_key = strlen(fields[i].key), n_value = n - n_key - 1;
        const char *value = line + n_key + 1;
        char *to = (char *)out + fields[i].offset;
        if (n <= n_key || memcmp(line, fields[i].key, n_key) != 0 || line[n_key] != ':' ||
            !scalar(&value, &n_value))
            continue;
        memcpy(to, value, n_value);
        to[n_value] = '\0';
    }
}

static bool is_fence(const char *line, size_t n)
{
    while (n && (line[n - 1] == '\r' || line[n - 1] == ' ')) n--;
    return n == 3 && !memcmp(line, "---", 3);
}

void sw_front_matter_parse(sw_front_matter *out, const char *text, size_t n_bytes)
{
    sw_front_matter found = {.license = ""};
    size_t at = 0;

    memset(out, 0, sizeof *out);
    for (int64_t i = 0; at < n_bytes; i++) {
        const char *line = text + at, *end = memchr(line, '\n', n_bytes - at);
        size_t n = end ? (size_t)(end - line) : n_bytes - at;
        bool is_edge = is_fence(line, n);
        if (i == 0 && !is_edge) return;
        if (i && is_edge) { /* without its end it is no metadata */
            *out = found;
            return;
        }
        if (i) take_line(&found, line, n);
        at += n + 1;
    }
}

sw_code sw_front_matter_read(sw_front_matter *out, const char *dir, sw_err *err)
{
    char path[SW_PATH_BYTES];
    sw_map map = {0};
    sw_err ignored = {0};
    sw_code rc;

    memset(out, 0, sizeof *out);
    if (sw_path_join_inside(path, dir, "README.md", &ignored) != SW_OK || !sw_path_exists(path))
        return SW_OK;
    if ((rc = sw_map_open_own(&map, path, err)) != SW_OK) return rc;
    sw_front_matter_parse(out, (const char *)map.data,
                          map.size_bytes < LOOKED_AT_BYTES ? map.size_bytes : LOOKED_AT_BYTES);
    sw_map_close(&map);
    return SW_OK;
}

sw_code sw_front_matter_put(sw_print_buf *out, const char *key, const char *value, sw_err *err)
{
    sw_code rc;

    if (!*value) return SW_OK;
    if ((rc = sw_print_fmt(out, err, "%s: ", key)) != SW_OK ||
        (rc = sw_print_quote(out, value, err)) != SW_OK)
        return rc;
    return sw_print_add(out, "\n", 1, err);
}
