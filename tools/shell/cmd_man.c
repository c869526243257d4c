/* cmd_man.c - `swage man`: the manual pages, as roff. */
#include "tools/shell/commands.h"
#include "tools/shell/man_page.h"

static const sw_opt options[] = {SW_CMD_COMMON_ROWS, {0}};

static sw_code run_man(sw_run *run, sw_err *err)
{
    const sw_cmd *cmd = run->n_args ? sw_command_find(run->args[0]) : NULL;
    sw_made_text t = {.err = err};

    if (run->n_args && !cmd) return sw_opt_unknown("man", run->args[0], sw_command_name, err);
    if (cmd)
        sw_man_command(&t, cmd);
    else
        sw_man_overview(&t);
    return sw_made_show(run, &t, "man", "roff");
}

static const char *const examples[] = {"swage man >build/swage.1",
                                       "swage man quantize >build/swage-quantize.1", NULL};

const sw_cmd sw_cmd_man = {
    .name = "man",
    .args = "[COMMAND]",
    .summary = "print the manual page of swage or of a command, as roff",
    .more = "It is made of what --help prints. `make install` puts all pages where man finds\n"
            "them; `swage man quantize | man -l -` shows one without that.\n",
    .options = options,
    .options_bytes = sizeof(sw_cmd_common),
    .max_args = 1,
    .words = sw_command_name,
    .examples = examples,
    .run = run_man,
};
