/* stats_case.h - a toy model, a text for it, and the statistics of both in a file. */
#ifndef SW_TESTS_SUPPORT_CASES_STATS_CASE_H
#define SW_TESTS_SUPPORT_CASES_STATS_CASE_H

#include "quant/stats/stats.h"
#include "formats/checkpoint/checkpoint.h"
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

#endif
