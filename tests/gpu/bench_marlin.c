/* bench_marlin.c - how long the one pass takes that makes tiles of a weight in Marlin's order.
 *
 *   bench_marlin [BITS GROUP K N]...      (GROUP 0: one a channel)
 */
#include <stdio.h>
#include <stdlib.h>

#include "kernels/cuda/gemm/marlin_tiles.h"
#include "kernels/cuda_gemm.h"
#include "tests/gpu/support/gpu_dense.h"

typedef struct bench {
    sw_tiles from[16];
    void *d_codes[16], *d_scales, *d_zeros;
    cudaStream_t stream;
} bench;

static void retile(void *ctx, int copy)
{
    bench *b = ctx;
    sw_err err = {0};

    if (sw_marlin_retile(b->d_codes[copy], b->d_scales, b->d_zeros, &b->from[copy], b->stream,
                         &err))
        bench_must(1, err.text);
}

static void *taken(int64_t n_bytes)
{
    void *d;

    MUST(cudaMalloc(&d, (size_t)n_bytes));
    MUST(cudaMemset(d, 0x5a, (size_t)n_bytes));
    return d;
}

static void run(bench *b, int bits, int64_t group, bool is_symmetric, int64_t k, int64_t n)
{
    const int64_t groups = group ? k / group : 1;
    sw_qspec spec = {.num = &sw_nums[bits == 4 ? SW_NUM_INT4 : SW_NUM_INT8],
                     .is_symmetric = is_symmetric, .group_elems = group,
                     .scale_dtype = SW_DTYPE_BF16};
    const int64_t codes = sw_tiles_codes_bytes(spec.num, n, k);
    const int64_t scales = sw_tiles_scales_bytes(spec.scale_dtype, n, groups);
    const int64_t zeros = sw_tiles_zeros_bytes(n, groups);
    const int n_copies = bench_copies(2 * codes);
    const double bytes =
        2.0 * (double)(codes + scales) + (is_symmetric ? 0.0 : (double)zeros * (1 + bits / 8.0));
    double us;

    b->d_scales = taken(scales);
    b->d_zeros = taken(zeros);
    for (int i = 0; i < n_copies; i++) {
        b->from[i] = (sw_tiles){.spec = spec, .n_out = n, .k_in = k, .n_groups = groups,
                                .container_bits = bits, .is_marlin = true, .codes = taken(codes),
                                .scales = taken(scales), .zeros = taken(zeros)};
        b->d_codes[i] = taken(codes);
    }
    us = bench_graph_us(b->stream, retile, b, n_copies);
    printf("%d,%lld,%s,%lld,%lld,%.2f,%.0f\n", bits, (long long)group,
           is_symmetric ? "sym" : "asym", (long long)k, (long long)n, us, bytes / us * 1e-3);
    for (int i = 0; i < n_copies; i++) {
        MUST(cudaFree((void *)(uintptr_t)b->from[i].codes));
        MUST(cudaFree((void *)(uintptr_t)b->from[i].scales));
        MUST(cudaFree((void *)(uintptr_t)b->from[i].zeros));
        MUST(cudaFree(b->d_codes[i]));
    }
    MUST(cudaFree(b->d_scales));
    MUST(cudaFree(b->d_zeros));
}

int main(int argc, char **argv)
{
    bench b = {0};
    int n_devices = 0;

    if (cudaGetDeviceCount(&n_devices) != cudaSuccess || n_devices == 0) {
        printf("skipped: no GPU\n");
        return 77;
    }
    MUST(cudaStreamCreateWithFlags(&b.stream, cudaStreamNonBlocking));
    printf("bits,group,zeros,K,N,us,GB/s (read + written)\n");
    for (int at = 1; at + 3 < argc; at += 4)
        for (int asym = 0; asym < 2; asym++)
            run(&b, (int)strtol(argv[at], NULL, 10), strtoll(argv[at + 1], NULL, 10), !asym,
                strtoll(argv[at + 2], NULL, 10), strtoll(argv[at + 3], NULL, 10));
    MUST(cudaStreamDestroy(b.stream));
    return 0;
}
