/* chat_expressions.c - what the expressions of a chat template give. See chat_run.h. */
#include "formats/text/chat/chat_run.h"

static sw_code eval_name(sw_chat_value *out, sw_chat_run *run, const sw_chat_node *n)
{
    const sw_chat_value *given;

    for (const sw_chat_frame *f = run->frame; f; f = f->outer)
        for (const sw_chat_variable *v = f->variables; v; v = v->next)
            if (sw_chat_same_text(v->name, n->text)) {
                *out = v->value;
                return SW_OK;
            }
    given = sw_chat_map_find(run->given, n->text);
    if (given) *out = *given;
    else if (sw_chat_function(out, n->text) != SW_OK) *out = sw_chat_undefined(n->text);
    return SW_OK;
}

static sw_code eval_list(sw_chat_value *out, sw_chat_run *run, const sw_chat_node *n)
{
    const sw_chat_node *nodes = run->tree->nodes;
    sw_chat_list *list = NULL;
    int64_t n_items = 0;
    sw_code rc;

    for (int32_t at = n->a; at; at = nodes[at].next) n_items++;
    if ((rc = sw_chat_list_new(&list, run->arena, n_items, run->err)) != SW_OK) return rc;
    n_items = 0;
    for (int32_t at = n->a; at && rc == SW_OK; at = nodes[at].next)
        rc = sw_chat_eval(&list->items[n_items++], run, at);
    *out = (sw_chat_value){.kind = SW_CHAT_LIST, .mark = n->flag ? SW_CHAT_TUPLE : SW_CHAT_PLAIN,
                           .list = list};
    return rc;
}

static sw_code eval_map(sw_chat_value *out, sw_chat_run *run, const sw_chat_node *n)
{
    const sw_chat_node *nodes = run->tree->nodes;
    sw_chat_map *map = NULL;
    sw_chat_value key, value;
    sw_code rc = SW_ARENA_TAKE(&map, run->arena, 1, run->err);

    for (int32_t at = n->a; at && rc == SW_OK; at = nodes[at].next) {
        if ((rc = sw_chat_eval(&key, run, nodes[at].b)) != SW_OK ||
            (rc = sw_chat_eval(&value, run, nodes[at].a)) != SW_OK)
            break;
        run->at = nodes[at].at;
        if (key.kind != SW_CHAT_TEXT)
            return sw_chat_fail(run, SW_E_UNSUPPORTED, "%s as a key is not known here",
                                sw_chat_kind_name(key.kind));
        rc = sw_chat_map_put(map, run->arena, key.text, &value, run->err);
    }
    *out = (sw_chat_value){.kind = SW_CHAT_MAP, .map = map};
    return rc;
}

static sw_code eval_args(sw_chat_args *out, sw_chat_run *run, int32_t first)
{
    const sw_chat_node *nodes = run->tree->nodes;
    sw_code rc;

    *out = (sw_chat_args){0};
    for (int32_t at = first; at; at = nodes[at].next) out->n++;
    if (!out->n) return SW_OK;
    if ((rc = SW_ARENA_TAKE(&out->values, run->arena, out->n, run->err)) != SW_OK ||
        (rc = SW_ARENA_TAKE(&out->names, run->arena, out->n, run->err)) != SW_OK)
        return rc;
    out->n = 0;
    for (int32_t at = first; at && rc == SW_OK; at = nodes[at].next) {
        if (out->n && out->names[out->n - 1].at && !nodes[at].text.at) {
            run->at = nodes[at].at;
            return sw_chat_fail(run, SW_E_FORMAT, "an argument by place behind one by name");
        }
        out->names[out->n] = nodes[at].text;
        rc = sw_chat_eval(&out->values[out->n++], run, nodes[at].a);
    }
    return rc;
}

static sw_code eval_slice(sw_chat_value *out, sw_chat_run *run, const sw_chat_node *n)
{
    sw_chat_value object, bounds[3];
    const int32_t nodes[3] = {n->b, n->c, n->d};
    const sw_chat_value *given[3] = {NULL, NULL, NULL};
    sw_code rc = sw_chat_eval(&object, run, n->a);

    for (int i = 0; i < 3 && rc == SW_OK; i++) {
        if (!nodes[i]) continue;
        rc = sw_chat_eval(&bounds[i], run, nodes[i]);
        if (bounds[i].kind != SW_CHAT_NONE) given[i] = &bounds[i];
    }
    run->at = n->at;
    return rc == SW_OK ? sw_chat_slice(out, run, &object, given[0], given[1], given[2]) : rc;
}

/* Evaluate an operator that always needs both of its operands. */
static sw_code eval_two(sw_chat_value *out, sw_chat_run *run, const sw_chat_node *n)
{
    sw_chat_value a, b;
    sw_chat_text left, right;
    bool is_so = false;
    sw_code rc = sw_chat_eval(&a, run, n->a);

    if (rc == SW_OK) rc = sw_chat_eval(&b, run, n->b);
    if (rc != SW_OK) return rc;
    run->at = n->at;
    if (n->kind == SW_CHAT_N_ITEM) return sw_chat_index(out, run, &a, &b);
    if (n->kind == SW_CHAT_N_BINARY) return sw_chat_binary(out, run, (sw_chat_op)n->op, &a, &b);
    if (n->kind == SW_CHAT_N_COMPARE) {
        rc = sw_chat_compare(&is_so, run, (sw_chat_op)n->op, &a, &b);
        *out = sw_chat_bool(is_so);
        return rc;
    }
    if ((rc = sw_chat_to_text(&left, run, &a)) == SW_OK)
        rc = sw_chat_to_text(&right, run, &b);
    return rc == SW_OK ? sw_chat_join(out, run, left, right) : rc;
}

static sw_code eval_with_args(sw_chat_value *out, sw_chat_run *run, const sw_chat_node *n)
{
    sw_chat_args args;
    sw_chat_value value;
    bool is_so = false;
    sw_code rc = sw_chat_eval(&value, run, n->a);

    if (rc == SW_OK) rc = eval_args(&args, run, n->b);
    if (rc != SW_OK) return rc;
    run->at = n->at;
    if (n->kind == SW_CHAT_N_CALL) return sw_chat_call(out, run, &value, &args);
    if (n->kind == SW_CHAT_N_FILTER) return sw_chat_filter(out, run, n->op, &value, &args);
    rc = sw_chat_test(&is_so, run, n->op, &value, &args);
    *out = sw_chat_bool(is_so != n->flag);
    return rc;
}

static sw_code eval_one(sw_chat_value *out, sw_chat_run *run, const sw_chat_node *n)
{
    sw_chat_value value;
    sw_code rc = SW_OK;

    switch (n->kind) {
    case SW_CHAT_N_NOT:
    case SW_CHAT_N_NEGATE:
        if ((rc = sw_chat_eval(&value, run, n->a)) != SW_OK) return rc;
        *out = sw_chat_bool(!sw_chat_is_true(&value));
        run->at = n->at;
        if (n->kind == SW_CHAT_N_NOT) return SW_OK;
        if (value.kind == SW_CHAT_REAL) {
            *out = sw_chat_real(-value.real);
            return SW_OK;
        }
        return sw_chat_binary(out, run, SW_CHAT_SUBTRACT, &(sw_chat_value){.kind = SW_CHAT_INT},
                              &value);
    case SW_CHAT_N_AND:
    case SW_CHAT_N_OR:
        if ((rc = sw_chat_eval(out, run, n->a)) != SW_OK) return rc;
        return sw_chat_is_true(out) == (n->kind == SW_CHAT_N_OR) ? SW_OK
                                                                : sw_chat_eval(out, run, n->b);
    case SW_CHAT_N_CHOICE:
        if ((rc = sw_chat_eval(&value, run, n->a)) != SW_OK) return rc;
        if (sw_chat_is_true(&value)) return sw_chat_eval(out, run, n->b);
        if (n->c) return sw_chat_eval(out, run, n->c);
        *out = sw_chat_undefined((sw_chat_text){"the other choice", 16});
        return SW_OK;
    case SW_CHAT_N_ATTR:
        if ((rc = sw_chat_eval(&value, run, n->a)) != SW_OK) return rc;
        run->at = n->at;
        return sw_chat_attribute(out, run, &value, n->text);
    default: return sw_chat_fail(run, SW_E_BUG, "no expression");
    }
}

sw_code sw_chat_eval(sw_chat_value *out, sw_chat_run *run, int32_t node)
{
    const sw_chat_node *n = &run->tree->nodes[node];
    sw_code rc;

    run->at = n->at;
    if ((rc = sw_chat_step(run, 0)) != SW_OK) return rc;
    if (++run->depth > SW_CHAT_DEPTH_MAX)
        return sw_chat_fail(run, SW_E_FORMAT, "nested deeper than %d", SW_CHAT_DEPTH_MAX);
    switch (n->kind) {
    case SW_CHAT_N_CONST: *out = n->value; break;
    case SW_CHAT_N_NAME: rc = eval_name(out, run, n); break;
    case SW_CHAT_N_LIST: rc = eval_list(out, run, n); break;
    case SW_CHAT_N_MAP: rc = eval_map(out, run, n); break;
    case SW_CHAT_N_SLICE: rc = eval_slice(out, run, n); break;
    case SW_CHAT_N_ITEM:
    case SW_CHAT_N_BINARY:
    case SW_CHAT_N_COMPARE:
    case SW_CHAT_N_CONCAT: rc = eval_two(out, run, n); break;
    case SW_CHAT_N_CALL:
    case SW_CHAT_N_FILTER:
    case SW_CHAT_N_TEST: rc = eval_with_args(out, run, n); break;
    default: rc = eval_one(out, run, n);
    }
    run->depth--;
    return rc;
}
