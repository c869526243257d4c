/* test_fault_stats.c - memory and disk failing while statistics are collected and used. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "formats/checkpoint/manifest.h"
#include "kernels/blas.h"
#include "quant/run/device_forecast.h"
#include "quant/stats/stats.h"
#include "quant/team/team.h"
#include "tests/fault/fault.h"
#include "tests/support/cases/stats_case.h"
#include "tests/support/scratch.h"

#define MODEL "tests/golden/arch/mixtral"
enum { SEQS = 2, LEN = 16 };

typedef struct saved_stats {
    scratch s;
    sw_checkpoint ckpt;
    uint32_t ids[SEQS * LEN];
    char identity[SW_SHA256_HEX_BYTES];
} saved_stats;

static sw_quant_options options(void)
{
    sw_quant_options o = sw_quant_defaults();

    o.spec.group_elems = 32;
    o.refine_rounds = 0;
    return o;
}

static sw_code collect(void *ctx, sw_err *err)
{
    saved_stats *c = ctx;
    sw_calib calib = {c->ids, SEQS, LEN};
    sw_quant_options o = options();
    sw_zpack_writer *w = NULL;
    sw_code rc = sw_zpack_writer_new(&w, scratch_path(&c->s, "stats"), true, err);

    if (rc == SW_OK) rc = sw_checkpoint_identity(c->identity, &c->ckpt, err);
    if (rc == SW_OK) rc = sw_zpack_writer_meta(w, "kind", SW_STATS_KIND, err);
    if (rc == SW_OK) rc = sw_zpack_writer_meta(w, "model_sha256", c->identity, err);
    if (rc == SW_OK) rc = sw_zpack_writer_meta(w, "experts", "shrink", err);
    if (rc == SW_OK) rc = sw_stats_put_windows(w, &calib, err);
    if (rc == SW_OK)
        rc = sw_stats_collect(w, &c->ckpt.model, c->ckpt.st, &calib, &o, NULL, err);
    if (rc == SW_OK) rc = sw_zpack_writer_commit(w, err);
    sw_zpack_writer_free(w);
    return rc;
}

/* Two ranks: the second one's experts travel to the first, which writes. */
static sw_code collect_by_rank(saved_stats *c, sw_team *team, sw_err *err)
{
    sw_calib calib = {c->ids, SEQS, LEN};
    sw_quant_options o = options();
    sw_zpack_writer *w = NULL;
    sw_code rc = SW_OK;

    o.team = team;
    if (sw_team_rank(team) == 0)
        rc = sw_zpack_writer_new(&w, scratch_path(&c->s, "stats"), true, err);
    if (rc == SW_OK)
        rc = sw_stats_collect(w, &c->ckpt.model, c->ckpt.st, &calib, &o, NULL, err);
    if (rc == SW_OK && w) rc = sw_zpack_writer_commit(w, err);
    sw_zpack_writer_free(w);
    return rc;
}

static sw_code collect_together(void *ctx, sw_err *err)
{
    sw_team *team = NULL;
    sw_code rc = sw_team_fork_local(&team, 2, err);
    int rank;

    if (rc != SW_OK) return rc;
    rank = sw_team_rank(team);
    rc = sw_team_end(team, collect_by_rank(ctx, team, err), err);
    sw_team_close(team, rc);
    if (rank > 0) _exit((int)rc);
    return rc;
}

static sw_code put(void *self, const sw_linear_ref *ref, const char *path, const sw_qtensor *q,
                   const sw_solve_report *report, sw_err *err)
{
    (void)self, (void)ref, (void)path, (void)q, (void)report, (void)err;
    return SW_OK;
}

/* Two experts of the last layer are enough to solve. */
static bool is_selected(void *self, const sw_linear_ref *ref, const char *path)
{
    (void)self, (void)path;
    return ref->layer == 1 && ref->expert >= 2;
}

static sw_code use(void *ctx, sw_err *err)
{
    saved_stats *c = ctx;
    sw_quant_options o = options();
    sw_quant_sink sink = {.put = put, .is_selected = is_selected};
    sw_zpack *z = NULL;
    sw_code rc = sw_zpack_open(&z, scratch_path(&c->s, "stats"), err);

    if (rc == SW_OK) rc = sw_stats_check(z, c->identity, &c->ckpt.model, o.experts, err);
    if (rc == SW_OK)
        rc = sw_quant_run_stats(&c->ckpt.model, c->ckpt.st, z, &o, &sink, NULL, err);
    sw_zpack_close(z);
    return rc;
}

static sw_code put_kv(void *self, int64_t layer, float k_scale, float v_scale, sw_err *err)
{
    (void)self, (void)layer, (void)k_scale, (void)v_scale, (void)err;
    return SW_OK;
}

/* With windows of the text: scales that are tried, and those of a cache. */
static sw_code search(void *ctx, sw_err *err)
{
    saved_stats *c = ctx;
    sw_quant_options o = options();
    sw_quant_sink sink = {.put = put, .is_selected = is_selected, .change = takes_no_change,
                          .put_kv = put_kv};
    sw_zpack *z = NULL;
    sw_code rc = sw_zpack_open(&z, scratch_path(&c->s, "stats"), err);

    o.algo = sw_algo_find("awq");
    o.kv_num = &sw_nums[SW_NUM_E4M3];
    if (rc == SW_OK)
        rc = sw_quant_run_stats(&c->ckpt.model, c->ckpt.st, z, &o, &sink, NULL, err);
    sw_zpack_close(z);
    return rc;
}

/* What a device's memory would be asked for, and what would do where it is too small. */
static sw_code foresee(void *ctx, sw_err *err)
{
    saved_stats *c = ctx;
    const sw_calib calib = {c->ids, SEQS, LEN};
    sw_quant_options o = options();
    const sw_forecast_request r = {.model = &c->ckpt.model, .options = &o, .calib = &calib,
                                   .is_selected = is_selected};
    sw_device_forecast out;

    return sw_device_forecast_new(&out, &r, 1000, err);
}

static void empty(void *ctx) { (void)unlink(scratch_path(&((saved_stats *)ctx)->s, "stats")); }

static void expect_nothing(void *ctx)
{
    assert_int_equal(scratch_count(&((saved_stats *)ctx)->s, NULL), 0);
}

static void expect_readable(void *ctx)
{
    sw_err err = {0};

    assert_int_equal(use(ctx, &err), SW_OK);
    assert_false(scratch_has(&((saved_stats *)ctx)->s, ".tmp-"));
}

static void open_case(saved_stats *c)
{
    sw_err err = {0};

    memset(c, 0, sizeof *c);
    scratch_open(&c->s);
    assert_int_equal(sw_checkpoint_open(&c->ckpt, MODEL, &err), SW_OK);
    for (int i = 0; i < SEQS * LEN; i++) c->ids[i] = (uint32_t)(i * 37 % c->ckpt.model.vocab);
}

static void close_case(saved_stats *c)
{
    sw_checkpoint_close(&c->ckpt);
    scratch_close(&c->s);
}

static void test_collect(void **state)
{
    saved_stats c;
    fault_plan plan = {.name = "collect statistics", .kinds = FAULT_MEMORY | FAULT_WRITE |
                       FAULT_SYNC | FAULT_NAME, .attempt = collect, .before = empty,
                       .after_failure = expect_nothing, .after_success = expect_readable,
                       .ctx = &c, .max_runs = 24};

    (void)state;
    open_case(&c);
    fault_run(&plan);
    fault_run_slow_disk(&plan);
    close_case(&c);
}

static void test_collect_together(void **state)
{
    saved_stats c;
    fault_plan plan = {.name = "collect statistics by two ranks",
                       .kinds = FAULT_MEMORY | FAULT_WRITE, .attempt = collect_together,
                       .before = empty, .after_failure = expect_nothing, .ctx = &c, .max_runs = 12};

    (void)state;
    sw_blas_single_thread();
    open_case(&c);
    fault_run(&plan);
    close_case(&c);
}

static void test_use(void **state)
{
    saved_stats c;
    fault_plan searching = {.name = "search with statistics", .kinds = FAULT_MEMORY,
                            .attempt = search, .ctx = &c, .max_runs = 24};
    fault_plan plan = {.name = "use statistics", .kinds = FAULT_MEMORY | FAULT_READ,
                       .attempt = use, .ctx = &c, .max_runs = 24};
    sw_err err = {0};

    (void)state;
    open_case(&c);
    assert_int_equal(collect(&c, &err), SW_OK);
    fault_run(&plan);
    fault_run(&searching);
    close_case(&c);
}

static void test_forecast(void **state)
{
    saved_stats c;

    (void)state;
    open_case(&c);
    fault_run(&(fault_plan){.name = "memory of a device", .kinds = FAULT_MEMORY,
                            .attempt = foresee, .ctx = &c});
    close_case(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_forecast),
                                       cmocka_unit_test(test_collect),
                                       cmocka_unit_test(test_collect_together),
                                       cmocka_unit_test(test_use)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
