/* test_window.c - a weight in windows: every dialect and scheme, windows of the stored tensors
 * decode to the rows of the whole, and windows that are encoded make up its tensors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "formats/checkpoint/window.h"
#include "formats/dialect/dialect_common.h"
#include "tests/support/toys/qtensor_gen.h"

#define N_INTS (4 * 2 * 3)
#define K_IN 384

/* Whole windows; tiles, words and blocks at the end; an end that is ragged to most. */
static const int64_t heights[] = {512, 640, 576, 523};

typedef struct stored {
    void *data[SW_DIALECT_TENSORS_MAX];
    sw_part parts[SW_DIALECT_TENSORS_MAX];
    uint64_t bytes[SW_DIALECT_TENSORS_MAX];
    int n;
} stored;

static void generate(sw_qtensor *q, int which, int64_t n_out, int zero_min)
{
    static const int widths[] = {2, 3, 4, 8};
    static const int64_t groups[] = {32, 128, 0};

    if (which >= N_INTS)
        sw_gen_float_qtensor(q, which - N_INTS, n_out, K_IN, (uint64_t)which);
    else
        sw_gen_qtensor(q, widths[which % 4], which / 4 % 2, groups[which / 8], SW_DTYPE_F16, n_out,
                       K_IN, SW_GEN_RANDOM, zero_min, (uint64_t)which);
}

static void make_room(stored *out, const sw_dialect *dialect, const sw_qtensor *q)
{
    sw_err err = {0};

    memset(out, 0, sizeof *out);
    out->n = dialect->declare(out->parts, &q->spec, q->n_out, q->k_in);
    for (int i = 0; i < out->n; i++) {
        assert_int_equal(sw_shape_bytes(&out->bytes[i], out->parts[i].dtype, out->parts[i].n_dims,
                                        out->parts[i].shape, &err), SW_OK);
        assert_non_null(out->data[i] = calloc(1, out->bytes[i] + 1));
    }
}

static void store(stored *out, const sw_dialect *dialect, const sw_qtensor *q)
{
    sw_err err = {0};

    make_room(out, dialect, q);
    if (dialect->encode(out->data, q, &err) != SW_OK) fail_msg("%s: %s", dialect->name, err.text);
}

static void drop(stored *s)
{
    for (int i = 0; i < s->n; i++) free(s->data[i]);
}

/* The rows of a window as a weight that borrows all but its row count. */
static sw_qtensor rows_of(const sw_qtensor *q, int64_t window)
{
    int64_t row = window * SW_WINDOW_ROWS;
    sw_qtensor rows = *q;

    rows.n_out = sw_window_rows(window, q->n_out);
    rows.codes += row * q->k_in;
    rows.scales += row * q->n_groups;
    if (rows.zeros) rows.zeros += row * q->n_groups;
    return rows;
}

static void check_decode(const sw_dialect *dialect, const stored *whole, const sw_qtensor *rows,
                         const stored *like, const sw_window_cut *cuts)
{
    sw_qtensor have;
    sw_err err = {0};

    for (int i = 0; i < like->n; i++) {
        sw_window_gather(like->data[i], whole->data[i], &cuts[i]);
        if (cuts[i].is_shape) sw_shape_store(like->data[i], rows);
    }
    assert_int_equal(sw_qtensor_alloc(&have, &rows->spec, rows->n_out, K_IN, &err), SW_OK);
    if (dialect->decode(&have, (const void *const *)like->data, &err) != SW_OK)
        fail_msg("%s: %s", dialect->name, err.text);
    sw_gen_assert_same(&have, rows);
    sw_qtensor_free(&have);
}

static void check_windows(const sw_dialect *dialect, const sw_qtensor *q, int64_t n_windows)
{
    stored whole, again;

    store(&whole, dialect, q);
    make_room(&again, dialect, q);
    for (int64_t at = 0; at < n_windows; at++) {
        const sw_qtensor rows = rows_of(q, at);
        sw_window_cut cuts[SW_DIALECT_TENSORS_MAX];
        sw_part parts[SW_DIALECT_TENSORS_MAX];
        stored window;
        store(&window, dialect, &rows);
        assert_int_equal(sw_window_cuts(cuts, parts, dialect, &q->spec, q->n_out, q->k_in, at),
                         window.n);
        for (int i = 0; i < window.n; i++) {
            assert_int_equal(sw_window_bytes(&cuts[i]), window.bytes[i]);
            if (cuts[i].is_shape) sw_shape_store(window.data[i], q);
            sw_window_scatter(again.data[i], window.data[i], &cuts[i]);
        }
        if (!dialect->is_dense) check_decode(dialect, &whole, &rows, &window, cuts);
        drop(&window);
    }
    for (int i = 0; i < whole.n; i++)
        if (memcmp(whole.data[i], again.data[i], whole.bytes[i]) != 0)
            fail_msg("%s: tensor %s of %s weights in windows is another", dialect->name,
                     whole.parts[i].suffix, q->spec.num->name);
    drop(&whole);
    drop(&again);
}

/* Returns how many weights went through windows. */
static int check_dialect(const sw_dialect *dialect)
{
    int n = 0;

    for (int which = 0; which < N_INTS + SW_GEN_FLOATS; which++)
        for (size_t h = 0; h < sizeof heights / sizeof *heights; h++) {
            sw_qtensor q;
            int64_t n_windows;
            sw_err err = {0};
            generate(&q, which, heights[h], dialect->zero_min);
            if (dialect->can_hold(&q.spec, q.n_out, K_IN, &err) == SW_OK) {
                n_windows = sw_window_count(dialect, &q.spec, q.n_out, K_IN);
                if (heights[h] == 512 && !dialect->is_stacked) assert_int_equal(n_windows, 2);
                if (n_windows) check_windows(dialect, &q, n_windows);
                n += n_windows > 0;
            }
            sw_qtensor_free(&q);
        }
    return n;
}

static void windows_make_up_the_whole(void **state)
{
    (void)state;
    for (int i = 0; sw_dialects[i]; i++) {
        int n = check_dialect(sw_dialects[i]);
        if (sw_dialects[i]->is_stacked) assert_int_equal(n, 0);
        else assert_true(n >= 3);
    }
    assert_true(check_dialect(sw_dense_find("bf16")) >= 3); /* f16 does not reach some of these */
}

static void what_has_one_window_goes_whole(void **state)
{
    const sw_qspec spec = {.num = sw_num_by_bits(4), .is_symmetric = true, .group_elems = 32,
                           .scale_dtype = SW_DTYPE_F16};

    (void)state;
    for (int i = 0; sw_dialects[i]; i++)
        assert_int_equal(sw_window_count(sw_dialects[i], &spec, SW_WINDOW_ROWS, K_IN), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows_make_up_the_whole),
        cmocka_unit_test(what_has_one_window_goes_whole),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
