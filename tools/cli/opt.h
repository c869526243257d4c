/* opt.h - option tables: one row parses the option and prints its help, so the two cannot drift.
 *
 * A command owns a plain struct; rows say at which offset a value lands. Long options take
 * `--name value` or `--name=value`, short ones `-o value`; `--` ends the options. A list takes
 * every word up to the next option. Everything wrong with a command line is SW_E_USAGE and
 * suggests the nearest thing that exists. Uses formats/base only.
 */
#ifndef SW_TOOLS_CLI_OPT_H
#define SW_TOOLS_CLI_OPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "formats/base/mem.h"
#include "formats/base/status.h"

typedef enum sw_opt_kind {
    SW_OPT_FLAG,   /* int field = set_to */
    SW_OPT_INT,    /* int64_t field, min..max */
    SW_OPT_REAL,   /* double field, min..max */
    SW_OPT_TEXT,   /* const char * field, not empty */
    SW_OPT_SIZE,   /* uint64_t field, bytes: 512, 64K, 4.5G, 2GiB (powers of 1024), 5GB (of 1000) */
    SW_OPT_CHOICE, /* const char * field = the table's own spelling of the name, or of several */
    SW_OPT_LIST,   /* sw_opt_list field, repeatable */
    SW_OPT_KIND_COUNT
} sw_opt_kind;

/* The part of the help that lists the option, in the order of printing. */
typedef enum sw_opt_group {
    SW_OPT_UNGROUPED, /* a row that was not given a group: a test refuses it */
    SW_OPT_COMMON,    /* what most runs use */
    SW_OPT_QUALITY,   /* changes the result */
    SW_OPT_RESOURCES, /* device, threads, memory, disk */
    SW_OPT_EXPERT,    /* for special cases */
    SW_OPT_GROUP_COUNT
} sw_opt_group;

typedef struct sw_opt_list {
    const char **items; /* borrowed from the command line */
    int n;
} sw_opt_list;

/* The i-th name of a table, NULL beyond its end. */
typedef const char *(*sw_opt_choice_fn)(int i);

typedef struct sw_opt {
    const char *name;      /* without the dashes; NULL ends a table */
    char letter;           /* one-letter form, or 0 */
    sw_opt_group group;
    sw_opt_kind kind;
    size_t offset;         /* of the field in the command's struct */
    const char *arg;       /* what help calls the value: "FILE", "N" */
    const char *help;      /* one line; NULL for an alias */
    double min, max;       /* INT and REAL */
    int set_to;            /* FLAG */
    sw_opt_choice_fn choices;
    bool is_many;          /* CHOICE: several with commas between, or given again; the field holds
                            * them with commas, each once, in the order given */
    sw_opt_choice_fn offers; /* TEXT: names that completion offers, beside others; or NULL */
    const char *word;      /* REAL: taken as well, and stands for SW_OPT_WORD; or NULL */
    bool is_model;         /* TEXT: a MODEL, so an id of the Hub as well (model_args.h) */
    const char *alias_of;  /* name of the row that this one is another name for; or NULL */
    const char *listed_by; /* the command whose help describes the row, so that this command's help
                            * only names it; or NULL */
} sw_opt;
#define SW_OPT_WORD (-1.0)

/* Words that are not options. */
typedef struct sw_opt_args {
    const char **items;
    int n;
    bool *is_set; /* per row of the table: it was on the line */
} sw_opt_args;

/* Parse argv[0..argc) (without program and command) into `fields`, which holds the defaults.
 * Lists and `args` live in `arena`, their texts in argv. *fields is undefined on failure. */
sw_code sw_opt_parse(void *fields, sw_opt_args *args, const sw_opt *table, int argc,
                     char *const argv[], sw_arena *arena, sw_err *err) SW_MUST_USE;

/* Put one value where the row says, as if `what` had been given it on the line; a list has room
 * for list_room of them and keeps `value`, which must outlive it. Not for flags. */
sw_code sw_opt_store(void *fields, const sw_opt *row, const char *what, const char *value,
                     sw_arena *arena, int list_room, sw_err *err) SW_MUST_USE;

/* The rows by group, each under the group's heading, wrapped, with their choices. Rows that another
 * command lists follow as a list of names. */
void sw_opt_print(FILE *out, const sw_opt *table);

/* What help calls a group of options: "options that change the result". */
const char *sw_opt_heading(sw_opt_group group);
/* What help says of a row: its text and its choices, or the row that it is another name of. */
void sw_opt_describe(char *text, size_t text_bytes, const sw_opt *row);

/* The name nearest to `word`, or NULL when nothing is near enough to be a slip of the finger. */
const char *sw_opt_nearest(const char *word, sw_opt_choice_fn names);

/* Is `name` among the names of an is_many choice, which have commas between? */
bool sw_opt_has_choice(const char *chosen, const char *name);

/* Edits that turn one word into the other, ignoring case. */
int sw_opt_distance(const char *a, const char *b);

/* "a, b, c" of a table's names; always terminated, cut short with "..." when it does not fit. */
void sw_opt_join(char *text, size_t text_bytes, sw_opt_choice_fn names);

/* SW_E_USAGE: "<what> does not know <word>; did you mean ...? (there are ...)". */
sw_code sw_opt_unknown(const char *what, const char *word, sw_opt_choice_fn names,
                       sw_err *err) SW_MUST_USE;

/* Whole text as a number within min..max. SW_E_USAGE; `what` names it. */
sw_code sw_opt_int(int64_t *out, const char *text, double min, double max, const char *what,
                   sw_err *err) SW_MUST_USE;
sw_code sw_opt_real(double *out, const char *text, double min, double max, const char *what,
                    sw_err *err) SW_MUST_USE;
sw_code sw_opt_size(uint64_t *out, const char *text, const char *what, sw_err *err) SW_MUST_USE;

#endif
