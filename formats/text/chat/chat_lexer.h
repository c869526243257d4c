/* chat_lexer.h - a chat template as tokens, with Jinja's rules of white space applied.
 *
 * As in Jinja 3.1 with trim_blocks and lstrip_blocks: the line break behind a block or comment
 * goes, blanks between the start of a line and a block or comment go, a minus takes all blanks on
 * its side, a plus keeps them, and the last line break of the template goes.
 */
#ifndef SW_FORMATS_TEXT_CHAT_CHAT_LEXER_H
#define SW_FORMATS_TEXT_CHAT_CHAT_LEXER_H

#include "formats/text/chat/chat_value.h"

typedef enum sw_chat_token_kind {
    SW_CHAT_T_END,
    SW_CHAT_T_DATA,
    SW_CHAT_T_PRINT, /* {{ */
    SW_CHAT_T_PRINT_END,
    SW_CHAT_T_BLOCK, /* {% */
    SW_CHAT_T_BLOCK_END,
    SW_CHAT_T_NAME,
    SW_CHAT_T_STRING, /* text: its value */
    SW_CHAT_T_INT,
    SW_CHAT_T_REAL,
    SW_CHAT_T_SIGN /* text: one or two characters */
} sw_chat_token_kind;

typedef struct sw_chat_token {
    sw_chat_token_kind kind;
    uint32_t at; /* offset in the source */
    sw_chat_text text;
} sw_chat_token;

typedef struct sw_chat_source {
    const char *what; /* names the template in messages */
    const char *text; /* line breaks are \n, zero-terminated */
    size_t n_bytes;
} sw_chat_source;

/* Fail with the code, prefixed by the name, line and column of the offset. */
sw_code sw_chat_fail_at(const sw_chat_source *source, uint32_t at, sw_code code, sw_err *err,
                        const char *fmt, ...) SW_PRINTF(5, 6);

/* *out has *n tokens, the last of them SW_CHAT_T_END; both live in the arena. */
sw_code sw_chat_lex(sw_chat_token **out, int64_t *n, const sw_chat_source *source,
                    sw_arena *arena, sw_err *err) SW_MUST_USE;

#endif
