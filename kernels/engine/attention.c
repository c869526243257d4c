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
    int64_t n_rows, stride, out_stride;
    int64_t position, position_step;
    int64_t head, head_step;
    int64_t token; /* of the first row, among all of the call */
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
    const int64_t row = (seq * a->seq_len + token) * a->n_heads + head;
    const int64_t kv_row = seq * (a->first + a->seq_len) * a->n_kv_heads + head / group_heads(a);

    return (query_rows){.q = a->q + row * a->head_dim, .k = a->k + kv_row * a->head_dim,
                        .v = a->v + kv_row * a->v_head_dim, .out = a->out + row * a->v_head_dim,
                        .n_rows = sw_min_i64(BLOCK_ROWS, a->seq_len - token),
                        .stride = a->n_heads * a->head_dim,
                        .out_stride = a->n_heads * a->v_head_dim,
                        .position = a->first + token, .position_step = 1, .head = head,
                        .token = seq * a->seq_len + token};
}

static query_rows rows_of_heads(const sw_attention *a, int64_t item)
{
    const int64_t n_blocks = sw_ceil_div(group_heads(a), BLOCK_ROWS);
    const int64_t block = item % n_blocks, kv_head = item / n_blocks % a->n_kv_heads;
    const int64_t seq = item / n_blocks / a->n_kv_heads;
    const int64_t head = kv_head * group_heads(a) + block * BLOCK_ROWS;
    const int64_t row = seq * a->n_heads + head;
    const int64_t kv_row = seq * (a->first + 1) * a->n_kv_heads + kv_head;

    return (query_rows){.q = a->q + row * a->head_dim, .k = a->k + kv_row * a->head_dim,
                        .v = a->v + kv_row * a->v_head_dim, .out = a->out + row * a->v_head_dim,
                        .n_rows = sw_min_i64(BLOCK_ROWS, group_heads(a) - block * BLOCK_ROWS),
                        .stride = a->head_dim, .out_stride = a->v_head_dim,
                        .position = a->first, .head = head, .head_step = 1, .token = seq};
}

/* The first key that the query at a position sees. */
static int64_t oldest_key(const sw_attention *a, int64_t position)
{
    if (a->chunk) return position - position % a->chunk;
    return a->window ? sw_max_i64(0, position - a->window + 1) : 0;
}

static void add_slope(const sw_attention *a, const query_rows *rows, int64_t row, float *scores,
                      int64_t distance, int64_t n)
{
    const float slope = a->slopes[rows->head + row * rows->head_step];

    for (int64_t i = 0; i < n; i++) scores[i] += slope * (float)(distance + i);
}

/* The place of the first chosen key that is not before `key`. */
static int64_t find_chosen(const int32_t *chosen, int64_t n, int64_t key)
{
    int64_t low = 0, high = n;

    while (low < high) {
        const int64_t middle = (low + high) / 2;

        if (chosen[middle] >= 0 && chosen[middle] < key)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Scores of keys [key, key + n) that were not chosen become nothing. */
static void hide_others(const sw_attention *a, int64_t token, float *scores, int64_t key, int64_t n)
{
    const int32_t *chosen = a->chosen + token * a->n_chosen;
    int64_t at = find_chosen(chosen, a->n_chosen, key);

    for (int64_t i = 0; i < n; i++) {
        if (at < a->n_chosen && chosen[at] == key + i)
            at++;
        else
            scores[i] = -INFINITY;
    }
}

/* Scores of keys [key, key + n_keys) into weights relative to the running maximum; rescales what
 * the row has summed so far. */
static void weigh_row(const sw_attention *a, const query_rows *rows, int64_t row, float *scores,
                      int64_t key, int64_t n_keys, float *top, float *sum)
{
    const int64_t position = rows->position + row * rows->position_step;
    const int64_t oldest = oldest_key(a, position);
    const int64_t begin = sw_min_i64(n_keys, sw_max_i64(0, oldest - key));
    const int64_t end = sw_max_i64(begin, sw_min_i64(n_keys, position + 1 - key));
    float peak, shrink = 0.0f;

    memset(scores, 0, (size_t)begin * sizeof *scores);
    memset(scores + end, 0, (size_t)(n_keys - end) * sizeof *scores);
    if (begin == end) return;
    if (a->slopes)
        add_slope(a, rows, row, scores + begin, key + begin - position, end - begin);
    if (a->cap > 0.0) a->vec->softcap(scores + begin, (float)a->cap, end - begin);
    if (a->chosen)
        hide_others(a, rows->token + row * rows->position_step, scores + begin, key + begin,
                    end - begin);
    peak = a->vec->max(scores + begin, end - begin);
    if (a->chosen && peak == -INFINITY) {
        memset(scores + begin, 0, (size_t)(end - begin) * sizeof *scores);
        return;
    }
    if (*top > peak) peak = *top;
    if (*top > -INFINITY) {
        shrink = *top - peak;
        a->vec->exp(&shrink, &shrink, 1);
        if (shrink != 1.0f)
            a->vec->scale(rows->out + row * rows->out_stride, shrink, a->v_head_dim);
    }
    *sum = *sum * shrink + a->vec->exp_sum(scores + begin, peak, end - begin);
    *top = peak;
}

/* A sink is a key seen before all others: it has a score, and its value is zero. */
static void start_row(const sw_attention *a, const query_rows *rows, int64_t row, float *top,
                      float *sum)
{
    *top = -INFINITY;
    *sum = 0.0f;
    if (!a->sinks) return;
    *top = a->sinks[rows->head + row * rows->head_step];
    *sum = 1.0f;
    memset(rows->out + row * rows->out_stride, 0, (size_t)a->v_head_dim * sizeof(float));
}

static void attend(const sw_attention *a, const query_rows *rows, float *scratch)
{
    const blasint n_rows = (blasint)rows->n_rows, dim = (blasint)a->head_dim;
    const blasint v_dim = (blasint)a->v_head_dim;
    const blasint stride = (blasint)rows->stride, out_stride = (blasint)rows->out_stride;
    const blasint ld = (blasint)a->n_kv_heads * dim, v_ld = (blasint)a->n_kv_heads * v_dim;
    const int64_t last = rows->position + (rows->n_rows - 1) * rows->position_step;
    const int64_t first_key = oldest_key(a, rows->position);
    float *scores = scratch, *top = scratch + BLOCK_ROWS * BLOCK_KEYS, *sum = top + BLOCK_ROWS;

    for (int64_t r = 0; r < rows->n_rows; r++) start_row(a, rows, r, &top[r], &sum[r]);
    for (int64_t key = first_key; key <= last; key += BLOCK_KEYS) {
        const blasint n_keys = (blasint)sw_min_i64(BLOCK_KEYS, last + 1 - key);

        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, n_rows, n_keys, dim,
                    (float)a->scale, rows->q, stride, rows->k + key * ld, ld, 0.0f, scores,
                    BLOCK_KEYS);
        for (int64_t r = 0; r < rows->n_rows; r++)
            weigh_row(a, rows, r, scores + r * BLOCK_KEYS, key, n_keys, &top[r], &sum[r]);
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, n_rows, v_dim, n_keys, 1.0f, scores,
                    BLOCK_KEYS, rows->v + key * v_ld, v_ld, key == first_key ? 0.0f : 1.0f,
                    rows->out, out_stride);
    }
    for (int64_t r = 0; r < rows->n_rows; r++)
        a->vec->scale(rows->out + r * rows->out_stride, 1.0f / sum[r], a->v_head_dim);
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
