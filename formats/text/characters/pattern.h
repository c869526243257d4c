/* pattern.h - what tokenizers cut text with: a literal, a regular expression, a character class.
 *
 * tokenizer.json writes its expressions for Oniguruma; pattern_syntax.c turns them into what
 * PCRE2 reads the same way, and refuses what it could read differently. Expressions are
 * untrusted: compiled size, backtracking, JIT stack and total time are all bounded, and
 * running into a bound is an error, not a hang.
 */
#ifndef SW_FORMATS_TEXT_CHARACTERS_PATTERN_H
#define SW_FORMATS_TEXT_CHARACTERS_PATTERN_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/mem.h"
#include "formats/text/characters/unicode.h"

typedef struct sw_regex sw_regex;

/* Exactly one of regex, literal and class is set. */
typedef struct sw_pattern {
    sw_regex *regex;
    const char *literal; /* at least one byte */
    size_t literal_bytes;
    bool (*char_class)(uint32_t code_point); /* each such character is one match */
} sw_pattern;

/* Time allowed for one text, shared by all patterns that cut it. Zero-initialise and start. */
typedef struct sw_pattern_clock {
    int64_t wall_limit_ns, cpu_start_ns, cpu_allowed_ns;
    uint32_t n_calls;
} sw_pattern_clock;
void sw_pattern_clock_start(sw_pattern_clock *clock, size_t text_bytes);

/* {"String": ...} or {"Regex": ...}; the literal is copied into the arena.
 * SW_E_UNSUPPORTED: syntax that PCRE2 would read differently. SW_E_FORMAT: does not compile. */
sw_code sw_pattern_parse(sw_pattern *out, const cJSON *json, sw_arena *arena,
                         sw_err *err) SW_MUST_USE;
sw_code sw_pattern_from_regex(sw_pattern *out, const char *onig_source, size_t n_bytes,
                              sw_err *err) SW_MUST_USE;
void sw_pattern_free(sw_pattern *pattern); /* accepts a zeroed one */

/* Oniguruma source to PCRE2 source. */
sw_code sw_pattern_translate(sw_text_buf *out, const char *source, size_t n_bytes,
                             sw_err *err) SW_MUST_USE;

/* A walk over one text: spans that cover it in order, matches and what lies between them.
 * Spans may be empty (an expression that matches an empty string cuts there). */
typedef struct sw_finder {
    const sw_pattern *pattern;
    sw_pattern_clock *clock;
    const char *text;
    size_t n_bytes;
    size_t done;                /* everything before this has been handed out */
    size_t search_at;
    size_t match_begin, match_end;
    bool has_match, had_match, is_exhausted;
    size_t last_match_end;
} sw_finder;

typedef struct sw_span {
    size_t begin, end;
    bool is_match;
} sw_span;

void sw_finder_start(sw_finder *finder, const sw_pattern *pattern, sw_pattern_clock *clock,
                     const char *text, size_t n_bytes);
/* *has_span is false at the end. */
sw_code sw_finder_next(sw_finder *finder, sw_span *span, bool *has_span, sw_err *err) SW_MUST_USE;

/* Append the text with every match replaced by `with`. */
sw_code sw_pattern_replace(sw_text_buf *out, const sw_pattern *pattern, sw_pattern_clock *clock,
                           const char *text, size_t n_bytes, const char *with, size_t with_bytes,
                           sw_err *err) SW_MUST_USE;

#endif
