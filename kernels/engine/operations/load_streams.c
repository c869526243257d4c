/* load_streams.c - what a block has for residual streams, compressed keys and experts by token. See
 * load_internal.h.
 */
#include <string.h>

#include "kernels/engine/load_internal.h"

/* A matrix that is a tensor of its own, as floats. */
static sw_code load_matrix(float **out, sw_block *block, const sw_loader *from, const char *name,
                           int64_t n_rows, int64_t width, sw_err *err)
{
    const int64_t shape[] = {n_rows, width};
    const sw_st_tensor *tensor = NULL;
    sw_st_bytes bytes = {0};
    sw_cview view;
    sw_code rc;

    if ((rc = sw_stored_tensor(&tensor, from->st, name, 2, shape, err)) != SW_OK ||
        (rc = sw_st_fetch(&bytes, tensor, err)) != SW_OK)
        return rc;
    view = tensor->view;
    view.data = bytes.data;
    rc = sw_decode_floats(out, &block->arena, &view, n_rows * width, err);
    sw_st_drop(&bytes);
    return rc;
}

static sw_code load_slot_matrix(sw_block *block, const sw_loader *from, sw_slot slot, sw_err *err)
{
    int64_t n_rows, width;
    char path[256];

    if (!sw_model_slot_path(path, from->m, block->layer, slot, -1))
        return SW_FAIL(err, SW_E_BUG, "slot %d has no name in %s", (int)slot, from->m->arch->name);
    sw_model_slot_shape(from->m, block->layer, slot, &n_rows, &width);
    return load_matrix(&block->norm[slot], block, from, path, n_rows, width, err);
}

/* A matrix and two vectors, in slots one behind the other. */
sw_code sw_load_mixture(sw_block *block, const sw_loader *from, sw_slot first, sw_err *err)
{
    sw_code rc = load_slot_matrix(block, from, first, err);

    if (rc == SW_OK) rc = sw_load_vector(block, from, (sw_slot)(first + 1), "", false, err);
    return rc ? rc : sw_load_vector(block, from, (sw_slot)(first + 2), "", false, err);
}

sw_code sw_load_merge(sw_block *block, const sw_loader *from, sw_err *err)
{
    const sw_model *m = from->m;
    sw_code rc;

    if (block->layer + 1 != m->n_layers) return SW_OK;
    if ((rc = load_matrix(&block->merge[0], block, from, sw_model_end(m, SW_END_STREAMS),
                          m->n_copies, m->n_copies * m->hidden, err)) ||
        (rc = sw_load_floats(&block->merge[1], &block->arena, from->st,
                          sw_model_end(m, SW_END_STREAMS_BASE), "", m->n_copies, err)))
        return rc;
    return sw_load_floats(&block->merge[2], &block->arena, from->st,
                       sw_model_end(m, SW_END_STREAMS_SCALE), "", 1, err);
}

/* Sinks, and what compressed keys are made of and chosen by. */
sw_code sw_load_near_far(sw_block *block, const sw_loader *from, sw_slot sinks, sw_err *err)
{
    const bool chooses = sw_model_chooses_far_keys(from->m, block->layer);
    sw_code rc = sw_load_vector(block, from, sinks, "", false, err);

    if (rc != SW_OK || !sw_model_compress_rate(from->m, block->layer)) return rc;
    if ((rc = sw_load_two(block, from, SW_SLOT_COMPRESS_KV, SW_SLOT_COMPRESS_GATE, err)) ||
        (rc = load_slot_matrix(block, from, SW_SLOT_COMPRESS_POSITIONS, err)) ||
        (rc = sw_load_norm(block, from, SW_SLOT_NORM_COMPRESS, false, err)) || !chooses)
        return rc;
    if ((rc = sw_load_two(block, from, SW_SLOT_INDEX_Q, SW_SLOT_INDEX_WEIGHT, err)) ||
        (rc = sw_load_two(block, from, SW_SLOT_INDEX_KV, SW_SLOT_INDEX_GATE, err)) ||
        (rc = load_slot_matrix(block, from, SW_SLOT_INDEX_POSITIONS, err)))
        return rc;
    return sw_load_norm(block, from, SW_SLOT_NORM_INDEX, false, err);
}

static int64_t integer_at(const void *data, sw_dtype dtype, int64_t i)
{
    int64_t wide;
    int32_t narrow;

    if (dtype == SW_DTYPE_I64) {
        memcpy(&wide, (const char *)data + 8 * i, sizeof wide);
        return wide;
    }
    memcpy(&narrow, (const char *)data + 4 * i, sizeof narrow);
    return narrow;
}

/* A table of integers of 32 or 64 bits; each must be an expert, and those of a token different. */
sw_code sw_load_token_experts(sw_block *block, const sw_loader *from, sw_slot slot, sw_err *err)
{
    const sw_st_tensor *tensor;
    sw_st_bytes bytes = {0};
    char path[256];
    int64_t n_rows, width;
    sw_code rc;

    if (!sw_model_slot_path(path, from->m, block->layer, slot, -1))
        return SW_FAIL(err, SW_E_BUG, "slot %d has no name in %s", (int)slot, from->m->arch->name);
    sw_model_slot_shape(from->m, block->layer, slot, &n_rows, &width);
    tensor = sw_st_find(from->st, path);
    if (!tensor || tensor->view.n_dims != 2 || tensor->view.shape[0] != n_rows ||
        tensor->view.shape[1] != width ||
        (tensor->view.dtype != SW_DTYPE_I64 && tensor->view.dtype != SW_DTYPE_I32))
        return SW_FAIL(err, SW_E_FORMAT, "%s: not there as integers [%lld, %lld]", path,
                       (long long)n_rows, (long long)width);
    if ((rc = SW_ARENA_TAKE(&block->token_experts, &block->arena, n_rows * width, err)) ||
        (rc = sw_st_fetch(&bytes, tensor, err)))
        return rc;
    for (int64_t i = 0; i < n_rows * width && rc == SW_OK; i++) {
        const int64_t expert = integer_at(bytes.data, tensor->view.dtype, i);

        if (expert < 0 || expert >= from->m->n_experts)
            rc = SW_FAIL(err, SW_E_FORMAT, "%s: element %lld is %lld, and there are %lld experts",
                         path, (long long)i, (long long)expert, (long long)from->m->n_experts);
        for (int64_t k = i - i % width; k < i && rc == SW_OK; k++)
            if (block->token_experts[k] == expert)
                rc = SW_FAIL(err, SW_E_FORMAT, "%s: token %lld has expert %lld twice", path,
                             (long long)(i / width), (long long)expert);
        block->token_experts[i] = (int32_t)expert;
    }
    sw_st_drop(&bytes);
    return rc;
}
