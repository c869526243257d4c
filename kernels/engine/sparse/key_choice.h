/* key_choice.h - which keys a query may see, by a light score of every one before it.
 *
 *   score(t, s) = sum over heads h of weights[t, h] * max(0, q[t, h] . keys[s])
 *
 * and the top_k largest scores win. This is the lightning indexer of DeepSeek-V3.2 (DeepSeek-AI,
 * DeepSeek-V3.2-Exp: Boosting Long-Context Efficiency with DeepSeek Sparse Attention, 2025, section
 * 2.1). Factors on the scores are the caller's, in its weights; one above 0 changes no choice.
 */
#ifndef SW_KERNELS_ENGINE_SPARSE_KEY_CHOICE_H
#define SW_KERNELS_ENGINE_SPARSE_KEY_CHOICE_H

#include <stdint.h>

typedef struct sw_key_choice {
    const float *q;       /* [n_seqs * seq_len, n_heads * head_dim] */
    const float *weights; /* [n_seqs * seq_len, n_heads] */
    const float *keys;    /* [n_seqs * n_keys, head_dim] */
    int32_t *chosen;      /* out [n_seqs * seq_len, top_k]: numbers of keys within the sequence,
                           * rising; what is left of a row is -1 */
    int64_t n_seqs, seq_len;
    int64_t first;        /* position of each sequence's first query */
    int64_t n_keys;       /* of a sequence */
    int64_t tokens_per_key; /* the query at position t may choose of the first (t + 1) / this */
    int64_t n_heads, head_dim, top_k;
    float *scratch;       /* sw_key_choice_scratch floats */
    int n_threads;
} sw_key_choice;

int64_t sw_key_choice_scratch(int64_t n_heads, int64_t n_keys, int n_threads);
/* Scores in float32. Of equal scores the earlier key wins; a NaN has a place like any number, so
 * that a row is always filled. The bytes do not depend on the number of threads. */
void sw_key_choice_run(const sw_key_choice *choice);

#endif
