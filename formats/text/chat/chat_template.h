/* chat_template.h - chat templates: the Jinja subset that models ship, rendered within caps.
 *
 * A template is part of a checkpoint and therefore hostile input. It can reach nothing but the
 * variables that it is given; its output, memory, steps and nesting are capped. The language is a
 * strict subset of Jinja 3.1 with trim_blocks and lstrip_blocks, as the transformers library sets
 * them. What is outside of the subset is SW_E_UNSUPPORTED and named with line and column; where
 * the template itself fails (raise_exception, a value of the wrong type), it is SW_E_FORMAT.
 */
#ifndef SW_FORMATS_TEXT_CHAT_CHAT_TEMPLATE_H
#define SW_FORMATS_TEXT_CHAT_CHAT_TEMPLATE_H

#include <stddef.h>
#include <time.h>

#include "formats/base/status.h"

#define SW_CHAT_TEMPLATE_BYTES_MAX ((size_t)1 << 20)
#define SW_CHAT_OUTPUT_BYTES_MAX ((size_t)16 << 20)
#define SW_CHAT_VALUES_BYTES_MAX ((size_t)192 << 20) /* all values that one rendering makes */
#define SW_CHAT_STEPS_MAX 8000000
#define SW_CHAT_DEPTH_MAX 400       /* of nested expressions, statements and macros that run */
#define SW_CHAT_VALUE_DEPTH_MAX 100 /* of lists within lists */

typedef struct sw_chat_template sw_chat_template;

/* Parse n_bytes of UTF-8; `what` names them in messages and is copied. The caller frees. */
sw_code sw_chat_template_open(sw_chat_template **out, const char *text, size_t n_bytes,
                              const char *what, sw_err *err) SW_MUST_USE;
void sw_chat_template_free(sw_chat_template *t); /* accepts NULL */

/* Render with `variables`, a JSON object of n_bytes: "messages", "bos_token" and what else the
 * template reads. "tools" and "documents" are none unless they are given. `now` is what
 * strftime_now tells. The text is zero-terminated and freed by sw_mem_put. SW_E_FORMAT: the
 * variables are no JSON, the template failed, or a cap was met. */
sw_code sw_chat_template_render(char **out, size_t *n_out, const sw_chat_template *t,
                                const char *variables, size_t n_bytes, const struct tm *now,
                                sw_err *err) SW_MUST_USE;

/* 26 July 2024, noon: the date of renderings that must not depend on the day they are made. It is
 * the one that Llama 3.1 falls back to. */
struct tm sw_chat_fixed_date(void);

#endif
