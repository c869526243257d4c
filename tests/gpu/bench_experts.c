/* bench_experts.c - how long a layer of routed experts takes, a row of CSV each.
 *
 *   bench_experts [SCHEME:]EXPERTS,HIDDEN,WIDE,TOP_K[,ROWS]... -- TOKENS...
 *   ROWS: of a block; 0: the plan's, -1: those of each kernel, the plan's first
 *   SCHEME: w4a16 (groups of 128), fp8 (a scale a token and a channel), fp8block (128 x 128),
 *   w8a8 (as fp8), w4afp8 (groups of 128, inputs in E4M3 with a scale a token), mxfp4 and nvfp4
 *   (inputs of 16 bits), pairs (w4a16 by a product for each pair of a token and one of its experts,
 *   engine_one.cu: for few tokens)
 *
 * Calls are timed in a CUDA graph, each beginning beside the call ahead, the median of replays;
 * tokens choose their experts at random, anew for each call of the graph (us) or all calls alike
 * (us_same: where the experts of a call fit in the L2, they stay there). TB/s: the bytes of the
 * experts that have a token; percent: of what 4.8 TB/s, or 989 TFLOP/s in 16 bits and 1979 in 8,
 * of the data sheet allow. Before, the
 * result is compared with that of the kernel for many rows or, for that one, for few (off).
 */
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/model/model.h"
#include "kernels/cuda/experts/routed.h"
#include "kernels/cuda/gemm/column_tiles.h"
#include "tests/gpu/support/gpu_dense.h"
#include "tests/support/toys/random.h"

#define N_ROUTINGS 20
#define CHUNK (32ll << 20)
#define TOKENS_MAX 4096
#define BYTES_PER_US 4.8e6
#define FLOP_PER_US 989e6 /* of 16 bits; of 8 twice that */

typedef enum scheme { W4A16, FP8, FP8_BLOCK, W8A8, W4AFP8, MXFP4, NVFP4, PAIRS, N_SCHEMES } scheme;
static const char *const scheme_names[N_SCHEMES] = {"w4a16", "fp8", "fp8block", "w8a8",
                                                    "w4afp8", "mxfp4",
                                                    "nvfp4", "pairs"};

typedef struct layer {
    scheme scheme;
    int64_t hidden, wide;
    int n_experts, top_k;
    uint8_t *d_chunk;                   /* CHUNK random bytes */
    uint8_t *d_codes[2], *d_scales[2];  /* of all experts: gates and ups, downs */
    sw_expert *d_experts[2];
    sw_bf16 *d_x, *d_y;
    int32_t *d_chosen[N_ROUTINGS];
    float *d_share;
    void *d_work;
    size_t work_bytes;
    double weight_bytes;                /* of an expert */
    double n_active;                    /* experts with a token, on average over the routings */
    sw_cuda_device device;
    cudaStream_t stream;
    sw_routed problem;
    sw_routed_plan plan;
    bool is_same;
    bool is_peer;                       /* of what is timed: by the grouped products instead */
} layer;

static bool is_e4m3(const layer *l) { return l->scheme == FP8 || l->scheme == FP8_BLOCK; }

static bool has_bytes(const layer *l) { return l->scheme >= FP8 && l->scheme <= W4AFP8; }

static void *taken(int64_t n_bytes)
{
    void *d;

    MUST(cudaMalloc(&d, (size_t)n_bytes));
    return d;
}

/* n_bytes of the random ones, over and over. */
static uint8_t *random_bytes(const layer *l, int64_t n_bytes)
{
    uint8_t *d = taken(n_bytes);

    for (int64_t at = 0; at < n_bytes; at += CHUNK)
        MUST(cudaMemcpy(d + at, l->d_chunk, (size_t)(n_bytes - at < CHUNK ? n_bytes - at : CHUNK),
                        cudaMemcpyDeviceToDevice));
    return d;
}

/* BF16 of 2^-9 to 2^-6, positive unless `is_signed`. */
static uint8_t *random_numbers(const layer *l, int64_t n, bool is_signed, uint16_t base)
{
    uint16_t *host = malloc((size_t)n * 2);
    test_rng rng = {9};
    uint8_t *d = taken(n * 2);

    (void)l;
    for (int64_t i = 0; i < n; i++) {
        uint64_t r = test_u64(&rng);

        host[i] = (uint16_t)(base + (r & 0x1ff) + (is_signed && r >> 63 ? 0x8000 : 0));
    }
    MUST(cudaMemcpy(d, host, (size_t)n * 2, cudaMemcpyHostToDevice));
    free(host);
    return d;
}

static sw_tiles tiles_of(scheme kind, int64_t n_out, int64_t k_in)
{
    static const sw_num_id nums[] = {SW_NUM_INT4, SW_NUM_E4M3, SW_NUM_E4M3, SW_NUM_INT8,
                                     SW_NUM_INT4, SW_NUM_E2M1, SW_NUM_E2M1, SW_NUM_INT4};
    static const int64_t groups[] = {128, 0, 128, 0, 128, 32, 16, 128};
    static const sw_dtype scales[] = {SW_DTYPE_BF16, SW_DTYPE_BF16, SW_DTYPE_BF16,
                                      SW_DTYPE_BF16, SW_DTYPE_BF16, SW_DTYPE_F8_E8M0,
                                      SW_DTYPE_F8_E4M3,
                                      SW_DTYPE_BF16};
    const int64_t group = groups[kind];

    return (sw_tiles){.spec = {.num = &sw_nums[nums[kind]], .is_symmetric = true,
                               .group_elems = group, .scale_dtype = scales[kind],
                               .scale_rows = kind == FP8_BLOCK ? 128 : 0},
                      .n_out = n_out, .k_in = k_in,
                      .n_groups = group ? (k_in + group - 1) / group : 1,
                      .container_bits = sw_tiles_container_bits(&sw_nums[nums[kind]])};
}

static sw_act act_of(scheme kind)
{
    if (kind < FP8 || kind > W4AFP8) return (sw_act){0};
    return (sw_act){&sw_nums[kind == W8A8 ? SW_NUM_INT8 : SW_NUM_E4M3],
                    kind == FP8_BLOCK ? SW_ACT_GROUP : SW_ACT_TOKEN, kind == FP8_BLOCK ? 128 : 0,
                    SW_DTYPE_F32};
}

/* All of a record of 64 scales as its first. */
static void share_scales(uint8_t *d, int64_t n_bytes)
{
    uint16_t *host = malloc((size_t)n_bytes);

    MUST(cudaMemcpy(host, d, (size_t)n_bytes, cudaMemcpyDeviceToHost));
    for (int64_t i = 0; i < n_bytes / 2; i++) host[i] = host[i / 64 * 64];
    MUST(cudaMemcpy(d, host, (size_t)n_bytes, cudaMemcpyHostToDevice));
    free(host);
}

/* BF16 of about 2^-9 to 2^-5; E8M0 likewise; E4M3 of 2^-3 to 2^4. */
static uint8_t *random_scales(const layer *l, int64_t n_bytes)
{
    uint8_t *host, *d;
    test_rng rng = {10};

    if (l->scheme != MXFP4 && l->scheme != NVFP4)
        return random_numbers(l, n_bytes / 2, false, 0x3b00);
    host = malloc((size_t)n_bytes);
    for (int64_t i = 0; i < n_bytes; i++)
        host[i] = (uint8_t)(l->scheme == MXFP4 ? 118 + test_u64(&rng) % 4
                                               : 0x20 + test_u64(&rng) % 0x3c);
    d = taken(n_bytes);
    MUST(cudaMemcpy(d, host, (size_t)n_bytes, cudaMemcpyHostToDevice));
    free(host);
    return d;
}

/* Of all experts at once, as the engine does where it pays. */
static void order_codes(layer *l, sw_tiles *t, uint8_t *d_codes)
{
    const sw_act act = act_of(l->scheme);
    sw_tiles all = *t;
    sw_err err = {0};

    all.codes = d_codes;
    all.n_out *= l->n_experts;
    if (sw_column_tiles_order_expert(&all, &act, &l->device, NULL, &err) != SW_OK)
        bench_must(1, err.text);
    t->in_columns = all.in_columns;
    t->is_sign_magnitude = all.is_sign_magnitude;
    t->is_e2m1_spread = all.is_e2m1_spread;
}

static void make_weights(layer *l)
{
    sw_tiles tiles[2] = {tiles_of(l->scheme, 2 * l->wide, l->hidden),
                               tiles_of(l->scheme, l->hidden, l->wide)};
    sw_expert *experts = calloc((size_t)l->n_experts, sizeof *experts);

    l->weight_bytes = 0;
    for (int i = 0; i < 2; i++) {
        sw_tiles *t = &tiles[i];
        int64_t codes = sw_tiles_codes_bytes(t->spec.num, t->n_out, t->k_in);
        int64_t scales = sw_tiles_scales_bytes(t->spec.scale_dtype, t->n_out, t->n_groups);

        l->d_codes[i] = random_bytes(l, codes * l->n_experts);
        order_codes(l, t, l->d_codes[i]);
        l->d_scales[i] = random_scales(l, scales * l->n_experts);
        if (l->scheme == FP8_BLOCK) share_scales(l->d_scales[i], scales * l->n_experts);
        l->d_experts[i] = taken(l->n_experts * (int64_t)sizeof *experts);
        for (int e = 0; e < l->n_experts; e++)
            experts[e] = (sw_expert){.codes = l->d_codes[i] + e * codes,
                                     .scales = l->d_scales[i] + e * scales};
        MUST(cudaMemcpy(l->d_experts[i], experts, (size_t)l->n_experts * sizeof *experts,
                        cudaMemcpyHostToDevice));
        l->weight_bytes += (double)(codes + scales);
    }
    l->problem = (sw_routed){.n_experts = l->n_experts, .top_k = l->top_k,
                             .act_of_x = act_of(l->scheme), .up = tiles[0], .down = tiles[1],
                             .ups = l->d_experts[0], .downs = l->d_experts[1],
                             .act = SW_MLP_SILU, .may_overlap = true};
    free(experts);
}

static void layer_new(layer *l, const char *text, sw_cuda_device device)
{
    long rows = 0;
    uint64_t *host = malloc(CHUNK);
    test_rng rng = {3};

    *l = (layer){.device = device};
    for (int i = 0; i < N_SCHEMES; i++) {
        const size_t n = strlen(scheme_names[i]);

        if (strncmp(text, scheme_names[i], n) || text[n] != ':') continue;
        l->scheme = (scheme)i;
        text += n + 1;
        break;
    }
    if (sscanf(text, "%d,%lld,%lld,%d,%ld", &l->n_experts, (long long *)&l->hidden,
               (long long *)&l->wide, &l->top_k, &rows) < 4)
        bench_must(1, text);
    l->plan.rows = (int)rows;
    /* E4M3: magnitudes below 2, which are numbers. */
    for (int64_t i = 0; i < CHUNK / 8; i++)
        host[i] = test_u64(&rng) & (is_e4m3(l) ? 0xbfbfbfbfbfbfbfbf : ~0ull);
    l->d_chunk = taken(CHUNK);
    MUST(cudaMemcpy(l->d_chunk, host, CHUNK, cudaMemcpyHostToDevice));
    free(host);
    make_weights(l);
    l->d_x = (sw_bf16 *)(void *)random_numbers(l, TOKENS_MAX * l->hidden, true, 0x3e80);
    l->d_y = taken(TOKENS_MAX * l->hidden * 2);
    l->d_share = taken(TOKENS_MAX * l->top_k * 4);
    for (int i = 0; i < N_ROUTINGS; i++) l->d_chosen[i] = taken(TOKENS_MAX * l->top_k * 4);
}

static void layer_free(layer *l)
{
    void *device[] = {l->d_chunk, l->d_codes[0], l->d_codes[1], l->d_scales[0], l->d_scales[1],
                      l->d_experts[0], l->d_experts[1], l->d_x, l->d_y, l->d_share, l->d_work,
                      l->problem.flags};

    for (size_t i = 0; i < sizeof device / sizeof *device; i++) MUST(cudaFree(device[i]));
    for (int i = 0; i < N_ROUTINGS; i++) MUST(cudaFree(l->d_chosen[i]));
}

/* top_k different experts a token, at random. */
static void route(layer *l, int64_t n_tokens)
{
    const int64_t n_pairs = n_tokens * l->top_k;
    int32_t *chosen = malloc((size_t)n_pairs * 4);
    float *share = malloc((size_t)n_pairs * 4);
    test_rng rng = {5};

    l->n_active = 0;
    for (int64_t i = 0; i < n_pairs; i++)
        share[i] = (float)((0.5 + test_uniform(&rng)) / l->top_k);
    MUST(cudaMemcpy(l->d_share, share, (size_t)n_pairs * 4, cudaMemcpyHostToDevice));
    for (int r = 0; r < N_ROUTINGS; r++) {
        bool *has = calloc((size_t)l->n_experts, sizeof *has);

        for (int64_t i = 0; i < n_pairs; i++) {
            int64_t j;

            do {
                chosen[i] = (int32_t)(test_u64(&rng) % (uint64_t)l->n_experts);
                for (j = i / l->top_k * l->top_k; j < i && chosen[j] != chosen[i]; j++) continue;
            } while (j < i);
            l->n_active += has[chosen[i]] ? 0 : 1.0 / N_ROUTINGS;
            has[chosen[i]] = true;
        }
        MUST(cudaMemcpy(l->d_chosen[r], chosen, (size_t)n_pairs * 4, cudaMemcpyHostToDevice));
        free(has);
    }
    free(chosen);
    free(share);
}

static void pairs(layer *l, sw_launch how)
{
    const sw_routed *p = &l->problem;
    const int64_t n_pairs = p->n_tokens * p->top_k;
    sw_bf16 *h = l->d_work, *y = h + n_pairs * l->wide;
    sw_fused_args up = {.rows = p->x, .tiles = p->up, .n = 1, .n_sms = l->device.n_sms,
                       .sm = l->device.sm, .act = p->act, .experts = p->ups, .chosen = p->chosen,
                       .n_pairs = n_pairs, .pairs_per_row = p->top_k, .out = SW_FUSED_GLU,
                       .y = {h, l->wide}};
    sw_fused_args down = up;
    const sw_combine_args sum = {.dst = p->y, .rows = {y, l->hidden}, .chosen = p->chosen,
                                 .share = p->share, .n = p->n_tokens, .width = l->hidden,
                                 .n_used = p->top_k};
    sw_err err = {0};

    up.tiles.codes = l->d_codes[0], down.tiles = p->down, down.tiles.codes = l->d_codes[1];
    down.rows = up.y, down.y = sum.rows, down.experts = p->downs;
    down.pairs_per_row = 1, down.out = SW_FUSED_STORE;
    if (sw_cuda_experts(&up, how, &err) || sw_cuda_experts(&down, how, &err) ||
        sw_cuda_combine(&sum, how, &err))
        bench_must(1, err.text);
}

static void call(void *ctx, int i)
{
    layer *l = ctx;
    sw_err err = {0};

    l->problem.chosen = l->d_chosen[l->is_same ? 0 : i % N_ROUTINGS];
    if (l->scheme == PAIRS && !l->is_peer) {
        pairs(l, (sw_launch){l->stream, true});
        return;
    }
    if (sw_routed_run(&l->problem, &l->plan, l->d_work, l->stream, &err) != SW_OK)
        bench_must(1, err.text);
}

static void plan(layer *l, int rows)
{
    const size_t flags_bytes = sw_routed_flags_bytes(&l->device);
    sw_err err = {0};
    size_t n_bytes;

    if (sw_routed_plan_for(&l->plan, &l->problem, &l->device, rows, &err) != SW_OK)
        bench_must(1, err.text);
    n_bytes = sw_routed_workspace_bytes(&l->problem, &l->plan);
    if (n_bytes > l->work_bytes) {
        MUST(cudaFree(l->d_work));
        l->d_work = taken((int64_t)n_bytes);
        l->work_bytes = n_bytes;
    }
    if (l->problem.flags) return;
    l->problem.flags = taken((int64_t)flags_bytes);
    MUST(cudaMemset(l->problem.flags, 0, flags_bytes));
}

static uint16_t *result(layer *l, int rows)
{
    const size_t n_bytes = (size_t)(l->problem.n_tokens * l->hidden) * 2;
    uint16_t *y = malloc(n_bytes);

    plan(l, rows);
    MUST(cudaMemset(l->d_y, 0xff, n_bytes));
    MUST(cudaDeviceSynchronize());
    call(l, 0);
    MUST(cudaStreamSynchronize(l->stream));
    MUST(cudaMemcpy(y, l->d_y, n_bytes, cudaMemcpyDeviceToHost));
    return y;
}

static double bf16(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float v;

    memcpy(&v, &wide, 4);
    return (double)v;
}

/* Relative difference of what two plans give. */
static double difference(layer *l, int rows, int other)
{
    uint16_t *a, *b;
    double off = 0, all = 0;

    l->is_peer = true;
    a = result(l, other);
    l->is_peer = false;
    b = result(l, rows);

    for (int64_t i = 0; i < l->problem.n_tokens * l->hidden; i++) {
        double d = bf16(a[i]) - bf16(b[i]);

        off += d * d;
        all += bf16(a[i]) * bf16(a[i]);
    }
    free(a);
    free(b);
    return sqrt(off / all);
}

static void run(layer *l, int64_t n_tokens, int rows)
{
    const int n_calls = n_tokens <= 256 ? N_ROUTINGS : n_tokens <= 1024 ? 6 : 3;
    const double flop = 6.0 * (double)(n_tokens * l->top_k * l->hidden * l->wide);
    const double flop_per_us = has_bytes(l) ? 2 * FLOP_PER_US : FLOP_PER_US;
    double off, us, us_same, bytes, floor_us;

    l->problem.n_tokens = n_tokens;
    l->problem.x = (sw_bf16_rows){l->d_x, l->hidden};
    l->problem.y = (sw_bf16_rows){l->d_y, l->hidden};
    l->problem.share = l->d_share;
    plan(l, rows);
    rows = l->plan.rows;
    off = difference(l, rows, rows == 128 ? 16 : 128);
    bytes = l->weight_bytes * l->n_active;
    l->is_same = false;
    us = bench_calls_us(l->stream, call, l, n_calls);
    l->is_same = true;
    us_same = bench_calls_us(l->stream, call, l, n_calls);
    l->is_same = false;
    floor_us = fmax(bytes / BYTES_PER_US, flop / flop_per_us);
    printf("%s,%d,%lld,%lld,%d,%lld,%d,%.1f,%.1f,%.2f,%.0f,%.0f,%.1e\n",
           scheme_names[l->scheme], l->n_experts,
           (long long)l->hidden, (long long)l->wide, l->top_k, (long long)n_tokens, rows, us,
           us_same, bytes / us * 1e-6, flop / us * 1e-6, 100 * floor_us / us, off);
    fflush(stdout);
}

static bool has_kernel(const layer *l, int rows)
{
    sw_routed_plan other;
    sw_err err = {0};

    return sw_routed_plan_for(&other, &l->problem, &l->device, rows, &err) == SW_OK;
}

/* As the plan has it, then with each other kernel. */
static void run_each(layer *l, int64_t n_tokens)
{
    static const int rows[] = {8, 16, 32, 48, 64, 96, 128, 256};
    int chosen;

    run(l, n_tokens, 0);
    chosen = l->plan.rows;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i] != chosen && has_kernel(l, rows[i])) run(l, n_tokens, rows[i]);
}

static void bench(const char *shape, char **tokens, int n, sw_cuda_device device,
                  cudaStream_t stream)
{
    layer l;
    int rows;

    layer_new(&l, shape, device);
    l.stream = stream;
    rows = l.plan.rows;
    for (int i = 0; i < n; i++) {
        int64_t n_tokens = strtoll(tokens[i], NULL, 10);

        if (n_tokens > TOKENS_MAX) continue;
        route(&l, n_tokens);
        if (rows < 0) run_each(&l, n_tokens);
        else run(&l, n_tokens, rows);
    }
    layer_free(&l);
}

int main(int argc, char **argv)
{
    sw_cuda_device device;
    sw_err err = {0};
    cudaStream_t stream;
    int split = 1;

    if (sw_cuda_device_query(&device, 0, &err) != SW_OK || device.sm != 90) {
        printf("skipped: no GPU of compute capability 9.0\n");
        return 77;
    }
    while (split < argc && strcmp(argv[split], "--") != 0) split++;
    if (split >= argc - 1) {
        fprintf(stderr, "bench_experts EXPERTS,HIDDEN,WIDE,TOP_K[,ROWS]... -- TOKENS...\n");
        return 2;
    }
    MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    printf("scheme,experts,hidden,wide,top_k,tokens,rows,us,us_same,TB/s,TFLOP/s,percent,off\n");
    for (int i = 1; i < split; i++)
        bench(argv[i], argv + split + 1, argc - split - 1, device, stream);
    MUST(cudaStreamDestroy(stream));
    return 0;
}
