/* chat_tests.c - what stands behind `is`. See chat_run.h. */
#include <string.h>

#include "formats/text/chat/chat_run.h"

typedef enum test {
    DEFINED, UNDEFINED, NONE, BOOLEAN, TRUE_, FALSE_, INTEGER, FLOAT, NUMBER, STRING, MAPPING,
    SEQUENCE, ITERABLE, CALLABLE, ODD, EVEN, DIVISIBLE, SAME, EQ, NE, LT, LE, GT, GE, IN
} test;

static const struct {
    const char *name;
    test test;
    int n_args;
} tests[] = {
    {"defined", DEFINED, 0}, {"undefined", UNDEFINED, 0}, {"none", NONE, 0},
    {"boolean", BOOLEAN, 0}, {"true", TRUE_, 0}, {"false", FALSE_, 0}, {"integer", INTEGER, 0},
    {"float", FLOAT, 0}, {"number", NUMBER, 0}, {"string", STRING, 0}, {"mapping", MAPPING, 0},
    {"sequence", SEQUENCE, 0}, {"iterable", ITERABLE, 0}, {"callable", CALLABLE, 0},
    {"odd", ODD, 0}, {"even", EVEN, 0}, {"divisibleby", DIVISIBLE, 1}, {"sameas", SAME, 1},
    {"equalto", EQ, 1}, {"eq", EQ, 1}, {"ne", NE, 1}, {"lt", LT, 1}, {"lessthan", LT, 1},
    {"le", LE, 1}, {"gt", GT, 1}, {"greaterthan", GT, 1}, {"ge", GE, 1}, {"in", IN, 1},
    {"==", EQ, 1}, {"!=", NE, 1}, {"<", LT, 1}, {"<=", LE, 1}, {">", GT, 1}, {">=", GE, 1},
};

int sw_chat_test_index(sw_chat_text name)
{
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        if (sw_chat_text_is(name, tests[i].name)) return (int)i;
    return -1;
}

static sw_code divides(bool *out, sw_chat_run *run, const sw_chat_value *value, int64_t by,
                       int64_t want)
{
    if (!sw_chat_is_whole(value) || !by)
        return sw_chat_fail(run, SW_E_UNSUPPORTED, "a remainder of %s by %lld is not known here",
                            sw_chat_kind_name(value->kind), (long long)by);
    *out = by == -1 || (sw_chat_whole(value) % by != 0) == (want != 0);
    return SW_OK;
}

static sw_code with_argument(bool *out, sw_chat_run *run, test which, const sw_chat_value *value,
                             const sw_chat_value *arg)
{
    static const sw_chat_op ops[] = {[EQ] = SW_CHAT_EQ, [NE] = SW_CHAT_NE, [LT] = SW_CHAT_LT,
                                     [LE] = SW_CHAT_LE, [GT] = SW_CHAT_GT, [GE] = SW_CHAT_GE,
                                     [IN] = SW_CHAT_IN};

    if (which == DIVISIBLE)
        return divides(out, run, value, sw_chat_is_whole(arg) ? sw_chat_whole(arg) : 0, 0);
    if (which != SAME) return sw_chat_compare(out, run, ops[which], value, arg);
    if (arg->kind != SW_CHAT_NONE && arg->kind != SW_CHAT_BOOL)
        return sw_chat_fail(run, SW_E_UNSUPPORTED, "sameas %s is not known here",
                            sw_chat_kind_name(arg->kind));
    *out = value->kind == arg->kind && (arg->kind == SW_CHAT_NONE || value->flag == arg->flag);
    return SW_OK;
}

/* Refuse values for which Python's answer is not settled here. */
static sw_code refuse_odd_kinds(sw_chat_run *run, test which, const sw_chat_value *v)
{
    bool is_lazy = v->kind == SW_CHAT_LIST && v->mark == SW_CHAT_STREAM;

    if ((which == SEQUENCE && (v->kind == SW_CHAT_LIST && v->mark > SW_CHAT_RANGE)) ||
        (which == ITERABLE && v->kind == SW_CHAT_LOOP) || (which != ITERABLE && is_lazy &&
        which != DEFINED && which != STRING))
        return sw_chat_fail(run, SW_E_UNSUPPORTED, "this test of %s is not known here",
                            is_lazy ? "a lazy list" : sw_chat_kind_name(v->kind));
    return SW_OK;
}

static bool is_kind(test which, const sw_chat_value *v)
{
    sw_chat_kind kind = v->kind;
    bool is_sized = kind == SW_CHAT_TEXT || kind == SW_CHAT_LIST || kind == SW_CHAT_MAP ||
                    kind == SW_CHAT_UNDEFINED; /* Jinja gives the undefined value a length of 0 */

    switch (which) {
    case DEFINED: return kind != SW_CHAT_UNDEFINED;
    case UNDEFINED: return kind == SW_CHAT_UNDEFINED;
    case NONE: return kind == SW_CHAT_NONE;
    case BOOLEAN: return kind == SW_CHAT_BOOL;
    case TRUE_: return kind == SW_CHAT_BOOL && v->flag;
    case FALSE_: return kind == SW_CHAT_BOOL && !v->flag;
    case INTEGER: return kind == SW_CHAT_INT;
    case FLOAT: return kind == SW_CHAT_REAL;
    case NUMBER: return sw_chat_is_number(v);
    case STRING: return kind == SW_CHAT_TEXT;
    case MAPPING: return kind == SW_CHAT_MAP;
    case SEQUENCE:
    case ITERABLE: return is_sized;
    /* Jinja's undefined can be called, and fails then */
    default: return kind >= SW_CHAT_MACRO || kind == SW_CHAT_UNDEFINED;
    }
}

sw_code sw_chat_test(bool *out, sw_chat_run *run, int index, const sw_chat_value *value,
                     const sw_chat_args *args)
{
    test which = tests[index].test;
    sw_code rc = sw_chat_check_args(run, args, tests[index].n_args, NULL);

    if (rc == SW_OK) rc = refuse_odd_kinds(run, which, value);
    if (rc != SW_OK) return rc;
    if (args->n < tests[index].n_args)
        return sw_chat_fail(run, SW_E_FORMAT, "the test %s without its argument",
                            tests[index].name);
    if (args->n) return with_argument(out, run, which, value, &args->values[0]);
    if (which == ODD || which == EVEN) return divides(out, run, value, 2, which == ODD);
    *out = is_kind(which, value);
    return SW_OK;
}
