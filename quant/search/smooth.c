/* smooth.c - scales that move the outliers of activations into the weights.
 *
 * After "SmoothQuant" (Xiao et al., arXiv 2211.10438): s = max|x|^alpha / max|w|^(1 - alpha) per
 * channel, divided out of the input before it is quantized and multiplied into the weights. The
 * paper fixes alpha for a whole model; here every group searches its own, and the loss is the
 * real one: inputs rounded as the kernels will round them, weights too, the product compared with
 * that of the originals. Static scales of a tensor and those of a token (or a group of inputs)
 * want different alphas, which comes out by itself.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/size.h"
#include "formats/io/profile.h"
#include "formats/num/act.h"
#include "quant/method/weight_rows.h"
#include "quant/search/fold.h"
#include "quant/search/transform.h"

/* Alphas in twentieths: a coarse grid, then the neighbours of its best. */
static const int coarse[] = {3, 6, 9, 12, 15, 18}, fine[] = {-2, -1, 1, 2};
#define N(list) (int)(sizeof(list) / sizeof(list)[0])
#define ROWS_MAX 1024 /* tokens that a candidate runs on, */
#ifndef SW_SMOOTH_OUTPUTS
#define SW_SMOOTH_OUTPUTS 1024 /* and rows of a reader that it is solved for */
#endif
#define SIZE_MAX_FINITE 3.4e38f

/* Rows and products of rows are at the group's place; of several ranks each has those of its
 * windows. */
typedef struct search {
    const sw_group *g;
    sw_probe_rows part[SW_BLOCK_PROBE_PARTS]; /* SEARCH and HELD */
    float *want[SW_BLOCK_PROBE_PARTS]; /* products of the originals, reader after reader */
    double *wmax;                  /* [k] */
    float **values;                /* [n_readers] a candidate's weights */
    float *rows, *have;            /* a candidate's inputs and product */
    double by_row[ROWS_MAX];       /* squared errors, of the whole text; */
    double of_reader[ROWS_MAX];    /* of a reader's sampled rows */
    sw_evidence evidence;
    sw_scratch scratch;
} search;

static void search_free(search *s)
{
    const sw_place *at = &s->g->place;
    const sw_backend *backend = sw_backend_of(at);

    for (int part = 0; part < SW_BLOCK_PROBE_PARTS; part++) {
        sw_mem_put(s->part[part].amax);
        backend->put(at, s->part[part].rows);
        backend->put(at, s->want[part]);
    }
    sw_group_values_free(s->values, s->g);
    sw_mem_put(s->wmax);
    backend->put(at, s->rows);
    backend->put(at, s->have);
    sw_evidence_free(&s->evidence);
    sw_scratch_free(&s->scratch);
}

static sw_code keep_part(search *s, sw_block_probe_part part, sw_err *err)
{
    const sw_group *g = s->g;
    sw_probe_rows *kept = &s->part[part];
    sw_code rc;

    kept->site = g->fold.site;
    kept->expert = g->expert;
    kept->k = g->k;
    kept->n_max = ROWS_MAX;
    kept->every = sw_max_i64(1, sw_block_probe_tokens(g->probe, part) / ROWS_MAX);
    if ((rc = SW_MEM_GET(&kept->amax, g->k, "input ranges", err)) != SW_OK ||
        (rc = SW_PLACE_TAKE(&kept->rows, &g->place, ROWS_MAX * g->k, "input rows", err)) != SW_OK)
        return rc;
    rc = sw_block_probe_rows(kept, g->probe, part, g->original, err);
    for (int64_t j = 0; j < kept->k && rc == SW_OK; j++)
        if (!(kept->amax[j] <= SIZE_MAX_FINITE)) rc = sw_hessian_not_finite(err);
    return rc;
}

static int64_t n_outputs(const sw_group *g)
{
    int64_t n = 0;

    for (int64_t i = 0; i < g->n_readers; i++) n += sw_group_rows(g, i);
    return n;
}

/* Rows of a part times one weight, piece by piece: how many there are beside them may show in the
 * last digits of a product. */
static sw_code multiply_pieces(float *y, search *s, const float *x, const sw_probe_rows *kept,
                               const sw_weight *w, sw_err *err)
{
    const sw_place *at = &s->g->place;
    sw_code rc = SW_OK;

    for (int64_t i = s->g->probe->here.begin; i < s->g->probe->here.end && rc == SW_OK; i++) {
        const int64_t n = kept->of_piece[i];

        if (!n) continue;
        rc = sw_backend_of(at)->multiply(at, y, x, n, w, &s->scratch, err);
        y += n * w->n_out;
        x += n * w->k_in;
    }
    return rc;
}

/* y [n_rows, n_tried] of every reader, one after the other, of the rows x of a part. */
static sw_code multiply(float *y, search *s, const float *x, const sw_probe_rows *kept,
                        float *const *values, const float *input_scale, sw_err *err)
{
    const sw_group *g = s->g;
    sw_code rc = SW_OK;

    for (int64_t i = 0; i < g->n_readers && rc == SW_OK; i++) {
        int64_t n_out = sw_group_rows(g, i);
        sw_weight w = {.n_out = n_out, .k_in = g->k, .dense = values[i],
                       .dense_dtype = SW_DTYPE_F32};
        if (input_scale) {
            w.act = g->specs[i].act;
            w.input_scale = *input_scale;
        }
        rc = multiply_pieces(y, s, x, kept, &w, err);
        y += kept->n_rows * n_out;
    }
    return rc;
}

/* The largest weight of each column, of all rows. */
static sw_code find_wmax(search *s, sw_err *err)
{
    const sw_group *g = s->g;
    sw_code rc = SW_OK;

    for (int64_t i = 0; i < g->n_readers && rc == SW_OK; i++)
        rc = sw_weight_column_sizes(
            s->wmax, sw_block_weight((sw_block *)(uintptr_t)g->original, g->readers[i].slot,
                                     g->readers[i].expert), g->options->n_threads, err);
    return rc;
}

static sw_code search_new(search *s, const sw_group *g, sw_err *err)
{
    int64_t n_y = ROWS_MAX * n_outputs(g);
    sw_span span;
    sw_code rc;

    if ((rc = SW_MEM_GET(&s->wmax, g->k, "weight ranges", err)) != SW_OK ||
        (rc = SW_PLACE_TAKE(&s->rows, &g->place, ROWS_MAX * g->k, "input rows", err)) != SW_OK ||
        (rc = SW_PLACE_TAKE(&s->have, &g->place, n_y, "outputs", err)) != SW_OK ||
        (rc = sw_group_values_new(&s->values, g, err)) != SW_OK)
        return rc;
    span = sw_span_open("search ranges");
    rc = find_wmax(s, err);
    sw_span_close(span, NULL);
    if (rc != SW_OK) return rc;
    span = sw_span_open("search rows");
    for (int part = 0; part < SW_BLOCK_PROBE_PARTS && rc == SW_OK; part++) {
        if (part == SW_BLOCK_PROBE_TRIAL) continue;
        if ((rc = keep_part(s, (sw_block_probe_part)part, err)) != SW_OK ||
            (rc = SW_PLACE_TAKE(&s->want[part], &g->place, n_y, "outputs", err)) != SW_OK)
            break;
        rc = multiply(s->want[part], s, s->part[part].rows, &s->part[part], g->placed, NULL, err);
    }
    sw_block_probe_forget(g->probe); /* all that follows runs on rows */
    sw_span_close(span, NULL);
    return rc;
}

static void scale_for(double *scale, const search *s, double alpha)
{
    for (int64_t j = 0; j < s->g->k; j++) {
        double x = (double)s->part[SW_BLOCK_PROBE_SEARCH].amax[j], w = s->wmax[j];
        scale[j] = x > 0 && w > 0 ? pow(x, alpha) / pow(w, 1 - alpha) : 0;
    }
    sw_fold_tie(scale, &s->g->fold, s->g->k);
    sw_scale_normalize(scale, s->g->k);
}

/* The stored scale of a tensor's inputs (or the one that E4M3 scales are relative to), from the
 * largest that calibration saw; what dynamic scales do not need is harmless. */
static float input_scale_for(const search *s, const double *scale)
{
    const sw_act *act = &s->g->specs[0].act;
    double top = 0, largest = act->num->kind == SW_NUM_INT ? act->num->sym_zero - 1 : 448.0;

    for (int64_t j = 0; j < s->g->k; j++)
        top = fmax(top, (double)s->part[SW_BLOCK_PROBE_SEARCH].amax[j] / scale[j]);
    return top > 0 ? (float)(top / largest) : 1.0f;
}

/* The products with inputs divided by scale, and weights as they are in s->values: quantized, in
 * their unscaled meaning. */
static sw_code run_part(search *s, sw_block_probe_part part, const double *scale, sw_err *err)
{
    const sw_probe_rows *kept = &s->part[part];
    float input_scale = input_scale_for(s, scale);
    const sw_place *at = &s->g->place;
    sw_code rc;

    if (!kept->n_rows) return SW_OK;
    rc = sw_backend_of(at)->scale(at, s->rows, kept->rows, scale, kept->n_rows, s->g->k, true, err);
    return rc == SW_OK ? multiply(s->have, s, s->rows, kept, s->values, &input_scale, err) : rc;
}

/* Rows of the whole text. */
static int64_t n_rows_of(const search *s, sw_block_probe_part part)
{
    return sw_probe_rows_before(&s->part[part], SW_PIECES_MAX);
}

/* s->by_row = squared errors of the products in s->have; or squares of those of the originals. A
 * reader counts as if all its rows were as those sampled. */
static sw_code find_errors(search *s, sw_block_probe_part part, bool is_of_originals, sw_err *err)
{
    const float *have = is_of_originals ? s->want[part] : s->have, *want = s->want[part];
    const sw_probe_rows *kept = &s->part[part];
    double *mine = s->by_row + sw_probe_rows_before(kept, s->g->probe->here.begin);
    const sw_place *at = &s->g->place;
    sw_code rc = SW_OK;

    memset(s->by_row, 0, sizeof s->by_row);
    for (int64_t i = 0; i < s->g->n_readers && kept->n_rows && rc == SW_OK; i++) {
        const int64_t n_out = sw_group_rows(s->g, i);
        const double stands_for = (double)s->g->readers[i].n_out / (double)n_out;

        memset(s->of_reader, 0, sizeof s->of_reader);
        rc = sw_backend_of(at)->errors(at, s->of_reader, have, is_of_originals ? NULL : want,
                                       kept->n_rows, n_out, err);
        for (int64_t row = 0; row < kept->n_rows; row++)
            mine[row] += stands_for * s->of_reader[row];
        have += kept->n_rows * n_out;
        want += kept->n_rows * n_out;
    }
    return rc == SW_OK ? sw_probe_rows_gather(s->by_row, kept, s->g->probe, err) : rc;
}

static double sum_rows(const search *s, sw_block_probe_part part)
{
    double sum = 0;

    for (int64_t i = 0; i < n_rows_of(s, part); i++) sum += s->by_row[i];
    return sum;
}

/* Sum of squares of the products of the originals. */
static sw_code power_of(double *out, search *s, sw_block_probe_part part, sw_err *err)
{
    sw_code rc = find_errors(s, part, true, err);
    double sum = sum_rows(s, part);

    if (rc == SW_OK) *out = sum > 0 ? sum : 1;
    return rc;
}

/* Squared error of the products on the windows searched. */
static sw_code measure(double *loss, search *s, const double *scale, sw_err *err)
{
    sw_code rc = run_part(s, SW_BLOCK_PROBE_SEARCH, scale, err);

    if (rc == SW_OK) rc = find_errors(s, SW_BLOCK_PROBE_SEARCH, false, err);
    if (rc == SW_OK) *loss = sum_rows(s, SW_BLOCK_PROBE_SEARCH);
    return rc;
}

/* Weights times scale, rounded plainly: what the search looks at. */
static sw_code round_weights(search *s, const double *scale, sw_err *err)
{
    const sw_group *g = s->g;
    sw_code rc = SW_OK;

    for (int64_t i = 0; i < g->n_readers && rc == SW_OK; i++) {
        int64_t n_out = sw_group_rows(g, i);
        sw_solve_problem p = {.values = s->values[i], .n_out = n_out, .k_in = g->k,
                              .spec = g->specs[i], .place = g->place,
                              .n_threads = g->options->n_threads};
        sw_solve_report report = {0};
        rc = sw_backend_of(&g->place)
                 ->scale(&g->place, s->values[i], g->placed[i], scale, n_out, g->k, false, err);
        if (rc == SW_OK) rc = sw_rtn_solve(NULL, &p, &report, err);
    }
    return rc;
}

/* The same by the solver that will run. */
static sw_code solve_weights(search *s, const double *scale, sw_err *err)
{
    const sw_group *g = s->g;
    sw_code rc;

    if (!g->options->algo->repairs_errors) return round_weights(s, scale, err);
    rc = sw_group_solve(s->values, g, scale, err);
    for (int64_t i = 0; i < g->n_readers && rc == SW_OK; i++)
        rc = sw_backend_of(&g->place)
                 ->scale(&g->place, s->values[i], s->values[i], scale, sw_group_rows(g, i), g->k,
                         false, err);
    return rc;
}

/* What the weights in s->values cost on a part, piece by piece as the evidence has them. */
static sw_code judge_part(double *pieces, search *s, sw_block_probe_part part, const double *scale,
                          sw_err *err)
{
    sw_code rc = run_part(s, part, scale, err);

    if (rc == SW_OK) rc = find_errors(s, part, false, err);
    if (rc == SW_OK) sw_evidence_add(pieces, s->by_row, n_rows_of(s, part));
    return rc;
}

/* Evidence of a scale, on the windows searched and on those held out. */
static sw_code judge(double *pieces, search *s, const double *scale, sw_err *err)
{
    sw_code rc = solve_weights(s, scale, err);
    const sw_span span = sw_span_open("search trial");

    if (rc == SW_OK) rc = judge_part(pieces, s, SW_BLOCK_PROBE_SEARCH, scale, err);
    if (rc == SW_OK)
        rc = judge_part(pieces + s->evidence.n_chosen_by, s, SW_BLOCK_PROBE_HELD, scale, err);
    sw_span_close(span, NULL);
    return rc;
}

/* The step so far becomes `step` if its loss is lower. */
static sw_code try_alpha(int *best_step, double *best, int step, search *s, double *scale,
                         sw_err *err)
{
    double loss;
    sw_code rc;

    scale_for(scale, s, step / 20.0);
    if ((rc = round_weights(s, scale, err)) != SW_OK ||
        (rc = measure(&loss, s, scale, err)) != SW_OK || !(loss < *best))
        return rc;
    *best = loss;
    *best_step = step;
    return SW_OK;
}

static sw_code find_alpha(double *alpha, search *s, double *scale, sw_err *err)
{
    const sw_span span = sw_span_open("search alphas");
    double best = (double)INFINITY;
    int step = 10, middle;
    sw_code rc = SW_OK;

    for (int i = 0; i < N(coarse) && rc == SW_OK; i++)
        rc = try_alpha(&step, &best, coarse[i], s, scale, err);
    middle = step;
    for (int i = 0; i < N(fine) && rc == SW_OK; i++)
        rc = try_alpha(&step, &best, middle + fine[i], s, scale, err);
    sw_span_close(span, NULL);
    *alpha = step / 20.0;
    return rc;
}

static sw_code search_group(sw_proposal *out, search *s, sw_err *err)
{
    const sw_group *g = s->g;
    double *scale = NULL, alpha = 0, power = 1;
    sw_code rc = SW_MEM_GET(&scale, g->k, "scale", err);

    if (rc != SW_OK) return rc;
    for (int64_t j = 0; j < g->k; j++) scale[j] = 1.0;
    if ((rc = sw_evidence_new(&s->evidence, n_rows_of(s, SW_BLOCK_PROBE_SEARCH),
                              n_rows_of(s, SW_BLOCK_PROBE_HELD),
                              sw_block_probe_windows(g->probe, SW_BLOCK_PROBE_SEARCH) +
                                  sw_block_probe_windows(g->probe, SW_BLOCK_PROBE_HELD),
                              err)) != SW_OK ||
        (rc = judge(s->evidence.before, s, scale, err)) != SW_OK ||
        (rc = find_alpha(&alpha, s, scale, err)) != SW_OK)
        goto done;
    scale_for(scale, s, alpha);
    if ((rc = sw_fold_round(scale, g->job, &g->fold, g->expert, g->k, err)) != SW_OK ||
        (rc = sw_group_agree(scale, g, err)) != SW_OK ||
        (rc = judge(s->evidence.after, s, scale, err)) != SW_OK ||
        (rc = power_of(&power, s, SW_BLOCK_PROBE_HELD, err)) != SW_OK)
        goto done;
    memcpy(out->scale, scale, (size_t)g->k * sizeof *scale);
    (void)snprintf(out->choice, sizeof out->choice, "alpha %.2f", alpha);
    sw_proposal_judge(out, &s->evidence, power, true);
done:
    sw_mem_put(scale);
    return rc;
}

/* A reason why there is nothing to search for, or NULL. */
static const char *reason_against(const search *s)
{
    const sw_probe_rows *seen = &s->part[SW_BLOCK_PROBE_SEARCH];
    float top = 0;

    if (!n_rows_of(s, SW_BLOCK_PROBE_SEARCH) || !n_rows_of(s, SW_BLOCK_PROBE_HELD))
        return "no tokens to search on and to hold out";
    for (int64_t j = 0; j < seen->k; j++) top = fmaxf(top, seen->amax[j]);
    return top > 0 ? NULL : "calibration saw only zeros here: the inputs have no range";
}

static sw_code propose(sw_proposal *out, const sw_group *g, sw_err *err)
{
    const char *against = NULL;
    search *s = NULL;
    sw_code rc = SW_OK;

    for (int64_t i = 0; i < g->n_readers && !against; i++)
        if (g->specs[i].act.scope == SW_ACT_NONE) against = "activations stay in floats";
    if (!against && !sw_block_probe_windows(g->probe, SW_BLOCK_PROBE_HELD))
        against = "a single calibration window leaves none to hold out";
    if (!against && (rc = SW_MEM_GET(&s, 1, "scale search", err)) == SW_OK) {
        s->g = g;
        if ((rc = search_new(s, g, err)) == SW_OK) against = reason_against(s);
    }
    if (against)
        (void)snprintf(out->why_not, sizeof out->why_not, "%s", against);
    else if (rc == SW_OK)
        rc = search_group(out, s, err);
    if (s) search_free(s);
    sw_mem_put(s);
    return rc;
}

/* Kept rows and one candidate's, their products by the originals and the candidate, its weights. */
static int64_t bytes(const sw_transform_need *need)
{
    return 3 * 4 * ROWS_MAX * (need->k + need->n_tried) + 4 * need->n_tried * need->k +
           sw_group_solve_bytes(need);
}

/* Every alpha with rounded weights; none and the best one with solved weights, on two parts. */
static sw_transform_work work(const sw_transform_need *need)
{
    const double n_tried = sizeof coarse / sizeof *coarse + sizeof fine / sizeof *fine;
    const double n_k = (double)(need->n_tried * need->k);
    const double part = (double)need->n_tried / (double)need->n_outputs;

    return (sw_transform_work){.factors = 2, .solves = 2 * part,
                               .product_rows = (n_tried + 6) * ROWS_MAX * part,
                               .round_weights = n_tried * n_k,
                               .told_weights = need->is_solved ? 2 * n_k : 0};
}

const sw_transform sw_transform_smooth = {
    "smoothquant", true, true, SW_SMOOTH_OUTPUTS, propose, bytes, work};
