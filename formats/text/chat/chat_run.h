/* chat_run.h - one rendering of a chat template: variables, counters and what evaluates nodes. */
#ifndef SW_FORMATS_TEXT_CHAT_CHAT_RUN_H
#define SW_FORMATS_TEXT_CHAT_CHAT_RUN_H

#include <time.h>

#include "formats/text/chat/chat_template.h"
#include "formats/text/chat/chat_tree.h"

typedef struct sw_chat_variable sw_chat_variable;
struct sw_chat_variable {
    sw_chat_text name;
    sw_chat_value value;
    sw_chat_variable *next;
};

/* Variables of the template, of one pass through a loop, of one call of a macro. */
typedef struct sw_chat_frame sw_chat_frame;
struct sw_chat_frame {
    sw_chat_variable *variables;
    sw_chat_frame *outer;
};

typedef struct sw_chat_run {
    const sw_chat_tree *tree;
    sw_arena *arena; /* of everything that this rendering makes */
    sw_err *err;
    const sw_chat_map *given; /* the variables from outside */
    const struct tm *now;
    sw_chat_frame *frame, *root;
    sw_print_buf *out;
    int64_t n_steps;
    int depth;
    bool in_loop_filter; /* evaluated ahead of the loop, so it may see nothing that changes */
    uint32_t at;         /* the node at work, for messages */
} sw_chat_run;

/* Values handed to a macro, method, filter, test or function. */
typedef struct sw_chat_args {
    int64_t n;
    sw_chat_value *values;
    sw_chat_text *names; /* at is NULL where the value goes by its place */
} sw_chat_args;

typedef enum sw_chat_flow { SW_CHAT_GOES_ON, SW_CHAT_BREAKS, SW_CHAT_CONTINUES } sw_chat_flow;

/* Render with variables that are values already; the arena keeps what the rendering makes. */
sw_code sw_chat_render_map(sw_print_buf *out, const sw_chat_template *t, sw_chat_map *given,
                           sw_arena *arena, const struct tm *now, sw_err *err) SW_MUST_USE;

/* Fail at the node at work. SW_E_FORMAT: the template is wrong; SW_E_UNSUPPORTED: we are. */
sw_code sw_chat_fail(sw_chat_run *run, sw_code code, const char *fmt, ...) SW_PRINTF(3, 4);
/* Put the place of the node at work before what a function without it recorded. */
sw_code sw_chat_at_node(sw_chat_run *run, sw_code rc);
/* Count a step over n_bytes of text; SW_E_FORMAT when there were too many, or too much memory. */
sw_code sw_chat_step(sw_chat_run *run, size_t n_bytes) SW_MUST_USE;

sw_code sw_chat_eval(sw_chat_value *out, sw_chat_run *run, int32_t node) SW_MUST_USE;
/* Statements from `first` on. */
sw_code sw_chat_exec(sw_chat_flow *flow, sw_chat_run *run, int32_t first) SW_MUST_USE;
/* The same, with its output as text and variables of its own within `outer`. */
sw_code sw_chat_exec_inner(sw_chat_value *out, sw_chat_run *run, int32_t first,
                           sw_chat_frame *frame) SW_MUST_USE;
sw_code sw_chat_set(sw_chat_run *run, sw_chat_frame *frame, sw_chat_text name,
                    const sw_chat_value *value) SW_MUST_USE;

/* chat_operators.c */
sw_code sw_chat_binary(sw_chat_value *out, sw_chat_run *run, sw_chat_op op, const sw_chat_value *a,
                       const sw_chat_value *b) SW_MUST_USE;
sw_code sw_chat_compare(bool *out, sw_chat_run *run, sw_chat_op op, const sw_chat_value *a,
                        const sw_chat_value *b) SW_MUST_USE;
sw_code sw_chat_join(sw_chat_value *out, sw_chat_run *run, sw_chat_text a,
                     sw_chat_text b) SW_MUST_USE;

/* chat_access.c */
sw_code sw_chat_attribute(sw_chat_value *out, sw_chat_run *run, const sw_chat_value *object,
                          sw_chat_text name) SW_MUST_USE;
sw_code sw_chat_index(sw_chat_value *out, sw_chat_run *run, const sw_chat_value *object,
                      const sw_chat_value *index) SW_MUST_USE;
/* Each bound NULL where it is left out. */
sw_code sw_chat_slice(sw_chat_value *out, sw_chat_run *run, const sw_chat_value *object,
                      const sw_chat_value *start, const sw_chat_value *stop,
                      const sw_chat_value *step) SW_MUST_USE;
/* What a loop over the value passes through. SW_E_UNSUPPORTED: a stream, for the second time. */
sw_code sw_chat_iterate(const sw_chat_list **out, sw_chat_run *run,
                        const sw_chat_value *value) SW_MUST_USE;
/* The list as what a lazy filter gives. */
sw_code sw_chat_stream(sw_chat_value *out, sw_chat_run *run, const sw_chat_list *list) SW_MUST_USE;
/* str() of the value. */
sw_code sw_chat_to_text(sw_chat_text *out, sw_chat_run *run,
                        const sw_chat_value *value) SW_MUST_USE;
/* Move what was printed into the arena; the buffer is freed. */
sw_code sw_chat_keep(sw_chat_value *out, sw_chat_run *run, sw_print_buf *buf) SW_MUST_USE;

/* chat_calls.c */
sw_code sw_chat_function(sw_chat_value *out, sw_chat_text name); /* SW_E_USAGE: no such one */
sw_code sw_chat_call(sw_chat_value *out, sw_chat_run *run, const sw_chat_value *callee,
                     const sw_chat_args *args) SW_MUST_USE;
/* The argument in place `i` or of that name; NULL: not given. */
const sw_chat_value *sw_chat_arg(const sw_chat_args *args, int64_t i, const char *name);
/* SW_E_UNSUPPORTED when there are more than n_max, or others than these names (up to a NULL). */
sw_code sw_chat_check_args(sw_chat_run *run, const sw_chat_args *args, int64_t n_max,
                           const char *const *names) SW_MUST_USE;

/* chat_methods.c */
bool sw_chat_has_method(sw_chat_kind kind, sw_chat_text name);
sw_code sw_chat_call_method(sw_chat_value *out, sw_chat_run *run, const sw_chat_method *method,
                            const sw_chat_args *args) SW_MUST_USE;
sw_code sw_chat_members(sw_chat_value *out, sw_chat_run *run, const sw_chat_map *map,
                        bool with_keys, bool with_values) SW_MUST_USE;
sw_code sw_chat_replace(sw_chat_value *out, sw_chat_run *run, sw_chat_text text, sw_chat_text old,
                        sw_chat_text with, int64_t n_max) SW_MUST_USE;
/* How letters are changed. */
typedef enum sw_chat_case {
    SW_CHAT_LOWER,
    SW_CHAT_UPPER,
    SW_CHAT_CAPITAL,
    SW_CHAT_TITLE
} sw_chat_case;
sw_code sw_chat_change_case(sw_chat_value *out, sw_chat_run *run, sw_chat_text text,
                            sw_chat_case to) SW_MUST_USE;

/* chat_filters.c: these are filters and methods of text at once */
sw_code sw_chat_upper(sw_chat_value *out, sw_chat_run *run, const sw_chat_value *value,
                      const sw_chat_args *args) SW_MUST_USE;
sw_code sw_chat_lower(sw_chat_value *out, sw_chat_run *run, const sw_chat_value *value,
                      const sw_chat_args *args) SW_MUST_USE;
sw_code sw_chat_capitalize(sw_chat_value *out, sw_chat_run *run, const sw_chat_value *value,
                           const sw_chat_args *args) SW_MUST_USE;

/* chat_filters.c, chat_tests.c: by the index that the parser looked up */
sw_code sw_chat_filter(sw_chat_value *out, sw_chat_run *run, int index, const sw_chat_value *value,
                       const sw_chat_args *args) SW_MUST_USE;
sw_code sw_chat_test(bool *out, sw_chat_run *run, int index, const sw_chat_value *value,
                     const sw_chat_args *args) SW_MUST_USE;

/* chat_select.c, chat_sort.c: filters over lists */
/* item.name, as filters that take the name of an attribute have it. SW_E_UNSUPPORTED: item.a.b. */
sw_code sw_chat_attribute_of(sw_chat_value *out, sw_chat_run *run, const sw_chat_value *item,
                             const sw_chat_value *name) SW_MUST_USE;
sw_code sw_chat_sort(sw_chat_value *out, sw_chat_run *run, const sw_chat_value *value,
                     const sw_chat_args *args) SW_MUST_USE;
sw_code sw_chat_unique(sw_chat_value *out, sw_chat_run *run, const sw_chat_value *value,
                       const sw_chat_args *args) SW_MUST_USE;
sw_code sw_chat_select(sw_chat_value *out, sw_chat_run *run, const sw_chat_value *value,
                       const sw_chat_args *args, bool by_attribute, bool keeps) SW_MUST_USE;
sw_code sw_chat_map_filter(sw_chat_value *out, sw_chat_run *run, const sw_chat_value *value,
                           const sw_chat_args *args) SW_MUST_USE;
sw_code sw_chat_dictsort(sw_chat_value *out, sw_chat_run *run, const sw_chat_value *value,
                         const sw_chat_args *args) SW_MUST_USE;

#endif
