/* trial.c - see checkpoint_speed.h: what is timed, and what the times say. */
#include <math.h>

#include "formats/base/size.h"
#include "verify/speed/checkpoint_speed.h"

#define TURN_US 25e3       /* of decoding and prefill, at least */
#define LINEAR_TURN_US 4e3
#define PASSES_MAX 4096
#define LINEAR_TOKENS_MAX 4096 /* of a product: beyond, its rate changes no more */

/* One side's turn. */
typedef struct turn {
    sw_speed_runner *runner;
    int64_t amount; /* steps, calls of prefill or passes */
    int64_t n_seqs, n_tokens;
} turn;

static sw_code run_decode(void *self, sw_err *err)
{
    turn *t = self;

    return t->runner->decode(t->runner->self, t->amount, err);
}

static sw_code run_prefill(void *self, sw_err *err)
{
    turn *t = self;
    sw_code rc = SW_OK;

    for (int64_t i = 0; i < t->amount && rc == SW_OK; i++)
        rc = t->runner->prefill(t->runner->self, t->n_seqs, t->n_tokens, err);
    return rc;
}

static sw_code run_linear(void *self, sw_err *err)
{
    turn *t = self;

    return t->runner->linear(t->runner->self, t->amount, err);
}

/* How much a turn has to do: of what both sides do in turn_us, the more, up to `most`. Each side
 * does it twice before, and the second time counts. */
static sw_code size_turn(int64_t *amount, const sw_speed_trial *trial, turn *turns,
                         sw_code (*run)(void *self, sw_err *err), double turn_us, int64_t most,
                         sw_err *err)
{
    double fastest = (double)INFINITY;
    sw_code rc = SW_OK;

    for (int side = 0; side < trial->n_sides; side++) {
        double start;

        turns[side].amount = 1;
        if ((rc = run(&turns[side], err)) != SW_OK) return rc;
        start = trial->clock->now_us(trial->clock->self);
        if ((rc = run(&turns[side], err)) != SW_OK) return rc;
        fastest = fmin(fastest, trial->clock->now_us(trial->clock->self) - start);
    }
    *amount = fastest * (double)most > turn_us ? (int64_t)ceil(turn_us / fastest) : most;
    *amount = sw_max_i64(*amount, 1);
    for (int side = 0; side < trial->n_sides; side++) turns[side].amount = *amount;
    return rc;
}

static sw_code take_turns(sw_turns *out, const sw_speed_trial *trial, turn *turns,
                          sw_code (*run)(void *self, sw_err *err), sw_err *err)
{
    const sw_turn_taker takers[SW_SPEED_SIDES] = {{&turns[0], run}, {&turns[1], run}};

    return sw_turns_run(out, takers, trial->n_sides, trial->request->n_rounds, trial->clock,
                        trial->progress, err);
}

/* The figures of a cell; a turn was `amount` steps or calls of n_tokens tokens each. */
static void fill_cell(sw_speed_cell *cell, const sw_report_speed *s, const sw_speed_trial *trial,
                      const sw_turns *turns, double amount, double n_tokens)
{
    for (int side = 0; side < trial->n_sides; side++) {
        const double held = (double)s->context + 0.5 * amount;
        const sw_work work = cell->is_prefill
                                 ? sw_cost_of_prefill(&trial->cost[side], cell->at_once,
                                                      cell->n_steps)
                                 : sw_cost_of_step(&trial->cost[side], cell->batch, held);

        cell->tokens_s[side] = sw_turns_rate(turns, side, amount * n_tokens);
        cell->us[side] = 1e6 * n_tokens / cell->tokens_s[side].median.at;
        cell->spread[side] = sw_turns_spread(turns, side);
        cell->roof_share[side] =
            sw_roof_us(&work, s->read_gb_s, s->gflop_s, &cell->is_by_bytes[side]) / cell->us[side];
        if (cell->spread[side] > SW_SPREAD_MAX) cell->is_noisy = true;
    }
    if (trial->n_sides == SW_SPEED_SIDES) cell->speedup = sw_turns_speedup(turns);
}

static sw_code decode_cell(sw_speed_cell *cell, const sw_report_speed *s, sw_speed_trial *trial,
                           sw_err *err)
{
    const sw_speed_request *q = trial->request;
    /* the rounds, the one before them, and what sizes a turn */
    const int64_t n_steps = (q->n_rounds + 1) * q->n_steps + 2;
    turn turns[SW_SPEED_SIDES] = {{&trial->runner[0], 1, 0, 0}, {&trial->runner[1], 1, 0, 0}};
    sw_turns times;
    int n_begun = 0;
    sw_code rc = SW_OK;

    for (; n_begun < trial->n_sides && rc == SW_OK; n_begun++) {
        const sw_speed_runner *r = &trial->runner[n_begun];

        rc = r->decode_begin(r->self, cell->batch, s->context, r->rewinds ? q->n_steps : n_steps,
                             err);
    }
    if (rc == SW_OK)
        rc = size_turn(&cell->n_steps, trial, turns, run_decode, TURN_US, q->n_steps, err);
    if (rc == SW_OK) rc = take_turns(&times, trial, turns, run_decode, err);
    if (rc == SW_OK)
        fill_cell(cell, s, trial, &times, (double)cell->n_steps, (double)cell->batch);
    for (int i = 0; i < n_begun; i++) trial->runner[i].decode_end(trial->runner[i].self);
    return rc;
}

static sw_code prefill_cell(sw_speed_cell *cell, const sw_report_speed *s, sw_speed_trial *trial,
                            sw_err *err)
{
    const int64_t n_tokens = cell->at_once * s->prompt;
    turn turns[SW_SPEED_SIDES] = {{&trial->runner[0], 1, cell->at_once, s->prompt},
                                  {&trial->runner[1], 1, cell->at_once, s->prompt}};
    sw_turns times;
    int64_t n_calls;
    sw_code rc;

    cell->n_steps = s->prompt;
    if ((rc = size_turn(&n_calls, trial, turns, run_prefill, TURN_US, PASSES_MAX, err)) != SW_OK ||
        (rc = take_turns(&times, trial, turns, run_prefill, err)) != SW_OK)
        return rc;
    fill_cell(cell, s, trial, &times, (double)n_calls, (double)n_tokens);
    return SW_OK;
}

/* A batch that goes in the same calls as a smaller one takes as many times as long: the rates are
 * those of the smaller one. */
static const sw_speed_cell *same_calls(const sw_report_speed *s, int64_t at_once)
{
    for (int64_t i = 0; i < s->n_cells; i++)
        if (s->cells[i].is_prefill && s->cells[i].at_once == at_once) return &s->cells[i];
    return NULL;
}

static sw_code try_cells(sw_report_speed *s, sw_speed_trial *trial, sw_err *err)
{
    const sw_speed_request *q = trial->request;
    const int64_t most = sw_max_i64(trial->max_tokens / q->prompt, 1);
    sw_code rc = SW_OK;

    for (int i = 0; i < 2 * q->n_batches && rc == SW_OK; i++) {
        sw_speed_cell *cell = &s->cells[s->n_cells];
        const int64_t batch = q->batches[i % q->n_batches];
        const sw_speed_cell *known;

        *cell = (sw_speed_cell){.is_prefill = i >= q->n_batches, .batch = batch,
                                .at_once = batch};
        sw_progress_step(trial->progress, "speed", i, 2 * q->n_batches);
        if (!cell->is_prefill) {
            rc = decode_cell(cell, s, trial, err);
        } else {
            cell->at_once = sw_min_i64(batch, most);
            if ((known = same_calls(s, cell->at_once)) != NULL) *cell = *known;
            else rc = prefill_cell(cell, s, trial, err);
            cell->batch = batch;
        }
        s->n_cells += rc == SW_OK;
    }
    return rc;
}

static void fill_linear(sw_speed_linear *l, const sw_report_speed *s, const sw_speed_trial *trial,
                        const sw_linear_kind *kind, const sw_turns *times,
                        const double products[SW_SPEED_SIDES])
{
    double rate[SW_SPEED_SIDES][SW_TURNS_MAX];
    bool is_by_bytes;
    sw_work work;

    for (int side = 0; side < trial->n_sides; side++) {
        for (int i = 0; i < times->n_rounds; i++)
            rate[side][i] = times->us[side][i] / products[side];
        l->us[side] = sw_turns_figure(rate[side], times->n_rounds).median.at;
        l->bytes[side] = sw_weight_bytes(kind->held[side][0]);
        l->spread = fmax(l->spread, sw_turns_spread(times, side));
    }
    work = (sw_work){l->bytes[0], 2 * (double)l->m * (double)l->n_out * (double)l->k_in};
    l->roof_share = sw_roof_us(&work, s->read_gb_s, s->gflop_s, &is_by_bytes) / l->us[0];
    for (int i = 0; i < times->n_rounds && trial->n_sides == SW_SPEED_SIDES; i++)
        rate[0][i] = rate[1][i] / rate[0][i];
    if (trial->n_sides == SW_SPEED_SIDES)
        l->speedup = sw_turns_figure(rate[0], times->n_rounds).median;
}

static sw_code try_linear(sw_speed_linear *l, const sw_report_speed *s, sw_speed_trial *trial,
                          const sw_linear_kind *kind, sw_arena *arena, sw_err *err)
{
    turn turns[SW_SPEED_SIDES] = {{&trial->runner[0], 1, 0, 0}, {&trial->runner[1], 1, 0, 0}};
    int64_t per_pass[SW_SPEED_SIDES] = {1, 1}, n_passes = 1;
    sw_turns times;
    int n_begun = 0;
    char *name;
    sw_code rc = SW_OK;

    for (; n_begun < trial->n_sides && rc == SW_OK; n_begun++)
        rc = trial->runner[n_begun].linear_begin(trial->runner[n_begun].self, &per_pass[n_begun],
                                                 kind->held[n_begun], kind->n_held, l->m, err);
    if (rc == SW_OK)
        rc = size_turn(&n_passes, trial, turns, run_linear, LINEAR_TURN_US, PASSES_MAX, err);
    if (rc == SW_OK) rc = take_turns(&times, trial, turns, run_linear, err);
    if (rc == SW_OK)
        rc = sw_arena_print(&name, arena, err, "%s",
                            trial->runner[0].kernel(trial->runner[0].self));
    if (rc == SW_OK) {
        const double products[] = {(double)(n_passes * per_pass[0]),
                                   (double)(n_passes * per_pass[1])};

        l->kernel = name;
        fill_linear(l, s, trial, kind, &times, products);
    }
    for (int i = 0; i < n_begun; i++) trial->runner[i].linear_end(trial->runner[i].self);
    return rc;
}

/* A kind of linear at the tokens of batch i, or behind the last batch at those of one prompt. */
static sw_speed_linear linear_at(const sw_speed_trial *trial, const sw_linear_kind *kind, int i)
{
    const sw_speed_request *q = trial->request;
    const bool is_prefill = i == q->n_batches;
    const int64_t tokens = is_prefill ? sw_min_i64(q->prompt, LINEAR_TOKENS_MAX) : q->batches[i];
    const double share = kind->is_routed ? trial->experts_share : 1;

    return (sw_speed_linear){.name = kind->name, .n_out = kind->n_out, .k_in = kind->k_in,
                             .count = kind->count, .is_prefill = is_prefill,
                             .m = (int64_t)ceil(share * (double)tokens)};
}

static sw_code try_linears(sw_report_speed *s, sw_speed_trial *trial, sw_arena *arena, sw_err *err)
{
    const int per_kind = trial->request->n_batches + 1, n = trial->kinds->n * per_kind;
    sw_code rc = SW_OK;

    for (int i = 0; i < n && rc == SW_OK; i++) {
        const sw_linear_kind *kind = &trial->kinds->at[i / per_kind];
        sw_speed_linear *l = &s->linears[s->n_linears];

        *l = linear_at(trial, kind, i % per_kind);
        if (l->is_prefill ? kind->is_head
                          : s->n_linears && l[-1].m == l->m && l[-1].name == l->name)
            continue;
        sw_progress_step(trial->progress, "linears", i, n);
        rc = try_linear(l, s, trial, kind, arena, err);
        s->n_linears += rc == SW_OK;
    }
    return rc;
}

sw_code sw_speed_try(sw_report_speed *out, sw_arena *arena, sw_speed_trial *trial, sw_err *err)
{
    const sw_speed_request *q = trial->request;
    sw_code rc;

    out->is_measured = true;
    out->has_original = trial->n_sides == SW_SPEED_SIDES;
    out->prompt = out->context = q->prompt;
    out->n_rounds = q->n_rounds;
    if ((rc = SW_ARENA_TAKE(&out->cells, arena, 2 * q->n_batches, err)) != SW_OK ||
        (rc = SW_ARENA_TAKE(&out->linears, arena, trial->kinds->n * (q->n_batches + 1), err)) !=
            SW_OK ||
        (rc = try_cells(out, trial, err)) != SW_OK)
        return rc;
    return try_linears(out, trial, arena, err);
}
