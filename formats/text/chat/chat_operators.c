/* chat_operators.c - arithmetic and comparisons with Python's rules. See chat_run.h. */
#include <math.h>
#include <string.h>

#include "formats/text/chat/chat_run.h"

static sw_code mismatch(sw_chat_run *run, sw_chat_op op, const sw_chat_value *a,
                        const sw_chat_value *b)
{
    static const char *const signs[] = {"+", "-",  "*", "/",  "//", "%",  "==",
                                        "!=", "<", "<=", ">", ">=", "in", "not in"};
    const sw_chat_value *u = a->kind == SW_CHAT_UNDEFINED ? a : b;

    if (u->kind == SW_CHAT_UNDEFINED)
        return sw_chat_fail(run, SW_E_FORMAT, "%.*s is undefined",
                            u->text.n > 60 ? 60 : (int)u->text.n, u->text.at);
    return sw_chat_fail(run, SW_E_FORMAT, "%s between %s and %s", signs[op],
                        sw_chat_kind_name(a->kind), sw_chat_kind_name(b->kind));
}

sw_code sw_chat_join(sw_chat_value *out, sw_chat_run *run, sw_chat_text a, sw_chat_text b)
{
    char *both = NULL;
    sw_code rc;

    if (a.n + b.n > SW_CHAT_OUTPUT_BYTES_MAX)
        return sw_chat_fail(run, SW_E_FORMAT, "more than %zu bytes of text",
                            SW_CHAT_OUTPUT_BYTES_MAX);
    if ((rc = sw_chat_step(run, a.n + b.n)) != SW_OK ||
        (rc = SW_ARENA_TAKE(&both, run->arena, a.n + b.n, run->err)) != SW_OK)
        return rc;
    if (a.n) memcpy(both, a.at, a.n);
    if (b.n) memcpy(both + a.n, b.at, b.n);
    *out = sw_chat_of_text(both, a.n + b.n);
    return SW_OK;
}

static sw_code join_lists(sw_chat_value *out, sw_chat_run *run, const sw_chat_value *a,
                          const sw_chat_value *b)
{
    size_t n_a = (size_t)a->list->n, n_b = (size_t)b->list->n;
    sw_chat_list *list = NULL;
    sw_code rc;

    if ((rc = sw_chat_step(run, (n_a + n_b) * sizeof *list->items)) != SW_OK ||
        (rc = sw_chat_list_new(&list, run->arena, (int64_t)(n_a + n_b), run->err)) != SW_OK)
        return rc;
    if (n_a) memcpy(list->items, a->list->items, n_a * sizeof *list->items);
    if (n_b) memcpy(list->items + n_a, b->list->items, n_b * sizeof *list->items);
    *out = (sw_chat_value){.kind = SW_CHAT_LIST, .mark = a->mark, .list = list};
    return SW_OK;
}

static sw_code repeat(sw_chat_value *out, sw_chat_run *run, sw_chat_text text, int64_t n)
{
    char *all = NULL;
    sw_code rc;

    if (n <= 0 || !text.n) {
        *out = sw_chat_of_text("", 0);
        return SW_OK;
    }
    if ((uint64_t)n > SW_CHAT_OUTPUT_BYTES_MAX / text.n)
        return sw_chat_fail(run, SW_E_FORMAT, "more than %zu bytes of text",
                            SW_CHAT_OUTPUT_BYTES_MAX);
    if ((rc = sw_chat_step(run, (size_t)n * text.n)) != SW_OK ||
        (rc = SW_ARENA_TAKE(&all, run->arena, (size_t)n * text.n, run->err)) != SW_OK)
        return rc;
    for (int64_t i = 0; i < n; i++) memcpy(all + (size_t)i * text.n, text.at, text.n);
    *out = sw_chat_of_text(all, (size_t)n * text.n);
    return SW_OK;
}

/* Compute with integers; quotient and remainder are rounded down, as in Python. False: the result
 * does not fit 64 bits. */
static bool whole_op(int64_t *out, sw_chat_op op, int64_t a, int64_t b)
{
    int64_t rest;

    switch (op) {
    case SW_CHAT_ADD: return !__builtin_add_overflow(a, b, out);
    case SW_CHAT_SUBTRACT: return !__builtin_sub_overflow(a, b, out);
    case SW_CHAT_MULTIPLY: return !__builtin_mul_overflow(a, b, out);
    default: break;
    }
    if (b == -1) {
        *out = 0;
        return op == SW_CHAT_MODULO || !__builtin_sub_overflow((int64_t)0, a, out);
    }
    rest = a % b;
    if (rest && (rest < 0) != (b < 0)) rest += b;
    *out = rest;
    if (op == SW_CHAT_MODULO) return true;
    if (__builtin_sub_overflow(a, rest, &rest)) return false;
    *out = rest / b;
    return true;
}

static sw_code numbers(sw_chat_value *out, sw_chat_run *run, sw_chat_op op, const sw_chat_value *a,
                       const sw_chat_value *b)
{
    double x = sw_chat_number(a), y = sw_chat_number(b);
    int64_t whole;

    if (op >= SW_CHAT_DIVIDE && y == 0) return sw_chat_fail(run, SW_E_FORMAT, "division by zero");
    if (sw_chat_is_whole(a) && sw_chat_is_whole(b) && op != SW_CHAT_DIVIDE) {
        if (!whole_op(&whole, op, sw_chat_whole(a), sw_chat_whole(b)))
            return sw_chat_fail(run, SW_E_UNSUPPORTED, "an integer beyond 64 bits");
        *out = sw_chat_int(whole);
        return SW_OK;
    }
    if ((sw_chat_is_whole(a) && fabs(x) > 0x1p53) || (sw_chat_is_whole(b) && fabs(y) > 0x1p53))
        return sw_chat_fail(run, SW_E_UNSUPPORTED, "an integer beyond 53 bits as a number");
    switch (op) {
    case SW_CHAT_ADD: *out = sw_chat_real(x + y); break;
    case SW_CHAT_SUBTRACT: *out = sw_chat_real(x - y); break;
    case SW_CHAT_MULTIPLY: *out = sw_chat_real(x * y); break;
    case SW_CHAT_DIVIDE: *out = sw_chat_real(x / y); break;
    default: return sw_chat_fail(run, SW_E_UNSUPPORTED, "// and %% of numbers with a point");
    }
    if (!isfinite(out->real)) return sw_chat_fail(run, SW_E_UNSUPPORTED, "a number without end");
    return SW_OK;
}

sw_code sw_chat_binary(sw_chat_value *out, sw_chat_run *run, sw_chat_op op, const sw_chat_value *a,
                       const sw_chat_value *b)
{
    if (sw_chat_is_number(a) && sw_chat_is_number(b)) return numbers(out, run, op, a, b);
    if (a->mark == SW_CHAT_SAFE || b->mark == SW_CHAT_SAFE)
        return sw_chat_fail(run, SW_E_UNSUPPORTED, "an operator on safe text is not known here");
    if (a->kind == SW_CHAT_TEXT && op == SW_CHAT_MODULO)
        return sw_chat_fail(run, SW_E_UNSUPPORTED, "text %% values is not known here");
    if (op == SW_CHAT_ADD && a->kind == SW_CHAT_TEXT && b->kind == SW_CHAT_TEXT)
        return sw_chat_join(out, run, a->text, b->text);
    if (op == SW_CHAT_ADD && a->kind == SW_CHAT_LIST && b->kind == SW_CHAT_LIST &&
        a->mark == b->mark && a->mark <= SW_CHAT_TUPLE)
        return join_lists(out, run, a, b);
    if (op == SW_CHAT_MULTIPLY && a->kind == SW_CHAT_TEXT && sw_chat_is_whole(b))
        return repeat(out, run, a->text, sw_chat_whole(b));
    if (op == SW_CHAT_MULTIPLY && b->kind == SW_CHAT_TEXT && sw_chat_is_whole(a))
        return repeat(out, run, b->text, sw_chat_whole(a));
    if (op == SW_CHAT_MULTIPLY && (a->kind == SW_CHAT_LIST || b->kind == SW_CHAT_LIST))
        return sw_chat_fail(run, SW_E_UNSUPPORTED, "a list times a number is not known here");
    return mismatch(run, op, a, b);
}

static sw_code contains(bool *out, sw_chat_run *run, const sw_chat_value *item,
                        const sw_chat_value *whole)
{
    sw_code rc;

    *out = false;
    if (whole->kind == SW_CHAT_UNDEFINED) return SW_OK;
    if (whole->kind == SW_CHAT_TEXT && item->kind == SW_CHAT_TEXT) {
        *out = !item->text.n ||
               sw_chat_find_text(whole->text, item->text, 0) < whole->text.n;
        return sw_chat_step(run, whole->text.n);
    }
    if (whole->kind == SW_CHAT_MAP) {
        if (item->kind == SW_CHAT_LIST || item->kind == SW_CHAT_MAP)
            return mismatch(run, SW_CHAT_IN, item, whole);
        *out = item->kind == SW_CHAT_TEXT && sw_chat_map_find(whole->map, item->text);
        return SW_OK;
    }
    if (whole->kind != SW_CHAT_LIST) return mismatch(run, SW_CHAT_IN, item, whole);
    for (int64_t i = 0; i < whole->list->n && !*out; i++)
        if ((rc = sw_chat_step(run, 0)) != SW_OK ||
            (rc = sw_chat_equal(out, item, &whole->list->items[i], 0, &run->n_steps, run->err)) !=
                SW_OK)
            return sw_chat_at_node(run, rc);
    return SW_OK;
}

/* A comparison takes as many steps as it may look at elements or pieces of text. */
static size_t weight(const sw_chat_value *v)
{
    if (v->kind == SW_CHAT_TEXT) return v->text.n;
    if (v->kind == SW_CHAT_LIST) return (size_t)v->list->n * 64;
    return v->kind == SW_CHAT_MAP ? (size_t)(v->map->n * v->map->n) * 32 : 0;
}

sw_code sw_chat_compare(bool *out, sw_chat_run *run, sw_chat_op op, const sw_chat_value *a,
                        const sw_chat_value *b)
{
    double x, y;
    int order;
    sw_code rc = sw_chat_step(run, weight(a));

    if (rc != SW_OK) return rc;
    if (op == SW_CHAT_EQ || op == SW_CHAT_NE) {
        rc = sw_chat_at_node(run, sw_chat_equal(out, a, b, 0, &run->n_steps, run->err));
        *out = *out == (op == SW_CHAT_EQ);
        return rc;
    }
    if (op == SW_CHAT_IN || op == SW_CHAT_NOT_IN) {
        rc = contains(out, run, a, b);
        *out = *out == (op == SW_CHAT_IN);
        return rc;
    }
    if (a->kind == SW_CHAT_TEXT && b->kind == SW_CHAT_TEXT) {
        order = sw_chat_compare_text(a->text, b->text);
    } else if (sw_chat_is_whole(a) && sw_chat_is_whole(b)) {
        order = (sw_chat_whole(a) > sw_chat_whole(b)) - (sw_chat_whole(a) < sw_chat_whole(b));
    } else if (sw_chat_is_number(a) && sw_chat_is_number(b)) {
        x = sw_chat_number(a);
        y = sw_chat_number(b);
        order = (x > y) - (x < y);
    } else {
        return mismatch(run, op, a, b);
    }
    *out = op == SW_CHAT_LT ? order < 0 : op == SW_CHAT_LE ? order <= 0
         : op == SW_CHAT_GT ? order > 0 : order >= 0;
    return SW_OK;
}
