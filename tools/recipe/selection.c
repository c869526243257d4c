/* selection.c - see selection.h. */
#include "tools/recipe/selection.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cli/pattern_set.h"
#include "tools/recipe/group_sizes.h"

typedef struct builder {
    sw_selection *out;
    const sw_model *model;
    const sw_selection_request *request;
    const sw_dialect *dialect;
    sw_pattern_set ignore, overrides;
    sw_err *err;
} builder;

/* What becomes of one linear of a layer. */
typedef struct fate {
    bool is_kept;
    const sw_qspec *spec; /* when kept */
} fate;

static int compare_linears(const void *a, const void *b)
{
    return strcmp(((const sw_ckpt_linear *)a)->module_path,
                  ((const sw_ckpt_linear *)b)->module_path);
}

static int compare_paths(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Which weights share a scale. */
static void scope_text(char *out, size_t size, const sw_qspec *spec)
{
    long long group = (long long)spec->group_elems, rows = (long long)spec->scale_rows;

    if (spec->scale_rows == SW_ROWS_ALL)
        (void)snprintf(out, size, "per tensor");
    else if (rows > 1)
        (void)snprintf(out, size, "blocks of %lld x %lld", rows, group);
    else if (group)
        (void)snprintf(out, size, "group %lld", group);
    else
        (void)snprintf(out, size, "per channel");
}

char *sw_qspec_text(char out[SW_SPEC_TEXT_BYTES], const sw_qspec *spec)
{
    char scope[56], kept[40] = "";

    scope_text(scope, sizeof scope, spec);
    if (spec->n_outliers)
        (void)snprintf(kept, sizeof kept, ", %lld outliers", (long long)spec->n_outliers);
    if (spec->num->kind == SW_NUM_INT)
        (void)snprintf(out, SW_SPEC_TEXT_BYTES, "%d bits, %s, %s%s", spec->num->bits, scope,
                       spec->is_symmetric ? "symmetric" : "with zero points", kept);
    else
        (void)snprintf(out, SW_SPEC_TEXT_BYTES, "%s, %s%s%s", spec->num->name, scope,
                       spec->is_pow2_scale ? ", scales powers of two" : "", kept);
    return out;
}

static sw_code check_fit(const builder *b, const sw_linear_ref *ref, const sw_qspec *spec,
                         const char *path)
{
    const sw_group_question of = {b->model, b->dialect, b->request->with_head};
    int64_t group = spec->group_elems;
    char advice[SW_GROUP_ADVICE_BYTES];
    sw_code rc;

    if (group && ref->k_in % group != 0)
        return SW_FAIL(b->err, SW_E_UNSUPPORTED, "%s: groups of %lld do not divide its %lld "
                       "inputs; %s", path, (long long)group, (long long)ref->k_in,
                       sw_group_advice(advice, &of, spec));
    rc = b->dialect->can_hold(spec, ref->n_out, ref->k_in, b->err);
    if (rc != SW_OK) sw_err_prefix(b->err, "%s", path);
    return rc;
}

/* A whole scheme in place of the one that all have. */
static void apply_scheme(sw_qspec *spec, const builder *b, const sw_scheme *scheme)
{
    *spec = sw_scheme_spec(scheme);
    if (b->request->has_positive_scales) spec->is_sign_free = false;
    sw_dialect_fit_spec(spec, b->dialect, b->model->dtype);
}

static sw_code check_change(const sw_qspec *spec, const sw_override *o, sw_err *err)
{
    const bool is_shape = o->bits || o->symmetry || o->group_elems != SW_GROUP_KEEP;

    if (o->mx_rule && !spec->is_pow2_scale)
        return SW_FAIL(err, SW_E_USAGE, "override '%s': mx_scale is for scales that are powers of "
                       "two, and those of this scheme are not", o->match);
    if (is_shape && spec->num->kind != SW_NUM_INT)
        return SW_FAIL(err, SW_E_USAGE, "override '%s': a scheme of floats fixes width, groups and "
                       "symmetry; give another scheme instead", o->match);
    return SW_OK;
}

static sw_code apply(sw_qspec *spec, bool *is_ignored, double *outlier_share, const builder *b,
                     const sw_override *o)
{
    sw_code rc;

    if (o->scheme) apply_scheme(spec, b, o->scheme);
    if ((rc = check_change(spec, o, b->err)) != SW_OK) return rc;
    if (o->outlier_share >= 0) *outlier_share = o->outlier_share;
    if (o->is_ignored) *is_ignored = true;
    if (o->bits) spec->num = sw_num_by_bits(o->bits);
    if (o->group_elems != SW_GROUP_KEEP) spec->group_elems = o->group_elems;
    if (o->symmetry) spec->is_symmetric = o->symmetry == 1;
    if (o->mx_rule) spec->pow2_rule = o->mx_rule - 1;
    return SW_OK;
}

/* Every pattern is tried on every path, so that one which never matches is found out. */
static sw_code decide(sw_qspec *spec, bool *is_ignored, builder *b, const sw_linear_ref *ref,
                      const char *path)
{
    double outlier_share = b->request->outlier_share;
    sw_code rc = SW_OK;

    *spec = *b->request->spec;
    *is_ignored = sw_pattern_set_match(&b->ignore, path);
    for (int i = 0; i < b->request->n_overrides && rc == SW_OK; i++)
        if (sw_pattern_set_match_at(&b->overrides, i, path))
            rc = apply(spec, is_ignored, &outlier_share, b, &b->request->overrides[i]);
    spec->n_outliers = llround(outlier_share * (double)ref->k_in);
    return rc;
}

/* One linear: into the list of those to quantize, or of those left alone. */
static sw_code add_linear(builder *b, const sw_linear_ref *ref, fate *fate_out)
{
    sw_selection *out = b->out;
    bool is_ignored;
    char path[256];
    char *copy;
    sw_qspec *spec;
    sw_code rc;

    if (!sw_model_slot_path(path, b->model, ref->layer, ref->slot, ref->expert))
        return SW_FAIL(b->err, SW_E_BUG, "a linear without a path");
    if ((rc = sw_arena_text(&copy, &out->arena, path, strlen(path), b->err)) != SW_OK) return rc;
    if ((rc = SW_ARENA_TAKE(&spec, &out->arena, 1, b->err)) != SW_OK) return rc;
    if ((rc = decide(spec, &is_ignored, b, ref, path)) != SW_OK) return rc;
    if (is_ignored) {
        out->ignored[out->n_ignored++] = copy;
        out->n_by_pattern++;
        return SW_OK;
    }
    if ((rc = check_fit(b, ref, spec, path)) != SW_OK) return rc;
    out->linears[out->n_linears].module_path = copy;
    out->linears[out->n_linears].n_out = ref->n_out;
    out->linears[out->n_linears].spec = spec;
    out->linears[out->n_linears++].k_in = ref->k_in;
    out->n_weights += ref->n_out * ref->k_in;
    *fate_out = (fate){true, spec};
    return SW_OK;
}

/* Engines load q, k, v (and gate, up) as one matrix, so they share one scheme or none. */
static sw_code check_fused(const builder *b, const sw_linear_ref *refs, const fate *fates,
                           int64_t i)
{
    char path[256], other[256], text[SW_SPEC_TEXT_BYTES], other_text[SW_SPEC_TEXT_BYTES];

    for (int64_t j = i - 1; j >= 0 && refs[j].site == refs[i].site &&
                            refs[j].expert == refs[i].expert; j--) {
        bool is_same = fates[j].is_kept == fates[i].is_kept;
        if (is_same && (!fates[i].is_kept || sw_qspec_same(fates[i].spec, fates[j].spec))) continue;
        (void)sw_model_slot_path(path, b->model, refs[i].layer, refs[i].slot, refs[i].expert);
        (void)sw_model_slot_path(other, b->model, refs[j].layer, refs[j].slot, refs[j].expert);
        if (is_same)
            return SW_FAIL(b->err, SW_E_USAGE,
                           "overrides give %s %s, but %s %s; engines load the two as one, so give "
                           "both the same", other, sw_qspec_text(other_text, fates[j].spec), path,
                           sw_qspec_text(text, fates[i].spec));
        return SW_FAIL(b->err, SW_E_USAGE,
                       "%s is left alone but not %s; engines load the two as one, so ignore both "
                       "or neither",
                       fates[i].is_kept ? other : path, fates[i].is_kept ? path : other);
    }
    return SW_OK;
}

/* Routers and others that engines keep in floats. */
static sw_code add_kept(builder *b, int64_t layer)
{
    sw_slot kept[SW_KEPT_MAX];
    const int n = sw_model_kept_linears(b->model, layer, kept, SW_KEPT_MAX);
    char path[256];
    char *copy;
    sw_code rc = SW_OK;

    for (int i = 0; i < n && rc == SW_OK; i++) {
        if (!sw_model_slot_path(path, b->model, layer, kept[i], -1)) continue;
        if ((rc = sw_arena_text(&copy, &b->out->arena, path, strlen(path), b->err)) == SW_OK)
            b->out->ignored[b->out->n_ignored++] = copy;
    }
    return rc;
}

static sw_code leave(builder *b, const char *path, size_t n)
{
    char *copy;
    sw_code rc = sw_arena_text(&copy, &b->out->arena, path, n, b->err);

    if (rc == SW_OK) b->out->ignored[b->out->n_ignored++] = copy;
    return rc;
}

/* Of a family without a row: what names and shapes say is no linear, and what they leave open,
 * which only the user can leave out. */
static sw_code add_found(builder *b)
{
    const sw_found *f = b->model->found;
    sw_code rc = SW_OK;

    for (int64_t i = 0; i < f->n_kept && rc == SW_OK; i++)
        rc = leave(b, f->kept[i], strlen(f->kept[i]));
    for (int64_t i = 0; i < f->n_unclear && rc == SW_OK; i++) {
        const char *name = f->unclear[i].name, *end = strstr(name, ".weight");

        if (!sw_pattern_set_match(&b->ignore, name))
            return SW_FAIL(b->err, SW_E_UNSUPPORTED, "%s: %s. Leave it out, --ignore '%s', or say "
                           "what the model is like, --arch-like FAMILY", name, f->unclear[i].why,
                           name);
        rc = leave(b, name, end ? (size_t)(end - name) : strlen(name));
        b->out->n_by_pattern++;
    }
    return rc;
}

static sw_code add_layer(builder *b, int64_t layer)
{
    int64_t n = sw_model_linears(b->model, layer, NULL, 0);
    sw_linear_ref *refs = NULL;
    fate *fates = NULL;
    sw_code rc;

    if ((rc = SW_MEM_GET(&refs, n, "linears of a block", b->err)) != SW_OK ||
        (rc = SW_MEM_GET(&fates, n, "linears of a block", b->err)) != SW_OK)
        goto done;
    (void)sw_model_linears(b->model, layer, refs, n);
    for (int64_t i = 0; i < n && rc == SW_OK; i++)
        if ((rc = add_linear(b, &refs[i], &fates[i])) == SW_OK)
            rc = check_fused(b, refs, fates, i);
    if (rc == SW_OK) rc = add_kept(b, layer);
done:
    sw_mem_put(refs);
    sw_mem_put(fates);
    return rc;
}

/* The head comes after the last block, when it is wanted; else it is left alone. */
static sw_code add_head(builder *b)
{
    const sw_model *m = b->model;
    const char *path = sw_model_end(m, SW_END_HEAD);
    char *copy;
    sw_code rc;

    if (!b->request->with_head && m->is_tied) return SW_OK;
    if (!b->request->with_head) { /* a copy, for the selection may outlive the model */
        rc = sw_arena_text(&copy, &b->out->arena, path, strlen(path), b->err);
        if (rc == SW_OK) b->out->ignored[b->out->n_ignored++] = copy;
        return rc;
    }
    if (m->is_tied)
        return SW_FAIL(b->err, SW_E_USAGE, "--lm-head: lm_head of this model is its embedding "
                       "(tie_word_embeddings), which engines read as floats; leave the option "
                       "out");
    rc = add_layer(b, m->n_layers);
    b->out->has_head = rc == SW_OK && b->out->n_linears &&
                       !strcmp(b->out->linears[b->out->n_linears - 1].module_path, path);
    return rc;
}

/* Who asks for what stays in any case, the head or a router, has what was asked for: recipes that
 * other programs publish name both. A tied head has a name too, and so has what lies outside the
 * decoder. */
static void match_what_stays(builder *b)
{
    const char *head = b->model->found ? NULL : sw_model_end(b->model, SW_END_HEAD);

    for (int64_t i = 0; i < b->out->n_ignored; i++)
        (void)sw_pattern_set_match(&b->ignore, b->out->ignored[i]);
    if (head && !b->out->has_head) (void)sw_pattern_set_match(&b->ignore, head);
    for (int64_t i = 0; b->request->st && i < sw_st_count(b->request->st); i++) {
        const char *name = sw_st_at(b->request->st, i)->name;

        if (!sw_model_owns(b->model, name)) (void)sw_pattern_set_match(&b->ignore, name);
    }
}

/* What a pattern may have meant: the piece of a linear's path that is nearest to it. */
static void offer_pieces(builder *b)
{
    for (int64_t i = 0; i < b->out->n_linears; i++) {
        sw_pattern_set_offer(&b->ignore, b->out->linears[i].module_path);
        sw_pattern_set_offer(&b->overrides, b->out->linears[i].module_path);
    }
    for (int64_t i = 0; i < b->out->n_ignored; i++)
        sw_pattern_set_offer(&b->ignore, b->out->ignored[i]);
    for (int64_t i = 0; b->request->st && i < sw_st_count(b->request->st); i++)
        if (!sw_model_owns(b->model, sw_st_at(b->request->st, i)->name))
            sw_pattern_set_offer(&b->ignore, sw_st_at(b->request->st, i)->name);
}

static sw_code build(builder *b)
{
    sw_selection *out = b->out;
    const sw_found *f = b->model->found;
    int64_t n_max = f ? f->n_kept + f->n_unclear : 0;
    sw_code rc;

    for (int64_t layer = 0; layer <= b->model->n_layers; layer++)
        n_max += sw_model_linears(b->model, layer, NULL, 0) + SW_KEPT_MAX;
    if ((rc = SW_ARENA_TAKE(&out->linears, &out->arena, n_max, b->err)) != SW_OK ||
        (rc = SW_ARENA_TAKE(&out->ignored, &out->arena, n_max, b->err)) != SW_OK)
        return rc;
    for (int64_t layer = 0; layer < b->model->n_layers; layer++)
        if ((rc = add_layer(b, layer)) != SW_OK) return rc;
    if ((rc = f ? add_found(b) : add_head(b)) != SW_OK) return rc;
    match_what_stays(b);
    offer_pieces(b);
    if ((rc = sw_pattern_set_check(&b->ignore, b->err)) != SW_OK ||
        (rc = sw_pattern_set_check(&b->overrides, b->err)) != SW_OK)
        return rc;
    if (!out->n_linears && f && !f->n)
        return SW_FAIL(b->err, SW_E_UNSUPPORTED, "no linear was found: no matrix lies in a list of "
                       "layers (*.layers.0.*, *.h.0.*, *.blocks.0.*) and is called as one; "
                       "--arch-like FAMILY says where they are");
    if (!out->n_linears)
        return SW_FAIL(b->err, SW_E_USAGE, "--ignore leaves nothing to quantize");
    qsort(out->linears, (size_t)out->n_linears, sizeof *out->linears, compare_linears);
    qsort(out->ignored, (size_t)out->n_ignored, sizeof *out->ignored, compare_paths);
    return SW_OK;
}

static sw_code compile_overrides(builder *b)
{
    const sw_selection_request *r = b->request;
    const char **texts = NULL;
    sw_code rc = SW_ARENA_TAKE(&texts, &b->out->arena, r->n_overrides, b->err);

    if (rc != SW_OK) return rc;
    for (int i = 0; i < r->n_overrides; i++) texts[i] = r->overrides[i].match;
    return sw_pattern_set_new(&b->overrides, texts, r->n_overrides, "override", b->err);
}

sw_code sw_selection_new(sw_selection *out, const sw_model *model,
                         const sw_selection_request *request, const sw_dialect *dialect,
                         sw_err *err)
{
    builder b = {.out = out, .model = model, .request = request, .dialect = dialect, .err = err};
    const sw_opt_list *ignore = request->ignore;
    sw_code rc;

    memset(out, 0, sizeof *out);
    rc = sw_pattern_set_new(&b.ignore, ignore->items, ignore->n, "--ignore", err);
    if (rc == SW_OK && (rc = compile_overrides(&b)) == SW_OK) rc = build(&b);
    sw_pattern_set_free(&b.ignore);
    sw_pattern_set_free(&b.overrides);
    if (rc != SW_OK) sw_selection_free(out);
    return rc;
}

void sw_selection_free(sw_selection *selection)
{
    sw_arena_free(&selection->arena);
    memset(selection, 0, sizeof *selection);
}

static sw_ckpt_linear *find_linear(const sw_selection *selection, const char *module_path)
{
    sw_ckpt_linear key = {.module_path = module_path};

    if (!selection->n_linears) return NULL;
    return bsearch(&key, selection->linears, (size_t)selection->n_linears,
                   sizeof *selection->linears, compare_linears);
}

const sw_qspec *sw_selection_spec(const sw_selection *selection, const char *module_path)
{
    const sw_ckpt_linear *at = find_linear(selection, module_path);

    return at ? at->spec : NULL;
}

void sw_selection_assign(sw_selection *selection, const char *module_path, const sw_qspec *spec)
{
    sw_ckpt_linear *at = find_linear(selection, module_path);

    if (at) at->spec = spec;
}

bool sw_selection_has(const sw_selection *selection, const char *module_path)
{
    return sw_selection_spec(selection, module_path) != NULL;
}

bool sw_selection_is_mixed(const sw_selection *selection)
{
    for (int64_t i = 1; i < selection->n_linears; i++)
        if (!sw_qspec_same(selection->linears[i].spec, selection->linears[0].spec)) return true;
    return false;
}
