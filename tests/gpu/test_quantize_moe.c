/* test_quantize_moe.c - models with routed experts, calibrated and solved on a device, against the
 * same on the CPU. Exit 77 without a GPU.
 *
 * Routers see activations rounded to BF16, so that a token may meet another expert than on the CPU:
 * counts and sums of experts agree within bounds, and what is made from the same sums to the bit or
 * nearly so. The two halves of the text have words of their own, so that one cannot pass for the
 * other, and a chunk holds an odd number of windows.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "kernels/blas.h"
#include "kernels/solver.h"
#include "quant/run/scheme.h"
#include "tests/support/cases/stats_case.h"
#include "tests/support/toys/random.h"

enum { SEQS = 80, LEN = 132 };

static sw_device *gpu;
static sw_solver *solver;

/* On the device, or (NULL) in memory. */
static sw_place place_of(sw_solver *on)
{
    return (sw_place){.backend = on ? &sw_backend_cuda : &sw_backend_cpu, .device = on,
                      .n_threads = 4};
}

#define MUST(call) \
    do { sw_err err = {0}; if ((call) != SW_OK) fail_msg("%s: %s", #call, err.text); } while (0)

static const char *const archs[] = {"qwen3_moe", "mixtral", "gpt_oss", "deepseek_v3"};
#ifdef SW_CHECKED
#define N_ARCHS 2
#else
#define N_ARCHS (sizeof archs / sizeof *archs)
#endif
static const char *const policy_names[SW_EXPERTS_COUNT] = {"shrink", "routed", "all"};

typedef struct toy {
    stats_case c;
    uint32_t *ids;
} toy;

static void toy_open(toy *t, const char *arch)
{
    test_rng rng = {17};
    double half;

    stats_case_open(&t->c, arch);
    half = 0.5 * (double)t->c.ckpt.model.vocab;
    t->ids = malloc(sizeof *t->ids * SEQS * LEN);
    for (int i = 0; i < SEQS * LEN; i++)
        t->ids[i] = (uint32_t)(half * (i / LEN % 2 + test_uniform(&rng) * test_uniform(&rng)));
    t->c.calib = (sw_calib){t->ids, SEQS, LEN};
}

static void toy_close(toy *t)
{
    stats_case_close(&t->c);
    free(t->ids);
}

static void set_place(sw_quant_options *o, sw_solver *on)
{
    o->backend = place_of(on).backend;
    o->device = on;
}

/* ---- the same sums on both sides ---- */

enum { K = 200, WIDE = SW_PRIOR_PROBED_INPUTS + 8, ROWS = 900 };

typedef struct sums {
    sw_hessian all, half[2];
} sums;

/* Rows with a dead input and a common part; `tilt` makes halves differ from all. */
static void sum_rows(sw_hessian *h, int64_t k, int64_t n, double tilt, uint64_t seed,
                     sw_solver *on)
{
    float *x = malloc(sizeof *x * (size_t)((n + 1) * k));
    const sw_place at = place_of(on);
    test_rng rng = {seed};

    for (int64_t t = 0; t < n; t++) {
        double common = test_gauss(&rng);
        for (int64_t j = 0; j < k; j++)
            x[t * k + j] = j == 7 ? 0
                                  : (float)((0.1 + (double)(j % 9)) *
                                            (test_gauss(&rng) + common) * (j % 3 ? 1 : 1 + tilt));
    }
    MUST(sw_hessian_new(h, k, false, 0, 2, &err));
    if (n) MUST(sw_hessian_add(h, x, NULL, NULL, n, &err));
    MUST(sw_hessian_settle(h, &err));
    MUST(sw_hessian_move(h, &at, &err));
    free(x);
}

static void sums_new(sums *s, int64_t k, int64_t n0, int64_t n1, double tilt, sw_solver *on)
{
    sum_rows(&s->all, k, ROWS, 0, 3, on);
    sum_rows(&s->half[0], k, n0, tilt, 4, on);
    sum_rows(&s->half[1], k, n1, tilt, 5, on);
}

static void sums_free(sums *s)
{
    sw_hessian_free(&s->all);
    sw_hessian_free(&s->half[0]);
    sw_hessian_free(&s->half[1]);
}

static double weigh(const sums *s)
{
    sw_prior prior = {0};
    double d = -1;

    MUST(sw_prior_new(&prior, &s->all, &err));
    MUST(sw_prior_weight(&d, &prior, s->half, &err));
    sw_prior_free(&prior);
    return d;
}

/* Weights agree to rounding; of many inputs both are estimates, by the same signs in other
 * coordinates, each off by a per cent or so (test_experts.c has them against exact ones). With the
 * same weight the blend is the same bytes. */
static void weights_and_blends_are_the_cpus(void **state)
{
    static const struct { int64_t k, n0, n1; double tilt; } cases[] = {
        {K, 300, 250, 0.3}, {K, 60, 90, 0.1}, {K, 900, 1100, 0}, {K, 40, 0, 0.5}, {K, 0, 0, 0},
        {K, 0, 30, 1}, {WIDE, 300, 250, 0.3}, {WIDE, 900, 700, 0.1}};
    int n_between = 0;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int64_t k = cases[i].k;
        double d[2];
        sums s[2];
        for (int side = 0; side < 2; side++) {
            sums_new(&s[side], k, cases[i].n0, cases[i].n1, cases[i].tilt,
                     side ? solver : NULL);
            d[side] = weigh(&s[side]);
        }
        printf("weight of %d and %d tokens: %.15f, CPU %.15f\n", (int)cases[i].n0,
               (int)cases[i].n1, d[1], d[0]);
        assert_true(fabs(d[1] - d[0]) < (sw_prior_is_probed(k) ? 0.03 * d[0] : 1e-10));
        n_between += d[0] > 0.01 && d[0] < 0.99;
        for (int side = 0; side < 2; side++)
            MUST(sw_expert_blend(s[side].half, &s[side].all, d[0], &err));
        MUST(sw_hessian_move(&s[1].half[0], &s[0].half[0].place, &err));
        assert_int_equal(s[0].half[0].n_tokens, s[1].half[0].n_tokens);
        assert_memory_equal(s[0].half[0].h, s[1].half[0].h, sizeof(double) * (size_t)(k * k));
        sums_free(&s[0]);
        sums_free(&s[1]);
    }
    assert_true(n_between >= 2);
}

/* ---- what experts are shown ---- */

static const bool both[SW_SITE_COUNT] = {[SW_SITE_MLP_IN] = true, [SW_SITE_DOWN_IN] = true};

static void new_streams(sw_streams *s, const toy *t, sw_solver *on)
{
    const sw_place at = place_of(on);

    MUST(sw_streams_new(s, &at, &t->c.ckpt.model, t->c.ckpt.st, &t->c.calib, false, NULL, &err));
}

/* Sums of a layer's experts [begin, end), in memory; input ranges of downs into ranges. */
static void observe(sw_site_stats *out, const toy *t, sw_experts policy, int64_t layer,
                    int64_t begin, int64_t end, sw_range *ranges, sw_solver *on)
{
    const sw_place at = place_of(on), memory = sw_place_cpu(4);
    sw_streams s = {0};
    sw_block block = {0};

    new_streams(&s, t, on);
    for (int64_t l = 0; l <= layer; l++) {
        MUST(sw_block_load(&block, &t->c.ckpt.model, t->c.ckpt.st, l, &err));
        if (l < layer)
            MUST(sw_streams_advance(&s, &block, &block, SW_HALF_BOTH, NULL, &err));
        if (l < layer) sw_block_free(&block);
    }
    MUST(sw_site_stats_new_experts(out, s.model, layer, both, policy, begin, end, &at, &err));
    MUST(sw_site_stats_add_sizes(out, &err));
    out->ranges = ranges;
    MUST(sw_streams_observe(&s, out, &block, &block, NULL, &err));
    for (int64_t e = 0; e < out->n_experts; e++)
        MUST(sw_expert_stats_move(&out->experts[e], &memory, &err));
    sw_block_free(&block);
    sw_streams_free(&s);
}

/* ||a - b|| / ||a|| of means; a sum that holds few tokens says little. */
static double apart(const sw_hessian *a, const sw_hessian *b)
{
    double error = 0, power = 0;

    assert_int_equal(a->k_in, b->k_in);
    if (a->n_tokens < 200) return 0;
    for (int64_t i = 0; i < a->k_in * a->k_in; i++) {
        double x = a->h[i] / (double)a->n_tokens, y = b->h[i] / (double)b->n_tokens;
        power += x * x;
        error += (x - y) * (x - y);
    }
    return sqrt(error / power);
}

/* One token more or less may be the largest of some channels. */
static double sizes_apart(const sw_channels *a, const sw_channels *b)
{
    double error = 0, power = 0;
    int64_t n_other = 0;

    if (a->n_tokens < 200) return 0;
    for (int64_t j = 0; j < a->k_in; j++) {
        double x = a->abs_sum[j] / (double)a->n_tokens, y = b->abs_sum[j] / (double)b->n_tokens;
        power += x * x;
        error += (x - y) * (x - y);
        n_other += fabsf(a->abs_max[j] - b->abs_max[j]) > 0.05f * a->abs_max[j];
    }
    assert_true(n_other <= 2 + a->k_in / 8);
    return sqrt(error / power);
}

/* The most that sums of a site are apart. */
static double site_apart(const sw_expert_site *a, const sw_expert_site *b, bool with_own)
{
    double most = fmax(apart(&a->all, &b->all), sizes_apart(&a->sizes, &b->sizes));

    for (int i = 0; i < 2 && with_own; i++) {
        double d = fabs((double)(a->half[i].n_tokens - b->half[i].n_tokens));
        assert_true(d <= 4 + 0.04 * (double)a->half[i].n_tokens);
        most = fmax(most, apart(&a->half[i], &b->half[i]));
    }
    return most;
}

static void assert_alike(const sw_site_stats *cpu, const sw_site_stats *device, sw_experts policy,
                         const char *arch)
{
    bool with_own = policy != SW_EXPERTS_ALL;
    double in = 0, down = 0;
    int64_t n = 0;

    for (int64_t e = 0; e < cpu->n_experts; e++) {
        const sw_expert_stats *a = &cpu->experts[e], *b = &device->experts[e];
        in = fmax(in, site_apart(&a->in, &b->in, with_own));
        down = fmax(down, site_apart(&a->down, &b->down, with_own));
        n += b->n_tokens;
        if (with_own)
            assert_int_equal(b->down.half[0].n_tokens + b->down.half[1].n_tokens, b->n_tokens);
        assert_int_equal(a->down.all.n_tokens, b->down.all.n_tokens);
    }
    printf("%s, %s: sums of experts at most %.4f (in) and %.4f (down) apart\n", arch,
           policy_names[policy], in, down);
    assert_int_equal(n % (SEQS * LEN), 0); /* every token met its experts */
    assert_true(n > 0 && in < 0.05 && down < 0.05);
}

/* The same experts in two passes, bit by bit. */
static void check_passes(const toy *t, const sw_site_stats *whole, sw_experts policy, int64_t layer)
{
    int64_t n = whole->n_experts, cut = n / 2 + 1;

    for (int64_t begin = 0; begin < n; begin += cut) {
        sw_site_stats part;
        int64_t end = begin ? n : cut;
        observe(&part, t, policy, layer, begin, end, NULL, solver);
        for (int64_t e = begin; e < end; e++) {
            const sw_expert_site *a = &whole->experts[e].down, *b = &part.experts[e - begin].down;
            size_t n_bytes = sizeof(double) * (size_t)(a->all.k_in * a->all.k_in);
            assert_int_equal(whole->experts[e].n_tokens, part.experts[e - begin].n_tokens);
            assert_memory_equal(a->half[0].h, b->half[0].h, n_bytes);
            assert_memory_equal(a->half[1].h, b->half[1].h, n_bytes);
            assert_memory_equal(a->all.h, b->all.h, n_bytes);
        }
        sw_site_stats_free(&part);
    }
}

static void check_range(const sw_range *cpu, const sw_range *device)
{
    int64_t n[2] = {0, 0};

    for (int i = 0; i < SW_RANGE_BINS; i++) {
        n[0] += cpu->counts[i];
        n[1] += device->counts[i];
    }
    assert_true(n[1] > 0 && fabs((double)n[1] / (double)n[0] - 1) < 0.02);
    assert_true(fabs(device->amax / cpu->amax - 1) < 0.1);
}

static void sums_of_experts_are_the_cpus(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_ARCHS; i++) {
        const sw_model *m;
        int64_t layer = 0;
        toy t;
        toy_open(&t, archs[i]);
        m = &t.c.ckpt.model;
        while (!sw_model_is_sparse(m, layer)) layer++;
        for (int p = 0; p < (i ? 1 : SW_EXPERTS_COUNT); p++) {
            sw_range *ranges = calloc(2 * SW_SITE_COUNT, sizeof *ranges);
            sw_site_stats cpu, device;
            observe(&cpu, &t, (sw_experts)p, layer, 0, m->n_experts, ranges, NULL);
            observe(&device, &t, (sw_experts)p, layer, 0, m->n_experts, ranges + SW_SITE_COUNT,
                    solver);
            assert_alike(&cpu, &device, (sw_experts)p, archs[i]);
            check_range(&ranges[SW_SITE_DOWN_IN], &ranges[SW_SITE_COUNT + SW_SITE_DOWN_IN]);
            if (p == SW_EXPERTS_SHRINK) check_passes(&t, &device, (sw_experts)p, layer);
            sw_site_stats_free(&cpu);
            sw_site_stats_free(&device);
            free(ranges);
        }
        toy_close(&t);
    }
}

/* ---- whole runs ---- */

typedef struct take {
    taken sum;
    int n_experts;
    double shared;                   /* of the weights of experts */
    int n_groups, n_accepted;        /* of searches; experts' among them, and */
    double loss_before[256];         /* what each lost without scales */
    float input_scale[512];          /* of every linear, 0 for one of experts' downs: */
    float down_scale;                /* the largest of these */
} take;

static sw_code put(void *self, const sw_linear_ref *ref, const char *path, const sw_qtensor *q,
                   const sw_solve_report *report, sw_err *err)
{
    take *k = self;

    (void)path, (void)err;
    taken_add(&k->sum, q, report);
    assert_true((size_t)k->sum.n < sizeof k->input_scale / sizeof *k->input_scale);
    if (ref->expert >= 0 && ref->site == SW_SITE_DOWN_IN)
        k->down_scale = fmaxf(k->down_scale, q->input_scale);
    else
        k->input_scale[k->sum.n - 1] = q->input_scale;
    if (ref->expert >= 0) {
        k->n_experts++;
        k->shared += report->shared_weight;
    }
    return SW_OK;
}

static sw_code transformed(void *self, const sw_transform_report *report, sw_err *err)
{
    take *k = self;

    (void)err;
    assert_true((size_t)k->n_groups < sizeof k->loss_before / sizeof *k->loss_before);
    k->loss_before[k->n_groups++] = report->loss_before;
    k->n_accepted += report->is_accepted;
    return SW_OK;
}

static sw_quant_options options_of(const char *method, sw_experts policy, sw_solver *on)
{
    sw_quant_options o = stats_case_options(policy, 4);

    o.algo = sw_algo_find(method);
    set_place(&o, on);
    return o;
}

/* From text, or from statistics. */
static take run(toy *t, const sw_quant_options *o, const sw_zpack *stats)
{
    take k = {0};
    sw_quant_sink sink = {.self = &k, .put = put, .is_selected = takes_all,
                          .change = takes_no_change, .transformed = transformed};
    const sw_model *m = &t->c.ckpt.model;

    if (stats) MUST(sw_quant_run_stats(m, t->c.ckpt.st, stats, o, &sink, NULL, &err));
    else MUST(sw_quant_run(m, t->c.ckpt.st, &t->c.calib, o, &sink, NULL, &err));
    return k;
}

/* What is searched on is the same: groups of experts with few tokens part most. */
static void assert_near_searches(const take *device, const take *cpu)
{
    double most = 0;

    assert_int_equal(device->n_groups, cpu->n_groups);
    if (!cpu->n_groups) return;
    for (int i = 0; i < cpu->n_groups; i++) {
        assert_int_equal(device->loss_before[i] > 0, cpu->loss_before[i] > 0);
        if (cpu->loss_before[i] > 0)
            most = fmax(most, fabs(device->loss_before[i] / cpu->loss_before[i] - 1));
    }
    printf("%d of %d groups scaled, %d on the CPU; losses before at most %.3f apart\n",
           device->n_accepted, device->n_groups, cpu->n_accepted, most);
    assert_true(most < 0.25);
}

/* Where two scales are as good, the device may take the other: their errors part further. */
static void assert_near(const take *device, const take *cpu, const char *name)
{
    const taken *a = &device->sum, *b = &cpu->sum;
    double bound = cpu->n_groups ? 0.1 : 0.05;

    printf("%s: mean error %.5e on the device, %.5e on the CPU, %.5e by rounding; shared %.4f, CPU "
           "%.4f\n", name, a->error / a->n, b->error / b->n, b->error_rtn / b->n,
           device->shared / device->n_experts, cpu->shared / cpu->n_experts);
    assert_int_equal(a->n, b->n);
    assert_int_equal(a->n_fallbacks, b->n_fallbacks);
    assert_near_searches(device, cpu);
    assert_true(fabs(a->error / b->error - 1) < bound);
    assert_true(fabs(a->error_rtn / b->error_rtn - 1) < bound);
    assert_true(fabs(device->shared - cpu->shared) < 0.05 * device->n_experts);
}

/* Scales of inputs, where there are any. The largest input of an expert is another one where its
 * router takes another of two tokens that are all but equal; downs see that most. */
static void assert_near_scales(const take *device, const take *cpu)
{
    float most = 0;

    if (cpu->input_scale[0] == 0) return;
    for (int i = 0; i < cpu->sum.n; i++)
        if (cpu->input_scale[i] > 0)
            most = fmaxf(most, fabsf(device->input_scale[i] / cpu->input_scale[i] - 1));
    printf("scales of inputs at most %.4f apart, of downs %.5f and %.5f\n", (double)most,
           (double)device->down_scale, (double)cpu->down_scale);
    assert_true(most < 0.1f);
    assert_true(fabsf(device->down_scale / cpu->down_scale - 1) < 0.25f);
}

static void check_run(toy *t, const char *name, sw_quant_options o)
{
    take cpu, device, again;

    set_place(&o, NULL);
    cpu = run(t, &o, NULL);
    set_place(&o, solver);
    device = run(t, &o, NULL);
    again = run(t, &o, NULL);
    assert_near(&device, &cpu, name);
    assert_same_taken(&device.sum, &again.sum);
    assert_near_scales(&device, &cpu);
    free(cpu.sum.bytes), free(device.sum.bytes), free(again.sum.bytes);
}

static void every_sparse_architecture(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_ARCHS; i++) {
        toy t;
        toy_open(&t, archs[i]);
        check_run(&t, archs[i], options_of("gptq", SW_EXPERTS_SHRINK, NULL));
        toy_close(&t);
    }
}

/* Scales are searched for, group by group and expert by expert. */
static void searches(void **state)
{
    sw_quant_options o;

    (void)state;
    for (size_t i = 0; i < 2; i++) { /* what a trial puts into a block: test_block_put */
        toy t;
        toy_open(&t, archs[i]);
        check_run(&t, "awq", options_of("awq", SW_EXPERTS_SHRINK, NULL));
        o = options_of("smoothquant+gptq", SW_EXPERTS_SHRINK, NULL);
        o.spec = sw_scheme_spec(sw_scheme_find("W8A8"));
        o.spec.scale_dtype = SW_DTYPE_F32;
        o.spec.act.scale_dtype = SW_DTYPE_F32;
        if (i == 0) check_run(&t, "smoothquant", o);
        toy_close(&t);
    }
}

/* The other policies, one pass a block, inputs under a stored scale, sums of rows that stayed in
 * memory. */
static void every_way(void **state)
{
    sw_quant_options o;
    toy t;

    (void)state;
    toy_open(&t, "qwen3_moe");
    check_run(&t, "routed", options_of("gptq", SW_EXPERTS_ROUTED, NULL));
    check_run(&t, "all", options_of("gptq", SW_EXPERTS_ALL, NULL));
    o = options_of("gptq", SW_EXPERTS_SHRINK, NULL);
    o.sequential = SW_SEQUENTIAL_LAYER;
    check_run(&t, "one pass", o);
    o = options_of("gptq", SW_EXPERTS_SHRINK, NULL);
    o.spec = sw_scheme_spec(sw_scheme_find("FP8"));
    o.spec.scale_dtype = SW_DTYPE_F32;
    o.spec.act.scale_dtype = SW_DTYPE_F32;
    check_run(&t, "FP8", o);
    o = options_of("gptq", SW_EXPERTS_SHRINK, NULL);
    o.spill_dir = t.c.s.dir;
    check_run(&t, "spilled", o);
    toy_close(&t);
}

/* ---- statistics in files ---- */

static double differing(const take *a, const take *b)
{
    int64_t n = 0;

    assert_int_equal(a->sum.n_bytes, b->sum.n_bytes);
    for (size_t i = 0; i < a->sum.n_bytes; i++) n += a->sum.bytes[i] != b->sum.bytes[i];
    return (double)n / (double)a->sum.n_bytes;
}

/* One file, solved on either side: the CPU's codes. */
static void statistics_serve_both_sides(void **state)
{
    (void)state;
    for (int p = 0; p < SW_EXPERTS_COUNT; p++) {
        sw_quant_options on_cpu = options_of("gptq", (sw_experts)p, NULL), on_device = on_cpu;
        take from_cpu[2], from_device;
        sw_zpack *cpu, *device;
        toy t;
        set_place(&on_device, solver);
        toy_open(&t, p == SW_EXPERTS_SHRINK ? "mixtral" : "qwen3_moe");
        cpu = stats_case_collect(&t.c, "cpu", &on_cpu, true);
        device = stats_case_collect(&t.c, "device", &on_device, true);
        from_cpu[0] = run(&t, &on_cpu, cpu);
        from_cpu[1] = run(&t, &on_device, cpu);
        from_device = run(&t, &on_device, device);
        printf("statistics, %s: %.2e of the bytes differ\n", policy_names[p],
               differing(&from_cpu[0], &from_cpu[1]));
        assert_true(differing(&from_cpu[0], &from_cpu[1]) < 2e-3);
        assert_near(&from_device, &from_cpu[0], "statistics of the device");
        free(from_cpu[0].sum.bytes), free(from_cpu[1].sum.bytes), free(from_device.sum.bytes);
        sw_zpack_close(cpu);
        sw_zpack_close(device);
        toy_close(&t);
    }
}

static void nothing_is_left(void **state)
{
    (void)state;
    sw_solver_close(solver);
    assert_int_equal(sw_device_taken_bytes(gpu), 0);
    sw_device_close(gpu);
}

/* An argument: a pattern of the tests to run. */
int main(int argc, char *argv[])
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(weights_and_blends_are_the_cpus),
                                       cmocka_unit_test(sums_of_experts_are_the_cpus),
                                       cmocka_unit_test(statistics_serve_both_sides),
                                       cmocka_unit_test(every_sparse_architecture),
                                       cmocka_unit_test(every_way),
                                       cmocka_unit_test(searches),
                                       cmocka_unit_test(nothing_is_left)};
    sw_err err = {0};

    if (sw_device_count() == 0) {
        printf("skipped: no GPU\n");
        return 77;
    }
    sw_blas_single_thread();
    if (sw_device_open(&gpu, 0, 0, &err) != SW_OK ||
        sw_solver_open(&solver, gpu, 0, &err) != SW_OK) {
        printf("%s\n", err.text);
        return 1;
    }
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
