/* pattern.c - see pattern.h: compiling and running, over PCRE2 with JIT. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "formats/text/characters/pattern.h"

#include <pcre2.h>
#include <string.h>
#include <time.h>

#include "formats/base/json.h"
#include "formats/base/size.h"

#define REGEX_SOURCE_MAX_BYTES ((size_t)32768)
#define JIT_STACK_START_BYTES ((size_t)32768)
#define JIT_STACK_MAX_BYTES ((size_t)1 << 20) /* it bounds what a start position costs, too */
#define HEAP_LIMIT_KIB 65536u
#define DEPTH_LIMIT 100000u
#define MATCH_LIMIT_BASE ((uint64_t)1000000) /* and some per byte: blanks are tried backwards */
#define START_WINDOW_BYTES ((size_t)256)     /* starts tried per call, so that calls return */
#define CLOCK_BASE_NS ((int64_t)5000000000)
#define CLOCK_PER_BYTE_NS ((int64_t)4000)
#define CLOCK_CALLS 16u /* between two looks at the clock, if each finds something */

struct sw_regex {
    pcre2_general_context *memory;
    bool is_out_of_memory; /* PCRE2 has codes with several causes; the allocator sets this */
    pcre2_code *code;
    pcre2_match_data *match;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
    bool is_jit;
};

static int64_t now_ns(clockid_t which)
{
    struct timespec now = {0, 0};

    (void)clock_gettime(which, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void sw_pattern_clock_start(sw_pattern_clock *clock, size_t text_bytes)
{
    int64_t n_bytes = (int64_t)(text_bytes < (size_t)1 << 40 ? text_bytes : (size_t)1 << 40);

    clock->cpu_allowed_ns = CLOCK_BASE_NS + n_bytes * CLOCK_PER_BYTE_NS;
    clock->cpu_start_ns = now_ns(CLOCK_THREAD_CPUTIME_ID);
    clock->wall_limit_ns = now_ns(CLOCK_MONOTONIC_COARSE) + clock->cpu_allowed_ns;
    clock->n_calls = 0;
}

/* Processor time decides, but asking for it is a system call. So the coarse clock is asked first,
 * in a few nanoseconds. */
static bool is_out_of_time(const sw_pattern_clock *clock)
{
    if (now_ns(CLOCK_MONOTONIC_COARSE) < clock->wall_limit_ns) return false;
    return now_ns(CLOCK_THREAD_CPUTIME_ID) - clock->cpu_start_ns > clock->cpu_allowed_ns;
}

/* PCRE2 gets its memory from mem.h, like everything else. */
static void *regex_take(PCRE2_SIZE n_bytes, void *regex)
{
    void *block = NULL;

    if (sw_mem_get(&block, (int64_t)n_bytes, 1, "expression", NULL) == SW_OK) return block;
    ((sw_regex *)regex)->is_out_of_memory = true;
    return NULL;
}

static void regex_put(void *block, void *regex)
{
    (void)regex;
    sw_mem_put(block);
}

static sw_code no_memory(sw_err *err)
{
    return SW_FAIL(err, SW_E_NOMEM, "no memory for an expression");
}

static void regex_free(sw_regex *regex)
{
    if (!regex) return;
    pcre2_code_free(regex->code);
    pcre2_match_data_free(regex->match);
    pcre2_match_context_free(regex->context);
    pcre2_jit_stack_free(regex->stack);
    pcre2_general_context_free(regex->memory);
    sw_mem_put(regex);
}

static sw_code compile(sw_regex *regex, const sw_text_buf *source, sw_err *err)
{
    int problem = 0;
    size_t at = 0;
    unsigned char text[160] = "";
    pcre2_compile_context *context = pcre2_compile_context_create(regex->memory);

    if (!context) return no_memory(err);
    (void)pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    (void)pcre2_set_bsr(context, PCRE2_BSR_UNICODE);
    regex->code = pcre2_compile((PCRE2_SPTR)source->bytes, source->n_bytes,
                                PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE |
                                    PCRE2_NEVER_BACKSLASH_C | PCRE2_USE_OFFSET_LIMIT,
                                &problem, &at, context);
    pcre2_compile_context_free(context);
    if (regex->code) return SW_OK;
    if (regex->is_out_of_memory) return no_memory(err);
    (void)pcre2_get_error_message(problem, text, sizeof text);
    return SW_FAIL(err, SW_E_FORMAT, "expression does not compile: %s (near byte %zu)",
                   (const char *)text, at);
}

/* Where the system forbids executable memory, the interpreter of PCRE2 runs, with the same
 * limits. */
static sw_code prepare(sw_regex *regex, sw_err *err)
{
    regex->match = pcre2_match_data_create_from_pattern(regex->code, regex->memory);
    regex->context = pcre2_match_context_create(regex->memory);
    if (!regex->match || !regex->context) return no_memory(err);
    (void)pcre2_set_heap_limit(regex->context, HEAP_LIMIT_KIB);
    (void)pcre2_set_depth_limit(regex->context, DEPTH_LIMIT);
    regex->is_jit = pcre2_jit_compile(regex->code, PCRE2_JIT_COMPLETE) == 0;
    if (regex->is_out_of_memory) return no_memory(err);
    if (!regex->is_jit) return SW_OK;
    regex->stack = pcre2_jit_stack_create(JIT_STACK_START_BYTES, JIT_STACK_MAX_BYTES,
                                          regex->memory);
    if (!regex->stack) return no_memory(err);
    pcre2_jit_stack_assign(regex->context, NULL, regex->stack);
    return SW_OK;
}

sw_code sw_pattern_from_regex(sw_pattern *out, const char *onig_source, size_t n_bytes,
                              sw_err *err)
{
    sw_text_buf source = {0};
    sw_regex *regex = NULL;
    sw_code rc;

    if (n_bytes > REGEX_SOURCE_MAX_BYTES)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "expression of %zu bytes, at most %zu are supported",
                       n_bytes, REGEX_SOURCE_MAX_BYTES);
    if ((rc = sw_pattern_translate(&source, onig_source, n_bytes, err)) != SW_OK) goto done;
    if ((rc = sw_text_buf_add(&source, "", 1, err)) != SW_OK) goto done;
    source.n_bytes--;
    if ((rc = SW_MEM_GET(&regex, 1, "expression", err)) != SW_OK) goto done;
    regex->memory = pcre2_general_context_create(regex_take, regex_put, regex);
    if (!regex->memory) {
        rc = no_memory(err);
        goto done;
    }
    if ((rc = compile(regex, &source, err)) != SW_OK) goto done;
    if ((rc = prepare(regex, err)) != SW_OK) goto done;
    out->regex = regex;
    regex = NULL;
done:
    regex_free(regex);
    sw_text_buf_free(&source);
    return rc;
}

sw_code sw_pattern_parse(sw_pattern *out, const cJSON *json, sw_arena *arena, sw_err *err)
{
    const char *literal = NULL, *regex = NULL;
    char *copy = NULL;
    sw_code rc;

    if (!cJSON_IsObject(json))
        return SW_FAIL(err, SW_E_FORMAT, "pattern: neither {\"String\":..} nor {\"Regex\":..}");
    if ((rc = sw_json_text(&literal, json, "String", err)) != SW_OK) return rc;
    if ((rc = sw_json_text(&regex, json, "Regex", err)) != SW_OK) return rc;
    if (!literal == !regex)
        return SW_FAIL(err, SW_E_FORMAT, "pattern: neither {\"String\":..} nor {\"Regex\":..}");
    if (regex) return sw_pattern_from_regex(out, regex, strlen(regex), err);
    if (!literal[0]) return sw_pattern_from_regex(out, "", 0, err); /* matches everywhere */
    if ((rc = sw_arena_text(&copy, arena, literal, strlen(literal), err)) != SW_OK) return rc;
    out->literal = copy;
    out->literal_bytes = strlen(literal);
    return SW_OK;
}

void sw_pattern_free(sw_pattern *pattern)
{
    regex_free(pattern->regex);
    memset(pattern, 0, sizeof *pattern);
}

void sw_finder_start(sw_finder *finder, const sw_pattern *pattern, sw_pattern_clock *clock,
                     const char *text, size_t n_bytes)
{
    memset(finder, 0, sizeof *finder);
    finder->pattern = pattern;
    finder->clock = clock;
    finder->text = text;
    finder->n_bytes = n_bytes;
    if (pattern->regex) {
        uint64_t limit = MATCH_LIMIT_BASE + 8 * (uint64_t)n_bytes;
        (void)pcre2_set_match_limit(pattern->regex->context,
                                    limit < UINT32_MAX ? (uint32_t)limit : UINT32_MAX);
    }
}

static void take_match(sw_finder *f, size_t begin, size_t end)
{
    f->match_begin = begin;
    f->match_end = end;
    f->has_match = true;
}

static void search_literal(sw_finder *f)
{
    const sw_pattern *p = f->pattern;
    const char *hit = memmem(f->text + f->search_at, f->n_bytes - f->search_at, p->literal,
                             p->literal_bytes);

    if (!hit) return;
    take_match(f, (size_t)(hit - f->text), (size_t)(hit - f->text) + p->literal_bytes);
    f->search_at = f->match_end;
}

static void search_class(sw_finder *f)
{
    for (size_t at = f->search_at; at < f->n_bytes;) {
        uint32_t c;
        size_t next = sw_utf8_next(&c, f->text, at);
        if (f->pattern->char_class(c)) {
            take_match(f, at, next);
            f->search_at = next;
            return;
        }
        at = next;
    }
}

static sw_code run_failure(int got, sw_err *err)
{
    unsigned char text[160] = "";

    if (got == PCRE2_ERROR_NOMEMORY) return SW_FAIL(err, SW_E_NOMEM, "no memory to match");
    (void)pcre2_get_error_message(got, text, sizeof text);
    return SW_FAIL(err, SW_E_FORMAT, "expression backtracks without bound on this text: %s",
                   (const char *)text);
}

/* Try a window of start positions in one call; *got is what PCRE2 returns. */
static sw_code try_window(sw_finder *f, size_t at, size_t limit, int *got, sw_err *err)
{
    const sw_regex *r = f->pattern->regex;
    PCRE2_SPTR text = (PCRE2_SPTR)f->text;

    (void)pcre2_set_offset_limit(r->context, limit);
    *got = r->is_jit ? pcre2_jit_match(r->code, text, f->n_bytes, at, 0, r->match, r->context)
                     : pcre2_match(r->code, text, f->n_bytes, at, PCRE2_NO_UTF_CHECK, r->match,
                                   r->context);
    if (*got < 0 && *got != PCRE2_ERROR_NOMATCH) return run_failure(*got, err);
    if ((*got == PCRE2_ERROR_NOMATCH || ++f->clock->n_calls % CLOCK_CALLS == 0) &&
        is_out_of_time(f->clock))
        return SW_FAIL(err, SW_E_FORMAT, "expression takes too long on this text");
    return SW_OK;
}

/* An empty match right behind the last match is skipped, so that the search always goes on. */
static sw_code search_regex(sw_finder *f, sw_err *err)
{
    while (f->search_at <= f->n_bytes) {
        size_t limit = f->n_bytes - f->search_at > START_WINDOW_BYTES
                           ? f->search_at + START_WINDOW_BYTES
                           : f->n_bytes;
        size_t begin, end;
        int got = 0;
        sw_code rc;
        while (limit < f->n_bytes && !sw_utf8_is_start(f->text[limit])) limit++;
        if ((rc = try_window(f, f->search_at, limit, &got, err)) != SW_OK) return rc;
        if (got == PCRE2_ERROR_NOMATCH) {
            f->search_at = limit + 1;
            while (f->search_at < f->n_bytes && !sw_utf8_is_start(f->text[f->search_at]))
                f->search_at++;
            continue;
        }
        begin = pcre2_get_ovector_pointer(f->pattern->regex->match)[0];
        end = pcre2_get_ovector_pointer(f->pattern->regex->match)[1];
        if (begin > end || begin < f->done)
            return SW_FAIL(err, SW_E_UNSUPPORTED, "expression moves the start of its own match");
        if (begin == end && f->had_match && f->last_match_end == end) {
            uint32_t c;
            f->search_at = end < f->n_bytes ? sw_utf8_next(&c, f->text, end) : end + 1;
            continue;
        }
        f->search_at = f->last_match_end = end;
        f->had_match = true;
        take_match(f, begin, end);
        return SW_OK;
    }
    return SW_OK;
}

static sw_code search(sw_finder *f, sw_err *err)
{
    if (f->pattern->regex) return search_regex(f, err);
    if (f->pattern->char_class) search_class(f);
    else search_literal(f);
    return SW_OK;
}

sw_code sw_finder_next(sw_finder *f, sw_span *span, bool *has_span, sw_err *err)
{
    *has_span = false;
    if (!f->has_match && !f->is_exhausted) {
        sw_code rc = search(f, err);
        if (rc != SW_OK) return rc;
        f->is_exhausted = !f->has_match;
    }
    if (f->has_match && f->done == f->match_begin) {
        f->has_match = false;
        f->done = f->match_end;
        *span = (sw_span){f->match_begin, f->match_end, true};
        *has_span = true;
    } else if (f->has_match || f->done < f->n_bytes) {
        size_t end = f->has_match ? f->match_begin : f->n_bytes;
        *span = (sw_span){f->done, end, false};
        f->done = end;
        *has_span = true;
    }
    return SW_OK;
}

sw_code sw_pattern_replace(sw_text_buf *out, const sw_pattern *pattern, sw_pattern_clock *clock,
                           const char *text, size_t n_bytes, const char *with, size_t with_bytes,
                           sw_err *err)
{
    sw_finder finder;
    sw_span span;
    bool has_span = true;
    sw_code rc = SW_OK;

    sw_finder_start(&finder, pattern, clock, text, n_bytes);
    while ((rc = sw_finder_next(&finder, &span, &has_span, err)) == SW_OK && has_span) {
        rc = span.is_match ? sw_text_buf_add(out, with, with_bytes, err)
                           : sw_text_buf_add(out, text + span.begin, span.end - span.begin, err);
        if (rc != SW_OK) return rc;
    }
    return rc;
}
