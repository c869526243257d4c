/* tokenizer_parts.h - the stages of a tokenizer, in the order in which text meets them.
 *
 *   added tokens (raw) -> normalizer -> added tokens (normalized) -> pre-tokenizer -> bpe.h
 *   -> template; and decoder on the way back.
 *
 * Each stage parses its part of tokenizer.json and refuses, by name, what it does not know.
 * A stage of the format that does several things is cut into primitive steps at load.
 */
#ifndef SW_FORMATS_TEXT_TOKENIZER_PARTS_H
#define SW_FORMATS_TEXT_TOKENIZER_PARTS_H

#include <cjson/cJSON.h>

#include "formats/text/characters/charsmap.h"
#include "formats/text/characters/growth.h"
#include "formats/text/characters/pattern.h"
#include "formats/text/characters/unicode.h"
#include "formats/text/tokenizer.h"
#include "formats/text/vocab.h"

#define SW_STEPS_MAX 32

/* The "type" member, which every stage must have. */
sw_code sw_part_type(const char **type, const cJSON *json, const char *stage,
                     sw_err *err) SW_MUST_USE;
sw_code sw_part_unsupported(const char *stage, const char *type, sw_err *err) SW_MUST_USE;

typedef sw_code (*sw_part_fn)(void *self, const cJSON *json, const char *type, sw_arena *arena,
                              sw_err *err);
/* Calls `parse` for a stage that is no "Sequence", else for each of its array `members`, which may
 * be sequences again. `json` may be NULL: no stage. */
sw_code sw_part_each(const cJSON *json, const char *stage, const char *members, sw_part_fn parse,
                     void *self, sw_arena *arena, sw_err *err) SW_MUST_USE;

/* --- normalizer -------------------------------------------------------------------------- */

typedef struct sw_normalizer sw_normalizer;
typedef struct sw_norm_step {
    sw_code (*run)(sw_normalizer *owner, const struct sw_norm_step *step, sw_text_buf *out,
                   const char *text, size_t n_bytes, sw_err *err);
    sw_pattern pattern;         /* Replace */
    const char *content;        /* Replace, Prepend */
    bool strip_left, strip_right;
    const sw_normal_form *form; /* NFC ... */
    sw_charsmap charsmap;       /* Precompiled */
    const char *type;           /* as the file names it */
    size_t made_bytes;          /* of the text under way, all pieces together */
} sw_norm_step;

struct sw_normalizer {
    sw_norm_step steps[SW_STEPS_MAX];
    int n_steps;
    sw_text_buf buf[2];
    sw_normal_scratch scratch;
    sw_pattern_clock *clock;  /* borrowed */
    const sw_growth *growth;  /* borrowed */
};

/* `json` may be NULL: no normalizer. On failure the caller still frees what was parsed. */
sw_code sw_normalizer_parse(sw_normalizer *out, const cJSON *json, sw_arena *arena,
                            sw_err *err) SW_MUST_USE;
/* A new text begins: `growth` bounds what the steps may make of all its pieces. */
void sw_normalizer_start(sw_normalizer *normalizer, const sw_growth *growth);
/* *text and *n_bytes go in as the text and come out as its normalized form, which lives in the
 * normalizer until the next run (or is the text itself when there is nothing to do).
 * A failure names the step. */
sw_code sw_normalizer_run(sw_normalizer *normalizer, const char **text, size_t *n_bytes,
                          sw_err *err) SW_MUST_USE;
void sw_normalizer_free(sw_normalizer *normalizer);

/* --- added tokens ------------------------------------------------------------------------ */

typedef struct sw_added_token {
    const char *content;
    size_t content_bytes;
    const char *matched; /* content, normalized when `normalized` */
    size_t matched_bytes;
    int64_t file_id;
    uint32_t id; /* after sw_added_resolve */
    bool single_word, lstrip, rstrip, normalized, special;
} sw_added_token;

typedef struct sw_token_matcher {
    const sw_added_token **sorted; /* by matched text */
    int64_t n;
    bool starts[256]; /* first bytes */
} sw_token_matcher;

typedef struct sw_added_tokens {
    sw_added_token *tokens;
    int64_t n;
    sw_token_matcher raw, normal;
} sw_added_tokens;

sw_code sw_added_parse(sw_added_tokens *out, const cJSON *json, sw_arena *arena,
                       sw_err *err) SW_MUST_USE;
/* Once the vocabulary is there: ids, normalized contents, matchers. */
sw_code sw_added_resolve(sw_added_tokens *added, const sw_vocab *vocab,
                         sw_normalizer *normalizer, sw_arena *arena, sw_err *err) SW_MUST_USE;
void sw_added_free(sw_added_tokens *added);

/* Cut text at the tokens of one matcher: leftmost, longest. `token` is NULL for plain text. */
typedef sw_code (*sw_cut_fn)(void *self, const sw_added_token *token, const char *text,
                             size_t n_bytes, bool is_start, sw_err *err);
sw_code sw_added_cut(const sw_token_matcher *matcher, const char *text, size_t n_bytes,
                     bool is_start, sw_growth *growth, sw_cut_fn fn, void *self,
                     sw_err *err) SW_MUST_USE;

/* --- pre-tokenizer ----------------------------------------------------------------------- */

typedef sw_code (*sw_piece_fn)(void *self, const char *text, size_t n_bytes, sw_err *err);

typedef enum sw_split_how {
    SW_SPLIT_REMOVED,
    SW_SPLIT_ISOLATED,
    SW_SPLIT_PREVIOUS,
    SW_SPLIT_NEXT,
    SW_SPLIT_CONTIGUOUS
} sw_split_how;

typedef enum sw_prefix_when { SW_PREFIX_NEVER, SW_PREFIX_FIRST, SW_PREFIX_ALWAYS } sw_prefix_when;

typedef struct sw_pretokenizer sw_pretokenizer;
typedef struct sw_pretok_step {
    sw_code (*run)(sw_pretokenizer *owner, int at, const char *text, size_t n_bytes,
                   bool is_start, sw_err *err);
    sw_pattern pattern; /* split, replace */
    sw_split_how how;
    bool is_inverted;
    sw_prefix_when when;
    const char *content; /* prefix, replacement */
    size_t content_bytes;
    sw_text_buf buf;
    const char *type;  /* as the file names it; several steps may come of one entry */
    int entry;         /* which of the file's, from 1 */
    size_t made_bytes; /* of the text under way, all pieces together */
} sw_pretok_step;

struct sw_pretokenizer {
    sw_pretok_step steps[SW_STEPS_MAX];
    int n_steps;
    int n_entries;
    bool ends_in_bytes; /* the last step spells bytes in the byte-level alphabet: left to bpe.h */
    sw_pattern_clock *clock;  /* borrowed */
    const sw_growth *growth;  /* borrowed */
    sw_piece_fn emit;        /* during a run */
    void *self;
};

sw_code sw_pretok_parse(sw_pretokenizer *out, const cJSON *json, sw_arena *arena,
                        sw_err *err) SW_MUST_USE;
/* A new text begins: `growth` bounds what the steps may make of all its pieces. */
void sw_pretok_start(sw_pretokenizer *pretok, const sw_growth *growth);
/* is_start: the text begins where the original began, before any normalization. */
sw_code sw_pretok_run(sw_pretokenizer *pretok, const char *text, size_t n_bytes, bool is_start,
                      sw_piece_fn emit, void *self, sw_err *err) SW_MUST_USE;
void sw_pretok_free(sw_pretokenizer *pretok);

/* --- template (post-processor) ------------------------------------------------------------ */

typedef struct sw_template {
    sw_ids before, after; /* what goes around a single sequence */
    int n_stages;
} sw_template;

sw_code sw_template_parse(sw_template *out, const cJSON *json, sw_err *err) SW_MUST_USE;
void sw_template_free(sw_template *tmpl);

/* --- decoder ------------------------------------------------------------------------------ */

/* Texts of tokens one behind the other; ends[i] is where text i ends. */
typedef struct sw_text_list {
    sw_text_buf text;
    size_t *ends;
    size_t n, capacity;
} sw_text_list;
sw_code sw_text_list_add(sw_text_list *list, const char *text, size_t n_bytes,
                         sw_err *err) SW_MUST_USE;
void sw_text_list_free(sw_text_list *list);

typedef struct sw_decode_step {
    sw_code (*run)(const struct sw_decode_step *step, sw_text_list *out, const sw_text_list *in,
                   sw_err *err);
    sw_pattern pattern;
    const char *content;
    uint32_t cut_char; /* Strip, Metaspace */
    int64_t n_start, n_stop;
    bool drop_first;
    const char *type; /* as the file names it */
} sw_decode_step;

typedef struct sw_decoder {
    sw_decode_step steps[SW_STEPS_MAX];
    int n_steps;
} sw_decoder;

/* `json` may be NULL: tokens are joined by blanks, as the format has it. */
sw_code sw_decoder_parse(sw_decoder *out, const cJSON *json, sw_arena *arena,
                         sw_err *err) SW_MUST_USE;
/* `tokens` is used up. Appends to `out`. */
sw_code sw_decoder_run(const sw_decoder *decoder, sw_text_buf *out, sw_text_list *tokens,
                       sw_err *err) SW_MUST_USE;
void sw_decoder_free(sw_decoder *decoder);

#endif
