/* cmd.h - a command of the program as a table row, and what it is handed.
 *
 * A command parses nothing and exits nowhere: it gets its filled options struct and its words,
 * prints its result on stdout and returns an sw_code, which is the exit code. Its options struct
 * begins with sw_cmd_common.
 */
#ifndef SW_TOOLS_CLI_CMD_H
#define SW_TOOLS_CLI_CMD_H

#include "formats/base/json.h"
#include "quant/team/team.h"
#include "tools/cli/opt.h"
#include "tools/cli/term.h"
#include "tools/terminal/terminal.h"

typedef struct sw_cmd_common {
    int json, quiet, help, follow_links;
    int spread_layers; /* over all devices, also those of a model that one has room for */
    int64_t threads; /* at least 1 */
    int64_t ranks;   /* 0: not given */
    const char *profile, *progress, *color, *arch_like;
} sw_cmd_common;

/* The rows every command has. Use as the last lines of a table, before the {0} row. */
#define SW_CMD_COMMON_ROWS                                                                         \
    {.name = "json", .group = SW_OPT_COMMON, .kind = SW_OPT_FLAG,                                  \
     .offset = offsetof(sw_cmd_common, json), .set_to = 1,                                         \
     .help = "print one JSON object on stdout instead of text"},                                   \
    {.name = "quiet", .group = SW_OPT_COMMON, .letter = 'q', .kind = SW_OPT_FLAG,                  \
     .offset = offsetof(sw_cmd_common, quiet), .set_to = 1,                                        \
     .help = "print no progress and no notes on stderr, only errors"},                             \
    {.name = "progress", .group = SW_OPT_COMMON, .kind = SW_OPT_CHOICE,                            \
     .offset = offsetof(sw_cmd_common, progress), .arg = "P", .choices = sw_progress_choice,       \
     .help = "how progress is shown on stderr; auto draws one line again and again on a "          \
             "terminal and prints plain lines elsewhere (default auto)"},                          \
    {.name = "color", .group = SW_OPT_EXPERT, .kind = SW_OPT_CHOICE,                               \
     .offset = offsetof(sw_cmd_common, color), .arg = "WHEN", .choices = sw_color_choice,          \
     .help = "colours; auto: on a terminal, unless NO_COLOR or CLICOLOR_FORCE in the "             \
             "environment says otherwise (default auto)"},                                         \
    {.name = "help", .group = SW_OPT_COMMON, .letter = 'h', .kind = SW_OPT_FLAG,                   \
     .offset = offsetof(sw_cmd_common, help), .set_to = 1,                                         \
     .help = "print this text"}

/* For commands that compute: stand before the common rows. */
#define SW_CMD_THREADS_ROW                                                                         \
    {.name = "threads", .group = SW_OPT_RESOURCES, .kind = SW_OPT_INT,                             \
     .offset = offsetof(sw_cmd_common, threads), .arg = "N", .min = 1, .max = 1024,                \
     .help = "threads to use (default: all processors); the result does not depend on it"},        \
    {.name = "profile", .group = SW_OPT_EXPERT, .kind = SW_OPT_TEXT,                               \
     .offset = offsetof(sw_cmd_common, profile), .arg = "FILE.json",                               \
     .help = "write where the time went, by step and thread, as a trace for a browser "            \
             "(chrome://tracing, ui.perfetto.dev)"}

/* For commands that take a MODEL: stands before the common rows. */
#define SW_CMD_MODEL_ROW                                                                           \
    {.name = "follow-links", .group = SW_OPT_EXPERT, .kind = SW_OPT_FLAG,                          \
     .offset = offsetof(sw_cmd_common, follow_links), .set_to = 1,                                 \
     .help = "read files that links in the model's directory name outside it; only if you trust "  \
             "them"},                                                                              \
    {.name = "arch-like", .group = SW_OPT_EXPERT, .kind = SW_OPT_TEXT,                             \
     .offset = offsetof(sw_cmd_common, arch_like), .arg = "FAMILY",                                \
     .help = "read a model whose model_type is not known as one of this family (swage list "       \
             "architectures): its names of tensors, its arithmetic"}

typedef struct sw_run {
    const void *options; /* the command's struct */
    const char *const *args;
    int n_args;
    const bool *is_set; /* per row of the command's options: given on the line */
    sw_term *term;
    sw_arena *arena;  /* freed after the command */
    bool has_result;  /* set once a result is on stdout */
    sw_team *team;    /* of a command whose work ranks may share; NULL: one rank */
    /* Several, that the layers of a model may lie on; NULL: the one that the options name. */
    const struct sw_device_list *devices;
    const char *note; /* on the devices that are used, to be said once notes can be; NULL: none */
} sw_run;

typedef struct sw_cmd {
    const char *name;
    const char *args;    /* "MODEL -o OUT --scheme S", for the usage line */
    const char *summary; /* one line */
    const char *more;    /* paragraph for --help, or NULL; lines end with '\n' */
    const sw_opt *options;
    size_t options_bytes;
    const void *defaults; /* NULL: all zero. threads 0 becomes the number of processors */
    int min_args, max_args;
    bool takes_any_family; /* reads the weights of a model_type without a row as well */
    sw_opt_choice_fn words; /* names that the arguments may be, for completion; NULL: files */
    bool has_ranks;      /* several processes may share its work (tools/device/ranks.h) */
    /* Have ranks nothing to share with these options? Then --device cuda is one device. */
    bool (*is_alone)(const void *options);
    /* May the layers of a model lie on several devices with these options? NULL: never. */
    bool (*may_spread)(const void *options);
    /* Of a command that ranks share: bytes of the files of all models that each would have on its
     * device, 0: not known, and what it may take of that, 0: all. */
    int64_t (*model_bytes)(int64_t *cap_bytes, const void *options, const char *const *args);
    bool is_long;        /* works for a while: a signal asks it to stop */
    const char *const *examples; /* whole command lines, ends with NULL */
    sw_code (*run)(sw_run *run, sw_err *err);
} sw_cmd;

/* A fresh result object {"swage": version, "result": "swage.<name>/1"}; grows under the caller.
 * SW_E_NOMEM. Freed by cJSON_Delete. */
sw_code sw_cmd_json_new(cJSON **out, const char *name, sw_err *err) SW_MUST_USE;
/* Print the object on stdout. Does not free it. */
sw_code sw_cmd_json_print(sw_run *run, const cJSON *object, sw_err *err) SW_MUST_USE;
/* SW_E_NOMEM when `added` (what a cJSON_Add... call returned) is NULL. */
sw_code sw_cmd_json_added(const void *added, sw_err *err) SW_MUST_USE;

#endif
