/* gpu_dense.h - what cuBLASLt takes for the same product, dense in bf16 or in FP8. */
#ifndef SW_TESTS_GPU_SUPPORT_GPU_DENSE_H
#define SW_TESTS_GPU_SUPPORT_GPU_DENSE_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

/* us of a call in a graph, the mean of all calls of the median replay. `call` is run with copy
 * 0, 1, ... n_copies - 1 in turn. A device that was idle is first warmed up by replays. */
typedef void (*bench_call)(void *ctx, int copy);
double bench_graph_us(cudaStream_t stream, bench_call call, void *ctx, int n_copies);
/* The same of a graph of n_calls calls, run with 0, 1, ... n_calls - 1. */
double bench_calls_us(cudaStream_t stream, bench_call call, void *ctx, int n_calls);

/* The best of what the library proposes, over rotating weights of random numbers. FP8: E4M3 with a
 * scale per row of both operands, Y in bf16. NaN when it has no such product. */
double bench_dense_us(cudaStream_t stream, bool is_fp8, int64_t m, int64_t n, int64_t k);

#define BENCH_ROTATE_BYTES (200ll << 20) /* more than three times the L2 of an H200 */
int bench_copies(int64_t n_bytes);       /* 2..16 */
void bench_must(int failed, const char *what);
#define MUST(call) bench_must((int)(call), #call)

#endif
