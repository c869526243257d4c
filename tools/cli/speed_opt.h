/* speed_opt.h - options about the speed of a checkpoint, which bench and verify share. */
#ifndef SW_TOOLS_CLI_SPEED_OPT_H
#define SW_TOOLS_CLI_SPEED_OPT_H

#include "tools/cli/opt.h"

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
