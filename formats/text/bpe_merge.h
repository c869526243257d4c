/* bpe_merge.h - the merging half of bpe.h, on symbols already in place. */
#ifndef SW_FORMATS_TEXT_BPE_MERGE_H
#define SW_FORMATS_TEXT_BPE_MERGE_H

#include "formats/text/bpe.h"

struct sw_bpe_symbol {
    uint32_t id;
    int32_t previous, next; /* indices of neighbours, -1 at the ends */
    bool is_dead;           /* merged into its left neighbour */
};

struct sw_bpe_candidate {
    uint64_t order; /* rank << 32 | position: lowest first */
    uint32_t merged;
};

/* Merge bpe->symbols[0, *n) until no pair merges; the survivors move to the front and *n
 * becomes their count. SW_E_UNSUPPORTED: a word of more than 2^31 - 1 symbols. */
sw_code sw_bpe_merge(sw_bpe *bpe, size_t *n, sw_err *err) SW_MUST_USE;

/* The two ways it is done, for tests: quadratic on short words, a heap on long ones. */
void sw_bpe_merge_short(const sw_bpe *bpe, size_t *n); /* at most SW_BPE_SHORT_SYMBOLS */
sw_code sw_bpe_merge_long(sw_bpe *bpe, size_t *n, sw_err *err) SW_MUST_USE;
#define SW_BPE_SHORT_SYMBOLS 32

#endif
