/* json.h - cJSON behind caps, with typed reads that explain themselves.
 *
 * Text is checked before cJSON sees it (UTF-8, grammar, depth, number of values, no NUL
 * in any form) and after (no duplicate keys), because two readers that disagree about a
 * text disagree about the file. Numbers are doubles in cJSON: integers are accepted
 * below 2^53 in magnitude, where they are exact.
 */
#ifndef SW_FORMATS_BASE_JSON_H
#define SW_FORMATS_BASE_JSON_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/status.h"

typedef struct sw_json_caps {
    size_t max_bytes;
    int max_depth;
    int64_t max_values; /* members and array elements in the whole text */
    bool is_integer_only; /* refuse numbers written with a point or an exponent */
    int64_t max_inside;   /* members or elements of any one value within the root; 0: no limit */
} sw_json_caps;

/* 1 MiB, depth 32: config.json and its like. */
extern const sw_json_caps sw_json_caps_config;

/* Strict RFC 8259 plus the caps; builds and allocates nothing. max_depth is at most 64.
 * SW_E_FORMAT names the byte. Duplicate keys are left to sw_json_parse. */
sw_code sw_json_check(const char *text, size_t n_bytes, const sw_json_caps *caps, const char *what,
                      sw_err *err) SW_MUST_USE;
/* Parse n_bytes of text; *out is freed by cJSON_Delete. `what` names the text in messages.
 * SW_E_FORMAT: too large, too deep, not UTF-8, not JSON, duplicate key, trailing bytes. */
sw_code sw_json_parse(cJSON **out, const char *text, size_t n_bytes, const sw_json_caps *caps,
                      const char *what, sw_err *err) SW_MUST_USE;

/* Typed members. An absent or null member leaves *out alone (set the default first) and is
 * SW_OK; a member of another type or out of range is SW_E_FORMAT and names the key. */
sw_code sw_json_int(int64_t *out, const cJSON *object, const char *key, int64_t min, int64_t max,
                    sw_err *err) SW_MUST_USE;
sw_code sw_json_real(double *out, const cJSON *object, const char *key, sw_err *err) SW_MUST_USE;
sw_code sw_json_bool(bool *out, const cJSON *object, const char *key, sw_err *err) SW_MUST_USE;
/* *out is borrowed from the object. */
sw_code sw_json_text(const char **out, const cJSON *object, const char *key,
                     sw_err *err) SW_MUST_USE;
/* The member if it is there and not null, else NULL. Case-sensitive. */
const cJSON *sw_json_member(const cJSON *object, const char *key);
/* One number as an integer; for array elements. `what` names it. */
sw_code sw_json_as_int(int64_t *out, const cJSON *number, int64_t min, int64_t max,
                       const char *what, sw_err *err) SW_MUST_USE;

/* The value as text that is JSON in any case, in one line or indented; freed by sw_mem_put. Strings
 * of ours may hold names of files, which are any bytes: a byte that is no UTF-8 is written as the
 * text \xNN, so that nothing is lost. SW_E_NOMEM. */
sw_code sw_json_print(char **out, const cJSON *value, bool is_indented, sw_err *err) SW_MUST_USE;

/* true when all n_bytes are well-formed UTF-8; else *bad_at is the first offending offset. */
bool sw_utf8_is_valid(const char *text, size_t n_bytes, size_t *bad_at);

#endif
