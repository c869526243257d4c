/* json_diff.h - where two JSON values differ in meaning.
 *
 * Members count by name, not by order, and a null counts as no member. Spellings that loaders take
 * for the same are the same: an empty text, list or object or a false beside nothing at all, a
 * merge "a b" beside ["a", "b"], a token beside {"content": token}.
 */
#ifndef SW_VERIFY_CHECKS_JSON_DIFF_H
#define SW_VERIFY_CHECKS_JSON_DIFF_H

#include "formats/base/json.h"

#define SW_JSON_DIFF_PATH_BYTES 200
#define SW_JSON_DIFF_TEXT_BYTES 100

typedef struct sw_json_diff {
    int64_t n;                             /* places that differ; the first of them: */
    char path[SW_JSON_DIFF_PATH_BYTES];    /* "model.vocab.the", "eos_token_id[1]" */
    char have[SW_JSON_DIFF_TEXT_BYTES], want[SW_JSON_DIFF_TEXT_BYTES]; /* "absent" or JSON, cut */
} sw_json_diff;

/* Compare; members of these names (NULL ends the list) may differ, at any depth. NULL counts as an
 * absent value. SW_E_NOMEM alone. */
sw_code sw_json_compare(sw_json_diff *out, const cJSON *have, const cJSON *want,
                        const char *const *left_out, sw_err *err) SW_MUST_USE;
/* true for what counts as nothing beside an absent member. */
bool sw_json_is_nothing(const cJSON *value);
/* A value as JSON into text[], cut at a character; "absent" for NULL. */
void sw_json_brief(char text[SW_JSON_DIFF_TEXT_BYTES], const cJSON *value);

#endif
