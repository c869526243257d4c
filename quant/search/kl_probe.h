/* kl_probe.h - what a change in one place of a model does to its predictions.
 *
 * One forward pass over the blocks carries several streams of the same few calibration tokens:
 * the original model's, and one per probe, which differs from it in one block. At the end each
 * probe's predictions are compared with the original's. Every block is loaded once; memory is
 * O(one block + streams), and the number of tokens is chosen so that the streams stay small.
 */
#ifndef SW_QUANT_SEARCH_KL_PROBE_H
#define SW_QUANT_SEARCH_KL_PROBE_H

#include "kernels/engine/engine.h"
#include "quant/run/pipeline.h"

typedef struct sw_kl_probe {
    const sw_model *model;
    int64_t n_seqs, seq_len;
    sw_engine *engine;
    float *base;         /* [n_seqs * seq_len, hidden], at the input of the present block */
    float **streams;     /* [n] those of blocks before; at the same place */
    int64_t n, n_max, n_settled; /* n_settled: those that the present block has not begun */
} sw_kl_probe;

/* How many windows of so many tokens a run looks at, at most. */
int64_t sw_kl_probe_windows(int64_t seq_len);

/* How many tokens of `calib` n_max probes get. */
int64_t sw_kl_probe_tokens(const sw_model *model, const sw_calib *calib, int64_t n_max);

/* Tokens from the first windows of `calib`, at most n_max probes. */
sw_code sw_kl_probe_new(sw_kl_probe *out, const sw_model *model, const sw_st *st,
                        const sw_calib *calib, int64_t n_max, int n_threads,
                        sw_err *err) SW_MUST_USE;
void sw_kl_probe_free(sw_kl_probe *p); /* accepts a zeroed one */

/* One more probe: the present block as `changed`, everything else as it is. */
sw_code sw_kl_probe_add(sw_kl_probe *p, const sw_block *changed, sw_err *err) SW_MUST_USE;
/* All streams through the present block; call once a block, after its probes were added. */
sw_code sw_kl_probe_advance(sw_kl_probe *p, const sw_block *original, sw_err *err) SW_MUST_USE;
/* After the last block: kl [n] = mean over the tokens of KL(original || probe), in nats. */
sw_code sw_kl_probe_finish(double *kl, sw_kl_probe *p, const sw_st *st,
                           const sw_linear_source *source, sw_err *err) SW_MUST_USE;

#endif
