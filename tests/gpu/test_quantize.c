/* test_quantize.c - whole runs of the quantizer with streams and solves on a device, against the
 * same on the CPU. Exit 77 without a GPU. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "formats/io/file_content.h"
#include "kernels/blas.h"
#include "kernels/solver.h"
#include "quant/run/pipeline.h"
#include "tests/support/cases/stats_case.h"
#include "tests/support/scratch.h"
#include "tests/support/toys/random.h"
#include "tests/support/toys/recipe_model.h"

enum { SEQS = 80, LEN = 128 };

static sw_device *gpu, *small_gpu;
static sw_solver *solver, *small_solver;

typedef struct toy {
    scratch dir; /* of a recipe's model */
    cJSON *config;
    sw_model model;
    sw_st *st;
    uint32_t *ids;
    sw_calib calib;
} toy;

#define MUST(call) \
    do { sw_err err = {0}; if ((call) != SW_OK) fail_msg("%s: %s", #call, err.text); } while (0)

/* One of tests/golden/arch, or "recipes/NAME". */
static void toy_open(toy *t, const char *arch)
{
    char from[256], path[SW_PATH_BYTES];
    const bool is_recipe = strchr(arch, '/') != NULL;
    test_rng rng = {17};

    memset(t, 0, sizeof *t);
    scratch_open(&t->dir);
    (void)snprintf(from, sizeof from, "tests/golden/%s%s", is_recipe ? "" : "arch/", arch);
    if (is_recipe) MUST(recipe_model_make(t->dir.dir, from, "config.json", &err));
    (void)snprintf(path, sizeof path, "%s/config.json", is_recipe ? t->dir.dir : from);
    MUST(sw_json_read(&t->config, path, &sw_json_caps_config, &err));
    MUST(sw_model_read(&t->model, t->config, &err));
    MUST(sw_st_open(&t->st, is_recipe ? t->dir.dir : from, &err));
    sw_model_fit_names(&t->model, t->st);
    t->ids = malloc(sizeof *t->ids * SEQS * LEN);
    for (int i = 0; i < SEQS * LEN; i++)
        t->ids[i] = (uint32_t)(test_uniform(&rng) * test_uniform(&rng) * (double)t->model.vocab);
    t->calib = (sw_calib){t->ids, SEQS, LEN};
}

static void toy_close(toy *t)
{
    cJSON_Delete(t->config);
    sw_st_close(t->st);
    scratch_close(&t->dir);
    free(t->ids);
}

static sw_code put(void *self, const sw_linear_ref *ref, const char *path, const sw_qtensor *q,
                   const sw_solve_report *report, sw_err *err)
{
    (void)ref, (void)path, (void)err;
    taken_add(self, q, report);
    return SW_OK;
}

static sw_code transformed(void *self, const sw_transform_report *report, sw_err *err)
{
    (void)self, (void)report, (void)err;
    return SW_OK;
}

static taken run(const toy *t, const char *method, sw_solver *on, sw_sequential sequential)
{
    sw_quant_options o = sw_quant_defaults();
    taken k = {0};
    sw_quant_sink sink = {.self = &k, .put = put, .is_selected = takes_all,
                          .change = takes_no_change, .transformed = transformed};

    o.algo = sw_algo_find(method);
    o.spec.group_elems = 32;
    o.sequential = sequential;
    o.n_threads = 4;
    o.backend = on ? &sw_backend_cuda : &sw_backend_cpu;
    o.device = on;
    MUST(sw_quant_run(&t->model, t->st, o.algo->needs_statistics ? &t->calib : NULL, &o, &sink,
                      NULL, &err));
    return k;
}

/* Rounding of activations to BF16 is all that sets the two apart. */
static void check_arch(const char *arch, sw_sequential sequential)
{
    taken cpu, device, again, small;
    toy t;

    toy_open(&t, arch);
    cpu = run(&t, "gptq", NULL, sequential);
    device = run(&t, "gptq", solver, sequential);
    again = run(&t, "gptq", solver, sequential);
    small = run(&t, "gptq", small_solver, sequential); /* no room to keep inputs */
    printf("%s: mean error %.5e on the device, %.5e on the CPU, %.5e by rounding\n", arch,
           device.error / device.n, cpu.error / cpu.n, cpu.error_rtn / cpu.n);
    assert_int_equal(device.n, cpu.n);
    assert_int_equal(device.n_fallbacks, cpu.n_fallbacks);
    assert_true(fabs(device.error / cpu.error - 1) < 0.05);
    assert_true(fabs(device.error_rtn / cpu.error_rtn - 1) < 0.05);
    assert_same_taken(&device, &again);
    assert_same_taken(&device, &small);
    free(cpu.bytes), free(device.bytes), free(again.bytes), free(small.bytes);
    toy_close(&t);
}

#ifdef SW_CHECKED /* a checker follows every access */
#define N_ARCHS 1
#else
#define N_ARCHS 4
#endif

static void every_dense_architecture(void **state)
{
    static const char *const archs[] = {"gemma2", "llama", "qwen2", "phi3"};

    (void)state;
    for (size_t i = 0; i < N_ARCHS; i++) check_arch(archs[i], SW_SEQUENTIAL_SITE);
    check_arch("llama", SW_SEQUENTIAL_LAYER);
}

static void recurrent_mixers(void **state)
{
    static const char *const archs[] = {"recipes/lfm2", "recipes/mamba2", "recipes/qwen3_5_text",
                                        "recipes/falcon_h1"};

    (void)state;
    for (size_t i = 0; i < N_ARCHS; i++) check_arch(archs[i], SW_SEQUENTIAL_SITE);
}

/* What tokens have beside the residual stream, branches beside each other, factors. */
static void families_unlike_llama(void **state)
{
    static const char *const archs[] = {"recipes/gemma4", "recipes/gemma3n", "recipes/gpt_neox",
                                        "recipes/granite"};

    (void)state;
    for (size_t i = 0; i < N_ARCHS; i++) check_arch(archs[i], SW_SEQUENTIAL_SITE);
}

/* Experts are solved on the CPU, plain rounding gives its bytes, and a search for scales sees
 * blocks that ran in BF16. */
static void what_is_not_gptq(void **state)
{
    taken cpu, device, again;
    toy t;

    (void)state;
    toy_open(&t, "mixtral");
    cpu = run(&t, "gptq", NULL, SW_SEQUENTIAL_SITE);
    device = run(&t, "gptq", solver, SW_SEQUENTIAL_SITE);
    assert_int_equal(device.n, cpu.n);
    assert_true(fabs(device.error / cpu.error - 1) < 0.05);
    free(cpu.bytes), free(device.bytes);
    toy_close(&t);
    toy_open(&t, "llama");
    cpu = run(&t, "awq", NULL, SW_SEQUENTIAL_SITE);
    device = run(&t, "awq", solver, SW_SEQUENTIAL_SITE);
    again = run(&t, "awq", solver, SW_SEQUENTIAL_SITE);
    assert_int_equal(device.n, cpu.n);
    assert_true(fabs(device.error / cpu.error - 1) < 0.05);
    assert_same_taken(&device, &again);
    free(cpu.bytes), free(device.bytes), free(again.bytes);
    cpu = run(&t, "rtn", NULL, SW_SEQUENTIAL_SITE);
    device = run(&t, "rtn", solver, SW_SEQUENTIAL_SITE);
    assert_same_taken(&cpu, &device);
    free(cpu.bytes), free(device.bytes);
    toy_close(&t);
}

static int open_all(void **state)
{
    (void)state;
    sw_blas_single_thread();
    MUST(sw_device_open(&gpu, 0, 0, &err));
    MUST(sw_device_open(&small_gpu, 0, (int64_t)2 << 30, &err));
    MUST(sw_solver_open(&solver, gpu, 0, &err));
    MUST(sw_solver_open(&small_solver, small_gpu, 0, &err));
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    sw_solver_close(solver);
    sw_solver_close(small_solver);
    assert_int_equal(sw_device_taken_bytes(gpu), 0);
    assert_int_equal(sw_device_taken_bytes(small_gpu), 0);
    sw_device_close(gpu);
    sw_device_close(small_gpu);
    return 0;
}

/* One argument: the tests whose name it matches (* and ? as in a shell). */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_dense_architecture),
                                       cmocka_unit_test(recurrent_mixers),
                                       cmocka_unit_test(families_unlike_llama),
                                       cmocka_unit_test(what_is_not_gptq)};

    if (sw_device_count() == 0) {
        printf("skipped: no GPU\n");
        return 77;
    }
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, open_all, close_all);
}
