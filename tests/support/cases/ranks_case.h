/* ranks_case.h - what every rank of a local team does in a test of sums, and pieces of a text that
 * a rank sums. A process that is forked becomes rank 0, so that no rank returns into cmocka. */
#ifndef SW_TESTS_SUPPORT_CASES_RANKS_CASE_H
#define SW_TESTS_SUPPORT_CASES_RANKS_CASE_H

#include "quant/stats/sums.h"
#include "quant/team/team.h"

typedef sw_code ranks_work(sw_team *team, const void *ctx, sw_err *err);
typedef void pieces_fill(sw_site_stats *part, int64_t piece);

/* Fails the test, which is named by `what`, unless all of n_ranks ranks end well. */
void ranks_check(int n_ranks, ranks_work *work, const void *ctx, const char *what);
/* Sum pieces [begin, end), each filled by `fill`. */
sw_code pieces_sum(sw_sums *sums, int64_t begin, int64_t end, pieces_fill *fill, sw_err *err);

#endif
