/* test_tiles.c - the layout that tiles.h documents, checked from the outside: where each code
 * lies is found by reading the packed bytes the way a kernel's lane does, never by the packer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "formats/base/mem.h"
#include "formats/base/size.h"
#include "formats/pack/narrow.h"
#include "tests/support/toys/qtensor_gen.h"

typedef struct packed {
    uint8_t *codes, *zeros, *scales;
} packed;

static void pack(packed *out, const sw_qtensor *q)
{
    sw_err err = {0};

    memset(out, 0, sizeof *out);
    if (SW_MEM_GET(&out->codes, sw_tiles_codes_bytes(q->spec.num, q->n_out, q->k_in), "c", &err) ||
        SW_MEM_GET(&out->scales,
                   sw_tiles_scales_bytes(q->spec.scale_dtype, q->n_out, q->n_groups), "s", &err) ||
        (q->zeros &&
         SW_MEM_GET(&out->zeros, sw_tiles_zeros_bytes(q->n_out, q->n_groups), "z", &err)))
        fail_msg("%s", err.text);
    if (sw_tiles_pack(out->codes, out->scales, out->zeros, q, &err)) fail_msg("%s", err.text);
}

static void unpack(packed *p)
{
    sw_mem_put(p->codes);
    sw_mem_put(p->scales);
    sw_mem_put(p->zeros);
}

static void every_position_is_used_once(void **state)
{
    (void)state;
    for (int bits = 4; bits <= 8; bits += 4) {
        uint8_t seen[2 * 4096] = {0};
        for (int n = 0; n < 64; n++)
            for (int k = 0; k < 64; k++) {
                int shift = -1;
                int64_t at = sw_tile_offset(bits, n, k, &shift);
                assert_in_range(at, 0, sw_tile_bytes(bits) - 1);
                assert_true(shift == 0 || (bits == 4 && shift == 4));
                assert_int_equal(seen[2 * at + shift / 4]++, 0);
            }
    }
    assert_int_equal(sw_tile_bytes(4), 2048);
    assert_int_equal(sw_tile_bytes(8), 4096);
}

static void offsets_worked_by_hand(void **state)
{
    static const struct { int bits, n, k, offset, shift; } want[] = {
        {4, 0, 0, 0, 0},      {4, 8, 0, 0, 4},       {4, 0, 8, 1, 0},      {4, 0, 1, 2, 0},
        {4, 0, 9, 3, 0},      {4, 0, 2, 16, 0},      {4, 0, 16, 4, 0},     {4, 1, 0, 64, 0},
        {4, 16, 0, 512, 0},   {4, 63, 63, 2047, 4},  {4, 21, 35, 858, 0},  {8, 0, 0, 0, 0},
        {8, 8, 0, 4, 0},      {8, 0, 9, 3, 0},       {8, 0, 16, 8, 0},     {8, 0, 32, 2048, 0},
        {8, 63, 63, 4095, 0}, {8, 21, 35, 2898, 0}};

    (void)state;
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        int shift = -1;
        assert_int_equal(sw_tile_offset(want[i].bits, want[i].n, want[i].k, &shift),
                         want[i].offset);
        assert_int_equal(shift, want[i].shift);
    }
}

/* Register a_j of mma.m16n8k16 for lane t holds row t/4 + 8*(j%2), columns 2*(t%4) + 8*(j/2)
 * and the next one (PTX ISA, matrix fragments of mma.m16n8k16, 16-bit A). */
static void a_word_unfolds_into_the_mma_fragment(void **state)
{
    sw_qtensor q;
    packed p;

    (void)state;
    sw_gen_qtensor(&q, 4, true, 64, SW_DTYPE_F16, 64, 64, SW_GEN_RANDOM, 0, 11);
    pack(&p, &q);
    for (int warp = 0; warp < 4; warp++)
        for (int t = 0; t < 32; t++)
            for (int step = 0; step < 4; step++) {
                uint32_t word = sw_load_le32(p.codes + 512 * warp + 16 * t + 4 * step);
                for (int j = 0; j < 4; j++) {
                    uint32_t have = (word >> (4 * j)) & 0x000f000fu;
                    int row = 16 * warp + t / 4 + 8 * (j % 2);
                    int column = 16 * step + 2 * (t % 4) + 8 * (j / 2);
                    const uint8_t *pair = q.codes + row * 64 + column;
                    assert_int_equal(have, pair[0] | (uint32_t)pair[1] << 16);
                }
            }
    unpack(&p);
    sw_qtensor_free(&q);
}

/* Ragged in both directions; found through sw_tile_offset, which the tests above pin down. */
static void check_contents(const sw_qtensor *q, const packed *p)
{
    sw_err err = {0};
    int container = q->spec.num->bits <= 4 ? 4 : 8;
    bool is_float = q->spec.num->kind == SW_NUM_FLOAT;
    size_t bytes = (size_t)sw_dtype_bits(q->spec.scale_dtype) / 8;
    int64_t n_all = (q->n_out + 63) / 64 * 64, k_all = (q->k_in + 63) / 64 * 64;

    for (int64_t n = 0; n < n_all; n++)
        for (int64_t k = 0; k < k_all; k++) {
            int shift;
            int64_t tile = n / 64 * (k_all / 64) + k / 64;
            int64_t at = sw_tile_offset(container, (int)(n % 64), (int)(k % 64), &shift);
            int byte = p->codes[tile * sw_tile_bytes(container) + at];
            int have = container == 4 ? (byte >> shift) & 15 : byte;
            int want = is_float ? 0 : q->spec.num->sym_zero; /* padding */
            if (n < q->n_out && k < q->k_in) want = q->codes[n * q->k_in + k];
            else if (n < q->n_out && q->zeros)
                want = q->zeros[n * q->n_groups + q->n_groups - 1];
            if (have != want)
                fail_msg("[%lld, %lld]: have %d, want %d", (long long)n, (long long)k, have, want);
        }
    for (int64_t n = 0; n < n_all; n++)
        for (int64_t group = 0; group < q->n_groups; group++) {
            int64_t channel = n % 64, h = channel % 16 / 8, g = channel % 8, w = channel / 16;
            int64_t at = (n / 64 * q->n_groups + group) * 64 + 2 * (8 * w + g) + h;
            const uint8_t *stored = p->scales + (size_t)at * bytes;
            float have;
            assert_int_equal(sw_float_decode_n(&have, stored, q->spec.scale_dtype, 1, &err), SW_OK);
            if (n < q->n_out)
                assert_true(have == q->scales[n * q->n_groups + group]);
            else
                assert_memory_equal(stored, "\0\0\0\0", bytes);
            if (q->zeros)
                assert_int_equal(p->zeros[at], n < q->n_out ? q->zeros[n * q->n_groups + group]
                                                            : q->spec.num->sym_zero);
        }
}

/* The container of 2 or 3 bits: the smaller size, the same codes, widened the same bytes. */
static void check_stored(const sw_qtensor *q, const packed *p, const sw_tiles *tiles)
{
    int64_t n_bytes = sw_tiles_stored_bytes(q->spec.num, q->n_out, q->k_in);
    int64_t n_wide = sw_tiles_codes_bytes(q->spec.num, q->n_out, q->k_in);
    sw_tiles stored = *tiles;
    uint8_t *codes = NULL, *wide = NULL;
    sw_qtensor back;
    sw_err err = {0};

    assert_int_equal(n_bytes, n_wide * q->spec.num->bits / 4);
    assert_int_equal(SW_MEM_GET(&codes, n_bytes, "c", &err), SW_OK);
    assert_int_equal(SW_MEM_GET(&wide, n_wide, "w", &err), SW_OK);
    assert_int_equal(sw_tiles_pack_stored(codes, p->scales, p->zeros, q, &err), SW_OK);
    stored.codes = codes;
    stored.container_bits = q->spec.num->bits;
    sw_tiles_widen(wide, &stored);
    assert_memory_equal(wide, p->codes, n_wide);
    assert_int_equal(sw_qtensor_alloc(&back, &q->spec, q->n_out, q->k_in, &err), SW_OK);
    assert_int_equal(sw_tiles_unpack(&back, &stored, &err), SW_OK);
    sw_gen_assert_same(&back, q);
    sw_qtensor_free(&back);
    sw_mem_put(codes);
    sw_mem_put(wide);
}

/* One scale of 128, the first or the last, is what is said; the others are 0 or 1. */
static void usual_scales_are_those_within_the_bounds(void **state)
{
    static const struct { uint16_t bits; bool is_usual; } scales[] = {
        {0x0000, true},  {0x8000, true},  {0x3f80, true},  /* 0, -0, 1 */
        {0x1880, true},  {0x9880, true},  {0x187f, false}, /* 2^-78, -2^-78, below */
        {0x54ff, true},  {0xd4ff, true},  {0x5500, false}, /* below 2^43, 2^43 */
        {0xd500, false}, {0x0001, false}, {0x7f80, false}, {0xffc0, false}, /* infinity, NaN */
    };
    uint16_t bits[128];
    sw_tiles t = {.spec = {.num = &sw_nums[SW_NUM_INT4], .scale_dtype = SW_DTYPE_BF16},
                  .n_out = 64, .k_in = 256, .n_groups = 2, .scales = bits};

    (void)state;
    for (size_t i = 0; i < 2 * sizeof scales / sizeof *scales; i++) {
        for (int n = 0; n < 128; n++) bits[n] = i / 2 % 2 ? 0x3f80 : 0;
        bits[i % 2 * 127] = scales[i / 2].bits;
        assert_int_equal(sw_tiles_has_usual_scales(&t), scales[i / 2].is_usual);
    }
    bits[0] = 0x0001;
    bits[127] = 0;
    assert_true(sw_tiles_scales_within(&t, 0, SW_USUAL_SCALE_END));
    bits[0] = 0;
    t.spec.scale_dtype = SW_DTYPE_F16;
    assert_false(sw_tiles_has_usual_scales(&t));
    t.spec.scale_dtype = SW_DTYPE_BF16;
    t.spec.num = &sw_nums[SW_NUM_INT8];
    assert_false(sw_tiles_has_usual_scales(&t));
}

/* A tile whose codes are all 0 but one, worked by hand from narrow.h. */
static void narrow_places_worked_by_hand(void **state)
{
    static const struct { int bits, offset, code, at, byte, third_at, third; } want[] = {
        {2, 0, 3, 0, 0x03, 0, 0},       {2, 512, 2, 512, 0x02, 0, 0}, {2, 1024, 1, 0, 0x04, 0, 0},
        {2, 2047, 3, 1023, 0x0c, 0, 0}, {3, 0, 7, 0, 0x03, 1024, 1},  {3, 517, 4, 517, 0, 1029, 2},
        {3, 1030, 5, 6, 0x04, 1030, 4}, {3, 2047, 6, 1023, 0x08, 1535, 8}};

    (void)state;
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        for (int high = 0; high < 2; high++) {
            uint8_t wide[2048] = {0}, have[1536] = {0}, expected[1536] = {0}, back[2048];

            wide[want[i].offset] = (uint8_t)(want[i].code << 4 * high);
            expected[want[i].at] = (uint8_t)(want[i].byte << 4 * high);
            if (want[i].bits == 3)
                expected[want[i].third_at] = (uint8_t)(want[i].third << 4 * high);
            sw_tile_narrow(have, wide, want[i].bits);
            assert_memory_equal(have, expected, sizeof have);
            sw_tile_widen(back, have, want[i].bits);
            assert_memory_equal(back, wide, sizeof back);
        }
}

static void try_tensor(const sw_qtensor *q)
{
    sw_qtensor back;
    packed p;
    sw_err err = {0};

    pack(&p, q);
    check_contents(q, &p);
    sw_tiles tiles = {.spec = q->spec, .n_out = q->n_out, .k_in = q->k_in,
                      .n_groups = q->n_groups,
                      .container_bits = q->spec.num->bits <= 4 ? 4 : 8, .codes = p.codes,
                      .scales = p.scales, .zeros = p.zeros, .global_scale = q->global_scale,
                      .input_scale = q->input_scale};
    assert_int_equal(sw_qtensor_alloc(&back, &q->spec, q->n_out, q->k_in, &err), SW_OK);
    assert_int_equal(sw_tiles_unpack(&back, &tiles, &err), SW_OK);
    sw_gen_assert_same(&back, q);
    sw_qtensor_free(&back);
    if (q->spec.num->bits < 4) check_stored(q, &p, &tiles);
    unpack(&p);
}

static void try_one(int bits, bool is_symmetric, int64_t group, sw_dtype dtype, int64_t n_out,
                    int64_t k_in, sw_gen_content content)
{
    sw_qtensor q;

    sw_gen_qtensor(&q, bits, is_symmetric, group, dtype, n_out, k_in, content, 0,
                   (uint64_t)(n_out * 1000 + k_in));
    try_tensor(&q);
    sw_qtensor_free(&q);
}

static void small_floats_and_their_scales_too(void **state)
{
    static const int64_t shapes[][2] = {{1, 32}, {64, 64}, {65, 96}, {130, 320}};

    (void)state;
    for (int s = 0; s < 4; s++)
        for (int f = 0; f < SW_GEN_FLOATS; f++) {
            sw_qtensor q;
            sw_gen_float_qtensor(&q, f, shapes[s][0], shapes[s][1], (uint64_t)(7 * s + f));
            try_tensor(&q);
            sw_qtensor_free(&q);
        }
}


static void unpack_undoes_pack(void **state)
{
    static const int64_t shapes[][2] = {{1, 32}, {64, 64}, {65, 96}, {17, 224}, {130, 320}};
    static const int64_t groups[] = {0, 32, 64, 128};
    static const int widths[] = {2, 3, 4, 8};

    (void)state;
    for (int s = 0; s < 5; s++)
        for (int g = 0; g < 4; g++)
            for (int w = 0; w < 4; w++)
                for (int sym = 0; sym < 2; sym++)
                    for (int c = SW_GEN_RANDOM; c <= SW_GEN_HIGHEST; c++)
                        try_one(widths[w], sym, groups[g],
                                (s + g + w) % 2 ? SW_DTYPE_BF16 : SW_DTYPE_F16, shapes[s][0],
                                shapes[s][1], (sw_gen_content)c);
}

static void what_tiles_cannot_hold_is_refused(void **state)
{
    uint8_t codes[2048];
    uint16_t scales[64 * 4];
    sw_qtensor q;
    sw_err err = {0};

    (void)state;
    sw_gen_qtensor(&q, 4, true, 8, SW_DTYPE_F16, 64, 64, SW_GEN_RANDOM, 0, 3);
    assert_int_equal(sw_tiles_pack(codes, scales, NULL, &q, &err), SW_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "multiple of 16"));
    q.spec.group_elems = 0;
    q.n_groups = 1;
    q.spec.scale_dtype = SW_DTYPE_F64;
    err.code = SW_OK;
    assert_int_equal(sw_tiles_pack(codes, scales, NULL, &q, &err), SW_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "F64"));
    q.spec.scale_dtype = SW_DTYPE_F16;
    q.g_idx = (int32_t[64]){0};
    err.code = SW_OK;
    assert_int_equal(sw_tiles_pack(codes, scales, NULL, &q, &err), SW_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "g_idx"));
    q.g_idx = NULL;
    sw_qtensor_free(&q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_position_is_used_once),
        cmocka_unit_test(offsets_worked_by_hand),
        cmocka_unit_test(narrow_places_worked_by_hand),
        cmocka_unit_test(a_word_unfolds_into_the_mma_fragment),
        cmocka_unit_test(unpack_undoes_pack),
        cmocka_unit_test(small_floats_and_their_scales_too),
        cmocka_unit_test(what_tiles_cannot_hold_is_refused),
        cmocka_unit_test(usual_scales_are_those_within_the_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
