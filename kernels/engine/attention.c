/* attention.c - see attention.h. */
#include "kernels/engine/attention.h"

#include <cblas.h>
#include <math.h>
#include <string.h>

#include "formats/base/parallel.h"
#include "formats/base/size.h"

#define BLOCK_ROWS 128
#define BLOCK_KEYS 512
#define SCRATCH_FLOATS (BLOCK_ROWS * (BLOCK_KEYS + 2))

/* Queries that see the same keys through one product: consecutive tokens of one head
 * (position_step 1), or the heads of one group at one token (position_step 0). */
typedef struct query_rows {
    const float *q, *k, *v;
    float *out;
    int64_t n_rows, stride;
    int64_t position, position_step;
} query_rows;

size_t sw_attention_scratch_bytes(int n_threads)
{
    return (size_t)n_threads * SCRATCH_FLOATS * sizeof(float);
}

static int64_t group_heads(const sw_attention *a) { return a->n_heads / a->n_kv_heads; }

static query_rows rows_of_tokens(const sw_attention *a, int64_t item)
{
    const int64_t n_blocks = sw_ceil_div(a->seq_len, BLOCK_ROWS);
    const int64_t block = item % n_blocks, head = item / n_blocks % a->n_heads;
    const int64_t seq = item / n_blocks / a->n_heads, token = block * BLOCK_ROWS;
    const int64_t stride = a->n_heads * a->head_dim, kv_stride = a->n_kv_heads * a->head_dim;
    const int64_t at = (seq * a->seq_len + token) * stride + head * a->head_dim;
    const int64_t kv_at = seq * (a->first + a->seq_len) * kv_stride +
                          head / group_heads(a) * a->head_dim;

    return (query_rows){a->q + at, a->k + kv_at, a->v + kv_at, a->out + at,
                        sw_min_i64(BLOCK_ROWS, a->seq_len - token), stride, a->first + token, 1};
}

static query_rows rows_of_heads(const sw_attention *a, int64_t item)
{
    const int64_t n_blocks = sw_ceil_div(group_heads(a), BLOCK_ROWS);
    const int64_t block = item % n_blocks, kv_head = item / n_blocks % a->n_kv_heads;
    const int64_t seq = item / n_blocks / a->n_kv_heads;
    const int64_t head = kv_head * group_heads(a) + block * BLOCK_ROWS;
    const int64_t at = (seq * a->n_heads + head) * a->head_dim;
    const int64_t kv_at = (seq * (a->first + 1) * a->n_kv_heads + kv_head) * a->head_dim;

    return (query_rows){a->q + at, a->k + kv_at, a->v + kv_at, a->out + at,
                        sw_min_i64(BLOCK_ROWS, group_heads(a) - block * BLOCK_ROWS), a->head_dim,
                        a->first, 0};
}

/* Scores of keys [key, key + n_keys) into weights relative to the running maximum; rescales what
 * the row has summed so far. */
static void weigh_row(const sw_attention *a, const query_rows *rows, int64_t row, float *scores,
                      int64_t key, int64_t n_keys, float *top, float *sum)
{
    const int64_t position = rows->position + row * rows->position_step;
    const int64_t oldest = a->window ? sw_max_i64(0, position - a->window + 1) : 0;
    const int64_t begin = sw_min_i64(n_keys, sw_max_i64(0, oldest - key));
    const int64_t end = sw_max_i64(begin, sw_min_i64(n_keys, position + 1 - key));
    float peak, shrink = 0.0f;

    memset(scores, 0, (size_t)begin * sizeof *scores);
    memset(scores + end, 0, (size_t)(n_keys - end) * sizeof *scores);
    if (begin == end) return;
    peak = a->vec->max(scores + begin, end - begin);
    if (*top > peak) peak = *top;
    if (*top > -INFINITY) {
        shrink = *top - peak;
        a->vec->exp(&shrink, &shrink, 1);
        if (shrink != 1.0f) a->vec->scale(rows->out + row * rows->stride, shrink, a->head_dim);
    }
    *sum = *sum * shrink + a->vec->exp_sum(scores + begin, peak, end - begin);
    *top = peak;
}

static void attend(const sw_attention *a, const query_rows *rows, float *scratch)
{
    const blasint n_rows = (blasint)rows->n_rows, dim = (blasint)a->head_dim;
    const blasint stride = (blasint)rows->stride, ld = (blasint)(a->n_kv_heads * a->head_dim);
    const int64_t last = rows->position + (rows->n_rows - 1) * rows->position_step;
    const int64_t first_key = a->window ? sw_max_i64(0, rows->position - a->window + 1) : 0;
    const float scale = (float)(1.0 / sqrt((double)a->head_dim));
    float *scores = scratch, *top = scratch + BLOCK_ROWS * BLOCK_KEYS, *sum = top + BLOCK_ROWS;

    for (int64_t r = 0; r < rows->n_rows; r++) {
        top[r] = -INFINITY;
        sum[r] = 0.0f;
    }
    for (int64_t key = first_key; key <= last; key += BLOCK_KEYS) {
        const blasint n_keys = (blasint)sw_min_i64(BLOCK_KEYS, last + 1 - key);

        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, n_rows, n_keys, dim, scale, rows->q,
                    stride, rows->k + key * ld, ld, 0.0f, scores, BLOCK_KEYS);
        for (int64_t r = 0; r < rows->n_rows; r++)
            weigh_row(a, rows, r, scores + r * BLOCK_KEYS, key, n_keys, &top[r], &sum[r]);
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, n_rows, dim, n_keys, 1.0f, scores,
                    BLOCK_KEYS, rows->v + key * ld, ld, key == first_key ? 0.0f : 1.0f, rows->out,
                    stride);
    }
    for (int64_t r = 0; r < rows->n_rows; r++)
        a->vec->scale(rows->out + r * rows->stride, 1.0f / sum[r], a->head_dim);
}

static void attend_tokens(void *ctx, int64_t begin, int64_t end, int thread)
{
    const sw_attention *a = ctx;
    query_rows rows = rows_of_tokens(a, begin);

    (void)end;
    attend(a, &rows, a->scratch + (int64_t)thread * SCRATCH_FLOATS);
}

static void attend_heads(void *ctx, int64_t begin, int64_t end, int thread)
{
    const sw_attention *a = ctx;
    query_rows rows = rows_of_heads(a, begin);

    (void)end;
    attend(a, &rows, a->scratch + (int64_t)thread * SCRATCH_FLOATS);
}

void sw_attention_run(const sw_attention *a)
{
    sw_attention job = *a;

    if (a->seq_len == 1)
        sw_parallel_for(a->n_threads,
                        a->n_seqs * a->n_kv_heads * sw_ceil_div(group_heads(a), BLOCK_ROWS), 1,
                        attend_heads, &job);
    else
        sw_parallel_for(a->n_threads,
                        a->n_seqs * a->n_heads * sw_ceil_div(a->seq_len, BLOCK_ROWS), 1,
                        attend_tokens, &job);
}
