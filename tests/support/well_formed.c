/* well_formed.c - see well_formed.h: one pass with a stack of open tags. */
#include "tests/support/well_formed.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define DEPTH_MAX 64
#define NAME_BYTES 32
#define ATTRS_MAX 16

typedef struct reader {
    const char *begin, *at, *end;
    char open[DEPTH_MAX][NAME_BYTES];
    int depth;
    char why[200];
} reader;

static bool fail(reader *r, const char *what)
{
    (void)snprintf(r->why, sizeof r->why, "%s at byte %td: %.60s", what, r->at - r->begin, r->at);
    return false;
}

static bool begins(const reader *r, const char *text)
{
    size_t n = strlen(text);

    return (size_t)(r->end - r->at) >= n && !strncmp(r->at, text, n);
}

static bool skip_past(reader *r, const char *text)
{
    while (r->at < r->end && !begins(r, text)) r->at++;
    if (r->at == r->end) return fail(r, "no end");
    r->at += strlen(text);
    return true;
}

static bool read_name(reader *r, char name[NAME_BYTES])
{
    size_t n = 0;

    while (r->at + n < r->end && (isalnum((unsigned char)r->at[n]) || strchr("-:_", r->at[n]))) n++;
    if (!n || n >= NAME_BYTES) return fail(r, "no name");
    (void)snprintf(name, NAME_BYTES, "%.*s", (int)n, r->at);
    r->at += n;
    return true;
}

static bool read_entity(reader *r)
{
    static const char *const known[] = {"&amp;", "&lt;", "&gt;", "&quot;"};

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (begins(r, known[i])) {
            r->at += strlen(known[i]);
            return true;
        }
    if (!begins(r, "&#")) return fail(r, "bare &");
    r->at += 2;
    while (r->at < r->end && isdigit((unsigned char)*r->at)) r->at++;
    return *r->at++ == ';' ? true : fail(r, "no entity");
}

/* Text up to `stop`, which is not consumed. */
static bool read_text(reader *r, char stop)
{
    while (r->at < r->end && *r->at != stop) {
        if ((unsigned char)*r->at < 0x20 && *r->at != '\n') return fail(r, "control character");
        if (*r->at == '<') return fail(r, "stray <");
        if (*r->at == '&') {
            if (!read_entity(r)) return false;
        } else {
            r->at++;
        }
    }
    return true;
}

static bool read_attributes(reader *r, bool *is_empty)
{
    char seen[ATTRS_MAX][NAME_BYTES];
    int n = 0;

    for (;;) {
        while (r->at < r->end && isspace((unsigned char)*r->at)) r->at++;
        if (begins(r, "/>")) return r->at += 2, *is_empty = true;
        if (begins(r, ">")) return r->at++, *is_empty = false, true;
        if (n == ATTRS_MAX || !read_name(r, seen[n])) return fail(r, "no attribute");
        for (int i = 0; i < n; i++)
            if (!strcmp(seen[i], seen[n])) return fail(r, "attribute twice");
        n++;
        if (!begins(r, "=\"")) return fail(r, "value without quotes");
        r->at += 2;
        if (!read_text(r, '"') || r->at == r->end) return fail(r, "value without end");
        r->at++;
    }
}

static bool read_tag(reader *r)
{
    char name[NAME_BYTES];
    bool is_empty = false;

    if (begins(r, "</")) {
        r->at += 2;
        if (!read_name(r, name) || *r->at++ != '>') return fail(r, "bad end tag");
        if (!r->depth || strcmp(r->open[r->depth - 1], name) != 0) return fail(r, "other end tag");
        r->depth--;
        return true;
    }
    r->at++;
    if (!read_name(r, name) || !read_attributes(r, &is_empty)) return false;
    if (is_empty) return true;
    if (r->depth == DEPTH_MAX) return fail(r, "too deep");
    (void)snprintf(r->open[r->depth++], NAME_BYTES, "%s", name);
    return true;
}

bool is_well_formed(const char *text, size_t n_bytes, const char **why)
{
    static reader r;
    bool ok = true;

    memset(&r, 0, sizeof r);
    r.begin = r.at = text;
    r.end = text + n_bytes;
    *why = r.why;
    if (begins(&r, "<!DOCTYPE html>")) r.at += strlen("<!DOCTYPE html>");
    while (ok && r.at < r.end) {
        if (begins(&r, "<![CDATA[")) ok = skip_past(&r, "]]>");
        else if (*r.at == '<') ok = read_tag(&r);
        else ok = read_text(&r, '<');
    }
    return ok && r.depth ? fail(&r, "a tag is open") : ok;
}
