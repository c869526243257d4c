/* test_fault_gguf.c - every allocation, write, sync and rename of a GGUF failing: it is complete or
 * absent, what reads it gives back what it took, and the tokenizer out of it likewise. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <unistd.h>

#include <cmocka.h>

#include "formats/base/mem.h"
#include "formats/gguf/gguf_model.h"
#include "tests/fault/fault.h"
#include "tests/support/scratch.h"
#include "tools/convert/convert_gguf.h"

#define TOY "tests/golden/arch/llama"
#define BUNDLED "calib_data/tiny-llama"

typedef struct gguf_case {
    scratch s;
    const char *source, *type;
    bool has_tokenizer;
} gguf_case;

static sw_code write_gguf(void *ctx, sw_err *err)
{
    const gguf_case *c = ctx;
    sw_gguf_job job = {.source = c->source, .out = scratch_path(&c->s, "m.gguf"), .type = c->type,
                       .embed_type = "BF16", .no_tokenizer = !c->has_tokenizer, .n_threads = 1};

    return sw_gguf_job_run(&job, err);
}

static sw_code read_gguf(void *ctx, sw_err *err)
{
    const gguf_case *c = ctx;
    cJSON *config = NULL;
    sw_st *st = NULL;
    sw_code rc = sw_gguf_model_open(&config, &st, scratch_path(&c->s, "m.gguf"),
                                    SW_GGUF_CODES, err);

    if (rc != SW_OK) {
        assert_null(config);
        assert_null(st);
        return rc;
    }
    assert_true(sw_st_count(st) > 10);
    cJSON_Delete(config);
    sw_st_close(st);
    return SW_OK;
}

static sw_code read_tokenizer(void *ctx, sw_err *err)
{
    const gguf_case *c = ctx;
    size_t n_bytes = 0;
    char *json = NULL;
    sw_code rc = sw_gguf_tokenizer_of(&json, &n_bytes, scratch_path(&c->s, "m.gguf"), err);

    assert_true((rc == SW_OK) == (json != NULL));
    sw_mem_put(json);
    return rc;
}

static void remove_gguf(void *ctx)
{
    (void)unlink(scratch_path(&((gguf_case *)ctx)->s, "m.gguf"));
}

static void expect_nothing(void *ctx)
{
    assert_int_equal(scratch_count(&((gguf_case *)ctx)->s, NULL), 0);
}

static void expect_readable(void *ctx)
{
    sw_err err = {0};

    assert_int_equal(scratch_count(&((gguf_case *)ctx)->s, NULL), 1);
    assert_int_equal(read_gguf(ctx, &err), SW_OK);
}

static void writing_is_complete_or_absent(void **state)
{
    static const char *const types[] = {"BF16", "Q8_0"};
    static gguf_case c;

    (void)state;
    for (int i = 0; i < 2; i++) {
        fault_plan plan = {.name = types[i], .kinds = FAULT_MEMORY | FAULT_OUTPUT | FAULT_READ,
                           .attempt = write_gguf, .before = remove_gguf,
                           .after_failure = expect_nothing, .after_success = expect_readable,
                           .ctx = &c, .max_runs = 80};
        c = (gguf_case){.source = TOY, .type = types[i]};
        scratch_open(&c.s);
        fault_run(&plan);
        fault_run_slow_disk(&plan);
        scratch_close(&c.s);
    }
}

static void reading_gives_back_what_it_took(void **state)
{
    static gguf_case c;
    fault_plan plan = {.name = "read a GGUF", .kinds = FAULT_MEMORY | FAULT_READ,
                       .attempt = read_gguf, .ctx = &c, .max_runs = 200};
    sw_err err = {0};

    (void)state;
    c = (gguf_case){.source = TOY, .type = "BF16"};
    scratch_open(&c.s);
    assert_int_equal(write_gguf(&c, &err), SW_OK);
    fault_run(&plan);
    scratch_close(&c.s);
}

static void a_tokenizer_is_made_or_not(void **state)
{
    static gguf_case c;
    fault_plan plan = {.name = "tokenizer of a GGUF", .kinds = FAULT_MEMORY | FAULT_READ,
                       .attempt = read_tokenizer, .ctx = &c, .max_runs = 25};
    sw_err err = {0};

    (void)state;
    c = (gguf_case){.source = BUNDLED, .type = "BF16", .has_tokenizer = true};
    scratch_open(&c.s);
    assert_int_equal(write_gguf(&c, &err), SW_OK);
    fault_run(&plan);
    scratch_close(&c.s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writing_is_complete_or_absent),
        cmocka_unit_test(reading_gives_back_what_it_took),
        cmocka_unit_test(a_tokenizer_is_made_or_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
