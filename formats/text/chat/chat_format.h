/* chat_format.h - how a model is served chats: its template with its special tokens, and the lines
 * of chat files that are rendered by it.
 */
#ifndef SW_FORMATS_TEXT_CHAT_CHAT_FORMAT_H
#define SW_FORMATS_TEXT_CHAT_CHAT_FORMAT_H

#include <stdbool.h>

#include "formats/base/hash.h"
#include "formats/text/chat/chat_template.h"

typedef struct sw_chat_format sw_chat_format;

/* n_bytes of a template, which `what` names, and a JSON object of special tokens, such as
 * {"bos_token": "<s>"}. The caller frees. Errors are those of sw_chat_template_open. */
sw_code sw_chat_format_new(sw_chat_format **out, const char *text, size_t n_bytes,
                           const char *what, const char *tokens, sw_err *err) SW_MUST_USE;
void sw_chat_format_free(sw_chat_format *f); /* accepts NULL */
/* Of the template's text, as 64 hexadecimal digits. */
const char *sw_chat_format_sha256(const sw_chat_format *f);

/* Render a JSON array of messages, and open the turn of the assistant where opens_turn. `now`
 * NULL: the fixed date. The text is zero-terminated and freed by sw_mem_put. */
sw_code sw_chat_format_messages(char **out, size_t *n_out, const sw_chat_format *f,
                                const char *messages, size_t n_bytes, bool opens_turn,
                                const struct tm *now, sw_err *err) SW_MUST_USE;

/* The text of one line of a chat file: {"messages": [...]} (and "tools") or
 * {"conversations": [{"from": ..., "value": ...}]} rendered whole on the fixed date, or
 * {"text": ...} as it is. `f` may be NULL where every line is text. SW_E_FORMAT: none of these.
 * SW_E_USAGE: messages, but `f` is NULL. */
sw_code sw_chat_format_line(char **out, size_t *n_out, const sw_chat_format *f, const char *line,
                            size_t n_bytes, sw_err *err) SW_MUST_USE;

#endif
