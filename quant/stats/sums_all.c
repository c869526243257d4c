/* sums_all.c - a sum of all ranks that all of them get. See sums.h.
 *
 * Every rank adds a stretch of each array, in the order that all pieces of the text have
 * (pieces.h), and then has it from the others for the rest: no rank gets and adds everything while
 * the others wait, and both directions of a link are busy. Which rank adds a number changes no bit.
 */
#include "formats/base/size.h"
#include "quant/stats/sums.h"
#include "quant/team/team.h"

/* The runs of all ranks, in the order of the text. */
typedef struct all_runs {
    int n;
    int rank[SW_PIECES_MAX], nth[SW_PIECES_MAX]; /* whose, and which of its own */
    sw_piece_run runs[SW_PIECES_MAX];
    sw_sum_head heads[SW_PIECES_MAX];
} all_runs;

/* One array of a sum: that of each run where it is here, of another rank a stretch; NULL: nowhere,
 * or of a run that saw no token. */
typedef struct one_array {
    int64_t n; /* elements */
    double *own;
    double *of_run[SW_PIECES_MAX];
    double *taken[SW_PIECES_MAX]; /* those that are from other ranks: this rank's stretch */
} one_array;

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

static sw_code share_heads(all_runs *a, sw_hessian *const *mine, int n_mine, const sw_carrier *c,
                           sw_err *err)
{
    sw_team_part parts[SW_PIECES_MAX];

    for (int i = 0; i < a->n; i++) {
        parts[i] = (sw_team_part){a->rank[i], &a->heads[i], sizeof a->heads[i]};
        if (a->rank[i] != sw_team_rank(c->team)) continue;
        if (a->nth[i] >= n_mine)
            return SW_FAIL(err, SW_E_BUG, "rank %d has not summed run %d", a->rank[i], i);
        a->heads[i] = (sw_sum_head){mine[a->nth[i]]->n_tokens, mine[a->nth[i]]->is_weighed};
    }
    return sw_team_share(c->team, parts, a->n, err);
}

/* The next run of a rank from `at` on that saw tokens; a->n: none. */
static int next_run(const all_runs *a, int at, int rank)
{
    while (at < a->n && (a->rank[at] != rank || !a->heads[at].n_tokens)) at++;
    return at;
}

/* Of this rank's runs the stretch of one rank to it, while those of another for this one come. */
static sw_code trade(one_array *x, const all_runs *a, int by, const sw_carrier *c, sw_err *err)
{
    const int me = sw_team_rank(c->team), to = next_to(c, by), from = next_to(c, -by);
    const int64_t elem_bytes = (int64_t)sizeof(double);
    int i = next_run(a, 0, me), j = next_run(a, 0, from);
    sw_code rc = SW_OK;

    while (rc == SW_OK && (i < a->n || j < a->n)) {
        const bool leaves = i < a->n, comes = j < a->n;

        rc = c->backend->link_exchange(
            c->link, to, leaves ? x->of_run[i] + stretch(c, x->n, to) : NULL,
            leaves ? stretch_elems(c, x->n, to) * elem_bytes : 0, from,
            comes ? x->taken[j] : NULL, comes ? stretch_elems(c, x->n, me) * elem_bytes : 0, err);
        if (leaves) i = next_run(a, i + 1, me);
        if (comes) j = next_run(a, j + 1, from);
    }
    return rc;
}

static sw_code take_room(one_array *x, const all_runs *a, const sw_place *at, const sw_carrier *c,
                         sw_err *err)
{
    const int me = sw_team_rank(c->team);
    sw_code rc = SW_OK;

    for (int i = 0; i < a->n && rc == SW_OK; i++)
        if (a->rank[i] != me && a->heads[i].n_tokens)
            rc = c->backend->take((void **)&x->taken[i], at,
                                  sw_max_i64(1, stretch_elems(c, x->n, me)),
                                  (int64_t)sizeof(double), "sums of other ranks", err);
    return rc;
}

/* This rank's stretch of all runs, added in the one order, into its place. */
static sw_code add_stretch(const one_array *x, const all_runs *a, int64_t n_pieces,
                           const sw_place *at, const sw_carrier *c, sw_err *err)
{
    const int me = sw_team_rank(c->team);
    const int64_t begin = stretch(c, x->n, me), n = stretch_elems(c, x->n, me);
    double *sum[SW_PIECES_MAX];
    sw_piece_run runs[SW_PIECES_MAX];
    sw_code rc = SW_OK;
    int top = 0;

    for (int i = 0; i < a->n && rc == SW_OK; i++) {
        sum[top] = !a->heads[i].n_tokens ? NULL
                   : a->rank[i] == me    ? x->of_run[i] + begin
                                         : x->taken[i];
        runs[top++] = a->runs[i];
        while (rc == SW_OK && top > 1 && sw_pieces_join(runs[top - 2], runs[top - 1], n_pieces)) {
            double **into = &sum[top - 2], *more = sum[top - 1];

            if (*into && more) rc = c->backend->plus(at, *into, *into, more, n, err);
            else if (more) *into = more; /* to nothing but zeros */
            runs[top - 2].end = runs[top - 1].end;
            top--;
        }
    }
    if (rc != SW_OK || !top || sum[0] == x->own + begin) return rc;
    return c->backend->plus(at, x->own + begin, sum[0], NULL, n, err);
}

/* Each rank's stretch goes round. */
static sw_code spread(const one_array *x, const sw_carrier *c, sw_err *err)
{
    const int64_t elem_bytes = (int64_t)sizeof(double);
    sw_code rc = SW_OK;

    for (int step = 0; step + 1 < sw_team_size(c->team) && rc == SW_OK; step++) {
        const int out = next_to(c, -step), in = next_to(c, -step - 1);

        rc = c->backend->link_exchange(c->link, next_to(c, 1), x->own + stretch(c, x->n, out),
                                       stretch_elems(c, x->n, out) * elem_bytes, next_to(c, -1),
                                       x->own + stretch(c, x->n, in),
                                       stretch_elems(c, x->n, in) * elem_bytes, err);
    }
    return rc;
}

static sw_code sum_array(one_array *x, const all_runs *a, int64_t n_pieces, const sw_place *at,
                         const sw_carrier *c, sw_err *err)
{
    sw_code rc = take_room(x, a, at, c, err);

    for (int by = 1; by < sw_team_size(c->team) && rc == SW_OK; by++) rc = trade(x, a, by, c, err);
    if (rc == SW_OK) rc = add_stretch(x, a, n_pieces, at, c, err);
    for (int i = 0; i < a->n; i++) c->backend->put(at, x->taken[i]);
    return rc == SW_OK ? spread(x, c, err) : rc;
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

sw_code sw_sum_for_all(sw_hessian *own, sw_hessian *const *mine, int n_mine, int64_t n_pieces,
                       const sw_carrier *c, sw_err *err)
{
    const sw_place at = own->place;
    int64_t n_tokens = 0;
    all_runs a;
    sw_code rc;

    find_runs(&a, n_pieces, sw_team_size(c->team));
    if ((rc = share_heads(&a, mine, n_mine, c, err)) != SW_OK) return rc;
    for (int i = 0; i < a.n && rc == SW_OK; i++) {
        n_tokens += a.heads[i].n_tokens;
        /* a rank without a piece of the text has not asked for what the others sum */
        if (a.heads[i].is_weighed) rc = sw_hessian_weigh(own, err);
    }
    for (int which = 0; which < 3 && rc == SW_OK && n_tokens; which++) {
        one_array x = {.n = array_elems(own, which), .own = array_of(own, which)};

        if (!x.own) continue;
        for (int i = 0; i < a.n; i++)
            if (a.rank[i] == sw_team_rank(c->team))
                x.of_run[i] = array_of(mine[a.nth[i]], which);
        rc = sum_array(&x, &a, n_pieces, &at, c, err);
    }
    own->n_tokens = n_tokens;
    return rc;
}
