/* ranks.h - several processes (ranks) that judge one checkpoint: what they say to each other.
 *
 * Every rank runs the windows of a part of the text. Rank 0 does everything else, gets the figures
 * of all windows in the order of the text, and makes the report, which is that of one process. How
 * messages travel is the caller's business, since the judge shares no code with the quantizer,
 * whose ranks are quant/team/team.h. All but send and receive are collective: every rank makes the
 * same calls in the same order.
 */
#ifndef SW_VERIFY_BASE_RANKS_H
#define SW_VERIFY_BASE_RANKS_H

#include <stddef.h>
#include <stdint.h>

#include "formats/base/status.h"

typedef struct sw_judge_ranks {
    void *self;
    int rank, size;
    /* Returns, at all ranks, the code of the first rank that has another than SW_OK, with its text
     * in err. The ranks go on speaking to each other. */
    sw_code (*meet)(void *self, sw_code code, sw_err *err);
    sw_code (*broadcast)(void *self, int from, void *data, size_t n_bytes, sw_err *err);
    sw_code (*send)(void *self, int to, const void *data, size_t n_bytes, sw_err *err);
    sw_code (*receive)(void *self, int from, void *data, size_t n_bytes, sw_err *err);
    /* SW_E_USAGE, at all ranks, unless all have the same bytes; `what` names them. */
    sw_code (*check_same)(void *self, const char *what, const void *data, size_t n_bytes,
                          sw_err *err);
} sw_judge_ranks;

/* For NULL, which is one process: 0 and 1. */
static inline int sw_judge_rank(const sw_judge_ranks *r) { return r ? r->rank : 0; }
static inline int sw_judge_size(const sw_judge_ranks *r) { return r ? r->size : 1; }

/* For NULL: `code`, and nothing to do. */
static inline sw_code sw_judge_meet(const sw_judge_ranks *r, sw_code code, sw_err *err)
{
    return r ? r->meet(r->self, code, err) : code;
}

static inline sw_code sw_judge_same(const sw_judge_ranks *r, const char *what, const void *data,
                                    size_t n_bytes, sw_err *err)
{
    return r ? r->check_same(r->self, what, data, n_bytes, err) : SW_OK;
}

#endif
