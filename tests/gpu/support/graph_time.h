/* graph_time.h - time of calls that a graph replays, without the host between them. */
#ifndef SW_TESTS_GPU_SUPPORT_GRAPH_TIME_H
#define SW_TESTS_GPU_SUPPORT_GRAPH_TIME_H

#include <cuda_runtime_api.h>

/* us of a call in a graph of 48, fewer where those take over 10 ms: the mean of all calls of the
 * median replay of 9, or of up to 32 that take 100 ms. `call` is run with copy 0, 1, ...
 * n_copies - 1 in turn. A device that was idle is first warmed up by replays until those of 30 ms
 * take what those before took, for 400 ms at most. */
typedef void (*bench_call)(void *ctx, int copy);
double bench_graph_us(cudaStream_t stream, bench_call call, void *ctx, int n_copies);
/* The same of a graph of n_calls calls, run with 0, 1, ... n_calls - 1. */
double bench_calls_us(cudaStream_t stream, bench_call call, void *ctx, int n_calls);

#endif
