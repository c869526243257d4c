/* convert_job.h - one checkpoint into another dialect: what becomes of each linear, and the work.
 *
 * Planned first, so that what cannot be done is said before anything is written; then linear by
 * linear in the order of the source's files, so that memory is that of the largest tensor.
 */
#ifndef SW_TOOLS_CONVERT_CONVERT_JOB_H
#define SW_TOOLS_CONVERT_CONVERT_JOB_H

#include "formats/checkpoint/checkpoint.h"
#include "formats/num/num.h"
#include "quant/run/scheme.h"

typedef enum sw_fate {
    SW_FATE_EXACT,       /* codes, scales, zero points and g_idx as they are */
    SW_FATE_DECODED,     /* plain floats, rounded once to the target's dtype */
    SW_FATE_REQUANTIZED, /* decoded and rounded to another scheme */
    SW_FATE_COUNT
} sw_fate;

const char *sw_fate_name(sw_fate fate);

typedef struct sw_convert_linear {
    sw_linear_ref ref;
    const char *path;
    sw_qspec from, to;
    sw_fate fate;
    const char *blocks; /* of a GGUF, its type, when they are read as floats; else NULL */
    const char *why; /* not exact; NULL for others */
    double error;    /* relative, of a requantized one, once it is done */
} sw_convert_linear;

typedef struct sw_convert_options {
    const char *source_dir, *out_dir;
    const sw_dialect *target;
    const sw_scheme *scheme; /* what to requantize to; NULL: the nearest */
    bool may_replace, may_requantize, weights_only;
    bool with_sidecar;       /* see sidecar.h */
    bool no_card;
    const struct sw_card_command *command; /* as it was typed: for the manifest and the card */
    uint64_t shard_bytes;
    int n_threads;
} sw_convert_options;

typedef struct sw_convert_job {
    sw_convert_options options;
    const sw_progress *progress;
    sw_checkpoint source;
    sw_convert_linear *linears; /* in the order of the source's files */
    int64_t n_linears;
    int64_t n_of[SW_FATE_COUNT];
    uint64_t source_bytes, out_bytes;
    sw_arena arena;
} sw_convert_job;

/* Open the source and decide about every quantized linear of it. SW_E_UNSUPPORTED: one that the
 * target cannot hold, with the reason and a remedy. */
sw_code sw_convert_plan(sw_convert_job *job, const sw_convert_options *options,
                        const sw_progress *progress, sw_err *err) SW_MUST_USE;
/* Write the output: complete or absent. */
sw_code sw_convert_run(sw_convert_job *job, sw_err *err) SW_MUST_USE;
void sw_convert_free(sw_convert_job *job); /* accepts a zeroed one */

/* The dialect of the source, or the dtype of a plain one. */
const char *sw_convert_from(const sw_convert_job *job);
/* {"from", "to", counts}, and with `tensors` what became of each linear. Owned by the caller. */
sw_code sw_convert_json(cJSON **out, const sw_convert_job *job, const char *result,
                        bool with_tensors, sw_err *err) SW_MUST_USE;

/* What rounding a second time cost a conversion, and what would cost less. */

/* Of the linears that were rounded again; n is 0 when there are none. */
typedef struct sw_convert_cost {
    int64_t n;
    double mean, worst;             /* |w - q| / |w| against the source's own values */
    const sw_convert_linear *at;    /* the worst */
    const char *wider;              /* a scheme of more bits that the target takes, or NULL */
} sw_convert_cost;

/* Of a job that has run. */
sw_convert_cost sw_convert_cost_of(const sw_convert_job *job);
/* Lines for people; nothing when nothing was rounded again. */
void sw_convert_cost_print(const sw_convert_job *job);
/* {"requantized_error": {...}} with the commands that measure it and that do better. */
bool sw_convert_cost_json(cJSON *root, const sw_convert_job *job);

/* Rounding the values of a quantized weight into another scheme. */

/* Round w f32 [n_out, k_in] into `spec`, each group on the grid of least squared error (quant's
 * grid.h), without calibration. fused_amax as in quant/method/frame.h. *error: the relative one,
 * |w - q| / |w| in the Frobenius norm. q is allocated here. */
sw_code sw_requantize(sw_qtensor *q, double *error, const float *w, int64_t n_out, int64_t k_in,
                      const sw_qspec *spec, double fused_amax, int n_threads,
                      sw_err *err) SW_MUST_USE;

#endif
