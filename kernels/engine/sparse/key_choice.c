/* key_choice.c - see key_choice.h. */
#include "kernels/engine/sparse/key_choice.h"

#include <cblas.h>
#include <stddef.h>

#include "formats/base/parallel.h"
#include "formats/base/size.h"
#include "kernels/engine/sparse/key_digits.h"

#define BLOCK_KEYS 512

/* Of one thread: products of a block of keys, a score of every key, and the scores as integers. */
static int64_t thread_floats(int64_t n_heads, int64_t n_keys)
{
    return n_heads * BLOCK_KEYS + 2 * n_keys;
}

int64_t sw_key_choice_scratch(int64_t n_heads, int64_t n_keys, int n_threads)
{
    return n_threads * thread_floats(n_heads, n_keys);
}

static void score_keys(const sw_key_choice *c, float *scores, float *products, int64_t row,
                       int64_t n)
{
    const blasint dim = (blasint)c->head_dim, n_heads = (blasint)c->n_heads;
    const float *q = c->q + row * c->n_heads * c->head_dim, *w = c->weights + row * c->n_heads;
    const float *keys = c->keys + row / c->seq_len * c->n_keys * c->head_dim;

    for (int64_t key = 0; key < n; key += BLOCK_KEYS) {
        const blasint n_now = (blasint)sw_min_i64(BLOCK_KEYS, n - key);

        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, n_heads, n_now, dim, 1.0f, q, dim,
                    keys + key * dim, dim, 0.0f, products, BLOCK_KEYS);
        for (int64_t i = 0; i < n_now; i++) {
            float sum = 0.0f;

            for (int64_t h = 0; h < c->n_heads; h++)
                sum += sw_key_share(w[h], products[h * BLOCK_KEYS + i]);
            scores[key + i] = sum;
        }
    }
}

/* The top_k-th largest, bit by bit: the largest bound that so many reach. */
static uint32_t find_bound(const uint32_t *ranks, int64_t n, int64_t top_k)
{
    uint32_t bound = 0;

    for (int bit = 31; bit >= 0; bit--) {
        const uint32_t higher = bound | (uint32_t)1 << bit;
        int64_t n_reach = 0;

        for (int64_t i = 0; i < n; i++) n_reach += ranks[i] >= higher;
        if (n_reach >= top_k) bound = higher;
    }
    return bound;
}

static void choose(int32_t *out, const uint32_t *ranks, int64_t n, int64_t top_k)
{
    const uint32_t bound = find_bound(ranks, n, top_k);
    int64_t n_equal = top_k, n_out = 0;

    for (int64_t i = 0; i < n; i++) n_equal -= ranks[i] > bound;
    for (int64_t i = 0; i < n; i++)
        if (ranks[i] > bound || (ranks[i] == bound && n_equal-- > 0)) out[n_out++] = (int32_t)i;
}

static void choose_task(void *ctx, int64_t begin, int64_t end, int thread)
{
    const sw_key_choice *c = ctx;
    float *products = c->scratch + thread * thread_floats(c->n_heads, c->n_keys);
    float *scores = products + c->n_heads * BLOCK_KEYS;
    uint32_t *ranks = (uint32_t *)(scores + c->n_keys);

    for (int64_t row = begin; row < end; row++) {
        const int64_t position = c->first + row % c->seq_len;
        const int64_t n = sw_min_i64(c->n_keys, (position + 1) / c->tokens_per_key);
        int32_t *out = c->chosen + row * c->top_k;

        if (n > c->top_k) {
            score_keys(c, scores, products, row, n);
            for (int64_t i = 0; i < n; i++) ranks[i] = sw_key_rank(scores[i]);
            choose(out, ranks, n, c->top_k);
        } else {
            for (int64_t i = 0; i < c->top_k; i++) out[i] = i < n ? (int32_t)i : -1;
        }
    }
}

void sw_key_choice_run(const sw_key_choice *choice)
{
    sw_key_choice job = *choice;

    sw_parallel_for(choice->n_threads, choice->n_seqs * choice->seq_len, 1, choose_task, &job);
}
