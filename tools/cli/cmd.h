/* cmd.h - a command of the program as a table row, and what it is handed.
 *
 * A command parses nothing and exits nowhere: it gets its filled options struct and its words,
 * prints its result on stdout and returns an sw_code, which is the exit code. Its options struct
 * begins with sw_cmd_common.
 */
#ifndef SW_TOOLS_CLI_CMD_H
#define SW_TOOLS_CLI_CMD_H

#include "formats/base/json.h"
#include "tools/cli/opt.h"
#include "tools/cli/term.h"

typedef struct sw_cmd_common {
    int json, quiet, help, follow_links;
    int64_t threads; /* at least 1 */
} sw_cmd_common;

/* The rows every command has. Use as the last lines of a table, before the {0} row. */
#define SW_CMD_COMMON_ROWS                                                                         \
    {.name = "json", .kind = SW_OPT_FLAG, .offset = offsetof(sw_cmd_common, json), .set_to = 1,    \
     .help = "one JSON object on stdout instead of text"},                                         \
    {.name = "quiet", .letter = 'q', .kind = SW_OPT_FLAG,                                          \
     .offset = offsetof(sw_cmd_common, quiet), .set_to = 1,                                        \
     .help = "no progress and no notes on stderr, errors only"},                                   \
    {.name = "help", .letter = 'h', .kind = SW_OPT_FLAG,                                           \
     .offset = offsetof(sw_cmd_common, help), .set_to = 1, .help = "this text"}

/* For commands that compute: stands before the common rows. */
#define SW_CMD_THREADS_ROW                                                                         \
    {.name = "threads", .kind = SW_OPT_INT, .offset = offsetof(sw_cmd_common, threads),            \
     .arg = "N", .min = 1, .max = 1024,                                                            \
     .help = "threads to use (default: all processors); never changes a result"}

/* For commands that take a MODEL: stands before the common rows. */
#define SW_CMD_MODEL_ROW                                                                           \
    {.name = "follow-links", .kind = SW_OPT_FLAG,                                                  \
     .offset = offsetof(sw_cmd_common, follow_links), .set_to = 1,                                 \
     .help = "read files that links in the model's directory name elsewhere: if you trust them"}

typedef struct sw_run {
    const void *options; /* the command's struct */
    const char *const *args;
    int n_args;
    const bool *is_set; /* per row of the command's options: given on the line */
    sw_term *term;
    sw_arena *arena;  /* freed after the command */
    bool has_result;  /* set once a result is on stdout */
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
