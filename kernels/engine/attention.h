/* attention.h - causal grouped-query attention over blocks of queries and keys; inside engine/. */
#ifndef SW_KERNELS_ENGINE_ATTENTION_H
#define SW_KERNELS_ENGINE_ATTENTION_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/engine/vec/vec.h"

typedef struct sw_attention {
    const float *q;      /* [n_seqs * seq_len, n_heads * head_dim] */
    const float *k;      /* [n_seqs * n_keys, n_kv_heads * head_dim]; n_keys = first + seq_len */
    const float *v;      /* likewise, v_head_dim to a head */
    float *out;          /* [n_seqs * seq_len, n_heads * v_head_dim] */
    int64_t n_seqs, seq_len;
    int64_t first;       /* position of each sequence's first query; keys start at position 0 */
    int64_t n_heads, n_kv_heads, head_dim, v_head_dim;
    double scale;        /* on the products of queries and keys */
    double cap;          /* scores become cap * tanh(score / cap); 0: they stay */
    const float *sinks;  /* [n_heads] scores of keys without a value, or NULL */
    int64_t window;      /* query i sees key j iff 0 <= i - j < window; 0: no window */
    int64_t chunk;       /* and iff i / chunk == j / chunk; 0: no chunks */
    const int32_t *chosen; /* [n_seqs * seq_len, n_chosen]: the only keys that a query sees, rising;
                          * what is left of a row is -1. NULL: it sees all that the above let */
    int64_t n_chosen;
    const float *slopes; /* [n_heads]: scores get slope * (j - i); NULL: they do not */
    const sw_vec *vec;
    float *scratch;      /* sw_attention_scratch_bytes(n_threads) */
    int n_threads;
} sw_attention;

size_t sw_attention_scratch_bytes(int n_threads);
/* Softmax in f32 with the running maximum of Milakov and Gimelshein, Online normalizer
 * calculation for softmax (2018), over key blocks. One task per sequence, head and block of
 * queries (or, for a single query, per group of heads that share keys), each computed the same
 * way whatever else is in the batch and however many threads there are. */
void sw_attention_run(const sw_attention *a);

#endif
