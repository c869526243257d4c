/* cmd_completion.c - `swage completion`: a script that completes command lines. */
#include <string.h>

#include "tools/shell/completion.h"

static const struct {
    const char *name;
    void (*make)(sw_made_text *t);
} shells[] = {{"bash", sw_completion_bash}, {"zsh", sw_completion_zsh},
              {"fish", sw_completion_fish}};

#define N_SHELLS ((int)(sizeof shells / sizeof *shells))

static const char *shell_name(int i) { return i < N_SHELLS ? shells[i].name : NULL; }

static const sw_opt options[] = {SW_CMD_COMMON_ROWS, {0}};

static sw_code run_completion(sw_run *run, sw_err *err)
{
    sw_made_text t = {.err = err};

    for (int i = 0; i < N_SHELLS; i++) {
        if (strcmp(shells[i].name, run->args[0]) != 0) continue;
        shells[i].make(&t);
        return sw_made_show(run, &t, "completion", "script");
    }
    return sw_opt_unknown("completion", run->args[0], shell_name, err);
}

static const char *const examples[] = {
    "swage completion bash >build/swage.bash", "swage completion fish --json", NULL};

const sw_cmd sw_cmd_completion = {
    .name = "completion",
    .args = "bash|zsh|fish",
    .summary = "print a script that completes command lines of swage in a shell",
    .more = "It completes commands, options, the names that a value may have, and files. `make\n"
            "install` puts the scripts where the shells look for them.\n",
    .options = options,
    .options_bytes = sizeof(sw_cmd_common),
    .min_args = 1,
    .max_args = 1,
    .words = shell_name,
    .examples = examples,
    .run = run_completion,
};
