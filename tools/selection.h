/* selection.h - which linears of a model get quantized, and whether all of them can be.
 *
 * Everything that can be known before the work starts is checked here: patterns that match
 * nothing, group sizes that do not divide, layouts that cannot hold a shape, fused groups that
 * would be half quantized.
 */
#ifndef SW_TOOLS_SELECTION_H
#define SW_TOOLS_SELECTION_H

#include "formats/dialect/checkpoint.h"
#include "tools/opt.h"

typedef struct sw_selection {
    sw_ckpt_linear *linears; /* to be quantized, in path order */
    int64_t n_linears;
    const char **ignored;    /* module paths of linears that stay as they are, in path order */
    int64_t n_ignored;
    int64_t n_weights;       /* elements of all selected linears */
    sw_arena arena;
} sw_selection;

/* `patterns` are PCRE2 expressions searched anywhere in a module path; a plain piece of a path is
 * one too. SW_E_USAGE: a pattern that is wrong or matches no linear, a fused group that is only
 * partly ignored, nothing left to quantize. SW_E_UNSUPPORTED: a linear that the group size or the
 * dialect cannot serve; says which and what to do. */
sw_code sw_selection_new(sw_selection *out, const sw_model *model, const sw_qspec *spec,
                         const sw_dialect *dialect, const sw_opt_list *patterns,
                         sw_err *err) SW_MUST_USE;
void sw_selection_free(sw_selection *selection); /* accepts a zeroed one */
bool sw_selection_has(const sw_selection *selection, const char *module_path);

#endif
