/* device_solve_forecast.c - what solving takes of a device: see device_ledger.h. The steps are
 * those of block_solve.c.
 */
#include "formats/base/size.h"
#include "kernels/solver_sizes.h"
#include "quant/lanes.h"
#include "quant/method/target.h"
#include "quant/run/device_ledger.h"

/* The lanes that so many items get, each of which takes item_bytes. Their handles stay. */
static int64_t lanes_for(sw_device_ledger *l, int64_t n_items, int64_t item_bytes, int lanes_max)
{
    const int64_t there = sw_cuda_lanes_in(sw_ledger_left(l), item_bytes);
    const int64_t n = sw_max_i64(1, sw_min_i64(sw_min_i64(there, lanes_max), n_items));

    if (n_items > 1 && lanes_max > 1 && n > l->n_lanes) {
        sw_ledger_take(l, SW_DEVICE_HANDLES, (n - l->n_lanes) * SW_SOLVER_HANDLE_BYTES);
        l->n_lanes = n;
    }
    return n;
}

/* As lanes_max of block_solve.c. */
static int lanes_max(const sw_device_ledger *l)
{
    const sw_forecast_request *r = l->r;

    return !r->calib || r->has_stats || r->options->importance ? 1 : SW_LANES_ANY;
}

static bool is_of(const sw_linear_ref *ref, sw_site site, bool with_experts)
{
    return ref->site == site && (with_experts || ref->expert < 0);
}

/* As sw_site_cut_new: linears that are solved side by side, from `first` on, or whose strengths are
 * chosen. */
static void begin_share(sw_device_ledger *l, sw_site site, int64_t first, int64_t end,
                        bool with_experts, bool is_solved)
{
    for (int64_t i = 0; i < l->n_refs; i++) {
        const sw_linear_ref *ref = &l->refs[i];
        const sw_row_sample rows = sw_strength_rows(ref->n_out, ref->expert >= 0);
        const bool is_in = i >= first && i < end && is_of(ref, site, with_experts);
        const int64_t n = is_solved ? ref->n_out : sw_row_sample_count(&rows);

        l->linears[i] = (sw_share_linear){
            is_in ? n : 0,
            is_solved ? sw_share_unit(sw_ledger_spec(l, ref), ref->n_out, &sw_backend_cuda)
                      : sw_backend_cuda.rows_together};
    }
    l->share = sw_site_share_of(l->linears, l->n_refs, l->r->n_ranks > 1 ? l->r->n_ranks : 1);
}

static void end_share(sw_device_ledger *l) { l->share = (sw_site_share){.n = 0}; }

/* Rows of a linear that rank 0 solves or chooses by. */
static int64_t rows_of(const sw_device_ledger *l, const sw_linear_ref *ref)
{
    return l->share.n ? sw_site_share_rows(&l->share, ref - l->refs, 0).end : ref->n_out;
}

/* What a solver may take where so many items wait: one alone has all of it. */
static int64_t work_bytes(int64_t n_items, int max)
{
    return n_items == 1 || max == 1 ? SW_SOLVER_WORK_BYTES : SW_LANE_BYTES;
}

/* The largest of items that are worked on beside each other, falling. */
typedef struct largest {
    int64_t bytes[SW_SOLVER_LANES];
} largest;

static void offer(largest *of, int64_t n_bytes)
{
    for (int i = 0; i < SW_SOLVER_LANES; i++) {
        const int64_t less = sw_min_i64(of->bytes[i], n_bytes);

        of->bytes[i] = sw_max_i64(of->bytes[i], n_bytes);
        n_bytes = less;
    }
}

static int64_t sum_of_largest(const largest *of, int64_t n)
{
    int64_t sum = 0;

    for (int64_t i = 0; i < SW_SOLVER_LANES && i < n; i++) sum += of->bytes[i];
    return sum;
}

static sw_solve_size size_of(const sw_device_ledger *l, const sw_linear_ref *ref, bool has_shift)
{
    const sw_quant_options *o = l->r->options;
    const bool has_factor = l->r->calib || l->r->has_stats;

    return (sw_solve_size){.n_out = rows_of(l, ref),
                           .k_in = ref->k_in,
                           .n_groups = sw_qspec_groups(sw_ledger_spec(l, ref), ref->k_in),
                           .has_factor = has_factor, .has_shift = has_shift,
                           .is_gptq = o->algo->repairs_errors,
                           .is_clip = o->algo->solve == sw_clip_solve,
                           .refines = o->refine_rounds > 0};
}

/* A linear's shift, the making of it, and its solve. */
static int64_t linear_bytes(const sw_device_ledger *l, const sw_linear_ref *ref, bool has_shift,
                            int64_t work)
{
    const sw_solve_size p = size_of(l, ref, has_shift);
    const int64_t solve = p.n_out ? sw_solve_bytes(&p, work) : 0;

    if (!has_shift || !p.n_out) return solve;
    return 8 * p.n_out * p.k_in +
           sw_max_i64(solve, sw_target_shift_bytes(p.n_out, p.k_in, work));
}

/* Are the site's experts solved each by its own sums? */
static bool is_by_expert(const sw_device_ledger *l, sw_site site)
{
    return sw_model_is_sparse(l->r->model, l->layer) &&
           (site == SW_SITE_DOWN_IN ||
            (site == SW_SITE_MLP_IN && l->r->options->experts != SW_EXPERTS_ALL));
}

/* choose_strengths: of every linear of the site, experts too. */
static void strengths(sw_device_ledger *l, sw_site site)
{
    const sw_model *m = l->r->model;
    const bool writes = l->r->options->cap.residual > 0 &&
                        sw_model_site_writes_residual(m, l->layer, site);
    const int max = lanes_max(l);
    int64_t n_items = 0, work, n_lanes;
    largest of = {{0}};

    for (int64_t i = 0; i < l->n_refs; i++) n_items += is_of(&l->refs[i], site, true);
    n_lanes = lanes_for(l, n_items, 0, max);
    work = work_bytes(n_items, max);
    begin_share(l, site, 0, l->n_refs, true, false);
    for (int64_t i = 0; i < l->n_refs; i++) {
        const sw_linear_ref *ref = &l->refs[i];

        if (is_of(ref, site, true) && rows_of(l, ref))
            offer(&of, sw_target_form_bytes(rows_of(l, ref), ref->k_in,
                                            writes && ref->n_out == m->hidden, work));
    }
    end_share(l);
    l->step = "choosing strengths";
    sw_ledger_pass(l, SW_DEVICE_SOLVE, sum_of_largest(&of, n_lanes));
}

/* solve_linears: those of the site, without experts that are solved by themselves. */
static void linears(sw_device_ledger *l, sw_site site, bool has_shift)
{
    const bool with_experts = !is_by_expert(l, site);
    const int max = lanes_max(l);
    int64_t n_items = 0, item_bytes = 0, n_lanes, work;
    largest of = {{0}};

    for (int64_t i = 0; i < l->n_refs; i++) {
        if (!is_of(&l->refs[i], site, with_experts)) continue;
        n_items++;
        item_bytes = sw_max_i64(item_bytes, 8 * l->refs[i].n_out * l->refs[i].k_in);
    }
    if (!n_items) return;
    n_lanes = lanes_for(l, n_items, item_bytes, max);
    work = work_bytes(n_items, max);
    begin_share(l, site, 0, l->n_refs, with_experts, true);
    for (int64_t i = 0; i < l->n_refs; i++)
        if (is_of(&l->refs[i], site, with_experts))
            offer(&of, linear_bytes(l, &l->refs[i], has_shift, work));
    end_share(l);
    l->step = "solving";
    sw_ledger_pass(l, SW_DEVICE_SOLVE, sum_of_largest(&of, n_lanes));
}

void sw_ledger_solve_site(sw_device_ledger *l, sw_site site)
{
    const int64_t k = sw_model_site_width(l->r->model, l->layer, site);
    const int64_t scratch = 8 * sw_factor_scratch_elems(k);

    l->step = "factorizing";
    sw_ledger_take(l, SW_DEVICE_SOLVE, sw_factor_bytes(k));
    sw_ledger_pass(l, SW_DEVICE_SOLVE, scratch);
    if (l->with_cross) strengths(l, site);
    linears(l, site, l->with_cross);
    if (is_by_expert(l, site)) sw_ledger_solve_experts(l, site, l->with_cross);
    sw_ledger_put(l, SW_DEVICE_SOLVE, sw_factor_bytes(k));
}

/* A prior: its factor, and of probed ones the rows that all are compared by. */
static int64_t prior_bytes(int64_t k)
{
    return sw_factor_bytes(k) + (sw_prior_is_probed(k) ? 16 * SW_PRIOR_PROBES * k : 0);
}

/* sw_experts_weigh: what experts share has one prior, which is taken and put by the caller; else
 * each has its own. */
static void weigh(sw_device_ledger *l, int64_t k, int64_t n_experts, bool is_down)
{
    const int64_t scratch = 8 * sw_factor_scratch_elems(k), prior = prior_bytes(k);
    const int64_t compare = 16 * k * (sw_prior_is_probed(k) ? SW_PRIOR_PROBES : k);
    const int64_t each = is_down ? prior + sw_max_i64(scratch, compare) : compare;
    int64_t n;

    l->step = "weighing experts";
    if (!is_down) sw_ledger_pass(l, SW_DEVICE_SOLVE, scratch);
    n = lanes_for(l, n_experts, 8 * SW_WEIGHED_MATRICES * k * k, SW_LANES_ANY);
    sw_ledger_pass(l, SW_DEVICE_SOLVE, n * each);
}

/* An expert: its factor, and the largest of its linears. */
static int64_t expert_bytes(const sw_device_ledger *l, sw_site site, int64_t k, bool has_shift,
                            int64_t work)
{
    int64_t most = 8 * sw_factor_scratch_elems(k);

    for (int64_t i = 0; i < l->n_refs; i++)
        if (l->refs[i].site == site && l->refs[i].expert >= 0)
            most = sw_max_i64(most, linear_bytes(l, &l->refs[i], has_shift, work));
    return sw_factor_bytes(k) + most;
}

/* Does the layer have experts whose linears of this site are selected? */
static bool has_experts(const sw_device_ledger *l, sw_site site)
{
    for (int64_t i = 0; i < l->n_refs; i++)
        if (l->refs[i].site == site && l->refs[i].expert >= 0) return true;
    return false;
}

void sw_ledger_solve_experts(sw_device_ledger *l, sw_site site, bool has_shift)
{
    const sw_model *m = l->r->model;
    const sw_experts policy = l->r->options->experts;
    const int64_t k = sw_model_site_width(m, l->layer, site), n_experts = m->n_experts;
    const bool has_prior = policy == SW_EXPERTS_SHRINK && site != SW_SITE_DOWN_IN;
    const int64_t prior = has_prior ? prior_bytes(k) : 0; /* from the first pass to the last */
    const int max = lanes_max(l);
    bool wanted[SW_SITE_COUNT] = {false};
    int64_t n, n_passes, sums, work, n_lanes;

    if (!has_experts(l, site)) return;
    wanted[site] = true;
    n = sw_experts_within(m, l->layer, wanted, policy, l->n_experts_alive,
                          l->r->n_ranks > 1 ? l->r->n_ranks : 1, &sw_backend_cuda,
                          sw_cuda_sums_bytes_in(sw_ledger_left(l), m));
    n_passes = sw_ceil_div(n_experts, n);
    sums = l->now[SW_DEVICE_SUMS];
    if (n_passes > 1) sw_ledger_take(l, SW_DEVICE_SOLVE, prior);
    sw_ledger_observe_experts(l, site, n);
    sums = l->now[SW_DEVICE_SUMS] - sums;
    if (site == SW_SITE_DOWN_IN) sw_ledger_keep_experts(l, k);
    if (n_passes == 1) sw_ledger_take(l, SW_DEVICE_SOLVE, prior);
    if (policy == SW_EXPERTS_SHRINK) weigh(l, k, n, site == SW_SITE_DOWN_IN);
    if (n_passes == 1) sw_ledger_put(l, SW_DEVICE_SOLVE, prior);
    n_lanes = lanes_for(l, n, 8 * SW_SOLVED_MATRICES * k * k, max);
    work = work_bytes(n, max);
    l->step = "solving experts";
    sw_ledger_pass(l, SW_DEVICE_SOLVE, n_lanes * expert_bytes(l, site, k, has_shift, work));
    if (n_passes > 1) sw_ledger_put(l, SW_DEVICE_SOLVE, prior);
    sw_ledger_put(l, SW_DEVICE_SUMS, sums);
    l->passes += n_passes;
    if (!l->out->n_experts_at_a_time || n < l->out->n_experts_at_a_time)
        l->out->n_experts_at_a_time = n;
}

void sw_ledger_round(sw_device_ledger *l)
{
    l->step = "solving";
    for (int64_t i = 0; i < l->n_refs; i++) {
        const sw_linear_ref *ref = &l->refs[i];
        const bool has_factor = l->r->has_stats && l->r->options->algo->needs_statistics;
        const int64_t k = ref->k_in, of_sums = ref->expert < 0 ? 8 * k * k : 3 * 8 * k * k;
        int64_t bytes;

        if (ref->expert < 0) begin_share(l, ref->site, i, i + 1, false, true);
        bytes = linear_bytes(l, ref, false, SW_SOLVER_WORK_BYTES);
        end_share(l);
        if (has_factor)
            bytes = of_sums + sw_factor_bytes(k) +
                    sw_max_i64(bytes, 8 * sw_factor_scratch_elems(k));
        sw_ledger_pass(l, SW_DEVICE_SOLVE, bytes);
    }
}
