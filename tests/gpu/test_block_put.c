/* test_block_put.c - values put into a block that lies on a device: what it then computes is what
 * it would, had it been loaded with them. Exit 77 without a GPU.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "kernels/engine/device_engine.h"
#include "tests/gpu/support/device_case.h"
#include "tests/support/toys/open_model.h"
#include "tests/support/toys/random.h"

enum { TOKENS = 64 };

static const char *const archs[] = {"llama", "phi3", "qwen2", "qwen3_moe", "mixtral", "gpt_oss",
                                    "deepseek_v3"};
#define N_ARCHS (sizeof archs / sizeof archs[0])

static sw_device *gpu;

/* 1/2 to 5/4 of it, each linear another part: exact in BF16 but for its last bits. */
static float *changed(sw_block *block, const sw_linear_ref *ref, int64_t i)
{
    const sw_weight *w = sw_block_weight(block, ref->slot, ref->expert);
    const int64_t n = ref->n_out * ref->k_in;
    float *values = NULL;

    MUST(SW_ARENA_TAKE(&values, &block->arena, n, err));
    MUST(sw_float_decode_n(values, w->dense, w->dense_dtype, n, err));
    for (int64_t j = 0; j < n; j++) values[j] *= 0.5f + 0.25f * (float)(i % 4);
    return values;
}

static void put(sw_device_block *on_device, const sw_linear_ref *ref, const float *values)
{
    const int64_t n = ref->n_out * ref->k_in;
    float *d = NULL;

    MUST(sw_device_take((void **)&d, gpu, n, (int64_t)sizeof *d, "values", err));
    MUST(sw_device_upload(gpu, d, values, n * (int64_t)sizeof *d, err));
    MUST(sw_device_block_put(on_device, ref->slot, ref->expert, d, err));
    sw_device_put(gpu, d);
}

/* Every linear of `block` in turn, and what is there of it: every other one from the device. */
static void change_all(sw_block *block, const sw_model *m, sw_device_block *on_device)
{
    const int64_t n = sw_model_linears(m, block->layer, NULL, 0);
    sw_linear_ref *refs = calloc((size_t)n, sizeof *refs);

    (void)sw_model_linears(m, block->layer, refs, n);
    for (int64_t i = 0; i < n; i++) {
        sw_weight *w = sw_block_weight(block, refs[i].slot, refs[i].expert);
        float *values = changed(block, &refs[i], i);

        w->dense = values;
        w->dense_dtype = SW_DTYPE_F32;
        if (i % 2) put(on_device, &refs[i], values);
        else MUST(sw_device_block_take(on_device, refs[i].slot, refs[i].expert, block, err));
    }
    free(refs);
}

static float *output(sw_device_engine *e, const sw_device_block *b, const float *x, int64_t n)
{
    float *y = malloc(sizeof *y * (size_t)n), *d = NULL;

    MUST(sw_device_take((void **)&d, gpu, n, (int64_t)sizeof *d, "rows", err));
    MUST(sw_device_upload(gpu, d, x, n * (int64_t)sizeof *d, err));
    MUST(sw_device_engine_block(e, b, d, 1, TOKENS, NULL, (sw_site)SW_RUN_ALL, err));
    MUST(sw_device_download(gpu, y, d, n * (int64_t)sizeof *d, err));
    sw_device_put(gpu, d);
    return y;
}

/* A block that has every second linear in common with one on the device: is it what it is when it
 * is loaded by itself? */
static void check_twin(sw_block *block, const sw_model *m, sw_device_engine *e,
                       const sw_device_block *like, const float *x, int64_t n_x)
{
    const int64_t n = sw_model_linears(m, block->layer, NULL, 0);
    sw_linear_ref *refs = calloc((size_t)n, sizeof *refs);
    float *have, *want;
    sw_device_block *twin = NULL, *alone = NULL;
    sw_block other = *block;

    (void)sw_model_linears(m, block->layer, refs, n);
    for (int64_t i = 0; i < n; i += 2) {
        if (refs[i].expert >= 0) continue;
        other.linear[refs[i].slot].dense = changed(block, &refs[i], i);
        other.linear[refs[i].slot].dense_dtype = SW_DTYPE_F32;
    }
    MUST(sw_device_block_load_like(&twin, e, &other, like, block, err));
    MUST(sw_device_block_load(&alone, e, &other, err));
    have = output(e, twin, x, n_x);
    want = output(e, alone, x, n_x);
    assert_memory_equal(have, want, sizeof *x * (size_t)n_x);
    sw_device_block_free(twin);
    sw_device_block_free(alone);
    free(refs), free(have), free(want);
}

static void check_layer(const open_model *m, sw_device_engine *e, int64_t layer)
{
    const int64_t n = TOKENS * m->model.hidden;
    float *x = malloc(sizeof *x * (size_t)n), *before, *have, *want;
    sw_device_block *put_to = NULL, *loaded = NULL;
    sw_block block = {0};
    test_rng rng = {29};

    for (int64_t i = 0; i < n; i++) x[i] = (float)test_gauss(&rng);
    MUST(sw_block_load(&block, &m->model, m->st, layer, err));
    MUST(sw_device_block_load(&put_to, e, &block, err));
    before = output(e, put_to, x, n);
    check_twin(&block, &m->model, e, put_to, x, n);
    change_all(&block, &m->model, put_to);
    MUST(sw_device_block_load(&loaded, e, &block, err));
    have = output(e, put_to, x, n);
    want = output(e, loaded, x, n);
    assert_memory_equal(have, want, sizeof *x * (size_t)n);
    assert_memory_not_equal(have, before, sizeof *x * (size_t)n);
    sw_device_block_free(put_to);
    sw_device_block_free(loaded);
    sw_block_free(&block);
    free(x), free(before), free(have), free(want);
}

static void test_arch(void **state)
{
    const char *arch = *state;
    sw_device_engine *e = NULL;
    char path[256];
    open_model m;

    (void)snprintf(path, sizeof path, "tests/golden/arch/%s", arch);
    open_model_dir(&m, path);
    MUST(sw_device_engine_new(&e, gpu, &m.model, TOKENS, TOKENS, err));
    for (int64_t layer = 0; layer < m.model.n_layers; layer++) check_layer(&m, e, layer);
    sw_device_engine_free(e);
    open_model_close(&m);
}

/* One argument: the tests whose name it matches (* and ? as in a shell). */
int main(int argc, char **argv)
{
    struct CMUnitTest tests[N_ARCHS];
    int failed = device_open(&gpu);

    if (failed) return failed;
    for (size_t i = 0; i < N_ARCHS; i++)
        tests[i] = (struct CMUnitTest){.name = archs[i], .test_func = test_arch,
                                       .initial_state = (void *)(uintptr_t)archs[i]};
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    failed = cmocka_run_group_tests_name("values put into blocks", tests, NULL, NULL);
    sw_device_close(gpu);
    return failed;
}
