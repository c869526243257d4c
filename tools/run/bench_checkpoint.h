/* bench_checkpoint.h - `swage bench CHECKPOINT [--against MODEL]`: how fast a checkpoint runs. */
#ifndef SW_TOOLS_RUN_BENCH_CHECKPOINT_H
#define SW_TOOLS_RUN_BENCH_CHECKPOINT_H

#include "kernels/engine/kv_form.h"
#include "tools/cli/cmd.h"
#include "verify/base/speed_report.h"

typedef struct sw_bench_checkpoint {
    const char *checkpoint, *against, *device;
    uint64_t device_bytes;
    sw_speed_request request;
    sw_kv_kind kv_kind;
    double min_speedup, min_tokens_s; /* below 0: no gate */
} sw_bench_checkpoint;

/* SW_E_GATE, SW_E_NOISY: as sw_report_verdict, once the figures are printed. SW_E_USAGE: a gate on
 * the speed-up without an original; otherwise as sw_checkpoint_speed. */
sw_code sw_bench_checkpoint_run(sw_run *run, const sw_bench_checkpoint *b, sw_err *err) SW_MUST_USE;

#endif
