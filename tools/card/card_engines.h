/* card_engines.h - the part of a card that says what serves the output. */
#ifndef SW_TOOLS_CARD_CARD_ENGINES_H
#define SW_TOOLS_CARD_CARD_ENGINES_H

#include "tools/card/card.h"

/* The command of every engine that takes the format, unless a loading rule (loaders.def) says that
 * it refuses or misreads this output; then what the rule says. */
sw_code sw_card_put_engines(sw_print_buf *out, const sw_card *card, sw_err *err) SW_MUST_USE;
/* "gguf", the dialect's name, or "floats". */
const char *sw_card_format(const sw_card *card);
/* One line of text from outside in Markdown: nothing in it can begin a tag, a table or code. */
sw_code sw_card_put_clean(sw_print_buf *out, const char *text, sw_err *err) SW_MUST_USE;

#endif
