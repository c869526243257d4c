/* test_round_rows.c - rows rounded as they lie give the numbers of slabs, bit by bit. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "formats/base/mem.h"
#include "formats/num/half.h"
#include "quant/method/round_rows.h"
#include "quant/method/slab.h"
#include "tests/support/toys/random.h"

enum { N = 67, K_MOST = 400 };

/* What plain rounding is defined by: through a slab. */
static void by_slabs(sw_qtensor *q, const sw_solve_problem *p)
{
    sw_slab slab;
    sw_err err = {0};

    assert_int_equal(sw_slab_new(&slab, &p->spec, p->k_in, &err), SW_OK);
    for (int64_t row = 0; row < p->n_out; row += SW_SLAB_ROWS) {
        const int64_t n = p->n_out - row < SW_SLAB_ROWS ? p->n_out - row : SW_SLAB_ROWS;

        sw_slab_load(&slab, p->w, NULL, row, n);
        sw_slab_fit_range(&slab, &p->spec);
        sw_slab_round(&slab, p->spec.num);
        sw_slab_store(&slab, q, row, n);
    }
    sw_slab_free(&slab);
}

/* Weights of bf16, some of them where rounding and ranges are delicate. */
static void fill(float *w, int64_t n, test_rng *rng)
{
    static const float odd[] = {0.0f, -0.0f, 1.0f, -1.0f, 0.5f, -0.5f, 0x1p-133f, -0x1p-133f,
                                3e38f, -3e38f, 0x1p-126f, 7.5f, -8.0f, 1e-20f};

    for (int64_t i = 0; i < n; i++) {
        const uint64_t kind = test_u64(rng) % 64;
        w[i] = kind < 2 ? odd[test_u64(rng) % (sizeof odd / sizeof *odd)]
               : kind < 8 ? (float)((int)(test_u64(rng) % 31) - 15) / 2 /* many ties */
                          : sw_bf16_decode(sw_bf16_encode((float)test_gauss(rng)));
    }
    for (int64_t i = 0; i < n && i < 128; i++) w[i] = i < 64 ? 0.0f : -0.0f;  /* nothing at all */
    for (int64_t i = 128; i < n && i < 256; i++) w[i] = -fabsf(w[i]);        /* of one sign */
}

static void compare(const sw_qspec *spec, int64_t k, test_rng *rng)
{
    static float w[N * K_MOST];
    const sw_solve_problem p = {.w = w, .n_out = N, .k_in = k, .spec = *spec, .n_threads = 1};
    sw_qtensor have = {0}, want = {0};
    sw_err err = {0};

    fill(w, N * k, rng);
    assert_int_equal(sw_qtensor_alloc(&have, spec, N, k, &err), SW_OK);
    assert_int_equal(sw_qtensor_alloc(&want, spec, N, k, &err), SW_OK);
    by_slabs(&want, &p);
    sw_round_rows(&have, &p, 0, 3); /* in parts, as threads do */
    sw_round_rows(&have, &p, 3, N - 3);
    assert_memory_equal(have.codes, want.codes, (size_t)(N * k));
    assert_memory_equal(have.scales, want.scales, (size_t)(N * have.n_groups) * sizeof(float));
    if (want.zeros) assert_memory_equal(have.zeros, want.zeros, (size_t)(N * have.n_groups));
    sw_qtensor_free(&have);
    sw_qtensor_free(&want);
}

static void test_rows_are_slabs(void **state)
{
    static const int64_t groups[] = {0, 16, 32, 100, 128}, widths[] = {1, 64, 130, 384, 400};
    static const sw_dtype dtypes[] = {SW_DTYPE_F16, SW_DTYPE_BF16, SW_DTYPE_F32};
    test_rng rng = {7};

    (void)state;
    for (int bits = 2; bits <= 8; bits++)
        for (int is_symmetric = 0; is_symmetric < 2; is_symmetric++)
            for (int g = 0; g < 5; g++) {
                sw_qspec spec = {.num = sw_num_by_bits(bits), .is_symmetric = is_symmetric != 0,
                                 .group_elems = groups[g], .scale_dtype = dtypes[g % 3],
                                 .zero_min = g % 2};
                if (!spec.num) continue;
                for (int i = 0; i < 5; i++) compare(&spec, widths[i], &rng);
            }
}

/* What it cannot do is left to slabs. */
static void test_it_serves_plain_integers_alone(void **state)
{
    static const double importance[1] = {1}, shared[1] = {1};
    sw_solve_problem p = {.spec = {.num = sw_num_by_bits(4), .is_symmetric = true}};
    sw_frame frame = {.global = 1.0f};
    sw_factor factor = {0};

    (void)state;
    assert_true(sw_round_rows_serves(&p, &frame));
    p.importance = importance;
    assert_false(sw_round_rows_serves(&p, &frame));
    p.importance = NULL;
    p.factor = &factor;
    assert_false(sw_round_rows_serves(&p, &frame));
    p.factor = NULL;
    frame.shared = (double *)(uintptr_t)shared;
    assert_false(sw_round_rows_serves(&p, &frame));
    frame.shared = NULL;
    frame.global = 0.5f;
    assert_false(sw_round_rows_serves(&p, &frame));
    frame.global = 1.0f;
    p.spec.num = sw_num_find("e4m3");
    assert_non_null(p.spec.num);
    assert_false(sw_round_rows_serves(&p, &frame));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_are_slabs),
        cmocka_unit_test(test_it_serves_plain_integers_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
