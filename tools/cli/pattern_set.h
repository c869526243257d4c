/* pattern_set.h - expressions that the user gave, and which of them have matched anything. */
#ifndef SW_TOOLS_CLI_PATTERN_SET_H
#define SW_TOOLS_CLI_PATTERN_SET_H

#include <stdbool.h>

#include "formats/base/status.h"

typedef struct sw_pattern_item sw_pattern_item;

typedef struct sw_pattern_set {
    sw_pattern_item *items;
    int n;
    const char *option; /* what messages call it: "--ignore" */
} sw_pattern_set;

/* `texts` are borrowed. SW_E_USAGE: not an expression; says where. */
sw_code sw_pattern_set_new(sw_pattern_set *out, const char *const *texts, int n,
                           const char *option, sw_err *err) SW_MUST_USE;
void sw_pattern_set_free(sw_pattern_set *set); /* accepts a zeroed one */
/* true when any matches somewhere in `text`; every one that does is marked as used. */
bool sw_pattern_set_match(sw_pattern_set *set, const char *text);
/* The same for one of them, by position. */
bool sw_pattern_set_match_at(sw_pattern_set *set, int at, const char *text);
/* For messages about patterns that match nothing: their nearest among the pieces of `path`, between
 * dots, is kept when it is near enough to be a slip of the finger. */
void sw_pattern_set_offer(sw_pattern_set *set, const char *path);
/* SW_E_USAGE names the first that never matched, or that ran into PCRE2's backtracking limit. */
sw_code sw_pattern_set_check(const sw_pattern_set *set, sw_err *err) SW_MUST_USE;

#endif
