/* verify_ranks.h - `swage verify` by several processes: the team as the judge sees it. */
#ifndef SW_TOOLS_VERIFY_VERIFY_RANKS_H
#define SW_TOOLS_VERIFY_VERIFY_RANKS_H

#include "quant/team/team.h"
#include "verify/base/ranks.h"

/* *out speaks through `team`, which it borrows; NULL for a team of one. */
const sw_judge_ranks *sw_verify_ranks_of(sw_judge_ranks *out, sw_team *team);

/* Every rank calls it before it judges. SW_E_USAGE, at all ranks: one sees other models (each a
 * directory, a file or NULL) or another setting than rank 0. */
sw_code sw_verify_ranks_check(sw_team *team, const char *const dirs[2], const char *kv_cache,
                              sw_err *err) SW_MUST_USE;

#endif
