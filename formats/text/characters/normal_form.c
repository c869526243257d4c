/* normal_form.c - NFC, NFD, NFKC, NFKD over utf8proc's character data.
 *
 * utf8proc decomposes single characters and composes a buffer; in between, combining marks
 * are put in canonical order here, by a stable counting sort, because its own ordering is
 * quadratic in the length of a run of marks. Text that no form changes is copied through.
 */
#include <string.h>
#include <utf8proc.h>

#include "formats/base/mem.h"
#include "formats/text/characters/unicode.h"

struct sw_normal_form {
    const char *name;
    int decompose, compose;  /* utf8proc options */
    uint32_t inert_below;    /* starters below this are unchanged and never join to the left */
};

#define DECOMPOSE (UTF8PROC_STABLE | UTF8PROC_DECOMPOSE)
#define COMPOSE (UTF8PROC_STABLE | UTF8PROC_COMPOSE)

static const sw_normal_form forms[] = {
    /* name   decompose                     compose  first code point that may change */
    {"NFC", DECOMPOSE, COMPOSE, 0x300},
    {"NFD", DECOMPOSE, 0, 0xC0},
    {"NFKC", DECOMPOSE | UTF8PROC_COMPAT, COMPOSE, 0xA0},
    {"NFKD", DECOMPOSE | UTF8PROC_COMPAT, 0, 0xA0},
};

const sw_normal_form *sw_normal_form_find(const char *name)
{
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++)
        if (!strcmp(forms[i].name, name)) return &forms[i];
    return NULL;
}

void sw_normal_scratch_free(sw_normal_scratch *scratch)
{
    sw_mem_put(scratch->points);
    sw_mem_put(scratch->sorted);
    memset(scratch, 0, sizeof *scratch);
}

/* Unified ideographs change in no normal form. Chinese text is therefore copied in long pieces. */
static bool is_inert(const sw_normal_form *form, uint32_t code_point)
{
    return code_point < form->inert_below || (code_point >= 0x4E00 && code_point <= 0x9FFF);
}

static uint32_t combining_class(int32_t code_point)
{
    return (uint32_t)utf8proc_get_property(code_point)->combining_class;
}

/* Sort a run of marks by combining class; marks of one class keep their order. */
static sw_code sort_run(int32_t *run, size_t n, sw_normal_scratch *scratch, sw_err *err)
{
    size_t start[257] = {0};
    void *sorted = scratch->sorted;
    sw_code rc = sw_text_grow(&sorted, &scratch->sorted_capacity, n, sizeof *run, err);

    scratch->sorted = sorted;
    if (rc != SW_OK) return rc;
    for (size_t i = 0; i < n; i++) start[combining_class(run[i]) + 1]++;
    for (size_t c = 1; c < 257; c++) start[c] += start[c - 1];
    for (size_t i = 0; i < n; i++) scratch->sorted[start[combining_class(run[i])]++] = run[i];
    memcpy(run, scratch->sorted, n * sizeof *run);
    return SW_OK;
}

static sw_code order_marks(int32_t *points, size_t n, sw_normal_scratch *scratch, sw_err *err)
{
    for (size_t i = 0; i < n;) {
        size_t end = i;
        bool is_ordered = true;
        sw_code rc;
        while (end < n && combining_class(points[end])) {
            if (end > i && combining_class(points[end - 1]) > combining_class(points[end]))
                is_ordered = false;
            end++;
        }
        if (!is_ordered && (rc = sort_run(points + i, end - i, scratch, err)) != SW_OK) return rc;
        i = end + 1;
    }
    return SW_OK;
}

/* The longest decomposition of a character has 18 code points (U+FDFA under NFKD). */
#define DECOMPOSED_MAX ((size_t)32)

static sw_code normalize_stretch(sw_text_buf *out, const sw_normal_form *form, const char *text,
                                 size_t n_bytes, sw_normal_scratch *scratch, sw_err *err)
{
    size_t n = 0;
    sw_code rc;

    for (size_t at = 0; at < n_bytes;) {
        void *points = scratch->points;
        uint32_t c;
        utf8proc_ssize_t got;
        int boundary = 0;
        rc = sw_text_grow(&points, &scratch->points_capacity, n + DECOMPOSED_MAX, sizeof(int32_t),
                          err);
        scratch->points = points;
        if (rc != SW_OK) return rc;
        at = sw_utf8_next(&c, text, at);
        got = utf8proc_decompose_char((utf8proc_int32_t)c, scratch->points + n,
                                      (utf8proc_ssize_t)DECOMPOSED_MAX,
                                      (utf8proc_option_t)form->decompose, &boundary);
        if (got < 0 || (size_t)got > DECOMPOSED_MAX)
            return SW_FAIL(err, SW_E_BUG, "U+%04X does not decompose", c);
        n += (size_t)got;
    }
    if ((rc = order_marks(scratch->points, n, scratch, err)) != SW_OK) return rc;
    if (form->compose) {
        utf8proc_ssize_t left = utf8proc_normalize_utf32(scratch->points, (utf8proc_ssize_t)n,
                                                         (utf8proc_option_t)form->compose);
        if (left < 0) return SW_FAIL(err, SW_E_BUG, "%s: %s", form->name, utf8proc_errmsg(left));
        n = (size_t)left;
    }
    for (size_t i = 0; i < n; i++)
        if ((rc = sw_text_buf_add_char(out, (uint32_t)scratch->points[i], err)) != SW_OK) return rc;
    return SW_OK;
}

sw_code sw_normalize(sw_text_buf *out, const sw_normal_form *form, const char *text,
                     size_t n_bytes, sw_normal_scratch *scratch, sw_err *err)
{
    size_t done = 0, at = 0, before = 0; /* before: where the character before `at` begins */
    sw_code rc;

    while (at < n_bytes) {
        uint32_t c;
        size_t next = sw_utf8_next(&c, text, at), end = next;
        if (is_inert(form, c)) {
            before = at;
            at = next;
            continue;
        }
        while (end < n_bytes) { /* a stretch ends before the next inert character */
            next = sw_utf8_next(&c, text, end);
            if (is_inert(form, c)) break;
            end = next;
        }
        if (before < done) before = done;
        if ((rc = sw_text_buf_add(out, text + done, before - done, err)) != SW_OK) return rc;
        rc = normalize_stretch(out, form, text + before, end - before, scratch, err);
        if (rc != SW_OK) return rc;
        done = at = before = end;
    }
    return sw_text_buf_add(out, text + done, n_bytes - done, err);
}
