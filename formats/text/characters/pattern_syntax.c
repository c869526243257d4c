/* pattern_syntax.c - Oniguruma expressions in the form that PCRE2 reads the same way.
 *
 * Both engines share most of Perl's syntax. Where their meaning differs (\s and U+180E, \w
 * and marks, \h, \v, \u, (?m), {,n}) the expression is rewritten; where a faithful rewrite
 * would need a parser of its own (class intersection, nested classes, possessive intervals,
 * subexpression calls) it is refused by name. Source for the Oniguruma side: its RE syntax
 * document; for the other: pcre2pattern(3), compiled with UTF, UCP and MULTILINE.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdio.h>
#include <string.h>

#include "formats/text/characters/pattern.h"

#define SPACES "\\t-\\r \\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}" \
               "\\x{202F}\\x{205F}\\x{3000}"
#define NOT_SPACES "\\x{0}-\\x{8}\\x{E}-\\x{1F}!-\\x{84}\\x{86}-\\x{9F}\\x{A1}-\\x{167F}" \
                   "\\x{1681}-\\x{1FFF}\\x{200B}-\\x{2027}\\x{202A}-\\x{202E}" \
                   "\\x{2030}-\\x{205E}\\x{2060}-\\x{2FFF}\\x{3001}-\\x{D7FF}" \
                   "\\x{E000}-\\x{10FFFF}"
#define WORDS "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}" \
              "\\x{24B6}-\\x{24E9}\\x{1F130}-\\x{1F149}" \
              "\\x{1F150}-\\x{1F169}\\x{1F170}-\\x{1F189}"

/* Each row is a letter behind a backslash and what it becomes; NULL where it is not allowed. */
static const struct {
    char letter;
    const char *plain, *in_class;
} escapes[] = {
    {'s', "[" SPACES "]", SPACES},
    {'S', "[^" SPACES "]", NOT_SPACES},
    {'w', "[" WORDS "]", WORDS},
    {'W', "[^" WORDS "]", NULL},
    {'d', "\\p{Nd}", "\\p{Nd}"},
    {'D', "\\P{Nd}", "\\P{Nd}"},
    {'h', "[0-9A-Fa-f]", "0-9A-Fa-f"},
    {'H', "[^0-9A-Fa-f]", NULL},
    {'b', "(?:(?<=[" WORDS "])(?![" WORDS "])|(?<![" WORDS "])(?=[" WORDS "]))", "\\x{8}"},
    {'B', "(?:(?<=[" WORDS "])(?=[" WORDS "])|(?<![" WORDS "])(?![" WORDS "]))", NULL},
    {'v', "\\x{B}", "\\x{B}"},
    {'A', "\\A", NULL},
    {'z', "\\z", NULL},
    {'Z', "\\Z", NULL},
    {'R', "\\R", NULL},
    {'n', "\\n", "\\n"},
    {'r', "\\r", "\\r"},
    {'t', "\\t", "\\t"},
    {'f', "\\f", "\\f"},
    {'a', "\\a", "\\a"},
    {'e', "\\e", "\\e"},
};

typedef struct translation {
    sw_text_buf *out;
    const char *text;
    size_t n_bytes, at;
    bool in_class;
    sw_err *err;
} translation;

static sw_code add(translation *t, const char *text)
{
    return sw_text_buf_add(t->out, text, strlen(text), t->err);
}

static sw_code copy(translation *t, size_t n_bytes)
{
    sw_code rc = sw_text_buf_add(t->out, t->text + t->at, n_bytes, t->err);

    t->at += n_bytes;
    return rc;
}

static bool looking_at(const translation *t, const char *what)
{
    size_t n = strlen(what);

    return t->n_bytes - t->at >= n && !memcmp(t->text + t->at, what, n);
}

static sw_code refuse(const translation *t, const char *what)
{
    return SW_FAIL(t->err, SW_E_UNSUPPORTED, "expression with %s at byte %zu is not supported",
                   what, t->at);
}

static bool is_hex(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

/* Translate \xHH, \x{...} and \uHHHH. A bare \xHH above 7F is a raw byte to one engine only, and is
 * refused. */
static sw_code translate_code_point(translation *t)
{
    bool is_short_x = t->text[t->at + 1] == 'x';
    size_t n = is_short_x ? 2 : 4;
    char point[16];

    if (looking_at(t, "\\x{")) {
        const char *close = memchr(t->text + t->at, '}', t->n_bytes - t->at);
        if (!close) return refuse(t, "an unfinished \\x{");
        return copy(t, (size_t)(close - (t->text + t->at)) + 1);
    }
    if (t->n_bytes - t->at < 2 + n) return refuse(t, "an unfinished \\x or \\u");
    for (size_t i = 0; i < n; i++)
        if (!is_hex(t->text[t->at + 2 + i])) return refuse(t, "an unfinished \\x or \\u");
    if (is_short_x && t->text[t->at + 2] > '7') return refuse(t, "a raw byte (\\x80 and above)");
    (void)snprintf(point, sizeof point, "\\x{%.*s}", (int)n, t->text + t->at + 2);
    t->at += 2 + n;
    return add(t, point);
}

/* To Oniguruma the name of a script means the characters of this script alone. To PCRE2 since 10.40
 * it also means those that the script shares with others, unless it is written as "sc:". */
static bool is_shared_script(const translation *t, size_t n_bytes)
{
    static const char *const scripts[] = {"Han",    "Hiragana", "Katakana", "Hangul",  "Bopomofo",
                                          "Latin",  "Greek",    "Cyrillic", "Arabic",  "Hebrew",
                                          "Thai",   "Lao",      "Khmer",    "Myanmar", "Tibetan",
                                          "Bengali", "Devanagari", "Tamil", "Telugu",  "Georgian"};

    if (PCRE2_MAJOR == 10 && PCRE2_MINOR < 40) return false;
    for (size_t i = 0; i < sizeof scripts / sizeof scripts[0]; i++)
        if (strlen(scripts[i]) == n_bytes && !memcmp(t->text + t->at + 3, scripts[i], n_bytes))
            return true;
    return false;
}

static sw_code translate_property(translation *t)
{
    const char *close;
    sw_code rc;

    if (t->n_bytes - t->at < 3 || t->text[t->at + 2] != '{') return refuse(t, "\\p without {");
    close = memchr(t->text + t->at, '}', t->n_bytes - t->at);
    if (!close) return refuse(t, "an unfinished \\p{");
    if (is_shared_script(t, (size_t)(close - (t->text + t->at)) - 3)) {
        if ((rc = copy(t, 3)) != SW_OK || (rc = add(t, "sc:")) != SW_OK) return rc;
        close = memchr(t->text + t->at, '}', t->n_bytes - t->at);
    }
    return copy(t, (size_t)(close - (t->text + t->at)) + 1);
}

static sw_code translate_escape(translation *t)
{
    char name[32];
    char c;

    if (t->at + 1 >= t->n_bytes) return refuse(t, "a lone backslash");
    c = t->text[t->at + 1];
    if (c == 'x' || c == 'u') return translate_code_point(t);
    if (c == 'p' || c == 'P') return translate_property(t);
    for (size_t i = 0; i < sizeof escapes / sizeof escapes[0]; i++) {
        const char *as = t->in_class ? escapes[i].in_class : escapes[i].plain;
        if (escapes[i].letter != c || !as) continue;
        t->at += 2;
        return add(t, as);
    }
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9')) {
        (void)snprintf(name, sizeof name, "the escape \\%c%s", c, t->in_class ? " in [ ]" : "");
        return refuse(t, name);
    }
    return copy(t, 2); /* the other bytes of a longer character are copied in turn */
}

static sw_code translate_in_class(translation *t)
{
    if (t->text[t->at] == '\\') return translate_escape(t);
    if (looking_at(t, "&&")) return refuse(t, "a class intersection (&&)");
    if (t->text[t->at] == '[') {
        const char *end = looking_at(t, "[:") ? memchr(t->text + t->at, ']', t->n_bytes - t->at)
                                              : NULL;
        if (!end || end[-1] != ':') return refuse(t, "a class inside a class");
        return copy(t, (size_t)(end - (t->text + t->at)) + 1);
    }
    if (t->text[t->at] == ']') t->in_class = false;
    return copy(t, 1);
}

/* Translate options such as (?i) and (?i-m: . The m of Oniguruma is the s of PCRE2. */
static sw_code translate_options(translation *t)
{
    sw_code rc = add(t, "(?");

    for (t->at += 2; rc == SW_OK && t->at < t->n_bytes; t->at++) {
        char c = t->text[t->at];
        char one[2] = {c == 'm' ? 's' : c, '\0'};
        if (c != 'i' && c != 'm' && c != '-' && c != ':' && c != ')') break;
        if ((rc = add(t, one)) == SW_OK && (c == ':' || c == ')')) {
            t->at++;
            return SW_OK;
        }
    }
    return rc == SW_OK ? refuse(t, "group options other than i and m") : rc;
}

static sw_code translate_group(translation *t)
{
    static const char *const same[] = {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!"};

    if (looking_at(t, "(*")) return refuse(t, "a verb (*");
    if (!looking_at(t, "(?")) return copy(t, 1);
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++)
        if (looking_at(t, same[i])) return copy(t, strlen(same[i]));
    return translate_options(t);
}

/* Return the bytes of {n}, {n,}, {n,m} or {,m} at `at`, or 0 where the brace is a literal. */
static size_t interval_bytes(const translation *t, bool *is_fixed)
{
    size_t at = t->at + 1, n_digits = 0;
    bool has_comma = false;

    while (at < t->n_bytes && ((t->text[at] >= '0' && t->text[at] <= '9') ||
                               (t->text[at] == ',' && !has_comma))) {
        if (t->text[at] == ',') has_comma = true;
        else n_digits++;
        at++;
    }
    if (at >= t->n_bytes || t->text[at] != '}' || !n_digits) return 0;
    *is_fixed = !has_comma;
    return at + 1 - t->at;
}

static sw_code translate_brace(translation *t)
{
    bool is_fixed = false;
    size_t n = interval_bytes(t, &is_fixed);
    char after;
    sw_code rc;

    if (!n) return copy(t, 1); /* both engines take it for a literal */
    after = t->at + n < t->n_bytes ? t->text[t->at + n] : '\0';
    if (after == '+') return refuse(t, "a + after an interval");
    if (after == '?' && is_fixed) return refuse(t, "a ? after {n}");
    if (t->text[t->at + 1] == ',') {
        if ((rc = add(t, "{0")) != SW_OK) return rc;
        t->at++;
        n--;
    }
    return copy(t, n);
}

sw_code sw_pattern_translate(sw_text_buf *out, const char *source, size_t n_bytes, sw_err *err)
{
    translation t = {out, source, n_bytes, 0, false, err};
    sw_code rc = SW_OK;

    while (rc == SW_OK && t.at < t.n_bytes) {
        char c = source[t.at];
        if (t.in_class) rc = translate_in_class(&t);
        else if (c == '\\') rc = translate_escape(&t);
        else if (c == '(') rc = translate_group(&t);
        else if (c == '{') rc = translate_brace(&t);
        else if (c == '[') {
            t.in_class = true;
            rc = copy(&t, looking_at(&t, "[^]") ? 3 : looking_at(&t, "[^") || looking_at(&t, "[]")
                                                    ? 2 : 1);
        } else rc = copy(&t, 1);
    }
    if (rc == SW_OK && t.in_class) return refuse(&t, "an unclosed [");
    return rc;
}
