/* chat_lexer.c - see chat_lexer.h. */
#include "formats/text/chat/chat_lexer.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "formats/text/characters/unicode.h"

#define OPEN_MAX 64 /* brackets that are open at a time in one tag */

typedef struct lexer {
    const sw_chat_source *source;
    sw_arena *arena;
    sw_err *err;
    sw_chat_token *tokens;
    int64_t n, room;
    size_t at;
    bool starts_line; /* the text before ended with a line break */
    char open[OPEN_MAX];
    int n_open;
} lexer;

sw_code sw_chat_fail_at(const sw_chat_source *source, uint32_t at, sw_code code, sw_err *err,
                        const char *fmt, ...)
{
    long long line = 1, column = 1;
    char text[400];
    va_list args;

    for (uint32_t i = 0; i < at && i < source->n_bytes; i++) {
        column = source->text[i] == '\n' ? 1 : column + sw_utf8_is_start(source->text[i]);
        line += source->text[i] == '\n';
    }
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return SW_FAIL(err, code, "%s, line %lld, column %lld: %s", source->what, line, column, text);
}

static sw_code fail(lexer *x, const char *text)
{
    return sw_chat_fail_at(x->source, (uint32_t)x->at, SW_E_UNSUPPORTED, x->err,
                           "%s is not known here", text);
}

static sw_code push(lexer *x, sw_chat_token_kind kind, size_t at, const char *text, size_t n)
{
    sw_chat_token *larger = NULL;
    sw_code rc;

    if (x->n == x->room) {
        x->room = x->room ? 2 * x->room : 256;
        if ((rc = SW_ARENA_TAKE(&larger, x->arena, x->room, x->err)) != SW_OK) return rc;
        if (x->n) memcpy(larger, x->tokens, (size_t)x->n * sizeof *larger);
        x->tokens = larger;
    }
    x->tokens[x->n++] = (sw_chat_token){kind, (uint32_t)at, {text, n}};
    return SW_OK;
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static bool is_name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || is_digit(c);
}

/* Find the next "{{", "{%" or "{#" from `at` on; n_bytes where there is none. */
static size_t find_tag(const sw_chat_source *s, size_t at)
{
    for (; at + 1 < s->n_bytes; at++) {
        char next = s->text[at + 1];
        if (s->text[at] == '{' && (next == '{' || next == '%' || next == '#')) return at;
    }
    return s->n_bytes;
}

/* Return how much of the text before a block or comment remains when the blanks of its line are
 * taken away. */
static size_t strip_line_start(const lexer *x, size_t from, size_t n)
{
    const char *text = x->source->text + from;
    sw_chat_text last;
    size_t start = n;

    while (start && text[start - 1] != '\n') start--;
    if (!start && !x->starts_line) return n;
    last = (sw_chat_text){text + start, n - start};
    return sw_chat_strip(last, NULL, true, false).n ? n : start;
}

/* Make a token of the text up to the next tag, unless it is empty. */
static sw_code lex_data(lexer *x)
{
    const sw_chat_source *s = x->source;
    size_t from = x->at, to = find_tag(s, from), n = to - from;
    bool is_tag = to < s->n_bytes;
    char sign = is_tag && to + 2 < s->n_bytes ? s->text[to + 2] : 0;
    sw_chat_text data = {s->text + from, n};

    if (is_tag && sign == '-') n = sw_chat_strip(data, NULL, false, true).n;
    else if (is_tag && sign != '+' && s->text[to + 1] != '{') n = strip_line_start(x, from, n);
    x->at = to;
    return n ? push(x, SW_CHAT_T_DATA, from, data.at, n) : SW_OK;
}

/* Go past the end of a tag. A minus takes the blanks behind it, a block or comment the line
 * break. */
static void end_tag(lexer *x, size_t n_end, bool takes_blanks, bool takes_break)
{
    const sw_chat_source *s = x->source;
    sw_chat_text rest;

    x->at += n_end;
    rest = (sw_chat_text){s->text + x->at, s->n_bytes - x->at};
    if (takes_blanks) x->at = s->n_bytes - sw_chat_strip(rest, NULL, true, false).n;
    else if (takes_break && x->at < s->n_bytes && s->text[x->at] == '\n') x->at++;
    x->starts_line = s->text[x->at - 1] == '\n';
}

static sw_code lex_comment(lexer *x)
{
    const sw_chat_source *s = x->source;
    size_t end = sw_chat_find_text((sw_chat_text){s->text, s->n_bytes}, (sw_chat_text){"#}", 2},
                                   x->at + 2);
    char sign;

    if (end >= s->n_bytes)
        return sw_chat_fail_at(s, (uint32_t)x->at, SW_E_FORMAT, x->err, "a comment has no end");
    sign = end > x->at + 2 ? s->text[end - 1] : 0;
    x->at = end;
    end_tag(x, 2, sign == '-', sign != '+');
    return SW_OK;
}

/* Read one to eight digits of the base; false where there are none. */
static bool read_digits(uint32_t *out, const char *text, size_t n_left, size_t n)
{
    *out = 0;
    if (n_left < n) return false;
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        uint32_t digit = is_digit(c)             ? (uint32_t)(c - '0')
                         : c >= 'a' && c <= 'f' ? (uint32_t)(c - 'a' + 10)
                         : c >= 'A' && c <= 'F' ? (uint32_t)(c - 'A' + 10)
                                                 : 16;
        if (digit == 16) return false;
        *out = 16 * *out + digit;
    }
    return *out && *out < 0x110000 && !(*out >= 0xD800 && *out < 0xE000);
}

/* Decode an escape of a string at text[0] == '\\'. Return the bytes read; 0: the escape is not
 * known. */
static size_t unescape(char *out, size_t *n_out, const char *text, size_t n)
{
    static const char named[] = "nrtbfav\\'\"", meant[] = "\n\r\t\b\f\a\v\\'\"";
    char c = n > 1 ? text[1] : 0;
    const char *found = c ? strchr(named, c) : NULL;
    size_t n_digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    uint32_t point;

    if (found) {
        out[(*n_out)++] = meant[found - named];
        return 2;
    }
    if (n_digits) {
        if (!read_digits(&point, text + 2, n - 2, n_digits)) return 0;
        *n_out += sw_utf8_put(out + *n_out, point);
        return 2 + n_digits;
    }
    if (!c || c == 'N' || is_digit(c) || c == '\n' || (unsigned char)c >= 0x80) return 0;
    out[(*n_out)++] = '\\'; /* of an unknown escape, Python keeps the backslash */
    out[(*n_out)++] = c;
    return 2;
}

static sw_code lex_string(lexer *x)
{
    const char *text = x->source->text + x->at;
    size_t n_left = x->source->n_bytes - x->at, end = 1, n_out = 0, step;
    char *copy = NULL;
    sw_code rc;

    while (end < n_left && text[end] != text[0]) end += text[end] == '\\' ? 2 : 1;
    if (end >= n_left)
        return sw_chat_fail_at(x->source, (uint32_t)x->at, SW_E_FORMAT, x->err,
                               "a string has no end");
    if ((rc = SW_ARENA_TAKE(&copy, x->arena, end, x->err)) != SW_OK) return rc;
    for (size_t i = 1; i < end; i += step) {
        step = 1;
        if (text[i] != '\\') copy[n_out++] = text[i];
        else if (!(step = unescape(copy, &n_out, text + i, end - i)))
            return fail(x, "an escape of this string");
    }
    rc = push(x, SW_CHAT_T_STRING, x->at, copy, n_out);
    x->at += end + 1;
    return rc;
}

static sw_code lex_number(lexer *x)
{
    const char *text = x->source->text + x->at;
    size_t n = 0;
    bool is_real;

    while (is_digit(text[n])) n++; /* a zero ends the source, and the loop */
    is_real = text[n] == '.' && is_digit(text[n + 1]);
    if (is_real)
        for (n++; is_digit(text[n]); n++) continue;
    if (is_name_char(text[n]) || n > 18 || (text[0] == '0' && n > 1 && !is_real))
        return fail(x, "this form of number");
    x->at += n;
    return push(x, is_real ? SW_CHAT_T_REAL : SW_CHAT_T_INT, x->at - n, text, n);
}

static sw_code lex_sign(lexer *x)
{
    static const char pairs[] = "== != <= >= // ** ", singles[] = "+-*/%~[](){}<>=.:|,";
    const char *text = x->source->text + x->at;
    char pair[4] = {text[0], text[1], ' ', 0}, name[24];
    bool is_pair = text[1] && strstr(pairs, pair) != NULL;

    if (!is_pair && !strchr(singles, text[0])) {
        (void)snprintf(name, sizeof name, "the character 0x%02x", (unsigned char)text[0]);
        return fail(x, name);
    }
    if (strchr("([{", text[0])) {
        if (x->n_open == OPEN_MAX) return fail(x, "nesting of so many brackets");
        x->open[x->n_open++] = text[0] == '(' ? ')' : text[0] == '[' ? ']' : '}';
    } else if (strchr(")]}", text[0]) && (!x->n_open || x->open[--x->n_open] != text[0])) {
        return sw_chat_fail_at(x->source, (uint32_t)x->at, SW_E_FORMAT, x->err,
                               "%c closes nothing", text[0]);
    }
    x->at += is_pair ? 2 : 1;
    return push(x, SW_CHAT_T_SIGN, x->at - (is_pair ? 2 : 1), text, is_pair ? 2 : 1);
}

/* Return whether the tag ends here. As in Jinja, it does not end inside of brackets. */
static bool is_tag_end(lexer *x, bool is_block, sw_code *rc)
{
    const char *text = x->source->text + x->at, *end = is_block ? "%}" : "}}";
    bool has_minus = text[0] == '-', has_plus = is_block && text[0] == '+';
    size_t n_sign = has_minus || has_plus;
    size_t at = x->at;

    if (x->n_open || strncmp(text + n_sign, end, 2) != 0) return false;
    end_tag(x, n_sign + 2, has_minus, is_block && !has_plus);
    *rc = push(x, is_block ? SW_CHAT_T_BLOCK_END : SW_CHAT_T_PRINT_END, at, end, 2);
    return true;
}

static sw_code lex_tag(lexer *x, bool is_block)
{
    const sw_chat_source *s = x->source;
    size_t start = x->at;
    sw_code rc = push(x, is_block ? SW_CHAT_T_BLOCK : SW_CHAT_T_PRINT, x->at, s->text + x->at, 2);

    x->at += 2;
    if (s->text[x->at] == '-' || s->text[x->at] == '+') x->at++;
    x->n_open = 0;
    while (rc == SW_OK) {
        size_t n = 0;
        char c;
        while ((c = s->text[x->at]) == ' ' || (c >= '\t' && c <= '\r')) x->at++;
        if (x->at >= s->n_bytes)
            return sw_chat_fail_at(s, (uint32_t)start, SW_E_FORMAT, x->err, "a tag has no end");
        if (is_tag_end(x, is_block, &rc)) break;
        while (is_name_char(s->text[x->at + n])) n++;
        if (is_digit(c)) rc = lex_number(x);
        else if (c == '\'' || c == '"') rc = lex_string(x);
        else if (!n) rc = lex_sign(x);
        else {
            rc = push(x, SW_CHAT_T_NAME, x->at, s->text + x->at, n);
            x->at += n;
        }
    }
    return rc;
}

sw_code sw_chat_lex(sw_chat_token **out, int64_t *n, const sw_chat_source *source,
                    sw_arena *arena, sw_err *err)
{
    lexer x = {.source = source, .arena = arena, .err = err, .starts_line = true};
    sw_code rc = SW_OK;

    while (rc == SW_OK && x.at < source->n_bytes) {
        if ((rc = lex_data(&x)) != SW_OK || x.at >= source->n_bytes) break;
        if (source->text[x.at + 1] == '#') rc = lex_comment(&x);
        else rc = lex_tag(&x, source->text[x.at + 1] == '%');
    }
    if (rc == SW_OK) rc = push(&x, SW_CHAT_T_END, source->n_bytes, "", 0);
    *out = x.tokens;
    *n = x.n;
    return rc;
}
