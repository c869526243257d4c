/* speed.h - how fast the matrix kernels are on this machine, against OpenBLAS and against the
 * memory.
 *
 * What makes a figure worth printing: every kernel is held against its reference before it is
 * timed; weights are random and rotate through copies that together exceed the last-level cache
 * twice; one round times every candidate once, so that a busy machine disturbs baseline and
 * candidate alike; the first round is thrown away; medians come with their spread.
 */
#ifndef SW_VERIFY_SPEED_SPEED_H
#define SW_VERIFY_SPEED_SPEED_H

#include "formats/base/mem.h"
#include "formats/base/progress.h"
#include "kernels/kernel.h"

#define SW_SPEED_TOKENS_MAX 16
#define SW_SPEED_ROUNDS_MAX 101

typedef struct sw_speed_options {
    int64_t n_out, k_in;
    int64_t group_elems; /* of the quantized weights; 0: one group per channel */
    bool is_asymmetric;
    bool has_bf16_scales;  /* where `w4a16` and others have F16, as checkpoints of BF16 models do */
    const int64_t *tokens; /* M of each measurement, at most SW_SPEED_TOKENS_MAX of them */
    int n_tokens;
    const char *weights;   /* names of weight stores to measure, separated by commas; NULL: all */
    bool is_all;           /* also rows that selection would not take */
    int n_threads;
    int rounds;            /* at least this many timed rounds of each M ... */
    double seconds;        /* ... and more while an M has taken less than this, up to the maximum */
    int64_t cache_bytes;   /* of the last level; 0: find out */
    const sw_progress *progress;
} sw_speed_options;

typedef struct sw_timing {
    double median_us, min_us, max_us;
    int n_rounds;
} sw_timing;

/* One candidate at one M. */
typedef struct sw_speed_row {
    const char *name;     /* the kernel's, or "openblas" */
    const char *weights;  /* "f32", "bf16", "w4a16", ...: sw_speed_stores */
    int64_t m;
    bool is_selected;     /* the row that sw_kernel_select takes for this problem */
    sw_timing time;
    double error;         /* relative L2 error against the reference; 0 for openblas */
    double gb_s;          /* weights read per second, scales and zeros included */
    double gflop_s;
    double bandwidth_share; /* gb_s over what plain reading had in the same rounds */
    double speedup;       /* OpenBLAS's median at the same M over this median */
} sw_speed_row;

typedef struct sw_speed_report {
    char cpu[96];
    const char *blas_core;
    int n_threads;
    int64_t cache_bytes;    /* last level */
    sw_timing read;         /* of the f32 weights once, all threads, in the rounds of the first M */
    double read_gb_s;
    double sgemm_gflop_s;   /* OpenBLAS, 1536 x 1536 x 1536, all threads */
    sw_speed_row *rows;     /* by M, then table order */
    int n_rows;
    sw_arena arena;
} sw_speed_report;

/* SW_E_USAGE: a size below 1, or weights of an unknown name. SW_E_GATE: a kernel left its
 * tolerance; names it. SW_E_CANCELLED between rounds. Needs about 16 bytes per weight. `out` is set
 * on success only and freed by sw_speed_free. Runs OpenBLAS with n_threads threads; afterwards it
 * has one. */
sw_code sw_speed_run(sw_speed_report *out, const sw_speed_options *options,
                     sw_err *err) SW_MUST_USE;
void sw_speed_free(sw_speed_report *report);

#endif
