/* test_engine_products.c - products of one token and of experts, with what stands around them,
 * against sums in double. Exit 77 without a GPU. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "formats/model/model.h"
#include "formats/num/act.h"
#include "formats/num/half.h"
#include "kernels/cuda/gemm/column_tiles.h"
#include "kernels/engine/vec/vec.h"
#include "tests/gpu/support/emulated.h"
#include "tests/gpu/support/fused_case.h"
#include "tests/support/toys/open_model.h"
#include "tests/support/toys/random.h"

#define ROUNDING 4e-3 /* relative L2 of one rounding to BF16 */

static sw_device *gpu;
static sw_launch how;

/* The strips of the second do not fill the last CTA. Of four bits, those behind the fourth:
 * multiprocessors with three strips and two, more strips than two CTAs of each can have, gates
 * with few units, the longest rows, and normed ones whose rings do not hold all. */
static const fused_case ones[] = {
    {4096, 4096, 128, false, true, false, SW_FUSED_STORE, F16, 0, 0},
    {48, 1280, 256, true, false, true, SW_FUSED_ADD, SW_DTYPE_BF16, 0, 0},
    {28672, 4096, 128, true, true, false, SW_FUSED_GLU, F16, 0, 0},
    {4096, 14336, 0, false, false, false, SW_FUSED_ADD, F16, 0, 0},
    {10240, 512, 128, false, true, true, SW_FUSED_STORE, F16, 0, 0},
    {34816, 256, 128, false, false, true, SW_FUSED_STORE, F16, 0, 0},
    {96, 384, 128, true, true, true, SW_FUSED_GLU, SW_DTYPE_BF16, 0, 0},
    {48, 16384, 128, false, false, false, SW_FUSED_STORE, F16, 0, 0},
    {48, 8192, 128, false, true, false, SW_FUSED_STORE, F16, 0, 0},
    {96, 4096, 128, true, true, true, SW_FUSED_GLU, SW_DTYPE_BF16, 0, 0},
    {6144, 4096, 0, false, true, true, SW_FUSED_STORE, F32, SW_NUM_E4M3, SW_ACT_TOKEN},
    {4096, 14336, 0, false, false, false, SW_FUSED_ADD, F32, SW_NUM_E4M3, SW_ACT_TENSOR},
    {28672, 4096, 0, false, true, true, SW_FUSED_GLU, SW_DTYPE_BF16, SW_NUM_E4M3, SW_ACT_TOKEN},
    {4096, 14336, 128, false, false, false, SW_FUSED_ADD, F32, SW_NUM_E4M3, SW_ACT_GROUP},
    {1024, 8192, 128, false, true, false, SW_FUSED_GLU, F32, SW_NUM_E4M3, SW_ACT_GROUP},
    {6144, 4096, 0, false, true, false, SW_FUSED_STORE, F16, SW_NUM_INT8, SW_ACT_TOKEN},
    {4096, 14336, 0, false, false, true, SW_FUSED_ADD, F32, SW_NUM_INT8, SW_ACT_TOKEN},
    {96, 384, 0, false, true, true, SW_FUSED_GLU, F16, SW_NUM_INT8, SW_ACT_TENSOR},
};

/* The product in double, of the rounded input. */
static void expect_product(double *want, const sw_qtensor *q, const float *x, const float *bias)
{
    float *w = malloc(4 * (size_t)(q->n_out * q->k_in));

    sw_qtensor_decode(w, q);
    for (int64_t n = 0; n < q->n_out; n++) {
        want[n] = bias ? (double)bias[n] : 0;
        for (int64_t k = 0; k < q->k_in; k++)
            want[n] += (double)w[n * q->k_in + k] * (double)x[k];
    }
    free(w);
}

static void norm_row(float *x, const fused_case *c, const float *norm)
{
    uint16_t *rounded = malloc(2 * (size_t)c->k_in);

    sw_vec_any.rms_norm(x, x, norm, c->k_in, 1e-5f);
    MUST(sw_float_encode_n(rounded, SW_DTYPE_BF16, x, c->k_in, err));
    MUST(sw_float_decode_n(x, rounded, SW_DTYPE_BF16, c->k_in, err));
    free(rounded);
}

/* An input as the product quantizes it. */
static void quantize_row(float *x, const fused_case *c, const sw_fused_args *a)
{
    if (c->scope != SW_ACT_NONE)
        sw_act_round(x, c->k_in, x, c->k_in, 1, c->k_in, &a->act_of_x, a->input_scale);
}

static double glu_of(double g, double u) { return g / (1 + exp(-g)) * u; }

static double clamped_glu_of(double g, double u, double limit)
{
    g = fmin(g, limit);
    return g / (1 + exp(-1.702 * g)) * (fmin(fmax(u, -limit), limit) + 1);
}

/* What it puts out, as floats: the stream `sum` with it added, or its row. */
static float *run_one(const sw_fused_args *a, const float *sum, int64_t n_have)
{
    float *have;

    if (a->out == SW_FUSED_ADD) MUST(sw_device_upload(gpu, a->sum, sum, 4 * n_have, err));
    MUST(sw_device_fill(gpu, a->y.d, 0xff, 2 * n_have, err));
    MUST(sw_cuda_one(a, how, err));
    if (a->out != SW_FUSED_ADD) return device_fetch(gpu, a->y.d, n_have);
    have = malloc(4 * (size_t)n_have);
    MUST(sw_device_download(gpu, have, a->sum, 4 * n_have, err));
    return have;
}

/* The same bytes with codes in the order of columns. */
static void check_columns(sw_fused_args *a, const float *sum, const float *want, int64_t n_want)
{
    const sw_cuda_device device = {a->sm, a->n_sms};
    float *have;

    if (a->act_of_x.scope == SW_ACT_GROUP)
        a->tiles.spec.scale_rows = 128; /* which this product does not ask for */
    MUST(sw_column_tiles_order(&a->tiles, &a->act_of_x, &device, how.stream, err));
    assert_int_equal(a->tiles.in_columns, a->sm == 90);
    have = run_one(a, sum, n_want);
    assert_memory_equal(have, want, 4 * (size_t)n_want);
    free(have);
}

static void check_one(const fused_case *c)
{
    const int64_t wide = c->n_out / 2, n_have = c->out == SW_FUSED_GLU ? wide : c->n_out;
    float *x = malloc(4 * (size_t)c->k_in), *norm = malloc(4 * (size_t)c->k_in), *have;
    float *bias = malloc(4 * (size_t)c->n_out), *sum = malloc(4 * (size_t)c->n_out);
    double *want = malloc(8 * (size_t)c->n_out);
    sw_fused_args a = {.eps = 1e-5f,
                       .out = c->out,
                       .act = SW_MLP_SILU,
                       .n = 1,
                       .n_sms = 132,
                       .sm = sw_device_about(gpu)->arch,
                       .input_scale = 0.02f};
    const double limit = c->out != SW_FUSED_ADD   ? ROUNDING
                         : c->num == SW_NUM_E4M3 ? 1e-3 /* its products are cut off */
                                                 : 1e-4;
    test_rng rng = {3};
    sw_qtensor q;
    void *d_y = NULL;
    double error, broken;

    fused_weight(&q, c, 3);
    fused_act(&a, c);
    for (int64_t i = 0; i < c->k_in; i++) norm[i] = (float)(0.5 + test_uniform(&rng));
    for (int64_t i = 0; i < c->n_out; i++) bias[i] = (float)test_gauss(&rng);
    for (int64_t i = 0; i < c->n_out; i++) sum[i] = (float)test_gauss(&rng);
    a.tiles = fused_tiles(gpu, &q);
    a.rows = (sw_bf16_rows){device_random_rows(gpu, x, c->k_in, 1, 4), c->k_in};
    if (c->has_norm) {
        a.x = device_copy(gpu, x, 4 * c->k_in);
        a.norm = device_copy(gpu, norm, 4 * c->k_in);
        norm_row(x, c, norm);
    }
    if (c->has_bias) a.bias = device_copy(gpu, bias, 4 * c->n_out);
    a.sum = device_copy(gpu, sum, 4 * c->n_out);
    MUST(sw_device_take(&d_y, gpu, c->n_out, 2, "test", err));
    a.y = (sw_bf16_rows){d_y, n_have};
    assert_true(sw_cuda_one_can(&a));
    quantize_row(x, c, &a);
    expect_product(want, &q, x, c->has_bias ? bias : NULL);
    for (int64_t i = 0; c->out == SW_FUSED_ADD && i < n_have; i++) want[i] += (double)sum[i];
    for (int64_t i = 0; c->out == SW_FUSED_GLU && i < wide; i++)
        want[i] = glu_of(want[i], want[wide + i]);
    have = run_one(&a, sum, n_have);
    error = relative_l2_double(have, want, n_have);
    if (c->scope == SW_ACT_GROUP || c->num == SW_NUM_INT8) check_columns(&a, sum, have, n_have);
    free(have);
    /* without the scales of one group of one tile it is another product */
    MUST(sw_device_fill(gpu, (void *)(uintptr_t)a.tiles.scales, 0,
                        64 * sw_dtype_bits(c->scale_dtype) / 8, err));
    have = run_one(&a, sum, n_have);
    broken = relative_l2_double(have, want, n_have);
    print_message("%lld x %lld, group %lld: %.2e; broken %.2e\n", (long long)c->n_out,
                  (long long)c->k_in, (long long)c->group, error, broken);
    if (!(error <= limit) || broken <= limit) fail_msg("error %g, broken %g", error, broken);
    free(x), free(norm), free(bias), free(sum), free(want), free(have);
    sw_qtensor_free(&q);
}

/* Where a checker follows every access, small ones alone. */
static bool is_wanted(const fused_case *c)
{
    if (DEVICE_IS_EMULATED) /* whose tensor cores have no E4M3 here */
        return c->n_out * c->k_in <= 9 << 20 && c->num != SW_NUM_E4M3;
#ifdef SW_CHECKED
    return c->n_out * c->k_in <= 1 << 25;
#else
    (void)c;
    return true;
#endif
}

static bool can_run(const fused_case *c)
{
    if (!is_wanted(c)) return false;
    return c->num != SW_NUM_E4M3 || sw_device_about(gpu)->arch >= 89;
}

static void test_one(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof ones / sizeof *ones; i++)
        if (can_run(&ones[i])) check_one(&ones[i]);
}

/* A token of values times `size`, of which one is far above its neighbours and 128 are zeros. */
static void make_token(float *x, int64_t k, float size)
{
    test_rng rng = {9};

    for (int64_t i = 0; i < k; i++)
        x[i] = i / 128 == 1 ? 0 : sw_num_round_to((float)test_gauss(&rng) * size, SW_DTYPE_BF16);
    x[7] = 8192 * size;
}

static void upload_token(const sw_fused_args *a, const float *x, int64_t k)
{
    sw_bf16 *rounded = malloc(2 * (size_t)k);

    for (int64_t i = 0; i < k; i++) rounded[i] = sw_bf16_encode(x[i]);
    MUST(sw_device_upload(gpu, (void *)(uintptr_t)a->rows.d, rounded, 2 * k, err));
    free(rounded);
}

/* Units of a token are taken in fixed point for 4-bit codes: small and large ones, zeros, and a
 * value that its neighbours are small beside come to what doubles make of them; what is not
 * finite is so in every channel. */
static void check_sizes(const fused_case *c)
{
    static const float sizes[] = {1, 0x1p-70f, 0x1p+90f}, never[] = {INFINITY, -INFINITY, NAN};
    sw_fused_args a = {.out = c->out, .n = 1, .n_sms = 132, .sm = sw_device_about(gpu)->arch};
    float *x = malloc(4 * (size_t)c->k_in), *sum = calloc((size_t)c->n_out, 4), *have;
    double *want = malloc(8 * (size_t)c->n_out);
    sw_qtensor q;

    fused_weight(&q, c, 3);
    fused_act(&a, c);
    a.tiles = fused_tiles(gpu, &q);
    a.rows = (sw_bf16_rows){device_random_rows(gpu, x, c->k_in, 1, 4), c->k_in};
    a.sum = device_copy(gpu, sum, 4 * c->n_out);
    a.y = (sw_bf16_rows){device_copy(gpu, sum, 2 * c->n_out), c->n_out};
    for (int i = 0; i < 3; i++) {
        make_token(x, c->k_in, sizes[i]);
        upload_token(&a, x, c->k_in);
        expect_product(want, &q, x, NULL);
        have = run_one(&a, sum, c->n_out);
        if (!(relative_l2_double(have, want, c->n_out) < 1e-5))
            fail_msg("sizes of %g: %g apart", (double)sizes[i],
                     relative_l2_double(have, want, c->n_out));
        free(have);
    }
    for (int i = 0; i < 3; i++) {
        make_token(x, c->k_in, 1);
        x[c->k_in - 3] = never[i];
        upload_token(&a, x, c->k_in);
        have = run_one(&a, sum, c->n_out);
        for (int64_t n = 0; n < c->n_out; n++) assert_false(isfinite(have[n]));
        free(have);
    }
    free(x), free(sum), free(want);
    sw_qtensor_free(&q);
}

static void test_sizes(void **state)
{
    (void)state;
    check_sizes(&(fused_case){96, 640, 128, false, false, false, SW_FUSED_ADD, F16, 0, 0});
    check_sizes(&(fused_case){96, 640, 128, true, false, false, SW_FUSED_ADD, F16, 0, 0});
}

/* ---- experts ---- */

#define N_EXPERTS 5
#define N_USED 2
#define N_TOKENS 3
#define N_PAIRS (N_TOKENS * N_USED)
#define DENSE SW_NUM_COUNT

static const int32_t chosen[N_PAIRS] = {3, 1, 4, 0, 1, 3};
static const float shares[N_PAIRS] = {0.75f, 0.25f, 0.5f, 0.5f, 0.125f, 0.875f};

static const fused_case experts[] = {
    {512, 256, 0, false, false, false, SW_FUSED_GLU, F32, DENSE, SW_ACT_NONE},
    {200, 1000, 0, false, false, true, SW_FUSED_STORE, F32, DENSE, SW_ACT_NONE},
    {768, 1024, 128, false, false, false, SW_FUSED_GLU, F16, 0, SW_ACT_NONE},
    {1024, 768, 128, true, false, true, SW_FUSED_STORE, SW_DTYPE_BF16, 0, SW_ACT_NONE},
    {96, 384, 0, false, false, true, SW_FUSED_GLU, F16, SW_NUM_INT8, SW_ACT_TOKEN},
    {512, 1280, 0, false, false, false, SW_FUSED_STORE, F32, SW_NUM_E4M3, SW_ACT_TENSOR},
    {512, 1280, 128, false, false, true, SW_FUSED_GLU, F32, SW_NUM_E4M3, SW_ACT_GROUP},
};

/* What all pairs give, and where their weights lie. */
typedef struct expert_set {
    sw_expert table[N_EXPERTS];
    double *want; /* [N_PAIRS, n_out] */
} expert_set;

/* Expert x: its weights and its part of what is expected of rows [n, k_in]. */
static void add_expert(expert_set *s, sw_fused_args *a, const fused_case *c, int x,
                       const float *rows)
{
    float *row = malloc(4 * (size_t)c->k_in), *bias = malloc(4 * (size_t)c->n_out);
    test_rng rng = {(uint64_t)x + 40};
    sw_tiles tiles = {.n_out = c->n_out, .k_in = c->k_in};
    sw_qtensor q = {.n_out = c->n_out, .k_in = c->k_in};
    float *dense = NULL;

    for (int64_t i = 0; i < c->n_out; i++) bias[i] = (float)test_gauss(&rng);
    a->input_scale = 0.02f + 0.01f * (float)x;
    s->table[x] = (sw_expert){.input_scale = a->input_scale};
    if (c->num == DENSE) {
        dense = malloc(4 * (size_t)(c->n_out * c->k_in));
        s->table[x].codes = device_random_rows(gpu, dense, c->n_out * c->k_in, 0.05, 70 + x);
    } else {
        fused_weight(&q, c, 3 + (uint64_t)x);
        tiles = fused_tiles(gpu, &q);
        s->table[x].codes = tiles.codes;
        s->table[x].scales = tiles.scales;
        s->table[x].zeros = tiles.zeros;
    }
    if (x == 0) a->tiles = tiles;
    if (c->has_bias) s->table[x].bias = device_copy(gpu, bias, 4 * c->n_out);
    for (int i = 0; i < N_PAIRS; i++) {
        double *want = s->want + i * c->n_out;

        if (chosen[i] != x) continue;
        memcpy(row, rows + i / a->pairs_per_row * c->k_in, 4 * (size_t)c->k_in);
        quantize_row(row, c, a);
        if (!dense) expect_product(want, &q, row, c->has_bias ? bias : NULL);
        for (int64_t n = 0; dense && n < c->n_out; n++) {
            want[n] = c->has_bias ? (double)bias[n] : 0;
            for (int64_t k = 0; k < c->k_in; k++)
                want[n] += (double)dense[n * c->k_in + k] * (double)row[k];
        }
    }
    if (c->num != DENSE) sw_qtensor_free(&q);
    free(row), free(bias), free(dense);
}

static double run_experts(const sw_fused_args *a, const double *want, int64_t n_have)
{
    float *have;
    double error;

    MUST(sw_device_fill(gpu, a->y.d, 0xff, 2 * n_have, err));
    MUST(sw_cuda_experts(a, how, err));
    have = device_fetch(gpu, a->y.d, n_have);
    error = relative_l2_double(have, want, n_have);
    free(have);
    return error;
}

static void check_experts(const fused_case *c)
{
    const int64_t wide = c->n_out / 2, n_y = c->out == SW_FUSED_GLU ? wide : c->n_out;
    const int64_t share = c->out == SW_FUSED_GLU ? N_USED : 1; /* pairs that read one row */
    float *rows = malloc(4 * (size_t)(N_PAIRS * c->k_in));
    sw_fused_args a = {.out = c->out,
                       .act = SW_MLP_SWIGLU_CLAMPED,
                       .limit = 7,
                       .n = 1,
                       .n_sms = 132,
                       .sm = sw_device_about(gpu)->arch,
                       .n_pairs = N_PAIRS,
                       .pairs_per_row = share};
    expert_set s = {.want = malloc(8 * (size_t)(N_PAIRS * c->n_out))};
    int32_t others[N_PAIRS];
    void *d_y = NULL;
    double error, broken;

    fused_act(&a, c);
    if (c->out == SW_FUSED_GLU && c->num == DENSE) a.act = SW_MLP_SILU;
    a.rows = (sw_bf16_rows){device_random_rows(gpu, rows, N_PAIRS / share * c->k_in, 1, 4),
                            c->k_in};
    for (int x = 0; x < N_EXPERTS; x++) add_expert(&s, &a, c, x, rows);
    for (int64_t i = 0; c->out == SW_FUSED_GLU && i < N_PAIRS * wide; i++) {
        const double *pair = s.want + i / wide * c->n_out;
        const double g = pair[i % wide], u = pair[wide + i % wide];

        s.want[i] = a.act == SW_MLP_SILU ? glu_of(g, u) : clamped_glu_of(g, u, 7);
    }
    a.experts = device_copy(gpu, s.table, sizeof s.table);
    a.chosen = device_copy(gpu, chosen, sizeof chosen);
    MUST(sw_device_take(&d_y, gpu, N_PAIRS * n_y, 2, "test", err));
    a.y = (sw_bf16_rows){d_y, n_y};
    assert_true(sw_cuda_experts_can(&a));
    error = run_experts(&a, s.want, N_PAIRS * n_y);
    memcpy(others, chosen, sizeof others); /* one pair with another expert */
    others[N_PAIRS - 1] = 2;
    MUST(sw_device_upload(gpu, (void *)(uintptr_t)a.chosen, others, sizeof others, err));
    broken = run_experts(&a, s.want, N_PAIRS * n_y);
    print_message("experts of %lld x %lld: %.2e; broken %.2e\n", (long long)c->n_out,
                  (long long)c->k_in, error, broken);
    if (!(error <= ROUNDING) || broken <= ROUNDING) fail_msg("error %g, broken %g", error, broken);
    free(rows), free(s.want);
}

static void test_experts(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof experts / sizeof *experts; i++)
        if (can_run(&experts[i])) check_experts(&experts[i]);
}

/* Sums in the order of the experts' numbers, with and without what was there. */
static void test_combine(void **state)
{
    enum { WIDTH = 72 };
    float rows[N_PAIRS * WIDTH], dst[N_TOKENS * WIDTH], *have;
    double want[N_TOKENS * WIDTH];
    sw_combine_args a = {.n = N_TOKENS, .width = WIDTH, .n_used = N_USED};

    (void)state;
    a.rows = (sw_bf16_rows){device_random_rows(gpu, rows, N_PAIRS * WIDTH, 1, 5), WIDTH};
    a.chosen = device_copy(gpu, chosen, sizeof chosen);
    a.share = device_copy(gpu, shares, sizeof shares);
    for (int adds = 0; adds < 2; adds++) {
        a.adds = adds;
        a.dst = (sw_bf16_rows){device_random_rows(gpu, dst, N_TOKENS * WIDTH, 1, 6), WIDTH};
        for (int i = 0; i < N_TOKENS * WIDTH; i++) {
            const int first = i / WIDTH * N_USED;

            want[i] = adds ? (double)dst[i] : 0;
            for (int u = 0; u < N_USED; u++)
                want[i] += (double)shares[first + u] *
                           (double)rows[(first + u) * WIDTH + i % WIDTH];
        }
        MUST(sw_cuda_combine(&a, how, err));
        have = device_fetch(gpu, a.dst.d, N_TOKENS * WIDTH);
        assert_true(relative_l2_double(have, want, N_TOKENS * WIDTH) <= ROUNDING);
        want[5] += 1;
        assert_true(relative_l2_double(have, want, N_TOKENS * WIDTH) > ROUNDING);
        free(have);
    }
}

/* One argument: the tests whose name it matches (* and ? as in a shell). */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_experts), cmocka_unit_test(test_combine),
    };
    int failed = device_open(&gpu);

    if (failed) return failed;
    how = device_launch(gpu);
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    failed = cmocka_run_group_tests_name("products of few tokens", tests, NULL, NULL);
    sw_device_close(gpu);
    return failed;
}
