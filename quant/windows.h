/* windows.h - which windows of the calibration text serve what: searches for transforms, their
 * judgement, and measuring divergence. Pure functions of how many there are and how long.
 *
 * A choice is searched on some windows and accepted on others: every eighth window is held out, so
 * that what looks better by chance is not written.
 */
#ifndef SW_QUANT_WINDOWS_H
#define SW_QUANT_WINDOWS_H

#include <stdint.h>

typedef enum sw_block_probe_part {
    SW_BLOCK_PROBE_SEARCH, /* for statistics: at most 16384 tokens */
    SW_BLOCK_PROBE_TRIAL,  /* some of them, for running candidates: at most 4096 */
    SW_BLOCK_PROBE_HELD,   /* none of them, for accepting one: at most 4096 */
    SW_BLOCK_PROBE_PARTS
} sw_block_probe_part;

/* Divergence is measured on at most so many tokens, of windows of at most so many. */
#define SW_KL_PROBE_TOKENS 1024
#define SW_KL_PROBE_SEQ_TOKENS 256

/* parts [n_seqs]: bit 1 << part of each window that serves a part. */
void sw_block_probe_parts(uint8_t *parts, int64_t n_seqs, int64_t seq_len);

/* Tokens of the larger of the parts that candidates run on. */
int64_t sw_block_probe_trial_tokens(int64_t n_seqs, int64_t seq_len);

/* How many windows of so many tokens a run measures divergence on, at most. */
int64_t sw_kl_probe_windows(int64_t seq_len);

#endif
