/* test_fault_library.c - memory and disk failing under the C interface: the right code, no leak,
 * nothing handed out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/fault/fault.h"
#include "tests/support/cases/quantized_dir.h"
#include "tests/support/scratch.h"
#include "tools/library/libswage.h"

#define SOURCE "tests/golden/arch/llama"
#define MODULE "model.layers.0.self_attn.k_proj"

static float weight[64 * 128];
static double hessian[128 * 128];

static sw_code end(int code, const sw_error *error, sw_err *err)
{
    return code ? SW_FAIL(err, (sw_code)code, "%s", error->text) : SW_OK;
}

static sw_code look(void *ctx, sw_err *err)
{
    sw_source *source = NULL;
    sw_matrix *m = NULL;
    sw_encoded *e = NULL;
    sw_product *p = NULL;
    sw_error error;
    float y[64];
    int code = sw_source_open(&source, scratch_path(ctx, "q"), &error);

    if (!code) code = sw_source_decode(weight, 64 * 128, source, MODULE, &error);
    if (!code) code = sw_source_matrix(&m, source, MODULE, &error);
    if (!code) code = sw_encoded_new(&e, m, "swage", &error);
    if (!code) code = sw_product_new(&p, m, NULL, &error);
    if (!code) code = sw_product_run(y, p, weight, 1, 1, &error);
    sw_product_free(p);
    sw_encoded_free(e);
    sw_matrix_free(m);
    sw_source_close(source);
    return end(code, &error, err);
}

static sw_code quantize(void *ctx, sw_err *err)
{
    sw_quantize_options o = SW_QUANTIZE_OPTIONS_INIT;
    sw_matrix *m = NULL;
    sw_error error;
    int code;

    (void)ctx;
    o.hessian = hessian;
    o.n_threads = 1;
    code = sw_matrix_quantize(&m, NULL, weight, 64, 128, &o, &error);
    sw_matrix_free(m);
    return end(code, &error, err);
}

static sw_code convert(void *ctx, sw_err *err)
{
    sw_convert_settings s = SW_CONVERT_SETTINGS_INIT;
    char from[512];
    sw_error error;

    s.may_replace = 1;
    s.n_threads = 1;
    strncpy(from, scratch_path(ctx, "q"), sizeof from - 1);
    from[sizeof from - 1] = '\0';
    return end(sw_convert(NULL, from, scratch_path(ctx, "out"), "gptq_v2", &s, &error), &error,
               err);
}

static void test_all(void **state)
{
    scratch s;

    (void)state;
    scratch_open(&s);
    quantized_dir_make(scratch_path(&s, "q"), SOURCE, "gptq", 4, true, 64);
    for (int i = 0; i < 128; i++) hessian[i * 128 + i] = 1 + i;
    fault_run(&(fault_plan){.name = "look", .kinds = FAULT_MEMORY | FAULT_READ, .attempt = look,
                            .ctx = &s});
    fault_run(&(fault_plan){.name = "quantize", .kinds = FAULT_MEMORY, .attempt = quantize,
                            .ctx = &s});
    fault_run(&(fault_plan){.name = "convert", .kinds = FAULT_ALL, .attempt = convert, .ctx = &s,
                            .max_runs = 60});
    scratch_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
