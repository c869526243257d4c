/* target_bits.c - see target_bits.h. */
#include "tools/quantize/target_bits.h"

#include <math.h>
#include <string.h>

#include "quant/search/allocate.h"
#include "tools/quantize/candidates.h"


/* Linears of one block that share input and scheme: one item of the allocation. */
typedef struct group {
    int64_t layer, expert;
    sw_site site;
    int64_t k_in;
    bool is_fixed; /* an override decided */
} group;

typedef struct chooser {
    sw_selection *selection;
    const sw_model *model;
    const sw_target_request *request;
    sw_candidates list;
    group *groups;       /* in block order */
    int64_t n_groups, at; /* at: the one that figures are arriving for */
    sw_choice *choices;  /* [n_groups, list.n + 1]; the last: the scheme that is fixed */
    int32_t *taken;      /* [n_groups] */
    sw_arena arena;
} chooser;

/* Stored bytes of a linear; 0 when the dialect cannot hold it so. */
static uint64_t stored_bytes(const sw_dialect *dialect, const sw_qspec *spec, int64_t n_out,
                             int64_t k_in)
{
    sw_part parts[SW_DIALECT_TENSORS_MAX];
    uint64_t sum = 0;
    sw_err ignored = {0};
    int n;

    if (spec->group_elems && k_in % spec->group_elems) return 0;
    if (dialect->can_hold(spec, n_out, k_in, &ignored) != SW_OK) return 0;
    n = dialect->declare(parts, spec, n_out, k_in);
    for (int i = 0; i < n; i++) {
        uint64_t bytes = 0;
        if (sw_shape_bytes(&bytes, parts[i].dtype, parts[i].n_dims, parts[i].shape, &ignored) !=
            SW_OK)
            return 0;
        sum += bytes;
    }
    return sum;
}

double sw_target_bits_of(const sw_selection *selection, const sw_dialect *dialect)
{
    double bytes = 0;

    for (int64_t i = 0; i < selection->n_linears; i++) {
        const sw_ckpt_linear *l = &selection->linears[i];
        bytes += (double)stored_bytes(dialect, l->spec, l->n_out, l->k_in);
    }
    return selection->n_weights ? 8 * bytes / (double)selection->n_weights : 0;
}

static bool is_sized(const sw_target_request *r)
{
    return r->bits > 0 || r->bytes;
}

static void list_candidates(chooser *c)
{
    const sw_target_request *r = c->request;

    if (is_sized(r))
        sw_candidates_of_sizes(&c->list, r->spec, r->keep_group, r->keep_symmetry,
                               r->outlier_share, r->chooses_outliers);
    else
        sw_candidates_of_shares(&c->list, r->spec);
}

static bool is_in(const group *g, const sw_linear_ref *ref)
{
    return g->layer == ref->layer && g->site == ref->site && g->expert == ref->expert;
}

static sw_choice *choice_of(const chooser *c, int64_t group_at, int64_t option)
{
    return &c->choices[group_at * (c->list.n + 1) + option];
}

/* Bytes of codes, scales, zero points and outliers, however a dialect packs them. */
static uint64_t nominal_bytes(const sw_qspec *spec, int64_t n_out, int64_t k_in)
{
    double bits_of_group = 16 + (spec->is_symmetric ? 0 : spec->num->bits);
    double bits_of_row = spec->num->bits * (double)(k_in - spec->n_outliers) +
                         bits_of_group * (double)sw_qspec_groups(spec, k_in) +
                         16 * (double)spec->n_outliers;

    if (spec->group_elems && k_in % spec->group_elems) return 0;
    return (uint64_t)((double)n_out * bits_of_row / 8) + 4 * (uint64_t)spec->n_outliers;
}

/* Sizes of one linear, added to its group's; what does not fit one does not fit the group. */
static void add_sizes(chooser *c, int64_t at, const sw_linear_ref *ref, const sw_qspec *own)
{
    bool is_fixed = c->groups[at].is_fixed;

    for (int64_t o = 0; o <= c->list.n; o++) {
        sw_choice *choice = choice_of(c, at, o);
        sw_qspec spec = o < c->list.n ? sw_candidate_spec(&c->list, o, ref->k_in) : *own;
        uint64_t bytes = is_sized(c->request)
                             ? stored_bytes(c->request->dialect, &spec, ref->n_out, ref->k_in)
                             : nominal_bytes(&spec, ref->n_out, ref->k_in);
        if (!bytes || is_fixed != (o == c->list.n)) choice->loss = (double)INFINITY;
        choice->size += bytes;
    }
}

static bool is_overridden(const chooser *c, const sw_qspec *own, int64_t k_in)
{
    sw_qspec common = *c->request->spec;

    common.n_outliers = llround(c->request->outlier_share * (double)k_in);
    return !sw_qspec_same(own, &common);
}

static sw_code add_layer(chooser *c, int64_t layer, sw_err *err)
{
    int64_t n = sw_model_linears(c->model, layer, NULL, 0);
    sw_linear_ref *refs = NULL;
    char path[256];
    sw_code rc = SW_MEM_GET(&refs, n, "linears of a block", err);

    if (rc != SW_OK) return rc;
    (void)sw_model_linears(c->model, layer, refs, n);
    for (int64_t i = 0; i < n; i++) {
        const sw_qspec *own;
        if (!sw_model_slot_path(path, c->model, layer, refs[i].slot, refs[i].expert)) continue;
        if (!(own = sw_selection_spec(c->selection, path))) continue;
        if (!c->n_groups || !is_in(&c->groups[c->n_groups - 1], &refs[i]))
            c->groups[c->n_groups++] = (group){layer, refs[i].expert, refs[i].site, refs[i].k_in,
                                               layer == c->model->n_layers ||
                                                   is_overridden(c, own, refs[i].k_in)};
        add_sizes(c, c->n_groups - 1, &refs[i], own);
    }
    sw_mem_put(refs);
    return SW_OK;
}

static sw_code list_groups(chooser *c, sw_err *err)
{
    int64_t n = c->selection->n_linears;
    sw_code rc;

    if ((rc = SW_ARENA_TAKE(&c->groups, &c->arena, n, err)) != SW_OK ||
        (rc = SW_ARENA_TAKE(&c->choices, &c->arena, n * (c->list.n + 1), err)) != SW_OK ||
        (rc = SW_ARENA_TAKE(&c->taken, &c->arena, n, err)) != SW_OK)
        return rc;
    for (int64_t layer = 0; layer <= c->model->n_layers && rc == SW_OK; layer++)
        rc = add_layer(c, layer, err);
    return rc;
}

static bool is_selected(void *self, const sw_linear_ref *ref, const char *path)
{
    const chooser *c = self;

    (void)ref;
    return sw_selection_has(c->selection, path);
}

static sw_code put_losses(void *self, const sw_linear_ref *ref, const char *path,
                          const double *loss, sw_err *err)
{
    chooser *c = self;

    while (c->at < c->n_groups && !is_in(&c->groups[c->at], ref)) c->at++;
    if (c->at == c->n_groups) return SW_FAIL(err, SW_E_BUG, "%s was measured out of order", path);
    for (int64_t o = 0; o < c->list.n; o++) choice_of(c, c->at, o)->loss += loss[o];
    return SW_OK;
}

static uint64_t budget_bytes(const chooser *c)
{
    return (uint64_t)(c->request->bits * (double)c->selection->n_weights / 8);
}

static sw_code check_target(const chooser *c, sw_err *err)
{
    uint64_t least = sw_allocate_least(c->choices, c->n_groups, c->list.n + 1);
    sw_qspec any = *c->request->spec;

    any.n_outliers = 1;
    if (c->request->chooses_outliers) {
        const sw_ckpt_linear *l = &c->selection->linears[0];
        sw_code rc = c->request->dialect->can_hold(&any, l->n_out, l->k_in, err);
        if (rc != SW_OK) {
            sw_err_prefix(err, "%s", l->module_path);
            return rc;
        }
    }
    if (!(c->request->bits > 0) || least <= budget_bytes(c)) return SW_OK;
    return SW_FAIL(err, SW_E_USAGE,
                   "--target-bits %g: %s needs at least %.3f bits per weight for these linears, "
                   "scales included; raise it, or see swage list formats", c->request->bits,
                   c->request->dialect->name, 8 * (double)least / (double)c->selection->n_weights);
}

static bool fits_all(const chooser *c, int64_t option)
{
    for (int64_t g = 0; g < c->n_groups; g++)
        if (!c->groups[g].is_fixed && !isfinite(choice_of(c, g, option)->loss)) return false;
    return true;
}

/* What a byte saves when all linears that no override names get more of them: see target_bits.h.
 * INFINITY without anything to buy. */
static double price_of_bytes(const chooser *c)
{
    double best = 0;
    bool is_any = false;

    for (int64_t o = 0; o < c->list.n; o++) {
        double saved = 0, bytes = 0;
        if (!c->list.is_price[o] || !fits_all(c, o)) continue;
        for (int64_t g = 0; g < c->n_groups; g++) {
            const sw_choice *from = choice_of(c, g, 0), *to = choice_of(c, g, o);
            if (c->groups[g].is_fixed) continue;
            saved += from->loss - to->loss;
            bytes += (double)to->size - (double)from->size;
        }
        if (!(bytes > 0)) continue;
        best = fmax(best, saved / bytes);
        is_any = true;
    }
    return is_any ? best : (double)INFINITY;
}

static void take_at_price(chooser *c, double price)
{
    for (int64_t g = 0; g < c->n_groups; g++) {
        double best = (double)INFINITY;
        c->taken[g] = (int32_t)(c->groups[g].is_fixed ? c->list.n : 0);
        for (int64_t o = 0; !c->groups[g].is_fixed && isfinite(price) && o < c->list.n; o++) {
            const sw_choice *choice = choice_of(c, g, o);
            double cost = choice->loss + price * (double)choice->size;
            if (c->list.is_price[o] || !(cost < best)) continue;
            best = cost;
            c->taken[g] = (int32_t)o;
        }
    }
}

/* The scheme for measuring: three bits show what matters without breaking the model. */
static int64_t probe_spec(const chooser *c)
{
    int64_t last = 0;

    for (int64_t o = 0; o < c->list.n; o++) {
        if (c->list.specs[o].num->bits != 3) continue;
        last = o;
        if (fits_all(c, o)) break;
    }
    return last;
}

static sw_code measure(chooser *c, const sw_st *st, const sw_progress *progress, sw_err *err)
{
    const sw_target_request *r = c->request;
    sw_sensitivity_sink sink = {c, is_selected, put_losses};
    sw_calib calib = *r->calib;
    sw_sensitivity_options o = {.algo = r->algo, .specs = c->list.specs, .n_specs = c->list.n,
                                .shares = c->list.shares, .probe = probe_spec(c), .damp = r->damp,
                                .stats = r->stats, .source = r->source,
                                .n_threads = r->n_threads};

    if (calib.n_seqs > SW_TARGET_WINDOWS_MAX) calib.n_seqs = SW_TARGET_WINDOWS_MAX;
    return sw_sensitivity_run(c->model, st, &calib, &o, &sink, progress, err);
}

/* The chosen schemes into the selection, which keeps its own copies. */
static sw_code assign(chooser *c, sw_err *err)
{
    sw_qspec *kept = NULL;
    sw_linear_ref *refs = NULL;
    char path[256];
    int64_t at = 0;
    sw_code rc = SW_ARENA_TAKE(&kept, &c->selection->arena, c->n_groups, err);

    if (rc != SW_OK) return rc;
    for (int64_t g = 0; g < c->n_groups; g++)
        if (c->taken[g] < c->list.n)
            kept[g] = sw_candidate_spec(&c->list, c->taken[g], c->groups[g].k_in);
    for (int64_t layer = 0; layer <= c->model->n_layers; layer++) {
        int64_t n = sw_model_linears(c->model, layer, NULL, 0);
        if ((rc = SW_MEM_GET(&refs, n, "linears of a block", err)) != SW_OK) return rc;
        (void)sw_model_linears(c->model, layer, refs, n);
        for (int64_t i = 0; i < n; i++) {
            if (!sw_model_slot_path(path, c->model, layer, refs[i].slot, refs[i].expert)) continue;
            if (!sw_selection_has(c->selection, path)) continue;
            while (!is_in(&c->groups[at], &refs[i])) at++;
            if (c->taken[at] < c->list.n) sw_selection_assign(c->selection, path, &kept[at]);
        }
        sw_mem_put(refs);
    }
    return SW_OK;
}

static uint64_t taken_bytes(const chooser *c)
{
    uint64_t sum = 0;

    for (int64_t g = 0; g < c->n_groups; g++) sum += choice_of(c, g, c->taken[g])->size;
    return sum;
}

static void take_least(chooser *c)
{
    for (int64_t g = 0; g < c->n_groups; g++) {
        const sw_choice *best = NULL;
        for (int64_t o = 0; o <= c->list.n; o++) {
            const sw_choice *choice = choice_of(c, g, o);
            if (!isfinite(choice->loss) || (best && choice->size >= best->size)) continue;
            best = choice;
            c->taken[g] = (int32_t)o;
        }
    }
}

/* All files of the output if what is taken were chosen; the selection is as before then. */
static sw_code whole_bytes(uint64_t *out, chooser *c, sw_err *err)
{
    sw_selection *s = c->selection;
    sw_ckpt_linear *before = NULL;
    sw_code rc = SW_MEM_GET(&before, s->n_linears, "linears", err);

    if (rc != SW_OK) return rc;
    memcpy(before, s->linears, (size_t)s->n_linears * sizeof *before);
    if ((rc = assign(c, err)) == SW_OK) rc = c->request->size_of(c->request->size_self, out, err);
    memcpy(s->linears, before, (size_t)s->n_linears * sizeof *before);
    sw_mem_put(before);
    return rc;
}

/* Can the size be reached at all? Found before anything is measured. */
static sw_code check_size(uint64_t *least, chooser *c, sw_err *err)
{
    sw_code rc;

    take_least(c);
    if ((rc = whole_bytes(least, c, err)) != SW_OK || *least <= c->request->bytes) return rc;
    return SW_FAIL(err, SW_E_USAGE, "--target-size %llu: the smallest output that %s can hold is "
                   "%llu bytes, with all of its files; raise it, or see swage list formats",
                   (unsigned long long)c->request->bytes, c->request->dialect->name,
                   (unsigned long long)*least);
}

#define TRIES_MAX 8

/* The best choice whose output keeps the size: see target_bits.h. The smallest choice does. */
static sw_code take_within(chooser *c, sw_err *err)
{
    uint64_t whole = 0, budget, fits, most = UINT64_MAX; /* budgets: the largest that did, and the
                                                            smallest that did not */
    sw_code rc;

    take_least(c);
    fits = taken_bytes(c);
    if ((rc = whole_bytes(&whole, c, err)) != SW_OK) return rc;
    budget = fits + (c->request->bytes - whole);
    for (int i = 0; i < TRIES_MAX && budget > fits && budget < most; i++) {
        rc = sw_allocate(c->taken, c->choices, c->n_groups, c->list.n + 1, budget, err);
        if (rc != SW_OK || (rc = whole_bytes(&whole, c, err)) != SW_OK) return rc;
        if (whole <= c->request->bytes) {
            fits = budget;
            budget += c->request->bytes - whole;
            if (budget >= most) budget = fits + (most - fits) / 2;
        } else {
            uint64_t over = whole - c->request->bytes;
            most = budget;
            budget = over < budget - fits ? budget - over : fits + (most - fits) / 2;
        }
    }
    rc = sw_allocate(c->taken, c->choices, c->n_groups, c->list.n + 1, fits, err);
    if (rc == SW_OK) rc = whole_bytes(&whole, c, err);
    /* as large as the smallest, but more to describe */
    if (rc == SW_OK && whole > c->request->bytes) take_least(c);
    return rc;
}

sw_code sw_target_bits_choose(sw_target_outcome *out, sw_selection *selection,
                              const sw_model *model, const sw_st *st,
                              const sw_target_request *request, const sw_progress *progress,
                              sw_err *err)
{
    chooser c = {.selection = selection, .model = model, .request = request};
    sw_target_outcome outcome = {0};
    sw_code rc;

    list_candidates(&c);
    if ((rc = list_groups(&c, err)) != SW_OK || (rc = check_target(&c, err)) != SW_OK ||
        (request->bytes && (rc = check_size(&out->least_bytes, &c, err)) != SW_OK) ||
        request->is_dry || (rc = measure(&c, st, progress, err)) != SW_OK)
        goto done;
    if (request->bytes)
        rc = take_within(&c, err);
    else if (request->bits > 0)
        rc = sw_allocate(c.taken, c.choices, c.n_groups, c.list.n + 1, budget_bytes(&c), err);
    else
        take_at_price(&c, price_of_bytes(&c));
    if (rc != SW_OK || (rc = assign(&c, err)) != SW_OK) goto done;
    for (int64_t g = 0; g < c.n_groups; g++) outcome.loss += choice_of(&c, g, c.taken[g])->loss;
    outcome.bits = sw_target_bits_of(selection, request->dialect);
    outcome.least_bytes = out->least_bytes;
    *out = outcome;
done:
    sw_arena_free(&c.arena);
    return rc;
}
