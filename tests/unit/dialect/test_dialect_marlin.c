/* test_dialect_marlin.c - marlin: the published words, byte equality with a repacking written here
 * from the original's other description, both decoders, the config. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "formats/base/size.h"
#include "formats/pack/marlin.h"
#include "tests/support/cases/spec_agree.h"
#include "tests/support/toys/qtensor_gen.h"

static uint32_t word_at(const void *words, int64_t i)
{
    return sw_load_le32((const uint8_t *)words + 4 * i);
}

static void published_words(void **state)
{
    static const uint32_t zeros[8] = {0x88880000, 0x99991111, 0xaaaa2222, 0xbbbb3333,
                                      0xcccc4444, 0xdddd5555, 0xeeee6666, 0xffff7777};
    static const uint32_t want8[4] = {0x10100000, 0x18180808, 0x10100000, 0x18180808};
    uint8_t codes[64 * 16], words[64 * 16], row[64];

    (void)state;
    for (int n = 0; n < 64; n++)
        for (int k = 0; k < 16; k++) codes[n * 16 + k] = (uint8_t)((k + n) % 16);
    sw_marlin_pack(words, codes, 4, 64, 16);
    for (int i = 0; i < 8; i++)
        assert_int_equal(word_at(words, i), i < 4 ? 0x19910880 : 0x3bb32aa2);
    assert_int_equal(word_at(words, 22), 0x4cc43bb3);
    for (int n = 0; n < 64; n++)
        for (int k = 0; k < 16; k++) codes[n * 16 + k] = (uint8_t)(16 * (k % 4) + n % 16);
    sw_marlin_pack(words, codes, 8, 64, 16);
    for (int i = 0; i < 4; i++) assert_int_equal(word_at(words, i), want8[i]);
    for (int n = 0; n < 64; n++) row[n] = (uint8_t)(n % 16);
    sw_marlin_zeros_pack(words, row, 4, 64, 1);
    for (int i = 0; i < 8; i++) assert_int_equal(word_at(words, i), zeros[i]);
}

/* The other description: the weight [K, N] cut into blocks of 16 x 16, each row of blocks laid
 * out flat; every 1024 elements of it permuted by what the 32 lanes load, four blocks in turn,
 * eight (four) elements of a lane swapped so that masks give pairs; then packed low end first. */
static int repack_order(int order[1024], int bits)
{
    static const int swap4[8] = {0, 2, 4, 6, 1, 3, 5, 7}, swap8[4] = {0, 2, 1, 3};
    int flat[1024], n = 0, run = bits == 4 ? 8 : 4;

    for (int lane = 0; lane < 32; lane++)
        for (int block = 0; block < 4; block++)
            for (int half = 0; half < 2; half++)
                for (int pair = 0; pair < 2; pair++)
                    for (int one = 0; one < 2; one++) {
                        int row = 2 * (lane % 4 + 4 * pair) + one;
                        flat[n++] = 256 * block + 16 * row + lane / 4 + 8 * half;
                    }
    for (int i = 0; i < n; i++)
        order[i] = flat[i - i % run + (run == 8 ? swap4[i % 8] : swap8[i % 4])];
    return n;
}

static void repack(uint8_t *out, const sw_qtensor *q)
{
    int64_t n_out = q->n_out, row_elems = n_out * 16;
    int bits = q->spec.num->bits, order[1024];
    uint8_t *flat = malloc((size_t)row_elems);

    assert_non_null(flat);
    assert_int_equal(repack_order(order, bits), 1024);
    memset(out, 0, (size_t)(n_out * q->k_in * bits / 8));
    for (int64_t kt = 0; kt < q->k_in / 16; kt++) {
        for (int64_t i = 0; i < row_elems; i++) {
            int64_t block = i / 256, row = i % 256 / 16, column = i % 16;
            flat[i] = q->codes[(16 * block + column) * q->k_in + 16 * kt + row];
        }
        for (int64_t i = 0; i < row_elems; i++) {
            int64_t at = (kt * row_elems + i) * bits; /* in bits, little-endian words */
            uint8_t code = flat[i - i % 1024 + order[i % 1024]];
            out[at / 8] = (uint8_t)(out[at / 8] | code << (at % 8));
        }
    }
    free(flat);
}

/* Scales by the tables, written as lists. */
static void permute_scales(uint8_t *out, const sw_qtensor *q)
{
    int table[64], n = 0, size = q->n_groups > 1 ? 64 : 32;

    if (q->n_groups > 1)
        for (int i = 0; i < 8; i++)
            for (int j = 0; j < 8; j++) table[n++] = i + 8 * j;
    else
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < 8; j++)
                table[n++] = 2 * i + (const int[]){0, 1, 8, 9, 16, 17, 24, 25}[j];
    for (int64_t g = 0; g < q->n_groups; g++)
        for (int64_t p = 0; p < q->n_out; p++) {
            int64_t from = p - p % size + table[p % size];
            sw_err err = {0};
            assert_int_equal(sw_float_encode_n(out + 2 * (g * q->n_out + p), q->spec.scale_dtype,
                                               &q->scales[from * q->n_groups + g], 1, &err),
                             SW_OK);
        }
}

static void permute_zeros(uint8_t *out, const sw_qtensor *q)
{
    int bits = q->spec.num->bits, run = 32 / bits;
    uint8_t *row = malloc((size_t)q->n_out), *turned = malloc((size_t)q->n_out);

    assert_true(row && turned);
    memset(out, 0, (size_t)(q->n_groups * q->n_out * bits / 8));
    for (int64_t g = 0; g < q->n_groups; g++) {
        for (int64_t p = 0; p < q->n_out; p++)
            row[p] = q->zeros[(p - p % 64 + p % 8 * 8 + p % 64 / 8) * q->n_groups + g];
        for (int64_t p = 0; p < q->n_out; p++)
            turned[p] = row[p - p % run +
                            (run == 8 ? (const int[]){0, 2, 4, 6, 1, 3, 5, 7}[p % 8]
                                      : (const int[]){0, 2, 1, 3}[p % 4])];
        for (int64_t p = 0; p < q->n_out; p++) {
            int64_t at = (g * q->n_out + p) * bits;
            out[at / 8] = (uint8_t)(out[at / 8] | turned[p] << (at % 8));
        }
    }
    free(row);
    free(turned);
}

static void compare(const void *have, void (*make)(uint8_t *, const sw_qtensor *),
                    const sw_qtensor *q, int64_t n_bytes)
{
    uint8_t *want = malloc((size_t)n_bytes);

    assert_non_null(want);
    make(want, q);
    assert_memory_equal(have, want, (size_t)n_bytes);
    free(want);
}

static void expect_repacked(const sw_qtensor *q)
{
    const sw_dialect *dialect = sw_dialect_find("marlin");
    int64_t n = q->n_out, bits = q->spec.num->bits;
    int64_t sizes[] = {n * q->k_in * bits / 8, 2 * n * q->n_groups, n * q->n_groups * bits / 8};
    void *parts[SW_DIALECT_TENSORS_MAX] = {NULL};
    sw_err err = {0};

    for (int i = 0; i < 3; i++) assert_non_null(parts[i] = calloc(1, (size_t)sizes[i]));
    if (dialect->encode(parts, q, &err) != SW_OK) fail_msg("%s", err.text);
    compare(parts[0], repack, q, sizes[0]);
    compare(parts[1], permute_scales, q, sizes[1]);
    if (q->zeros) compare(parts[2], permute_zeros, q, sizes[2]);
    for (int i = 0; i < 3; i++) free(parts[i]);
}

static void equal_to_an_independent_repacking(void **state)
{
    static const int64_t shapes[][3] = {
        {64, 128, 128}, {64, 128, 0}, {256, 384, 128}, {256, 256, 0}, {192, 256, 32},
        {320, 128, 64}};
    const sw_dialect *dialect = sw_dialect_find("marlin");
    int n_held = 0;

    (void)state;
    for (int i = 0; i < 6 * 2 * 2 * 3; i++) {
        const int64_t *s = shapes[i % 6];
        sw_qtensor q;
        sw_err err = {0};
        sw_gen_qtensor(&q, i / 6 % 2 ? 8 : 4, i / 12 % 2 == 0, s[2],
                       i % 3 ? SW_DTYPE_F16 : SW_DTYPE_BF16, s[0], s[1],
                       (sw_gen_content)(i / 24), 0, (uint64_t)i + 1);
        spec_tame(&q);
        assert_int_equal(dialect->can_hold(&q.spec, s[0], s[1], &err), SW_OK);
        expect_repacked(&q);
        spec_agree(dialect, &q);
        n_held++;
        sw_qtensor_free(&q);
    }
    assert_int_equal(n_held, 72);
}

static void what_the_kernels_do_not_take_is_refused(void **state)
{
    static const struct { int bits; int64_t group, n_out, k_in; bool scattered; const char *why; }
    rows[] = {
        {3, 128, 64, 128, false, "not 3"},        {4, 16, 64, 128, false, "groups of 32"},
        {4, 0, 96, 128, false, "96 outputs"},     {4, 32, 64, 96, false, "96 inputs"},
        {8, 32, 64, 128, true, "act-order"},      {4, 128, 64, 192, false, "do not divide"}};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        sw_qspec spec = {.num = sw_num_by_bits(rows[i].bits), .is_symmetric = true,
                         .group_elems = rows[i].group, .scale_dtype = SW_DTYPE_F16,
                         .is_scattered = rows[i].scattered};
        sw_err err = {0};
        assert_int_equal(sw_dialect_find("marlin")->can_hold(&spec, rows[i].n_out, rows[i].k_in,
                                                             &err), SW_E_UNSUPPORTED);
        if (!strstr(err.text, rows[i].why)) fail_msg("row %zu: %s", i, err.text);
    }
}

static void only_the_original_form_names_the_method_that_its_loaders_know(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        sw_qconfig config = {.spec = {.num = sw_num_by_bits(i == 1 ? 8 : 4),
                                      .is_symmetric = i != 2, .group_elems = i == 3 ? 64 : 128,
                                      .scale_dtype = SW_DTYPE_F16}};
        sw_part parts[SW_DIALECT_TENSORS_MAX];
        sw_qconfig back = {.has_no_default = false};
        sw_arena arena = {0};
        cJSON *object = NULL;
        sw_err err = {0};
        int n = sw_dialect_find("marlin")->declare(parts, &config.spec, 256, 256);
        assert_int_equal(sw_dialect_find("marlin")->write_config(&object, &config, &err), SW_OK);
        assert_string_equal(sw_json_member(object, "quant_method")->valuestring,
                            i ? "marlin" : "gptq");
        assert_int_equal(strcmp(parts[n - 1].suffix, "workspace") == 0, i == 0);
        assert_ptr_equal(sw_dialect_detect(object), sw_dialect_find("marlin"));
        assert_int_equal(sw_dialect_find("marlin")->read_config(&back, object, &arena, &err),
                         SW_OK);
        assert_true(sw_qspec_same(&back.spec, &(sw_qspec){
            .num = config.spec.num, .is_symmetric = config.spec.is_symmetric,
            .group_elems = config.spec.group_elems, .scale_dtype = back.spec.scale_dtype}));
        sw_arena_free(&arena);
        cJSON_Delete(object);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_words),
        cmocka_unit_test(equal_to_an_independent_repacking),
        cmocka_unit_test(what_the_kernels_do_not_take_is_refused),
        cmocka_unit_test(only_the_original_form_names_the_method_that_its_loaders_know),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
