/* strengths.c - how far the targets of a site's linears lean on the original model. See
 * linear_solve.h and target.h.
 */
#include "formats/io/profile.h"
#include "quant/lanes.h"
#include "quant/run/linear_solve.h"
#include "quant/run/share.h"
#include "quant/run/weights_ahead.h"
#include "quant/team/team.h"

/* Linears whose strengths are chosen, as items of lanes. */
typedef struct strengths_work {
    sw_strengths *out; /* of all linears of the job */
    const sw_block_job *job;
    const sw_factor *factor;
    const sw_hessian *seen, *held;
    float **loaded;    /* [n_linears] weights that are solved next; experts' are not among them */
    int64_t *linear;   /* which of the job's */
    sw_site_cut cut;
    double (**forms)[5]; /* [n_linears] of samples, while ranks are to hear of them; or NULL */
} strengths_work;

/* The rows that a linear's strengths are chosen by. */
static sw_row_sample sample_of(const strengths_work *s, int64_t i)
{
    return sw_strength_rows(s->job->linears[i].n_out, s->job->linears[i].expert >= 0);
}

/* Of them those of this rank. */
static sw_row_sample sample_here(const strengths_work *s, int64_t i)
{
    const sw_row_sample all = sample_of(s, i);
    sw_rows rows;

    if (!s->cut.linears) return all;
    rows = sw_site_share_rows(&s->cut.share, i, sw_team_rank(s->job->options->team));
    return sw_row_sample_part(&all, rows.begin, rows.end);
}

/* The weight of a linear that is solved next, by all ranks, which the caller owns; or of an expert,
 * which is solved later, these rows alone in a room of its size, which will be wanted then. */
static sw_code load(float **w, const strengths_work *s, int64_t i, const sw_row_sample *rows,
                    const sw_place *at, sw_err *err)
{
    const sw_linear_ref *ref = &s->job->linears[i];
    sw_code rc;

    if ((*w = sw_weights_ahead_take(s->job, i))) return SW_OK;
    rc = sw_weight_room_take(w, s->job->rooms, ref->n_out * ref->k_in, at->n_threads, err);
    if (rc != SW_OK) return rc;
    return ref->expert < 0 ? sw_linear_load(*w, s->job, ref, at->n_threads, err)
                           : sw_linear_load_rows(*w, s->job, ref, rows, err);
}

static void choose(const strengths_work *s, int64_t i)
{
    const sw_row_sample rows = sample_of(s, i);

    s->out[i] = sw_target_choose(s->forms[i], sw_row_sample_count(&rows), s->seen, s->held,
                                 s->job->options->cap);
    sw_mem_put(s->forms[i]);
    s->forms[i] = NULL;
}

static sw_code choose_strength(void *self, int64_t item, const sw_place *at, sw_err *err)
{
    const strengths_work *s = self;
    const int64_t i = s->linear[item];
    const sw_linear_ref *ref = &s->job->linears[i];
    const sw_row_sample all = sample_of(s, i), mine = sample_here(s, i);
    const bool is_for_others = sw_row_sample_count(&mine) == 0;
    const sw_factor factor = sw_factor_in(s->factor, at);
    float *w = NULL;
    char path[256];
    sw_code rc = SW_MEM_GET(&s->forms[i], sw_row_sample_count(&all), "target search", err);

    if (rc == SW_OK && is_for_others && ref->expert >= 0) return SW_OK;
    if (rc == SW_OK) rc = load(&w, s, i, &mine, at, err);
    if (rc == SW_OK && !is_for_others)
        rc = sw_target_forms(s->forms[i] + (mine.begin - all.begin), &factor, s->seen, s->held, w,
                             &mine, s->job->options->cap, err);
    if (rc != SW_OK &&
        sw_model_slot_path(path, s->job->model, ref->layer, ref->slot, ref->expert))
        sw_err_prefix(err, "%s", path);
    if (rc == SW_OK && !s->cut.linears) choose(s, i);
    if (rc == SW_OK && ref->expert < 0) s->loaded[i] = w;
    else sw_weight_room_put(s->job->rooms, w);
    return rc;
}

/* Of several ranks, when each has done its rows: all hear of all, and choose the same. */
static sw_code choose_together(const strengths_work *s, int64_t n, sw_err *err)
{
    const sw_code rc = sw_share_gather_forms(s->forms, s->linear, n, &s->cut.share,
                                             s->job->options->team, err);

    for (int64_t item = 0; item < n && rc == SW_OK; item++) choose(s, s->linear[item]);
    return rc;
}

static void strengths_free(strengths_work *s)
{
    for (int64_t i = 0; s->forms && i < s->job->n_linears; i++) sw_mem_put(s->forms[i]);
    sw_mem_put(s->forms);
    sw_mem_put(s->linear);
    sw_site_cut_free(&s->cut);
}

sw_code sw_strengths_find(sw_strengths *out, float **loaded, const sw_block_job *job, sw_site site,
                          const sw_factor *factor, const sw_hessian *seen, const sw_hessian *held,
                          sw_err *err)
{
    const sw_span span = sw_span_open("strengths");
    strengths_work s = {out, job, factor, seen, held, loaded, NULL, {NULL, {0}}, NULL};
    const sw_lane_work work = {.self = &s, .work = choose_strength};
    int64_t n = 0;
    sw_code rc = SW_MEM_GET(&s.linear, job->n_linears, "linears of a site", err);

    if (rc == SW_OK) rc = SW_MEM_GET(&s.forms, job->n_linears, "target search", err);
    for (int64_t i = 0; i < job->n_linears && rc == SW_OK; i++)
        if (sw_is_of_site(&job->linears[i], site, -1)) s.linear[n++] = i;
    if (rc == SW_OK) rc = sw_site_cut_new(&s.cut, job, s.linear, n, &factor->place, false, err);
    if (rc == SW_OK) rc = sw_lanes_run(&factor->place, sw_lanes_for(job), n, &work, err);
    if (rc == SW_OK && s.cut.linears) rc = choose_together(&s, n, err);
    strengths_free(&s);
    sw_span_close(span, NULL);
    return rc;
}
