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

/* Rows of an array that every rank has room for. */
typedef struct row_array {
    void *at; /* NULL: there is none, at any rank */
    int64_t row_bytes;
} row_array;

#define ARRAYS_MAX 5 /* of a linear */
#define HEAD_PARTS_MAX 2

/* Of a tensor, and what its rows cost. */
static void list_arrays(row_array out[ARRAYS_MAX], const sw_qtensor *q, sw_row_figures *figures)
{
    const row_array arrays[ARRAYS_MAX] = {
        {q->codes, q->k_in},
        {q->scales, q->n_groups * (int64_t)sizeof *q->scales},
        {q->zeros, q->n_groups},
        {q->outlier_values, q->spec.n_outliers * (int64_t)sizeof *q->outlier_values},
        {figures, (int64_t)sizeof *figures}};

    memcpy(out, arrays, sizeof arrays);
}

/* Those rows of arrays that `from` has, behind what is on the list. */
static void add_parts(sw_team_part *parts, int64_t *n, const row_array *arrays, int n_arrays,
                      sw_rows rows, int from)
{
    for (int i = 0; i < n_arrays; i++) {
        if (!arrays[i].at || rows.end <= rows.begin) continue;
        parts[(*n)++] = (sw_team_part){
            from, (char *)arrays[i].at + rows.begin * arrays[i].row_bytes,
            (size_t)((rows.end - rows.begin) * arrays[i].row_bytes)};
    }
}

/* A report, whose method is a name: of each host its own. */
typedef struct travelling {
    sw_solve_report report;
    char method[16];
    float global_scale, input_scale;
} travelling;

static travelling head_of(const sw_qtensor *q, const sw_solve_report *report)
{
    travelling head = {.global_scale = q->global_scale, .input_scale = q->input_scale};

    if (report) head.report = *report;
    if (report && report->method)
        (void)snprintf(head.method, sizeof head.method, "%s", report->method);
    head.report.method = NULL;
    return head;
}

static sw_code take_head(sw_qtensor *q, sw_solve_report *report, const travelling *head, int from,
                         sw_err *err)
{
    q->global_scale = head->global_scale;
    q->input_scale = head->input_scale;
    if (!report) return SW_OK;
    *report = head->report;
    report->method = NULL;
    if (head->method[0] && !(report->method = sw_solver_name(head->method)))
        return SW_FAIL(err, SW_E_BUG, "rank %d solved by '%s', which no solver is called", from,
                       head->method);
    return SW_OK;
}

/* What is no array of rows, which `from` has. */
static void add_head(sw_team_part *parts, int64_t *n, const sw_qtensor *q, travelling *head,
                     int from)
{
    parts[(*n)++] = (sw_team_part){from, head, sizeof *head};
    if (q->outlier_cols && q->spec.n_outliers)
        parts[(*n)++] = (sw_team_part){from, q->outlier_cols,
                                       (size_t)q->spec.n_outliers * sizeof *q->outlier_cols};
}

sw_code sw_share_tensors(const sw_share_whole *items, int64_t n, sw_team *team, sw_err *err)
{
    const sw_span span = sw_span_open("share");
    sw_team_part *parts = NULL;
    travelling *heads = NULL;
    int64_t n_parts = 0;
    sw_code rc = SW_MEM_GET(&parts, n * (HEAD_PARTS_MAX + ARRAYS_MAX), "tensors of ranks", err);

    if (rc == SW_OK) rc = SW_MEM_GET(&heads, n, "tensors of ranks", err);
    for (int64_t i = 0; i < n && rc == SW_OK; i++) {
        const sw_qtensor *q = items[i].q;
        row_array arrays[ARRAYS_MAX];

        heads[i] = head_of(q, items[i].report);
        add_head(parts, &n_parts, q, &heads[i], items[i].from);
        list_arrays(arrays, q, NULL);
        add_parts(parts, &n_parts, arrays, ARRAYS_MAX, (sw_rows){0, q->n_out}, items[i].from);
    }
    if (rc == SW_OK) rc = sw_team_share(team, parts, n_parts, err);
    for (int64_t i = 0; i < n && rc == SW_OK; i++)
        rc = take_head(items[i].q, items[i].report, &heads[i], items[i].from, err);
    sw_mem_put(parts);
    sw_mem_put(heads);
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

/* The rows of all ranks, and the heads of those who have the first, in one go: each sends its own
 * while those of others come. */
static sw_code gather_rows(const sw_share_item *items, int64_t n, const sw_site_share *share,
                           sw_team *team, sw_err *err)
{
    sw_team_part *parts = NULL;
    travelling *heads = NULL;
    int64_t n_parts = 0;
    sw_code rc = SW_MEM_GET(&parts, n * (HEAD_PARTS_MAX + share->n_ranks * ARRAYS_MAX),
                            "rows of ranks", err);

    if (rc == SW_OK) rc = SW_MEM_GET(&heads, n, "rows of ranks", err);
    for (int64_t i = 0; i < n && rc == SW_OK; i++) {
        row_array arrays[ARRAYS_MAX];

        heads[i] = head_of(items[i].q, items[i].report);
        add_head(parts, &n_parts, items[i].q, &heads[i],
                 sw_site_share_first(share, items[i].linear));
        list_arrays(arrays, items[i].q, items[i].figures);
        for (int rank = 0; rank < share->n_ranks; rank++)
            add_parts(parts, &n_parts, arrays, ARRAYS_MAX,
                      sw_site_share_rows(share, items[i].linear, rank), rank);
    }
    if (rc == SW_OK) rc = sw_team_share(team, parts, n_parts, err);
    for (int64_t i = 0; i < n && rc == SW_OK; i++)
        rc = take_head(items[i].q, items[i].report, &heads[i],
                       sw_site_share_first(share, items[i].linear), err);
    sw_mem_put(parts);
    sw_mem_put(heads);
    return rc;
}

sw_code sw_share_gather(const sw_share_item *items, int64_t n, const sw_site_share *share,
                        sw_team *team, sw_err *err)
{
    const sw_span span = sw_span_open("share");
    const sw_code rc = gather_rows(items, n, share, team, err);

    sw_span_close(span, NULL);
    for (int64_t i = 0; i < n && rc == SW_OK; i++) {
        sw_row_figures sum;

        if (!items[i].figures || items[i].report->error < 0) continue;
        sum = sw_rows_sum(items[i].figures, items[i].q->n_out);
        sw_rows_report(items[i].report, &sum);
    }
    return rc;
}

sw_code sw_share_gather_forms(double (*const *forms)[5], const int64_t *linear, int64_t n,
                              const sw_site_share *share, sw_team *team, sw_err *err)
{
    sw_team_part *parts = NULL;
    int64_t n_parts = 0;
    sw_code rc = SW_MEM_GET(&parts, n * share->n_ranks, "rows of ranks", err);

    for (int64_t i = 0; i < n && rc == SW_OK; i++) {
        const row_array array = {forms[linear[i]], (int64_t)sizeof **forms};

        for (int rank = 0; rank < share->n_ranks; rank++)
            add_parts(parts, &n_parts, &array, 1, sw_site_share_rows(share, linear[i], rank),
                      rank);
    }
    if (rc == SW_OK) rc = sw_team_share(team, parts, n_parts, err);
    sw_mem_put(parts);
    return rc;
}
