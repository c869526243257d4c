/* noise.c - what a model makes of errors as large as rounding leaves. See engine.h. */
#include <math.h>

#include "formats/base/parallel.h"
#include "kernels/engine/engine_internal.h"

void sw_engine_set_noise(sw_engine *e, double share, uint64_t seed)
{
    e->noise = share;
    e->noise_seed = seed;
}

typedef struct noise_job {
    float *x;
    int64_t width;
    double share;
    uint64_t seed;
} noise_job;

/* SplitMix64: one number of the sequence that starts at `seed`. */
static uint64_t number_at(uint64_t seed, uint64_t i)
{
    uint64_t z = seed + (i + 1) * 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* Mean 0 and deviation 1, nearly normal: the sum of four numbers of 16 bits. */
static double normal_at(uint64_t seed, uint64_t i)
{
    const uint64_t z = number_at(seed, i);
    double sum = 0.0;

    for (int k = 0; k < 4; k++) sum += (double)(z >> 16 * k & 0xffff) / 65535.0 - 0.5;
    return sum * sqrt(3.0);
}

static void noise_task(void *ctx, int64_t begin, int64_t end, int thread)
{
    const noise_job *job = ctx;

    (void)thread;
    for (int64_t t = begin; t < end; t++) {
        float *row = job->x + t * job->width;
        double squares = 0.0, size;

        for (int64_t i = 0; i < job->width; i++) squares += (double)row[i] * (double)row[i];
        size = job->share * sqrt(squares / (double)job->width);
        for (int64_t i = 0; i < job->width; i++)
            row[i] += (float)(size * normal_at(job->seed, (uint64_t)(t * job->width + i)));
    }
}

void sw_add_noise(sw_engine *e, float *x, int64_t n_rows, int64_t width)
{
    noise_job job = {.x = x, .width = width, .share = e->noise};

    if (!(e->noise > 0.0)) return;
    job.seed = number_at(e->noise_seed++, 0);
    sw_parallel_for(e->n_threads, n_rows, SW_TOKENS_PER_TASK, noise_task, &job);
}
