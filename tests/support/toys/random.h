/* random.h - the tests' own generator: SplitMix64, the same numbers everywhere. */
#ifndef SW_TESTS_SUPPORT_TOYS_RANDOM_H
#define SW_TESTS_SUPPORT_TOYS_RANDOM_H

#include <stdint.h>

typedef struct test_rng {
    uint64_t state;
} test_rng;

static inline uint64_t test_u64(test_rng *rng)
{
    uint64_t z = rng->state += 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Uniform in [0, 1). */
static inline double test_uniform(test_rng *rng) { return (double)(test_u64(rng) >> 11) * 0x1p-53; }

/* Near enough to normal for test data: twelve uniforms. */
static inline double test_gauss(test_rng *rng)
{
    double sum = -6;

    for (int i = 0; i < 12; i++) sum += test_uniform(rng);
    return sum;
}

#endif
