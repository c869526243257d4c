/* inspect_linears.c - see inspect_linears.h. */
#include "tools/inspect/inspect_linears.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/mem.h"
#include "formats/base/size.h"
#include "formats/checkpoint/expert_stack.h"
#include "formats/gguf/gguf_model.h"
#include "formats/model/stored.h"
#include "quant/run/scheme.h"

#define CHUNK_ELEMS ((int64_t)4096)
#define NAME_BYTES 600

typedef struct look {
    const sw_checkpoint *ckpt;
    sw_scheme_group *groups;
    int64_t n_groups, n_quantized;
    sw_problem_fn report;
    void *self;
} look;

const char *sw_group_text(char text[160], const sw_scheme_group *group)
{
    const sw_qspec *s = &group->spec;
    char size[40] = "one scale per channel", inputs[48];

    if (!group->is_quantized) {
        (void)snprintf(text, 160, "%s", group->blocks ? group->blocks
                                                      : sw_dtype_name(group->dense_dtype));
        return text;
    }
    if (s->scale_rows == SW_ROWS_ALL) (void)snprintf(size, sizeof size, "one scale per tensor");
    else if (s->scale_rows > 1)
        (void)snprintf(size, sizeof size, "blocks of %lld x %lld", (long long)s->scale_rows,
                       (long long)s->group_elems);
    else if (s->group_elems)
        (void)snprintf(size, sizeof size, "groups of %lld", (long long)s->group_elems);
    (void)snprintf(text, 160, "%s, %s, %sscales %s%s, inputs %s", s->num->name, size,
                   s->is_symmetric ? "" : "zero points, ", sw_dtype_name(s->scale_dtype),
                   s->has_global ? " under a global one" : "", sw_act_text(inputs, &s->act));
    return text;
}

static bool same_group(const sw_scheme_group *a, const sw_scheme_group *b)
{
    if (a->is_quantized != b->is_quantized) return false;
    if (a->is_quantized) return sw_qspec_same(&a->spec, &b->spec);
    return a->dense_dtype == b->dense_dtype && a->blocks == b->blocks;
}

/* The last word of a path, once. */
static void add_leaf(sw_scheme_group *g, const char *path)
{
    const char *dot = strrchr(path, '.'), *leaf = dot ? dot + 1 : path, *at = g->leaves;
    size_t n = strlen(g->leaves), n_leaf = strlen(leaf);

    while ((at = strstr(at, leaf)) != NULL) {
        bool is_whole = (at == g->leaves || at[-1] == ' ') && (!at[n_leaf] || at[n_leaf] == ',');
        if (is_whole) return;
        at += n_leaf;
    }
    if (n + n_leaf + 8 < sizeof g->leaves)
        (void)snprintf(g->leaves + n, sizeof g->leaves - n, "%s%s", n ? ", " : "", leaf);
}

static void add_to_group(look *k, const sw_scheme_group *one, const sw_linear_ref *ref,
                         uint64_t n_bytes, const char *path)
{
    int64_t at = 0;

    while (at < k->n_groups && !same_group(&k->groups[at], one)) at++;
    if (at == SW_GROUPS_MAX) at--; /* the last takes the rest */
    else if (at == k->n_groups) k->groups[k->n_groups++] = *one;
    k->groups[at].n_linears++;
    k->groups[at].n_weights += ref->n_out * ref->k_in;
    k->groups[at].n_bytes += n_bytes;
    add_leaf(&k->groups[at], path);
}

static bool is_same_shape(const sw_cview *v, const sw_part *p)
{
    bool is_single = p->n_dims == 0 || (p->n_dims == 1 && p->shape[0] == 1);

    if (v->dtype != p->dtype) return false;
    if (is_single && sw_view_elems(v) == 1 && v->n_dims <= 1) return true;
    if (v->n_dims != p->n_dims) return false;
    for (int32_t d = 0; d < p->n_dims; d++)
        if (v->shape[d] != p->shape[d]) return false;
    return true;
}

/* Scales: every stored float of the part. E8M0 comes as bytes, of which one is no number. */
static void check_scales(const look *k, const sw_st_tensor *t, const sw_qspec *spec)
{
    bool is_free = sw_qspec_has_free_scales(spec);
    sw_dtype dtype = t->view.dtype == SW_DTYPE_U8 ? SW_DTYPE_F8_E8M0 : t->view.dtype;
    int64_t n = sw_view_elems(&t->view), bytes = sw_dtype_bits(dtype) / 8, n_bad = 0, first = 0;
    float chunk[CHUNK_ELEMS];
    sw_err problem = {0};

    for (int64_t at = 0; at < n; at += CHUNK_ELEMS) {
        int64_t part = sw_min_i64(CHUNK_ELEMS, n - at);
        if (sw_float_decode_n(chunk, (const char *)t->view.data + at * bytes, dtype, part,
                              &problem) != SW_OK)
            return; /* not floats: a problem of the shape, told elsewhere */
        for (int64_t i = 0; i < part; i++)
            if (!(isfinite(chunk[i]) && (chunk[i] > 0 || is_free ||
                                         (spec->has_global && chunk[i] == 0))) &&
                n_bad++ == 0)
                first = at + i;
    }
    if (!n_bad) return;
    (void)SW_FAIL(&problem, SW_E_FORMAT, "tensor %s: %lld of %lld scales are not finite%s, the "
                  "first is element %lld", t->name, (long long)n_bad, (long long)n,
                  is_free ? "" : " or not above zero", (long long)first);
    k->report(k->self, &problem);
}

/* *n_bytes grows by what the part takes; several experts may share a tensor. */
static void check_part(const look *k, uint64_t *n_bytes, const char *path, const sw_part *part,
                       const sw_qspec *spec)
{
    char name[NAME_BYTES];
    sw_stack_place place = {.expert = 0};
    bool is_stacked = k->ckpt->dialect->is_stacked &&
                      sw_stack_find(&place, path, part->suffix);
    sw_part want = is_stacked ? sw_stack_part(part, &place, k->ckpt->model.n_experts) : *part;
    const sw_st_tensor *t;
    char have[128], wanted[128];
    sw_err problem = {0};
    uint64_t bytes = 0;

    (void)snprintf(name, sizeof name, "%s.%s", path, part->suffix);
    t = sw_st_find(k->ckpt->st, is_stacked ? place.name : name);
    if (sw_shape_bytes(&bytes, part->dtype, part->n_dims, part->shape, NULL) == SW_OK && t)
        *n_bytes += bytes;
    if (!t && !part->is_optional)
        (void)SW_FAIL(&problem, SW_E_FORMAT, "tensor %s is missing",
                      is_stacked ? place.name : name);
    if (t && !is_same_shape(&t->view, &want)) {
        sw_cview v = {.dtype = want.dtype, .n_dims = want.n_dims};
        memcpy(v.shape, want.shape, sizeof v.shape);
        sw_view_describe(have, sizeof have, &t->view);
        sw_view_describe(wanted, sizeof wanted, &v);
        (void)SW_FAIL(&problem, SW_E_FORMAT, "tensor %s is %s, the config makes it %s", t->name,
                      have, wanted);
    }
    if (problem.code != SW_OK && !(is_stacked && (place.expert || place.turn)))
        k->report(k->self, &problem);
    else if (problem.code == SW_OK && part->is_scale && !(place.expert || place.turn))
        check_scales(k, t, spec);
}

static sw_code look_quantized(look *k, const sw_linear_ref *ref, const char *path)
{
    sw_part parts[SW_DIALECT_TENSORS_MAX];
    sw_scheme_group one = {.is_quantized = true};
    uint64_t n_bytes = 0;
    sw_err problem = {0};
    int n;

    k->n_quantized++;
    if (sw_checkpoint_stored_spec(&one.spec, k->ckpt, path, ref->n_out, ref->k_in, &problem) !=
        SW_OK) {
        if (problem.code == SW_E_NOMEM) return problem.code;
        sw_err_prefix(&problem, "%s", path);
        k->report(k->self, &problem);
        return SW_OK;
    }
    if (sw_checkpoint_refuse_floats(k->ckpt, path, &problem) != SW_OK) k->report(k->self, &problem);
    n = k->ckpt->dialect->declare(parts, &one.spec, ref->n_out, ref->k_in);
    for (int i = 0; i < n; i++) check_part(k, &n_bytes, path, &parts[i], &one.spec);
    add_to_group(k, &one, ref, n_bytes, path);
    return SW_OK;
}

static void look_dense(look *k, const sw_linear_ref *ref, const char *path)
{
    const sw_checkpoint *c = k->ckpt;
    sw_scheme_group one = {.is_quantized = false};
    sw_block_type type;
    sw_stored stored;
    sw_err problem = {0};

    if (sw_stored_weight(&stored, &c->model, c->st, ref->layer, ref->slot, ref->expert, &problem) !=
        SW_OK) {
        k->report(k->self, &problem);
        return;
    }
    one.dense_dtype = stored.tensor->view.dtype;
    if (c->is_file && sw_gguf_decoded_type(&type, stored.tensor)) {
        one.blocks = sw_block_sizes[type].name;
        add_to_group(k, &one, ref, sw_gguf_stored_bytes(stored.tensor), path);
        return;
    }
    add_to_group(k, &one, ref,
                 (uint64_t)(ref->n_out * ref->k_in * sw_dtype_bits(one.dense_dtype) / 8), path);
}

static int compare_groups(const void *a, const void *b)
{
    const sw_scheme_group *x = a, *y = b;

    return (x->n_weights < y->n_weights) - (x->n_weights > y->n_weights);
}

sw_code sw_inspect_linears(sw_scheme_group groups[SW_GROUPS_MAX], int64_t *n_groups,
                           int64_t *n_quantized, const sw_checkpoint *ckpt, sw_problem_fn report,
                           void *self, sw_err *err)
{
    const sw_model *m = &ckpt->model;
    look k = {.ckpt = ckpt, .groups = groups, .report = report, .self = self};
    sw_code rc = SW_OK;

    for (int64_t layer = 0; layer <= m->n_layers && rc == SW_OK; layer++) {
        int64_t n = sw_model_linears(m, layer, NULL, 0);
        sw_linear_ref *refs = NULL;
        if ((rc = SW_MEM_GET(&refs, n, "linears of a layer", err)) != SW_OK) return rc;
        (void)sw_model_linears(m, layer, refs, n);
        for (int64_t i = 0; i < n && rc == SW_OK; i++) {
            char path[256];
            if (!sw_model_slot_path(path, m, layer, refs[i].slot, refs[i].expert)) continue;
            if (!sw_checkpoint_is_quantized(ckpt, path)) look_dense(&k, &refs[i], path);
            else if (look_quantized(&k, &refs[i], path) != SW_OK)
                rc = SW_FAIL(err, SW_E_NOMEM, "%s: no memory", path);
        }
        sw_mem_put(refs);
    }
    if (k.n_groups) qsort(groups, (size_t)k.n_groups, sizeof *groups, compare_groups);
    *n_groups = k.n_groups;
    *n_quantized = k.n_quantized;
    return rc;
}

static bool has_ending(const char *name, const char *const *endings)
{
    for (; *endings; endings++) {
        size_t n = strlen(name), m = strlen(*endings);
        if (n >= m && !strcmp(name + n - m, *endings)) return true;
    }
    return false;
}

sw_code sw_inspect_unknown(int64_t *n, const char **first, const sw_checkpoint *ckpt, sw_err *err)
{
    static const char *const stacked[] = {"_blocks", "_scales", NULL};
    char *module = NULL;
    sw_code rc = SW_MEM_GET(&module, NAME_BYTES, "module path", err);

    *n = 0;
    *first = NULL;
    for (int64_t i = 0; i < sw_st_count(ckpt->st) && rc == SW_OK; i++) {
        const char *name = sw_st_at(ckpt->st, i)->name, *dot = strrchr(name, '.');
        (void)snprintf(module, NAME_BYTES, "%.*s", dot ? (int)(dot - name) : 0, name);
        if (sw_model_names(&ckpt->model, module, name)) continue;
        if (ckpt->dialect && ckpt->dialect->is_stacked && has_ending(name, stacked)) continue;
        if ((*n)++ == 0) *first = name;
    }
    sw_mem_put(module);
    return rc;
}
