/* short_conv.h - a causal convolution over the last few tokens, each channel for itself.
 *
 *   u[t, c] = x[t, c] * before[t, c]                              (u = x without a gate before)
 *   y[t, c] = act(bias[c] + sum over j < n_taps of taps[j, c] * u[t - (n_taps - 1) + j, c])
 *   x[t, c] = y[t, c] * after[t, c]                               (y without a gate after)
 *
 * The last tap weighs the current token. What came before the first token is zero, or what the
 * state remembers. With a SiLU it stands before the state-space models of Mamba (Gu and Dao, 2023,
 * section 3.4) and Mamba-2 (Dao and Gu, 2024, section 7) and the delta rules of Gated DeltaNet
 * (Yang, Kautz and Hatamizadeh, 2024, section 3.4) and Kimi Linear (2025, section 4); with both
 * gates and no SiLU it is the whole mixer of LFM2 (LFM2 Technical Report, Liquid AI, 2025: gated
 * short convolution blocks).
 */
#ifndef SW_KERNELS_ENGINE_MIXERS_SHORT_CONV_H
#define SW_KERNELS_ENGINE_MIXERS_SHORT_CONV_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/engine/vec/vec.h"

#define SW_CONV_TAPS_MAX 16

typedef struct sw_short_conv {
    float *x;            /* [n_seqs * seq_len, width], rows `stride` apart; the output goes there */
    const float *before; /* [n_seqs * seq_len, width], rows `stride` apart, or NULL */
    const float *after;  /* likewise */
    const float *taps;   /* [n_taps, width] */
    const float *bias;   /* [width], or NULL */
    float *state;        /* [n_seqs, n_taps - 1, width]: the last values of u, oldest first; read
                          * and replaced. NULL: zeros, and nothing is remembered */
    int64_t n_seqs, seq_len, width, stride;
    int64_t n_taps;      /* 1 to SW_CONV_TAPS_MAX */
    bool has_silu;
    const sw_vec *vec;
    int n_threads;
} sw_short_conv;

/* Floats of the state of one sequence. */
int64_t sw_short_conv_state(int64_t n_taps, int64_t width);
/* In float32. Every output is computed the same way whatever the batch, the cut into calls and the
 * number of threads. Allocates nothing and cannot fail. */
void sw_short_conv_run(const sw_short_conv *conv);

#endif
