/* bench_w4a16.c - times of the W4A16 kernels on the device, checked before they are timed.
 *
 *   bench_w4a16 [--sweep] [--no-cublas] [--plan TILE SPLIT] [K N]... -- [M]...
 *
 * Time is that of one call in a CUDA graph of calls over rotating copies of the weights, together
 * more than three times the L2, so that every call reads its weights from memory, as decoding does;
 * the median of several replays. Baselines in the same process: a device copy, cuBLASLt bf16.
 */
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/cuda_gemm.h"
#include "tests/gpu/gpu_ref.h"
#include "tests/support/random.h"

#define ROTATE_BYTES (200ll << 20)
#define N_CALLS 48
#define N_REPLAYS 9
#define GROUP 128

static void must(int failed, const char *what)
{
    if (!failed) return;
    fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(cudaGetLastError()));
    exit(1);
}

#define MUST(call) must((int)(call), #call)

typedef struct bench {
    int64_t k, n, m;
    int n_copies;
    uint8_t *codes;          /* logical, host */
    float *scales;
    sw_tiles tiles[16];      /* copies on the device */
    uint8_t *d_codes;        /* logical, device, every n_step-th channel is used */
    float *d_scales;
    uint8_t *d_eights;
    uint16_t *d_x, *d_y;
    uint16_t *d_dense[8];    /* bf16 weights for cuBLASLt */
    int n_dense;
    cudaStream_t stream;
    bool may_overlap;
    sw_cuda_plan forced;     /* split 0: as planned */
    double copy_tbs;
} bench;

typedef void (*call_fn)(bench *b, int copy, void *arg);

static int by_value(const void *a, const void *b)
{
    double d = *(const double *)a - *(const double *)b;

    return d < 0 ? -1 : d > 0;
}

/* us per call */
static double time_graph(bench *b, call_fn call, void *arg, int n_copies)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaEvent_t start, stop;
    double us[N_REPLAYS];

    MUST(cudaStreamBeginCapture(b->stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < N_CALLS; i++) call(b, i % n_copies, arg);
    MUST(cudaStreamEndCapture(b->stream, &graph));
    MUST(cudaGraphInstantiate(&exec, graph, 0));
    MUST(cudaEventCreate(&start));
    MUST(cudaEventCreate(&stop));
    for (int i = -2; i < N_REPLAYS; i++) {
        float ms;

        MUST(cudaEventRecord(start, b->stream));
        MUST(cudaGraphLaunch(exec, b->stream));
        MUST(cudaEventRecord(stop, b->stream));
        MUST(cudaEventSynchronize(stop));
        MUST(cudaEventElapsedTime(&ms, start, stop));
        if (i >= 0) us[i] = (double)ms * 1e3 / N_CALLS;
    }
    qsort(us, N_REPLAYS, sizeof *us, by_value);
    MUST(cudaEventDestroy(start));
    MUST(cudaEventDestroy(stop));
    MUST(cudaGraphExecDestroy(exec));
    MUST(cudaGraphDestroy(graph));
    return us[N_REPLAYS / 2];
}

static void copy_call(bench *b, int copy, void *arg)
{
    char *big = arg;

    MUST(gpu_ref_copy(big + (2ll << 30), big + ((int64_t)copy << 30), 1ll << 30, b->stream));
}

static void measure_copy(bench *b)
{
    char *big;

    MUST(cudaMalloc((void **)&big, 3ll << 30));
    MUST(cudaMemset(big, 17, 3ll << 30));
    b->copy_tbs = 2 * (double)(1ll << 30) / time_graph(b, copy_call, big, 2) * 1e-6;
    MUST(cudaFree(big));
    printf("# copy %.3f TB/s (read + write)\n", b->copy_tbs);
}

static void *upload(const void *host, size_t n_bytes)
{
    void *d;

    MUST(cudaMalloc(&d, n_bytes));
    MUST(cudaMemcpy(d, host, n_bytes, cudaMemcpyHostToDevice));
    return d;
}

static void fill_dense(bench *b, const uint8_t *codes, const float *scales)
{
    size_t n_bytes = (size_t)(b->n * b->k) * 2;
    uint16_t *host = malloc(n_bytes);

    for (int64_t n = 0; n < b->n; n++)
        for (int64_t k = 0; k < b->k; k++) {
            float w = scales[n * (b->k / GROUP) + k / GROUP] * (float)(codes[n * b->k + k] - 8);
            uint32_t bits;

            memcpy(&bits, &w, 4);
            host[n * b->k + k] = (uint16_t)((bits + 0x8000) >> 16);
        }
    b->n_dense = (int)(ROTATE_BYTES / (int64_t)n_bytes + 1);
    if (b->n_dense > 8) b->n_dense = 8;
    for (int i = 0; i < b->n_dense; i++) b->d_dense[i] = upload(host, n_bytes);
    free(host);
}

static void make_weights(bench *b, bool with_dense)
{
    sw_err err = {0};
    int64_t groups = b->k / GROUP;
    sw_qtensor q = {.n_out = b->n, .k_in = b->k, .n_groups = groups};
    size_t codes_bytes, scales_bytes;
    uint8_t *tile_codes;
    uint16_t *tile_scales;
    test_rng rng = {42};

    q.spec = (sw_qspec){.num = sw_num_by_bits(4), .is_symmetric = true, .group_elems = GROUP,
                        .scale_dtype = SW_DTYPE_BF16};
    q.codes = b->codes = malloc((size_t)(b->n * b->k));
    q.scales = b->scales = malloc(sizeof(float) * (size_t)(b->n * groups));
    for (int64_t i = 0; i < b->n * b->k; i += 8) {
        uint64_t r = test_u64(&rng), sum = (r & 0x0707070707070707) + (r >> 4 & 0x0707070707070707);

        memcpy(q.codes + i, &sum, 8); /* 0..14, triangular about 7: like weights */
    }
    for (int64_t i = 0; i < b->n * groups; i++)
        q.scales[i] = sw_num_round_to((float)(0.002 + 0.002 * test_uniform(&rng)), SW_DTYPE_BF16);
    codes_bytes = (size_t)sw_tiles_codes_bytes(q.spec.num, b->n, b->k);
    scales_bytes = (size_t)sw_tiles_scales_bytes(SW_DTYPE_BF16, b->n, groups);
    tile_codes = malloc(codes_bytes);
    tile_scales = malloc(scales_bytes);
    MUST(sw_tiles_pack(tile_codes, tile_scales, NULL, &q, &err));
    b->n_copies = (int)(ROTATE_BYTES / (int64_t)codes_bytes + 1);
    if (b->n_copies > 16) b->n_copies = 16;
    for (int i = 0; i < b->n_copies; i++)
        b->tiles[i] = (sw_tiles){.spec = q.spec, .n_out = b->n, .k_in = b->k,
                                 .n_groups = groups, .container_bits = 4,
                                 .codes = upload(tile_codes, codes_bytes),
                                 .scales = upload(tile_scales, scales_bytes), .zeros = NULL};
    b->d_codes = upload(q.codes, (size_t)(b->n * b->k));
    b->d_scales = upload(q.scales, sizeof(float) * (size_t)(b->n * groups));
    MUST(cudaMalloc((void **)&b->d_eights, (size_t)(b->n * groups)));
    MUST(cudaMemset(b->d_eights, 8, (size_t)(b->n * groups)));
    if (with_dense) fill_dense(b, q.codes, q.scales);
    free(tile_codes);
    free(tile_scales);
}

static void drop_weights(bench *b)
{
    for (int i = 0; i < b->n_copies; i++) {
        MUST(cudaFree((void *)(uintptr_t)b->tiles[i].codes));
        MUST(cudaFree((void *)(uintptr_t)b->tiles[i].scales));
    }
    for (int i = 0; i < b->n_dense; i++) MUST(cudaFree(b->d_dense[i]));
    MUST(cudaFree(b->d_codes));
    MUST(cudaFree(b->d_scales));
    MUST(cudaFree(b->d_eights));
    free(b->codes);
    free(b->scales);
    b->n_dense = 0;
}

static sw_cuda_gemm problem_of(const bench *b, int copy)
{
    sw_cuda_gemm p = {.m = b->m, .d_x = b->d_x, .x_stride = b->k, .d_y = b->d_y, .y_stride = b->n,
                      .dtype = SW_DTYPE_BF16, .tiles = b->tiles[copy],
                      .may_overlap = b->may_overlap};
    return p;
}

static void w4_call(bench *b, int copy, void *arg)
{
    sw_cuda_gemm p = problem_of(b, copy);
    sw_err err = {0};

    if (sw_cuda_gemm_run(&p, arg, NULL, b->stream, &err)) must(1, err.text);
}

/* Relative L2 error over up to 256 channels and the last 64 tokens. */
static double error_of(bench *b, const sw_cuda_plan *plan)
{
    int64_t m = b->m < 64 ? b->m : 64, step = b->n > 256 ? b->n / 256 : 1;
    int64_t count = (b->n + step - 1) / step;
    size_t y_bytes = (size_t)(b->m * b->n) * 2;
    double *d_want, *want = malloc(sizeof(double) * (size_t)(m * count)), wrong = 0, size = 0;
    uint16_t *y = malloc(y_bytes);
    gpu_ref_args a = {b->d_x + (b->m - m) * b->k, b->k, true, b->d_codes, b->d_scales, b->d_eights,
                      m, b->n, b->k, b->k / GROUP, GROUP, step};

    MUST(cudaMemset(b->d_y, 0xff, y_bytes));
    MUST(cudaDeviceSynchronize());
    w4_call(b, 0, (void *)(uintptr_t)plan);
    MUST(cudaStreamSynchronize(b->stream));
    MUST(cudaMemcpy(y, b->d_y, y_bytes, cudaMemcpyDeviceToHost));
    MUST(cudaMalloc((void **)&d_want, sizeof(double) * (size_t)(m * count)));
    MUST(gpu_ref_gemm(d_want, &a));
    MUST(cudaMemcpy(want, d_want, sizeof(double) * (size_t)(m * count), cudaMemcpyDeviceToHost));
    for (int64_t t = 0; t < m; t++)
        for (int64_t i = 0; i < count; i++) {
            uint32_t bits = (uint32_t)y[(b->m - m + t) * b->n + i * step] << 16;
            float v;
            double d;

            memcpy(&v, &bits, 4);
            d = (double)v - want[t * count + i];
            wrong += d * d;
            size += want[t * count + i] * want[t * count + i];
        }
    MUST(cudaFree(d_want));
    free(want);
    free(y);
    return isfinite(wrong) ? sqrt(wrong / size) : (double)INFINITY;
}

/* ---- cuBLASLt, bf16 ---- */

typedef struct dense {
    cublasLtHandle_t lt;
    cublasLtMatmulDesc_t op;
    cublasLtMatrixLayout_t w, x, y;
    cublasLtMatmulAlgo_t algo;
    void *d_work;
} dense;

#define WORK_BYTES (64u << 20)

static void dense_call(bench *b, int copy, void *arg)
{
    dense *d = arg;
    float one = 1, zero = 0;

    MUST(cublasLtMatmul(d->lt, d->op, &one, b->d_dense[copy], d->w, b->d_x, d->x, &zero, b->d_y,
                        d->y, b->d_y, d->y, &d->algo, d->d_work, WORK_BYTES, b->stream));
}

/* The best of what the library proposes, timed as ours is. */
static double time_dense(bench *b)
{
    dense d = {0};
    cublasOperation_t transposed = CUBLAS_OP_T;
    cublasLtMatmulPreference_t wish;
    cublasLtMatmulHeuristicResult_t found[6];
    size_t work = WORK_BYTES;
    int n_found = 0;
    double best = (double)INFINITY;

    MUST(cublasLtCreate(&d.lt));
    MUST(cublasLtMatmulDescCreate(&d.op, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    MUST(cublasLtMatmulDescSetAttribute(d.op, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                        sizeof transposed));
    MUST(cublasLtMatrixLayoutCreate(&d.w, CUDA_R_16BF, (uint64_t)b->k, (uint64_t)b->n, b->k));
    MUST(cublasLtMatrixLayoutCreate(&d.x, CUDA_R_16BF, (uint64_t)b->k, (uint64_t)b->m, b->k));
    MUST(cublasLtMatrixLayoutCreate(&d.y, CUDA_R_16BF, (uint64_t)b->n, (uint64_t)b->m, b->n));
    MUST(cublasLtMatmulPreferenceCreate(&wish));
    MUST(cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &work,
                                              sizeof work));
    MUST(cudaMalloc(&d.d_work, WORK_BYTES));
    MUST(cublasLtMatmulAlgoGetHeuristic(d.lt, d.op, d.w, d.x, d.y, d.y, wish, 6, found, &n_found));
    for (int i = 0; i < n_found; i++) {
        double us;

        d.algo = found[i].algo;
        us = time_graph(b, dense_call, &d, b->n_dense);
        if (us < best) best = us;
    }
    MUST(cudaFree(d.d_work));
    MUST(cublasLtMatmulPreferenceDestroy(wish));
    MUST(cublasLtMatrixLayoutDestroy(d.w));
    MUST(cublasLtMatrixLayoutDestroy(d.x));
    MUST(cublasLtMatrixLayoutDestroy(d.y));
    MUST(cublasLtMatmulDescDestroy(d.op));
    MUST(cublasLtDestroy(d.lt));
    return best;
}

/* ---- report ---- */

static double bytes_of(const bench *b)
{
    return (double)b->n * (double)b->k / 2 + (double)b->n * (double)(b->k / GROUP) * 2 +
           (double)b->m * (double)(b->n + b->k) * 2;
}

static void report(bench *b, const sw_cuda_plan *plan, double dense_us)
{
    double error = error_of(b, plan), us, bytes = bytes_of(b);
    double flop = 2.0 * (double)b->m * (double)b->n * (double)b->k;
    double floor_us = fmax(bytes / b->copy_tbs * 1e-6, flop / 790e12 * 1e6);

    if (!(error <= 4e-3)) {
        printf("%lld %lld %lld %s/%d WRONG error %g\n", (long long)b->k, (long long)b->n,
               (long long)b->m, sw_cuda_kernels[0].tiles[plan->tile].name, plan->split, error);
        return;
    }
    us = time_graph(b, w4_call, (void *)(uintptr_t)plan, b->n_copies);
    printf("%lld,%lld,%lld,%s,%d,%d,%.2f,%.3f,%.1f,%.2f,%.0f,%.2f,%.2f,%.1e\n", (long long)b->k,
           (long long)b->n, (long long)b->m, sw_cuda_kernels[0].tiles[plan->tile].name, plan->split,
           b->may_overlap, us, bytes / us * 1e-6, flop / us * 1e-6, floor_us, 100 * floor_us / us,
           dense_us, dense_us / us, error);
    fflush(stdout);
}

static void run_m(bench *b, int64_t m, bool sweep, bool with_dense)
{
    double dense_us;
    sw_cuda_plan plan;
    sw_cuda_gemm p;
    sw_err err = {0};

    b->m = m;
    dense_us = with_dense ? time_dense(b) : (double)NAN;
    p = problem_of(b, 0);
    if (sw_cuda_gemm_plan(&plan, &p, &(sw_cuda_card){90, 132}, NULL, &err)) must(1, err.text);
    if (b->forced.split) plan = b->forced;
    if (!sweep) {
        for (int overlap = 0; overlap < 2; overlap++) {
            b->may_overlap = overlap;
            report(b, &plan, dense_us);
        }
        return;
    }
    for (int t = 0; t < *sw_cuda_kernels[0].n_tiles; t++)
        for (int split = 1; split <= 8; split++) {
            const sw_cuda_tile *tile = &sw_cuda_kernels[0].tiles[t];
            int64_t rows = (m + tile->n_tokens - 1) / tile->n_tokens;
            int64_t ctas = rows * ((b->n + tile->n_channels - 1) / tile->n_channels) * split;

            plan = (sw_cuda_plan){0, t, split, true};
            if (tile->n_tokens > 4 * m && tile->n_tokens > 8) continue;
            if (rows > 8 && tile->n_tokens < 128) continue;
            if (split > 1 && ctas > 132 * tile->per_sm) continue;
            if (split < 8 && ctas < 60) continue;
            for (int overlap = 0; overlap < 2; overlap++) {
                b->may_overlap = overlap;
                report(b, &plan, dense_us);
            }
        }
}

static void run_shape(bench *b, int64_t k, int64_t n, const int64_t *ms, int n_ms, bool sweep,
                      bool with_dense)
{
    b->k = k;
    b->n = n;
    make_weights(b, with_dense);
    for (int i = 0; i < n_ms; i++) run_m(b, ms[i], sweep, with_dense);
    drop_weights(b);
}

#define M_MAX 4096
#define KN_MAX 57344

static void make_x(bench *b)
{
    size_t n_bytes = (size_t)M_MAX * KN_MAX * 2;
    size_t n_elems = (size_t)M_MAX * 28672;
    uint16_t *x = malloc(n_bytes);
    test_rng rng = {7};

    for (size_t i = 0; i < n_elems; i++) {
        float v = (float)(test_uniform(&rng) + test_uniform(&rng) + test_uniform(&rng) - 1.5);
        uint32_t bits;

        memcpy(&bits, &v, 4);
        x[i] = (uint16_t)(bits >> 16);
    }
    b->d_x = upload(x, n_elems * 2);
    MUST(cudaMalloc((void **)&b->d_y, n_bytes));
    free(x);
}

int main(int argc, char **argv)
{
    bench b = {0};
    bool sweep = false, with_dense = true;
    int64_t shapes[32], ms[32];
    int n_shapes = 0, n_ms = 0, n_devices = 0, at = 1;

    if (cudaGetDeviceCount(&n_devices) != cudaSuccess || n_devices == 0) {
        printf("skipped: no GPU\n");
        return 77;
    }
    for (; at < argc && strcmp(argv[at], "--") != 0; at++) {
        if (strcmp(argv[at], "--sweep") == 0) sweep = true;
        else if (strcmp(argv[at], "--no-cublas") == 0) with_dense = false;
        else if (strcmp(argv[at], "--plan") == 0 && at + 2 < argc) {
            b.forced.tile = (int)strtol(argv[++at], NULL, 10);
            b.forced.split = (int)strtol(argv[++at], NULL, 10);
            b.forced.overlap = true;
        } else if (n_shapes < 32) shapes[n_shapes++] = strtoll(argv[at], NULL, 10);
    }
    for (at++; at < argc && n_ms < 32; at++) ms[n_ms++] = strtoll(argv[at], NULL, 10);
    MUST(cudaStreamCreateWithFlags(&b.stream, cudaStreamNonBlocking));
    measure_copy(&b);
    make_x(&b);
    printf("K,N,M,tile,split,overlap,us,TB/s,TFLOP/s,floor_us,percent,cublas_us,ratio,error\n");
    for (int i = 0; i + 1 < n_shapes; i += 2)
        run_shape(&b, shapes[i], shapes[i + 1], ms, n_ms, sweep, with_dense);
    MUST(cudaStreamDestroy(b.stream));
    return 0;
}
