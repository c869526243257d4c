/* pattern_set.c - see pattern_set.h. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "tools/cli/pattern_set.h"

#include <pcre2.h>
#include <string.h>

#include "formats/base/mem.h"
#include "tools/cli/opt.h"

#define PIECE_BYTES 64
/* Edits that a slip of the finger takes, as among names of options. */
#define DISTANCE_MAX 2

struct sw_pattern_item {
    const char *text;
    pcre2_code *code;
    pcre2_match_data *match;
    bool has_matched, has_failed;
    char near[PIECE_BYTES]; /* "": nothing is */
    int distance;           /* of that one */
};

static sw_code compile(sw_pattern_item *item, const char *text, const char *option, sw_err *err)
{
    PCRE2_SIZE at;
    int number;
    PCRE2_UCHAR why[128];

    item->text = text;
    item->code = pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED, PCRE2_UTF, &number, &at,
                               NULL);
    if (!item->code) {
        (void)pcre2_get_error_message(number, why, sizeof why);
        return SW_FAIL(err, SW_E_USAGE, "%s '%s': %s, at character %zu", option, text,
                       (const char *)why, (size_t)at);
    }
    item->match = pcre2_match_data_create_from_pattern(item->code, NULL);
    return item->match ? SW_OK : SW_FAIL(err, SW_E_NOMEM, "no memory for a pattern");
}

sw_code sw_pattern_set_new(sw_pattern_set *out, const char *const *texts, int n,
                           const char *option, sw_err *err)
{
    sw_code rc;

    memset(out, 0, sizeof *out);
    out->option = option;
    if ((rc = SW_MEM_GET(&out->items, n, "patterns", err)) != SW_OK) return rc;
    out->n = n;
    for (int i = 0; i < n && rc == SW_OK; i++) rc = compile(&out->items[i], texts[i], option, err);
    if (rc != SW_OK) sw_pattern_set_free(out);
    return rc;
}

void sw_pattern_set_free(sw_pattern_set *set)
{
    for (int i = 0; i < set->n; i++) {
        pcre2_match_data_free(set->items[i].match);
        pcre2_code_free(set->items[i].code);
    }
    sw_mem_put(set->items);
    memset(set, 0, sizeof *set);
}

bool sw_pattern_set_match_at(sw_pattern_set *set, int at, const char *text)
{
    sw_pattern_item *item = &set->items[at];
    int rc = pcre2_match(item->code, (PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED, 0, 0, item->match,
                         NULL);

    if (rc < 0 && rc != PCRE2_ERROR_NOMATCH) item->has_failed = true;
    if (rc < 0) return false;
    item->has_matched = true;
    return true;
}

bool sw_pattern_set_match(sw_pattern_set *set, const char *text)
{
    bool any = false;

    for (int i = 0; i < set->n; i++)
        if (sw_pattern_set_match_at(set, i, text)) any = true;
    return any;
}

void sw_pattern_set_offer(sw_pattern_set *set, const char *path)
{
    for (size_t n; *path; path += n + (path[n] == '.')) {
        char piece[PIECE_BYTES];

        n = strcspn(path, ".");
        if (!n || n >= sizeof piece) continue;
        memcpy(piece, path, n);
        piece[n] = '\0';
        for (int i = 0; i < set->n; i++) {
            sw_pattern_item *item = &set->items[i];
            const int distance = item->has_matched ? 0 : sw_opt_distance(item->text, piece);

            if (item->has_matched || distance > DISTANCE_MAX || distance >= (int)n ||
                (*item->near && distance >= item->distance))
                continue;
            memcpy(item->near, piece, n + 1);
            item->distance = distance;
        }
    }
}

sw_code sw_pattern_set_check(const sw_pattern_set *set, sw_err *err)
{
    for (int i = 0; i < set->n; i++) {
        if (set->items[i].has_failed)
            return SW_FAIL(err, SW_E_USAGE, "%s '%s' is too expensive to match; write it simpler",
                           set->option, set->items[i].text);
        if (!set->items[i].has_matched && !strncmp(set->items[i].text, "re:", 3))
            return SW_FAIL(err, SW_E_USAGE, "%s '%s' matches no linear; every pattern here is a "
                           "regular expression: leave out \"re:\"", set->option,
                           set->items[i].text);
        if (!set->items[i].has_matched && *set->items[i].near)
            return SW_FAIL(err, SW_E_USAGE, "%s '%s' matches no linear; did you mean '%s'?",
                           set->option, set->items[i].text, set->items[i].near);
        if (!set->items[i].has_matched)
            return SW_FAIL(err, SW_E_USAGE,
                           "%s '%s' matches no linear; swage inspect --tensors lists the names",
                           set->option, set->items[i].text);
    }
    return SW_OK;
}
