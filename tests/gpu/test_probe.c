/* test_probe.c - half blocks that searches keep on a device: what they compute is what a block
 * loaded anew does, whatever a trial has put in and whatever has changed since; and the readers of
 * a trial, which lanes solve beside each other. Exit 77 without a GPU.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "quant/search/transform.h"
#include "tests/gpu/support/solver_case.h"
#include "tests/support/cases/stats_case.h"
#include "tests/support/toys/random.h"

enum { SEQS = 16, LEN = 32, LAYER = 0, ROWS = 64 };

static sw_device *gpu;
static sw_solver *solver;

#define MUST(call) \
    do { sw_err err = {0}; if ((call) != SW_OK) fail_msg("%s: %s", #call, err.text); } while (0)

typedef struct probe_case {
    stats_case c;
    sw_place at;
    sw_streams s;
    sw_block block;
    sw_block_probe probe;
    sw_group group; /* what a trial asks of it */
    sw_linear_ref reader;
    int64_t n;      /* floats of an output */
} probe_case;

static void case_open(probe_case *p, const char *arch, sw_linear_ref reader)
{
    uint32_t *ids = malloc(sizeof *ids * SEQS * LEN);
    test_rng rng = {23};

    memset(p, 0, sizeof *p);
    p->at = (sw_place){.backend = &sw_backend_cuda, .device = solver, .n_threads = 2};
    stats_case_open(&p->c, arch);
    for (int i = 0; i < SEQS * LEN; i++)
        ids[i] = (uint32_t)(test_uniform(&rng) * (double)p->c.ckpt.model.vocab);
    p->c.calib = (sw_calib){ids, SEQS, LEN};
    MUST(sw_streams_new(&p->s, &p->at, &p->c.ckpt.model, p->c.ckpt.st, &p->c.calib, false, NULL,
                        &err));
    free(ids);
    MUST(sw_block_load(&p->block, &p->c.ckpt.model, p->c.ckpt.st, LAYER, &err));
    if (reader.site >= SW_SITE_MLP_IN)
        MUST(sw_streams_advance(&p->s, &p->block, &p->block, SW_HALF_ATTENTION, NULL, &err));
    MUST(sw_block_probe_new(&p->probe, &p->s, &err));
    p->reader = reader;
    p->group = (sw_group){.model = &p->c.ckpt.model, .fold = {.site = reader.site},
                          .readers = &p->reader, .n_readers = 1, .place = p->at,
                          .probe = &p->probe, .original = &p->block, .quantized = &p->block};
    p->n = sw_block_probe_tokens(&p->probe, SW_BLOCK_PROBE_TRIAL) * p->c.ckpt.model.hidden;
    assert_true(p->n > 0);
}

static void case_close(probe_case *p)
{
    sw_block_probe_free(&p->probe);
    sw_block_free(&p->block);
    sw_streams_free(&p->s);
    stats_case_close(&p->c);
}

/* Of floats on the device; frees them there. */
static float *fetch(const probe_case *p, float *d, int64_t n)
{
    float *host = malloc(sizeof *host * (size_t)n);

    MUST(sw_device_download(gpu, host, d, n * 4, &err));
    sw_backend_cuda.put(&p->at, d);
    return host;
}

static float *output(const probe_case *p, const sw_block *block, bool is_new)
{
    float *d = NULL;

    if (is_new) sw_block_probe_forget(&p->probe);
    MUST(SW_PLACE_TAKE(&d, &p->at, p->n, "outputs", &err));
    MUST(sw_block_probe_output(d, &p->probe, SW_BLOCK_PROBE_TRIAL, block, p->reader.site, &err));
    return fetch(p, d, p->n);
}

/* What is kept of the inputs of a site, and its largest magnitudes. */
static float *rows(const probe_case *p, sw_linear_ref reader, bool is_new)
{
    sw_probe_rows kept = {.site = reader.site, .expert = reader.expert, .k = reader.k_in,
                          .every = 2, .n_max = ROWS};
    const int64_t n = ROWS * kept.k;
    float *all;

    if (is_new) sw_block_probe_forget(&p->probe);
    kept.amax = calloc((size_t)kept.k, sizeof *kept.amax);
    MUST(SW_PLACE_TAKE(&kept.rows, &p->at, n, "rows", &err));
    MUST(sw_device_fill(gpu, kept.rows, 0, n * 4, &err));
    MUST(sw_block_probe_rows(&kept, &p->probe, SW_BLOCK_PROBE_SEARCH, &p->block, &err));
    assert_true(kept.n_rows > 0);
    all = fetch(p, kept.rows, n);
    for (int64_t j = 0; j < kept.k; j++) all[j] += kept.amax[j];
    free(kept.amax);
    return all;
}

/* Frees both. */
static void check(const char *what, float *have, float *want, int64_t n, bool are_same)
{
    if ((memcmp(have, want, (size_t)n * sizeof *have) == 0) != are_same)
        fail_msg("%s: %s", what, are_same ? "other values" : "the same values");
    free(have);
    free(want);
}

/* What is kept of a block, and then what is loaded anew. */
static void check_kept(const char *what, const probe_case *p, const sw_block *block)
{
    float *kept = output(p, block, false), *anew = output(p, block, true);

    check(what, kept, anew, p->n, true);
}

/* Other values of the reader, in memory. */
static float *other_values(probe_case *p)
{
    const sw_weight *w = sw_block_weight(&p->block, p->reader.slot, p->reader.expert);
    const int64_t n = w->n_out * w->k_in;
    float *values = malloc(sizeof *values * (size_t)n);

    MUST(sw_float_decode_n(values, w->dense, w->dense_dtype, n, &err));
    for (int64_t i = 0; i < n; i++) values[i] *= 1.5f;
    return values;
}

/* A trial runs with what it is lent, and leaves nothing of it behind. */
static void check_trial(probe_case *p, float *values)
{
    const sw_weight *w = sw_block_weight(&p->block, p->reader.slot, p->reader.expert);
    sw_trial_block trial = {0};
    float *d_y = NULL, *d_values = NULL, *tried;

    MUST(sw_backend_cuda.lend(&d_values, &p->at, values, w->n_out * w->k_in, "values", &err));
    MUST(SW_PLACE_TAKE(&d_y, &p->at, p->n, "outputs", &err));
    MUST(sw_trial_block_new(&trial, &p->group, &err));
    MUST(sw_trial_block_lend(&trial, &d_values, &err));
    MUST(sw_trial_block_output(d_y, &trial, SW_BLOCK_PROBE_TRIAL, &err));
    sw_trial_block_free(&trial);
    sw_backend_cuda.unlend(&p->at, d_values);
    tried = fetch(p, d_y, p->n);
    check("a trial", tried, output(p, &p->block, true), p->n, false);
    MUST(sw_backend_cuda.lend(&d_values, &p->at, values, w->n_out * w->k_in, "values", &err));
    MUST(sw_trial_block_new(&trial, &p->group, &err));
    MUST(sw_trial_block_lend(&trial, &d_values, &err));
    sw_trial_block_free(&trial);
    sw_backend_cuda.unlend(&p->at, d_values);
    check_kept("after a trial", p, &p->block);
}

/* As a fold leaves a block: a weight of floats, then another norm. */
static void check_fold(probe_case *p, const float *values)
{
    sw_weight *w = sw_block_weight(&p->block, p->reader.slot, p->reader.expert);
    const int64_t hidden = p->c.ckpt.model.hidden;
    const sw_slot slot = p->reader.site < SW_SITE_MLP_IN ? SW_SLOT_NORM_ATTN : SW_SLOT_NORM_MLP;
    float *norm = malloc(sizeof *norm * (size_t)hidden);
    sw_block with_norm;

    check_kept("twice", p, &p->block);
    w->dense = values;
    w->dense_dtype = SW_DTYPE_F32;
    check_kept("a new weight", p, &p->block);
    with_norm = p->block;
    with_norm.norm[slot] = norm;
    for (int64_t j = 0; j < hidden; j++)
        norm[j] = 2 * p->block.norm[slot][j] + (j % 3 ? 0.0f : 0.5f);
    check_kept("a new norm", p, &with_norm);
    free(norm);
}

static void check_arch(const char *arch, sw_linear_ref reader)
{
    probe_case p;
    float *values, *kept;

    printf("%s\n", arch);
    case_open(&p, arch, reader);
    sw_model_slot_shape(&p.c.ckpt.model, LAYER, reader.slot, &p.reader.n_out, &p.reader.k_in);
    if (reader.expert >= 0) {
        const sw_weight *w = sw_block_weight(&p.block, reader.slot, reader.expert);
        p.reader.n_out = w->n_out;
        p.reader.k_in = w->k_in;
    }
    free(output(&p, &p.block, true)); /* all of the half is there */
    kept = rows(&p, p.reader, false);
    check("rows", kept, rows(&p, p.reader, true), ROWS * p.reader.k_in, true);
    check_kept("after less of it", &p, &p.block);
    values = other_values(&p);
    check_trial(&p, values);
    check_fold(&p, values);
    case_close(&p);
    free(values);
}

static void kept_halves_are_new_ones(void **state)
{
    const sw_linear_ref gate = {LAYER, SW_SLOT_GATE, -1, SW_SITE_MLP_IN, 0, 0};
    const sw_linear_ref down = {LAYER, SW_SLOT_DOWN, -1, SW_SITE_DOWN_IN, 0, 0};
    const sw_linear_ref query = {LAYER, SW_SLOT_Q, -1, SW_SITE_ATTN_IN, 0, 0};
    const sw_linear_ref expert = {LAYER, SW_SLOT_DOWN, 1, SW_SITE_DOWN_IN, 0, 0};

    (void)state;
    check_arch("llama", gate);
    check_arch("llama", down);
    check_arch("llama", query);
    check_arch("gemma2", down);
    check_arch("qwen3_moe", expert);
}

enum { READERS = 3 };

/* Sums of what the readers' site brings, at the device. */
static void find_sums(sw_site_stats *stats, const probe_case *p)
{
    bool wanted[SW_SITE_COUNT] = {false};

    wanted[p->reader.site] = true;
    MUST(sw_site_stats_new(stats, &p->c.ckpt.model, LAYER, wanted, false, SW_EXPERTS_COUNT, &p->at,
                           &err));
    MUST(sw_block_probe_hessians(stats, &p->probe, SW_BLOCK_PROBE_SEARCH, &p->block,
                                 p->reader.site, &err));
}

/* Readers [first, first + n) of a group solved as a trial does; values in memory. */
static void solve_some(float **out, sw_group g, int first, int n, const double *scale)
{
    float **values = NULL;

    g.readers += first;
    g.specs += first;
    g.placed += first;
    g.n_readers = n;
    MUST(sw_group_values_new(&values, &g, &err));
    MUST(sw_group_solve(values, &g, scale, &err));
    for (int i = 0; i < n; i++) {
        const int64_t n_bytes = g.readers[i].n_out * g.k * 4;

        out[first + i] = malloc((size_t)n_bytes);
        MUST(sw_device_download(gpu, out[first + i], values[i], n_bytes, &err));
    }
    sw_group_values_free(values, &g);
}

/* Readers beside each other, in lanes, get what each gets alone, with a scale and without. */
static void check_lanes(probe_case *p, const char *method, float **placed, const double *scale)
{
    sw_linear_ref readers[READERS];
    sw_qspec specs[READERS];
    float *beside[READERS], *alone[READERS];
    sw_site_stats stats;
    sw_quant_options o = stats_case_options(SW_EXPERTS_SHRINK, 2);
    sw_group g = p->group;

    for (int i = 0; i < READERS; i++) {
        const sw_slot slot = (sw_slot)(SW_SLOT_Q + i);
        readers[i] = (sw_linear_ref){LAYER, slot, -1, SW_SITE_ATTN_IN, 0, 0};
        sw_model_slot_shape(&p->c.ckpt.model, LAYER, slot, &readers[i].n_out, &readers[i].k_in);
        specs[i] = (sw_qspec){.num = sw_num_by_bits(4), .group_elems = 32, .is_symmetric = true,
                              .scale_dtype = SW_DTYPE_F16};
    }
    o.algo = sw_algo_find(method);
    find_sums(&stats, p);
    g.options = &o;
    g.k = readers[0].k_in;
    g.readers = readers;
    g.specs = specs;
    g.n_readers = READERS;
    g.placed = placed;
    g.hess = &stats.site[SW_SITE_ATTN_IN];
    solve_some(beside, g, 0, READERS, scale);
    for (int i = 0; i < READERS; i++) solve_some(alone, g, i, 1, scale);
    for (int i = 0; i < READERS; i++)
        check(method, beside[i], alone[i], readers[i].n_out * g.k, true);
    sw_site_stats_free(&stats);
}

static void readers_are_solved_beside_each_other(void **state)
{
    const sw_linear_ref query = {LAYER, SW_SLOT_Q, -1, SW_SITE_ATTN_IN, 0, 0};
    float *placed[READERS];
    double *scale;
    probe_case p;

    (void)state;
    case_open(&p, "llama", query);
    scale = calloc((size_t)p.c.ckpt.model.hidden, sizeof *scale);
    for (int64_t j = 0; j < p.c.ckpt.model.hidden; j++) scale[j] = 0.75 + 0.25 * (double)(j % 3);
    for (int i = 0; i < READERS; i++) {
        const sw_weight *w = sw_block_weight(&p.block, (sw_slot)(SW_SLOT_Q + i), -1);
        const int64_t n = w->n_out * w->k_in;
        float *values = malloc(sizeof *values * (size_t)n);

        MUST(sw_float_decode_n(values, w->dense, w->dense_dtype, n, &err));
        MUST(sw_backend_cuda.lend(&placed[i], &p.at, values, n, "weights", &err));
        free(values);
    }
    check_lanes(&p, "awq+gptq", placed, NULL);
    check_lanes(&p, "awq+gptq", placed, scale);
    check_lanes(&p, "awq", placed, scale);
    for (int i = 0; i < READERS; i++) sw_backend_cuda.unlend(&p.at, placed[i]);
    free(scale);
    case_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(kept_halves_are_new_ones),
                                       cmocka_unit_test(readers_are_solved_beside_each_other)};

    return solver_tests_run(tests, sizeof tests / sizeof *tests, NULL, &gpu, &solver);
}
