/* group_sizes.c - see group_sizes.h. */
#include "tools/recipe/group_sizes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/mem.h"
#include "quant/run/scheme.h"

#define SCHEMES_NAMED_MAX 6

const char *sw_name_of_group(int i)
{
    static const char *const names[] = {"32", "64", "128", "channel", NULL};
    return names[i];
}

int64_t sw_group_of_name(const char *name) { return strtol(name, NULL, 10); }

static bool fits_layer(const sw_group_question *of, const sw_qspec *spec, int64_t layer)
{
    int64_t n = sw_model_linears(of->model, layer, NULL, 0);
    sw_linear_ref *refs = NULL;
    sw_err ignored = {0};
    bool fits = SW_MEM_GET(&refs, n, "linears of a block", &ignored) == SW_OK;

    if (fits) (void)sw_model_linears(of->model, layer, refs, n);
    for (int64_t i = 0; i < n && fits; i++)
        fits = (!spec->group_elems || refs[i].k_in % spec->group_elems == 0) &&
               of->dialect->can_hold(spec, refs[i].n_out, refs[i].k_in, NULL) == SW_OK;
    sw_mem_put(refs);
    return fits;
}

static bool fits_all(const sw_group_question *of, const sw_qspec *spec)
{
    for (int64_t layer = 0; layer < of->model->n_layers + of->with_head; layer++)
        if (!fits_layer(of, spec, layer)) return false;
    return true;
}

/* "A, B or C": texts are added one at a time, and the last comma becomes a word at the end. */
typedef struct word_list {
    char text[128];
    size_t at, last_comma;
    int n;
} word_list;

static void add_word(word_list *list, const char *word)
{
    size_t room = sizeof list->text - list->at;

    if (strlen(word) + 8 > room) return;
    if (list->n) list->last_comma = list->at;
    list->at += (size_t)snprintf(list->text + list->at, room, "%s%s", list->n ? ", " : "", word);
    list->n++;
}

static void end_words(word_list *list)
{
    char last[64];

    if (list->n < 2) return;
    (void)snprintf(last, sizeof last, "%s", list->text + list->last_comma + 2);
    (void)snprintf(list->text + list->last_comma, sizeof list->text - list->last_comma, " or %s",
                   last);
}

static void find_sizes(word_list *list, const sw_group_question *of, const sw_qspec *spec)
{
    for (int i = 0; sw_name_of_group(i); i++) {
        sw_qspec other = *spec;
        other.group_elems = sw_group_of_name(sw_name_of_group(i));
        if (fits_all(of, &other)) add_word(list, sw_name_of_group(i));
    }
    end_words(list);
}

/* Schemes of the same number of bits first. */
static void find_schemes(word_list *list, const sw_group_question *of, const sw_qspec *spec)
{
    for (int same = 1; same >= 0; same--)
        for (int i = 0; i < sw_n_schemes && list->n < SCHEMES_NAMED_MAX; i++) {
            sw_qspec other = sw_scheme_spec(&sw_schemes[i]);
            if ((other.num->bits == spec->num->bits) != same) continue;
            sw_dialect_fit_spec(&other, of->dialect, of->model->dtype);
            if (fits_all(of, &other)) add_word(list, sw_schemes[i].name);
        }
    end_words(list);
}

char *sw_group_advice(char out[SW_GROUP_ADVICE_BYTES], const sw_group_question *of,
                      const sw_qspec *spec)
{
    bool is_fixed = spec->num->kind == SW_NUM_FLOAT;
    word_list list = {.n = 0};

    if (is_fixed)
        find_schemes(&list, of, spec);
    else
        find_sizes(&list, of, spec);
    if (!list.n)
        (void)snprintf(out, SW_GROUP_ADVICE_BYTES, "no %s in %s fits every linear here; leave it "
                       "out with --ignore, or use another --format",
                       is_fixed ? "scheme" : "--group-size", of->dialect->name);
    else if (is_fixed)
        (void)snprintf(out, SW_GROUP_ADVICE_BYTES, "the scheme fixes its groups; %s fits every "
                       "linear here, or leave it out with --ignore", list.text);
    else
        (void)snprintf(out, SW_GROUP_ADVICE_BYTES, "--group-size %s fits every linear here, or "
                       "leave it out with --ignore", list.text);
    return out;
}
