/* test_verify_kl.c - the bound on KL: noise as large as rounding tells what a model makes of errors
 * and what is beyond that is damage.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "tests/support/cases/quantized_dir.h"
#include "tests/support/cases/verify_case.h"
#include "tests/support/edit_json.h"
#include "tests/support/scratch.h"
#include "tests/support/toys/open_model.h"
#include "tests/support/toys/recipe_model.h"

#define RECIPE "tests/golden/recipes/qwen3_next"
#define TOKENS RECIPE "/reference.safetensors"

static void open_toy(scratch *s)
{
    sw_err err = {0};

    scratch_open(s);
    scratch_make_dir(s, "original");
    if (recipe_model_make(scratch_path(s, "original"), RECIPE, "config.json", &err) != SW_OK)
        fail_msg("%s", err.text);
}

static float *noisy_logits(const open_model *m, const reference_logits *ref, double noise,
                           int n_threads)
{
    const int64_t n = ref->seq_len;
    sw_engine *engine = open_engine(m, n, n_threads);
    float *logits = NULL;
    sw_err err = {0};

    assert_int_equal(SW_MEM_GET(&logits, n * m->model.vocab, "logits", &err), SW_OK);
    sw_engine_set_noise(engine, noise, 7);
    assert_int_equal(sw_engine_logits(engine, &m->lm, logits, ref->ids, 1, n, &err), SW_OK);
    sw_engine_free(engine);
    return logits;
}

/* More noise is farther away; the same noise is the same bytes, for any number of threads. */
static void test_noise(void **state)
{
    static const double shares[] = {0, 0.001, 0.01, 0.1};
    double before = -1;
    reference_logits ref;
    open_model m;
    scratch s;

    (void)state;
    open_toy(&s);
    open_model_dir(&m, scratch_path(&s, "original"));
    reference_open(&ref, TOKENS);
    for (size_t i = 0; i < sizeof shares / sizeof shares[0]; i++) {
        const int64_t n = ref.seq_len * ref.vocab;
        float *one = noisy_logits(&m, &ref, shares[i], 1);
        float *two = noisy_logits(&m, &ref, shares[i], 2);
        const double far = relative_l2(one, ref.logits, n);

        assert_memory_equal(one, two, (size_t)n * sizeof *one);
        if (!(far > before) || (shares[i] > 0 && !(far > shares[i])))
            fail_msg("noise of %g: logits are %g away", shares[i], far);
        before = far;
        sw_mem_put(one);
        sw_mem_put(two);
    }
    reference_close(&ref);
    open_model_close(&m);
    scratch_close(&s);
}

/* A norm of the other sign is no rounding, whatever the model makes of that. */
static void test_damage_is_beyond_noise(void **state)
{
    static const uint16_t wrong[16] = {0xc000, 0xc000, 0xc000, 0xc000, 0xc000, 0xc000,
                                       0xc000, 0xc000, 0xc000, 0xc000, 0xc000, 0xc000,
                                       0xc000, 0xc000, 0xc000, 0xc000}; /* -2 in bf16 */
    const char *text = TOKENS;
    sw_verify_options o;
    sw_report r;
    scratch s;

    (void)state;
    open_toy(&s);
    quantized_dir_make(scratch_path(&s, "q"), scratch_path(&s, "original"), "compressed-tensors", 8,
                       true, 32);
    edit_remove(scratch_path(&s, "q"), "manifest.json");
    o = verify_options_for(scratch_path(&s, "q"));
    o.original_dir = scratch_path(&s, "original");
    o.text_paths = &text;
    verify_run(&r, &o);
    verify_expect_pass(&r);
    assert_false(r.eval.is_probed); /* nothing to ask */
    sw_report_free(&r);
    edit_tensor(scratch_path(&s, "q"), "model.layers.1.input_layernorm.weight", 0, wrong,
                sizeof wrong);
    verify_run(&r, &o);
    verify_expect_fail(&r, "implausible", "mean KL");
    assert_true(r.eval.is_probed);
    assert_true(r.eval.noise > 0 && r.eval.noise < 0.04);
    sw_report_free(&r);
    scratch_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_noise),
        cmocka_unit_test(test_damage_is_beyond_noise),
    };
    return cmocka_run_group_tests_name("verify_kl", tests, NULL, NULL);
}
