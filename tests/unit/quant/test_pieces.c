/* test_pieces.c - the order in which the sums of pieces are added: one, whatever the ranks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "quant/stats/pieces.h"

#define TEXT_BYTES 256

/* A sum as the expression that made it. */
typedef struct sum {
    sw_piece_run run;
    char text[TEXT_BYTES];
} sum;

typedef struct row {
    sum sums[SW_PIECES_MAX];
    int n, n_most; /* that lived at a time */
} row;

static void push(row *r, const sum *next, int64_t n_pieces)
{
    r->sums[r->n++] = *next;
    if (r->n > r->n_most) r->n_most = r->n;
    while (r->n > 1 &&
           sw_pieces_join(r->sums[r->n - 2].run, r->sums[r->n - 1].run, n_pieces)) {
        sum *a = &r->sums[r->n - 2], *b = &r->sums[r->n - 1];
        char joined[2 * TEXT_BYTES + 4];
        (void)snprintf(joined, sizeof joined, "(%s+%s)", a->text, b->text);
        assert_true(strlen(joined) < TEXT_BYTES);
        memcpy(a->text, joined, strlen(joined) + 1);
        a->run.end = b->run.end;
        r->n--;
    }
}

/* What a rank sums of pieces [begin, end). */
static row sum_pieces(int64_t begin, int64_t end, int64_t n_pieces)
{
    row r = {.n = 0};

    for (int64_t piece = begin; piece < end; piece++) {
        sum one = {.run = {piece, piece + 1}};
        (void)snprintf(one.text, sizeof one.text, "%d", (int)piece);
        push(&r, &one, n_pieces);
    }
    return r;
}

static void test_every_number_of_ranks_adds_alike(void **state)
{
    (void)state;
    for (int64_t n = 1; n <= SW_PIECES_MAX; n++) {
        const row alone = sum_pieces(0, n, n);
        assert_int_equal(alone.n, 1);
        assert_int_equal(alone.sums[0].run.end, n);
        assert_true(alone.n_most <= 3);
        for (int ranks = 2; ranks <= 2 * SW_PIECES_MAX; ranks++) {
            row all = {.n = 0};
            for (int rank = 0; rank < ranks; rank++) {
                const int64_t begin = sw_piece_of_rank(n, rank, ranks);
                const int64_t end = sw_piece_of_rank(n, rank + 1, ranks);
                const row own = sum_pieces(begin, end, n);
                sw_piece_run left[SW_PIECES_MAX];
                assert_int_equal(sw_pieces_left(left, begin, end, n), own.n);
                for (int i = 0; i < own.n; i++) {
                    assert_int_equal(left[i].begin, own.sums[i].run.begin);
                    assert_int_equal(left[i].end, own.sums[i].run.end);
                    push(&all, &own.sums[i], n);
                }
            }
            assert_int_equal(all.n, 1);
            assert_string_equal(all.sums[0].text, alone.sums[0].text);
        }
    }
}

static void test_ranks_own_all_pieces_once(void **state)
{
    (void)state;
    for (int64_t n = 1; n <= SW_PIECES_MAX; n++)
        for (int ranks = 1; ranks <= 2 * SW_PIECES_MAX; ranks++) {
            assert_int_equal(sw_piece_of_rank(n, 0, ranks), 0);
            assert_int_equal(sw_piece_of_rank(n, ranks, ranks), n);
            assert_true(sw_piece_of_rank(n, 1, ranks) > 0); /* rank 0 always has some */
            for (int rank = 0; rank < ranks; rank++) {
                const int64_t own = sw_piece_of_rank(n, rank + 1, ranks) -
                                    sw_piece_of_rank(n, rank, ranks);
                assert_true(own >= 0 && own <= n / ranks + 1);
            }
        }
}

static void test_the_text_alone_makes_pieces(void **state)
{
    (void)state;
    assert_int_equal(sw_pieces_of(1, 128), 1);
    assert_int_equal(sw_pieces_of(5, 128), 5);
    assert_int_equal(sw_pieces_of(1000, SW_PIECES_WIDE_INPUTS), SW_PIECES_MAX);
    assert_int_equal(sw_pieces_of(1000, SW_PIECES_WIDE_INPUTS + 1), SW_PIECES_WIDE);
    assert_int_equal(sw_pieces_alive(0, SW_PIECES_WIDE, SW_PIECES_WIDE, false), 2);
    assert_int_equal(sw_pieces_alive(0, SW_PIECES_WIDE, SW_PIECES_WIDE, true), 1);
    for (int64_t n_chunks = 1; n_chunks < 100; n_chunks++) {
        const int64_t n = sw_pieces_of(n_chunks, 128);
        assert_int_equal(sw_piece_chunk(n_chunks, n, 0), 0);
        assert_int_equal(sw_piece_chunk(n_chunks, n, n), n_chunks);
        for (int64_t piece = 0; piece < n; piece++)
            assert_true(sw_piece_chunk(n_chunks, n, piece) <
                        sw_piece_chunk(n_chunks, n, piece + 1));
    }
}

static void test_the_order_itself(void **state)
{
    const row r = sum_pieces(0, 8, 8);

    (void)state;
    assert_string_equal(r.sums[0].text, "((((0+1)+2)+3)+(((4+5)+6)+7))");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_number_of_ranks_adds_alike),
        cmocka_unit_test(test_ranks_own_all_pieces_once),
        cmocka_unit_test(test_the_text_alone_makes_pieces),
        cmocka_unit_test(test_the_order_itself),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
