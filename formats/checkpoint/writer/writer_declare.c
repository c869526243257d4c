/* writer_declare.c - in which order the tensors of the output are announced, which is that in which
 * they lie in it.
 *
 * It is the order in which they are made, so that the digest of a file can follow its writing:
 * first what belongs to no block, which is copied while the first block is made; then block by
 * block, of each what is copied, then its linears as the caller gave them. How the source cuts the
 * model into files does not matter.
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

/* --- the order --- */

/* A tensor of the source, and what decides where the tensors go that it becomes. */
typedef struct placed {
    const char *name;
    const char *number; /* of its block, in the name; NULL: it belongs to none */
    size_t n_digits;
    int64_t at;    /* in the source */
    int64_t place; /* of its claim among the caller's linears; -1: there is none */
} placed;

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

    if (!a->number || !b->number) return (a->number != NULL) - (b->number != NULL);
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

static sw_code sort_tensors(placed **out, const sw_ckpt_writer *w, sw_err *err)
{
    const int64_t n = sw_st_count(w->source->st);
    placed *all = NULL;
    sw_code rc = SW_MEM_GET(&all, n, "order of tensors", err);

    if (rc != SW_OK) return rc;
    for (int64_t i = 0; i < n; i++) {
        const int32_t claim = w->claim_of[i];
        all[i] = (placed){.name = sw_st_at(w->source->st, i)->name, .at = i,
                          .place = claim < 0 ? -1 : w->claims[claim].place};
        find_block(&all[i]);
    }
    if (n) qsort(all, (size_t)n, sizeof *all, compare_placed);
    *out = all;
    return SW_OK;
}

/* Claims as the caller gave them, and not by path. */
static sw_code sort_claims(sw_claim ***out, sw_ckpt_writer *w, sw_err *err)
{
    sw_claim **all = NULL;
    sw_code rc = SW_MEM_GET(&all, w->n_claims, "order of linears", err);

    for (int64_t i = 0; i < w->n_claims && rc == SW_OK; i++)
        all[w->claims[i].place] = &w->claims[i];
    *out = all;
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
    const int64_t n = sw_st_count(w->source->st);
    placed *order = NULL;
    sw_claim **claims = NULL;
    sw_code rc = sort_tensors(&order, w, err);

    if (rc == SW_OK) rc = SW_ARENA_TAKE(&w->order, &w->arena, n, err);
    if (rc == SW_OK) rc = sort_claims(&claims, w, err);
    for (int64_t i = 0; i < n && rc == SW_OK; i++) {
        w->order[i] = order[i].at;
        rc = declare_tensor(w, order[i].at, claims, err);
    }
    for (int64_t i = 0; i < w->n_claims; i++) w->claims[i].is_put = false;
    sw_mem_put(order);
    sw_mem_put(claims);
    return rc;
}
