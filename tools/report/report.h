/* report.h - an HTML report of one checkpoint, or of several side by side: one file that needs no
 * other, with charts that are drawn here.
 *
 * The page says what is known, from the checkpoint's files, its manifest, results of verify and
 * quantize, and statistics; what is missing it names, with the command that would find it out. The
 * same files give the same bytes on the same kind of processor.
 */
#ifndef SW_TOOLS_REPORT_REPORT_H
#define SW_TOOLS_REPORT_REPORT_H

#include "formats/base/json.h"
#include "formats/base/progress.h"

#define SW_REPORT_CHECKPOINTS_MAX 16

typedef struct sw_html_request {
    const char *out; /* the file to write */
    bool may_replace;
    const char *const *checkpoints; /* directories or GGUFs, the first n_checkpoints */
    int n_checkpoints;
    const char *const *results; /* files; see data/results.h */
    int n_results;
    const char *const *stats; /* files of calibrate: one for all checkpoints, or one for each */
    int n_stats;
    const cJSON *verified, *made; /* of the first checkpoint: what a run has just found; or NULL */
    int n_threads;
    const sw_progress *progress;
} sw_html_request;

/* SW_E_USAGE: more checkpoints than fit, results about none of them, `out` exists. Else what
 * opening a checkpoint, results or statistics fails with. */
sw_code sw_html_report(const sw_html_request *request, sw_err *err) SW_MUST_USE;
/* SW_E_USAGE when `path` may not be written to: asked before the work that the report is of. */
sw_code sw_html_report_check(const char *path, bool may_replace, sw_err *err) SW_MUST_USE;

#endif
