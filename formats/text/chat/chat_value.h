/* chat_value.h - the values of a chat template: Python's, as far as templates can tell.
 *
 * Values are immutable apart from namespaces and live in the arena of one rendering. Text is valid
 * UTF-8, and counts and indexes of it are in code points.
 */
#ifndef SW_FORMATS_TEXT_CHAT_CHAT_VALUE_H
#define SW_FORMATS_TEXT_CHAT_CHAT_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/mem.h"
#include "formats/base/print_buf.h"

typedef struct sw_chat_text {
    const char *at;
    size_t n;
} sw_chat_text;

typedef enum sw_chat_kind {
    SW_CHAT_UNDEFINED, /* text: what is undefined */
    SW_CHAT_NONE,
    SW_CHAT_BOOL,
    SW_CHAT_INT,
    SW_CHAT_REAL,
    SW_CHAT_TEXT,
    SW_CHAT_LIST,
    SW_CHAT_MAP,
    SW_CHAT_SPACE, /* namespace(): a map that `set` may change */
    SW_CHAT_LOOP,
    SW_CHAT_MACRO,
    SW_CHAT_METHOD,
    SW_CHAT_FUNCTION
} sw_chat_kind;

/* What Python tells apart where a list serves here for all. */
typedef enum sw_chat_mark {
    SW_CHAT_PLAIN,
    SW_CHAT_TUPLE,
    SW_CHAT_RANGE,
    SW_CHAT_VIEW,   /* items(), keys(), values(): has a length, no indexes */
    SW_CHAT_STREAM, /* what a lazy filter gives: may be passed through once */
    SW_CHAT_SAFE    /* text that `safe` marked, which changes what + does to it */
} sw_chat_mark;

typedef struct sw_chat_value sw_chat_value;
typedef struct sw_chat_list sw_chat_list;
typedef struct sw_chat_map sw_chat_map;
typedef struct sw_chat_method sw_chat_method;
typedef struct sw_chat_loop sw_chat_loop;

struct sw_chat_value {
    sw_chat_kind kind;
    sw_chat_mark mark;
    union {
        bool flag;
        int64_t integer; /* also: which function, which macro (a node) */
        double real;
        sw_chat_text text;
        const sw_chat_list *list;
        sw_chat_map *map;
        const sw_chat_loop *loop;
        const sw_chat_method *method;
    };
};

struct sw_chat_list {
    int64_t n;
    sw_chat_value *items;
    bool *is_spent; /* of what may be passed through once: it was; else NULL */
};

/* In the order in which members were added. */
struct sw_chat_map {
    int64_t n, room;
    sw_chat_text *keys;
    sw_chat_value *values;
};

struct sw_chat_method {
    sw_chat_value self;
    sw_chat_text name;
};

struct sw_chat_loop {
    const sw_chat_list *list;
    int64_t at;
};

static inline sw_chat_value sw_chat_none(void) { return (sw_chat_value){.kind = SW_CHAT_NONE}; }
static inline sw_chat_value sw_chat_bool(bool flag)
{
    return (sw_chat_value){.kind = SW_CHAT_BOOL, .flag = flag};
}
static inline sw_chat_value sw_chat_int(int64_t n)
{
    return (sw_chat_value){.kind = SW_CHAT_INT, .integer = n};
}
static inline sw_chat_value sw_chat_real(double x)
{
    return (sw_chat_value){.kind = SW_CHAT_REAL, .real = x};
}
static inline sw_chat_value sw_chat_of_text(const char *at, size_t n)
{
    return (sw_chat_value){.kind = SW_CHAT_TEXT, .text = {at, n}};
}
static inline sw_chat_value sw_chat_undefined(sw_chat_text what)
{
    return (sw_chat_value){.kind = SW_CHAT_UNDEFINED, .text = what};
}
static inline bool sw_chat_is_whole(const sw_chat_value *v)
{
    return v->kind == SW_CHAT_INT || v->kind == SW_CHAT_BOOL;
}
static inline int64_t sw_chat_whole(const sw_chat_value *v)
{
    return v->kind == SW_CHAT_BOOL ? v->flag : v->integer;
}
static inline bool sw_chat_is_number(const sw_chat_value *v)
{
    return sw_chat_is_whole(v) || v->kind == SW_CHAT_REAL;
}
static inline double sw_chat_number(const sw_chat_value *v)
{
    return v->kind == SW_CHAT_REAL ? v->real : (double)sw_chat_whole(v);
}

bool sw_chat_text_is(sw_chat_text text, const char *word);
bool sw_chat_same_text(sw_chat_text a, sw_chat_text b);
/* Less, equal or greater by code points. */
int sw_chat_compare_text(sw_chat_text a, sw_chat_text b);
/* Offset of the first `part` at or behind `from`; text.n when there is none. */
size_t sw_chat_find_text(sw_chat_text text, sw_chat_text part, size_t from);
int64_t sw_chat_n_points(sw_chat_text text);
/* The code point `i`, which must be there, as text. */
sw_chat_text sw_chat_point(sw_chat_text text, int64_t i);
/* What Python's str.isspace says of one code point. */
bool sw_chat_is_space(uint32_t code_point);
/* Without the blanks (or the characters of `chars` where it is not NULL) at the named ends. */
sw_chat_text sw_chat_strip(sw_chat_text text, const sw_chat_text *chars, bool at_start,
                           bool at_end);

/* "undefined", "text", "list" ...: for messages. */
const char *sw_chat_kind_name(sw_chat_kind kind);
bool sw_chat_is_true(const sw_chat_value *v);

/* The value of a member, or NULL. */
const sw_chat_value *sw_chat_map_find(const sw_chat_map *map, sw_chat_text key);
/* Add or replace a member. */
sw_code sw_chat_map_put(sw_chat_map *map, sw_arena *arena, sw_chat_text key,
                        const sw_chat_value *value, sw_err *err) SW_MUST_USE;
sw_code sw_chat_list_new(sw_chat_list **out, sw_arena *arena, int64_t n, sw_err *err) SW_MUST_USE;

/* Python's ==; counts up *n_steps. SW_E_FORMAT: nested too deep, too many steps. SW_E_UNSUPPORTED:
 * kinds that have no equality here. */
sw_code sw_chat_equal(bool *out, const sw_chat_value *a, const sw_chat_value *b, int depth,
                      int64_t *n_steps, sw_err *err) SW_MUST_USE;

/* Python's str(), or repr() where is_quoted. SW_E_UNSUPPORTED: a kind that has no text here. */
sw_code sw_chat_print(sw_print_buf *out, const sw_chat_value *v, bool is_quoted, int depth,
                      sw_err *err) SW_MUST_USE;

/* How json.dumps is asked to write. */
typedef struct sw_chat_json_style {
    int64_t indent; /* -1: all in one line */
    sw_chat_text item_separator, key_separator;
    bool is_ascii, is_sorted;
} sw_chat_json_style;
sw_code sw_chat_print_json(sw_print_buf *out, const sw_chat_value *v,
                           const sw_chat_json_style *style, int depth, sw_err *err) SW_MUST_USE;

/* The value of n_bytes of JSON, all of it in the arena. SW_E_FORMAT: no JSON, a key twice.
 * SW_E_UNSUPPORTED: an integer beyond 64 bits. */
sw_code sw_chat_read_json(sw_chat_value *out, sw_arena *arena, const char *json, size_t n_bytes,
                          sw_err *err) SW_MUST_USE;

#endif
