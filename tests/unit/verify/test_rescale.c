/* test_rescale.c - the judge on checkpoints whose norms and linears were rescaled: sound ones
 * pass, and a producer changed without its readers, or the other way round, is found. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "formats/base/size.h"
#include "formats/num/half.h"
#include "quant/search/fold.h"
#include "tests/support/cases/quantized_dir.h"
#include "tests/support/cases/verify_case.h"
#include "tests/support/scratch.h"
#include "tests/support/toys/patched_model.h"
#include "tests/support/toys/random.h"
#include "tools/convert/convert_job.h"
#include "verify/metrics/fold_rows.h"

/* Takes random factors for better, whatever they do. */
static sw_code propose_random(sw_proposal *out, const sw_group *g, sw_err *err)
{
    test_rng rng = {(uint64_t)g->fold.site + 3};
    double width = sw_fold_needs_pow2(g->job, &g->fold, g->expert) ? 0.8 : 0.35;

    for (int64_t j = 0; j < g->k; j++) out->scale[j] = exp(width * test_gauss(&rng));
    out->is_better = true;
    return sw_fold_round(out->scale, g->job, &g->fold, g->expert, g->k, err);
}

static int64_t no_bytes(const sw_transform_need *need)
{
    (void)need;
    return 0;
}

static const sw_transform random_scales = {"random", true, false, 0, propose_random, no_bytes,
                                           NULL};
static const sw_transform random_norms = {"random", false, false, 0, propose_random, no_bytes,
                                          NULL};
static const sw_algo rtn_on_random = {.name = "random+rtn", .needs_statistics = true,
                                      .transform = &random_scales, .solve = sw_rtn_solve};
static const sw_algo gptq_on_random = {.name = "random+gptq", .needs_statistics = true,
                                       .repairs_errors = true, .transform = &random_norms,
                                       .solve = sw_gptq_solve};
static const sw_algo gptq_on_random_rows = {.name = "random+gptq", .needs_statistics = true,
                                            .repairs_errors = true, .transform = &random_scales,
                                            .solve = sw_gptq_solve};

static void make(scratch *s, const char **dir, const sw_algo *algo, int bits)
{
    scratch_open(s);
    *dir = scratch_path(s, "q");
    quantized_dir_by(*dir, VERIFY_MODEL, "swage", bits, true, 32, algo, NULL);
}

static void judge(sw_report *r, const char *dir)
{
    sw_verify_options o = verify_options_for(dir);

    verify_run(r, &o);
}

static void test_sound_checkpoints_pass(void **state)
{
    static const sw_algo *const algos[] = {&rtn_on_random, &gptq_on_random};

    (void)state;
    for (int a = 0; a < 2; a++)
        for (int bits = 3; bits <= 8; bits += bits == 4 ? 4 : 1) {
            const char *dir;
            sw_report r;
            scratch s;

            make(&s, &dir, algos[a], bits);
            judge(&r, dir);
            verify_expect_pass(&r);
            assert_int_equal(r.coverage.n_rescaled, 4); /* two norms in each of two layers */
            assert_int_equal(r.coverage.n_differing, 0);
            for (int64_t i = 0; i < r.n_tensors; i++)
                assert_true(r.tensors[i].output_err > 0 &&
                            r.tensors[i].output_err < (bits == 8 ? 0.02 : bits == 4 ? 0.3 : 0.6));
            sw_report_free(&r);
            scratch_close(&s);
        }
}

/* Values that several heads share, values with a bias, and parts of fused linears. */
static void test_shared_heads_and_parts_pass(void **state)
{
    static const char *const archs[] = {"phi3", "gemma2", "qwen2"};

    (void)state;
    for (int a = 0; a < 3; a++) {
        char model[128], text[160];
        const char *dir, *texts = text;
        sw_verify_options o;
        sw_report r;
        scratch s;

        (void)snprintf(model, sizeof model, "tests/golden/arch/%s", archs[a]);
        (void)snprintf(text, sizeof text, "%s/reference.safetensors", model);
        scratch_open(&s);
        dir = scratch_path(&s, "q");
        quantized_dir_by(dir, model, "swage", 4, true, 32, &rtn_on_random, NULL);
        o = verify_options_for(dir);
        o.original_dir = model;
        o.text_paths = &texts;
        verify_run(&r, &o);
        verify_expect_pass(&r);
        assert_int_equal(r.coverage.n_rescaled, 4); /* norms; biases are zero here */
        for (int64_t i = 0; i < r.n_tensors; i++)
            if (!(r.tensors[i].output_err < 0.3))
                fail_msg("%s, tensor %lld: %g", archs[a], (long long)i, r.tensors[i].output_err);
        sw_report_free(&r);
        scratch_close(&s);
    }
}

/* The stored tensor, in the mapped-in file; changed and written back by `edit`. */
typedef void (*edit_fn)(uint16_t *stored, const uint16_t *original, int64_t n);

static void edit_norm(const char *dir, const char *name, edit_fn edit)
{
    char path[SW_PATH_BYTES];
    const sw_st_tensor *t, *o;
    sw_st *st = NULL, *original = NULL;
    sw_err err = {0};
    uint8_t *bytes;
    size_t n_bytes, at = 0;
    FILE *f;

    assert_int_equal(sw_st_open(&st, dir, &err), SW_OK);
    assert_int_equal(sw_st_open(&original, VERIFY_MODEL, &err), SW_OK);
    t = sw_st_find(st, name);
    o = sw_st_find(original, name);
    assert_true(t && o && t->view.dtype == SW_DTYPE_BF16);
    assert_int_equal(sw_path_join(path, dir, "model.safetensors", &err), SW_OK);
    f = fopen(path, "rb");
    fseek(f, 0, SEEK_END);
    n_bytes = (size_t)ftell(f);
    rewind(f);
    bytes = malloc(n_bytes);
    assert_int_equal(fread(bytes, 1, n_bytes, f), n_bytes);
    fclose(f);
    for (size_t i = 0; i + t->view.size_bytes <= n_bytes && !at; i += 2) /* tensors lie even */
        if (!memcmp(bytes + i, t->view.data, t->view.size_bytes)) at = i;
    assert_true(at > 0);
    edit((uint16_t *)(void *)(bytes + at), o->view.data, t->view.shape[0]);
    sw_st_close(st);
    sw_st_close(original);
    f = fopen(path, "wb");
    assert_int_equal(fwrite(bytes, 1, n_bytes, f), n_bytes);
    fclose(f);
    free(bytes);
}

static void double_one(uint16_t *stored, const uint16_t *original, int64_t n)
{
    (void)original;
    (void)n;
    stored[5] = (uint16_t)(stored[5] + 0x80); /* bf16: one more in the exponent */
}

static void put_back(uint16_t *stored, const uint16_t *original, int64_t n)
{
    memcpy(stored, original, (size_t)n * sizeof *stored);
}

static void zero_one(uint16_t *stored, const uint16_t *original, int64_t n)
{
    (void)original;
    (void)n;
    stored[7] = 0;
}

/* The two channels whose factors are furthest apart. */
static void swap_two(uint16_t *stored, const uint16_t *original, int64_t n)
{
    int64_t low = 0, high = 0;
    float ratio[2] = {INFINITY, 0};
    uint16_t kept;

    for (int64_t j = 0; j < n; j++) {
        float q = sw_bf16_decode(stored[j]) / sw_bf16_decode(original[j]);
        if (q < ratio[0]) low = j;
        if (q > ratio[1]) high = j;
        ratio[0] = fminf(ratio[0], q);
        ratio[1] = fmaxf(ratio[1], q);
    }
    kept = stored[low];
    stored[low] = stored[high];
    stored[high] = kept;
}

static void test_changed_norms_are_found(void **state)
{
    static const struct {
        edit_fn edit;
        const char *what, *says;
    } faults[] = {
        {double_one, "implausible", "input 5"},
        {put_back, "implausible", "q_proj"},
        {zero_one, "rescaled", "channel 7"},
        {swap_two, "implausible", "q_proj"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        for (int a = 0; a < 2; a++) {
            const char *dir;
            sw_report r;
            scratch s;

            make(&s, &dir, a ? &gptq_on_random : &rtn_on_random, 4);
            edit_norm(dir, "model.layers.1.input_layernorm.weight", faults[i].edit);
            judge(&r, dir);
            verify_expect_fail(&r, faults[i].what, faults[i].says);
            sw_report_free(&r);
            scratch_close(&s);
        }
}

/* A norm that changed where no linear did. */
static void test_unscaled_readers_are_found(void **state)
{
    const char *dir;
    sw_report r;
    scratch s;

    (void)state;
    make(&s, &dir, sw_algo_find("rtn"), 4);
    edit_norm(dir, "model.layers.0.post_attention_layernorm.weight", double_one);
    judge(&r, dir);
    verify_expect_fail(&r, "implausible", "gate_proj");
    sw_report_free(&r);
    scratch_close(&s);
}

/* A change too small for any one column: all readers of the norm together tell it from a factor. */
static void next_number(uint16_t *stored, const uint16_t *original, int64_t n)
{
    (void)original;
    (void)n;
    stored[5] ^= 1;
}

static void all_next_numbers(uint16_t *stored, const uint16_t *original, int64_t n)
{
    (void)original;
    for (int64_t j = 0; j < n; j++) stored[j] ^= 1;
}

static void test_small_changes_of_a_norm_are_found(void **state)
{
    static const edit_fn edits[] = {next_number, all_next_numbers};

    (void)state;
    for (int i = 0; i < 2; i++) {
        const char *dir;
        sw_report r;
        scratch s;

        make(&s, &dir, sw_algo_find("rtn"), 4);
        edit_norm(dir, "model.layers.1.input_layernorm.weight", edits[i]);
        judge(&r, dir);
        verify_expect_fail(&r, "differs", "model.layers.1.input_layernorm.weight");
        sw_report_free(&r);
        scratch_close(&s);
    }
}

/* What was folded stays known through a conversion. */
static void test_conversions_keep_what_was_folded(void **state)
{
    sw_convert_options o = {.target = sw_dialect_find("gptq"), .n_threads = 1};
    sw_convert_job *job = calloc(1, sizeof *job);
    const char *dir;
    sw_report r;
    scratch s;
    sw_err err = {0};

    (void)state;
    make(&s, &dir, &rtn_on_random, 4);
    o.source_dir = dir;
    o.out_dir = scratch_path(&s, "converted");
    assert_non_null(job);
    if (sw_convert_plan(job, &o, NULL, &err) != SW_OK || sw_convert_run(job, &err) != SW_OK)
        fail_msg("%s", err.text);
    sw_convert_free(job);
    free(job);
    judge(&r, o.out_dir);
    verify_expect_pass(&r);
    sw_report_free(&r);
    scratch_close(&s);
}

/* Factors in rows show in the readers: nobody has to say that they are there. */
static void test_rows_need_no_manifest(void **state)
{
    static const sw_algo *const algos[] = {&rtn_on_random, &gptq_on_random_rows};

    (void)state;
    for (int a = 0; a < 2; a++)
        for (int bits = 3 + a; bits <= 8; bits += bits == 4 ? 4 : 1) {
            const char *dir;
            sw_report r;
            scratch s;

            make(&s, &dir, algos[a], bits);
            assert_int_equal(remove(scratch_path(&s, "q/manifest.json")), 0);
            judge(&r, dir);
            verify_expect_pass(&r);
            for (int64_t i = 0; i < r.n_tensors && bits >= 4; i++)
                assert_true(r.tensors[i].output_err < (bits == 8 ? 0.02 : 0.3));
            sw_report_free(&r);
            scratch_close(&s);
        }
}

/* Measured factors of 64 channels: `shared` is the deviation of what both sides have. */
static bool agree(double *rows, double shared, double one_sided, double row_5)
{
    double columns[64], noise[64], scratch_of[64];
    test_rng rng = {5};

    for (int i = 0; i < 64; i++) {
        double both = shared * test_gauss(&rng);

        rows[i] = exp(both + one_sided + 0.01 * test_gauss(&rng));
        columns[i] = exp(both + 0.01 * test_gauss(&rng));
        noise[i] = 1e-4;
    }
    rows[5] *= row_5;
    return sw_fold_rows_agree(rows, columns, noise, 64, false, scratch_of);
}

static void test_sides_must_agree(void **state)
{
    double rows[64], sound[64];

    (void)state;
    assert_false(agree(rows, 0, 0, 1));     /* noise */
    assert_false(agree(rows, 0, 0.4, 1));   /* producer alone */
    assert_false(agree(rows, 0, 0, 1.5));   /* one row of it */
    assert_false(agree(rows, 0, 0, 20));
    assert_false(agree(rows, 0.2, -0.7, 1));
    assert_true(agree(rows, 0.03, 0, 1)); /* all of them near 1, and yet none is 1 */
    assert_false(rows[0] >= 1 && rows[0] <= 1);
    assert_true(agree(sound, 0.3, 0, 1));
    assert_true(agree(rows, 0.3, 0, 1.5)); /* the consumer's word counts for that row */
    for (int i = 0; i < 64; i++) assert_true(fabs(rows[i] / sound[i] - 1) < (i == 5 ? 0.05 : 1e-9));
}

/* A bias that stays in floats must be told its factors exactly. */
static void test_powers_of_two_are_exact(void **state)
{
    double rows[64], columns[64], noise[64], scratch_of[64];
    test_rng rng = {9};

    (void)state;
    for (int i = 0; i < 64; i++) {
        rows[i] = exp2(i % 3 - 1) * exp(0.01 * test_gauss(&rng));
        columns[i] = exp2(i % 3 - 1) * exp(0.01 * test_gauss(&rng));
        noise[i] = 1e-4;
    }
    assert_true(sw_fold_rows_agree(rows, columns, noise, 64, false, scratch_of));
    for (int i = 0; i < 64; i++) assert_true(rows[i] * 2 == (double)(1 << i % 3));
}

/* A producer or a reader that was scaled alone, in checkpoints with folds and without, as they were
 * published: without a manifest. */
static void test_one_sided_factors_are_found(void **state)
{
    static const struct {
        const char *linear;
        bool is_column;
        int64_t first, n;
        double factor;
        const char *says; /* of a pair that differs as a whole, the one or the other */
    } faults[] = {
        {"self_attn.v_proj", false, 5, 1, 1.5, "v_proj"},
        {"mlp.up_proj", false, 200, 1, 1.5, "up_proj"},
        {"mlp.up_proj", false, 17, 1, 0.5, "up_proj"},
        {"self_attn.v_proj", false, 0, 64, 1.5, "_proj"},
        {"mlp.up_proj", false, 0, 256, 0.75, "_proj"},
        {"mlp.down_proj", true, 31, 1, 2, "_proj"},
        {"self_attn.o_proj", true, 0, 128, 1.5, "_proj"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        for (int a = 0; a < 4; a++) {
            const char *model, *dir;
            char name[128];
            sw_report r;
            scratch s;

            scratch_open(&s);
            model = scratch_path(&s, "model");
            dir = scratch_path(&s, "q");
            (void)snprintf(name, sizeof name, "model.layers.1.%s.weight", faults[i].linear);
            patched_scale_make(model, VERIFY_MODEL, name, faults[i].is_column, faults[i].first,
                               faults[i].n, faults[i].factor);
            quantized_dir_by(dir, model, "swage", a & 2 ? 8 : 4, true, 32,
                             a & 1 ? &rtn_on_random : sw_algo_find("rtn"), NULL);
            assert_int_equal(remove(scratch_path(&s, "q/manifest.json")), 0);
            judge(&r, dir);
            verify_expect_fail(&r, "implausible", faults[i].says);
            sw_report_free(&r);
            scratch_close(&s);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sound_checkpoints_pass),
        cmocka_unit_test(test_shared_heads_and_parts_pass),
        cmocka_unit_test(test_changed_norms_are_found),
        cmocka_unit_test(test_unscaled_readers_are_found),
        cmocka_unit_test(test_small_changes_of_a_norm_are_found),
        cmocka_unit_test(test_rows_need_no_manifest),
        cmocka_unit_test(test_sides_must_agree),
        cmocka_unit_test(test_powers_of_two_are_exact),
        cmocka_unit_test(test_one_sided_factors_are_found),
        cmocka_unit_test(test_conversions_keep_what_was_folded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
