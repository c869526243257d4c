/* chat_parse.c - the statements of a chat template. See chat_tree.h. */
#include <string.h>

#include "formats/text/chat/chat_tree.h"

#define STATEMENT_DEPTH_MAX 100

sw_code sw_chat_node_new(int32_t *out, sw_chat_parser *p, sw_chat_node_kind kind, uint32_t at)
{
    sw_chat_tree *tree = p->tree;
    sw_chat_node *larger = NULL;
    sw_code rc;

    if (tree->n >= tree->room) {
        tree->room = tree->room ? 2 * tree->room : 512;
        if ((rc = SW_ARENA_TAKE(&larger, p->arena, tree->room, p->err)) != SW_OK) return rc;
        if (tree->n) memcpy(larger, tree->nodes, (size_t)tree->n * sizeof *larger);
        tree->nodes = larger;
        if (!tree->n) tree->n = 1;
    }
    tree->nodes[tree->n] = (sw_chat_node){.kind = (uint8_t)kind, .at = at};
    *out = tree->n++;
    return SW_OK;
}

static const sw_chat_token *peek(const sw_chat_parser *p) { return &p->tokens[p->at]; }

static bool is(const sw_chat_parser *p, sw_chat_token_kind kind, const char *text)
{
    return peek(p)->kind == kind && sw_chat_text_is(peek(p)->text, text);
}

bool sw_chat_is_sign(const sw_chat_parser *p, const char *sign)
{
    return is(p, SW_CHAT_T_SIGN, sign);
}

bool sw_chat_is_name(const sw_chat_parser *p, const char *name)
{
    return is(p, SW_CHAT_T_NAME, name);
}

bool sw_chat_skip_sign(sw_chat_parser *p, const char *sign)
{
    bool is_there = sw_chat_is_sign(p, sign);

    p->at += is_there;
    return is_there;
}

bool sw_chat_skip_name(sw_chat_parser *p, const char *name)
{
    bool is_there = sw_chat_is_name(p, name);

    p->at += is_there;
    return is_there;
}

sw_code sw_chat_unexpected(const sw_chat_parser *p, const char *instead)
{
    const sw_chat_token *t = peek(p);
    int n = t->text.n > 40 ? 40 : (int)t->text.n;

    if (t->kind == SW_CHAT_T_END)
        return sw_chat_fail_at(&p->tree->source, t->at, SW_E_FORMAT, p->err,
                               "the template ends where %s should be", instead);
    return sw_chat_fail_at(&p->tree->source, t->at, SW_E_UNSUPPORTED, p->err,
                           "\"%.*s\" where %s should be is not known here", n, t->text.at,
                           instead);
}

sw_code sw_chat_expect(sw_chat_parser *p, const char *sign)
{
    return sw_chat_skip_sign(p, sign) ? SW_OK : sw_chat_unexpected(p, sign);
}

static sw_code expect_end(sw_chat_parser *p)
{
    if (peek(p)->kind != SW_CHAT_T_BLOCK_END) return sw_chat_unexpected(p, "the end of the block");
    p->at++;
    return SW_OK;
}

/* Parse statements up to a block whose name is one of `ends`, a list that ends with NULL; that name
 * is the next token then. ends NULL: parse to the end of the template. */
static sw_code parse_body(int32_t *out, sw_chat_parser *p, const char *const *ends);

static sw_code parse_name(int32_t *out, sw_chat_parser *p)
{
    const sw_chat_token *t = peek(p);
    sw_code rc;

    if (t->kind != SW_CHAT_T_NAME) return sw_chat_unexpected(p, "a name");
    if ((rc = sw_chat_node_new(out, p, SW_CHAT_N_NAME, t->at)) != SW_OK) return rc;
    p->tree->nodes[*out].text = t->text;
    p->at++;
    return SW_OK;
}

static const char *const if_ends[] = {"elif", "else", "endif", NULL};

/* Parse what follows "if" or "elif". A loop goes through the chain of elifs, so that its length
 * costs no stack. */
static sw_code parse_if(int32_t *out, sw_chat_parser *p, uint32_t at)
{
    static const char *const ends[] = {"endif", NULL};
    int32_t node = 0, test = 0, body = 0, last = 0;
    sw_code rc;

    for (;;) {
        if ((rc = sw_chat_node_new(&node, p, SW_CHAT_N_IF, at)) != SW_OK ||
            (rc = sw_chat_parse_expression(&test, p, false)) != SW_OK ||
            (rc = expect_end(p)) != SW_OK || (rc = parse_body(&body, p, if_ends)) != SW_OK)
            return rc;
        p->tree->nodes[node].a = test;
        p->tree->nodes[node].b = body;
        if (last) p->tree->nodes[last].c = node;
        else *out = node;
        last = node;
        at = peek(p)->at;
        if (sw_chat_skip_name(p, "elif")) continue;
        if (sw_chat_skip_name(p, "else")) {
            if ((rc = expect_end(p)) != SW_OK || (rc = parse_body(&body, p, ends)) != SW_OK)
                return rc;
            p->tree->nodes[last].c = body;
            p->tree->nodes[last].flag = true; /* c is a body, with no further test */
        }
        p->at++; /* past endif */
        return expect_end(p);
    }
}

/* Parse the names of a loop or a set: one, or several with commas, in brackets or not. */
static sw_code parse_targets(int32_t *out, sw_chat_parser *p)
{
    bool has_brackets = sw_chat_skip_sign(p, "(");
    int32_t name = 0, last = 0;
    sw_code rc;

    do {
        if ((rc = parse_name(&name, p)) != SW_OK) return rc;
        if (last) p->tree->nodes[last].next = name;
        else *out = name;
        last = name;
    } while (sw_chat_skip_sign(p, ","));
    return has_brackets ? sw_chat_expect(p, ")") : SW_OK;
}

static sw_code parse_loop_bodies(sw_chat_parser *p, int32_t node)
{
    static const char *const ends[] = {"else", "endfor", NULL}, *const last[] = {"endfor", NULL};
    bool was_inner = p->is_inner;
    int32_t body = 0;
    sw_code rc;

    p->is_inner = true;
    p->n_loops++;
    rc = parse_body(&body, p, ends);
    p->n_loops--;
    p->tree->nodes[node].c = body;
    if (rc == SW_OK && sw_chat_skip_name(p, "else")) {
        if ((rc = expect_end(p)) == SW_OK) rc = parse_body(&body, p, last);
        p->tree->nodes[node].d = body;
    }
    p->is_inner = was_inner;
    if (rc != SW_OK) return rc;
    p->at++;
    return expect_end(p);
}

static sw_code parse_for(int32_t *out, sw_chat_parser *p, uint32_t at)
{
    int32_t node = 0, targets = 0, source = 0, filter = 0;
    sw_code rc;

    if ((rc = sw_chat_node_new(&node, p, SW_CHAT_N_FOR, at)) != SW_OK ||
        (rc = parse_targets(&targets, p)) != SW_OK)
        return rc;
    if (!sw_chat_skip_name(p, "in")) return sw_chat_unexpected(p, "in");
    if ((rc = sw_chat_parse_expression(&source, p, false)) != SW_OK) return rc;
    if (sw_chat_skip_name(p, "if") &&
        (rc = sw_chat_parse_expression(&filter, p, true)) != SW_OK)
        return rc;
    if ((rc = expect_end(p)) != SW_OK) return rc;
    p->tree->nodes[node].a = targets;
    p->tree->nodes[node].b = source;
    p->tree->nodes[node].e = filter;
    *out = node;
    return parse_loop_bodies(p, node);
}

/* Parse the body of a set, a macro or a generation, which has variables of its own. */
static sw_code parse_inner(int32_t *out, sw_chat_parser *p, const char *const *ends)
{
    bool was_inner = p->is_inner;
    int n_loops = p->n_loops;
    sw_code rc;

    p->is_inner = true;
    p->n_loops = 0; /* a break does not leave it */
    rc = parse_body(out, p, ends);
    p->n_loops = n_loops;
    p->is_inner = was_inner;
    if (rc != SW_OK) return rc;
    p->at++;
    return expect_end(p);
}

static sw_code parse_set(int32_t *out, sw_chat_parser *p, uint32_t at)
{
    static const char *const ends[] = {"endset", NULL};
    int32_t node = 0, target = 0, value = 0, attr = 0;
    sw_code rc;

    if ((rc = sw_chat_node_new(&node, p, SW_CHAT_N_SET, at)) != SW_OK ||
        (rc = parse_name(&target, p)) != SW_OK)
        return rc;
    if (sw_chat_skip_sign(p, ".")) {
        if ((rc = parse_name(&attr, p)) != SW_OK) return rc;
        p->tree->nodes[attr].kind = SW_CHAT_N_ATTR;
        p->tree->nodes[attr].a = target;
        target = attr;
    }
    if (sw_chat_skip_sign(p, "=")) {
        if ((rc = sw_chat_parse_expression(&value, p, true)) != SW_OK ||
            (rc = expect_end(p)) != SW_OK)
            return rc;
    } else {
        p->tree->nodes[node].flag = true;
        if ((rc = expect_end(p)) != SW_OK || (rc = parse_inner(&value, p, ends)) != SW_OK)
            return rc;
    }
    p->tree->nodes[node].a = target;
    p->tree->nodes[node].b = value;
    *out = node;
    return SW_OK;
}

static sw_code parse_parameters(int32_t *out, sw_chat_parser *p)
{
    int32_t name = 0, last = 0, value = 0;
    sw_code rc = sw_chat_expect(p, "(");

    while (rc == SW_OK && !sw_chat_is_sign(p, ")")) {
        if (last && (rc = sw_chat_expect(p, ",")) != SW_OK) break;
        if ((rc = parse_name(&name, p)) != SW_OK) break;
        if (sw_chat_skip_sign(p, "=")) {
            if ((rc = sw_chat_parse_expression(&value, p, true)) != SW_OK) break;
            p->tree->nodes[name].a = value;
        }
        if (last) p->tree->nodes[last].next = name;
        else *out = name;
        last = name;
    }
    return rc == SW_OK ? sw_chat_expect(p, ")") : rc;
}

static sw_code parse_macro(int32_t *out, sw_chat_parser *p, uint32_t at)
{
    static const char *const ends[] = {"endmacro", NULL};
    int32_t node = 0, name = 0, parameters = 0, body = 0;
    sw_code rc;

    if (p->is_inner)
        return sw_chat_fail_at(&p->tree->source, at, SW_E_UNSUPPORTED, p->err,
                               "a macro within a loop, a macro or a block is not known here");
    if ((rc = sw_chat_node_new(&node, p, SW_CHAT_N_MACRO, at)) != SW_OK ||
        (rc = parse_name(&name, p)) != SW_OK ||
        (rc = parse_parameters(&parameters, p)) != SW_OK || (rc = expect_end(p)) != SW_OK ||
        (rc = parse_inner(&body, p, ends)) != SW_OK)
        return rc;
    p->tree->nodes[node].text = p->tree->nodes[name].text;
    p->tree->nodes[node].a = parameters;
    p->tree->nodes[node].b = body;
    *out = node;
    return SW_OK;
}

static sw_code parse_generation(int32_t *out, sw_chat_parser *p, uint32_t at)
{
    static const char *const ends[] = {"endgeneration", NULL};
    int32_t node = 0, body = 0;
    sw_code rc;

    if ((rc = sw_chat_node_new(&node, p, SW_CHAT_N_GENERATION, at)) != SW_OK ||
        (rc = expect_end(p)) != SW_OK || (rc = parse_inner(&body, p, ends)) != SW_OK)
        return rc;
    p->tree->nodes[node].b = body;
    *out = node;
    return SW_OK;
}

static sw_code parse_jump(int32_t *out, sw_chat_parser *p, sw_chat_node_kind kind, uint32_t at)
{
    sw_code rc = sw_chat_node_new(out, p, kind, at);

    if (rc != SW_OK) return rc;
    if (!p->n_loops)
        return sw_chat_fail_at(&p->tree->source, at, SW_E_FORMAT, p->err, "no loop around it");
    return expect_end(p);
}

static sw_code parse_block(int32_t *out, sw_chat_parser *p)
{
    uint32_t at = peek(p)->at;

    if (sw_chat_skip_name(p, "if")) return parse_if(out, p, at);
    if (sw_chat_skip_name(p, "for")) return parse_for(out, p, at);
    if (sw_chat_skip_name(p, "set")) return parse_set(out, p, at);
    if (sw_chat_skip_name(p, "macro")) return parse_macro(out, p, at);
    if (sw_chat_skip_name(p, "generation")) return parse_generation(out, p, at);
    if (sw_chat_skip_name(p, "break")) return parse_jump(out, p, SW_CHAT_N_BREAK, at);
    if (sw_chat_skip_name(p, "continue")) return parse_jump(out, p, SW_CHAT_N_CONTINUE, at);
    return sw_chat_unexpected(p, "a statement");
}

static sw_code parse_print(int32_t *out, sw_chat_parser *p)
{
    int32_t value = 0;
    sw_code rc = sw_chat_node_new(out, p, SW_CHAT_N_PRINT, peek(p)->at);

    if (rc != SW_OK || (rc = sw_chat_parse_expression(&value, p, true)) != SW_OK) return rc;
    if (peek(p)->kind != SW_CHAT_T_PRINT_END) return sw_chat_unexpected(p, "}}");
    p->at++;
    p->tree->nodes[*out].a = value;
    return SW_OK;
}

static bool is_one_of(const sw_chat_parser *p, const char *const *ends)
{
    for (; ends && *ends; ends++)
        if (sw_chat_is_name(p, *ends)) return true;
    return false;
}

static sw_code parse_statement(int32_t *out, sw_chat_parser *p)
{
    const sw_chat_token *t = peek(p);
    sw_code rc;

    if (t->kind == SW_CHAT_T_PRINT) {
        p->at++;
        return parse_print(out, p);
    }
    if (t->kind == SW_CHAT_T_BLOCK) {
        p->at++;
        return parse_block(out, p);
    }
    if ((rc = sw_chat_node_new(out, p, SW_CHAT_N_DATA, t->at)) != SW_OK) return rc;
    p->tree->nodes[*out].text = t->text;
    p->at++;
    return SW_OK;
}

static sw_code parse_body(int32_t *out, sw_chat_parser *p, const char *const *ends)
{
    int32_t node = 0, last = 0;
    sw_code rc = SW_OK;

    *out = 0;
    if (++p->depth > STATEMENT_DEPTH_MAX)
        return sw_chat_fail_at(&p->tree->source, peek(p)->at, SW_E_UNSUPPORTED, p->err,
                               "blocks within more than %d blocks", STATEMENT_DEPTH_MAX);
    while (rc == SW_OK) {
        if (peek(p)->kind == SW_CHAT_T_END) {
            if (ends) rc = sw_chat_unexpected(p, ends[0]);
            break;
        }
        if (peek(p)->kind == SW_CHAT_T_BLOCK) {
            p->at++;
            if (is_one_of(p, ends)) break;
            p->at--;
        }
        if ((rc = parse_statement(&node, p)) != SW_OK) break;
        if (last) p->tree->nodes[last].next = node;
        else *out = node;
        last = node;
    }
    p->depth--;
    return rc;
}

sw_code sw_chat_parse(sw_chat_tree *tree, sw_arena *arena, sw_err *err)
{
    sw_chat_parser p = {.tree = tree, .arena = arena, .err = err};
    sw_chat_token *tokens = NULL;
    int64_t n = 0;
    sw_code rc = sw_chat_lex(&tokens, &n, &tree->source, arena, err);

    p.tokens = tokens;
    return rc == SW_OK ? parse_body(&tree->body, &p, NULL) : rc;
}
