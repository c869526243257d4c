/* row_work.c - see row_work.h. */
#include "quant/method/row_work.h"

#include "formats/base/parallel.h"
#include "formats/base/size.h"

/* What became of one piece. */
typedef struct piece {
    sw_row_figures figures;
    sw_code code;
    sw_err err;
} piece;

typedef struct row_work {
    sw_rows_fn fn;
    const void *ctx;
    piece *pieces;
    sw_row_space *spaces; /* [n_threads] */
} row_work;

static void run_piece(void *ctx, int64_t begin, int64_t end, int thread)
{
    const row_work *work = ctx;
    piece *at = &work->pieces[begin / SW_SLAB_ROWS];

    at->code = work->fn(&at->figures, &work->spaces[thread], work->ctx, begin, end - begin,
                        &at->err);
}

static void add(sw_row_figures *sum, const sw_row_figures *more)
{
    sum->loss += more->loss;
    sum->loss_rtn += more->loss_rtn;
    sum->power += more->power;
}

sw_row_figures sw_rows_sum(const sw_row_figures *by_row, int64_t n)
{
    sw_row_figures sum = {0, 0, 0};

    for (int64_t i = 0; i < n; i++) add(&sum, &by_row[i]);
    return sum;
}

sw_code sw_rows_solve(sw_row_figures *sum, sw_row_figures *by_row, sw_rows_fn fn, const void *ctx,
                      int64_t n_out, int n_threads, sw_err *err)
{
    int64_t n_pieces = sw_ceil_div(n_out, SW_SLAB_ROWS);
    row_work work = {.fn = fn, .ctx = ctx};
    sw_row_figures total = {0, 0, 0};
    sw_code rc = SW_MEM_GET(&work.pieces, n_pieces, "figures of rows", err);

    if (rc != SW_OK) return rc;
    n_threads = n_threads > 1 ? n_threads : 1;
    rc = SW_MEM_GET(&work.spaces, n_threads, "rows under way", err);
    if (rc != SW_OK) goto done;
    sw_parallel_for(n_threads, n_out, SW_SLAB_ROWS, run_piece, &work);
    for (int64_t i = 0; i < n_pieces; i++) {
        const piece *p = &work.pieces[i];
        if (p->code != SW_OK) {
            rc = SW_FAIL(err, p->code, "%s", p->err.text);
            goto done;
        }
        add(&total, &p->figures);
        if (by_row) by_row[i * SW_SLAB_ROWS] = p->figures;
    }
    *sum = total;
done:
    for (int i = 0; work.spaces && i < n_threads; i++) {
        sw_slab_free(&work.spaces[i].slab);
        sw_mem_put(work.spaces[i].more);
    }
    sw_mem_put(work.spaces);
    sw_mem_put(work.pieces);
    return rc;
}

void sw_rows_report(sw_solve_report *report, const sw_row_figures *sum)
{
    report->power = sum->power;
    report->error = sum->power > 0 ? sum->loss / sum->power : 0;
    report->error_rtn = sum->power > 0 ? sum->loss_rtn / sum->power : 0;
}
