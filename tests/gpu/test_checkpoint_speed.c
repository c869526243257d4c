/* test_checkpoint_speed.c - a checkpoint timed on a device in turns with its original: every batch,
 * every kind of linear, the kernels named. How fast is not asked. Exit 77 without a GPU. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "kernels/cuda_gemm.h"
#include "tests/gpu/support/device_case.h"
#include "tests/support/cases/quantized_dir.h"
#include "tests/support/scratch.h"
#include "verify/speed/checkpoint_speed.h"

#define MODEL "calib_data/tiny-llama"

static sw_device *gpu;
static const sw_speed_request request = {.batches = {1, 3}, .n_batches = 2, .prompt = 40,
                                         .n_steps = 4, .n_rounds = 6};

static void check_cells(const sw_report_speed *s)
{
    assert_int_equal(s->n_cells, 4);
    assert_true(s->device[0] && s->read_gb_s > 0 && s->gflop_s > 0);
    for (int64_t i = 0; i < s->n_cells; i++) {
        const sw_speed_cell *c = &s->cells[i];

        assert_int_equal(c->is_prefill, i >= 2);
        for (int side = 0; side < SW_SPEED_SIDES; side++) {
            assert_true(c->tokens_s[side].median.at > 0 && isfinite(c->us[side]));
            assert_true(c->roof_share[side] > 0);
        }
        assert_true(c->speedup.lowest <= c->speedup.median.at &&
                    c->speedup.median.at <= c->speedup.highest);
    }
}

static void a_quantized_one_beside_its_original(void **state)
{
    const char *dir = scratch_path(*state, "out");
    sw_report_speed s = {.is_measured = false};
    sw_arena arena = {0};
    const sw_speed_job job = {.dir = dir, .original_dir = MODEL, .request = &request, .gpu = gpu,
                              .n_threads = 2};
    int n_of_prefill = 0;

    quantized_dir_make(dir, MODEL, "compressed-tensors", 4, true, 128);
    MUST(sw_checkpoint_speed(&s, &arena, &job, err));
    check_cells(&s);
    assert_true(s.n_linears >= 2);
    for (int64_t i = 0; i < s.n_linears; i++) {
        const sw_speed_linear *l = &s.linears[i];

        assert_true(l->us[0] > 0 && l->us[1] > 0 && l->speedup.at > 0);
        assert_true(l->bytes[0] < l->bytes[1]);
        if (l->is_prefill) assert_int_equal(l->m, request.prompt);
        n_of_prefill += l->is_prefill;
        if (sw_cuda_kernel_find(l->kernel) < 0) fail_msg("%s: kernel %s", l->name, l->kernel);
    }
    assert_true(n_of_prefill > 0);
    sw_arena_free(&arena);
}

/* Alone there is nothing to compare, and dense linears are those of cuBLASLt. */
static void one_alone(void **state)
{
    const sw_speed_job job = {.dir = MODEL, .request = &request, .gpu = gpu, .n_threads = 2};
    sw_report_speed s = {.is_measured = false};
    sw_arena arena = {0};

    (void)state;
    MUST(sw_checkpoint_speed(&s, &arena, &job, err));
    assert_false(s.has_original);
    assert_int_equal(s.n_cells, 4);
    assert_true(s.n_linears >= 2);
    assert_string_equal(s.linears[0].kernel, "cuBLASLt");
    sw_arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_quantized_one_beside_its_original, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test(one_alone),
    };
    int failed = device_open(&gpu);

    if (failed) return failed;
    failed = cmocka_run_group_tests_name("speed of a checkpoint", tests, NULL, NULL);
    sw_device_close(gpu);
    return failed;
}
