/* bench_gemm.c - times of the device's matrix kernels, checked before they are timed.
 *
 *   bench_gemm [--sweep] [--no-dense] [--kernel NAME] [--tiles NAME,..] FORMAT... [K N]... -- M...
 *
 * Time is that of one call in a CUDA graph of calls over rotating copies of the weights, together
 * more than three times the L2, so that every call reads its weights from memory, as decoding does;
 * the median of several replays. Formats with quantized inputs are timed with the kernel that
 * quantizes them, and with codes given. Baselines in the same process: a device copy, cuBLASLt.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/num/act.h"
#include "kernels/cuda/gemm/column_tiles.h"
#include "kernels/cuda_gemm.h"
#include "kernels/ref/ref_tiles.h"
#include "tests/gpu/support/gpu_dense.h"
#include "tests/gpu/support/gpu_ref.h"
#include "tests/support/toys/random.h"

typedef struct format {
    const char *name;
    sw_num_id num;
    int64_t group_elems;
    sw_dtype scale_dtype;
    sw_act_scope scope;
    sw_num_id x_num;
    double peak;           /* flop a second, for the floor */
    bool has_zeros;
    int64_t scale_rows;    /* channels that share their scales; 0: none */
} format;

static const format formats[] = {
    {"w4a16", SW_NUM_INT4, 128, SW_DTYPE_BF16, SW_ACT_NONE, SW_NUM_INT8, 790e12, false, 0},
    {"w3a16", SW_NUM_INT3, 128, SW_DTYPE_BF16, SW_ACT_NONE, SW_NUM_INT8, 790e12, false, 0},
    {"w2a16", SW_NUM_INT2, 64, SW_DTYPE_BF16, SW_ACT_NONE, SW_NUM_INT8, 790e12, true, 0},
    {"w8a16", SW_NUM_INT8, 0, SW_DTYPE_BF16, SW_ACT_NONE, SW_NUM_INT8, 790e12, false, 0},
    {"fp8a16", SW_NUM_E4M3, 0, SW_DTYPE_BF16, SW_ACT_NONE, SW_NUM_INT8, 790e12, false, 0},
    {"w8a8", SW_NUM_INT8, 0, SW_DTYPE_F32, SW_ACT_TOKEN, SW_NUM_INT8, 1580e12, false, 0},
    {"fp8", SW_NUM_E4M3, 0, SW_DTYPE_F32, SW_ACT_TOKEN, SW_NUM_E4M3, 1580e12, false, 0},
    {"fp8block", SW_NUM_E4M3, 128, SW_DTYPE_F32, SW_ACT_GROUP, SW_NUM_E4M3, 1580e12, false, 128},
    {"fp8group", SW_NUM_E4M3, 128, SW_DTYPE_F32, SW_ACT_GROUP, SW_NUM_E4M3, 1580e12, false, 0},
    {"w4a8", SW_NUM_INT4, 128, SW_DTYPE_BF16, SW_ACT_TOKEN, SW_NUM_INT8, 1580e12, false, 0},
    {"w4a8c", SW_NUM_INT4, 0, SW_DTYPE_BF16, SW_ACT_TOKEN, SW_NUM_INT8, 1580e12, false, 0},
    {"w4a8f", SW_NUM_INT4, 128, SW_DTYPE_BF16, SW_ACT_TOKEN, SW_NUM_E4M3, 1580e12, false, 0},
};
#define N_FORMATS (int)(sizeof formats / sizeof *formats)
#define MAX_CHANNELS 256 /* that a check looks at */
#define MAX_TOKENS 64

typedef struct bench {
    const format *f;
    int64_t k, n, m;
    int n_copies;
    uint8_t *codes;          /* packed, host */
    uint8_t *scales, *zeros;
    size_t codes_bytes, scales_bytes, zeros_bytes;
    sw_tiles tiles[16];      /* copies on the device */
    uint16_t *x, *d_x, *d_y; /* bf16; of the largest problem */
    uint8_t *d_work;
    sw_cuda_codes given;     /* codes of X, when given */
    cudaStream_t stream;
    sw_cuda_device device;
    sw_cuda_plan plan;
    const char *kernel;      /* forced, or NULL */
    const char *only;        /* tiles that a sweep is to try, or NULL */
    double copy_tbs;
    bool may_overlap;
} bench;

static void copy_call(void *ctx, int copy)
{
    bench *b = ctx;
    uint8_t *big = b->d_work;

    MUST(gpu_ref_copy(big + (2ll << 29), big + ((int64_t)copy << 29), 1ll << 29, b->stream));
}

static void measure_copy(bench *b)
{
    MUST(cudaMalloc((void **)&b->d_work, 3ll << 29));
    MUST(cudaMemset(b->d_work, 17, 3ll << 29));
    b->copy_tbs = 2 * (double)(1ll << 29) / bench_graph_us(b->stream, copy_call, b, 2) * 1e-6;
    printf("# copy %.3f TB/s (read + write)\n", b->copy_tbs);
}

static void *upload(const void *host, size_t n_bytes)
{
    void *d;

    MUST(cudaMalloc(&d, n_bytes));
    MUST(cudaMemcpy(d, host, n_bytes, cudaMemcpyHostToDevice));
    return d;
}

/* Eight bytes of codes: sums of two draws for integers, as weights are distributed. */
static uint64_t random_codes(test_rng *rng, const format *f)
{
    uint64_t r = test_u64(rng), q = test_u64(rng);

    if (f->num == SW_NUM_INT4) return (r & 0x7777777777777777) + (q & 0x7777777777777777);
    if (f->num == SW_NUM_INT3 || f->num == SW_NUM_INT2) return r;
    if (f->num == SW_NUM_INT8) return (r & 0x7f7f7f7f7f7f7f7f) + (q & 0x7f7f7f7f7f7f7f7f);
    return r & 0xbfbfbfbfbfbfbfbf; /* E4M3 below 2 */
}

static sw_act act_of(const format *f)
{
    sw_act act = {&sw_nums[f->x_num], f->scope, f->scope == SW_ACT_GROUP ? 128 : 0, SW_DTYPE_F32};

    return f->scope == SW_ACT_NONE ? (sw_act){0} : act;
}

static void make_weights(bench *b)
{
    const format *f = b->f;
    int64_t groups = f->group_elems ? (b->k + f->group_elems - 1) / f->group_elems : 1;
    sw_qspec spec = {.num = &sw_nums[f->num], .is_symmetric = !f->has_zeros,
                     .group_elems = f->group_elems,
                     .scale_dtype = f->scale_dtype, .scale_rows = f->scale_rows};
    const sw_act act = act_of(f);
    test_rng rng = {42};
    int64_t n_scales = sw_tiles_n(b->n) * 64 * groups;
    float *scales = malloc(sizeof(float) * (size_t)n_scales);
    sw_err err = {0};

    b->codes_bytes = (size_t)sw_tiles_stored_bytes(spec.num, b->n, b->k);
    b->scales_bytes = (size_t)sw_tiles_scales_bytes(f->scale_dtype, b->n, groups);
    b->codes = malloc(b->codes_bytes);
    b->scales = malloc(b->scales_bytes);
    b->zeros_bytes = f->has_zeros ? (size_t)sw_tiles_zeros_bytes(b->n, groups) : 0;
    b->zeros = malloc(b->zeros_bytes + 1);
    for (size_t i = 0; i < b->zeros_bytes; i++)
        b->zeros[i] = (uint8_t)(test_u64(&rng) & (uint64_t)spec.num->code_max);
    for (size_t i = 0; i < b->codes_bytes; i += 8) {
        uint64_t r = random_codes(&rng, f);

        memcpy(b->codes + i, &r, 8);
    }
    for (int64_t i = 0; i < n_scales; i++) scales[i] = (float)(0.002 + 0.002 * test_uniform(&rng));
    for (int64_t i = 0; i < n_scales && f->scale_rows; i++) /* records of 64, a group each */
        scales[i] = scales[i / 64 / groups * 64 / f->scale_rows * f->scale_rows * groups +
                           i / 64 % groups * 64];
    MUST(sw_float_encode_n(b->scales, f->scale_dtype, scales, n_scales, &err));
    b->n_copies = bench_copies((int64_t)b->codes_bytes);
    const sw_tiles host = {.spec = spec, .n_out = b->n, .k_in = b->k, .n_groups = groups,
                           .container_bits = sw_tiles_stored_bits(spec.num), .scales = b->scales};
    const bool has_usual_scales = sw_tiles_has_usual_scales(&host);

    for (int i = 0; i < b->n_copies; i++) {
        b->tiles[i] = (sw_tiles){.spec = spec, .n_out = b->n, .k_in = b->k, .n_groups = groups,
                                 .container_bits = sw_tiles_stored_bits(spec.num),
                                 .has_usual_scales = has_usual_scales,
                                 .codes = upload(b->codes, b->codes_bytes),
                                 .scales = upload(b->scales, b->scales_bytes),
                                 .zeros = b->zeros_bytes ? upload(b->zeros, b->zeros_bytes)
                                                         : NULL};
        MUST(cudaDeviceSynchronize()); /* what is uploaded is of another stream */
        MUST(sw_column_tiles_order(&b->tiles[i], &act, &b->device, b->stream, &err));
    }
    free(scales);
}

static void drop_weights(bench *b)
{
    for (int i = 0; i < b->n_copies; i++) {
        MUST(cudaFree((void *)(uintptr_t)b->tiles[i].codes));
        MUST(cudaFree((void *)(uintptr_t)b->tiles[i].scales));
        MUST(cudaFree((void *)(uintptr_t)b->tiles[i].zeros));
    }
    free(b->codes);
    free(b->scales);
    free(b->zeros);
}

static sw_cuda_gemm problem_of(const bench *b, int copy)
{
    sw_cuda_gemm p = {.m = b->m, .d_x = b->d_x, .x_stride = b->k, .d_y = b->d_y, .y_stride = b->n,
                      .dtype = SW_DTYPE_BF16, .tiles = b->tiles[copy], .act = act_of(b->f),
                      .x_codes = b->given, .may_overlap = b->may_overlap};
    return p;
}

static void gemm_call(void *ctx, int copy)
{
    bench *b = ctx;
    sw_cuda_gemm p = problem_of(b, copy);
    sw_err err = {0};

    if (sw_cuda_gemm_run(&p, &b->plan, b->d_work, b->stream, &err)) bench_must(1, err.text);
}

/* ---- the check before a timing ---- */

typedef struct sample {
    int64_t m, count, step, groups;
    float *x, *x_scales, *scales, values[256];
    uint8_t *codes, *zeros;
    double *want;
} sample;

static float scale_at(const bench *b, int64_t n, int64_t g, int64_t groups)
{
    int64_t at = (n / 64 * groups + g) * 64 + sw_tile_slot((int)(n % 64));
    int bytes = b->f->scale_dtype == SW_DTYPE_F32 ? 4 : 2;
    sw_err err = {0};
    float v;

    MUST(sw_float_decode_n(&v, b->scales + at * bytes, b->f->scale_dtype, 1, &err));
    return v;
}

static uint8_t code_at(const bench *b, int64_t n, int64_t k)
{
    sw_tiles tiles = b->tiles[0];

    tiles.codes = b->codes;
    return (uint8_t)sw_ref_code(&tiles, n, k);
}

static void sample_weights(sample *s, const bench *b)
{
    const sw_num *num = b->tiles[0].spec.num;

    s->step = b->n > MAX_CHANNELS ? b->n / MAX_CHANNELS : 1;
    s->count = (b->n + s->step - 1) / s->step;
    s->groups = b->tiles[0].n_groups;
    s->codes = malloc((size_t)(s->count * b->k));
    s->scales = malloc(sizeof(float) * (size_t)(s->count * s->groups));
    s->zeros = malloc((size_t)(s->count * s->groups));
    for (int64_t i = 0; i < s->count * s->groups; i++) {
        int64_t n = i / s->groups * s->step, g = i % s->groups;

        s->zeros[i] = b->zeros_bytes ? b->zeros[(n / 64 * s->groups + g) * 64 +
                                                sw_tile_slot((int)(n % 64))]
                                     : (uint8_t)num->sym_zero;
    }
    for (int64_t i = 0; i < s->count; i++) {
        for (int64_t k = 0; k < b->k; k++) s->codes[i * b->k + k] = code_at(b, i * s->step, k);
        for (int64_t g = 0; g < s->groups; g++)
            s->scales[i * s->groups + g] = scale_at(b, i * s->step, g, s->groups);
    }
    for (int i = 0; i < 256; i++) s->values[i] = num->values ? num->values[i] : (float)i;
}

/* The last tokens as the products see them. */
static void sample_x(sample *s, const bench *b)
{
    sw_act act = act_of(b->f);
    int64_t groups = b->f->scope == SW_ACT_GROUP ? (b->k + 127) / 128 : 1, first = b->m - s->m;
    uint8_t *codes = malloc((size_t)(s->m * b->k));
    float *scales = malloc(sizeof(float) * (size_t)(s->m * groups));

    s->x = malloc(sizeof(float) * (size_t)(s->m * b->k));
    s->x_scales = malloc(sizeof(float) * (size_t)(s->m * groups));
    for (int64_t i = 0; i < s->m * b->k; i++) {
        uint32_t bits = (uint32_t)b->x[first * b->k + i] << 16;

        memcpy(&s->x[i], &bits, 4);
    }
    for (int64_t i = 0; i < s->m * groups; i++) s->x_scales[i] = 1;
    if (b->f->scope != SW_ACT_NONE) {
        sw_act_quantize(codes, scales, s->x, b->k, s->m, b->k, &act, 0);
        for (int64_t i = 0; i < s->m * b->k; i++)
            s->x[i] = act.num->values ? act.num->values[codes[i]] : (float)(int8_t)codes[i];
        for (int64_t m = 0; m < s->m; m++)
            for (int64_t g = 0; g < groups; g++)
                s->x_scales[g * s->m + m] = scales[m * groups + g];
    }
    free(codes);
    free(scales);
}

static sample sample_new(const bench *b)
{
    sample s = {.m = b->m < MAX_TOKENS ? b->m : MAX_TOKENS};
    int64_t x_groups = b->f->scope == SW_ACT_GROUP ? (b->k + 127) / 128 : 1;
    void *device[7];
    gpu_ref_args a;
    size_t want_bytes;

    sample_weights(&s, b);
    sample_x(&s, b);
    want_bytes = sizeof(double) * (size_t)(s.m * s.count);
    s.want = malloc(want_bytes);
    device[5] = upload(s.zeros, (size_t)(s.count * s.groups));
    a = (gpu_ref_args){
        .x = device[0] = upload(s.x, sizeof(float) * (size_t)(s.m * b->k)),
        .x_scales = device[1] = upload(s.x_scales, sizeof(float) * (size_t)(s.m * x_groups)),
        .x_group_elems = b->f->scope == SW_ACT_GROUP ? 128 : b->k,
        .codes = device[2] = upload(s.codes, (size_t)(s.count * b->k)),
        .values = device[3] = upload(s.values, sizeof s.values),
        .scales = device[4] = upload(s.scales, sizeof(float) * (size_t)(s.count * s.groups)),
        .zeros = b->tiles[0].spec.num->kind == SW_NUM_INT ? device[5] : NULL,
        .m = s.m, .n_out = s.count, .k_in = b->k, .n_groups = s.groups, .n_step = 1,
        .group_elems = b->f->group_elems ? b->f->group_elems : b->k};
    MUST(cudaMalloc(&device[6], want_bytes));
    MUST(gpu_ref_gemm(device[6], &a));
    MUST(cudaMemcpy(s.want, device[6], want_bytes, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 7; i++) MUST(cudaFree(device[i]));
    return s;
}

static void sample_free(sample *s)
{
    free(s->x);
    free(s->x_scales);
    free(s->scales);
    free(s->codes);
    free(s->zeros);
    free(s->want);
}

static double error_of(bench *b, const sample *s)
{
    size_t y_bytes = (size_t)(s->m * b->n) * 2;
    uint16_t *y = malloc(y_bytes), *d_last = b->d_y + (b->m - s->m) * b->n;
    double wrong = 0, size = 0;

    MUST(cudaMemset(b->d_y, 0xff, (size_t)(b->m * b->n) * 2));
    MUST(cudaDeviceSynchronize());
    gemm_call(b, 0);
    MUST(cudaStreamSynchronize(b->stream));
    MUST(cudaMemcpy(y, d_last, y_bytes, cudaMemcpyDeviceToHost));
    for (int64_t t = 0; t < s->m; t++)
        for (int64_t i = 0; i < s->count; i++) {
            uint32_t bits = (uint32_t)y[t * b->n + i * s->step] << 16;
            float v;
            double d;

            memcpy(&v, &bits, 4);
            d = (double)v - s->want[t * s->count + i];
            wrong += d * d;
            size += s->want[t * s->count + i] * s->want[t * s->count + i];
        }
    free(y);
    return isfinite(wrong) ? sqrt(wrong / size) : (double)INFINITY;
}

/* ---- report ---- */

static double bytes_of(const bench *b)
{
    return (double)b->codes_bytes + (double)b->scales_bytes + (double)b->zeros_bytes +
           (double)b->m * (double)(b->n + b->k) * 2;
}

static void report(bench *b, const sample *s, const double *dense_us)
{
    const sw_cuda_kernel *kernel = &sw_cuda_kernels[b->plan.kernel];
    const char *tile = kernel->tiles[b->plan.tile].name;
    double error = error_of(b, s), us, codes_us = (double)NAN, bytes = bytes_of(b);
    double flop = 2.0 * (double)b->m * (double)b->n * (double)b->k;
    double floor_us = fmax(bytes / b->copy_tbs * 1e-6, flop / b->f->peak * 1e6);
    sw_act act = act_of(b->f);

    if (!(error <= 4e-3)) {
        printf("%s %lld %lld %lld %s/%d WRONG error %g\n", b->f->name, (long long)b->k,
               (long long)b->n, (long long)b->m, tile, b->plan.split, error);
        return;
    }
    us = bench_graph_us(b->stream, gemm_call, b, b->n_copies);
    if (b->f->scope != SW_ACT_NONE) {
        b->given = sw_cuda_codes_at(b->d_work, b->m, b->k, &act);
        codes_us = bench_graph_us(b->stream, gemm_call, b, b->n_copies);
        b->given = (sw_cuda_codes){0};
    }
    printf("%s,%lld,%lld,%lld,%s,%s,%d,%d,%.2f,%.2f,%.3f,%.1f,%.2f,%.0f,%.2f,%.2f,%.1e\n",
           b->f->name, (long long)b->k, (long long)b->n, (long long)b->m, kernel->name, tile,
           b->plan.split, b->may_overlap * (b->plan.overlap + b->plan.starts_early), us, codes_us,
           bytes / us * 1e-6, flop / us * 1e-6, floor_us, 100 * floor_us / us,
           dense_us[0], dense_us[1], error);
    fflush(stdout);
}

static bool is_named(const char *list, const char *name)
{
    size_t n = strlen(name);

    for (const char *at = list; at && (at = strstr(at, name)); at += n)
        if ((at == list || at[-1] == ',') && (at[n] == ',' || !at[n])) return true;
    return !list;
}

static bool is_worth_a_try(const bench *b, const sw_cuda_tile *tile, int split)
{
    int64_t rows = (b->m + tile->n_tokens - 1) / tile->n_tokens;
    int64_t ctas = rows * ((b->n + tile->n_channels - 1) / tile->n_channels) * split;

    if (!is_named(b->only, tile->name)) return false;
    if (tile->n_tokens > 4 * b->m && tile->n_tokens > 16) return false;
    if (rows > 4 && tile->n_tokens < 128) return false;
    if (split > 1 && ctas > b->device.n_sms * tile->per_sm) return false;
    return split == 8 || ctas >= 60;
}

static void sweep(bench *b, const sample *s, const double *dense_us)
{
    for (int k = 0; k < sw_cuda_n_kernels; k++)
        for (int t = 0; t < *sw_cuda_kernels[k].n_tiles; t++)
            for (int split = 1; split <= 8; split++) {
                sw_cuda_gemm p = problem_of(b, 0);

                if (b->kernel && strcmp(b->kernel, sw_cuda_kernels[k].name) != 0) continue;
                if (!sw_cuda_kernels[k].can_run(&p, t)) continue;
                if (!is_worth_a_try(b, &sw_cuda_kernels[k].tiles[t], split)) continue;
                for (int early = 0; early <= (b->f->scope != SW_ACT_NONE); early++) {
                    b->plan = (sw_cuda_plan){.kernel = k, .tile = t, .split = split,
                                             .device = b->device, .overlap = true,
                                             .starts_early = early};
                    report(b, s, dense_us);
                }
            }
}

static void run_m(bench *b, int64_t m, bool is_sweep, const double *dense_us)
{
    sample s;
    sw_cuda_gemm p;
    sw_err err = {0};

    b->m = m;
    b->may_overlap = true;
    s = sample_new(b);
    p = problem_of(b, 0);
    if (is_sweep) sweep(b, &s, dense_us);
    else {
        if (sw_cuda_gemm_plan(&b->plan, &p, &b->device, b->kernel, &err)) bench_must(1, err.text);
        for (int overlap = 0; overlap <= (b->plan.overlap || b->plan.starts_early); overlap++) {
            b->may_overlap = overlap;
            report(b, &s, dense_us);
        }
    }
    sample_free(&s);
}

static void make_x(bench *b, size_t n_elems, size_t n_out)
{
    test_rng rng = {7};

    b->x = malloc(n_elems * 2);
    for (size_t i = 0; i < n_elems; i++) {
        uint64_t r = test_u64(&rng);
        float v = (float)((double)((r & 0xfffff) + (r >> 20 & 0xfffff) + (r >> 40 & 0xfffff)) *
                              0x1p-20 - 1.5);
        uint32_t bits;

        memcpy(&bits, &v, 4);
        b->x[i] = (uint16_t)(bits >> 16);
    }
    b->d_x = upload(b->x, n_elems * 2);
    MUST(cudaMalloc((void **)&b->d_y, n_out * 2));
}

typedef struct options {
    const format *formats[N_FORMATS];
    int64_t shapes[32], ms[32];
    int n_formats, n_shapes, n_ms;
    bool is_sweep, with_dense;
} options;

static void parse(options *o, bench *b, int argc, char **argv)
{
    int at = 1;

    o->with_dense = true;
    for (; at < argc && strcmp(argv[at], "--") != 0; at++) {
        int f = 0;

        while (f < N_FORMATS && strcmp(argv[at], formats[f].name) != 0) f++;
        if (strcmp(argv[at], "--sweep") == 0) o->is_sweep = true;
        else if (strcmp(argv[at], "--no-dense") == 0) o->with_dense = false;
        else if (strcmp(argv[at], "--kernel") == 0 && at + 1 < argc) b->kernel = argv[++at];
        else if (strcmp(argv[at], "--tiles") == 0 && at + 1 < argc) b->only = argv[++at];
        else if (f < N_FORMATS && o->n_formats < N_FORMATS)
            o->formats[o->n_formats++] = &formats[f];
        else if (o->n_shapes < 32) o->shapes[o->n_shapes++] = strtoll(argv[at], NULL, 10);
    }
    for (at++; at < argc && o->n_ms < 32; at++) o->ms[o->n_ms++] = strtoll(argv[at], NULL, 10);
}

static void run_shape(bench *b, const options *o, int64_t k, int64_t n)
{
    double dense_us[32][2];

    for (int i = 0; i < o->n_ms; i++)
        for (int f = 0; f < 2; f++) /* FP8 wants tokens in sixteens */
            dense_us[i][f] = o->with_dense ? bench_dense_us(b->stream, f,
                                                            f ? (o->ms[i] + 15) / 16 * 16
                                                              : o->ms[i], n, k)
                                           : (double)NAN;
    b->k = k;
    b->n = n;
    for (int f = 0; f < o->n_formats; f++) {
        b->f = o->formats[f];
        make_weights(b);
        for (int i = 0; i < o->n_ms; i++) run_m(b, o->ms[i], o->is_sweep, dense_us[i]);
        drop_weights(b);
    }
}

int main(int argc, char **argv)
{
    bench b = {0};
    options o = {0};
    int64_t m_max = 0, k_max = 0, n_max = 0;
    int n_devices = 0;
    sw_err err = {0};

    if (cudaGetDeviceCount(&n_devices) != cudaSuccess || n_devices == 0) {
        printf("skipped: no GPU\n");
        return 77;
    }
    parse(&o, &b, argc, argv);
    for (int i = 0; i < o.n_ms; i++) m_max = o.ms[i] > m_max ? o.ms[i] : m_max;
    for (int i = 0; i + 1 < o.n_shapes; i += 2) {
        k_max = o.shapes[i] > k_max ? o.shapes[i] : k_max;
        n_max = o.shapes[i + 1] > n_max ? o.shapes[i + 1] : n_max;
    }
    MUST(sw_cuda_device_query(&b.device, 0, &err));
    MUST(cudaStreamCreateWithFlags(&b.stream, cudaStreamNonBlocking));
    measure_copy(&b);
    make_x(&b, (size_t)(m_max * k_max), (size_t)(m_max * n_max));
    printf("format,K,N,M,kernel,tile,split,overlap,us,us_codes_given,TB/s,TFLOP/s,floor_us,"
           "percent,cublas_bf16_us,cublas_fp8_us,error\n");
    for (int i = 0; i + 1 < o.n_shapes; i += 2) run_shape(&b, &o, o.shapes[i], o.shapes[i + 1]);
    MUST(cudaStreamDestroy(b.stream));
    return 0;
}
