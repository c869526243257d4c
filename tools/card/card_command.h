/* card_command.h - the command that made an output, as anybody can type it again. */
#ifndef SW_TOOLS_CARD_CARD_COMMAND_H
#define SW_TOOLS_CARD_CARD_COMMAND_H

#include "formats/checkpoint/checkpoint.h"
#include "tools/cli/opt.h"

struct sw_card_command {
    const char *name; /* "quantize" */
    const void *fields, *defaults;
    const sw_opt *table;
    const char *recipe; /* the file, where it has overrides; all else of it is in `fields` */
};
typedef struct sw_card_command sw_card_command;

/* manifest["made_by"] = "swage NAME MODEL -o OUT --option ..." with every option that is not as by
 * default, but for those that do not change the output. The model is its id on the Hub with the
 * commit, or MODEL; files go by their base names: the same inputs give the same text anywhere. */
sw_code sw_card_command_add(cJSON *manifest, const sw_card_command *command,
                            const sw_checkpoint *source, sw_err *err) SW_MUST_USE;

#endif
