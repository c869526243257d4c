/* qtensor_gen.c - see qtensor_gen.h. */
#include "tests/support/qtensor_gen.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "formats/num/half.h"

uint64_t sw_gen_next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static uint8_t gen_code(uint64_t *state, sw_gen_content content, int low, int high)
{
    if (content == SW_GEN_LOWEST) return (uint8_t)low;
    if (content == SW_GEN_HIGHEST) return (uint8_t)high;
    return (uint8_t)(low + (int)(sw_gen_next(state) % (uint64_t)(high - low + 1)));
}

/* Any positive finite value the dtype has, subnormals too; bf16 stays where 255 * scale fits. */
static float gen_scale(uint64_t *state, sw_gen_content content, sw_dtype dtype)
{
    uint16_t top = dtype == SW_DTYPE_F16 ? 0x7bff : 0x7b00, bits;

    if (content == SW_GEN_LOWEST) bits = 1;
    else if (content == SW_GEN_HIGHEST) bits = top;
    else bits = (uint16_t)(1 + sw_gen_next(state) % top);
    return dtype == SW_DTYPE_F16 ? sw_f16_decode(bits) : sw_bf16_decode(bits);
}

void sw_gen_qtensor(sw_qtensor *out, int bits, bool is_symmetric, int64_t group_elems,
                    sw_dtype scale_dtype, int64_t n_out, int64_t k_in, sw_gen_content content,
                    int zero_min, uint64_t seed)
{
    sw_qspec spec = {.num = sw_num_by_bits(bits), .is_symmetric = is_symmetric,
                     .group_elems = group_elems, .scale_dtype = scale_dtype,
                     .zero_min = zero_min};
    uint64_t state = seed;
    sw_err err = {0};

    if (sw_qtensor_alloc(out, &spec, n_out, k_in, &err) != SW_OK) fail_msg("%s", err.text);
    for (int64_t i = 0; i < n_out * k_in; i++)
        out->codes[i] = gen_code(&state, content, 0, spec.num->code_max);
    for (int64_t i = 0; i < n_out * out->n_groups; i++) {
        out->scales[i] = gen_scale(&state, content, scale_dtype);
        if (out->zeros)
            out->zeros[i] = gen_code(&state, content, zero_min, spec.num->code_max);
    }
}

void sw_gen_assert_same(const sw_qtensor *have, const sw_qtensor *want)
{
    assert_int_equal(have->n_out, want->n_out);
    assert_int_equal(have->k_in, want->k_in);
    assert_int_equal(have->n_groups, want->n_groups);
    assert_int_equal(!have->g_idx, !want->g_idx);
    for (int64_t i = 0; i < want->n_out * want->k_in; i++)
        if (have->codes[i] != want->codes[i])
            fail_msg("code [%lld, %lld]: have %d, want %d", (long long)(i / want->k_in),
                     (long long)(i % want->k_in), have->codes[i], want->codes[i]);
    for (int64_t i = 0; i < want->n_out * want->n_groups; i++) {
        if (sw_f32_bits(have->scales[i]) != sw_f32_bits(want->scales[i]))
            fail_msg("scale [%lld, %lld]: have %g, want %g", (long long)(i / want->n_groups),
                     (long long)(i % want->n_groups), (double)have->scales[i],
                     (double)want->scales[i]);
        if (want->zeros && have->zeros[i] != want->zeros[i])
            fail_msg("zero [%lld, %lld]: have %d, want %d", (long long)(i / want->n_groups),
                     (long long)(i % want->n_groups), have->zeros[i], want->zeros[i]);
    }
    for (int64_t k = 0; want->g_idx && k < want->k_in; k++)
        assert_int_equal(have->g_idx[k], want->g_idx[k]);
}
