/* writer_declare.c - in which order the tensors of the output are announced, which is that in which
 * they lie in it.
 *
 * It is the order in which they are made, so that the digest of a file can follow its writing:
 * first what belongs to no block and is copied while the first block is made; then block by block,
 * of each what is no linear, then its linears as the model has them; then a head that is quantized.
 * Names decide it, and which linears are claimed, but neither where the source has a tensor nor who
 * asks: whatever is converted and converted back is the same file again.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/base/mem.h"
#include "formats/checkpoint/writer/writer_internal.h"

static sw_code declare_claim(sw_ckpt_writer *w, sw_claim *c, sw_err *err)
{
    sw_part parts[SW_DIALECT_TENSORS_MAX];
    const bool is_turned = sw_claim_is_turned(w, c);
    const int n = is_turned ? w->dialect->declare(parts, &c->spec, c->k_in, c->n_out)
                            : w->dialect->declare(parts, &c->spec, c->n_out, c->k_in);
    sw_code rc = SW_OK;

    if (w->dialect->is_stacked) rc = sw_writer_declare_stacks(w, c, err);
    for (int i = 0; i < n && rc == SW_OK && !w->dialect->is_stacked; i++) {
        char name[SW_PART_NAME_BYTES];
        if ((rc = sw_part_name(name, c->module_path, parts[i].suffix, err)) == SW_OK)
            rc = sw_st_writer_declare(w->st, name, parts[i].dtype, parts[i].n_dims, parts[i].shape,
                                      err);
    }
    c->is_put = true; /* stands for "declared" here; cleared before any is put */
    return rc == SW_OK ? sw_writer_declare_bias(w, c, err) : rc;
}

/* --- the order of linears --- */

typedef struct module {
    const char *path;
    int64_t place; /* among all linears of the model */
} module;

typedef struct modules {
    module *all; /* by path */
    int64_t n;
    sw_arena arena; /* paths */
} modules;

static int compare_modules(const void *a, const void *b)
{
    return strcmp(((const module *)a)->path, ((const module *)b)->path);
}

static sw_code add_layer(modules *m, const sw_model *model, int64_t layer, sw_err *err)
{
    int64_t n = sw_model_linears(model, layer, NULL, 0);
    sw_linear_ref *refs = NULL;
    sw_code rc = SW_MEM_GET(&refs, n, "linears of a layer", err);

    if (rc == SW_OK) n = sw_model_linears(model, layer, refs, n);
    for (int64_t i = 0; i < n && rc == SW_OK; i++) {
        char path[256], *kept = NULL;
        if (!sw_model_slot_path(path, model, layer, refs[i].slot, refs[i].expert)) continue;
        rc = sw_arena_text(&kept, &m->arena, path, strlen(path), err);
        if (rc == SW_OK) m->all[m->n] = (module){kept, m->n};
        if (rc == SW_OK) m->n++;
    }
    sw_mem_put(refs);
    return rc;
}

static sw_code find_modules(modules *m, const sw_model *model, sw_err *err)
{
    int64_t n = 0;
    sw_code rc;

    for (int64_t layer = 0; layer <= model->n_layers; layer++)
        n += sw_model_linears(model, layer, NULL, 0);
    rc = SW_MEM_GET(&m->all, n, "linears of the model", err);
    for (int64_t layer = 0; layer <= model->n_layers && rc == SW_OK; layer++)
        rc = add_layer(m, model, layer, err);
    if (rc == SW_OK && m->n) qsort(m->all, (size_t)m->n, sizeof *m->all, compare_modules);
    return rc;
}

static void free_modules(modules *m)
{
    sw_mem_put(m->all);
    sw_arena_free(&m->arena);
}

/* -1: the model has no linear of this path. */
static int64_t place_of(const modules *m, const char *path)
{
    const module key = {.path = path};
    const module *found = m->n ? bsearch(&key, m->all, (size_t)m->n, sizeof key, compare_modules)
                               : NULL;

    return found ? found->place : -1;
}

/* Of the linear that a tensor belongs to by its name. */
static int64_t place_of_tensor(const modules *m, const char *name)
{
    const char *dot = strrchr(name, '.');
    char path[SW_PART_NAME_BYTES];
    const size_t n = dot ? (size_t)(dot - name) : 0;

    if (!n || n >= sizeof path) return -1;
    memcpy(path, name, n);
    path[n] = '\0';
    return place_of(m, path);
}

/* --- the order --- */

/* A tensor of the source, and what decides where the tensors go that it becomes. */
typedef struct placed {
    const char *name;
    const char *number; /* of its block, in the name; NULL: it belongs to none */
    size_t n_digits;
    int64_t at;    /* in the source */
    int64_t place; /* of its linear in the model; -1: it is no linear's */
    bool is_claimed;
} placed;

/* Before all blocks, in one, behind them all. */
static int group_of(const placed *p) { return p->number ? 1 : p->is_claimed ? 2 : 0; }

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* The first number that is a component of the name: "12" in "model.layers.12.mlp.up.weight". */
static void find_block(placed *p)
{
    for (const char *at = p->name; at; at = strchr(at, '.')) {
        size_t n = 0;
        if (*at == '.') at++;
        while (is_digit(at[n])) n++;
        if (!n || at[n] != '.') continue;
        p->number = at;
        p->n_digits = n;
        return;
    }
}

/* Numbers have no leading zeros where they matter, so the longer is the larger. */
static int compare_blocks(const placed *a, const placed *b)
{
    size_t n_a, n_b, n;
    int differ;

    if (group_of(a) != group_of(b)) return group_of(a) < group_of(b) ? -1 : 1;
    if (!a->number || !b->number) return 0;
    n_a = (size_t)(a->number - a->name);
    n_b = (size_t)(b->number - b->name);
    n = n_a < n_b ? n_a : n_b;
    if ((differ = memcmp(a->name, b->name, n)) != 0) return differ;
    if (n_a != n_b) return n_a < n_b ? -1 : 1;
    if (a->n_digits != b->n_digits) return a->n_digits < b->n_digits ? -1 : 1;
    return memcmp(a->number, b->number, a->n_digits);
}

static int compare_placed(const void *left, const void *right)
{
    const placed *a = left, *b = right;
    const int differ = compare_blocks(a, b);

    if (differ) return differ;
    if (a->place != b->place) return a->place < b->place ? -1 : 1;
    return strcmp(a->name, b->name);
}

/* What several claims share goes with the first of them. */
static placed place_tensor(const sw_ckpt_writer *w, const modules *m, int64_t at)
{
    const int32_t claim = w->claim_of[at];
    placed p = {.name = sw_st_at(w->source->st, at)->name, .at = at, .is_claimed = claim >= 0};

    p.place = claim >= 0 ? w->claims[claim].place : place_of_tensor(m, p.name);
    find_block(&p);
    return p;
}

static sw_code sort_tensors(sw_ckpt_writer *w, const modules *m, sw_err *err)
{
    const int64_t n = sw_st_count(w->source->st);
    placed *all = NULL;
    sw_code rc = SW_ARENA_TAKE(&w->order, &w->arena, n, err);

    if (rc == SW_OK) rc = SW_MEM_GET(&all, n, "order of tensors", err);
    if (rc != SW_OK) return rc;
    for (int64_t i = 0; i < n; i++) all[i] = place_tensor(w, m, i);
    if (n) qsort(all, (size_t)n, sizeof *all, compare_placed);
    for (int64_t i = 0; i < n; i++) w->order[i] = all[i].at;
    sw_mem_put(all);
    return SW_OK;
}

static int compare_claims(const void *left, const void *right)
{
    const sw_claim *a = *(const sw_claim *const *)left, *b = *(const sw_claim *const *)right;

    if (a->place != b->place) return a->place < b->place ? -1 : 1;
    return strcmp(a->module_path, b->module_path);
}

/* *claims: in that order, and not by path. */
static sw_code sort_all(sw_claim ***claims, sw_ckpt_writer *w, sw_err *err)
{
    const int64_t n = w->n_claims;
    modules m = {.all = NULL};
    sw_code rc = find_modules(&m, &w->source->model, err);

    if (rc == SW_OK) rc = SW_MEM_GET(claims, n, "order of linears", err);
    for (int64_t i = 0; i < n && rc == SW_OK; i++) {
        w->claims[i].place = place_of(&m, w->claims[i].module_path);
        (*claims)[i] = &w->claims[i];
    }
    if (rc == SW_OK && n) qsort(*claims, (size_t)n, sizeof **claims, compare_claims);
    if (rc == SW_OK) rc = sort_tensors(w, &m, err);
    free_modules(&m);
    return rc;
}

/* --- announcing --- */

/* The claim that took tensor i, or all claims that lie in it. */
static sw_code declare_claimed(sw_ckpt_writer *w, int64_t i, sw_claim *const *claims, sw_err *err)
{
    const sw_st_tensor *t = sw_st_at(w->source->st, i);
    sw_claim *c = &w->claims[w->claim_of[i]];
    sw_code rc = SW_OK;

    if (!sw_claim_is_shared(c)) return c->is_put ? SW_OK : declare_claim(w, c, err);
    for (int64_t k = 0; k < w->n_claims && rc == SW_OK; k++)
        if (!claims[k]->is_put && sw_claim_lies_in(claims[k], t))
            rc = declare_claim(w, claims[k], err);
    return rc;
}

static sw_code declare_kept(sw_ckpt_writer *w, int64_t i, sw_err *err)
{
    const sw_st_tensor *t = sw_st_at(w->source->st, i);

    if (w->claim_of[i] == SW_DROPPED) return SW_OK;
    if (w->claim_of[i] == SW_DECODED)
        return sw_writer_declare_rest(w, sw_writer_rest_at(w, i), err);
    return sw_st_writer_declare(w->st, t->name, sw_writer_dtype(w, t), t->view.n_dims,
                                t->view.shape, err);
}

static sw_code declare_tensor(sw_ckpt_writer *w, int64_t i, sw_claim *const *claims, sw_err *err)
{
    sw_code rc = w->claim_of[i] >= 0 ? declare_claimed(w, i, claims, err)
                                     : declare_kept(w, i, err);

    if (rc == SW_E_FORMAT)
        sw_err_prefix(err, "%s",
                      sw_st_file_path(w->source->st, sw_st_at(w->source->st, i)->shard));
    return rc;
}

sw_code sw_writer_declare_tensors(sw_ckpt_writer *w, sw_err *err)
{
    sw_claim **claims = NULL;
    sw_code rc = sort_all(&claims, w, err);

    for (int64_t i = 0; i < sw_st_count(w->source->st) && rc == SW_OK; i++)
        rc = declare_tensor(w, w->order[i], claims, err);
    for (int64_t i = 0; i < w->n_claims; i++) w->claims[i].is_put = false;
    sw_mem_put(claims);
    return rc;
}
