/* stats_case.h - a toy model, a text for it, and the statistics of both in a file. */
#ifndef SW_TESTS_SUPPORT_CASES_STATS_CASE_H
#define SW_TESTS_SUPPORT_CASES_STATS_CASE_H

#include "formats/checkpoint/checkpoint.h"
#include "quant/run/pipeline.h"
#include "quant/stats/stats.h"
#include "tests/support/scratch.h"

enum { STATS_SEQS = 12, STATS_LEN = 64 };

typedef struct stats_case {
    sw_checkpoint ckpt;
    char identity[SW_SHA256_HEX_BYTES];
    uint32_t ids[STATS_SEQS * STATS_LEN];
    sw_calib calib;
    scratch s;
} stats_case;

void stats_case_open(stats_case *t, const char *arch); /* of tests/golden/arch */
void stats_case_open_dir(stats_case *t, const char *dir);
void stats_case_close(stats_case *t);
sw_quant_options stats_case_options(sw_experts policy, int n_threads);
/* Closed by the caller. */
sw_zpack *stats_case_collect(stats_case *t, const char *name, const sw_quant_options *o,
                             bool with_text);

/* What a run of quantizing hands out, added up, and parts of sinks that tests share. */

/* Zero-initialise; the caller frees bytes. */
typedef struct taken {
    int n, n_fallbacks;
    double error, error_rtn; /* sums over linears */
    uint8_t *bytes;          /* codes and scales one after the other */
    size_t n_bytes;
} taken;

/* One more linear, which must be a tensor that can be. */
void taken_add(taken *k, const sw_qtensor *q, const sw_solve_report *report);
void assert_same_taken(const taken *a, const taken *b);

/* Of a sink: every linear is selected, and what else changes is not kept. */
bool takes_all(void *self, const sw_linear_ref *ref, const char *path);
sw_code takes_no_change(void *self, const char *name, const float *values, int64_t n, sw_err *err);

#endif
