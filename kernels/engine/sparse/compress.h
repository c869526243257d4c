/* compress.h - one key for every so many tokens: a weighted mean of what their rows make.
 *
 *   key[w, c] = norm(sum over slots of softmax over slots(gate + position)[c] * value[c])
 *
 * Slots are the tokens of window w; where windows overlap, the second half of each row's channels
 * counts there, and the first half with the tokens of window w - 1. A key turns by the position of
 * its window's first token. As DeepSeek-V4 has it (DeepSeek-AI, 2026, section 2.3).
 */
#ifndef SW_KERNELS_ENGINE_SPARSE_COMPRESS_H
#define SW_KERNELS_ENGINE_SPARSE_COMPRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/engine/vec/vec.h"

typedef struct sw_compress {
    const float *values;    /* [n_seqs * n_tokens, width], rows `stride` apart; width is dim, or */
    const float *gates;     /* 2 dim where windows overlap; likewise */
    int64_t stride;
    const float *positions; /* [rate, width] */
    const float *norm;      /* [dim] */
    float eps;
    float *out;             /* [n_seqs * (n_tokens / rate), dim] */
    int64_t n_seqs, n_tokens, rate, dim;
    bool overlaps;
    const float *cos, *sin; /* [n_tokens, half]: neighbours among a key's last 2 half channels */
    int64_t half;           /* turn */
    const sw_vec *vec;
    int n_threads;
} sw_compress;

/* Windows that are not full make no key. Allocates nothing and cannot fail; the bytes do not depend
 * on the number of threads. */
void sw_compress_run(const sw_compress *c);

#endif
