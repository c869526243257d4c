/* family.c - a checkpoint whose family has no row. See checks.h. */
#include <stdio.h>
#include <string.h>

#include "verify/checks/checks.h"

static bool is_linear(const sw_model *m, const char *path)
{
    for (int64_t i = 0; i < m->found->n; i++)
        if (!strcmp(m->found->linears[i].path, path)) return true;
    return false;
}

/* Codes in the place of what is no linear of the original: nobody compares them with anything. */
static sw_code find_strangers(sw_report *report, const sw_subject *checkpoint, sw_err *err)
{
    char last[256] = "";
    sw_code rc = SW_OK;

    for (int64_t i = 0; i < sw_st_count(checkpoint->st) && rc == SW_OK; i++) {
        const char *name = sw_st_at(checkpoint->st, i)->name, *dot = strrchr(name, '.');
        char path[256];

        if (!dot || (size_t)(dot - name) >= sizeof path) continue;
        (void)snprintf(path, sizeof path, "%.*s", (int)(dot - name), name);
        if (!strcmp(path, last) ||
            !sw_spec_is_quantized(&checkpoint->scheme, checkpoint->st, path))
            continue;
        (void)snprintf(last, sizeof last, "%s", path);
        if (!is_linear(&checkpoint->model, path))
            rc = sw_report_find(report, "not judged", path, err, "%s is quantized, but of a model "
                                "whose model_type is not known it is no linear: it was not "
                                "compared with the original", path);
    }
    return rc;
}

sw_code sw_verify_family(sw_report *report, sw_subject *checkpoint, sw_subject *original,
                         const sw_verify_options *options, sw_err *err)
{
    const bool is_unknown = checkpoint->model.arch == &sw_arch_unknown;
    sw_code rc = SW_OK;

    if (is_unknown && (options->n_texts || options->n_tasks))
        return SW_FAIL(err, SW_E_UNSUPPORTED, "%s: its model_type is not known, so no logits can "
                       "be computed; leave out text and tasks, and its weights are checked, or "
                       "give --arch-like FAMILY", options->checkpoint_dir);
    if (original) rc = sw_subject_find_linears(original, NULL, err);
    if (!is_unknown || rc != SW_OK) return rc;
    if ((rc = sw_subject_find_linears(checkpoint, original, err)) != SW_OK) return rc;
    report->note = "model_type is not known: no logits were checked, only files and weights";
    if (!original || !checkpoint->is_quantized || !original->model.found) return SW_OK;
    return find_strangers(report, checkpoint, err);
}
