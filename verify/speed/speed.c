/* speed.c - see speed.h. */
#include "verify/speed/speed.h"

#include <cblas.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/parallel.h"
#include "formats/base/size.h"
#include "formats/io/profile.h"
#include "formats/num/act.h"
#include "kernels/blas.h"
#include "verify/base/apart.h"
#include "verify/speed/roof.h"
#include "verify/speed/speed_data.h"

#define CANDIDATES_MAX 64

typedef struct candidate {
    const sw_kernel *kernel; /* NULL: OpenBLAS on the f32 store */
    sw_speed_weights *store;
    bool is_selected, is_rounded; /* rounded: inputs are, before the kernel sees them */
    double error;
    double us[SW_SPEED_ROUNDS_MAX];
} candidate;

typedef struct bench {
    const sw_speed_options *o;
    sw_speed_report *report;
    sw_speed_weights stores[SW_SPEED_STORES_MAX]; /* those not asked for are empty */
    candidate candidates[CANDIDATES_MAX];
    int n_candidates;
    float *rounded;      /* x as a weight wants it, for the reference */
    float *x, *y, *want; /* x [m_max, k_in], y [m_max, n_out], want [m_max, 64] */
    sw_scratch scratch;
    uint64_t sums[2]; /* what the reading loop found: keeps it from being optimized away */
    double read_us[SW_SPEED_ROUNDS_MAX];
} bench;

static double now_us(void) { return 1e6 * sw_clock_s(); }

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static sw_timing timing_of(double *us, int n)
{
    sw_timing t = {0};

    qsort(us, (size_t)n, sizeof *us, by_value);
    t.median_us = n % 2 ? us[n / 2] : 0.5 * (us[n / 2 - 1] + us[n / 2]);
    t.min_us = us[0];
    t.max_us = us[n - 1];
    t.n_rounds = n;
    return t;
}

/* Read the f32 weights once with all threads; microseconds. */
static double time_read(bench *b, int round)
{
    const sw_speed_weights *s = &b->stores[SW_SPEED_BASELINE];
    const uint8_t *bytes = (const uint8_t *)s->weights[round % s->n_copies].dense;
    double start = now_us();

    b->sums[round % 2] += sw_roof_read(bytes, (int64_t)s->copy_bytes, b->o->n_threads,
                                       (uint64_t *)(void *)b->y);
    return now_us() - start;
}

static void run_blas(const bench *b, const sw_weight *w, int64_t m)
{
    blasint k = (blasint)w->k_in, n = (blasint)w->n_out;
    const float *weights = (const float *)w->dense;

    openblas_set_num_threads(b->o->n_threads);
    if (m == 1)
        cblas_sgemv(CblasRowMajor, CblasNoTrans, n, k, 1.0f, weights, k, b->x, 1, 0.0f, b->y, 1);
    else
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (blasint)m, n, k, 1.0f, b->x, k,
                    weights, k, 0.0f, b->y, n);
    sw_blas_single_thread();
}

static sw_gemm problem_of(const bench *b, const sw_weight *w, int64_t m)
{
    sw_gemm p = {.m = m, .x = b->x, .x_stride = b->o->k_in, .y = b->y, .y_stride = b->o->n_out,
                 .w = w, .n_threads = b->o->n_threads};
    return p;
}

static double time_candidate(bench *b, const candidate *c, int64_t m, int round)
{
    const sw_weight *w = &c->store->weights[round % c->store->n_copies];
    sw_gemm p = problem_of(b, w, m);
    double start = now_us();

    if (c->is_rounded) (void)!sw_gemm_run(&p, &b->scratch, NULL); /* grown when it was checked */
    else if (c->kernel) c->kernel->run(&p, b->scratch.bytes);
    else run_blas(b, w, m);
    return now_us() - start;
}

static sw_code grow_scratch(bench *b, size_t size_bytes, sw_err *err)
{
    sw_code rc;

    if (b->scratch.size_bytes >= size_bytes) return SW_OK;
    sw_scratch_free(&b->scratch);
    rc = sw_mem_get(&b->scratch.bytes, (int64_t)size_bytes, 1, "bench workspace", err);
    if (rc == SW_OK) b->scratch.size_bytes = size_bytes;
    return rc;
}

/* A kernel whose result is too far from the reference's: "want" is twice what its row states. */
static sw_code off_error(const candidate *c, int64_t m, sw_err *err)
{
    const sw_apart a = sw_apart_digits(c->error, 2 * c->kernel->tolerance, 2);

    return SW_FAIL(err, SW_E_GATE, "%s is off by %s at M = %lld, want at most %s", c->kernel->name,
                   a.have, (long long)m, a.limit);
}

/* Run once and compare the first, the middle and the last 64 channels with the reference. */
static sw_code check_candidate(bench *b, candidate *c, int64_t m, sw_err *err)
{
    const sw_weight *w = &c->store->weights[0];
    int64_t n_tiles = sw_tiles_n(w->n_out), at[3] = {0, n_tiles / 2, n_tiles - 1};
    double difference = 0, size = 0;

    c->error = 0;
    (void)time_candidate(b, c, m, 0);
    if (!c->kernel) return SW_OK;
    for (int i = 0; i < 3; i++) {
        sw_tiles tiles;
        sw_weight slice = sw_speed_slice(w, at[i], &tiles);
        sw_gemm p = problem_of(b, &slice, m);
        const sw_kernel *reference = NULL;

        for (int k = 0; k < sw_n_kernels; k++)
            if (sw_kernels[k].op == c->kernel->op) reference = &sw_kernels[k];
        if (c->is_rounded) {
            sw_act_round(b->rounded, w->k_in, b->x, w->k_in, m, w->k_in, &w->act, w->input_scale);
            p.x = b->rounded;
        }
        p.y = b->want;
        p.y_stride = SW_TILE_N;
        reference->run(&p, b->scratch.bytes);
        for (int64_t t = 0; t < m; t++)
            for (int64_t n = 0; n < slice.n_out; n++) {
                double want = (double)b->want[t * SW_TILE_N + n];
                double have = (double)b->y[t * w->n_out + at[i] * SW_TILE_N + n];

                difference += (have - want) * (have - want);
                size += want * want;
            }
    }
    c->error = sqrt(difference / size);
    /* twice: on random operands the size of Y scatters around the uncancelled one */
    if (!(c->error <= 2 * c->kernel->tolerance))
        return off_error(c, m, err);
    return SW_OK;
}

/* The rows that read weights of one store. */
static sw_code gather_store(bench *b, sw_speed_weights *store, int64_t m, sw_err *err)
{
    sw_gemm p = problem_of(b, &store->weights[0], m);
    sw_gemm_op op = sw_gemm_op_of(p.w);
    sw_code rc;

    for (int i = 0; i < sw_n_kernels && b->n_candidates < CANDIDATES_MAX; i++) {
        const sw_kernel *kernel = &sw_kernels[i];
        bool is_reference = i + 1 == sw_n_kernels || sw_kernels[i + 1].op != kernel->op;
        candidate *c = &b->candidates[b->n_candidates];

        if (kernel->op != op) continue;
        if ((rc = grow_scratch(b, kernel->workspace_bytes(&p), err)) != SW_OK) return rc;
        if (is_reference || !kernel->can_run(&p)) continue;
        memset(c, 0, sizeof *c);
        c->kernel = kernel;
        c->store = store;
        c->is_selected = sw_kernel_select(&p, NULL) == kernel;
        c->is_rounded = p.w->act.scope != SW_ACT_NONE && op != SW_GEMM_W4A8 && op != SW_GEMM_W8A8;
        if (c->is_selected || (b->o->is_all && !c->is_rounded)) b->n_candidates++;
    }
    return SW_OK;
}

/* OpenBLAS and the rows to time; the references never are. */
static sw_code gather(bench *b, int64_t m, sw_err *err)
{
    sw_code rc = SW_OK;

    memset(&b->candidates[0], 0, sizeof b->candidates[0]);
    b->candidates[0].store = &b->stores[SW_SPEED_BASELINE];
    b->n_candidates = 1;
    for (int i = SW_SPEED_BASELINE + 1; i < sw_n_speed_stores && rc == SW_OK; i++)
        if (b->stores[i].n_copies) rc = gather_store(b, &b->stores[i], m, err);
    return rc;
}

static void put_row(bench *b, const candidate *c, int64_t m, sw_timing time, double blas_us,
                    double read_gb_s)
{
    sw_speed_row *row = &b->report->rows[b->report->n_rows++];
    double weights = (double)b->o->n_out * (double)b->o->k_in;

    row->name = c->kernel ? c->kernel->name : "openblas";
    row->weights = c->store->name;
    row->m = m;
    row->is_selected = c->is_selected;
    row->time = time;
    row->error = c->error;
    row->gb_s = (double)c->store->copy_bytes / time.median_us * 1e-3;
    row->bandwidth_share = row->gb_s / read_gb_s;
    row->gflop_s = 2 * weights * (double)m / time.median_us * 1e-3;
    row->speedup = blas_us / time.median_us;
}

static sw_code measure(bench *b, int64_t m, sw_err *err)
{
    double read_bytes = (double)b->stores[SW_SPEED_BASELINE].copy_bytes;
    double start, blas_us = 0, read_gb_s;
    sw_timing read;
    int n = 0;
    sw_code rc;

    if ((rc = gather(b, m, err)) != SW_OK) return rc;
    for (int i = 0; i < b->n_candidates; i++)
        if ((rc = check_candidate(b, &b->candidates[i], m, err)) != SW_OK) return rc;
    start = now_us();
    while (n < b->o->rounds ||
           (n < SW_SPEED_ROUNDS_MAX && now_us() - start < b->o->seconds * 1e6)) {
        if ((rc = sw_progress_check(b->o->progress, err)) != SW_OK) return rc;
        b->read_us[n] = time_read(b, n);
        for (int i = 0; i < b->n_candidates; i++)
            b->candidates[i].us[n] = time_candidate(b, &b->candidates[i], m, n);
        n++;
    }
    read = timing_of(b->read_us, n);
    read_gb_s = read_bytes / read.median_us * 1e-3;
    if (b->report->n_rows == 0) {
        b->report->read = read;
        b->report->read_gb_s = read_gb_s;
    }
    for (int i = 0; i < b->n_candidates; i++) {
        sw_timing time = timing_of(b->candidates[i].us, n);

        if (!b->candidates[i].kernel) blas_us = time.median_us;
        put_row(b, &b->candidates[i], m, time, blas_us, read_gb_s);
    }
    return SW_OK;
}

/* Every listed name is a store's. */
static sw_code check_weights(const char *list, sw_err *err)
{
    char names[256] = "";

    for (int i = 0; i < sw_n_speed_stores; i++) {
        (void)strncat(names, i ? ", " : "", sizeof names - strlen(names) - 1);
        (void)strncat(names, sw_speed_stores[i].name, sizeof names - strlen(names) - 1);
    }
    for (const char *at = list; *at; at += strcspn(at, ","), at += *at == ',') {
        int n = (int)strcspn(at, ","), i = 0;

        while (i < sw_n_speed_stores && ((int)strlen(sw_speed_stores[i].name) != n ||
                                         strncmp(sw_speed_stores[i].name, at, (size_t)n) != 0))
            i++;
        if (i == sw_n_speed_stores)
            return SW_FAIL(err, SW_E_USAGE, "no weights called '%.*s' to measure; there are %s", n,
                           at, names);
    }
    return SW_OK;
}

static sw_code check_options(const sw_speed_options *o, int64_t *m_max, sw_err *err)
{
    *m_max = 1;
    if (o->n_out < 1 || o->k_in < 1 || o->k_in > INT32_MAX || o->n_out > INT32_MAX)
        return SW_FAIL(err, SW_E_USAGE, "a shape of %lld x %lld; both must be at least 1",
                       (long long)o->k_in, (long long)o->n_out);
    if (o->group_elems < 0 || o->group_elems % 32)
        return SW_FAIL(err, SW_E_USAGE, "group size %lld; give a multiple of 32, or 0",
                       (long long)o->group_elems);
    if (o->n_tokens < 1 || o->n_tokens > SW_SPEED_TOKENS_MAX || o->rounds < 1 ||
        o->rounds > SW_SPEED_ROUNDS_MAX)
        return SW_FAIL(err, SW_E_USAGE, "1 to %d values of M and 1 to %d rounds",
                       SW_SPEED_TOKENS_MAX, SW_SPEED_ROUNDS_MAX);
    for (int i = 0; i < o->n_tokens; i++) {
        if (o->tokens[i] < 1 || o->tokens[i] > INT32_MAX)
            return SW_FAIL(err, SW_E_USAGE, "M of %lld; it must be at least 1",
                           (long long)o->tokens[i]);
        *m_max = sw_max_i64(*m_max, o->tokens[i]);
    }
    return o->weights ? check_weights(o->weights, err) : SW_OK;
}

/* Is `name` one of the words between commas? */
static bool is_listed(const char *list, const char *name)
{
    size_t n = strlen(name);

    for (const char *at = list; *at; at += strcspn(at, ","), at += *at == ',')
        if (strcspn(at, ",") == n && strncmp(at, name, n) == 0) return true;
    return false;
}

static sw_code prepare(bench *b, int64_t m_max, sw_err *err)
{
    const sw_speed_options *o = b->o;
    int64_t cache_bytes = o->cache_bytes ? o->cache_bytes : sw_roof_cache_bytes();
    /* Y also holds the partial sums of the reading loop, one word per chunk of weights */
    int64_t y_elems = m_max * o->n_out + 2 * sw_roof_read_sums(4 * o->n_out * o->k_in) + 16;
    sw_code rc;

    b->report->cache_bytes = cache_bytes;
    if ((rc = SW_MEM_GET(&b->x, m_max * o->k_in, "bench inputs", err)) != SW_OK ||
        (rc = SW_MEM_GET(&b->rounded, m_max * o->k_in, "bench inputs", err)) != SW_OK ||
        (rc = SW_MEM_GET(&b->y, y_elems, "bench outputs", err)) != SW_OK ||
        (rc = SW_MEM_GET(&b->want, m_max * SW_TILE_N, "bench reference", err)) != SW_OK ||
        (rc = SW_ARENA_TAKE(&b->report->rows, &b->report->arena,
                            (int64_t)o->n_tokens * CANDIDATES_MAX, err)) != SW_OK)
        return rc;
    sw_speed_random_floats(b->x, m_max * o->k_in, 4);
    for (int i = 0; i < sw_n_speed_stores; i++) {
        if (i != SW_SPEED_BASELINE && o->weights && !is_listed(o->weights, sw_speed_stores[i].name))
            continue;
        rc = sw_speed_weights_new(&b->stores[i], o, i, cache_bytes, err);
        if (rc != SW_OK) return rc;
    }
    return SW_OK;
}

sw_code sw_speed_run(sw_speed_report *out, const sw_speed_options *options, sw_err *err)
{
    sw_speed_report report = {0};
    bench *b = NULL;
    int64_t m_max;
    sw_code rc;

    if ((rc = check_options(options, &m_max, err)) != SW_OK) return rc;
    if ((rc = SW_MEM_GET(&b, 1, "bench", err)) != SW_OK) return rc;
    b->o = options;
    b->report = &report;
    sw_roof_cpu_name(report.cpu, sizeof report.cpu);
    report.blas_core = sw_blas_core_name();
    report.n_threads = options->n_threads;
    if ((rc = prepare(b, m_max, err)) != SW_OK) goto done;
    rc = sw_roof_sgemm(&report.sgemm_gflop_s, options->n_threads, options->rounds, err);
    if (rc != SW_OK) goto done;
    for (int i = 0; i < options->n_tokens; i++) {
        sw_progress_step(options->progress, "bench", i, options->n_tokens);
        if ((rc = measure(b, options->tokens[i], err)) != SW_OK) goto done;
    }
    sw_progress_step(options->progress, "bench", options->n_tokens, options->n_tokens);
    *out = report;
    report.arena = (sw_arena){0};
done:
    for (int i = 0; i < sw_n_speed_stores; i++) sw_speed_weights_free(&b->stores[i]);
    sw_mem_put(b->x);
    sw_mem_put(b->rounded);
    sw_mem_put(b->y);
    sw_mem_put(b->want);
    sw_scratch_free(&b->scratch);
    sw_mem_put(b);
    sw_arena_free(&report.arena);
    return rc;
}

void sw_speed_free(sw_speed_report *report)
{
    sw_arena_free(&report->arena);
    memset(report, 0, sizeof *report);
}
