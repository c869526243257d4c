/* bench_decode.h - `swage bench --decode SHAPE`: a whole model's tokens per second on a device. */
#ifndef SW_TOOLS_RUN_BENCH_DECODE_H
#define SW_TOOLS_RUN_BENCH_DECODE_H

#include "kernels/engine/kv_form.h"
#include "tools/cli/cmd.h"

typedef struct sw_bench_decode {
    const char *shape, *device, *weights;
    uint64_t device_bytes;
    int64_t group_elems, context, steps;
    const int64_t *batches;
    int n_batches, rounds;
    bool is_csv;
    sw_kv_kind kv_kind;
} sw_bench_decode;

/* SW_E_USAGE: the CPU, an unknown shape; otherwise as sw_decode_speed_run. */
sw_code sw_bench_decode_run(sw_run *run, const sw_bench_decode *b, sw_err *err) SW_MUST_USE;

#endif
