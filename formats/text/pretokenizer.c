/* pretokenizer.c - the "pre_tokenizer" of tokenizer.json: text into words.
 *
 * Steps push pieces into one another, so no list of pieces is ever built. A step that
 * changes text keeps the changed piece in its own buffer until the steps behind it are done.
 */
#include <string.h>

#include "formats/base/json.h"
#include "formats/text/bpe.h"
#include "formats/text/tokenizer_parts.h"

/* ByteLevel applies GPT-2's expression, unless the file tells it not to. */
#define GPT2_REGEX \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define WORD_REGEX "\\w+|[^\\w\\s]+"

static sw_code forward(sw_pretokenizer *owner, int at, const char *text, size_t n_bytes,
                       bool is_start, sw_err *err)
{
    if (!n_bytes) return SW_OK;
    if (at == owner->n_steps) return owner->emit(owner->self, text, n_bytes, err);
    return owner->steps[at].run(owner, at, text, n_bytes, is_start, err);
}

/* Name this step in its own errors; the steps behind it name themselves. */
static sw_code step_failed(const sw_pretok_step *step, sw_code rc, sw_err *err)
{
    sw_err_prefix(err, "pre_tokenizer step %d (%s)", step->entry, step->type);
    return rc;
}

/* What this step has made, `rc` of it, goes to the step behind it. */
static sw_code forward_made(sw_pretokenizer *owner, int at, bool is_start, sw_code rc, sw_err *err)
{
    sw_pretok_step *step = &owner->steps[at];

    if (rc != SW_OK) return step_failed(step, rc, err);
    step->made_bytes += step->buf.n_bytes;
    return forward(owner, at + 1, step->buf.bytes, step->buf.n_bytes, is_start, err);
}

static sw_code run_prefix(sw_pretokenizer *owner, int at, const char *text, size_t n_bytes,
                          bool is_start, sw_err *err)
{
    sw_pretok_step *step = &owner->steps[at];
    bool has_it = n_bytes >= step->content_bytes &&
                  !memcmp(text, step->content, step->content_bytes);
    sw_code rc;

    if (has_it || step->when == SW_PREFIX_NEVER || (step->when == SW_PREFIX_FIRST && !is_start))
        return forward(owner, at + 1, text, n_bytes, is_start, err);
    sw_growth_open(owner->growth, &step->buf, step->made_bytes);
    rc = sw_text_buf_add(&step->buf, step->content, step->content_bytes, err);
    if (rc == SW_OK) rc = sw_text_buf_add(&step->buf, text, n_bytes, err);
    return forward_made(owner, at, is_start, rc, err);
}

static sw_code run_replace(sw_pretokenizer *owner, int at, const char *text, size_t n_bytes,
                           bool is_start, sw_err *err)
{
    sw_pretok_step *step = &owner->steps[at];
    sw_code rc;

    sw_growth_open(owner->growth, &step->buf, step->made_bytes);
    rc = sw_pattern_replace(&step->buf, &step->pattern, owner->clock, text, n_bytes,
                            step->content, step->content_bytes, err);
    return forward_made(owner, at, is_start, rc, err);
}

static sw_code run_bytes(sw_pretokenizer *owner, int at, const char *text, size_t n_bytes,
                         bool is_start, sw_err *err)
{
    sw_pretok_step *step = &owner->steps[at];
    sw_code rc;

    sw_growth_open(owner->growth, &step->buf, step->made_bytes);
    rc = sw_bytes_to_chars(&step->buf, text, n_bytes, err);
    return forward_made(owner, at, is_start, rc, err);
}

/* glues[how][pending is a match][next is a match] says whether the next span joins the pending
 * one. */
static const bool glues[][2][2] = {
    [SW_SPLIT_REMOVED] = {{false, false}, {false, false}},
    [SW_SPLIT_ISOLATED] = {{false, false}, {false, false}},
    [SW_SPLIT_PREVIOUS] = {{false, true}, {false, false}},
    [SW_SPLIT_NEXT] = {{false, false}, {true, false}},
    [SW_SPLIT_CONTIGUOUS] = {{true, false}, {false, true}},
};

static sw_code run_split(sw_pretokenizer *owner, int at, const char *text, size_t n_bytes,
                         bool is_start, sw_err *err)
{
    const sw_pretok_step *step = &owner->steps[at];
    sw_span pending = {0, 0, false}, next;
    bool has_pending = false, has_next = true;
    sw_finder finder;
    sw_code rc;

    sw_finder_start(&finder, &step->pattern, owner->clock, text, n_bytes);
    while ((rc = sw_finder_next(&finder, &next, &has_next, err)) == SW_OK && has_next) {
        if (step->is_inverted) next.is_match = !next.is_match;
        if (step->how == SW_SPLIT_REMOVED && next.is_match) continue;
        if (has_pending && glues[step->how][pending.is_match][next.is_match]) {
            pending.end = next.end;
            pending.is_match = next.is_match;
            continue;
        }
        if (has_pending && (rc = forward(owner, at + 1, text + pending.begin,
                                         pending.end - pending.begin,
                                         is_start && !pending.begin, err)) != SW_OK)
            return rc;
        pending = next;
        has_pending = true;
    }
    if (rc != SW_OK) return step_failed(step, rc, err);
    if (!has_pending) return SW_OK;
    return forward(owner, at + 1, text + pending.begin, pending.end - pending.begin,
                   is_start && !pending.begin, err);
}

/* --- parsing ------------------------------------------------------------------------------ */

static sw_code add_step(sw_pretok_step **out, sw_pretokenizer *owner,
                        sw_code (*run)(sw_pretokenizer *, int, const char *, size_t, bool,
                                       sw_err *),
                        sw_err *err)
{
    if (owner->n_steps == SW_STEPS_MAX)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "pre_tokenizer of more than %d steps",
                       SW_STEPS_MAX);
    *out = &owner->steps[owner->n_steps++];
    (*out)->run = run;
    return SW_OK;
}

static sw_code add_class_split(sw_pretokenizer *out, bool (*char_class)(uint32_t),
                               sw_split_how how, sw_err *err)
{
    sw_pretok_step *step = NULL;
    sw_code rc = add_step(&step, out, run_split, err);

    if (rc != SW_OK) return rc;
    step->pattern.char_class = char_class;
    step->how = how;
    return SW_OK;
}

static sw_code add_regex_split(sw_pretokenizer *out, const char *regex, sw_split_how how,
                               bool is_inverted, sw_err *err)
{
    sw_pretok_step *step = NULL;
    sw_code rc = add_step(&step, out, run_split, err);

    if (rc != SW_OK) return rc;
    step->how = how;
    step->is_inverted = is_inverted;
    return sw_pattern_from_regex(&step->pattern, regex, strlen(regex), err);
}

static sw_code parse_behavior(sw_split_how *how, const cJSON *json, sw_err *err)
{
    static const struct {
        const char *name;
        sw_split_how how;
    } names[] = {
        {"Removed", SW_SPLIT_REMOVED},
        {"Isolated", SW_SPLIT_ISOLATED},
        {"MergedWithPrevious", SW_SPLIT_PREVIOUS},
        {"MergedWithNext", SW_SPLIT_NEXT},
        {"Contiguous", SW_SPLIT_CONTIGUOUS},
    };
    const char *name = NULL;
    sw_code rc = sw_json_text(&name, json, "behavior", err);

    if (rc != SW_OK) return rc;
    if (!name) return SW_FAIL(err, SW_E_FORMAT, "no \"behavior\"");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(names[i].name, name) != 0) continue;
        *how = names[i].how;
        return SW_OK;
    }
    return SW_FAIL(err, SW_E_UNSUPPORTED, "behavior \"%.60s\" is not supported", name);
}

static sw_code parse_split(sw_pretokenizer *out, const cJSON *json, sw_arena *arena, sw_err *err)
{
    sw_pretok_step *step = NULL;
    sw_code rc = add_step(&step, out, run_split, err);

    if (rc != SW_OK) return rc;
    if ((rc = parse_behavior(&step->how, json, err)) != SW_OK) return rc;
    if ((rc = sw_json_bool(&step->is_inverted, json, "invert", err)) != SW_OK) return rc;
    return sw_pattern_parse(&step->pattern, sw_json_member(json, "pattern"), arena, err);
}

static sw_code parse_byte_level(sw_pretokenizer *out, const cJSON *json, sw_arena *arena,
                                sw_err *err)
{
    bool add_prefix_space = true, use_regex = true;
    sw_pretok_step *step = NULL;
    sw_code rc;

    (void)arena;
    if ((rc = sw_json_bool(&add_prefix_space, json, "add_prefix_space", err)) != SW_OK) return rc;
    if ((rc = sw_json_bool(&use_regex, json, "use_regex", err)) != SW_OK) return rc;
    if (add_prefix_space) {
        if ((rc = add_step(&step, out, run_prefix, err)) != SW_OK) return rc;
        step->when = SW_PREFIX_ALWAYS;
        step->content = " ";
        step->content_bytes = 1;
    }
    if (use_regex &&
        (rc = add_regex_split(out, GPT2_REGEX, SW_SPLIT_ISOLATED, false, err)) != SW_OK)
        return rc;
    return add_step(&step, out, run_bytes, err);
}

/* Older files have add_prefix_space in place of prepend_scheme. */
static sw_code parse_scheme(sw_prefix_when *when, const cJSON *json, sw_err *err)
{
    static const char *const names[] = {"never", "first", "always"};
    const char *scheme = NULL;
    bool add_prefix_space = true;
    sw_code rc;

    if ((rc = sw_json_bool(&add_prefix_space, json, "add_prefix_space", err)) != SW_OK) return rc;
    if ((rc = sw_json_text(&scheme, json, "prepend_scheme", err)) != SW_OK) return rc;
    *when = add_prefix_space ? SW_PREFIX_ALWAYS : SW_PREFIX_NEVER;
    for (int i = 0; scheme && i < 3; i++)
        if (!strcmp(names[i], scheme)) {
            *when = (sw_prefix_when)i;
            return SW_OK;
        }
    return scheme ? SW_FAIL(err, SW_E_UNSUPPORTED, "prepend_scheme \"%.60s\" is not supported",
                            scheme)
                  : SW_OK;
}

static sw_code parse_metaspace(sw_pretokenizer *out, const cJSON *json, sw_arena *arena,
                               sw_err *err)
{
    const char *with = "\xE2\x96\x81";
    bool split = true;
    uint32_t ignored;
    char *copy = NULL;
    sw_pretok_step *replace = NULL, *prefix = NULL, *cut = NULL;
    sw_code rc;

    if ((rc = sw_json_text(&with, json, "replacement", err)) != SW_OK) return rc;
    if ((rc = sw_json_bool(&split, json, "split", err)) != SW_OK) return rc;
    if ((rc = sw_arena_text(&copy, arena, with, strlen(with), err)) != SW_OK) return rc;
    if (!copy[0] || copy[sw_utf8_next(&ignored, copy, 0)])
        return SW_FAIL(err, SW_E_FORMAT, "\"replacement\" is not one character");
    if ((rc = add_step(&replace, out, run_replace, err)) != SW_OK) return rc;
    replace->pattern.literal = " ";
    replace->pattern.literal_bytes = 1;
    if ((rc = add_step(&prefix, out, run_prefix, err)) != SW_OK) return rc;
    if ((rc = parse_scheme(&prefix->when, json, err)) != SW_OK) return rc;
    replace->content = prefix->content = copy;
    replace->content_bytes = prefix->content_bytes = strlen(copy);
    if (!split) return SW_OK;
    if ((rc = add_step(&cut, out, run_split, err)) != SW_OK) return rc;
    cut->pattern.literal = copy;
    cut->pattern.literal_bytes = strlen(copy);
    cut->how = SW_SPLIT_NEXT;
    return SW_OK;
}

static sw_code parse_digits(sw_pretokenizer *out, const cJSON *json, sw_arena *arena, sw_err *err)
{
    bool individual = false;
    sw_code rc = sw_json_bool(&individual, json, "individual_digits", err);

    (void)arena;
    if (rc != SW_OK) return rc;
    return add_class_split(out, sw_char_is_number,
                           individual ? SW_SPLIT_ISOLATED : SW_SPLIT_CONTIGUOUS, err);
}

static sw_code parse_punctuation(sw_pretokenizer *out, const cJSON *json, sw_arena *arena,
                                 sw_err *err)
{
    sw_split_how how = SW_SPLIT_ISOLATED;
    sw_code rc = sw_json_member(json, "behavior") ? parse_behavior(&how, json, err) : SW_OK;

    (void)arena;
    if (rc != SW_OK) return rc;
    return add_class_split(out, sw_char_is_punct, how, err);
}

static sw_code parse_whitespace(sw_pretokenizer *out, const cJSON *json, sw_arena *arena,
                                sw_err *err)
{
    (void)json;
    (void)arena;
    return add_regex_split(out, WORD_REGEX, SW_SPLIT_REMOVED, true, err);
}

static sw_code parse_whitespace_split(sw_pretokenizer *out, const cJSON *json, sw_arena *arena,
                                      sw_err *err)
{
    (void)json;
    (void)arena;
    return add_class_split(out, sw_char_is_space, SW_SPLIT_REMOVED, err);
}

static sw_code parse_sequence(sw_pretokenizer *out, const cJSON *json, sw_arena *arena,
                              sw_err *err);

static const struct {
    const char *type;
    sw_code (*parse)(sw_pretokenizer *out, const cJSON *json, sw_arena *arena, sw_err *err);
} kinds[] = {
    {"Sequence", parse_sequence},       {"Split", parse_split},
    {"ByteLevel", parse_byte_level},    {"Metaspace", parse_metaspace},
    {"Digits", parse_digits},           {"Punctuation", parse_punctuation},
    {"Whitespace", parse_whitespace},   {"WhitespaceSplit", parse_whitespace_split},
};

static sw_code parse_any(sw_pretokenizer *out, const cJSON *json, sw_arena *arena, sw_err *err)
{
    const char *type;
    sw_code rc = sw_part_type(&type, json, "pre_tokenizer", err);

    if (rc != SW_OK) return rc;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        int n_before = out->n_steps;
        if (strcmp(kinds[i].type, type) != 0) continue;
        if (kinds[i].parse != parse_sequence) out->n_entries++;
        rc = kinds[i].parse(out, json, arena, err);
        for (int at = n_before; at < out->n_steps && kinds[i].parse != parse_sequence; at++) {
            out->steps[at].type = kinds[i].type;
            out->steps[at].entry = out->n_entries;
        }
        if (rc != SW_OK) sw_err_prefix(err, "pre_tokenizer %s", type);
        return rc;
    }
    return sw_part_unsupported("pre_tokenizer", type, err);
}

static sw_code parse_sequence(sw_pretokenizer *out, const cJSON *json, sw_arena *arena,
                              sw_err *err)
{
    const cJSON *member = sw_json_member(json, "pretokenizers");
    sw_code rc;

    if (!cJSON_IsArray(member)) return SW_FAIL(err, SW_E_FORMAT, "no \"pretokenizers\"");
    for (member = member->child; member; member = member->next)
        if ((rc = parse_any(out, member, arena, err)) != SW_OK) return rc;
    return SW_OK;
}

sw_code sw_pretok_parse(sw_pretokenizer *out, const cJSON *json, sw_arena *arena, sw_err *err)
{
    sw_code rc = json ? parse_any(out, json, arena, err) : SW_OK;

    if (rc != SW_OK) return rc;
    if (out->n_steps && out->steps[out->n_steps - 1].run == run_bytes) {
        out->n_steps--;
        out->ends_in_bytes = true;
    }
    return SW_OK;
}

void sw_pretok_start(sw_pretokenizer *pretok, const sw_growth *growth)
{
    pretok->growth = growth;
    for (int i = 0; i < pretok->n_steps; i++) pretok->steps[i].made_bytes = 0;
}

sw_code sw_pretok_run(sw_pretokenizer *pretok, const char *text, size_t n_bytes, bool is_start,
                      sw_piece_fn emit, void *self, sw_err *err)
{
    pretok->emit = emit;
    pretok->self = self;
    return forward(pretok, 0, text, n_bytes, is_start, err);
}

void sw_pretok_free(sw_pretokenizer *pretok)
{
    for (int i = 0; i < SW_STEPS_MAX; i++) {
        sw_pattern_free(&pretok->steps[i].pattern);
        sw_text_buf_free(&pretok->steps[i].buf);
    }
    memset(pretok, 0, sizeof *pretok);
}
