/* sums_all.c - sums of all ranks, added by ranks side by side. See sums.h.
 *
 * Of a sum that all get, every rank adds a stretch of each array, in the order that all pieces of
 * the text have (pieces.h), and then has it from the others for the rest. Of experts each rank adds
 * one at a time, its own, and gives away what it has of the others'. So no rank gets and adds
 * everything while the others wait, and both directions of a link are busy. Which rank adds a
 * number changes no bit.
 */
#include "formats/base/size.h"
#include "quant/stats/sums.h"
#include "quant/team/team.h"

/* Of an expert's sum so much moves at a time: of each run of others there is room beside it. */
#define SLICE_ELEMS ((int64_t)4 << 20)

/* The runs of all ranks, in the order of the text. */
typedef struct all_runs {
    int n;
    int rank[SW_PIECES_MAX], nth[SW_PIECES_MAX]; /* whose, and which of its own */
    sw_piece_run runs[SW_PIECES_MAX];
} all_runs;

/* What one rank adds: n elements, which begin at of_run[i] in each run that is here. */
typedef struct portion {
    sw_sum_head heads[SW_PIECES_MAX]; /* of the sum that they are of, of each run */
    int64_t n;
    double *of_run[SW_PIECES_MAX];
} portion;

static int next_to(const sw_carrier *c, int by)
{
    const int size = sw_team_size(c->team);

    return (sw_team_rank(c->team) + by + size) % size;
}

/* Elements [stretch(rank), stretch(rank + 1)) of n are a rank's to add. */
static int64_t stretch(const sw_carrier *c, int64_t n, int rank)
{
    return n * rank / sw_team_size(c->team);
}

static int64_t stretch_elems(const sw_carrier *c, int64_t n, int rank)
{
    return stretch(c, n, rank + 1) - stretch(c, n, rank);
}

static void find_runs(all_runs *a, int64_t n_pieces, int n_ranks)
{
    a->n = 0;
    for (int rank = 0; rank < n_ranks; rank++) {
        const int n = sw_pieces_left(a->runs + a->n, sw_piece_of_rank(n_pieces, rank, n_ranks),
                                     sw_piece_of_rank(n_pieces, rank + 1, n_ranks), n_pieces);

        for (int i = 0; i < n; i++) {
            a->rank[a->n + i] = rank;
            a->nth[a->n + i] = i;
        }
        a->n += n;
    }
}

/* heads [runs, n]: those of this rank's runs are there, and those of all afterwards. */
static sw_code share_heads(sw_sum_head *heads, int64_t n, const all_runs *a, const sw_carrier *c,
                           sw_err *err)
{
    sw_team_part parts[SW_PIECES_MAX];

    for (int i = 0; i < a->n; i++)
        parts[i] = (sw_team_part){a->rank[i], heads + i * n, (size_t)n * sizeof *heads};
    return sw_team_share(c->team, parts, a->n, err);
}

static sw_code check_runs(const all_runs *a, int n_mine, const sw_carrier *c, sw_err *err)
{
    for (int i = 0; i < a->n; i++)
        if (a->rank[i] == sw_team_rank(c->team) && a->nth[i] >= n_mine)
            return SW_FAIL(err, SW_E_BUG, "rank %d has not summed run %d", a->rank[i], i);
    return SW_OK;
}

/* The next run of a rank from `at` on that saw tokens; a->n: none. */
static int next_run(const all_runs *a, const portion *p, int at, int rank)
{
    while (at < a->n && (a->rank[at] != rank || !p->heads[at].n_tokens)) at++;
    return at;
}

/* Of this rank's runs the portion of one rank to it, while those of another for this one come.
 * of [ranks]; taken [runs]: room for what comes. */
static sw_code trade(const portion *of, double *const *taken, const all_runs *a, int by,
                     const sw_carrier *c, sw_err *err)
{
    const int me = sw_team_rank(c->team), to = next_to(c, by), from = next_to(c, -by);
    const int64_t elem_bytes = (int64_t)sizeof(double);
    int i = next_run(a, &of[to], 0, me), j = next_run(a, &of[me], 0, from);
    sw_code rc = SW_OK;

    while (rc == SW_OK && (i < a->n || j < a->n)) {
        const bool leaves = i < a->n, comes = j < a->n;

        rc = c->backend->link_exchange(c->link, to, leaves ? of[to].of_run[i] : NULL,
                                       leaves ? of[to].n * elem_bytes : 0, from,
                                       comes ? taken[j] : NULL, comes ? of[me].n * elem_bytes : 0,
                                       err);
        if (leaves) i = next_run(a, &of[to], i + 1, me);
        if (comes) j = next_run(a, &of[me], j + 1, from);
    }
    return rc;
}

static sw_code take_room(double **taken, const portion *mine, const all_runs *a, const sw_place *at,
                         const sw_carrier *c, sw_err *err)
{
    const int me = sw_team_rank(c->team);
    sw_code rc = SW_OK;

    for (int i = 0; i < a->n && rc == SW_OK; i++)
        if (a->rank[i] != me && mine->heads[i].n_tokens)
            rc = c->backend->take((void **)&taken[i], at, sw_max_i64(1, mine->n),
                                  (int64_t)sizeof(double), "sums of other ranks", err);
    return rc;
}

/* This rank's portion of all runs, added in the one order, into `own`. */
static sw_code add_runs(double *own, const portion *mine, double *const *taken, const all_runs *a,
                        int64_t n_pieces, const sw_place *at, const sw_carrier *c, sw_err *err)
{
    const int me = sw_team_rank(c->team);
    double *sum[SW_PIECES_MAX];
    sw_piece_run runs[SW_PIECES_MAX];
    sw_code rc = SW_OK;
    int top = 0;

    for (int i = 0; i < a->n && rc == SW_OK; i++) {
        sum[top] = !mine->heads[i].n_tokens ? NULL
                   : a->rank[i] == me       ? mine->of_run[i]
                                            : taken[i];
        runs[top++] = a->runs[i];
        while (rc == SW_OK && top > 1 && sw_pieces_join(runs[top - 2], runs[top - 1], n_pieces)) {
            double **into = &sum[top - 2], *more = sum[top - 1];

            if (*into && more) rc = c->backend->plus(at, *into, *into, more, mine->n, err);
            else if (more) *into = more; /* to nothing but zeros */
            runs[top - 2].end = runs[top - 1].end;
            top--;
        }
    }
    if (rc != SW_OK || !top || !sum[0] || sum[0] == own) return rc;
    return c->backend->plus(at, own, sum[0], NULL, mine->n, err);
}

/* Every rank its portion, of [ranks], into `own`. */
static sw_code add_portions(double *own, const portion *of, const all_runs *a, int64_t n_pieces,
                            const sw_place *at, const sw_carrier *c, sw_err *err)
{
    const portion *mine = &of[sw_team_rank(c->team)];
    double *taken[SW_PIECES_MAX] = {NULL};
    sw_code rc = take_room(taken, mine, a, at, c, err);

    for (int by = 1; by < sw_team_size(c->team) && rc == SW_OK; by++)
        rc = trade(of, taken, a, by, c, err);
    if (rc == SW_OK) rc = add_runs(own, mine, taken, a, n_pieces, at, c, err);
    for (int i = 0; i < a->n; i++) c->backend->put(at, taken[i]);
    return rc;
}

/* --- for all --- */

/* Each rank's stretch of an array of n elements goes round. */
static sw_code spread(double *own, int64_t n, const sw_carrier *c, sw_err *err)
{
    const int64_t elem_bytes = (int64_t)sizeof(double);
    sw_code rc = SW_OK;

    for (int step = 0; step + 1 < sw_team_size(c->team) && rc == SW_OK; step++) {
        const int out = next_to(c, -step), in = next_to(c, -step - 1);

        rc = c->backend->link_exchange(c->link, next_to(c, 1), own + stretch(c, n, out),
                                       stretch_elems(c, n, out) * elem_bytes, next_to(c, -1),
                                       own + stretch(c, n, in),
                                       stretch_elems(c, n, in) * elem_bytes, err);
    }
    return rc;
}

/* Which of a sum's arrays; NULL: it has none. */
static double *array_of(const sw_hessian *sum, int which)
{
    return which == 0 ? sum->h : which == 1 ? sum->d : sum->r;
}

static int64_t array_elems(const sw_hessian *sum, int which)
{
    const int64_t k = sum->k_in;

    return which == 0 ? k * k : which == 1 ? sw_hessian_d_elems(sum) : sum->n_out_residual * k;
}

/* One array of a sum; of [ranks] has its heads. */
static sw_code sum_array(sw_hessian *own, sw_hessian *const *mine, int which, portion *of,
                         const all_runs *a, int64_t n_pieces, const sw_carrier *c, sw_err *err)
{
    const int me = sw_team_rank(c->team);
    const int64_t n = array_elems(own, which);
    double *array = array_of(own, which);
    sw_code rc;

    for (int rank = 0; rank < sw_team_size(c->team); rank++) {
        of[rank].n = stretch_elems(c, n, rank);
        for (int i = 0; i < a->n; i++)
            if (a->rank[i] == me)
                of[rank].of_run[i] = array_of(mine[a->nth[i]], which) + stretch(c, n, rank);
    }
    rc = add_portions(array + stretch(c, n, me), of, a, n_pieces, &own->place, c, err);
    return rc == SW_OK ? spread(array, n, c, err) : rc;
}

sw_code sw_sum_for_all(sw_hessian *own, sw_hessian *const *mine, int n_mine, int64_t n_pieces,
                       const sw_carrier *c, sw_err *err)
{
    const int n_ranks = sw_team_size(c->team);
    int64_t n_tokens = 0;
    portion *of = NULL;
    all_runs a;
    sw_code rc;

    find_runs(&a, n_pieces, n_ranks);
    if ((rc = check_runs(&a, n_mine, c, err)) != SW_OK ||
        (rc = SW_MEM_GET(&of, n_ranks, "sums of ranks", err)) != SW_OK)
        return rc;
    for (int i = 0; i < a.n; i++)
        if (a.rank[i] == sw_team_rank(c->team))
            of[0].heads[i] = (sw_sum_head){mine[a.nth[i]]->n_tokens, mine[a.nth[i]]->is_weighed};
    rc = share_heads(of[0].heads, 1, &a, c, err);
    for (int rank = 1; rank < n_ranks; rank++) of[rank] = of[0];
    for (int i = 0; i < a.n && rc == SW_OK; i++) {
        n_tokens += of[0].heads[i].n_tokens;
        /* a rank without a piece of the text has not asked for what the others sum */
        if (of[0].heads[i].is_weighed) rc = sw_hessian_weigh(own, err);
    }
    for (int which = 0; which < 3 && rc == SW_OK && n_tokens; which++)
        if (array_of(own, which))
            rc = sum_array(own, mine, which, of, &a, n_pieces, c, err);
    own->n_tokens = n_tokens;
    sw_mem_put(of);
    return rc;
}

/* --- of experts, for their owners --- */

/* All sums of experts, number `first` and those behind it. */
typedef struct expert_sums {
    sw_sums *sums;
    const sw_carrier *c;
    all_runs a;
    int64_t first, n, of_expert; /* of_expert: how many each has */
    sw_sum_head *heads;          /* [runs, n] */
    portion *of;                 /* [ranks] of a round */
} expert_sums;

static sw_code open_expert_sums(expert_sums *x, sw_err *err)
{
    sw_site_stats *stats = x->sums->stats;
    const int me = sw_team_rank(x->c->team), n_ranks = sw_team_size(x->c->team);
    sw_code rc;

    while (sw_site_stats_sum_expert(stats, x->first) < 0) x->first++;
    x->n = sw_site_stats_n_sums(stats) - x->first;
    x->of_expert = x->n / stats->n_experts;
    find_runs(&x->a, x->sums->n_pieces, n_ranks);
    if ((rc = check_runs(&x->a, x->sums->n, x->c, err)) != SW_OK ||
        (rc = SW_MEM_GET(&x->heads, x->a.n * x->n, "sums of experts", err)) != SW_OK ||
        (rc = SW_MEM_GET(&x->of, n_ranks, "sums of experts", err)) != SW_OK)
        return rc;
    for (int i = 0; i < x->a.n; i++)
        for (int64_t s = 0; s < x->n && x->a.rank[i] == me; s++)
            x->heads[i * x->n + s].n_tokens =
                sw_site_stats_sum(x->sums->parts[x->a.nth[i]], x->first + s)->n_tokens;
    return share_heads(x->heads, x->n, &x->a, x->c, err);
}

/* What the owner of sum number s adds of it. */
static void list_portion(portion *p, const expert_sums *x, int64_t s)
{
    for (int i = 0; i < x->a.n; i++) {
        p->heads[i] = x->heads[i * x->n + s];
        p->of_run[i] = x->a.rank[i] == sw_team_rank(x->c->team)
                           ? sw_site_stats_sum(x->sums->parts[x->a.nth[i]], x->first + s)->h
                           : NULL;
    }
}

static int64_t tokens_of(const portion *p, const all_runs *a)
{
    int64_t n = 0;

    for (int i = 0; i < a->n; i++) n += p->heads[i].n_tokens;
    return n;
}

/* The next slice of the portions of a round, of n elements. */
static void step_portions(const expert_sums *x, int64_t by, int64_t n)
{
    for (int rank = 0; rank < sw_team_size(x->c->team); rank++) {
        x->of[rank].n = n;
        for (int i = 0; i < x->a.n; i++)
            if (x->of[rank].of_run[i]) x->of[rank].of_run[i] += by;
    }
}

/* Sum number `which` of neighbouring experts, no two of one rank, from number `begin` on. */
static sw_code sum_round(const expert_sums *x, int64_t begin, int64_t end, int64_t which,
                         sw_err *err)
{
    sw_site_stats *stats = x->sums->stats;
    const int me = sw_team_rank(x->c->team), n_ranks = sw_team_size(x->c->team);
    const sw_hessian *any = sw_site_stats_sum(stats, x->first + begin * x->of_expert + which);
    const int64_t n = any->k_in * any->k_in;
    sw_hessian *own = NULL;
    sw_code rc = SW_OK;

    for (int rank = 0; rank < n_ranks; rank++) x->of[rank] = (portion){.n = 0};
    for (int64_t e = begin; e < end && n; e++) {
        const int owner = sw_sums_owner(stats->expert_begin + e, n_ranks);
        const int64_t s = e * x->of_expert + which;

        list_portion(&x->of[owner], x, s);
        if (owner == me) own = sw_site_stats_sum(stats, x->first + s);
    }
    for (int64_t at = 0; at < n && rc == SW_OK; at += SLICE_ELEMS) {
        step_portions(x, at ? SLICE_ELEMS : 0, sw_min_i64(SLICE_ELEMS, n - at));
        rc = add_portions(own ? own->h + at : NULL, x->of, &x->a, x->sums->n_pieces, &any->place,
                          x->c, err);
    }
    if (own) own->n_tokens = tokens_of(&x->of[me], &x->a);
    return rc;
}

sw_code sw_sums_for_owners(sw_sums *sums, const sw_carrier *c, sw_err *err)
{
    const int64_t n_experts = sums->stats->n_experts, step = sw_team_size(c->team);
    expert_sums x = {.sums = sums, .c = c};
    sw_code rc = n_experts ? open_expert_sums(&x, err) : SW_OK;

    for (int64_t e = 0; e < n_experts && rc == SW_OK; e += step)
        for (int64_t which = 0; which < x.of_expert && rc == SW_OK; which++)
            rc = sum_round(&x, e, sw_min_i64(e + step, n_experts), which, err);
    sw_mem_put(x.heads);
    sw_mem_put(x.of);
    return rc;
}
