/* cuda_ahead.c - see cuda_ahead.h.
 *
 * Experts are most of a block, and a device takes as long to get them as to run the text through
 * them. A thread with a stream of its own brings the original's while others are solved.
 */
#include "quant/backend/cuda/cuda_ahead.h"

#include <pthread.h>

#include "formats/io/profile.h"
#include "kernels/device_sizes.h"
#include "quant/backend/cuda/cuda_sizes.h"

struct sw_cuda_ahead {
    sw_device_engine *engine;
    sw_device *branch;
    const sw_block *of;
    sw_device_block *block; /* NULL: it could not be loaded */
    pthread_t thread;
    bool has_thread;
};

static void *run(void *self)
{
    sw_cuda_ahead *a = self;
    const sw_span span = sw_span_open("block ahead");
    sw_err ignored = {0};

    if (sw_device_use(a->branch, &ignored) != SW_OK ||
        sw_device_block_load_beside(&a->block, a->engine, a->branch, a->of, &ignored) != SW_OK)
        a->block = NULL;
    sw_span_close(span, NULL);
    return NULL;
}

static bool has_tiles(const sw_block *block, int64_t n_experts)
{
    for (int slot = 0; slot < SW_SLOT_COUNT; slot++)
        if (block->linear[slot].tiles) return true;
    for (int part = 0; part < 3; part++)
        for (int64_t e = 0; block->experts[part] && e < n_experts; e++)
            if (block->experts[part][e].tiles) return true;
    return false;
}

static sw_cuda_ahead *ahead_of(sw_cuda_streams *on)
{
    sw_err ignored = {0};
    sw_cuda_ahead *a = NULL;

    if (on->ahead) return on->ahead;
    if (SW_MEM_GET(&a, 1, "a block ahead", &ignored) != SW_OK) return NULL;
    a->engine = on->engine;
    if (sw_device_branch(&a->branch, on->gpu, &ignored) == SW_OK) return on->ahead = a;
    sw_mem_put(a);
    return NULL;
}

void sw_cuda_streams_expect(sw_streams *s, const sw_block *original)
{
    sw_cuda_streams *on = s->own;
    const int64_t n_bytes = sw_device_layer_bytes(s->model, original->layer, true);
    sw_cuda_ahead *a;

    if (!on->d_x0 || !s->n_seqs || !original->experts[2] ||
        !sw_cuda_may_stay(sw_device_left_bytes(on->gpu), n_bytes, s->model->moe_intermediate) ||
        has_tiles(original, s->model->n_experts) || (on->original && on->has_experts))
        return;
    sw_cuda_ahead_drop(on);
    if (!(a = ahead_of(on))) return;
    a->of = original;
    a->has_thread = pthread_create(&a->thread, NULL, run, a) == 0;
}

static void finish(sw_cuda_ahead *a)
{
    if (a->has_thread) (void)pthread_join(a->thread, NULL);
    a->has_thread = false;
}

sw_device_block *sw_cuda_ahead_take(sw_cuda_streams *on, const sw_block *original)
{
    sw_cuda_ahead *a = on->ahead;
    sw_device_block *block;

    if (!a) return NULL;
    finish(a);
    if (a->of != original) sw_cuda_ahead_drop(on);
    block = a->block;
    a->block = NULL;
    return block;
}

void sw_cuda_ahead_drop(sw_cuda_streams *on)
{
    if (!on->ahead) return;
    finish(on->ahead);
    sw_device_block_free(on->ahead->block);
    on->ahead->block = NULL;
}

void sw_cuda_ahead_free(sw_cuda_streams *on)
{
    if (!on->ahead) return;
    sw_cuda_ahead_drop(on);
    sw_device_close(on->ahead->branch);
    sw_mem_put(on->ahead);
    on->ahead = NULL;
}
