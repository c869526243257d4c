/* test_dialect_roundtrip.c - for every dialect row: what is encoded comes back unchanged, inside
 * exactly the declared bytes, over widths, groups, shapes and extreme contents. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "formats/base/size.h"
#include "formats/dialect/dialect.h"
#include "tests/support/toys/qtensor_gen.h"

#define GUARD_BYTES 64

typedef struct part_buffers {
    int n;
    uint64_t bytes[SW_DIALECT_TENSORS_MAX];
    void *data[SW_DIALECT_TENSORS_MAX];
} part_buffers;

static void take_parts(part_buffers *out, const sw_dialect *dialect, const sw_qtensor *q)
{
    sw_part parts[SW_DIALECT_TENSORS_MAX];
    sw_err err = {0};

    memset(parts, 0, sizeof parts);
    out->n = dialect->declare(parts, &q->spec, q->n_out, q->k_in);
    assert_in_range(out->n, 1, SW_DIALECT_TENSORS_MAX);
    for (int i = 0; i < out->n; i++) {
        assert_int_equal(sw_shape_bytes(&out->bytes[i], parts[i].dtype, parts[i].n_dims,
                                        parts[i].shape, &err), SW_OK);
        assert_int_equal(sw_mem_get(&out->data[i], (int64_t)out->bytes[i] + GUARD_BYTES, 1, "part",
                                    &err), SW_OK);
        memset((uint8_t *)out->data[i] + out->bytes[i], 0xa5, GUARD_BYTES);
    }
}

static void put_parts(part_buffers *parts)
{
    for (int i = 0; i < parts->n; i++) {
        const uint8_t *guard = (uint8_t *)parts->data[i] + parts->bytes[i];
        for (int g = 0; g < GUARD_BYTES; g++) assert_int_equal(guard[g], 0xa5);
        sw_mem_put(parts->data[i]);
    }
}

static void round_trip(const sw_dialect *dialect, const sw_qtensor *q)
{
    part_buffers parts;
    sw_qtensor back;
    sw_err err = {0};

    take_parts(&parts, dialect, q);
    if (dialect->encode(parts.data, q, &err) != SW_OK) fail_msg("%s: %s", dialect->name, err.text);
    assert_int_equal(sw_qtensor_alloc(&back, &q->spec, q->n_out, q->k_in, &err), SW_OK);
    if (dialect->decode(&back, (const void *const *)parts.data, &err) != SW_OK)
        fail_msg("%s: %s", dialect->name, err.text);
    sw_gen_assert_same(&back, q);
    assert_int_equal(sw_qtensor_check(&back, &err), SW_OK);
    sw_qtensor_free(&back);
    put_parts(&parts);
}

typedef struct combo {
    int bits;
    bool is_symmetric;
    int64_t group;
    sw_dtype scale_dtype;
    sw_gen_content content;
} combo;

static const combo *combo_at(combo *out, int i)
{
    static const int widths[] = {2, 3, 4, 8};
    static const int64_t groups[] = {32, 64, 128, 0};
    combo c = {widths[i % 4], i / 4 % 2, groups[i / 8 % 4],
               i / 32 % 2 ? SW_DTYPE_BF16 : SW_DTYPE_F16, (sw_gen_content)(i / 64 % 3)};

    *out = c;
    return out;
}
#define N_COMBOS (4 * 2 * 4 * 2 * 3)

static int held(const sw_dialect *dialect, int64_t n_out, int64_t k_in)
{
    int n_held = 0;

    for (int i = 0; i < N_COMBOS; i++) {
        combo c;
        sw_qtensor q;
        sw_err err = {0};
        combo_at(&c, i);
        sw_gen_qtensor(&q, c.bits, c.is_symmetric, c.group, c.scale_dtype, n_out, k_in, c.content,
                       dialect->zero_min, (uint64_t)(i + n_out));
        if (dialect->can_hold(&q.spec, n_out, k_in, &err) == SW_OK) {
            round_trip(dialect, &q);
            n_held++;
        } else {
            assert_int_equal(err.code, SW_E_UNSUPPORTED);
        }
        sw_qtensor_free(&q);
    }
    return n_held;
}

static void every_row_returns_what_it_was_given(void **state)
{
    (void)state;
    for (const sw_dialect *const *d = sw_dialects; *d; d++) {
        if (!sw_gen_holds_integers(*d)) continue; /* tests of its own */
        bool is_gptq = strncmp((*d)->name, "gptq", 4) == 0;
        assert_int_equal(held(*d, 32, 128), N_COMBOS);
        assert_int_equal(held(*d, 96, 384), N_COMBOS);
        /* 224 = 7 * 32: groups of 32 and whole channels fit, 64 and 128 do not */
        assert_int_equal(held(*d, 160, 224), N_COMBOS / 2);
        /* ragged: outputs and inputs that fill no word and no tile */
        assert_int_equal(held(*d, 33, 128), is_gptq ? 0 : N_COMBOS);
        assert_int_equal(held(*d, 7, 100), is_gptq ? 0 : N_COMBOS / 4);
    }
}

static void small_floats_come_back_from_every_row_that_holds_them(void **state)
{
    static const int64_t shapes[][2] = {{64, 128}, {130, 256}, {33, 384}};
    int n_held = 0;

    (void)state;
    for (const sw_dialect *const *d = sw_dialects; *d; d++)
        for (int i = 0; i < 3 * SW_GEN_FLOATS; i++) {
            sw_qtensor q;
            sw_err err = {0};
            sw_gen_float_qtensor(&q, i / 3, shapes[i % 3][0], shapes[i % 3][1], (uint64_t)i);
            if ((*d)->can_hold(&q.spec, q.n_out, q.k_in, &err) == SW_OK) {
                round_trip(*d, &q);
                n_held++;
            } else {
                assert_int_equal(err.code, SW_E_UNSUPPORTED);
            }
            sw_qtensor_free(&q);
        }
    /* all in tiles, seven as compressed-tensors, three as fp8 */
    assert_true(n_held >= 3 * SW_GEN_FLOATS + 3 * (7 + 3));
}

static void a_scattered_g_idx_survives_where_there_is_a_place_for_it(void **state)
{
    int n_held = 0;

    (void)state;
    for (const sw_dialect *const *d = sw_dialects; *d; d++) {
        sw_qtensor q;
        sw_err err = {0};
        part_buffers parts;
        bool holds_plain;
        sw_gen_qtensor(&q, 4, false, 32, SW_DTYPE_F16, 64, 128, SW_GEN_RANDOM, 1, 5);
        holds_plain = (*d)->can_hold(&q.spec, 64, 128, &err) == SW_OK;
        memset(&err, 0, sizeof err);
        assert_int_equal(SW_MEM_GET(&q.g_idx, 128, "g_idx", &err), SW_OK);
        for (int k = 0; k < 128; k++) q.g_idx[k] = (k * 7) % 4;
        q.spec.is_scattered = true;
        if ((*d)->can_hold(&q.spec, 64, 128, &err) == SW_OK) {
            round_trip(*d, &q);
            n_held++;
        } else if (holds_plain) {
            assert_non_null(strstr(err.text, "g_idx"));
            take_parts(&parts, *d, &q);
            memset(&err, 0, sizeof err);
            assert_int_equal((*d)->encode(parts.data, &q, &err), SW_E_UNSUPPORTED);
            assert_non_null(strstr(err.text, "g_idx"));
            put_parts(&parts);
        }
        sw_qtensor_free(&q);
    }
    assert_int_equal(n_held, 3); /* gptq, gptq_v2, compressed-tensors */
}

/* Two encodings are the same bytes, whatever the buffers' neighbours hold. */
static void encoding_is_deterministic(void **state)
{
    (void)state;
    for (const sw_dialect *const *d = sw_dialects; *d; d++) {
        sw_qtensor q;
        part_buffers a, b;
        sw_err err = {0};
        if (!sw_gen_holds_integers(*d)) continue;
        sw_gen_qtensor(&q, 3, false, 32, SW_DTYPE_BF16, 64, 96, SW_GEN_RANDOM, 1, 9);
        take_parts(&a, *d, &q);
        take_parts(&b, *d, &q);
        assert_int_equal((*d)->encode(a.data, &q, &err), SW_OK);
        assert_int_equal((*d)->encode(b.data, &q, &err), SW_OK);
        for (int i = 0; i < a.n; i++) assert_memory_equal(a.data[i], b.data[i], a.bytes[i]);
        put_parts(&a);
        put_parts(&b);
        sw_qtensor_free(&q);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_returns_what_it_was_given),
        cmocka_unit_test(small_floats_come_back_from_every_row_that_holds_them),
        cmocka_unit_test(a_scattered_g_idx_survives_where_there_is_a_place_for_it),
        cmocka_unit_test(encoding_is_deterministic),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
