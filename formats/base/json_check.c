/* json_check.c - is a text JSON (RFC 8259), within caps, before anything is built from it?
 *
 * cJSON forgives a good deal (a leading zero, a raw control byte, a byte order mark), and two
 * readers that differ in what they forgive differ in what a file says. It also has no way to say
 * that memory ran out. With the grammar settled here, the parse that follows can fail for
 * memory alone.
 */
#include <string.h>

#include "formats/base/json.h"

#define DEPTH_MAX 64         /* upper bound on sw_json_caps.max_depth */
#define NUMBER_BYTES_MAX 60  /* cJSON copies a number into 64 bytes */

typedef enum json_want {
    WANT_VALUE,
    WANT_VALUE_OR_END, /* just after [ */
    WANT_KEY,
    WANT_KEY_OR_END, /* just after { */
    WANT_COLON,
    WANT_COMMA_OR_END,
    WANT_NOTHING /* the value is complete */
} json_want;

typedef struct json_scan {
    const char *text;
    size_t n_bytes, at;
    const sw_json_caps *caps;
    const char *complaint; /* set when a step fails */
    int64_t n_values;
    int depth;
    json_want want;
    char closers[DEPTH_MAX];
    int64_t n_inside[DEPTH_MAX]; /* members or elements so far */
} json_scan;

static bool complain(json_scan *s, const char *complaint)
{
    s->complaint = complaint;
    return false;
}

static bool is_digit(const json_scan *s, size_t at)
{
    return at < s->n_bytes && s->text[at] >= '0' && s->text[at] <= '9';
}

static size_t skip_digits(const json_scan *s, size_t at)
{
    while (is_digit(s, at)) at++;
    return at;
}

/* Four hex digits at `at`; -1 when they are not. */
static int32_t hex4(const json_scan *s, size_t at)
{
    int32_t value = 0;

    if (s->n_bytes - at < 4) return -1;
    for (size_t i = at; i < at + 4; i++) {
        char c = s->text[i], low = (char)(c | 0x20);
        int digit = c >= '0' && c <= '9' ? c - '0' : low >= 'a' && low <= 'f' ? low - 'a' + 10 : -1;
        if (digit < 0) return -1;
        value = value * 16 + digit;
    }
    return value;
}

/* s->at is on the backslash. */
static bool scan_escape(json_scan *s)
{
    char c = s->at + 1 < s->n_bytes ? s->text[s->at + 1] : '\0';
    int32_t code;

    s->at += 2;
    if (c != 'u') return (c && strchr("\"\\/bfnrt", c)) || complain(s, "bad escape");
    if ((code = hex4(s, s->at)) < 0) return complain(s, "bad escape");
    s->at += 4;
    if (code == 0) return complain(s, "\\u0000 in a string");
    if (code < 0xD800 || code > 0xDFFF) return true;
    if (code > 0xDBFF || s->n_bytes - s->at < 6 || memcmp(s->text + s->at, "\\u", 2) != 0)
        return complain(s, "half a surrogate pair");
    code = hex4(s, s->at + 2);
    s->at += 6;
    return (code >= 0xDC00 && code <= 0xDFFF) || complain(s, "half a surrogate pair");
}

/* s->at is on the opening quote. */
static bool scan_string(json_scan *s)
{
    s->at++;
    while (s->at < s->n_bytes && s->text[s->at] != '"') {
        if ((unsigned char)s->text[s->at] < 0x20) return complain(s, "raw control byte");
        if (s->text[s->at] != '\\')
            s->at++;
        else if (!scan_escape(s))
            return false;
    }
    if (s->at >= s->n_bytes) return complain(s, "string without an end");
    s->at++;
    return true;
}

static bool scan_number(json_scan *s)
{
    size_t begin = s->at, at = s->at + (s->text[s->at] == '-'), digits = at;

    at = skip_digits(s, at);
    if (at == digits || (s->text[digits] == '0' && at > digits + 1))
        return complain(s, "malformed number");
    if (at < s->n_bytes && s->text[at] == '.') {
        if (!is_digit(s, ++at)) return complain(s, "malformed number");
        at = skip_digits(s, at);
        if (s->caps->is_integer_only) return complain(s, "a number that is no integer");
    }
    if (at < s->n_bytes && (s->text[at] | 0x20) == 'e') {
        at++;
        if (at < s->n_bytes && (s->text[at] == '+' || s->text[at] == '-')) at++;
        if (!is_digit(s, at)) return complain(s, "malformed number");
        at = skip_digits(s, at);
        if (s->caps->is_integer_only) return complain(s, "a number that is no integer");
    }
    if (at - begin > NUMBER_BYTES_MAX) return complain(s, "a number too long to read exactly");
    s->at = at;
    return true;
}

static bool scan_word(json_scan *s)
{
    static const char *const words[] = {"true", "false", "null", "Infinity", "-Infinity"};
    const size_t n_words = sizeof words / sizeof words[0] - (s->caps->takes_infinity ? 0 : 2);

    for (size_t i = 0; i < n_words; i++) {
        size_t n = strlen(words[i]);
        if (s->n_bytes - s->at < n || memcmp(s->text + s->at, words[i], n) != 0) continue;
        s->at += n;
        return true;
    }
    return complain(s, "unexpected text");
}

static bool open_container(json_scan *s, char closer)
{
    if (s->depth == s->caps->max_depth || s->depth == DEPTH_MAX)
        return complain(s, "nested deeper than is allowed");
    s->n_inside[s->depth] = 0;
    s->closers[s->depth++] = closer;
    s->want = closer == ']' ? WANT_VALUE_OR_END : WANT_KEY_OR_END;
    s->at++;
    return true;
}

static void end_value(json_scan *s) { s->want = s->depth ? WANT_COMMA_OR_END : WANT_NOTHING; }

static bool scan_value(json_scan *s)
{
    char c = s->text[s->at];
    bool is_number, ok;

    if (++s->n_values > s->caps->max_values) return complain(s, "more values than are allowed");
    if (s->depth && ++s->n_inside[s->depth - 1] > s->caps->max_inside && s->depth > 1 &&
        s->caps->max_inside)
        return complain(s, "an object or array inside holds more than is allowed");
    if (c == '{') return open_container(s, '}');
    if (c == '[') return open_container(s, ']');
    is_number = is_digit(s, s->at) ||
                (c == '-' && !(s->caps->takes_infinity && s->at + 1 < s->n_bytes &&
                               s->text[s->at + 1] == 'I'));
    ok = c == '"' ? scan_string(s) : is_number ? scan_number(s) : scan_word(s);
    if (ok) end_value(s);
    return ok;
}

/* One token at s->at, which is no blank. */
static bool scan_token(json_scan *s)
{
    char c = s->text[s->at];
    bool may_end = s->want == WANT_VALUE_OR_END || s->want == WANT_KEY_OR_END ||
                   s->want == WANT_COMMA_OR_END;

    if (may_end && c == s->closers[s->depth - 1]) {
        s->depth--;
        s->at++;
        end_value(s);
        return true;
    }
    if (s->want == WANT_VALUE || s->want == WANT_VALUE_OR_END) return scan_value(s);
    if (s->want == WANT_KEY || s->want == WANT_KEY_OR_END) {
        s->want = WANT_COLON;
        return c == '"' ? scan_string(s) : complain(s, "a key was expected");
    }
    if (s->want == WANT_NOTHING) return complain(s, "text after the value");
    if (c != (s->want == WANT_COLON ? ':' : ','))
        return complain(s, s->want == WANT_COLON ? "a colon was expected" : "a comma was expected");
    if (s->want == WANT_COLON)
        s->want = WANT_VALUE;
    else
        s->want = s->closers[s->depth - 1] == ']' ? WANT_VALUE : WANT_KEY;
    s->at++;
    return true;
}

sw_code sw_json_check(const char *text, size_t n_bytes, const sw_json_caps *caps, const char *what,
                      sw_err *err)
{
    json_scan s = {.text = text, .n_bytes = n_bytes, .caps = caps, .want = WANT_VALUE};
    size_t bad_at = 0;

    if (n_bytes > caps->max_bytes)
        return SW_FAIL(err, SW_E_FORMAT, "%s: JSON of %zu bytes, at most %zu are allowed", what,
                       n_bytes, caps->max_bytes);
    if (!sw_utf8_is_valid(text, n_bytes, &bad_at))
        return SW_FAIL(err, SW_E_FORMAT, "%s: invalid UTF-8 at byte %zu of the JSON", what, bad_at);
    while (!s.complaint) {
        while (s.at < n_bytes && text[s.at] && strchr(" \t\r\n", text[s.at])) s.at++;
        if (s.at < n_bytes)
            (void)scan_token(&s);
        else if (s.want != WANT_NOTHING)
            s.complaint = "it ends too early";
        else
            return SW_OK;
    }
    return SW_FAIL(err, SW_E_FORMAT, "%s: not valid JSON at byte %zu of %zu: %s", what,
                   s.at < n_bytes ? s.at : n_bytes, n_bytes, s.complaint);
}
