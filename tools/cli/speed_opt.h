/* speed_opt.h - options about speed that bench and verify share, and lists of numbers, which theirs
 * are. */
#ifndef SW_TOOLS_CLI_SPEED_OPT_H
#define SW_TOOLS_CLI_SPEED_OPT_H

#include "tools/cli/opt.h"

/* "1,8,64": at most `max` numbers from 1 to INT32_MAX. SW_E_USAGE names `what`. */
sw_code sw_int_list(int64_t *out, int *n_out, int max, const char *text, const char *what,
                    sw_err *err) SW_MUST_USE;
/* One such number, the text from `begin` to `end`. */
sw_code sw_int_between(int64_t *out, const char *begin, const char *end, const char *what,
                       sw_err *err) SW_MUST_USE;

#define SW_SPEED_BATCHES "1,8,64"

/* A row for a `const char *` field that is SW_SPEED_BATCHES by default. */
#define SW_BATCH_ROW(type, field)                                                                  \
    {.name = "batch", .group = SW_OPT_QUALITY, .kind = SW_OPT_TEXT,                                \
     .offset = offsetof(type, field), .arg = "B,B,...",                                            \
     .help = "sequences that are timed together (default " SW_SPEED_BATCHES ")"}

/* And one for an `int64_t` field. */
#define SW_PROMPT_ROW(type, field)                                                                 \
    {.name = "prompt", .group = SW_OPT_QUALITY, .kind = SW_OPT_INT,                                \
     .offset = offsetof(type, field), .arg = "N", .min = 1, .max = 1 << 20,                        \
     .help = "tokens of each prompt, and of each sequence before it decodes (default 512)"}

#endif
