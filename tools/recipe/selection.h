/* selection.h - which linears of a model get quantized, and whether all of them can be.
 *
 * Everything that can be known before the work starts is checked here: patterns that match
 * nothing, group sizes that do not divide, layouts that cannot hold a shape, fused groups that
 * would be half quantized.
 */
#ifndef SW_TOOLS_RECIPE_SELECTION_H
#define SW_TOOLS_RECIPE_SELECTION_H

#include "formats/checkpoint/checkpoint.h"
#include "quant/run/scheme.h"
#include "tools/cli/opt.h"

/* What a recipe changes for the linears whose path a pattern matches. */
typedef struct sw_override {
    const char *match;   /* PCRE2, searched anywhere in a module path */
    bool is_ignored;     /* leave them alone */
    const sw_scheme *scheme; /* NULL: as all others; else what follows changes this one */
    int bits;            /* 0: as all others */
    int64_t group_elems; /* SW_GROUP_KEEP: as all others; 0: one group per channel */
    int symmetry;        /* 0: as all others, 1: symmetric, 2: with zero points */
    double outlier_share; /* of the input channels; SW_SHARE_KEEP: as all others */
    int mx_rule;         /* 0: as all others; else 1 + sw_qspec.pow2_rule */
} sw_override;
#define SW_SHARE_KEEP (-1.0)
#define SW_OUTLIER_SHARE_MAX 0.25 /* beyond it, more bits serve better */
#define SW_GROUP_KEEP (-1)

/* What is asked for: a scheme for all, what differs from it, and what is left alone. Borrowed. */
typedef struct sw_selection_request {
    const sw_qspec *spec;
    const sw_override *overrides; /* applied in order, each over those before it */
    int n_overrides;
    const sw_opt_list *ignore;    /* patterns like sw_override.match */
    double outlier_share;         /* of the input channels of each linear */
    bool has_positive_scales;     /* schemes of overrides choose no negative ones either */
    bool with_head;               /* the head is a linear like others, not left alone */
    const sw_st *st;              /* tensors of the checkpoint: to ignore those outside the decoder,
                                   * as a vision tower, is no mistake; NULL: not looked at */
} sw_selection_request;

typedef struct sw_selection {
    sw_ckpt_linear *linears; /* to be quantized, in path order, each with its spec */
    int64_t n_linears;
    const char **ignored;    /* module paths of linears that stay as they are, in path order */
    int64_t n_ignored;
    int64_t n_by_pattern;    /* of those, by a pattern of the request */
    int64_t n_weights;       /* elements of all selected linears */
    bool has_head;           /* the head is among the selected */
    sw_arena arena;
} sw_selection;

/* A plain piece of a path is a pattern too. SW_E_USAGE: the head is wanted and is the embedding; a
 * pattern that is wrong or matches no linear, a fused group that is only partly ignored or gets two
 * schemes, nothing left to quantize.
 * Schemes of floats have neither width nor groups nor symmetry to change.
 * SW_E_UNSUPPORTED: a linear that the group size or the dialect cannot serve; says which and what
 * to do. */
sw_code sw_selection_new(sw_selection *out, const sw_model *model,
                         const sw_selection_request *request, const sw_dialect *dialect,
                         sw_err *err) SW_MUST_USE;
void sw_selection_free(sw_selection *selection); /* accepts a zeroed one */
bool sw_selection_has(const sw_selection *selection, const char *module_path);
/* What the linear becomes; NULL when it is not selected. */
const sw_qspec *sw_selection_spec(const sw_selection *selection, const char *module_path);
/* Give a selected linear another spec, borrowed; the caller has checked that it fits. */
void sw_selection_assign(sw_selection *selection, const char *module_path, const sw_qspec *spec);
/* true when not all linears become the same. */
bool sw_selection_is_mixed(const sw_selection *selection);
#define SW_SPEC_TEXT_BYTES 128
/* "4 bits, group 128, symmetric", "e4m3, per tensor"; returns `out`. */
char *sw_qspec_text(char out[SW_SPEC_TEXT_BYTES], const sw_qspec *spec);

#endif
