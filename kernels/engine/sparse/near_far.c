/* near_far.c - see near_far.h. */
#include "kernels/engine/sparse/near_far.h"

#include <cblas.h>
#include <math.h>

#include "formats/base/parallel.h"
#include "formats/base/size.h"

static int64_t thread_floats(const sw_near_far *a)
{
    return a->n_heads * (sw_min_i64(a->window, a->first + a->seq_len) + a->n_far);
}

int64_t sw_near_far_scratch(const sw_near_far *a) { return a->n_threads * thread_floats(a); }

static void hide_others(float *scores, int64_t n, const int32_t *chosen, int64_t n_chosen)
{
    int64_t at = 0;

    for (int64_t i = 0; i < n; i++) {
        if (at < n_chosen && chosen[at] == i)
            at++;
        else
            scores[i] = -INFINITY;
    }
}

/* Scores of a head into weights; returns what the output is to be divided by. */
static float weigh(const sw_near_far *a, int64_t head, float *scores, int64_t n)
{
    const float peak = a->vec->max(scores, n), sink = a->sinks[head];
    const float top = peak > sink ? peak : sink;
    float rest = sink - top;

    a->vec->exp(&rest, &rest, 1);
    return rest + a->vec->exp_sum(scores, top, n);
}

/* By the opposite of the angle. */
static void turn_back(float *x, const float *cos, const float *sin, int64_t half)
{
    for (int64_t i = 0; i < half; i++) {
        const float low = x[2 * i], high = x[2 * i + 1];

        x[2 * i] = low * cos[i] + high * sin[i];
        x[2 * i + 1] = high * cos[i] - low * sin[i];
    }
}

/* What one query's product of weights and keys is made of. */
typedef struct keys_seen {
    const float *near, *far;
    int64_t n_near, n_far;
} keys_seen;

static keys_seen keys_of(const sw_near_far *a, int64_t row, int64_t position)
{
    const int64_t seq = row / a->seq_len, n_near = sw_min_i64(a->window, position + 1);
    const int64_t oldest = seq * (a->first + a->seq_len) + position + 1 - n_near;

    return (keys_seen){a->near + oldest * a->stride, a->far + seq * a->n_far * a->dim, n_near,
                       a->rate ? sw_min_i64(a->n_far, (position + 1) / a->rate) : 0};
}

static void attend(const sw_near_far *a, int64_t row, float *scores)
{
    const int64_t position = a->first + row % a->seq_len;
    const keys_seen k = keys_of(a, row, position);
    const blasint heads = (blasint)a->n_heads, dim = (blasint)a->dim, ld = (blasint)a->stride;
    const blasint n_near = (blasint)k.n_near, n_far = (blasint)k.n_far, n = n_near + n_far;
    const float *q = a->q + row * a->n_heads * a->dim, scale = (float)a->scale;
    float *out = a->out + row * a->n_heads * a->dim;
    const int64_t at = position * a->half, turned = a->dim - 2 * a->half;

    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, heads, n_near, dim, scale, q, dim, k.near,
                ld, 0.0f, scores, n);
    if (n_far)
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, heads, n_far, dim, scale, q, dim,
                    k.far, dim, 0.0f, scores + n_near, n);
    for (int64_t h = 0; h < a->n_heads; h++) {
        float *head = scores + h * n;

        if (a->chosen)
            hide_others(head + n_near, n_far, a->chosen + row * a->n_chosen, a->n_chosen);
        a->vec->scale(head, 1.0f / weigh(a, h, head, n), n);
    }
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, heads, dim, n_near, 1.0f, scores, n,
                k.near, ld, 0.0f, out, dim);
    if (n_far)
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, heads, dim, n_far, 1.0f,
                    scores + n_near, n, k.far, dim, 1.0f, out, dim);
    for (int64_t h = 0; h < a->n_heads; h++)
        turn_back(out + h * a->dim + turned, a->cos + at, a->sin + at, a->half);
}

static void attend_task(void *ctx, int64_t begin, int64_t end, int thread)
{
    const sw_near_far *a = ctx;

    for (int64_t row = begin; row < end; row++)
        attend(a, row, a->scratch + thread * thread_floats(a));
}

void sw_near_far_run(const sw_near_far *a)
{
    sw_near_far job = *a;

    sw_parallel_for(a->n_threads, a->n_seqs * a->seq_len, 1, attend_task, &job);
}
