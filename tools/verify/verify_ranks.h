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

/* Bytes of a model's weights as they are stored: those of a GGUF file, or of a directory's
 * .safetensors; 0: there are none, as of a name that is looked for elsewhere. */
int64_t sw_verify_files_bytes(const char *path);

#endif
