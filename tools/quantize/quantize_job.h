/* quantize_job.h - a quantization asked for: what `quantize` does and `plan` foresees.
 *
 * Both take their options from one table and prepare the job with one function, so that whatever
 * can be known to fail fails in both, with the same words.
 */
#ifndef SW_TOOLS_QUANTIZE_QUANTIZE_JOB_H
#define SW_TOOLS_QUANTIZE_QUANTIZE_JOB_H

#include "kernels/device.h"
#include "tools/calibrate/imatrix_input.h"
#include "tools/calibrate/stats_input.h"
#include "tools/cli/cmd.h"
#include "tools/quantize/needs.h"
#include "tools/quantize/quantize_report.h"
#include "tools/quantize/timeline.h"
#include "tools/recipe/recipe.h"

/* What the command line or a recipe says. */
typedef struct sw_quantize_options {
    sw_cmd_common common;
    const char *out, *html, *scheme, *method, *format, *bits, *group_size, *act_order, *sequential,
        *recipe, *experts, *stats, *imatrix, *kv_cache, *mx_scale, *device;
    sw_opt_list calib, ignore;
    int64_t samples, seq_len, seed;
    double damp, target_bits, outliers;
    int symmetry; /* 0: as the scheme says, 1: symmetric, 2: not */
    int positive_scales, with_head, may_replace, allow_fallback, is_restart,
        no_card;
    uint64_t shard_bytes, memory_bytes, target_bytes;
} sw_quantize_options;

/* What is not given. */
#define SW_QUANTIZE_DEFAULTS \
    .scheme = "W4A16", .method = "gptq", .format = "swage", .act_order = "static", \
    .sequential = "site", .experts = "shrink", .kv_cache = "none", .mx_scale = "best", \
    .damp = 0.01, .shard_bytes = (uint64_t)5 << 30

/* Those of `plan`: what quantize takes, and more. */
typedef struct sw_plan_options {
    sw_quantize_options quantize;
    const char *tp, *emit_recipe; /* the recipe replaces a file with --force alone */
    const char *decodes_on;       /* the device whose decoding speed is predicted */
    uint64_t device_bytes;        /* memory of a device that need not be here; 0: what is free */
    double bandwidth;             /* GB/s; 0: the device's */
} sw_plan_options;

/* Words of options, for quantize_rows.def. */
const char *sw_name_of_bits(int i);
const char *sw_name_of_order(int i);
const char *sw_name_of_sequential(int i);
const char *sw_name_of_kv(int i);

extern const sw_opt sw_plan_rows[];
extern const sw_opt sw_quantize_rows[]; /* the options, with those of every command */
extern const sw_quantize_options sw_quantize_defaults;

/* What one run holds. is_dry: nothing will be written, and no weight is read. */
typedef struct sw_quantize_job {
    sw_quantize_options *o;
    const char *model_dir;
    sw_recipe recipe;
    sw_checkpoint source;
    sw_linear_source decoding; /* of a source that is quantized itself */
    sw_quantize_settings settings;
    const sw_dialect *dialect;
    sw_selection selection;
    sw_calibration calibration;
    sw_zpack *stats; /* in its place */
    sw_imatrix_input *imatrix; /* what rounding weighs errors by, or NULL */
    sw_stats_windows windows, lead; /* of them: what transforms, what --target-bits tries on */
    sw_quantize_report report;
    sw_timeline timeline;
    sw_ckpt_writer *writer;
    sw_digest_back *back; /* reads its files back while they grow; NULL: they are read at the end */
    sw_device *gpu; /* NULL: everything on the CPU */
    sw_team *team;  /* the ranks that share the run, borrowed; NULL: one */
    const sw_progress *progress;
    bool is_dry;
    int64_t device_bytes;  /* of a dry job: that its run may take of a device; 0: it has none */
    uint64_t papers_bytes; /* with --target-size: the most that manifest and card come to ... */
    uint64_t least_bytes;  /* ... and the smallest output that can be reached, at most */
    /* Of one of several outputs of a run (quantize_many.h); zero in a run of one. */
    const char *name;           /* of its directory */
    const sw_calibration *lent; /* that of another job, to be borrowed; NULL: it reads its own */
    const cJSON *sources;       /* digests of the source, borrowed; NULL: not known yet */
    bool is_finished;           /* an earlier run with the same settings made the output */
    bool is_published;          /* this run did */
    sw_err failure;             /* what went wrong with it alone; code SW_OK: nothing did */
    cJSON *verified;            /* owned: what reading the output back has found */
} sw_quantize_job;

/* A copy of the options, as `table` describes them, in the arena, over what the recipe says where
 * the line is silent. */
sw_code sw_quantize_job_options(sw_quantize_job *job, sw_run *run,
                                const sw_quantize_options *given, const sw_opt *table,
                                sw_err *err) SW_MUST_USE;
/* Everything up to the first weight: the model, what becomes of its linears, calibration. */
sw_code sw_quantize_job_prepare(sw_quantize_job *job, sw_err *err) SW_MUST_USE;
/* The two halves of it: all that can be refused before any work; what is chosen by measuring, and
 * the manifest's beginning, which a dry job has no use for. */
sw_code sw_quantize_job_check(sw_quantize_job *job, sw_err *err) SW_MUST_USE;
sw_code sw_quantize_job_settle(sw_quantize_job *job, sw_err *err) SW_MUST_USE;
/* Is there anything to be found out about activations: statistics, or the range of inputs? */
bool sw_quantize_job_needs_data(const sw_quantize_job *job);
/* What the writer is told of the checkpoint as a whole; borrows from the job. */
sw_qconfig sw_quantize_job_config(const sw_quantize_job *job);
/* The option, if any, that chooses schemes by measuring what linears lose. */
const char *sw_quantize_chooser(const sw_quantize_options *o);
/* The memory that the run will take. */
sw_code sw_quantize_job_needs(sw_needs *out, const sw_quantize_job *job, sw_err *err) SW_MUST_USE;
void sw_quantize_job_free(sw_quantize_job *job); /* accepts a zeroed one */

#endif
