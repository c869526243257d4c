/* share.c - see share.h. */
#include "quant/run/share.h"

#include <stdio.h>
#include <string.h>

#include "formats/io/profile.h"
#include "quant/method/row_work.h"
#include "quant/team/team.h"

sw_hessian sw_share_hessian(const sw_hessian *hess, sw_rows rows, int64_t n_out)
{
    sw_hessian part = *hess;

    part.n_out_residual = 0;
    if (!hess->r || hess->n_out_residual != n_out) return part;
    part.r = hess->r + rows.begin * hess->k_in;
    if (hess->is_weighed) part.d = hess->d + rows.begin * hess->k_in;
    part.n_out_residual = rows.end - rows.begin;
    return part;
}

/* --- what travels --- */

/* Rows of an array that every rank has room for: from each rank its own to all. */
typedef struct row_array {
    void *at;
    int64_t row_bytes;
} row_array;

static sw_code spread(row_array array, sw_rows rows, int from, sw_team *team, sw_err *err)
{
    const int64_t n = (rows.end - rows.begin) * array.row_bytes;

    if (!array.at || n <= 0) return SW_OK;
    return sw_team_broadcast(team, from, (char *)array.at + rows.begin * array.row_bytes,
                             (size_t)n, err);
}

static sw_code spread_rows(const sw_qtensor *q, sw_rows rows, int from, sw_team *team, sw_err *err)
{
    const row_array arrays[] = {
        {q->codes, q->k_in},
        {q->scales, q->n_groups * (int64_t)sizeof *q->scales},
        {q->zeros, q->n_groups},
        {q->outlier_values, q->spec.n_outliers * (int64_t)sizeof *q->outlier_values}};
    sw_code rc = SW_OK;

    for (size_t i = 0; i < sizeof arrays / sizeof *arrays && rc == SW_OK; i++)
        rc = spread(arrays[i], rows, from, team, err);
    return rc;
}

/* A report, whose method is a name: of each host its own. */
typedef struct travelling {
    sw_solve_report report;
    char method[16];
    float global_scale, input_scale;
} travelling;

/* What is no array of rows. */
static sw_code spread_head(sw_qtensor *q, sw_solve_report *report, int from, sw_team *team,
                           sw_err *err)
{
    travelling head = {.global_scale = q->global_scale, .input_scale = q->input_scale};
    const int64_t n_cols = q->outlier_cols ? q->spec.n_outliers : 0;
    sw_code rc;

    if (report) head.report = *report;
    if (report && report->method)
        (void)snprintf(head.method, sizeof head.method, "%s", report->method);
    head.report.method = NULL;
    rc = sw_team_broadcast(team, from, &head, sizeof head, err);
    if (rc == SW_OK && n_cols)
        rc = sw_team_broadcast(team, from, q->outlier_cols,
                               (size_t)n_cols * sizeof *q->outlier_cols, err);
    if (rc != SW_OK) return rc;
    q->global_scale = head.global_scale;
    q->input_scale = head.input_scale;
    if (!report) return SW_OK;
    *report = head.report;
    report->method = NULL;
    if (head.method[0] && !(report->method = sw_solver_name(head.method)))
        return SW_FAIL(err, SW_E_BUG, "rank %d solved by '%s', which no solver is called", from,
                       head.method);
    return SW_OK;
}

sw_code sw_share_tensor(sw_qtensor *q, sw_solve_report *report, int from, sw_team *team,
                        sw_err *err)
{
    const sw_rows all = {0, q->n_out};
    const sw_span span = sw_span_open("share");
    sw_code rc = spread_head(q, report, from, team, err);

    if (rc == SW_OK) rc = spread_rows(q, all, from, team, err);
    sw_span_close(span, NULL);
    return rc;
}

/* --- solving --- */

/* Rows of a tensor as a tensor of their own; borrows. */
static sw_qtensor part_of(const sw_qtensor *q, sw_rows rows)
{
    sw_qtensor part = *q;

    part.n_out = rows.end - rows.begin;
    part.codes += rows.begin * q->k_in;
    part.scales += rows.begin * q->n_groups;
    if (part.zeros) part.zeros += rows.begin * q->n_groups;
    if (part.outlier_values) part.outlier_values += rows.begin * q->spec.n_outliers;
    return part;
}

sw_code sw_share_solve(sw_qtensor *q, const sw_solve_problem *p, sw_rows rows,
                       sw_row_figures *figures, const double *shift,
                       sw_code (*solve)(sw_qtensor *q, const sw_solve_problem *p, void *self,
                                        sw_solve_report *report, sw_err *err),
                       void *self, sw_solve_report *report, sw_err *err)
{
    sw_solve_problem mine = *p;
    sw_qtensor part = part_of(q, rows);
    sw_code rc = SW_OK;

    mine.target_shift = shift;
    mine.w += rows.begin * p->k_in;
    mine.n_out = part.n_out;
    if (figures) mine.figures = figures + rows.begin;
    if (part.n_out == p->n_out) return solve(q, &mine, self, report, err);
    if (part.n_out) rc = solve(&part, &mine, self, report, err);
    q->global_scale = part.global_scale;
    return rc;
}

sw_code sw_share_gather(sw_qtensor *q, sw_row_figures *figures, sw_solve_report *report,
                        const sw_site_share *share, int64_t i, sw_team *team, sw_err *err)
{
    const row_array array = {figures, (int64_t)sizeof *figures};
    const sw_span span = sw_span_open("share");
    sw_row_figures sum;
    sw_code rc = spread_head(q, report, sw_site_share_first(share, i), team, err);

    for (int rank = 0; rank < share->n_ranks && rc == SW_OK; rank++) {
        const sw_rows rows = sw_site_share_rows(share, i, rank);

        rc = spread_rows(q, rows, rank, team, err);
        if (rc == SW_OK) rc = spread(array, rows, rank, team, err);
    }
    sw_span_close(span, NULL);
    if (rc != SW_OK || !figures || report->error < 0) return rc;
    sum = sw_rows_sum(figures, q->n_out);
    sw_rows_report(report, &sum);
    return SW_OK;
}

sw_code sw_share_forms(double (*by_row)[5], const sw_factor *factor, const sw_hessian *seen,
                       const sw_hessian *held, const float *w, int64_t n_out, sw_rows rows,
                       sw_strengths cap, sw_err *err)
{
    const sw_hessian my_seen = sw_share_hessian(seen, rows, n_out);
    const sw_hessian my_held = sw_share_hessian(held, rows, n_out);

    if (rows.end <= rows.begin) return SW_OK;
    return sw_target_forms(by_row + rows.begin, factor, &my_seen, &my_held,
                           w + rows.begin * factor->k_in, rows.end - rows.begin, cap, err);
}

sw_code sw_share_gather_forms(double (*by_row)[5], const sw_site_share *share, int64_t i,
                              sw_team *team, sw_err *err)
{
    sw_code rc = SW_OK;

    for (int rank = 0; rank < share->n_ranks && rc == SW_OK; rank++)
        rc = spread((row_array){by_row, (int64_t)sizeof *by_row},
                    sw_site_share_rows(share, i, rank), rank, team, err);
    return rc;
}
