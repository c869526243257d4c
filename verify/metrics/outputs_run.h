/* outputs_run.h - one run of outputs.h, and the two places where it may happen.
 *
 * A backend runs the original and shows what its linears read (sw_output_see). Linears wait until
 * there is one for each thread; then all are decoded side by side, and the backend multiplies what
 * waits.
 */
#ifndef SW_VERIFY_METRICS_OUTPUTS_RUN_H
#define SW_VERIFY_METRICS_OUTPUTS_RUN_H

#include "verify/metrics/linear_rows.h"
#include "verify/metrics/outputs.h"

#define SW_OUTPUT_TOKENS_MAX 512 /* of those that a linear reads */
#define SW_OUTPUT_ROUND_ELEMS ((int64_t)16 << 20) /* values that a device gets at once, at most */

/* What linears of one site read, kept until they have been multiplied. */
typedef struct sw_output_rows {
    float *x; /* [n, k_in], where the backend keeps it */
    int64_t n, k_in;
} sw_output_rows;

typedef struct sw_output_linear {
    const sw_subject_linear *linear;
    const sw_output_rows *read;
    const sw_weight *original;    /* dense */
    sw_linear_rows decoded;       /* as the checkpoint has it, and its factors (rescale.h) */
    const double *columns, *rows;
    sw_vec_sums *sums;            /* to be added to: want2 and err2 */
    sw_err err;                   /* of decoding */
} sw_output_linear;

typedef struct sw_output_run {
    const sw_outputs_job *job;
    const struct sw_output_backend *backend;
    void *own;                    /* of the backend */
    sw_subject_linear *linears;   /* of the whole model, in block order */
    int64_t *tensor_of;           /* [n_linears] row of the report, or -1 */
    int64_t n_linears;
    sw_vec_sums *sums;            /* [n_linears] */
    int64_t *routed;              /* [n_layers, n_experts] tokens */
    int64_t k_most, n_out_most;   /* of the linears that are judged */
    int64_t n_seqs, seq_len;
    uint32_t *ids;                /* [n_seqs * seq_len] */
    int64_t layer;                /* that runs */
    sw_output_linear *waiting;    /* [n_linears] */
    sw_output_rows *kept;         /* [n_linears] */
    int64_t n_waiting, n_kept;
    sw_arena arena;
} sw_output_run;

typedef struct sw_output_backend {
    /* What it needs into run->own, which close frees, also after a failure. */
    sw_code (*open)(sw_output_run *run, sw_err *err);
    void (*close)(sw_output_run *run);
    /* The original over run->ids; run->layer says which layer is shown. */
    sw_code (*run)(sw_output_run *run, sw_err *err);
    /* rows->x = rows 0, every, 2 every, ... of x, which lie `stride` elements apart; n and k_in say
     * how many. */
    sw_code (*keep)(sw_output_run *run, sw_output_rows *rows, const void *x, int64_t stride,
                    int64_t every, sw_err *err);
    void (*drop)(sw_output_run *run, sw_output_rows *rows);
    /* Both products of all that waits, decoded, into their sums. */
    sw_code (*multiply)(sw_output_run *run, sw_err *err);
} sw_output_backend;

extern const sw_output_backend sw_outputs_cpu, sw_outputs_device;

/* The original's linears at a site read rows of x, `stride` elements apart. `expert`: or -1. */
sw_code sw_output_see(sw_output_run *run, sw_site site, int64_t expert, const void *x,
                      int64_t n_tokens, int64_t k_in, int64_t stride, sw_err *err) SW_MUST_USE;

/* Row n of W into original [k_in] and of W' - W into difference [k_in]; levels [k_in] is scratch.
 */
void sw_output_values(float *original, float *difference, float *levels, const sw_output_linear *l,
                      int64_t n);

#endif
