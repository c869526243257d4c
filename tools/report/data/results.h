/* results.h - files of results, each given to the checkpoint that it is about. */
#ifndef SW_TOOLS_REPORT_DATA_RESULTS_H
#define SW_TOOLS_REPORT_DATA_RESULTS_H

#include "tools/report/data/exhibit.h"

/* Read what `verify --report`, `verify --json` or `quantize --json` wrote at `path` and add it to
 * one of x[0..n): a result of verify belongs to the checkpoint whose files have the digests that it
 * names, one of quantize to that whose manifest has the same figures of every linear. Reads the
 * weights to digest them. SW_E_USAGE: neither of these results; about none of the checkpoints;
 * about one that has such a result already. */
sw_code sw_results_add(sw_exhibit *x, int n, const char *path, sw_err *err) SW_MUST_USE;

#endif
