/* cuda_tried.c - see cuda_tried.h. */
#include "quant/backend/cuda/cuda_tried.h"

#include <string.h>

#include "formats/base/size.h"
#include "formats/io/profile.h"

static void drop_experts(sw_block *block)
{
    for (int i = 0; i < 3; i++) block->experts[i] = NULL;
}

/* Linears of the other half need not be there, nor those from the first on that reads `up_to`: a
 * run ends before it. */
static void drop_idle(sw_block *block, const sw_model *m, sw_half half, sw_site up_to)
{
    sw_linear_ref refs[SW_SLOT_COUNT];
    int64_t n = sw_min_i64(sw_model_linears(m, block->layer, refs, SW_SLOT_COUNT), SW_SLOT_COUNT);
    const bool is_one = half != SW_HALF_BOTH && !sw_model_is_sparse(m, block->layer);
    bool is_behind = false;

    if (half == SW_HALF_ATTENTION || up_to < SW_SITE_DOWN_IN) drop_experts(block);
    for (int64_t i = 0; i < n; i++) {
        is_behind = is_behind || refs[i].site == up_to;
        if (refs[i].expert >= 0 || refs[i].slot >= SW_SLOT_COUNT) continue;
        if (is_behind ||
            (is_one && (refs[i].site < SW_SITE_MLP_IN) != (half == SW_HALF_ATTENTION)))
            block->linear[refs[i].slot].n_out = 0;
    }
}

static int64_t n_experts(const sw_block *block, const sw_model *m, int part)
{
    return block->experts[part] ? m->n_experts : 0;
}

static bool same_weight(const sw_weight *a, const sw_weight *b)
{
    return a->n_out == b->n_out && a->dense == b->dense && a->dense_dtype == b->dense_dtype &&
           a->tiles == b->tiles && a->bias == b->bias && a->act.scope == b->act.scope;
}

/* Of experts only their values: nothing else of them changes. */
static bool has_experts(const struct sw_cuda_tried *t, const sw_block *want, const sw_model *m)
{
    bool has = true;

    for (int part = 0; part < 3; part++)
        for (int64_t e = 0; e < n_experts(want, m, part) && has; e++)
            has = t->experts && t->experts[part * m->n_experts + e] == want->experts[part][e].dense;
    return has;
}

/* What is loaded is all of `want`, but for values of linears that can be put in. */
static bool serves(const struct sw_cuda_tried *t, const sw_block *want, const sw_model *m)
{
    const sw_block *of = &t->of;

    if (!t->loaded || of->layer != want->layer || !has_experts(t, want, m) ||
        memcmp(of->norm, want->norm, sizeof of->norm) != 0 ||
        memcmp(of->norm_bias, want->norm_bias, sizeof of->norm_bias) != 0 ||
        of->copies_out != want->copies_out)
        return false;
    for (int slot = 0; slot < SW_SLOT_COUNT; slot++) {
        sw_weight w = want->linear[slot];

        if (!w.n_out || same_weight(&of->linear[slot], &w)) continue;
        if (w.tiles || w.act.scope != SW_ACT_NONE) return false;
        w.dense = of->linear[slot].dense;
        w.dense_dtype = of->linear[slot].dense_dtype;
        if (!same_weight(&of->linear[slot], &w)) return false;
    }
    return true;
}

/* Values of linears that are not there yet. */
static sw_code take_others(struct sw_cuda_tried *t, const sw_block *want, sw_err *err)
{
    sw_code rc = SW_OK;

    for (int slot = 0; slot < SW_SLOT_COUNT && rc == SW_OK; slot++) {
        if (!want->linear[slot].n_out || same_weight(&t->of.linear[slot], &want->linear[slot]))
            continue;
        rc = sw_device_block_take(t->loaded, (sw_slot)slot, -1, want, err);
        t->of.linear[slot] = want->linear[slot];
    }
    return rc;
}

static void forget(sw_cuda_streams *on)
{
    if (!on->tried) return;
    sw_device_block_free(on->tried->loaded);
    sw_mem_put(on->tried->experts);
    sw_mem_put(on->tried);
    on->tried = NULL;
}

static sw_code load(sw_cuda_streams *on, const sw_block *want, const sw_model *m, sw_err *err)
{
    struct sw_cuda_tried *t = NULL;
    sw_code rc;

    forget(on); /* before there is another */
    if ((rc = SW_MEM_GET(&t, 1, "half a block", err)) != SW_OK) return rc;
    on->tried = t;
    t->of = *want;
    if (want->experts[2])
        rc = SW_MEM_GET(&t->experts, 3 * m->n_experts, "values of experts", err);
    for (int part = 0; part < 3 && rc == SW_OK; part++)
        for (int64_t e = 0; e < n_experts(want, m, part); e++)
            t->experts[part * m->n_experts + e] = want->experts[part][e].dense;
    return rc == SW_OK ? sw_device_block_load(&t->loaded, on->engine, want, err) : rc;
}

sw_code sw_cuda_tried_half(sw_device_block **out, const sw_block_probe *probe,
                           const sw_block *block, sw_site site, sw_site up_to, sw_err *err)
{
    const sw_streams *s = probe->streams;
    sw_cuda_streams *on = s->own;
    const sw_half half = sw_block_probe_half(probe, block, site);
    const sw_span span = sw_span_open("search load");
    sw_block want = *block;
    sw_code rc;

    drop_idle(&want, s->model, half, up_to);
    rc = on->tried && serves(on->tried, &want, s->model)
             ? take_others(on->tried, &want, err)
             : load(on, &want, s->model, err);
    if (rc == SW_OK) *out = on->tried->loaded;
    else forget(on);
    sw_span_close(span, NULL);
    return rc;
}

void sw_cuda_tried_changed(const sw_block_probe *probe, sw_slot slot, int64_t expert)
{
    const sw_cuda_streams *on = probe->streams->own;
    struct sw_cuda_tried *t = on->tried;

    if (!t) return;
    if (expert < 0) t->of.linear[slot].dense = NULL;
    else if (t->experts)
        t->experts[(slot - SW_SLOT_GATE) * probe->streams->model->n_experts + expert] = NULL;
}

void sw_cuda_probe_forget(const sw_block_probe *probe) { forget(probe->streams->own); }
