/* test_outputs.c - errors of outputs against plain sums of doubles, and on any number of threads.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/cases/outputs_case.h"

static const char *const archs[] = {"arch/llama", "arch/qwen3_moe"};

/* What is expected of all linears, on rows that the engine shows. */
typedef struct plain_job {
    outputs_case *c;
    sw_subject_linear *linears;
    int64_t n_linears, layer;
    double *want; /* [n_linears], or -1 */
} plain_job;

static double dot(const float *x, const float *w, const float *less, int64_t k)
{
    double sum = 0;

    for (int64_t j = 0; j < k; j++)
        sum += (double)x[j] * ((double)w[j] - (less ? (double)less[j] : 0));
    return sum;
}

static double plain_error(const outputs_case *c, const sw_subject_linear *l, const float *x,
                          int64_t n_tokens)
{
    const int64_t n_out = l->ref.n_out, k = l->ref.k_in, every = (n_tokens + 511) / 512;
    sw_spec_weight w = {0};
    float *original = NULL;
    double err2 = 0, want2 = 0;
    sw_err err = {0};

    assert_int_equal(sw_spec_decode(&w, &c->checkpoint.scheme, c->checkpoint.st, l->path, n_out, k,
                                    &err), SW_OK);
    assert_int_equal(sw_original_weight(&original, &c->original, l, &err), SW_OK);
    for (int64_t t = 0; t < n_tokens; t += every)
        for (int64_t n = 0; n < n_out; n++) {
            const double y = dot(x + t * k, original + n * k, NULL, k);
            const double off = dot(x + t * k, w.values + n * k, original + n * k, k);

            want2 += y * y;
            err2 += off * off;
        }
    sw_mem_put(original);
    sw_spec_weight_free(&w);
    return sqrt(err2 / want2);
}

static sw_code see(void *self, sw_site site, int64_t expert, const float *x, int64_t n_tokens,
                   int64_t k_in, const float *residual, const int32_t *token_ids, sw_err *err)
{
    plain_job *job = self;

    (void)residual, (void)token_ids, (void)err;
    for (int64_t i = 0; i < job->n_linears && n_tokens; i++) {
        const sw_linear_ref *ref = &job->linears[i].ref;

        if (ref->layer == job->layer && ref->site == site && ref->expert == expert &&
            ref->k_in == k_in)
            job->want[i] = plain_error(job->c, &job->linears[i], x, n_tokens);
    }
    return SW_OK;
}

static void run_plainly(plain_job *job)
{
    const outputs_case *c = job->c;
    const sw_model *m = c->lm.model;
    const int64_t n_tokens = OUTPUTS_SEQS * OUTPUTS_LEN;
    const sw_tap tap = {.self = job, .see = see};
    float *x = malloc(sizeof *x * (size_t)(n_tokens * m->hidden));
    sw_engine *e = NULL;
    sw_err err = {0};

    for (int64_t i = 0; i < job->n_linears; i++) job->want[i] = -1;
    assert_int_equal(sw_engine_new(&e, m, n_tokens, OUTPUTS_LEN, 2, &err), SW_OK);
    assert_int_equal(sw_engine_embed(e, &c->lm, x, c->ids, OUTPUTS_SEQS, OUTPUTS_LEN, 0, &err),
                     SW_OK);
    for (job->layer = 0; job->layer < m->n_layers; job->layer++)
        assert_int_equal(sw_engine_block(e, &c->lm.blocks[job->layer], x, OUTPUTS_SEQS, OUTPUTS_LEN,
                                         NULL, &tap, SW_RUN_ALL, &err), SW_OK);
    sw_engine_free(e);
    free(x);
}

static void figures_are_those_of_plain_sums(void **state)
{
    (void)state;
    for (size_t a = 0; a < sizeof archs / sizeof *archs; a++) {
        outputs_case c;
        plain_job job = {.c = &c};
        sw_arena arena = {0};
        sw_err err = {0};
        double *have;

        outputs_case_open(&c, archs[a]);
        assert_int_equal(sw_subject_linears(&job.linears, &job.n_linears, &c.checkpoint.model,
                                            &arena, &err), SW_OK);
        job.n_linears--; /* the head, which stays in floats */
        assert_int_equal(job.n_linears, c.report.n_tensors);
        job.want = malloc(sizeof *job.want * (size_t)job.n_linears);
        run_plainly(&job);
        have = outputs_case_judge(&c, NULL, 3, NULL);
        for (int64_t i = 0; i < job.n_linears; i++)
            if (!(fabs(have[i] - job.want[i]) <= 1e-5 * fabs(job.want[i])))
                fail_msg("%s: %.9g, want %.9g", job.linears[i].path, have[i], job.want[i]);
        free(have), free(job.want);
        sw_arena_free(&arena);
        outputs_case_close(&c);
    }
}

static void threads_do_not_show(void **state)
{
    (void)state;
    for (size_t a = 0; a < sizeof archs / sizeof *archs; a++) {
        double *one, *many;
        outputs_case c;

        outputs_case_open(&c, archs[a]);
        one = outputs_case_judge(&c, NULL, 1, NULL);
        many = outputs_case_judge(&c, NULL, 5, NULL);
        assert_memory_equal(one, many, sizeof *one * (size_t)c.report.n_tensors);
        free(one), free(many);
        outputs_case_close(&c);
    }
}

static bool is_cancelled(void *self)
{
    (void)self;
    return true;
}

static void can_be_stopped(void **state)
{
    const sw_progress stops = {.is_cancelled = is_cancelled};
    sw_err err = {0};
    outputs_case c;

    (void)state;
    outputs_case_open(&c, "arch/llama");
    assert_int_equal(sw_output_errors(&c.report, &(sw_outputs_job){
        .original = &c.lm, .checkpoint = &c.checkpoint, .rescale = &c.rescale,
        .windows = &c.windows, .n_threads = 2, .progress = &stops}, &err), SW_E_CANCELLED);
    outputs_case_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(figures_are_those_of_plain_sums),
        cmocka_unit_test(threads_do_not_show),
        cmocka_unit_test(can_be_stopped),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
