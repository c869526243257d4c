/* row_sample.h - some rows of a weight that stand for all of them, where sums over rows are only
 * to be compared with each other. Pure functions.
 *
 * Blocks of rows, one in the middle of each of as many equal stretches of the weight: rows beside
 * each other are read and multiplied together, and what differs along a weight (heads) is met
 * evenly. A weight with few rows is one block, and all of it the sample.
 */
#ifndef SW_QUANT_METHOD_ROW_SAMPLE_H
#define SW_QUANT_METHOD_ROW_SAMPLE_H

#include "formats/base/size.h"

/* Of a block; what the CPU works on at a time, so that no such chunk lies in two blocks. */
#define SW_SAMPLE_BLOCK_ROWS 64

/* Rows [begin, end) of a sample of a weight's rows. */
typedef struct sw_row_sample {
    int64_t n_out; /* rows of the weight */
    int64_t n_blocks, block_rows;
    int64_t begin, end;
} sw_row_sample;

/* Every row of a weight. */
static inline sw_row_sample sw_row_sample_all(int64_t n_out)
{
    return (sw_row_sample){n_out, 1, n_out, 0, n_out};
}

/* n_most rows, a multiple of SW_SAMPLE_BLOCK_ROWS; all of a weight with no more. */
static inline sw_row_sample sw_row_sample_of(int64_t n_out, int64_t n_most)
{
    const int64_t n_blocks = n_most / SW_SAMPLE_BLOCK_ROWS;

    return n_out <= n_most
               ? sw_row_sample_all(n_out)
               : (sw_row_sample){n_out, n_blocks, SW_SAMPLE_BLOCK_ROWS, 0, n_most};
}

/* Those of a sample from begin to end, where chunks of SW_SAMPLE_BLOCK_ROWS begin or it ends. */
static inline sw_row_sample sw_row_sample_part(const sw_row_sample *s, int64_t begin, int64_t end)
{
    return (sw_row_sample){s->n_out, s->n_blocks, s->block_rows, s->begin + begin, s->begin + end};
}

static inline int64_t sw_row_sample_count(const sw_row_sample *s) { return s->end - s->begin; }

/* Rows of the weight that lie beside each other: n of them from `row` on. */
typedef struct sw_row_run {
    int64_t row, n;
} sw_row_run;

/* Row i of the sample, counted from its begin, and those behind it, n_most at most. */
static inline sw_row_run sw_row_sample_run(const sw_row_sample *s, int64_t i, int64_t n_most)
{
    const int64_t at = s->begin + i, block = at / s->block_rows, in_block = at % s->block_rows;
    const int64_t first = block * s->n_out / s->n_blocks +
                          (s->n_out / s->n_blocks - s->block_rows) / 2;
    const int64_t n = sw_min_i64(s->block_rows - in_block, s->end - at);

    return (sw_row_run){first + in_block, sw_min_i64(n, n_most)};
}

#endif
