/* chat_statements.c - what the statements of a chat template do. See chat_run.h. */
#include <string.h>

#include "formats/text/chat/chat_run.h"

sw_code sw_chat_set(sw_chat_run *run, sw_chat_frame *frame, sw_chat_text name,
                    const sw_chat_value *value)
{
    sw_chat_variable *v = frame->variables;
    sw_code rc;

    while (v && !sw_chat_same_text(v->name, name)) v = v->next;
    if (!v) {
        if ((rc = SW_ARENA_TAKE(&v, run->arena, 1, run->err)) != SW_OK) return rc;
        v->name = name;
        v->next = frame->variables;
        frame->variables = v;
    }
    v->value = *value;
    return SW_OK;
}

sw_code sw_chat_exec_inner(sw_chat_value *out, sw_chat_run *run, int32_t first,
                           sw_chat_frame *frame)
{
    sw_print_buf *outer_out = run->out, buf = {0};
    sw_chat_frame *outer = run->frame;
    sw_chat_flow flow = SW_CHAT_GOES_ON;
    sw_code rc;

    run->out = &buf;
    run->frame = frame;
    rc = sw_chat_exec(&flow, run, first);
    run->frame = outer;
    run->out = outer_out;
    if (rc == SW_OK) return sw_chat_keep(out, run, &buf);
    sw_mem_put(buf.at);
    return rc;
}

static sw_code emit(sw_chat_run *run, sw_chat_text text)
{
    sw_code rc = sw_chat_step(run, text.n);

    if (rc != SW_OK) return rc;
    if (run->out->n_bytes + text.n > SW_CHAT_OUTPUT_BYTES_MAX)
        return sw_chat_fail(run, SW_E_FORMAT, "more than %zu bytes of output",
                            SW_CHAT_OUTPUT_BYTES_MAX);
    return sw_print_add(run->out, text.at, text.n, run->err);
}

static sw_code print(sw_chat_run *run, const sw_chat_node *n)
{
    sw_chat_value value;
    sw_chat_text text;
    sw_code rc = sw_chat_eval(&value, run, n->a);

    if (rc == SW_OK) rc = sw_chat_to_text(&text, run, &value);
    return rc == SW_OK ? emit(run, text) : rc;
}

static sw_code set(sw_chat_run *run, const sw_chat_node *n)
{
    const sw_chat_node *target = &run->tree->nodes[n->a];
    sw_chat_frame inner = {.outer = run->frame};
    sw_chat_value value, space;
    sw_code rc = n->flag ? sw_chat_exec_inner(&value, run, n->b, &inner)
                         : sw_chat_eval(&value, run, n->b);

    if (rc != SW_OK) return rc;
    if (target->kind == SW_CHAT_N_NAME) return sw_chat_set(run, run->frame, target->text, &value);
    if ((rc = sw_chat_eval(&space, run, target->a)) != SW_OK) return rc;
    run->at = n->at;
    if (space.kind != SW_CHAT_SPACE)
        return sw_chat_fail(run, SW_E_FORMAT, "set an attribute of %s, which is no namespace",
                            sw_chat_kind_name(space.kind));
    return sw_chat_map_put(space.map, run->arena, target->text, &value, run->err);
}

/* Set the target to the item, or each of several targets to its part of the item. */
static sw_code set_targets(sw_chat_run *run, sw_chat_frame *frame, int32_t targets,
                           const sw_chat_value *item)
{
    const sw_chat_node *nodes = run->tree->nodes;
    int64_t n = 0, i = 0;
    sw_code rc = SW_OK;

    if (!nodes[targets].next) return sw_chat_set(run, frame, nodes[targets].text, item);
    for (int32_t at = targets; at; at = nodes[at].next) n++;
    if (item->kind != SW_CHAT_LIST || item->list->n != n)
        return sw_chat_fail(run, SW_E_FORMAT, "%s in place of %lld values",
                            sw_chat_kind_name(item->kind), (long long)n);
    for (int32_t at = targets; at && rc == SW_OK; at = nodes[at].next)
        rc = sw_chat_set(run, frame, nodes[at].text, &item->list->items[i++]);
    return rc;
}

/* Keep the items for which the condition of the loop is true. */
static sw_code filter_items(const sw_chat_list **items, sw_chat_run *run, const sw_chat_node *n)
{
    sw_chat_frame inner = {.outer = run->frame}, *outer = run->frame;
    bool was_in_filter = run->in_loop_filter;
    sw_chat_list *kept = NULL;
    sw_chat_value test;
    int64_t n_kept = 0;
    sw_code rc = sw_chat_list_new(&kept, run->arena, (*items)->n, run->err);

    run->frame = &inner;
    run->in_loop_filter = true;
    for (int64_t i = 0; i < (*items)->n && rc == SW_OK; i++) {
        inner.variables = NULL;
        if ((rc = set_targets(run, &inner, n->a, &(*items)->items[i])) != SW_OK ||
            (rc = sw_chat_eval(&test, run, n->e)) != SW_OK)
            break;
        if (sw_chat_is_true(&test)) kept->items[n_kept++] = (*items)->items[i];
    }
    run->frame = outer;
    run->in_loop_filter = was_in_filter;
    if (rc != SW_OK) return rc;
    kept->n = n_kept;
    *items = kept;
    return SW_OK;
}

static sw_code pass_through(sw_chat_run *run, const sw_chat_node *n, const sw_chat_list *items)
{
    sw_chat_frame inner = {.outer = run->frame}, *outer = run->frame;
    sw_chat_loop *loop = NULL;
    sw_chat_value loop_value;
    sw_chat_flow flow = SW_CHAT_GOES_ON;
    sw_code rc = SW_ARENA_TAKE(&loop, run->arena, 1, run->err);

    if (rc != SW_OK) return rc;
    *loop = (sw_chat_loop){items, 0};
    loop_value = (sw_chat_value){.kind = SW_CHAT_LOOP, .loop = loop};
    run->frame = &inner;
    for (; loop->at < items->n && rc == SW_OK && flow != SW_CHAT_BREAKS; loop->at++) {
        inner.variables = NULL;
        if ((rc = sw_chat_step(run, 0)) != SW_OK ||
            (rc = sw_chat_set(run, &inner, (sw_chat_text){"loop", 4}, &loop_value)) != SW_OK ||
            (rc = set_targets(run, &inner, n->a, &items->items[loop->at])) != SW_OK)
            break;
        rc = sw_chat_exec(&flow, run, n->c);
    }
    run->frame = outer;
    return rc;
}

static sw_code loop_over(sw_chat_run *run, sw_chat_flow *flow, const sw_chat_node *n)
{
    sw_chat_frame inner = {.outer = run->frame}, *outer = run->frame;
    const sw_chat_list *items = NULL;
    sw_chat_value source;
    sw_code rc = sw_chat_eval(&source, run, n->b);

    run->at = n->at;
    if (rc == SW_OK) rc = sw_chat_iterate(&items, run, &source);
    if (rc == SW_OK && n->e) rc = filter_items(&items, run, n);
    if (rc != SW_OK) return rc;
    if (items->n) return pass_through(run, n, items);
    run->frame = &inner;
    rc = sw_chat_exec(flow, run, n->d);
    run->frame = outer;
    return rc;
}

static sw_code choose(sw_chat_run *run, sw_chat_flow *flow, const sw_chat_node *n)
{
    sw_chat_value test;
    sw_code rc;

    for (;;) {
        if ((rc = sw_chat_eval(&test, run, n->a)) != SW_OK) return rc;
        if (sw_chat_is_true(&test)) return sw_chat_exec(flow, run, n->b);
        if (!n->c || n->flag) return sw_chat_exec(flow, run, n->c);
        n = &run->tree->nodes[n->c];
    }
}

static sw_code generation(sw_chat_run *run, const sw_chat_node *n)
{
    sw_chat_frame inner = {.outer = run->frame};
    sw_chat_value text;
    sw_code rc = sw_chat_exec_inner(&text, run, n->b, &inner);

    return rc == SW_OK ? emit(run, text.text) : rc;
}

static sw_code exec_one(sw_chat_flow *flow, sw_chat_run *run, const sw_chat_node *n)
{
    sw_chat_value macro;

    switch (n->kind) {
    case SW_CHAT_N_DATA: return emit(run, n->text);
    case SW_CHAT_N_PRINT: return print(run, n);
    case SW_CHAT_N_IF: return choose(run, flow, n);
    case SW_CHAT_N_FOR: return loop_over(run, flow, n);
    case SW_CHAT_N_SET: return set(run, n);
    case SW_CHAT_N_GENERATION: return generation(run, n);
    case SW_CHAT_N_BREAK: *flow = SW_CHAT_BREAKS; return SW_OK;
    case SW_CHAT_N_CONTINUE: *flow = SW_CHAT_CONTINUES; return SW_OK;
    case SW_CHAT_N_MACRO:
        macro = (sw_chat_value){.kind = SW_CHAT_MACRO, .integer = n - run->tree->nodes};
        return sw_chat_set(run, run->frame, n->text, &macro);
    default: return sw_chat_fail(run, SW_E_BUG, "no statement");
    }
}

sw_code sw_chat_exec(sw_chat_flow *flow, sw_chat_run *run, int32_t first)
{
    sw_code rc = SW_OK;

    *flow = SW_CHAT_GOES_ON;
    if (++run->depth > SW_CHAT_DEPTH_MAX)
        return sw_chat_fail(run, SW_E_FORMAT, "nested deeper than %d", SW_CHAT_DEPTH_MAX);
    for (int32_t at = first; at && rc == SW_OK && *flow == SW_CHAT_GOES_ON;
         at = run->tree->nodes[at].next) {
        run->at = run->tree->nodes[at].at;
        if ((rc = sw_chat_step(run, 0)) == SW_OK)
            rc = exec_one(flow, run, &run->tree->nodes[at]);
    }
    run->depth--;
    return rc;
}
