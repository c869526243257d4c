/* writer_stack.c - experts that the target keeps in one tensor a part (expert_stack.h).
 *
 * Linears come one by one, from any thread, and a tensor is written once. So the rows of a part
 * gather in memory until the last expert has come; blocks come in order, and no more than the
 * tensors of a layer wait at a time.
 */
#include <stdio.h>
#include <string.h>

#include "formats/base/mem.h"
#include "formats/checkpoint/expert_stack.h"
#include "formats/checkpoint/writer/writer_internal.h"

struct sw_stack_out {
    const char *name;
    sw_part part; /* the whole */
    uint64_t n_bytes;
    void *data;     /* while some have come and some not */
    int64_t n_left; /* linears that are still to come */
    bool is_bias;
};

static sw_stack_out *find_out(const sw_ckpt_writer *w, const char *name)
{
    for (int64_t i = w->n_stacks - 1; i >= 0; i--)
        if (!strcmp(w->stacks[i].name, name)) return &w->stacks[i];
    return NULL;
}

static sw_code add_out(sw_ckpt_writer *w, const sw_stack_place *place, const sw_part *part,
                       sw_err *err)
{
    const int64_t n_experts = w->source->model.n_experts;
    sw_stack_out *out = &w->stacks[w->n_stacks];
    char *name;
    sw_code rc = sw_arena_text(&name, &w->arena, place->name, strlen(place->name), err);

    if (rc != SW_OK) return rc;
    out->name = name;
    out->part = sw_stack_part(part, place, n_experts);
    out->n_left = n_experts * place->turns;
    out->is_bias = !strcmp(part->suffix, "bias");
    if ((rc = sw_shape_bytes(&out->n_bytes, part->dtype, out->part.n_dims, out->part.shape, err)) ==
        SW_OK)
        w->n_stacks++;
    return rc;
}

/* An expert's own bias goes where the loaders of such tensors want it: into one of all experts. A
 * bias that lies there already is copied like anything. */
const sw_st_tensor *sw_writer_own_bias(const sw_ckpt_writer *w, const sw_claim *c)
{
    char name[SW_PART_NAME_BYTES];
    const sw_st_tensor *t;

    if (!w->dialect->is_stacked || sw_part_name(name, c->module_path, "bias", NULL) != SW_OK)
        return NULL;
    t = sw_st_find(w->source->st, name);
    return t && t->view.n_dims == 1 && t->view.shape[0] == c->n_out ? t : NULL;
}

/* The tensors of one linear, and its bias when it has one of its own. */
static int declare_all(sw_part out[SW_DIALECT_TENSORS_MAX], const sw_ckpt_writer *w,
                       const sw_claim *c)
{
    int n = w->dialect->declare(out, &c->spec, c->n_out, c->k_in);
    const sw_st_tensor *bias = sw_writer_own_bias(w, c);

    if (!bias) return n;
    out[n] = (sw_part){.suffix = "bias", .dtype = bias->view.dtype, .n_dims = 1,
                       .shape = {c->n_out}};
    return n + 1;
}

static sw_code find_claim(sw_ckpt_writer *w, const sw_claim *c, int64_t *n_seen, sw_err *err)
{
    sw_part parts[SW_DIALECT_TENSORS_MAX];
    int n = declare_all(parts, w, c);
    sw_code rc = SW_OK;

    for (int i = 0; i < n && rc == SW_OK; i++) {
        sw_stack_place place;
        sw_stack_out *out;
        if (!sw_stack_find(&place, c->module_path, parts[i].suffix) ||
            place.expert >= w->source->model.n_experts)
            return SW_FAIL(err, SW_E_UNSUPPORTED, "%s: %s holds experts alone; leave the others "
                           "with --ignore, or use --format compressed-tensors or swage",
                           c->module_path, w->dialect->name);
        out = find_out(w, place.name);
        if (!out) {
            rc = add_out(w, &place, &parts[i], err);
            out = &w->stacks[w->n_stacks - 1];
        }
        if (rc == SW_OK) n_seen[out - w->stacks]++;
    }
    return rc;
}

sw_code sw_writer_find_stacks(sw_ckpt_writer *w, sw_err *err)
{
    int64_t room = w->n_claims * 3 + 1, *n_seen = NULL;
    sw_code rc;

    if (!w->dialect->is_stacked) return SW_OK;
    if ((rc = SW_ARENA_TAKE(&w->stacks, &w->arena, room, err)) != SW_OK ||
        (rc = SW_ARENA_TAKE(&n_seen, &w->arena, room, err)) != SW_OK)
        return rc;
    for (int64_t i = 0; i < w->n_claims && rc == SW_OK; i++)
        rc = find_claim(w, &w->claims[i], n_seen, err);
    for (int64_t i = 0; i < w->n_stacks && rc == SW_OK; i++)
        if (n_seen[i] != w->stacks[i].n_left)
            rc = SW_FAIL(err, SW_E_USAGE, "%s holds all experts, and %lld of its %lld linears are "
                         "quantized: quantize all or none", w->stacks[i].name,
                         (long long)n_seen[i], (long long)w->stacks[i].n_left);
    return rc;
}

/* With the first of its linears. */
sw_code sw_writer_declare_stacks(sw_ckpt_writer *w, const sw_claim *c, sw_err *err)
{
    sw_part parts[SW_DIALECT_TENSORS_MAX];
    int n = declare_all(parts, w, c);
    sw_code rc = SW_OK;

    for (int i = 0; i < n && rc == SW_OK; i++) {
        sw_stack_place place;
        const sw_stack_out *out;
        if (!sw_stack_find(&place, c->module_path, parts[i].suffix) || place.expert || place.turn)
            continue;
        out = find_out(w, place.name);
        rc = sw_st_writer_declare(w->st, out->name, out->part.dtype, out->part.n_dims,
                                  out->part.shape, err);
    }
    return rc;
}

static sw_code write_out(sw_ckpt_writer *w, sw_stack_out *out, sw_err *err)
{
    sw_code rc = sw_st_writer_put(w->st, out->name, out->data, (size_t)out->n_bytes, err);

    if (rc == SW_OK && !out->is_bias) /* these come at the end of every run */
        rc = sw_resume_note(&w->resume, out->name, out->data, out->n_bytes, err);
    if (rc == SW_OK) {
#pragma omp atomic
        w->encoded_bytes += out->n_bytes;
    }
    sw_mem_put(out->data);
    out->data = NULL;
    return rc;
}

sw_code sw_writer_put_stacked(sw_ckpt_writer *w, const char *module_path, const sw_part *part,
                              const void *data, sw_err *err)
{
    sw_stack_place place;
    sw_stack_out *out;
    bool is_last = false;
    sw_code rc = SW_OK;

    if (!sw_stack_find(&place, module_path, part->suffix) || !(out = find_out(w, place.name)))
        return SW_FAIL(err, SW_E_BUG, "%s was not declared", module_path);
#pragma omp critical(sw_stack_take)
    if (!out->data) rc = sw_mem_get(&out->data, (int64_t)out->n_bytes, 1, out->name, err);
    if (rc != SW_OK) return rc;
    sw_stack_scatter(out->data, data, part, &place); /* rows of no other linear */
#pragma omp critical(sw_stack_take)
    is_last = --out->n_left == 0;
    return is_last ? write_out(w, out, err) : SW_OK;
}

sw_code sw_writer_take_stacked(void *data, const sw_ckpt_writer *w, const char *module_path,
                               const sw_part *part, sw_err *err)
{
    sw_stack_place place;
    const sw_stack_out *out;
    void *whole = NULL;
    sw_code rc;

    if (!sw_stack_find(&place, module_path, part->suffix) || !(out = find_out(w, place.name)))
        return SW_FAIL(err, SW_E_BUG, "%s was not declared", module_path);
    if ((rc = sw_mem_get(&whole, (int64_t)out->n_bytes, 1, out->name, err)) != SW_OK) return rc;
    rc = sw_st_writer_take(w->st, out->name, whole, (size_t)out->n_bytes, err);
    if (rc == SW_OK) sw_stack_gather(data, whole, part, &place);
    sw_mem_put(whole);
    return rc;
}

/* An earlier run wrote it whole: its linears have been put. */
bool sw_writer_count_stack(sw_ckpt_writer *w, const char *name)
{
    sw_stack_out *out = find_out(w, name);

    if (!out) return false;
    out->n_left = 0;
    for (int64_t i = 0; i < w->n_claims; i++) {
        sw_part parts[SW_DIALECT_TENSORS_MAX];
        sw_claim *c = &w->claims[i];
        int n = w->dialect->declare(parts, &c->spec, c->n_out, c->k_in);
        sw_stack_place place;
        for (int p = 0; p < n; p++)
            if (sw_stack_find(&place, c->module_path, parts[p].suffix) &&
                !strcmp(place.name, name))
                c->is_put = true;
    }
    return true;
}

sw_code sw_writer_put_own_biases(sw_ckpt_writer *w, sw_err *err)
{
    sw_code rc = SW_OK;

    for (int64_t i = 0; i < w->n_claims && rc == SW_OK; i++) {
        const sw_claim *c = &w->claims[i];
        const sw_st_tensor *bias = sw_writer_own_bias(w, c);
        if (!bias) continue;
        sw_part part = {.suffix = "bias", .dtype = bias->view.dtype, .n_dims = 1,
                        .shape = {c->n_out}};
        rc = sw_writer_put_stacked(w, c->module_path, &part, bias->view.data, err);
    }
    return rc;
}

void sw_writer_free_stacks(sw_ckpt_writer *w)
{
    for (int64_t i = 0; i < w->n_stacks; i++) sw_mem_put(w->stacks[i].data);
}
