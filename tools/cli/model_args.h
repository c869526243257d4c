/* model_args.h - ids of the Hugging Face Hub in place of paths of models. */
#ifndef SW_TOOLS_CLI_MODEL_ARGS_H
#define SW_TOOLS_CLI_MODEL_ARGS_H

#include "formats/base/progress.h"
#include "tools/cli/cmd.h"

/* Of a command that takes a MODEL (SW_CMD_MODEL_ROW): every word, and every option that is_model,
 * that names no path and is an id becomes the directory of its snapshot (hub_cache.h), which a note
 * says. The texts live in `arena`. Errors as sw_hub_find. */
sw_code sw_model_args(const sw_cmd *cmd, void *fields, sw_opt_args *args, sw_arena *arena,
                      const sw_progress *progress, sw_err *err) SW_MUST_USE;

#endif
