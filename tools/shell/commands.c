/* commands.c - see commands.h. */
#include "tools/shell/commands.h"

#include <string.h>

#define SW_CMD(id) extern const sw_cmd sw_cmd_##id;
#include "tools/cli/cmds.def"
#undef SW_CMD

const sw_cmd *const sw_commands[] = {
#define SW_CMD(id) &sw_cmd_##id,
#include "tools/cli/cmds.def"
#undef SW_CMD
    NULL,
};

const char *sw_command_name(int i) { return sw_commands[i] ? sw_commands[i]->name : NULL; }

const sw_cmd *sw_command_find(const char *name)
{
    for (int i = 0; sw_commands[i]; i++)
        if (!strcmp(sw_commands[i]->name, name)) return sw_commands[i];
    return NULL;
}

const sw_exit_code sw_exit_codes[] = {
    {SW_OK, "good", "The command did what it was asked for."},
    {SW_E_GATE, "a gate failed",
     "A verification gate failed, a tensor is broken, a method fell back to another without "
     "--allow-fallback, or doctor found a fault."},
    {SW_E_USAGE, "usage", "The command line or a recipe is wrong."},
    {SW_E_FORMAT, "malformed input", "An input file is malformed."},
    {SW_E_UNSUPPORTED, "unsupported", "The input is well-formed, but Swage does not support it."},
    {SW_E_IO, "I/O", "Input or output failed, or an input changed while it was read."},
    {SW_E_NOMEM, "memory", "There is not enough memory."},
    {SW_E_CUDA, "CUDA",
     "The CUDA device, its driver or this build cannot do it; --device cpu always works."},
    {SW_E_NOISY, "no verdict on speed", "Times scatter too much for a verdict on speed."},
    {SW_E_BUG, "a bug", "A bug in Swage."},
    {SW_E_CANCELLED, "interrupted", "A signal stopped the run; the message says what is kept."},
};
const int sw_n_exit_codes = (int)(sizeof sw_exit_codes / sizeof *sw_exit_codes);

const sw_env_variable sw_env_variables[] = {
    {"HF_HUB_CACHE", "The cache of the Hugging Face Hub, where models are looked up by id; else "
                     "HF_HOME/hub, else XDG_CACHE_HOME/huggingface/hub, else "
                     "~/.cache/huggingface/hub."},
    {"TMPDIR", "Where activations go that --memory keeps on disk (default /var/tmp)."},
    {"SWAGE_CUDA_LIBRARY", "The file of the CUDA half, in place of libswage_cuda.so beside the "
                           "program, in ../lib, or where the system keeps libraries."},
    {"OMP_WAIT_POLICY", "How waiting threads wait (default passive: they sleep)."},
    {"COLUMNS", "The width that tables and the progress line must fit, instead of the "
                "terminal's."},
    {"NO_COLOR", "No colours where --color is auto, unless it is empty."},
    {"CLICOLOR_FORCE", "Colours where --color is auto even if there is no terminal, unless it is "
                       "0 or empty."},
};
const int sw_n_env_variables = (int)(sizeof sw_env_variables / sizeof *sw_env_variables);
