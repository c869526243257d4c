/* test_fault_checkpoint.c - memory and disk failing while a checkpoint is quantized into a
 * directory, and while one is read back: no leak, no partial output, the right code. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/engine/lm_open.h"
#include "tests/fault/fault.h"
#include "tests/support/cases/ckpt_case.h"
#include "tests/support/toys/qtensor_gen.h"

typedef struct fault_case {
    scratch s;
    ckpt_case c;
    const sw_dialect *dialect;
    char source_dir[SW_PATH_BYTES], out_dir[SW_PATH_BYTES];
    bool may_replace;
    cJSON *key, *sources; /* of a run that can be continued */
} fault_case;

static sw_code fill(sw_ckpt_writer *w, const fault_case *f, sw_err *err)
{
    sw_code rc = SW_OK;

    for (int64_t i = 0; i < f->c.n && rc == SW_OK; i++)
        rc = sw_ckpt_writer_put(w, f->c.paths[i], &f->c.q[i], err);
    return rc == SW_OK ? sw_ckpt_writer_commit(w, NULL, err) : rc;
}

static sw_code write_checkpoint(void *ctx, sw_err *err)
{
    const fault_case *f = ctx;
    sw_checkpoint source;
    sw_ckpt_writer *w = NULL;
    sw_code rc = sw_checkpoint_open(&source, f->source_dir, err);

    if (rc != SW_OK) return rc;
    rc = sw_ckpt_writer_new(&w, &source, f->out_dir, f->may_replace, f->dialect, &f->c.config,
                            f->c.linears, f->c.n, 400000, err);
    if (rc == SW_OK) rc = fill(w, f, err);
    sw_ckpt_writer_free(w);
    sw_checkpoint_close(&source);
    return rc;
}

static sw_code read_checkpoint(void *ctx, sw_err *err)
{
    const fault_case *f = ctx;
    sw_lm_options options = {.n_threads = 1};
    sw_checkpoint ckpt;
    sw_lm lm;
    sw_code rc = sw_checkpoint_open(&ckpt, f->out_dir, err);

    if (rc != SW_OK) return rc;
    for (int64_t i = 0; i < 2 && rc == SW_OK; i++) {
        sw_qtensor q;
        rc = sw_checkpoint_qtensor(&q, &ckpt, f->c.paths[i], f->c.linears[i].n_out,
                                   f->c.linears[i].k_in, err);
        if (rc != SW_OK) break;
        sw_gen_assert_same(&q, &f->c.q[i]);
        sw_qtensor_free(&q);
    }
    if (rc == SW_OK && (rc = sw_lm_open(&lm, &ckpt, &options, err)) == SW_OK) sw_lm_free(&lm);
    sw_checkpoint_close(&ckpt);
    return rc;
}

/* Remove the output of the attempt before. */
static void clear(void *ctx)
{
    fault_case *f = ctx;
    sw_out_dir old = {0};
    sw_err err = {0};

    if (!sw_path_exists(f->out_dir)) return;
    /* publish an empty directory over it, then drop that: no tree walk of its own needed */
    assert_int_equal(sw_out_dir_open(&old, f->out_dir, true, &err), SW_OK);
    assert_int_equal(sw_out_dir_commit(&old, &err), SW_OK);
    assert_int_equal(remove(f->out_dir), 0);
}

static void expect_only_source(void *ctx)
{
    fault_case *f = ctx;

    assert_int_equal(scratch_count(&f->s, NULL), 1);
    assert_false(scratch_has(&f->s, ".tmp-"));
}

static void expect_whole(void *ctx)
{
    fault_case *f = ctx;
    sw_err err = {0};

    assert_int_equal(scratch_count(&f->s, NULL), 2);
    if (read_checkpoint(f, &err) != SW_OK) fail_msg("%s", err.text);
}

static void open_case(fault_case *f, const char *arch, const char *dialect)
{
    memset(f, 0, sizeof *f);
    f->dialect = sw_dialect_find(dialect);
    scratch_open(&f->s);
    ckpt_source(&f->s, arch);
    ckpt_open(&f->c, &f->s, f->dialect, 4, false, 64);
    strncpy(f->source_dir, scratch_path(&f->s, "source"), sizeof f->source_dir - 1);
    strncpy(f->out_dir, scratch_path(&f->s, "out"), sizeof f->out_dir - 1);
}

static void close_case(fault_case *f)
{
    ckpt_close(&f->c);
    scratch_close(&f->s);
}

static void writing_is_complete_or_absent(void **state)
{
    static const char *const dialects[] = {"gptq", "compressed-tensors", "swage"};
    static fault_case f;

    (void)state;
    for (int i = 0; i < 3; i++) {
        fault_plan plan = {.name = dialects[i], .kinds = FAULT_MEMORY | FAULT_OUTPUT | FAULT_READ,
                           .attempt = write_checkpoint, .before = clear,
                           .after_failure = expect_only_source, .after_success = expect_whole,
                           .ctx = &f, .max_runs = 50};
        open_case(&f, "llama", dialects[i]);
        fault_run(&plan);
        if (i == 0) fault_run_slow_disk(&plan);
        close_case(&f);
    }
}

/* Experts out of one tensor, whose biases are written at the end. */
static void writing_fused_experts_is_complete_or_absent(void **state)
{
    static fault_case f;
    const fault_plan plan = {.name = "fused experts",
                             .kinds = FAULT_MEMORY | FAULT_OUTPUT | FAULT_READ,
                             .attempt = write_checkpoint, .before = clear,
                             .after_failure = expect_only_source, .after_success = expect_whole,
                             .ctx = &f, .max_runs = 50};

    (void)state;
    open_case(&f, "gpt_oss", "swage");
    fault_run(&plan);
    close_case(&f);
}

/* The old output is there, whole, until the new one is. */
static void replacing_keeps_the_old_until_the_new_is_whole(void **state)
{
    static fault_case f;
    fault_plan plan = {.name = "replace", .kinds = FAULT_MEMORY | FAULT_OUTPUT,
                       .attempt = write_checkpoint, .after_failure = expect_whole,
                       .after_success = expect_whole, .ctx = &f, .max_runs = 40};
    sw_err err = {0};

    (void)state;
    open_case(&f, "llama", "gptq_v2");
    assert_int_equal(write_checkpoint(&f, &err), SW_OK);
    f.may_replace = true;
    fault_run(&plan);
    close_case(&f);
}

/* A run that can be continued, as far as its journal: every allocation, for the journal's key has
 * pieces that two objects own in turn. */
static sw_code begin_journal(void *ctx, sw_err *err)
{
    const fault_case *f = ctx;
    const sw_ckpt_keep keep = {.key = f->key, .sources = f->sources};
    sw_checkpoint source;
    sw_ckpt_writer *w = NULL;
    sw_code rc = sw_checkpoint_open(&source, f->source_dir, err);

    if (rc != SW_OK) return rc;
    rc = sw_ckpt_writer_new_kept(&w, &source, f->out_dir, false, f->dialect, &f->c.config,
                                 f->c.linears, f->c.n, 0, &keep, err);
    sw_ckpt_writer_free(w);
    sw_checkpoint_close(&source);
    return rc;
}

static void beginning_a_journal_gives_back_what_it_took(void **state)
{
    static fault_case f;
    const fault_plan plan = {.name = "journal", .kinds = FAULT_MEMORY,
                             .attempt = begin_journal, .after_failure = expect_only_source,
                             .after_success = expect_only_source, .ctx = &f};

    (void)state;
    open_case(&f, "llama", "swage");
    f.key = cJSON_Parse("{\"settings\": {\"method\": \"rtn\"}}");
    f.sources = cJSON_Parse("{\"inputs\": [{\"name\": \"config.json\"}], \"left_behind\": []}");
    fault_run(&plan);
    cJSON_Delete(f.key);
    cJSON_Delete(f.sources);
    close_case(&f);
}

static void reading_gives_back_what_it_took(void **state)
{
    static const char *const dialects[] = {"gptq", "compressed-tensors", "swage"};
    static fault_case f;
    sw_err err = {0};

    (void)state;
    for (int i = 0; i < 3; i++) {
        fault_plan plan = {.name = dialects[i], .kinds = FAULT_MEMORY | FAULT_READ,
                           .attempt = read_checkpoint, .ctx = &f, .max_runs = 100};
        open_case(&f, "llama", dialects[i]);
        assert_int_equal(write_checkpoint(&f, &err), SW_OK);
        fault_run(&plan);
        close_case(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writing_is_complete_or_absent),
        cmocka_unit_test(writing_fused_experts_is_complete_or_absent),
        cmocka_unit_test(replacing_keeps_the_old_until_the_new_is_whole),
        cmocka_unit_test(beginning_a_journal_gives_back_what_it_took),
        cmocka_unit_test(reading_gives_back_what_it_took),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
