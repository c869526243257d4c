/* test_turns.c - what is said of times: turns, medians with intervals, spread, gates, exit codes.
 * The clock is the test's own, and nothing here is timed. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/support/cases/printed_report.h"
#include "verify/speed/checkpoint_speed.h"

/* A clock that only moves when somebody works, and a log of who did. */
typedef struct world {
    double now;
    char log[256];
} world;

static double now_us(void *self) { return ((world *)self)->now; }

typedef struct worker {
    world *w;
    char name;
    double us[16]; /* of its turns, the first of which is thrown away */
    int n_done, fails_at;
} worker;

static sw_code work(void *self, sw_err *err)
{
    worker *k = self;

    if (k->n_done == k->fails_at) return SW_FAIL(err, SW_E_CUDA, "gone");
    k->w->now += k->us[k->n_done++];
    (void)snprintf(k->w->log + strlen(k->w->log), 2, "%c", k->name);
    return SW_OK;
}

static void two_take_turns(void **state)
{
    world w = {.now = 5};
    const sw_clock clock = {now_us, &w};
    worker a = {&w, 'A', {999, 10, 20, 30, 40, 50, 60}, 0, -1};
    worker b = {&w, 'B', {1, 20, 40, 30, 80, 150, 60}, 0, -1};
    const sw_turn_taker takers[] = {{&a, work}, {&b, work}};
    sw_speed_figure f;
    sw_turns t;
    sw_err err = {0};

    (void)state;
    assert_int_equal(sw_turns_run(&t, takers, 2, 6, &clock, NULL, &err), SW_OK);
    assert_string_equal(w.log, "ABABABABABABAB"); /* a round that does not count, and six */
    assert_int_equal(t.n_rounds, 6);
    assert_float_equal(t.us[0][0], 10, 1e-9);
    assert_float_equal(t.us[1][5], 60, 1e-9);
    f = sw_turns_speedup(&t); /* of the rounds: 2 2 1 2 3 1, whose median is 2, not 50 / 35 */
    assert_float_equal(f.median.at, 2, 1e-9);
    assert_float_equal(f.lowest, 1, 1e-9);
    assert_float_equal(f.highest, 3, 1e-9);
    assert_float_equal(sw_turns_rate(&t, 0, 7).highest, 1e6 * 7 / 10, 1e-6);
}

static void failures_and_few_rounds_end_it(void **state)
{
    world w = {.now = 0};
    const sw_clock clock = {now_us, &w};
    worker a = {&w, 'A', {1, 1, 1}, 0, 2};
    const sw_turn_taker taker = {&a, work};
    sw_turns t;
    sw_err err = {0}, few = {0};

    (void)state;
    assert_int_equal(sw_turns_run(&t, &taker, 1, 6, &clock, NULL, &err), SW_E_CUDA);
    assert_string_equal(w.log, "AA");
    assert_int_equal(sw_turns_run(&t, &taker, 1, SW_TURNS_MIN - 1, &clock, NULL, &few),
                     SW_E_USAGE);
    assert_int_equal(sw_turns_run(&t, &taker, 1, SW_TURNS_MAX + 1, &clock, NULL, NULL),
                     SW_E_USAGE);
}

/* Values 1 to n in another order: ranks of the interval as tables of the sign test have them. */
static void intervals_are_order_statistics(void **state)
{
    static const struct {
        int n, low, high;
    } cases[] = {{1, 1, 1}, {5, 1, 5}, {6, 1, 6}, {8, 1, 8}, {9, 2, 8}, {12, 3, 10}, {20, 6, 15},
                 {50, 18, 33}, {100, 40, 61}};

    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        double values[SW_TURNS_MAX];
        sw_speed_figure f;

        for (int i = 0; i < cases[c].n; i++) values[i] = (double)(i * 37 % 101);
        for (int i = 0; i < cases[c].n; i++) { /* ranks of those */
            int rank = 1;
            for (int j = 0; j < cases[c].n; j++) rank += j * 37 % 101 < i * 37 % 101;
            values[i] = rank;
        }
        f = sw_turns_figure(values, cases[c].n);
        assert_float_equal(f.median.at, 0.5 * (cases[c].n + 1), 1e-9);
        if (f.median.low != cases[c].low || f.median.high != cases[c].high)
            fail_msg("of %d: %g to %g, want %d to %d", cases[c].n, f.median.low, f.median.high,
                     cases[c].low, cases[c].high);
        assert_float_equal(f.lowest, 1, 0);
        assert_float_equal(f.highest, cases[c].n, 0);
    }
}

static void spread_is_of_the_quartiles(void **state)
{
    sw_turns t = {.n_takers = 1, .n_rounds = 9,
                  .us = {{90, 96, 95, 100, 1000, 100, 104, 105, 1}}};

    (void)state; /* sorted 1 90 95 96 100 100 104 105 1000: quartiles 95 and 104 */
    assert_float_equal(sw_turns_spread(&t, 0), 0.09, 1e-9);
    t.us[0][8] = 100; /* and now 96 and 104 */
    assert_float_equal(sw_turns_spread(&t, 0), 0.08, 1e-9);
}

/* ---- a whole trial, of models that do nothing ---- */

typedef struct fake {
    world *w;
    double step_us, token_us, product_us, jitter;
    int n_turns, n_open;
    int64_t n_prefills, largest_step;
    int64_t room;
    int64_t largest_product; /* tokens */
} fake;

static void spend(fake *f, double us)
{
    f->w->now += us * (f->n_turns++ % 2 ? 1 + f->jitter : 1);
}

static sw_code fake_begin(void *self, int64_t batch, int64_t context, int64_t n_steps, sw_err *err)
{
    fake *f = self;

    (void)batch;
    (void)context;
    (void)err;
    f->n_open++;
    f->room = n_steps;
    return SW_OK;
}

static sw_code fake_decode(void *self, int64_t n_steps, sw_err *err)
{
    fake *f = self;

    if ((f->room -= n_steps) < 0) return SW_FAIL(err, SW_E_USAGE, "no room");
    if (n_steps > f->largest_step) f->largest_step = n_steps;
    spend(f, (double)n_steps * f->step_us);
    return SW_OK;
}

static void fake_end(void *self) { ((fake *)self)->n_open--; }

static sw_code fake_prefill(void *self, int64_t n_seqs, int64_t n_tokens, sw_err *err)
{
    fake *f = self;

    (void)err;
    f->n_prefills++;
    spend(f, f->token_us * (double)(n_seqs * n_tokens));
    return SW_OK;
}

static sw_code fake_linear_begin(void *self, int64_t *per_pass, const sw_weight *const *weights,
                                 int64_t n, int64_t m, sw_err *err)
{
    fake *f = self;

    (void)weights;
    (void)n;
    (void)err;
    if (m > f->largest_product) f->largest_product = m;
    *per_pass = 4;
    f->n_open++;
    return SW_OK;
}

static sw_code fake_linear(void *self, int64_t n_passes, sw_err *err)
{
    fake *f = self;

    (void)err;
    spend(f, 4 * f->product_us * (double)n_passes);
    return SW_OK;
}

static const char *fake_kernel(void *self)
{
    (void)self;
    return "no_kernel";
}

static sw_speed_runner runner_of(fake *f)
{
    return (sw_speed_runner){.self = f, .decode_begin = fake_begin, .decode = fake_decode,
                             .decode_end = fake_end, .prefill = fake_prefill,
                             .linear_begin = fake_linear_begin, .linear = fake_linear,
                             .linear_end = fake_end, .kernel = fake_kernel};
}

static const float zeros[64 * 32];
static const sw_weight dense = {.n_out = 64, .k_in = 32, .dense = zeros,
                                .dense_dtype = SW_DTYPE_BF16};
static sw_linear_kind two_kinds[] = {
    {.name = "mlp.up_proj", .n_out = 64, .k_in = 32, .count = 2, .n_held = 1,
     .held = {{&dense}, {&dense}}},
    {.name = "lm_head", .n_out = 64, .k_in = 32, .count = 1, .n_held = 1, .is_head = true,
     .held = {{&dense}, {&dense}}}};

static const sw_speed_request request = {.batches = {1, 8, 64}, .n_batches = 3, .prompt = 100,
                                         .n_steps = 40, .n_rounds = 9};

/* The checkpoint steps in 1 ms, the original in 2; its linear is slower. */
static void try_fakes(sw_report *report, double jitter, fake fakes[2])
{
    static world w;
    const sw_clock clock = {now_us, &w};
    const sw_linear_kinds kinds = {two_kinds, 2};
    sw_speed_trial trial = {.request = &request, .n_sides = 2, .max_tokens = 1000, .kinds = &kinds,
                            .experts_share = 1, .clock = &clock,
                            .cost = {{.dense_bytes = 5e5, .dense_weights = 1e6},
                                     {.dense_bytes = 2e6, .dense_weights = 1e6}}};
    sw_err err = {0};

    w.now = 0;
    fakes[0] = (fake){&w, 1000, 10, 30, jitter, 0, 0, 0, 0, 0, 0};
    fakes[1] = (fake){&w, 2000, 15, 20, jitter, 0, 0, 0, 0, 0, 0};
    trial.runner[0] = runner_of(&fakes[0]);
    trial.runner[1] = runner_of(&fakes[1]);
    memset(report, 0, sizeof *report);
    report->checkpoint_dir = "out";
    report->speed.read_gb_s = 1; /* 5e5 bytes take 500 us, 2e6 flops 2 us */
    report->speed.gflop_s = 1000;
    assert_int_equal(sw_speed_try(&report->speed, &report->arena, &trial, &err), SW_OK);
}

static void a_trial_says_what_was_done(void **state)
{
    fake fakes[2];
    sw_report r;
    const sw_speed_cell *c;
    const sw_speed_linear *l;

    (void)state;
    try_fakes(&r, 0, fakes);
    assert_int_equal(r.speed.n_cells, 6);
    assert_int_equal(fakes[0].n_open, 0);
    assert_int_equal(fakes[1].n_open, 0);
    c = &r.speed.cells[1];
    assert_false(c->is_prefill);
    assert_int_equal(c->batch, 8);
    assert_int_equal(c->n_steps, 25); /* that take 25 ms */
    assert_int_equal(fakes[1].largest_step, 25); /* of both the same */
    assert_float_equal(c->tokens_s[0].median.at, 8000, 1e-6);
    assert_float_equal(c->tokens_s[1].median.at, 4000, 1e-6);
    assert_float_equal(c->speedup.median.at, 2, 1e-9);
    assert_float_equal(c->us[0], 1000, 1e-6);
    assert_float_equal(c->roof_share[0], 0.5, 1e-9);
    assert_true(c->is_by_bytes[0]);
    assert_false(c->is_noisy);
    c = &r.speed.cells[4]; /* eight prompts of 100 tokens at once, */
    assert_true(c->is_prefill && c->batch == 8 && c->at_once == 8);
    assert_float_equal(c->tokens_s[0].median.at, 1e5, 1e-6);
    c = &r.speed.cells[5]; /* of 64 ten */
    assert_true(c->batch == 64 && c->at_once == 10);
    assert_float_equal(c->speedup.median.at, 1.5, 1e-9);
    assert_int_equal(r.speed.n_linears, 7); /* of three batches each, and one of a prompt */
    l = &r.speed.linears[2];
    assert_int_equal(l->m, 64);
    assert_false(l->is_prefill);
    assert_float_equal(l->us[0], 30, 1e-6);
    assert_float_equal(l->speedup.at, 2. / 3, 1e-9);
    assert_true(sw_speed_linear_loses(l));
    assert_string_equal(l->kernel, "no_kernel");
    l = &r.speed.linears[3];
    assert_true(l->is_prefill && sw_speed_linear_loses(l));
    assert_string_equal(l->name, "mlp.up_proj");
    assert_int_equal(l->m, 100);
    for (int i = 4; i < 7; i++) { /* prefill runs the head on a last token alone */
        assert_string_equal(r.speed.linears[i].name, "lm_head");
        assert_false(r.speed.linears[i].is_prefill);
    }
    assert_int_equal(fakes[0].largest_product, 100);
    assert_int_equal(fakes[0].n_open, 0);
    sw_report_free(&r);
}

static sw_code verdict(sw_report *r, double min_speedup, double min_tokens, sw_err *err)
{
    r->gates[SW_GATE_MIN_SPEEDUP] = (sw_gate){.is_set = min_speedup >= 0, .limit = min_speedup};
    r->gates[SW_GATE_MIN_TOKENS_PER_S] = (sw_gate){.is_set = min_tokens >= 0,
                                                   .limit = min_tokens};
    sw_report_judge(r);
    memset(err, 0, sizeof *err);
    return sw_report_verdict(r, err);
}

static void gates_of_a_quiet_machine(void **state)
{
    fake fakes[2];
    sw_report r;
    sw_err err;

    (void)state;
    try_fakes(&r, 0.05, fakes);
    assert_int_equal(verdict(&r, -1, -1, &err), SW_OK);
    assert_int_equal(verdict(&r, 1.8, 900, &err), SW_OK);
    assert_int_equal(verdict(&r, 2.5, -1, &err), SW_E_GATE);
    assert_non_null(strstr(err.text, "--min-speedup failed: have 2"));
    assert_int_equal(verdict(&r, -1, 1100, &err), SW_E_GATE); /* a batch of one has 1000 */
    assert_non_null(strstr(err.text, "--min-tokens-per-s failed"));
    r.speed.has_original = false; /* and of one model there is no speed-up to pass by */
    assert_int_equal(verdict(&r, 0.1, -1, &err), SW_E_GATE);
    sw_report_free(&r);
}

static void a_noisy_machine_decides_nothing_near_the_limit(void **state)
{
    fake fakes[2];
    sw_report r;
    double spread;
    sw_err err;

    (void)state;
    try_fakes(&r, 0.4, fakes);
    assert_non_null(sw_speed_noisiest(&r.speed, &spread));
    assert_true(spread > SW_SPREAD_MAX);
    assert_int_equal(verdict(&r, -1, -1, &err), SW_OK); /* nobody asked */
    assert_int_equal(verdict(&r, 1.9, -1, &err), SW_E_NOISY);
    assert_non_null(strstr(err.text, "no verdict on --min-speedup 1.9"));
    assert_int_equal(err.code, 8);
    assert_int_equal(verdict(&r, -1, 1100, &err), SW_E_NOISY);
    /* far away, every round says the same */
    assert_int_equal(verdict(&r, -1, 0.001, &err), SW_OK);
    assert_int_equal(verdict(&r, -1, 1e12, &err), SW_E_GATE);
    assert_int_equal(verdict(&r, 0.01, 1e12, &err), SW_E_GATE);
    /* one that has failed outweighs one that is open */
    assert_int_equal(verdict(&r, 1.9, 1e12, &err), SW_E_GATE);
    assert_true(r.gates[SW_GATE_MIN_SPEEDUP].is_undecided);
    /* near for a batch of 64 (64000), failed by that of one for sure */
    assert_int_equal(verdict(&r, -1, 60000, &err), SW_E_GATE);
    sw_report_free(&r);
}

static bool is_cell_noisy(double jitter)
{
    fake fakes[2];
    sw_report r;
    bool is_noisy;

    try_fakes(&r, jitter, fakes);
    is_noisy = r.speed.cells[0].is_noisy;
    sw_report_free(&r);
    return is_noisy;
}

static void ten_per_cent_are_the_limit(void **state)
{
    (void)state; /* turns alternate between 1 and 1 + jitter: these are the quartiles */
    assert_false(is_cell_noisy(0.09));
    assert_true(is_cell_noisy(0.13));
}

static void reports_say_it(void **state)
{
    static const char *const words[] = {
        "decode, batch 64", "prefill 100, batch 8", "mlp.up_proj", "prefill 100  0.67x", "0.67x",
        "no_kernel",
        "no verdict on speed: times of", "gate        min_speedup:", "undecided",
        "verdict     undecided: no verdict on --min-speedup 1.9"};
    char *text;
    cJSON *json = NULL;
    const cJSON *speed, *gate;
    fake fakes[2];
    sw_report r;
    sw_err err = {0};

    (void)state;
    try_fakes(&r, 0.4, fakes);
    r.architecture = r.dialect = r.scheme = "any";
    assert_int_equal(verdict(&r, 1.9, -1, &err), SW_E_NOISY);
    memset(&err, 0, sizeof err);
    for (int columns = 80; columns <= 100; columns += 20) {
        text = printed_report(&r, columns);
        if (widest_line(text, NULL) > columns) fail_msg("%d columns:\n%s", columns, text);
        free(text);
    }
    text = printed_report(&r, 0);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strstr(text, words[i])) fail_msg("no \"%s\" in:\n%s", words[i], text);
    assert_in_range(widest_line(text, "verdict"), 60, 100);
    assert_int_equal(sw_report_json(&json, &r, &err), SW_OK);
    assert_string_equal(sw_json_member(json, "verdict")->valuestring, "undecided");
    gate = sw_json_member(sw_json_member(json, "gates"), "min_speedup");
    assert_true(cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(gate, "passed")));
    speed = sw_json_member(json, "speed");
    assert_true(cJSON_IsTrue(sw_json_member(speed, "noisy")));
    assert_int_equal(cJSON_GetArraySize(sw_json_member(speed, "cells")), 6);
    assert_int_equal(cJSON_GetArraySize(sw_json_member(speed, "linears")), 7);
    assert_string_equal(sw_json_member(cJSON_GetArrayItem(sw_json_member(speed, "linears"), 3),
                                       "what")->valuestring, "prefill");
    cJSON_Delete(json);
    free(text);
    sw_report_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_take_turns),
        cmocka_unit_test(failures_and_few_rounds_end_it),
        cmocka_unit_test(intervals_are_order_statistics),
        cmocka_unit_test(spread_is_of_the_quartiles),
        cmocka_unit_test(a_trial_says_what_was_done),
        cmocka_unit_test(gates_of_a_quiet_machine),
        cmocka_unit_test(a_noisy_machine_decides_nothing_near_the_limit),
        cmocka_unit_test(ten_per_cent_are_the_limit),
        cmocka_unit_test(reports_say_it),
    };
    return cmocka_run_group_tests_name("turns", tests, NULL, NULL);
}
