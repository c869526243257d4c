/* test_routed.c - routed experts on the device against plain loops in double. Exit 77 without a GPU
 * that the kernels are for.
 *
 *   test_routed [FILTER]     the tests whose name it matches (* and ? as in a shell)
 */
#include <cuda_runtime_api.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "formats/model/model.h"
#include "tests/gpu/support/routed_case.h"

/* Roundings of a pair's result and of the sum, 2^-9 each at most, and of what `down` reads; of the
 * kernel for many rows also of weights, which it scales before the product. */
#define BOUND_FEW 4e-3
#define BOUND_MANY 6e-3
/* Where what `down` reads is rounded to the neighbour, its code may be another, and where that is a
 * token's largest, all of its: of one token alone 1.6e-2 has been seen, of many 8e-3. */
#define BOUND_BYTES 2e-2

#ifdef SW_CHECKED /* under compute-sanitizer: a few of everything */
#define FEW_TOKENS 40
#define MANY_TOKENS 140
#else
#define FEW_TOKENS 75
#define MANY_TOKENS 700
#endif

/* Of the kernels of 4 bits and of inputs of bytes. */
#ifdef SW_CUDA_QUICK
static const int rows_4bit[] = {8, 128}, rows_bytes[] = {16, 128, 256, 192};
#else
static const int rows_4bit[] = {8, 16, 32, 48, 64, 96, 128};
static const int rows_bytes[] = {16, 32, 64, 128, 256, 192};
#endif

/* E4M3 whose codes stay in rows has the least and the most rows alone. */
static bool stays_in_rows(const routed_shape *s)
{
    return s->keeps_order || (s->scheme == ROUTED_FP8_BLOCK && !s->scale_rows);
}

static int rows_of(const routed_shape *s, int i)
{
    if (stays_in_rows(s)) return i ? 128 : 16;
    return routed_shape_has_bytes(s) ? rows_bytes[i] : rows_4bit[i];
}

/* Of inputs of bytes W4AFP8 has neither 256 nor 192. */
static int n_rows_of(const routed_shape *s)
{
    const int n_bytes = (int)(sizeof rows_bytes / sizeof *rows_bytes);

    if (stays_in_rows(s)) return 2;
    if (!routed_shape_has_bytes(s)) return (int)(sizeof rows_4bit / sizeof *rows_4bit);
    return n_bytes - (s->scheme == ROUTED_W4AFP8 ? 2 : 0);
}

static void must_be_near(routed_case *c, int rows)
{
    const double of_4bit = rows > 32 ? BOUND_MANY : BOUND_FEW;
    const double bound = routed_shape_has_bytes(&c->shape) ? BOUND_BYTES : of_4bit;
    double error;

    assert_true(routed_case_run(c, rows));
    error = routed_case_error(c);
    printf("  scheme %d, %4lld tokens, %d of %d experts of %lld x %lld, routing %d, rows %d: "
           "error %.2e\n",
           (int)c->shape.scheme, (long long)c->shape.n_tokens, c->shape.top_k, c->shape.n_experts,
           (long long)c->shape.hidden, (long long)c->shape.wide, (int)c->shape.routing, rows,
           error);
    assert_true(error <= bound);
}

static void must_be_exact(routed_case *c, int rows)
{
    int64_t n;

    assert_true(routed_case_run(c, rows));
    n = routed_case_differing(c);
    if (n)
        fail_msg("%lld tokens, routing %d, rows %d: %lld of %lld differ",
                 (long long)c->shape.n_tokens, (int)c->shape.routing, rows, (long long)n,
                 (long long)(c->shape.n_tokens * c->shape.hidden));
}

static routed_shape shape_of(int64_t n_tokens, routing kind)
{
    return (routed_shape){.n_tokens = n_tokens, .hidden = 384, .wide = 256, .group_elems = 128,
                          .n_experts = 12, .top_k = 4, .routing = kind, .act = SW_MLP_SILU,
                          .seed = (uint64_t)n_tokens * 7 + (uint64_t)kind};
}

static void each_as_it_is(const routed_shape *shape, void (*must)(routed_case *c, int rows))
{
    routed_case c;

    routed_case_new(&c, shape);
    routed_case_expect(&c);
    for (int i = 0; i < n_rows_of(shape); i++) must(&c, rows_of(shape, i));
    routed_case_free(&c);
}

/* E4M3 in rows, then in columns: of groups, with scales of channels and of blocks. */
static void each(const routed_shape *shape, void (*must)(routed_case *c, int rows))
{
    routed_shape other = *shape;

    each_as_it_is(shape, must);
    if (shape->scheme == ROUTED_FP8) other.keeps_order = true;
    else if (shape->scheme == ROUTED_FP8_BLOCK) other.scale_rows = 128;
    else return;
    each_as_it_is(&other, must);
}

/* One token needs no sorting; 3 leave most experts without one. */
static void every_routing(void **state)
{
    static const int64_t tokens[] = {1, 2, 3, FEW_TOKENS, MANY_TOKENS};

    (void)state;
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++)
        for (int r = ROUTING_RANDOM; r <= ROUTING_SKEW; r++) {
            const routed_shape s = shape_of(tokens[i], (routing)r);

            each(&s, must_be_near);
        }
}

static void exact_sums(void **state)
{
    static const int64_t tokens[] = {1, 2, FEW_TOKENS, MANY_TOKENS};

    (void)state;
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++)
        for (int r = ROUTING_RANDOM; r <= ROUTING_SKEW; r++) {
            routed_shape s = shape_of(tokens[i], (routing)r);

            s.is_exact = true;
            each(&s, must_be_exact);
        }
}

/* Half stages, units of channels that are not full, one group a channel, a hidden size that ends in
 * the middle of a tile. */
static void odd_shapes(void **state)
{
    routed_shape s = shape_of(FEW_TOKENS, ROUTING_RANDOM);

    (void)state;
    s.group_elems = 0;
    s.hidden = 320, s.wide = 192;
    each(&s, must_be_near);
    s.is_exact = true;
    each(&s, must_be_exact);
    s.n_tokens = 1;
    each(&s, must_be_exact);
    s.hidden = 344, s.wide = 64;
    each(&s, must_be_exact);
    s.n_tokens = MANY_TOKENS, s.top_k = 1;
    each(&s, must_be_exact);
}

/* Blocks of an expert side by side, of which the last is short. */
static void several_blocks(void **state)
{
    routed_shape s = shape_of(70, ROUTING_ONE);

    (void)state;
    s.hidden = 320, s.wide = 192, s.top_k = 2;
    s.is_exact = true;
    each(&s, must_be_exact);
    s.is_exact = false;
    each(&s, must_be_near);
}

static void activations_and_biases(void **state)
{
    routed_shape s = shape_of(FEW_TOKENS, ROUTING_RANDOM);

    (void)state;
    s.has_bias = true;
    each(&s, must_be_near);
    s.act = SW_MLP_SWIGLU_CLAMPED;
    s.adds = true;
    each(&s, must_be_near);
    s.n_tokens = 1;
    each(&s, must_be_near);
}

/* Inputs of a scale of the weights; 0: one a channel. */
static int64_t group_of(routed_scheme scheme)
{
    return scheme == ROUTED_FP8 || scheme == ROUTED_W8A8 ? 0 : 128;
}

/* Channels that share their scales. */
static int64_t sharing_of(routed_scheme scheme) { return scheme == ROUTED_FP8_BLOCK ? 128 : 0; }

static void bytes(void **state)
{
    static const int64_t tokens[] = {1, 2, FEW_TOKENS, MANY_TOKENS};

    (void)state;
    for (routed_scheme scheme = ROUTED_FP8; scheme <= ROUTED_W4AFP8; scheme++)
        for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++)
            for (int r = ROUTING_RANDOM; r <= ROUTING_SKEW; r++) {
                routed_shape s = shape_of(tokens[i], (routing)r);

                s.scheme = scheme;
                s.group_elems = group_of(scheme);
                s.has_bias = r == ROUTING_ODD;
                each(&s, must_be_near);
            }
}

/* A last stage of half the inputs, of gates and ups and of downs, and a last unit of fewer
 * channels; groups of blocks that end where the inputs do. */
static void bytes_with_half_stages(void **state)
{
    static const routed_scheme schemes[] = {ROUTED_FP8, ROUTED_FP8_BLOCK, ROUTED_W8A8,
                                            ROUTED_W4AFP8};
    static const int64_t tokens[] = {1, FEW_TOKENS};

    (void)state;
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++)
        for (size_t j = 0; j < sizeof tokens / sizeof *tokens; j++) {
            routed_shape s = shape_of(tokens[j], ROUTING_RANDOM);

            s.scheme = schemes[i];
            s.group_elems = schemes[i] == ROUTED_FP8_BLOCK ? 128 : 0;
            s.hidden = 320, s.wide = 192;
            each(&s, must_be_near);
        }
}

/* The kernels for the most rows: full blocks and short ones, of one expert and of two; biases; ends
 * that others take over. */
static void many_rows(void **state)
{
    static const int64_t tokens[] = {40, 100, 150, 250, 330};

    (void)state;
    for (routed_scheme scheme = ROUTED_FP8; scheme <= ROUTED_W8A8; scheme++)
        for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
            routed_shape s = shape_of(tokens[i], i % 2 ? ROUTING_RANDOM : ROUTING_ONE);
            routed_case c;

            s.scheme = scheme;
            s.group_elems = group_of(scheme), s.scale_rows = sharing_of(scheme);
            s.n_experts = 2, s.top_k = 1, s.hidden = 384, s.wide = 128;
            s.has_bias = i > 2;
            routed_case_new(&c, &s);
            routed_case_expect(&c);
            for (int r = n_rows_of(&s) - 1; rows_of(&s, r) > 128; r--)
                must_be_near(&c, rows_of(&s, r));
            routed_case_free(&c);
        }
}

/* One group a channel, groups of 256, groups that the last stage ends early. */
static void int4_with_bytes(void **state)
{
    static const int64_t groups[] = {0, 256, 384};

    (void)state;
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        routed_shape s = shape_of(FEW_TOKENS, ROUTING_RANDOM);

        s.scheme = ROUTED_W4AFP8;
        s.group_elems = groups[i];
        s.hidden = 768, s.wide = 512;
        each(&s, must_be_near);
        s.n_tokens = 1;
        each(&s, must_be_near);
    }
}

/* More units than multiprocessors, so that some are whole (see routed_few.cuh); blocks of 128, 96
 * and 64 rows. */
static void whole_units(void **state)
{
    static const int64_t tokens[] = {FEW_TOKENS, MANY_TOKENS};

    (void)state;
    for (routed_scheme scheme = ROUTED_FP8; scheme <= ROUTED_W4AFP8; scheme++)
        for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++)
            for (int r = ROUTING_RANDOM; r <= ROUTING_SKEW; r += ROUTING_SKEW - ROUTING_RANDOM) {
                routed_shape s = shape_of(tokens[i], (routing)r);

                s.scheme = scheme;
                s.group_elems = group_of(scheme);
                s.n_experts = 48, s.hidden = 768, s.wide = 384;
                each(&s, must_be_near);
            }
}

/* Of 64 rows from eight units a CTA on, here of gates and ups. */
static void whole_units_of_64_rows(void **state)
{
    static const routed_scheme schemes[] = {ROUTED_FP8, ROUTED_W4AFP8};

    (void)state;
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        routed_shape s = shape_of(FEW_TOKENS, ROUTING_RANDOM);

        s.scheme = schemes[i];
        s.group_elems = group_of(s.scheme);
        s.n_experts = 48, s.hidden = 256, s.wide = 3072;
        each(&s, must_be_near);
    }
}

/* The same of 4 bits, which are dealt out so from four units a CTA on: many of gates and ups, then
 * many of downs. */
static void whole_units_of_4_bits(void **state)
{
    static const int64_t sizes[][2] = {{256, 1536}, {3072, 256}};

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (routing kind = ROUTING_RANDOM; kind <= ROUTING_SKEW; kind += ROUTING_SKEW) {
            routed_shape s = shape_of(MANY_TOKENS, kind);

            s.n_experts = 48, s.hidden = sizes[i][0], s.wide = sizes[i][1];
            each(&s, must_be_near);
            s.scheme = ROUTED_MXFP4;
            each(&s, must_be_near);
        }
}

static void e2m1(void **state)
{
    static const int64_t tokens[] = {1, 2, FEW_TOKENS, MANY_TOKENS};

    (void)state;
    for (routed_scheme scheme = ROUTED_MXFP4; scheme <= ROUTED_NVFP4; scheme++)
        for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++)
            for (int r = ROUTING_RANDOM; r <= ROUTING_SKEW; r++) {
                routed_shape s = shape_of(tokens[i], (routing)r);

                s.scheme = scheme;
                s.has_bias = r == ROUTING_ODD;
                if (r == ROUTING_SKEW) s.hidden = 448, s.wide = 320; /* half stages */
                each(&s, must_be_near);
            }
}

/* As gpt-oss has them: an odd number of tiles both ways, biases, clamped gates. */
static void e2m1_with_biases(void **state)
{
    static const int64_t tokens[] = {1, FEW_TOKENS, MANY_TOKENS};

    (void)state;
    for (routed_scheme scheme = ROUTED_MXFP4; scheme <= ROUTED_NVFP4; scheme++)
        for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
            routed_shape s = shape_of(tokens[i], ROUTING_RANDOM);

            s.scheme = scheme;
            s.hidden = s.wide = 320;
            s.has_bias = true;
            s.act = SW_MLP_SWIGLU_CLAMPED;
            s.adds = i == 1;
            each(&s, must_be_near);
        }
}

/* Long sums, many stages and units a CTA. */
static void real_shape(void **state)
{
    routed_shape s = shape_of(FEW_TOKENS, ROUTING_RANDOM);

    (void)state;
    s.hidden = 2048, s.wide = 768, s.n_experts = 16, s.top_k = 8;
    each(&s, must_be_near);
    s.scheme = ROUTED_FP8_BLOCK;
    each(&s, must_be_near);
    s.scheme = ROUTED_W4AFP8;
    each(&s, must_be_near);
    for (s.scheme = ROUTED_FP8, s.group_elems = 0; s.scheme <= ROUTED_W8A8; s.scheme += 2)
        each(&s, must_be_near);
}

/* The same call gives the same bytes, whatever lies in the workspace. */
static void gives_same_bytes(const routed_shape *s, int rows)
{
    const size_t n_bytes = (size_t)(s->n_tokens * s->hidden) * sizeof(float);
    float *before = malloc(n_bytes);
    routed_case c;

    routed_case_new(&c, s);
    assert_true(routed_case_run(&c, rows));
    memcpy(before, c.y, n_bytes);
    for (int again = 0; again < 5; again++) {
        assert_true(routed_case_run(&c, rows));
        assert_memory_equal(before, c.y, n_bytes);
    }
    free(before);
    routed_case_free(&c);
}

/* As fetched from the device; the caller frees it. */
static float *result_of(const routed_shape *s, int rows)
{
    const size_t n_bytes = (size_t)(s->n_tokens * s->hidden) * sizeof(float);
    float *y = malloc(n_bytes);
    routed_case c;

    routed_case_new(&c, s);
    assert_true(routed_case_run(&c, rows));
    memcpy(y, c.y, n_bytes);
    routed_case_free(&c);
    return y;
}

static void must_be_as_in_rows(const routed_shape *s, int rows)
{
    const size_t n_bytes = (size_t)(s->n_tokens * s->hidden) * sizeof(float);
    routed_shape as_stored = *s;
    float *want, *have = result_of(s, rows);

    as_stored.keeps_order = true;
    want = result_of(&as_stored, rows < 32 ? rows : 128);
    assert_memory_equal(have, want, n_bytes);
    free(have);
    free(want);
}

/* In either order of codes, and, where a sum has one stage, which nobody can cut, with tokens as
 * rows and as columns. */
static void same_bytes_in_columns(void **state)
{
    routed_shape s = shape_of(MANY_TOKENS / 2, ROUTING_SKEW);

    (void)state;
    s.hidden = s.wide = 128;
    for (s.scheme = ROUTED_FP8; s.scheme <= ROUTED_FP8_BLOCK; s.scheme++) {
        s.group_elems = group_of(s.scheme), s.scale_rows = sharing_of(s.scheme);
        for (int i = 0; i < n_rows_of(&s); i++) must_be_as_in_rows(&s, rows_of(&s, i));
    }
}

static void same_bytes_twice(void **state)
{
    routed_shape s = shape_of(FEW_TOKENS, ROUTING_SKEW);

    (void)state;
    for (s.scheme = ROUTED_INT4; s.scheme <= ROUTED_W8A8; s.scheme++) {
        s.group_elems = group_of(s.scheme), s.scale_rows = sharing_of(s.scheme);
        for (int i = 0; i < n_rows_of(&s); i++) gives_same_bytes(&s, rows_of(&s, i));
    }
}

/* Byte i of what is on the device is another for as long as the test of it takes. */
static void with_fault(routed_case *c, uint8_t *d_byte, uint8_t (*change)(uint8_t was))
{
    const bool is_exact = c->shape.is_exact;
    uint8_t was, is;

    assert_int_equal(cudaMemcpy(&was, d_byte, 1, cudaMemcpyDeviceToHost), cudaSuccess);
    is = change(was);
    assert_int_equal(cudaMemcpy(d_byte, &is, 1, cudaMemcpyHostToDevice), cudaSuccess);
    for (int i = 0; i < n_rows_of(&c->shape); i++) {
        assert_true(routed_case_run(c, rows_of(&c->shape, i)));
        if (is_exact) assert_true(routed_case_differing(c) > 0);
        else assert_true(routed_case_error(c) > BOUND_BYTES);
    }
    assert_int_equal(cudaMemcpy(d_byte, &was, 1, cudaMemcpyHostToDevice), cudaSuccess);
}

static uint8_t flipped(uint8_t was) { return was ^ 1; }
static uint8_t sign_flipped(uint8_t was) { return was ^ 0x80; }
static uint8_t next_expert(uint8_t was) { return (uint8_t)((was + 1) % 12); }

/* A choice and a share that are not what the reference has; where sums are exact also a nibble and
 * two scales. */
static void faults_show(void **state)
{
    routed_shape s = shape_of(FEW_TOKENS, ROUTING_RANDOM);
    routed_case c;
    const sw_expert *up, *down;

    (void)state;
    for (int scheme = ROUTED_INT4; scheme <= ROUTED_NVFP4; scheme++) {
        s.scheme = (routed_scheme)scheme;
        s.is_exact = scheme == ROUTED_INT4;
        s.group_elems = group_of((routed_scheme)scheme);
        routed_case_new(&c, &s);
        routed_case_expect(&c);
        up = &c.experts[c.chosen[3]], down = up + s.n_experts;
        with_fault(&c, (uint8_t *)(uintptr_t)(c.problem.chosen + 3), next_expert);
        with_fault(&c, (uint8_t *)(uintptr_t)(c.problem.share + 5) + 3, flipped);
        if (s.is_exact) {
            with_fault(&c, (uint8_t *)(uintptr_t)up->scales + 1, sign_flipped);
            with_fault(&c, (uint8_t *)(uintptr_t)down->scales + 1, sign_flipped);
            with_fault(&c, (uint8_t *)(uintptr_t)down->codes + 77, flipped);
        }
        (s.is_exact ? must_be_exact : must_be_near)(&c, rows_of(&s, 0));
        routed_case_free(&c);
    }
}

static void unsupported(void **state)
{
    const routed_shape s = shape_of(2, ROUTING_RANDOM);
    const sw_cuda_device device = {90, 132}, older = {80, 108};
    sw_routed_plan plan;
    sw_err err = {0};
    routed_case c;
    sw_routed p;

    (void)state;
    routed_case_new(&c, &s);
    assert_int_equal(sw_routed_plan_for(&plan, &c.problem, &device, 0, &err), SW_OK);
    assert_int_equal(sw_routed_plan_for(&plan, &c.problem, &older, 0, &err), SW_E_UNSUPPORTED);
    assert_int_equal(sw_routed_plan_for(&plan, &c.problem, &device, 24, &err), SW_E_UNSUPPORTED);
    p = c.problem;
    p.act = SW_MLP_RELU;
    assert_int_equal(sw_routed_plan_for(&plan, &p, &device, 0, &err), SW_E_UNSUPPORTED);
    p = c.problem;
    p.down.spec.scale_dtype = SW_DTYPE_F16;
    assert_int_equal(sw_routed_plan_for(&plan, &p, &device, 0, &err), SW_E_UNSUPPORTED);
    p = c.problem;
    p.up.n_out -= 2;
    assert_int_equal(sw_routed_plan_for(&plan, &p, &device, 0, &err), SW_E_UNSUPPORTED);
    p = c.problem;
    p.x.d += 1;
    assert_int_equal(sw_routed_plan_for(&plan, &p, &device, 0, &err), SW_E_UNSUPPORTED);
    routed_case_free(&c);
}

/* What the plan takes for so many tokens with 8 of 256 experts, or 2 of 8. */
static void rows_of_the_plan(void **state)
{
    static const struct {
        int n_tokens, n_experts, top_k, of_4bit, of_bytes;
    } wanted[] = {
        {1, 256, 8, 8, 16},      {64, 256, 8, 8, 16},      {256, 256, 8, 16, 16},
        {512, 256, 8, 32, 32},   {1024, 256, 8, 48, 64},   {1536, 256, 8, 64, 64},
        {2048, 256, 8, 96, 128}, {4096, 256, 8, 128, 192}, {1, 8, 2, 8, 16},
        {64, 8, 2, 32, 32},      {128, 8, 2, 48, 64},      {48, 8, 8, 48, 64},
    };
    const sw_cuda_device device = {90, 132};
    sw_routed_plan plan;
    sw_err err = {0};

    (void)state;
    for (routed_scheme scheme = ROUTED_INT4; scheme <= ROUTED_W8A8; scheme++) {
        routed_shape s = shape_of(2, ROUTING_RANDOM);
        routed_case c;

        s.scheme = scheme, s.group_elems = group_of(scheme), s.scale_rows = sharing_of(scheme);
        routed_case_new(&c, &s);
        for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
            sw_routed p = c.problem;

            p.n_tokens = wanted[i].n_tokens;
            p.n_experts = wanted[i].n_experts, p.top_k = wanted[i].top_k;
            assert_int_equal(sw_routed_plan_for(&plan, &p, &device, 0, &err), SW_OK);
#ifndef SW_CUDA_QUICK
            assert_int_equal(plan.rows, scheme == ROUTED_INT4 ? wanted[i].of_4bit
                                                              : wanted[i].of_bytes);
#endif
        }
        routed_case_free(&c);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exact_sums), cmocka_unit_test(every_routing),
        cmocka_unit_test(odd_shapes), cmocka_unit_test(several_blocks),
        cmocka_unit_test(activations_and_biases),
        cmocka_unit_test(bytes), cmocka_unit_test(bytes_with_half_stages),
        cmocka_unit_test(many_rows), cmocka_unit_test(int4_with_bytes),
        cmocka_unit_test(whole_units), cmocka_unit_test(whole_units_of_64_rows),
        cmocka_unit_test(whole_units_of_4_bits),
        cmocka_unit_test(e2m1), cmocka_unit_test(e2m1_with_biases),
        cmocka_unit_test(real_shape), cmocka_unit_test(same_bytes_twice),
        cmocka_unit_test(same_bytes_in_columns),
        cmocka_unit_test(faults_show), cmocka_unit_test(unsupported),
        cmocka_unit_test(rows_of_the_plan),
    };
    sw_cuda_device device;
    sw_err err = {0};

    if (sw_cuda_device_query(&device, 0, &err) != SW_OK || device.sm != 90) {
        printf("skipped: no GPU of compute capability 9.0\n");
        return 77;
    }
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests_name("routed experts", tests, NULL, NULL);
}
