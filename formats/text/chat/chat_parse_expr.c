/* chat_parse_expr.c - the expressions of a chat template, by recursive descent in the precedence
 * of Jinja 3.1. See chat_tree.h. */
#include <stdlib.h>
#include <string.h>

#include "formats/text/chat/chat_tree.h"

#define EXPRESSION_DEPTH_MAX 100

static const sw_chat_token *peek(const sw_chat_parser *p) { return &p->tokens[p->at]; }

static sw_code make(int32_t *out, sw_chat_parser *p, sw_chat_node_kind kind, uint32_t at, int32_t a,
                    int32_t b)
{
    int32_t node = 0;
    sw_code rc = sw_chat_node_new(&node, p, kind, at);

    if (rc != SW_OK) return rc;
    p->tree->nodes[node].a = a;
    p->tree->nodes[node].b = b;
    *out = node;
    return SW_OK;
}

static sw_code refuse(const sw_chat_parser *p, uint32_t at, const char *what, sw_chat_text name)
{
    return sw_chat_fail_at(&p->tree->source, at, SW_E_UNSUPPORTED, p->err,
                           "%s%.*s is not known here", what, name.n > 60 ? 60 : (int)name.n,
                           name.at);
}

static void chain(sw_chat_parser *p, int32_t *first, int32_t *last, int32_t node)
{
    if (*last) p->tree->nodes[*last].next = node;
    else *first = node;
    *last = node;
}

/* Parse arguments behind "(": values, and names with values. */
static sw_code parse_arguments(int32_t *out, sw_chat_parser *p)
{
    int32_t last = 0, value = 0, node = 0;
    sw_code rc = SW_OK;

    while (!sw_chat_is_sign(p, ")")) {
        uint32_t at = peek(p)->at;
        sw_chat_text name = {NULL, 0};
        if (last && (rc = sw_chat_expect(p, ",")) != SW_OK) return rc;
        if (last && sw_chat_is_sign(p, ")")) break;
        if (peek(p)->kind == SW_CHAT_T_NAME && p->tokens[p->at + 1].kind == SW_CHAT_T_SIGN &&
            sw_chat_text_is(p->tokens[p->at + 1].text, "=")) {
            name = peek(p)->text;
            p->at += 2;
        }
        if ((rc = sw_chat_parse_expression(&value, p, true)) != SW_OK ||
            (rc = make(&node, p, SW_CHAT_N_ARG, at, value, 0)) != SW_OK)
            return rc;
        p->tree->nodes[node].text = name;
        chain(p, out, &last, node);
    }
    return sw_chat_expect(p, ")");
}

/* Parse the elements behind "[" or "(", up to `end`. */
static sw_code parse_elements(int32_t *out, sw_chat_parser *p, int32_t first, const char *end)
{
    int32_t last = first, value = 0;
    sw_code rc;

    *out = first;
    while (!sw_chat_is_sign(p, end)) {
        if (last && (rc = sw_chat_expect(p, ",")) != SW_OK) return rc;
        if (last && sw_chat_is_sign(p, end)) break;
        if ((rc = sw_chat_parse_expression(&value, p, true)) != SW_OK) return rc;
        chain(p, out, &last, value);
    }
    return sw_chat_expect(p, end);
}

static sw_code parse_map(int32_t *out, sw_chat_parser *p, uint32_t at)
{
    int32_t node = 0, key = 0, value = 0, first = 0, last = 0;
    sw_code rc;

    while (!sw_chat_is_sign(p, "}")) {
        if (last && (rc = sw_chat_expect(p, ",")) != SW_OK) return rc;
        if (last && sw_chat_is_sign(p, "}")) break;
        if ((rc = sw_chat_parse_expression(&key, p, true)) != SW_OK ||
            (rc = sw_chat_expect(p, ":")) != SW_OK ||
            (rc = sw_chat_parse_expression(&value, p, true)) != SW_OK ||
            (rc = make(&node, p, SW_CHAT_N_ARG, p->tree->nodes[key].at, value, key)) != SW_OK)
            return rc;
        chain(p, &first, &last, node);
    }
    if ((rc = sw_chat_expect(p, "}")) != SW_OK) return rc;
    return make(out, p, SW_CHAT_N_MAP, at, first, 0);
}

/* Parse what follows "(": an expression in brackets, or a tuple. */
static sw_code parse_brackets(int32_t *out, sw_chat_parser *p, uint32_t at)
{
    int32_t first = 0;
    sw_code rc;

    if (!sw_chat_is_sign(p, ")")) {
        if ((rc = sw_chat_parse_expression(&first, p, true)) != SW_OK) return rc;
        if (sw_chat_skip_sign(p, ")")) {
            *out = first;
            return SW_OK;
        }
    }
    if ((rc = parse_elements(&first, p, first, ")")) != SW_OK ||
        (rc = make(out, p, SW_CHAT_N_LIST, at, first, 0)) != SW_OK)
        return rc;
    p->tree->nodes[*out].flag = true;
    return SW_OK;
}

static sw_code make_const(int32_t *out, sw_chat_parser *p, uint32_t at, sw_chat_value value)
{
    sw_code rc = sw_chat_node_new(out, p, SW_CHAT_N_CONST, at);

    if (rc == SW_OK) p->tree->nodes[*out].value = value;
    return rc;
}

static sw_code parse_name(int32_t *out, sw_chat_parser *p)
{
    static const char *const refused[] = {"varargs", "kwargs", "caller", "self", "super", "not",
                                          "and", "or", "is", "in", "if", "else"};
    const sw_chat_token *t = peek(p);
    sw_code rc;

    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (sw_chat_text_is(t->text, refused[i])) return refuse(p, t->at, "here ", t->text);
    p->at++;
    if (sw_chat_text_is(t->text, "true") || sw_chat_text_is(t->text, "True"))
        return make_const(out, p, t->at, sw_chat_bool(true));
    if (sw_chat_text_is(t->text, "false") || sw_chat_text_is(t->text, "False"))
        return make_const(out, p, t->at, sw_chat_bool(false));
    if (sw_chat_text_is(t->text, "none") || sw_chat_text_is(t->text, "None"))
        return make_const(out, p, t->at, sw_chat_none());
    if ((rc = sw_chat_node_new(out, p, SW_CHAT_N_NAME, t->at)) == SW_OK)
        p->tree->nodes[*out].text = t->text;
    return rc;
}

/* Parse strings; several side by side are one. */
static sw_code parse_string(int32_t *out, sw_chat_parser *p)
{
    uint32_t at = peek(p)->at;
    sw_chat_text all = p->tokens[p->at++].text;
    char *joined = NULL;
    sw_code rc;

    while (peek(p)->kind == SW_CHAT_T_STRING) {
        sw_chat_text more = p->tokens[p->at++].text;
        if ((rc = SW_ARENA_TAKE(&joined, p->arena, all.n + more.n, p->err)) != SW_OK) return rc;
        memcpy(joined, all.at, all.n);
        memcpy(joined + all.n, more.at, more.n);
        all = (sw_chat_text){joined, all.n + more.n};
    }
    return make_const(out, p, at, sw_chat_of_text(all.at, all.n));
}

static sw_code parse_primary(int32_t *out, sw_chat_parser *p)
{
    const sw_chat_token *t = peek(p);
    int32_t first = 0;
    sw_code rc;

    if (t->kind == SW_CHAT_T_NAME) return parse_name(out, p);
    if (t->kind == SW_CHAT_T_STRING) return parse_string(out, p);
    if (t->kind == SW_CHAT_T_INT || t->kind == SW_CHAT_T_REAL) {
        p->at++; /* the source has a zero behind it, and no number goes on there */
        return make_const(out, p, t->at,
                          t->kind == SW_CHAT_T_INT ? sw_chat_int(strtoll(t->text.at, NULL, 10))
                                                   : sw_chat_real(strtod(t->text.at, NULL)));
    }
    if (sw_chat_skip_sign(p, "(")) return parse_brackets(out, p, t->at);
    if (sw_chat_skip_sign(p, "{")) return parse_map(out, p, t->at);
    if (!sw_chat_skip_sign(p, "[")) return sw_chat_unexpected(p, "a value");
    if ((rc = parse_elements(&first, p, 0, "]")) != SW_OK) return rc;
    return make(out, p, SW_CHAT_N_LIST, t->at, first, 0);
}

/* Parse an index behind "[", or the parts of a slice. */
static sw_code parse_index(int32_t *out, sw_chat_parser *p, uint32_t at, int32_t object)
{
    int32_t parts[3] = {0}, n = 0;
    bool is_slice = false;
    sw_code rc;

    while (!sw_chat_is_sign(p, "]")) {
        if (sw_chat_skip_sign(p, ":")) {
            is_slice = true;
            if (++n > 2) return sw_chat_unexpected(p, "]");
            continue;
        }
        if (parts[n]) return sw_chat_unexpected(p, "]");
        if ((rc = sw_chat_parse_expression(&parts[n], p, true)) != SW_OK) return rc;
    }
    if (!is_slice && !parts[0]) return sw_chat_unexpected(p, "an index");
    p->at++;
    rc = make(out, p, is_slice ? SW_CHAT_N_SLICE : SW_CHAT_N_ITEM, at, object, parts[0]);
    if (rc != SW_OK) return rc;
    p->tree->nodes[*out].c = parts[1];
    p->tree->nodes[*out].d = parts[2];
    return SW_OK;
}

static sw_code parse_attribute(int32_t *out, sw_chat_parser *p, uint32_t at, int32_t object)
{
    const sw_chat_token *t = peek(p);
    sw_code rc;

    if (t->kind != SW_CHAT_T_NAME) return sw_chat_unexpected(p, "a name");
    if (t->text.n >= 2 && t->text.at[0] == '_' && t->text.at[1] == '_')
        return refuse(p, t->at, "the attribute ", t->text);
    p->at++;
    if ((rc = make(out, p, SW_CHAT_N_ATTR, at, object, 0)) == SW_OK)
        p->tree->nodes[*out].text = t->text;
    return rc;
}

static sw_code parse_call(int32_t *out, sw_chat_parser *p, uint32_t at, int32_t object)
{
    int32_t arguments = 0;
    sw_code rc = parse_arguments(&arguments, p);

    return rc == SW_OK ? make(out, p, SW_CHAT_N_CALL, at, object, arguments) : rc;
}

/* Parse .name, [index] and (arguments) behind a value. */
static sw_code parse_postfix(int32_t *node, sw_chat_parser *p)
{
    sw_code rc = SW_OK;

    while (rc == SW_OK) {
        uint32_t at = peek(p)->at;
        if (sw_chat_skip_sign(p, ".")) rc = parse_attribute(node, p, at, *node);
        else if (sw_chat_skip_sign(p, "[")) rc = parse_index(node, p, at, *node);
        else if (sw_chat_skip_sign(p, "(")) rc = parse_call(node, p, at, *node);
        else break;
    }
    return rc;
}

static sw_code parse_filter(int32_t *node, sw_chat_parser *p)
{
    const sw_chat_token *t = peek(p);
    int index = t->kind == SW_CHAT_T_NAME ? sw_chat_filter_index(t->text) : -1;
    int32_t arguments = 0;
    sw_code rc = SW_OK;

    if (index < 0) return refuse(p, t->at, "the filter ", t->text);
    p->at++;
    if (sw_chat_skip_sign(p, "(")) rc = parse_arguments(&arguments, p);
    if (rc != SW_OK || (rc = make(node, p, SW_CHAT_N_FILTER, t->at, *node, arguments)) != SW_OK)
        return rc;
    p->tree->nodes[*node].op = (uint8_t)index;
    p->tree->nodes[*node].text = t->text;
    return SW_OK;
}

/* A test may take one argument without brackets. Return whether a value follows, which is this
 * argument. */
static bool starts_argument(const sw_chat_parser *p)
{
    static const char *const words[] = {"else", "or", "and", "is", "if", "in", "not"};
    const sw_chat_token *t = peek(p);

    if (t->kind == SW_CHAT_T_SIGN) return sw_chat_is_sign(p, "[") || sw_chat_is_sign(p, "{");
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (sw_chat_is_name(p, words[i])) return false;
    return t->kind == SW_CHAT_T_NAME || t->kind == SW_CHAT_T_STRING || t->kind == SW_CHAT_T_INT ||
           t->kind == SW_CHAT_T_REAL;
}

static sw_code parse_test(int32_t *node, sw_chat_parser *p)
{
    bool is_negated = sw_chat_skip_name(p, "not");
    const sw_chat_token *t = peek(p);
    int index = t->kind == SW_CHAT_T_NAME ? sw_chat_test_index(t->text) : -1;
    int32_t arguments = 0, value = 0;
    sw_code rc = SW_OK;

    if (index < 0) return refuse(p, t->at, "the test ", t->text);
    p->at++;
    if (sw_chat_skip_sign(p, "(")) {
        rc = parse_arguments(&arguments, p);
    } else if (starts_argument(p)) {
        if ((rc = parse_primary(&value, p)) == SW_OK) rc = parse_postfix(&value, p);
        if (rc == SW_OK) rc = make(&arguments, p, SW_CHAT_N_ARG, t->at, value, 0);
    }
    if (rc != SW_OK || (rc = make(node, p, SW_CHAT_N_TEST, t->at, *node, arguments)) != SW_OK)
        return rc;
    p->tree->nodes[*node].op = (uint8_t)index;
    p->tree->nodes[*node].flag = is_negated;
    p->tree->nodes[*node].text = t->text;
    return SW_OK;
}

static sw_code parse_unary(int32_t *out, sw_chat_parser *p, bool with_filters)
{
    uint32_t at = peek(p)->at;
    sw_code rc;

    if (++p->depth > EXPRESSION_DEPTH_MAX)
        return refuse(p, at, "an expression nested so deep", (sw_chat_text){"", 0});
    if (sw_chat_skip_sign(p, "-")) {
        if ((rc = parse_unary(out, p, false)) == SW_OK)
            rc = make(out, p, SW_CHAT_N_NEGATE, at, *out, 0);
    } else if ((rc = parse_primary(out, p)) == SW_OK) {
        rc = parse_postfix(out, p);
    }
    while (rc == SW_OK && with_filters) {
        if (sw_chat_skip_sign(p, "|")) rc = parse_filter(out, p);
        else if (sw_chat_skip_name(p, "is")) rc = parse_test(out, p);
        else if (sw_chat_is_sign(p, "(")) rc = parse_postfix(out, p);
        else break;
    }
    p->depth--;
    return rc;
}

/* Operators of one level bind equally strong and group from the left. */
typedef struct level {
    const char *signs[4];
    uint8_t ops[4];
    sw_chat_node_kind kind;
} level;

static const level levels[] = {
    {{"+", "-"}, {SW_CHAT_ADD, SW_CHAT_SUBTRACT}, SW_CHAT_N_BINARY},
    {{"~"}, {0}, SW_CHAT_N_CONCAT},
    {{"*", "/", "//", "%"},
     {SW_CHAT_MULTIPLY, SW_CHAT_DIVIDE, SW_CHAT_FLOOR, SW_CHAT_MODULO},
     SW_CHAT_N_BINARY},
};

static sw_code parse_level(int32_t *out, sw_chat_parser *p, size_t which)
{
    const level *l = &levels[which];
    bool is_last = which + 1 == sizeof levels / sizeof *levels;
    int32_t right = 0;
    sw_code rc = is_last ? parse_unary(out, p, true) : parse_level(out, p, which + 1);

    while (rc == SW_OK) {
        uint32_t at = peek(p)->at;
        int i = 0;
        while (i < 4 && l->signs[i] && !sw_chat_is_sign(p, l->signs[i])) i++;
        if (i == 4 || !l->signs[i]) break;
        p->at++;
        rc = is_last ? parse_unary(&right, p, true) : parse_level(&right, p, which + 1);
        if (rc == SW_OK) rc = make(out, p, l->kind, at, *out, right);
        if (rc == SW_OK) p->tree->nodes[*out].op = l->ops[i];
    }
    return rc;
}

/* Return whether a comparison is next; if so, go past it. */
static bool skip_comparison(uint8_t *op, sw_chat_parser *p)
{
    static const struct {
        const char *sign;
        uint8_t op;
    } signs[] = {{"==", SW_CHAT_EQ}, {"!=", SW_CHAT_NE}, {"<", SW_CHAT_LT},
                 {"<=", SW_CHAT_LE}, {">", SW_CHAT_GT},  {">=", SW_CHAT_GE}};

    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++)
        if (sw_chat_skip_sign(p, signs[i].sign)) {
            *op = signs[i].op;
            return true;
        }
    *op = SW_CHAT_IN;
    if (sw_chat_skip_name(p, "in")) return true;
    if (!sw_chat_is_name(p, "not") || p->tokens[p->at + 1].kind != SW_CHAT_T_NAME ||
        !sw_chat_text_is(p->tokens[p->at + 1].text, "in"))
        return false;
    p->at += 2;
    *op = SW_CHAT_NOT_IN;
    return true;
}

static sw_code parse_compare(int32_t *out, sw_chat_parser *p)
{
    uint32_t at = peek(p)->at;
    int32_t right = 0;
    uint8_t op, second;
    sw_code rc = parse_level(out, p, 0);

    if (rc != SW_OK || !skip_comparison(&op, p)) return rc;
    if ((rc = parse_level(&right, p, 0)) != SW_OK ||
        (rc = make(out, p, SW_CHAT_N_COMPARE, at, *out, right)) != SW_OK)
        return rc;
    p->tree->nodes[*out].op = op;
    return skip_comparison(&second, p)
               ? refuse(p, at, "a chain of comparisons", (sw_chat_text){"", 0})
               : SW_OK;
}

static sw_code parse_not(int32_t *out, sw_chat_parser *p)
{
    uint32_t at = peek(p)->at;
    int n = 0;
    sw_code rc;

    while (sw_chat_skip_name(p, "not")) n++;
    if ((rc = parse_compare(out, p)) != SW_OK || !n) return rc;
    rc = make(out, p, SW_CHAT_N_NOT, at, *out, 0);
    return rc == SW_OK && n % 2 == 0 ? make(out, p, SW_CHAT_N_NOT, at, *out, 0) : rc;
}

static sw_code parse_and(int32_t *out, sw_chat_parser *p)
{
    int32_t right = 0;
    sw_code rc = parse_not(out, p);

    while (rc == SW_OK) {
        uint32_t at = peek(p)->at;
        if (!sw_chat_skip_name(p, "and")) break;
        if ((rc = parse_not(&right, p)) == SW_OK)
            rc = make(out, p, SW_CHAT_N_AND, at, *out, right);
    }
    return rc;
}

static sw_code parse_or(int32_t *out, sw_chat_parser *p)
{
    int32_t right = 0;
    sw_code rc = parse_and(out, p);

    while (rc == SW_OK) {
        uint32_t at = peek(p)->at;
        if (!sw_chat_skip_name(p, "or")) break;
        if ((rc = parse_and(&right, p)) == SW_OK)
            rc = make(out, p, SW_CHAT_N_OR, at, *out, right);
    }
    return rc;
}

sw_code sw_chat_parse_expression(int32_t *out, sw_chat_parser *p, bool with_choice)
{
    int32_t test = 0, otherwise = 0;
    uint32_t at = peek(p)->at;
    sw_code rc;

    if (++p->depth > EXPRESSION_DEPTH_MAX)
        return refuse(p, at, "an expression nested so deep", (sw_chat_text){"", 0});
    rc = parse_or(out, p);
    while (rc == SW_OK && with_choice && sw_chat_skip_name(p, "if")) {
        otherwise = 0;
        if ((rc = parse_or(&test, p)) != SW_OK) break;
        if (sw_chat_skip_name(p, "else") &&
            (rc = sw_chat_parse_expression(&otherwise, p, true)) != SW_OK)
            break;
        if ((rc = make(out, p, SW_CHAT_N_CHOICE, at, test, *out)) == SW_OK)
            p->tree->nodes[*out].c = otherwise;
    }
    p->depth--;
    return rc;
}
