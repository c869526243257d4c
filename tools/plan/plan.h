/* plan.h - what a quantization would do, from names and shapes alone.
 *
 * Linears of one shape, scheme and place are one class: what is true of one is true of all.
 */
#ifndef SW_TOOLS_PLAN_PLAN_H
#define SW_TOOLS_PLAN_PLAN_H

#include "tools/device/devices.h"
#include "tools/quantize/needs.h"
#include "tools/quantize/quantize_job.h"
#include "tools/quantize/rates.h"

#define SW_PLAN_CLASSES_MAX 256
#define SW_PLAN_TP_MAX 8

/* May linears be cut among `degree` devices? why: of the first that may not. */
typedef struct sw_plan_tp {
    int64_t degree;
    bool is_legal;
    char why[160];
} sw_plan_tp;

typedef struct sw_plan_class {
    const char *slot; /* last part of the path: "q_proj" */
    sw_site site;
    bool is_row_cut;  /* tensor-parallel engines cut its inputs, not its outputs */
    bool is_expert, is_kept;
    int64_t n_out, k_in, n_linears;
    const sw_qspec *spec; /* NULL when kept as it is */
    double bytes_before, bytes_after; /* of all of the class */
    const char *kernel_1, *kernel_64; /* that this machine takes for so many tokens */
} sw_plan_class;

/* Seconds to read the weights of one token's decoding; 0: not known. */
typedef struct sw_plan_speed {
    const char *name;
    double before_s, after_s;
    bool is_measured;     /* with a kernel's own figures, not bandwidth alone */
    char slow[160];       /* products that win nothing, or "" */
} sw_plan_speed;

typedef struct sw_plan {
    sw_plan_class classes[SW_PLAN_CLASSES_MAX];
    int n_classes;
    int64_t n_copied;
    double copied_bytes, before_bytes, after_bytes;
    uint64_t files_bytes;  /* of the output, exactly, but for manifest.json and card; 0: a GGUF */
    uint64_t papers_bytes; /* those two, at most */
    double disk_bytes; /* that the run needs at most, in the output's directory */
    sw_needs needs;
    sw_rates rates;
    double seconds;
    sw_plan_tp tp[SW_PLAN_TP_MAX];
    int n_tp;
    sw_plan_speed device, here;
} sw_plan;

/* `job` is prepared and dry. SW_E_USAGE: --tp is no list of degrees. */
sw_code sw_plan_new(sw_plan *out, const sw_quantize_job *job, const sw_plan_options *options,
                    sw_err *err) SW_MUST_USE;

void sw_plan_print(const sw_plan *plan, const sw_quantize_job *job);
/* Adds everything to `root`, tensor by tensor. SW_E_NOMEM. */
sw_code sw_plan_add_json(cJSON *root, const sw_plan *plan, const sw_quantize_job *job,
                         sw_err *err) SW_MUST_USE;

/* What a linear becomes on disk. */
double sw_plan_linear_bytes(const sw_dialect *dialect, const sw_qspec *spec, int64_t n_out,
                            int64_t k_in);

#endif
