/* qtensor_gen.c - see qtensor_gen.h. */
#include "tests/support/toys/qtensor_gen.h"

#include <math.h>
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

/* Of a sequence of eight: both zeros, subnormals of both signs, and any others of both. */
static uint16_t signed_bits(uint64_t *state, uint16_t top)
{
    uint64_t v = sw_gen_next(state);
    uint16_t sign = (uint16_t)((v >> 40 & 1) << 15);

    if (v % 8 == 0) return sign;
    return (uint16_t)(sign | (1 + (v >> 8) % (v % 8 < 3 ? 0x7f : top)));
}

/* Any positive finite value the dtype has, subnormals too; bf16 stays where 255 * scale fits. */
static float gen_scale(uint64_t *state, sw_gen_content content, sw_dtype dtype)
{
    uint16_t top = dtype == SW_DTYPE_F16 ? 0x7bff : 0x7b00, bits;

    if (content == SW_GEN_LOWEST) bits = 1;
    else if (content == SW_GEN_HIGHEST) bits = top;
    else if (content == SW_GEN_SIGNED) bits = signed_bits(state, top);
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

#define NUM(id) &sw_nums[SW_NUM_##id]
#define FLOATS .is_symmetric = true

static const sw_qspec float_specs[SW_GEN_FLOATS] = {
    {.num = NUM(E4M3), FLOATS, .scale_dtype = SW_DTYPE_F32, .scale_rows = SW_ROWS_ALL,
     .act = {NUM(E4M3), SW_ACT_TENSOR, 0, SW_DTYPE_F32}},
    {.num = NUM(E4M3), FLOATS, .scale_dtype = SW_DTYPE_BF16,
     .act = {NUM(E4M3), SW_ACT_TOKEN, 0, SW_DTYPE_F32}},
    {.num = NUM(E5M2), FLOATS, .scale_dtype = SW_DTYPE_F16},
    {.num = NUM(E4M3), FLOATS, .scale_dtype = SW_DTYPE_F32, .group_elems = 128, .scale_rows = 128,
     .act = {NUM(E4M3), SW_ACT_GROUP, 128, SW_DTYPE_F32}},
    {.num = NUM(E4M3), FLOATS, .scale_dtype = SW_DTYPE_F32, .group_elems = 128, .scale_rows = 128,
     .is_pow2_scale = true, .act = {NUM(E4M3), SW_ACT_GROUP, 128, SW_DTYPE_F8_E8M0}},
    {.num = NUM(E2M1), FLOATS, .scale_dtype = SW_DTYPE_F8_E8M0, .group_elems = 32,
     .is_pow2_scale = true},
    {.num = NUM(E4M3), FLOATS, .scale_dtype = SW_DTYPE_F8_E8M0, .group_elems = 32,
     .is_pow2_scale = true, .act = {NUM(E4M3), SW_ACT_GROUP, 32, SW_DTYPE_F8_E8M0}},
    {.num = NUM(E2M1), FLOATS, .scale_dtype = SW_DTYPE_F8_E4M3, .group_elems = 16,
     .has_global = true},
    {.num = NUM(E2M1), FLOATS, .scale_dtype = SW_DTYPE_F8_E4M3, .group_elems = 16,
     .has_global = true, .act = {NUM(E2M1), SW_ACT_GROUP, 16, SW_DTYPE_F8_E4M3}},
    {.num = NUM(E4M3), FLOATS, .scale_dtype = SW_DTYPE_F32,
     .act = {NUM(E4M3), SW_ACT_TOKEN, 0, SW_DTYPE_F32}},
};

const sw_qspec *sw_gen_float_spec(int which) { return &float_specs[which]; }

/* Scales from 2^-9 to 2^2, of the dtype and the spec; where that may be, half of them below zero,
 * and zeros. */
static float gen_float_scale(uint64_t *state, const sw_qspec *spec)
{
    bool is_free = sw_qspec_has_free_scales(spec);
    float sign = is_free && sw_gen_next(state) % 2 ? -1.0f : 1.0f;
    float power = 1.0f / (float)(1u << sw_gen_next(state) % 10);
    float mantissa = 1.0f + (float)(sw_gen_next(state) % 4096) / 4096.0f;

    if (!spec->is_pow2_scale && sw_gen_next(state) % 16 == 0) return is_free ? sign * 0.0f : 0.0f;
    return spec->is_pow2_scale ? power
                               : sign * sw_num_round_to(power * mantissa, spec->scale_dtype);
}

void sw_gen_float_qtensor(sw_qtensor *out, int which, int64_t n_out, int64_t k_in, uint64_t seed)
{
    const sw_qspec *spec = &float_specs[which];
    int64_t rows = sw_qspec_rows(spec, n_out);
    sw_err err = {0};

    if (sw_qtensor_alloc(out, spec, n_out, k_in, &err) != SW_OK) fail_msg("%s", err.text);
    for (int64_t i = 0; i < n_out * k_in; i++) {
        do out->codes[i] = gen_code(&seed, SW_GEN_RANDOM, 0, spec->num->code_max);
        while (!isfinite(spec->num->values[out->codes[i]]));
    }
    for (int64_t n = 0; n < n_out; n++)
        for (int64_t g = 0; g < out->n_groups; g++)
            out->scales[n * out->n_groups + g] =
                n % rows ? out->scales[(n - 1) * out->n_groups + g] : gen_float_scale(&seed, spec);
    if (spec->has_global) out->global_scale = 1.0f / 896.0f;
    if (sw_act_needs_input_scale(&spec->act)) out->input_scale = 0.0625f;
    if (sw_qtensor_check(out, &err) != SW_OK) fail_msg("%s", err.text);
}

bool sw_gen_holds_integers(const sw_dialect *dialect)
{
    static const int widths[] = {2, 3, 4, 8};

    for (int i = 0; i < 8; i++) {
        sw_qspec spec = {.num = sw_num_by_bits(widths[i / 2]), .is_symmetric = i % 2,
                         .group_elems = 32, .scale_dtype = SW_DTYPE_F16,
                         .zero_min = dialect->zero_min};
        sw_err err = {0};
        if (dialect->can_hold(&spec, 96, 384, &err) != SW_OK) return false;
    }
    return true;
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
    if (want->spec.has_global) assert_true(have->global_scale == want->global_scale);
    assert_true(have->input_scale == want->input_scale);
    for (int64_t k = 0; want->g_idx && k < want->k_in; k++)
        assert_int_equal(have->g_idx[k], want->g_idx[k]);
}
