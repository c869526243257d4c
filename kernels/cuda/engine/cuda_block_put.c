/* cuda_block_put.c - other values for the dense linears of a block on the device, and products with
 * one alone. See device_engine.h. */
#include <cuda_runtime_api.h>

#include "kernels/cuda/engine/cuda_engine_internal.h"
#include "kernels/cuda/runtime/cuda_check.h"

/* The joined weight that holds a slot's rows, and the slot that they begin with. */
static sw_slot home_of(const sw_device_block *b, sw_slot slot)
{
    if (b->is_qkv_fused && (slot == SW_SLOT_K || slot == SW_SLOT_V)) return SW_SLOT_Q;
    if (b->is_gate_fused && slot == SW_SLOT_UP) return SW_SLOT_GATE;
    return slot;
}

/* Where the rows of an expert's weight lie. Gates and ups may be in one weight, ups below. */
static sw_code expert_rows(sw_bf16_rows *out, int64_t *n_out, const sw_device_block *b,
                           sw_slot slot, int64_t expert, sw_err *err)
{
    const sw_model *m = b->e->m;
    const int part = (int)slot - SW_SLOT_GATE;
    const bool is_joined = part == 1 && b->is_expert_fused;
    const sw_device_weight *w = b->experts[0] ? &b->experts[is_joined ? 0 : part][expert] : NULL;

    *n_out = part == 2 ? m->moe_hidden : m->moe_intermediate;
    if (!w || !w->d_dense)
        return SW_FAIL(err, SW_E_BUG, "an expert that is not loaded as floats");
    *out = (sw_bf16_rows){
        w->d_dense + (is_joined && !b->is_expert_ungated ? *n_out * w->k_in : 0), w->k_in};
    return SW_OK;
}

/* Where the rows of a slot lie in the weight that holds them. */
static sw_code rows_of(sw_bf16_rows *out, int64_t *n_out, const sw_device_block *b, sw_slot slot,
                       sw_err *err)
{
    const sw_slot home = home_of(b, slot);
    const sw_device_weight *w = &b->linear[home];
    int64_t k_in = 0;

    *out = (sw_bf16_rows){w->d_dense, w->k_in};
    *n_out = 0;
    for (int s = (int)home; s <= (int)slot; s++) {
        out->d += *n_out * k_in;
        sw_model_slot_shape(b->e->m, b->layer, (sw_slot)s, n_out, &k_in);
    }
    if (!w->d_dense || k_in != w->k_in)
        return SW_FAIL(err, SW_E_BUG, "a linear that is not loaded as floats");
    return SW_OK;
}

/* The values of a dense linear in the block that is like the one to be loaded; NULL: they are not
 * there. */
static const sw_bf16 *values_like(const sw_device_store *store, const sw_weight *w)
{
    sw_err ignored = {0};
    sw_bf16_rows rows;
    int64_t n_out;

    for (int s = 0; s < SW_SLOT_COUNT && store->like && w->dense; s++) {
        const sw_weight *other = &store->like_of->linear[s];

        if (other->dense == w->dense && other->n_out == w->n_out && other->k_in == w->k_in)
            return rows_of(&rows, &n_out, store->like, (sw_slot)s, &ignored) == SW_OK ? rows.d
                                                                                      : NULL;
    }
    return NULL;
}

sw_code sw_device_dense_load(sw_bf16 *d_to, const sw_device_store *store, const sw_weight *w,
                             sw_err *err)
{
    const sw_bf16 *d_from = values_like(store, w);
    const int64_t n = w->n_out * w->k_in;

    if (!d_from) return sw_device_copy_as_bf16(store->gpu, d_to, w->dense, w->dense_dtype, n, err);
    return sw_device_check((int)cudaMemcpyAsync(d_to, d_from, (size_t)n * sizeof *d_to,
                                                cudaMemcpyDeviceToDevice,
                                                sw_device_stream(store->gpu)),
                           "weights that are there", err);
}

static sw_code rows_for(sw_bf16_rows *out, int64_t *n_out, const sw_device_block *b, sw_slot slot,
                        int64_t expert, sw_err *err)
{
    return expert >= 0 ? expert_rows(out, n_out, b, slot, expert, err)
                       : rows_of(out, n_out, b, slot, err);
}

sw_code sw_device_block_put(sw_device_block *b, sw_slot slot, int64_t expert, const float *d_values,
                            sw_err *err)
{
    sw_bf16_rows to;
    int64_t n_out;
    sw_code rc = rows_for(&to, &n_out, b, slot, expert, err);

    if (rc != SW_OK) return rc;
    return sw_cuda_to_bf16(to, d_values, (sw_bf16_rows){0}, n_out, to.stride, b->e->how, err);
}

sw_code sw_device_block_take(sw_device_block *b, sw_slot slot, int64_t expert, const sw_block *from,
                             sw_err *err)
{
    const sw_weight *w = expert < 0 ? &from->linear[slot]
                                    : &from->experts[(int)slot - SW_SLOT_GATE][expert];
    sw_bf16_rows to;
    int64_t n_out;
    sw_code rc = rows_for(&to, &n_out, b, slot, expert, err);

    if (rc != SW_OK) return rc;
    return sw_device_copy_as_bf16(b->e->gpu, to.d, w->dense, w->dense_dtype, n_out * to.stride,
                                  err);
}

sw_code sw_device_block_times(const sw_device_block *b, sw_slot slot, void *d_y, const void *d_x,
                              int64_t stride, int64_t n, sw_err *err)
{
    const sw_device_weight *w = &b->linear[slot];
    const sw_device_weight plain = {.n_out = w->n_out, .k_in = w->k_in, .d_dense = w->d_dense};
    const sw_bf16_rows x = {(sw_bf16 *)(uintptr_t)d_x, stride};

    if (!w->d_dense)
        return SW_FAIL(err, SW_E_BUG, "a product with a linear that is not loaded as floats");
    return sw_device_linear(b->e, d_y, w->n_out, false, x, n, &plain, err);
}

const uint16_t *sw_device_block_values(const sw_device_block *b, sw_slot slot)
{
    return b->linear[slot].d_dense;
}
