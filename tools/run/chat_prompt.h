/* chat_prompt.h - messages from the command line and from a file as the prompt of a chat. */
#ifndef SW_TOOLS_RUN_CHAT_PROMPT_H
#define SW_TOOLS_RUN_CHAT_PROMPT_H

#include "formats/text/tokenizer.h"

/* Render by the chat template of the model at `model_dir`: `system` first where it is not NULL, the
 * messages of the file `path` where it is not NULL (a JSON object a line), and `user` where it is
 * not "", with the turn of the assistant opened. Appends the ids, to which nothing is added that
 * the template does not write, and the ids that end a turn. SW_E_USAGE: no template, no message.
 * SW_E_FORMAT: a line that is no message. */
sw_code sw_chat_prompt(sw_ids *prompt, sw_ids *ends, sw_tokenizer *tok, const char *model_dir,
                       const char *system, const char *path, const char *user,
                       sw_err *err) SW_MUST_USE;

#endif
