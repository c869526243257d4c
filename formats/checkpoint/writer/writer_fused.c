/* writer_fused.c - experts that the source keeps in one tensor, written as modules of their own.
 *
 * No dialect has a form for three dimensions, and loaders of quantized checkpoints of such models
 * want "...experts.5.gate_proj" with a bias of its own, gate and up apart (stored.h). A tensor
 * goes as a whole or stays as a whole: one that is both would be loaded twice.
 */
#include <stdio.h>
#include <string.h>

#include "formats/base/mem.h"
#include "formats/checkpoint/expert_stack.h"
#include "formats/checkpoint/writer/writer_internal.h"

sw_code sw_part_name(char out[SW_PART_NAME_BYTES], const char *module_path, const char *suffix,
                     sw_err *err)
{
    int n = snprintf(out, SW_PART_NAME_BYTES, "%s.%s", module_path, suffix);

    if (n < 0 || n >= SW_PART_NAME_BYTES)
        return SW_FAIL(err, SW_E_FORMAT, "tensor name of %d bytes is too long", n);
    return SW_OK;
}

bool sw_claim_lies_in(const sw_claim *c, const sw_st_tensor *t)
{
    bool lies_in = c->fused.tensor == t || c->fused_bias.tensor == t;

    for (int i = 0; i < SW_DIALECT_TENSORS_MAX; i++) lies_in = lies_in || c->stack[i] == t;
    return lies_in;
}

bool sw_claim_is_shared(const sw_claim *c) { return c->fused.tensor || c->stack[0]; }

/* Where an expert lies among others; *stored stays empty when it has a tensor of its own. */
static sw_code find_one(sw_stored *stored, sw_stored *bias, const sw_ckpt_writer *w,
                        const sw_linear_ref *ref, const char *path, sw_err *err)
{
    const sw_model *m = &w->source->model;
    const sw_st *st = w->source->st;
    char own[SW_PART_NAME_BYTES];
    sw_code rc;

    if ((rc = sw_part_name(own, path, "weight", err)) != SW_OK) return rc;
    if (sw_checkpoint_is_quantized(w->source, path) || sw_st_find(st, own)) return SW_OK;
    rc = sw_stored_weight(stored, m, st, ref->layer, ref->slot, ref->expert, err);
    if (rc == SW_OK && sw_model_slot_has_bias(m, ref->slot) && !w->dialect->is_stacked)
        rc = sw_stored_bias(bias, m, st, ref->layer, ref->slot, ref->expert, err);
    return rc;
}

/* An expert of a source that keeps them quantized in one tensor a part. */
static sw_code find_stacked(sw_claim *c, const sw_ckpt_writer *w, const sw_linear_ref *ref,
                            sw_err *err)
{
    const sw_checkpoint *source = w->source;
    sw_part parts[SW_DIALECT_TENSORS_MAX];
    sw_qspec spec;
    sw_stack_place place;
    sw_code rc = sw_checkpoint_spec(&spec, source, c->module_path, err);
    int n = rc == SW_OK ? source->dialect->declare(parts, &spec, c->n_out, c->k_in) : 0;

    for (int i = 0; i < n; i++)
        if (sw_stack_find(&place, c->module_path, parts[i].suffix))
            c->stack[i] = sw_st_find(source->st, place.name);
    if (rc == SW_OK && sw_model_slot_has_bias(&source->model, ref->slot) && !w->dialect->is_stacked)
        rc = sw_stored_bias(&c->fused_bias, &source->model, source->st, ref->layer, ref->slot,
                            ref->expert, err);
    return rc;
}

/* The experts of one layer; per tensor (gate and up, down) all are claimed or none. */
static sw_code find_layer(sw_ckpt_writer *w, const sw_linear_ref *refs, int64_t n, sw_err *err)
{
    int64_t n_all[2] = {0, 0}, n_claimed[2] = {0, 0};
    sw_code rc = SW_OK;

    for (int64_t i = 0; i < n && rc == SW_OK; i++) {
        int which = refs[i].slot == SW_SLOT_DOWN;
        sw_stored stored = {.tensor = NULL}, bias = {.tensor = NULL};
        char path[256];
        sw_claim *c;

        if (refs[i].expert < 0 || !sw_model_slot_path(path, &w->source->model, refs[i].layer,
                                                      refs[i].slot, refs[i].expert))
            continue;
        if (refs[i].slot == SW_SLOT_FOUND) which = strstr(path, ".down_proj") != NULL;
        if (w->source->dialect && w->source->dialect->is_stacked &&
            sw_checkpoint_is_quantized(w->source, path)) {
            n_all[which]++;
            if ((c = sw_claim_find(w, path))) rc = find_stacked(c, w, &refs[i], err);
            n_claimed[which] += c != NULL;
            continue;
        }
        if ((rc = find_one(&stored, &bias, w, &refs[i], path, err)) != SW_OK || !stored.tensor)
            continue;
        n_all[which]++;
        if (!(c = sw_claim_find(w, path))) continue;
        n_claimed[which]++;
        if (c->n_out != stored.n_out || c->k_in != stored.k_in)
            return SW_FAIL(err, SW_E_BUG, "%s is claimed in another shape", path);
        c->fused = stored;
        c->fused_bias = bias;
    }
    for (int i = 0; i < 2 && rc == SW_OK; i++)
        if (n_claimed[i] && n_claimed[i] != n_all[i])
            rc = SW_FAIL(err, SW_E_USAGE, "layer %lld: one tensor holds all experts' %s, so "
                         "quantize all experts or none", (long long)refs[0].layer,
                         i ? "down_proj" : "gate_proj and up_proj");
    return rc;
}

sw_code sw_writer_find_fused(sw_ckpt_writer *w, sw_err *err)
{
    const sw_model *m = &w->source->model;
    sw_code rc = SW_OK;

    if ((rc = sw_writer_find_stacks(w, err)) != SW_OK ||
        !(m->arch->fused_experts[0] || m->found))
        return rc;
    for (int64_t layer = 0; layer < m->n_layers && rc == SW_OK; layer++) {
        int64_t n = sw_model_linears(m, layer, NULL, 0);
        sw_linear_ref *refs = NULL;

        if ((rc = SW_MEM_GET(&refs, n, "linears of a layer", err)) != SW_OK) return rc;
        n = sw_model_linears(m, layer, refs, n);
        rc = find_layer(w, refs, n, err);
        sw_mem_put(refs);
    }
    return rc;
}

sw_code sw_writer_declare_bias(sw_ckpt_writer *w, const sw_claim *c, sw_err *err)
{
    char name[SW_PART_NAME_BYTES];
    sw_code rc;

    if (!c->fused_bias.tensor) return SW_OK;
    if ((rc = sw_part_name(name, c->module_path, "bias", err)) != SW_OK) return rc;
    return sw_st_writer_declare(w->st, name, c->fused_bias.tensor->view.dtype, 1, &c->n_out, err);
}

static sw_code put_bias(sw_ckpt_writer *w, const sw_claim *c, sw_err *err)
{
    const int64_t n_bytes = c->n_out * sw_dtype_bits(c->fused_bias.tensor->view.dtype) / 8;
    char name[SW_PART_NAME_BYTES];
    char *values = NULL;
    sw_code rc;

    if ((rc = sw_part_name(name, c->module_path, "bias", err)) != SW_OK) return rc;
    if ((rc = SW_MEM_GET(&values, n_bytes, "bias of an expert", err)) != SW_OK) return rc;
    sw_stored_copy(values, &c->fused_bias);
    rc = sw_st_writer_put(w->st, name, values, (size_t)n_bytes, err);
    if (rc == SW_OK) w->encoded_bytes += (uint64_t)n_bytes;
    sw_mem_put(values);
    return rc;
}

sw_code sw_writer_put_biases(sw_ckpt_writer *w, sw_err *err)
{
    sw_code rc = sw_writer_put_own_biases(w, err);

    for (int64_t i = 0; i < w->n_claims && rc == SW_OK; i++)
        if (w->claims[i].fused_bias.tensor) rc = put_bias(w, &w->claims[i], err);
    return rc;
}
