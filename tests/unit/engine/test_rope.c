/* test_rope.c - rotary frequencies of every kind against formulas written a second time, and
 * against numbers worked out by hand. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "tests/support/toys/plain_decoder.h"

#define HALF 32

static sw_model with(sw_rope rope, int64_t max_positions)
{
    sw_model m = {.head_dim = 2 * HALF, .rope_dim = 2 * HALF, .max_positions = max_positions};

    m.rope = rope;
    return m;
}

static void check(const sw_model *m, int64_t n_positions)
{
    float f[HALF], scale;

    sw_rope_frequencies(f, &scale, m, &m->rope, n_positions);
    for (int64_t i = 0; i < HALF; i++) {
        const double want = plain_frequency(m, i, n_positions);

        if (!(fabs((double)f[i] - want) <= 1e-6 * want))
            fail_msg("%s, pair %lld: %.9g, want %.9g", sw_rope_kind_name(m->rope.kind),
                     (long long)i, (double)f[i], want);
    }
    assert_true(fabs((double)scale - plain_rope_scale(m)) < 1e-7);
}

static void test_every_kind(void **state)
{
    const sw_rope llama3 = {.kind = SW_ROPE_LLAMA3, .theta = 5e5, .factor = 8,
                            .low_freq_factor = 1, .high_freq_factor = 4,
                            .original_max_positions = 8192};
    const sw_rope yarn = {.kind = SW_ROPE_YARN, .theta = 1e6, .factor = 4, .beta_fast = 32,
                          .beta_slow = 1, .attention_factor = -1, .truncate = true,
                          .original_max_positions = 32768};
    sw_rope other = yarn;
    sw_model m;

    (void)state;
    m = with((sw_rope){.kind = SW_ROPE_DEFAULT, .theta = 1e4}, 512), check(&m, 512);
    m = with((sw_rope){.kind = SW_ROPE_LINEAR, .theta = 1e4, .factor = 2.5}, 512), check(&m, 9);
    m = with((sw_rope){.kind = SW_ROPE_DYNAMIC, .theta = 1e4, .factor = 2}, 64);
    check(&m, 10);
    check(&m, 64);
    check(&m, 65);
    check(&m, 1000);
    m = with(llama3, 131072), check(&m, 1);
    m = with(yarn, 131072), check(&m, 1);
    other.truncate = false;
    m = with(other, 131072), check(&m, 1);
    other.attention_factor = 1.25;
    m = with(other, 131072), check(&m, 1);
    other.attention_factor = -1;
    other.mscale = 1.0;
    other.mscale_all_dim = 0.5;
    m = with(other, 131072), check(&m, 1);
    other.factor = 1;
    m = with(other, 131072), check(&m, 1);
    other.factor = 4;
    other.original_max_positions = 4; /* both ends of the ramp fall on the same dimension */
    m = with(other, 131072), check(&m, 1);
}

static void test_longrope(void **state)
{
    sw_rope rope = {.kind = SW_ROPE_LONGROPE, .theta = 1e4, .factor = 32, .attention_factor = -1,
                    .original_max_positions = 4096};
    sw_model m;
    float f[HALF], scale;

    (void)state;
    for (int i = 0; i < HALF; i++) {
        rope.short_factors[i] = 1.0f + 0.01f * (float)i;
        rope.long_factors[i] = 1.0f + (float)i;
    }
    m = with(rope, 131072), check(&m, 4096);
    check(&m, 4097);
    assert_true(!sw_rope_depends_on(&m, &m.rope, 4096) && sw_rope_depends_on(&m, &m.rope, 4097));
    /* sqrt(1 + 5 ln 2 / 12 ln 2); pair 16 is a hundredth over its factor */
    sw_rope_frequencies(f, &scale, &m, &m.rope, 5000);
    assert_true(fabsf(scale - 1.1902381f) < 1e-6f && fabsf(f[16] - 1e-2f / 17) < 1e-9f);
    rope.attention_factor = 1.5;
    m = with(rope, 131072), check(&m, 1);
    rope.attention_factor = -1;
    rope.factor = 1;
    m = with(rope, 4096), check(&m, 1);
}

/* Worked by hand, so that both programs being wrong alike would show. theta 10000, D 64. */
static void test_by_hand(void **state)
{
    float f[HALF], scale;
    sw_model m = with((sw_rope){.kind = SW_ROPE_DEFAULT, .theta = 1e4}, 512);

    (void)state;
    sw_rope_frequencies(f, &scale, &m, &m.rope, 1);
    assert_true(f[0] == 1.0f && fabsf(f[8] - 0.1f) < 1e-8f && fabsf(f[24] - 1e-3f) < 1e-9f);
    m = with((sw_rope){.kind = SW_ROPE_LINEAR, .theta = 1e4, .factor = 4}, 512);
    sw_rope_frequencies(f, &scale, &m, &m.rope, 1);
    assert_true(f[0] == 0.25f && fabsf(f[16] - 0.0025f) < 1e-9f);
    /* 2 * 1024 / 512 - 1 = 3, times theta to the power 64/62: base 31082.24; pair 16: base^-0.5 */
    m = with((sw_rope){.kind = SW_ROPE_DYNAMIC, .theta = 1e4, .factor = 2}, 512);
    sw_rope_frequencies(f, &scale, &m, &m.rope, 1024);
    assert_true(fabsf(f[16] - 5.67210e-3f) < 2e-8f);
    sw_rope_frequencies(f, &scale, &m, &m.rope, 512);
    assert_true(fabsf(f[16] - 1e-2f) < 1e-8f);
    /* llama3: wavelength 2 pi below 8192 / 4 keeps, far above 8192 divides by 8 */
    m = with((sw_rope){.kind = SW_ROPE_LLAMA3, .theta = 5e5, .factor = 8, .low_freq_factor = 1,
                       .high_freq_factor = 4, .original_max_positions = 8192}, 131072);
    sw_rope_frequencies(f, &scale, &m, &m.rope, 1);
    assert_true(f[0] == 1.0f && fabsf(f[31] / (float)pow(5e5, -62.0 / 64) - 0.125f) < 1e-6f);
    /* yarn: 0.1 ln 4 + 1 on cosines; pair 0 turns often, so it is kept; pair 31 is divided by 4 */
    m = with((sw_rope){.kind = SW_ROPE_YARN, .theta = 1e4, .factor = 4, .beta_fast = 32,
                       .beta_slow = 1, .attention_factor = -1, .truncate = true,
                       .original_max_positions = 2048}, 8192);
    sw_rope_frequencies(f, &scale, &m, &m.rope, 1);
    assert_true(fabsf(scale - 1.1386294f) < 1e-6f && f[0] == 1.0f);
    assert_true(fabsf(f[31] / (float)pow(1e4, -62.0 / 64) - 0.25f) < 1e-6f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_kind),
        cmocka_unit_test(test_longrope),
        cmocka_unit_test(test_by_hand),
    };
    return cmocka_run_group_tests_name("rope", tests, NULL, NULL);
}
