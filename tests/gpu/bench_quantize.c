/* bench_quantize.c - times of quantizing X, alone and ahead of the product that takes it.
 *
 *   bench_quantize [w8a8|fp8|fp8block]... [K N]... [-- M...]        default: all that are below
 *
 * Time is that of one call in a CUDA graph of 48, the median of several replays, kernels allowed to
 * start early. Alone: with X and its codes in other memory each time, beyond the L2 where there is
 * enough of them (cold_us), and in the same (hot_us). Floor: the bytes of X and of its codes, once
 * each, at the rate of a device copy, which is timed first. With the product: weights rotate and X
 * stays, as in bench_gemm; given_us is without quantizing, added_us what that adds. Codes, scales
 * and sums of the last tokens are held to formats/num/act.h before anything is timed.
 *
 * Only the public interface is used, so that this file can also be built in an older tree, to
 * compare both on one card.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/num/act.h"
#include "kernels/cuda_gemm.h"
#include "tests/gpu/support/gpu_dense.h"
#include "tests/gpu/support/gpu_ref.h"
#include "tests/support/toys/random.h"

#define POOL_BYTES (512ll << 20) /* of X; of its codes as much */
#define DRAWN (1 << 20)          /* numbers that X repeats */
#define CHECKED_TOKENS 64
#define CALLS 48                 /* of a graph of gpu_dense.c */

typedef struct format {
    const char *name;
    sw_num_id num;
    int64_t group_elems;
    sw_act_scope scope;
} format;

static const format formats[] = {
    {"w8a8", SW_NUM_INT8, 0, SW_ACT_TOKEN},
    {"fp8", SW_NUM_E4M3, 0, SW_ACT_TOKEN},
    {"fp8block", SW_NUM_E4M3, 128, SW_ACT_GROUP},
};
#define N_FORMATS (int)(sizeof formats / sizeof *formats)

static const int64_t all_shapes[] = {2048, 4096, 4096, 6144, 4096, 28672, 7168, 4096,
                                     8192, 8192, 14336, 4096, 28672, 8192};
static const int64_t all_tokens[] = {1, 16, 64, 128, 256, 512, 1024, 2048, 4096, 8192};

typedef struct bench {
    const format *f;
    int64_t k, n, m;
    uint8_t *d_x, *d_codes; /* pools */
    uint8_t *d_y, *d_work;
    size_t y_bytes, work_bytes;
    int n_buffers;          /* of X and its codes, in turn */
    sw_tiles tiles[16];
    int n_copies;           /* of weights */
    sw_cuda_codes given;
    sw_cuda_device device;
    sw_cuda_plan plan;
    cudaStream_t stream;
    double copy_tbs;
} bench;

static sw_act act_of(const format *f)
{
    return (sw_act){&sw_nums[f->num], f->scope, f->scope == SW_ACT_GROUP ? 128 : 0,
                    SW_DTYPE_F32};
}

static int64_t x_bytes(const bench *b) { return b->m * b->k * 2; }

static size_t codes_bytes(const bench *b)
{
    sw_act act = act_of(b->f);

    return sw_cuda_codes_bytes(b->m, b->k, &act);
}

/* ---- quantizing alone ---- */

static void quantize_call(void *ctx, int copy)
{
    bench *b = ctx;
    sw_act act = act_of(b->f);
    sw_cuda_codes to = sw_cuda_codes_at(b->d_codes + (size_t)copy * codes_bytes(b), b->m, b->k,
                                        &act);
    sw_err err = {0};

    if (sw_cuda_quantize(&to, b->d_x + copy * x_bytes(b), b->k, SW_DTYPE_BF16, b->m, b->k, &act, 0,
                         true, false, b->stream, &err))
        bench_must(1, err.text);
}

static void copy_call(void *ctx, int copy)
{
    bench *b = ctx;

    MUST(gpu_ref_copy(b->d_codes, b->d_x + ((int64_t)copy << 28), 1ll << 28, b->stream));
}

/* The order of a row of codes: see cuda_gemm.h. */
static int64_t input_at(int64_t byte)
{
    static const int of[4] = {0, 8, 1, 9};

    return byte / 16 * 16 + byte % 16 / 4 * 2 + of[byte % 4];
}

static bool is_token_alike(const bench *b, int64_t m, const float *x, const uint8_t *have,
                           const float *have_scales, int32_t have_sum)
{
    sw_act act = act_of(b->f);
    int64_t groups = b->f->scope == SW_ACT_GROUP ? (b->k + 127) / 128 : 1;
    uint8_t *want = malloc((size_t)b->k);
    float *scales = malloc(sizeof *scales * (size_t)groups);
    bool is_alike = true;
    int32_t sum = 0;

    sw_act_quantize(want, scales, x, b->k, 1, b->k, &act, 0);
    for (int64_t i = 0; i < sw_cuda_codes_stride(b->k); i++) {
        uint8_t code = input_at(i) < b->k ? want[input_at(i)] : 0;

        is_alike &= have[i] == code;
        sum += (int8_t)code;
    }
    for (int64_t g = 0; g < groups; g++) is_alike &= have_scales[g * b->m + m] == scales[g];
    free(want);
    free(scales);
    return is_alike && (b->f->num != SW_NUM_INT8 || sum == have_sum);
}

/* Of the last tokens. */
static bool is_right(bench *b)
{
    sw_act act = act_of(b->f);
    uint8_t *out = malloc(codes_bytes(b));
    sw_cuda_codes have = sw_cuda_codes_at(out, b->m, b->k, &act);
    uint16_t *bits = malloc((size_t)b->k * 2);
    float *x = malloc(sizeof *x * (size_t)b->k);
    bool is_alike = true;

    MUST(cudaMemset(b->d_codes, 0xa5, codes_bytes(b)));
    MUST(cudaDeviceSynchronize());
    quantize_call(b, 0);
    MUST(cudaStreamSynchronize(b->stream));
    MUST(cudaMemcpy(out, b->d_codes, codes_bytes(b), cudaMemcpyDeviceToHost));
    for (int64_t m = b->m > CHECKED_TOKENS ? b->m - CHECKED_TOKENS : 0; m < b->m; m++) {
        MUST(cudaMemcpy(bits, b->d_x + m * b->k * 2, (size_t)b->k * 2, cudaMemcpyDeviceToHost));
        for (int64_t k = 0; k < b->k; k++) {
            uint32_t wide = (uint32_t)bits[k] << 16;

            memcpy(&x[k], &wide, 4);
        }
        is_alike &= is_token_alike(b, m, x, have.d_codes + m * sw_cuda_codes_stride(b->k),
                                   have.d_scales, have.d_sums[m]);
    }
    free(out);
    free(bits);
    free(x);
    return is_alike;
}

/* ---- the product behind it ---- */

/* Eight bytes of codes: sums of two draws for integers, E4M3 below 2. */
static uint64_t random_codes(test_rng *rng, const format *f)
{
    uint64_t r = test_u64(rng), q = test_u64(rng);

    if (f->num == SW_NUM_INT8) return (r & 0x7f7f7f7f7f7f7f7f) + (q & 0x7f7f7f7f7f7f7f7f);
    return r & 0xbfbfbfbfbfbfbfbf;
}

static void *on_device(const void *from, size_t n_bytes, enum cudaMemcpyKind how)
{
    void *d;

    MUST(cudaMalloc(&d, n_bytes));
    MUST(cudaMemcpy(d, from, n_bytes, how));
    return d;
}

static void make_weights(bench *b)
{
    int64_t group = b->f->group_elems, groups = group ? (b->k + group - 1) / group : 1;
    sw_qspec spec = {.num = &sw_nums[b->f->num], .is_symmetric = true, .group_elems = group,
                     .scale_dtype = SW_DTYPE_F32};
    size_t n_codes = (size_t)sw_tiles_stored_bytes(spec.num, b->n, b->k);
    size_t n_scales = (size_t)sw_tiles_scales_bytes(SW_DTYPE_F32, b->n, groups);
    uint64_t *codes = malloc(n_codes);
    float *scales = malloc(n_scales);
    test_rng rng = {42};

    for (size_t i = 0; i < n_codes / 8; i++) codes[i] = random_codes(&rng, b->f);
    for (size_t i = 0; i < n_scales / 4; i++) scales[i] = (float)(0.002 + test_uniform(&rng) / 500);
    b->n_copies = bench_copies((int64_t)n_codes);
    for (int i = 0; i < b->n_copies; i++)
        b->tiles[i] = (sw_tiles){
            .spec = spec, .n_out = b->n, .k_in = b->k, .n_groups = groups, .container_bits = 8,
            .codes = i ? on_device(b->tiles[0].codes, n_codes, cudaMemcpyDeviceToDevice)
                       : on_device(codes, n_codes, cudaMemcpyHostToDevice),
            .scales = on_device(scales, n_scales, cudaMemcpyHostToDevice)};
    free(codes);
    free(scales);
}

static void drop_weights(bench *b)
{
    for (int i = 0; i < b->n_copies; i++) {
        MUST(cudaFree((void *)(uintptr_t)b->tiles[i].codes));
        MUST(cudaFree((void *)(uintptr_t)b->tiles[i].scales));
    }
}

static sw_cuda_gemm problem_of(const bench *b, int copy)
{
    return (sw_cuda_gemm){.m = b->m, .d_x = b->d_x, .x_stride = b->k, .d_y = b->d_y,
                          .y_stride = b->n, .dtype = SW_DTYPE_BF16, .tiles = b->tiles[copy],
                          .act = act_of(b->f), .x_codes = b->given, .may_overlap = true};
}

static void product_call(void *ctx, int copy)
{
    bench *b = ctx;
    sw_cuda_gemm p = problem_of(b, copy);
    sw_err err = {0};

    /* The codes that are given lie where they were made, at the beginning. */
    if (sw_cuda_gemm_run(&p, &b->plan, b->d_work + (b->given.d_codes ? codes_bytes(b) : 0),
                         b->stream, &err)) bench_must(1, err.text);
}

static void grow(uint8_t **d, size_t *has, size_t n_bytes)
{
    if (n_bytes <= *has) return;
    MUST(cudaFree(*d));
    MUST(cudaMalloc((void **)d, n_bytes));
    *has = n_bytes;
}

static void plan_product(bench *b)
{
    sw_cuda_gemm p = problem_of(b, 0);
    sw_err err = {0};

    if (sw_cuda_gemm_plan(&b->plan, &p, &b->device, NULL, &err)) bench_must(1, err.text);
    grow(&b->d_work, &b->work_bytes, sw_cuda_gemm_workspace_bytes(&p, &b->plan));
    grow(&b->d_y, &b->y_bytes, (size_t)(b->m * b->n * 2));
}

/* ---- report ---- */

static void report(bench *b)
{
    double cold_us, hot_us, us, given_us, bytes = (double)x_bytes(b) + (double)codes_bytes(b);
    double floor_us = bytes / b->copy_tbs * 1e-6;
    int64_t n = POOL_BYTES / x_bytes(b);
    sw_act act = act_of(b->f);

    bench_must(n < 1, "X is larger than the pool");
    if (!is_right(b)) {
        printf("%s %lld %lld WRONG\n", b->f->name, (long long)b->k, (long long)b->m);
        exit(1);
    }
    cold_us = bench_graph_us(b->stream, quantize_call, b, (int)(n < CALLS ? n : CALLS));
    hot_us = bench_graph_us(b->stream, quantize_call, b, 1);
    plan_product(b);
    us = bench_graph_us(b->stream, product_call, b, b->n_copies);
    b->given = sw_cuda_codes_at(b->d_work, b->m, b->k, &act);
    given_us = bench_graph_us(b->stream, product_call, b, b->n_copies);
    b->given = (sw_cuda_codes){0};
    printf("%s,%lld,%lld,%lld,%.2f,%.3f,%.2f,%.0f,%.2f,%s,%d,%.2f,%.2f,%.2f\n", b->f->name,
           (long long)b->k, (long long)b->n, (long long)b->m, cold_us, bytes / cold_us * 1e-6,
           floor_us, 100 * floor_us / cold_us, hot_us, sw_cuda_kernels[b->plan.kernel].name,
           b->plan.starts_early, us, given_us, us - given_us);
    fflush(stdout);
}

typedef struct options {
    const format *formats[N_FORMATS];
    int64_t shapes[32], ms[32];
    int n_formats, n_shapes, n_ms;
} options;

static void parse(options *o, int argc, char **argv)
{
    int at = 1;

    for (; at < argc && strcmp(argv[at], "--") != 0; at++) {
        int f = 0;

        while (f < N_FORMATS && strcmp(argv[at], formats[f].name) != 0) f++;
        if (f < N_FORMATS && o->n_formats < N_FORMATS) o->formats[o->n_formats++] = &formats[f];
        else if (f == N_FORMATS && o->n_shapes < 32)
            o->shapes[o->n_shapes++] = strtoll(argv[at], NULL, 10);
    }
    for (at++; at < argc && o->n_ms < 32; at++) o->ms[o->n_ms++] = strtoll(argv[at], NULL, 10);
    if (o->n_formats == 0)
        for (; o->n_formats < N_FORMATS; o->n_formats++)
            o->formats[o->n_formats] = &formats[o->n_formats];
    if (o->n_shapes == 0) {
        memcpy(o->shapes, all_shapes, sizeof all_shapes);
        o->n_shapes = (int)(sizeof all_shapes / sizeof *all_shapes);
    }
    if (o->n_ms == 0) {
        memcpy(o->ms, all_tokens, sizeof all_tokens);
        o->n_ms = (int)(sizeof all_tokens / sizeof *all_tokens);
    }
}

/* Sums of three uniform draws, in bf16, over and over. */
static void make_pools(bench *b)
{
    uint16_t *x = malloc(DRAWN * 2);
    test_rng rng = {7};

    for (int i = 0; i < DRAWN; i++) {
        float v = (float)(test_uniform(&rng) + test_uniform(&rng) + test_uniform(&rng) - 1.5);
        uint32_t bits;

        memcpy(&bits, &v, 4);
        x[i] = (uint16_t)(bits >> 16);
    }
    MUST(cudaMalloc((void **)&b->d_x, POOL_BYTES));
    MUST(cudaMalloc((void **)&b->d_codes, POOL_BYTES));
    for (int64_t at = 0; at < POOL_BYTES; at += DRAWN * 2)
        MUST(cudaMemcpy(b->d_x + at, x, DRAWN * 2, cudaMemcpyHostToDevice));
    free(x);
}

int main(int argc, char **argv)
{
    bench b = {0};
    options o = {0};
    int n_devices = 0;
    sw_err err = {0};

    if (cudaGetDeviceCount(&n_devices) != cudaSuccess || n_devices == 0) {
        printf("skipped: no GPU\n");
        return 77;
    }
    parse(&o, argc, argv);
    MUST(sw_cuda_device_query(&b.device, 0, &err));
    MUST(cudaStreamCreateWithFlags(&b.stream, cudaStreamNonBlocking));
    make_pools(&b);
    b.copy_tbs = 2 * (double)(1ll << 28) / bench_graph_us(b.stream, copy_call, &b, 2) * 1e-6;
    printf("# copy %.3f TB/s (read + write)\n", b.copy_tbs);
    printf("format,K,N,M,cold_us,TB/s,floor_us,percent,hot_us,kernel,starts_early,us,given_us,"
           "added_us\n");
    for (int f = 0; f < o.n_formats; f++)
        for (int i = 0; i + 1 < o.n_shapes; i += 2) {
            b.f = o.formats[f];
            b.k = o.shapes[i];
            b.n = o.shapes[i + 1];
            make_weights(&b);
            for (int m = 0; m < o.n_ms; m++) {
                b.m = o.ms[m];
                report(&b);
            }
            drop_weights(&b);
        }
    MUST(cudaStreamDestroy(b.stream));
    return 0;
}
