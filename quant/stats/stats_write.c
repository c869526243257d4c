/* stats_write.c - the writing half of stats.h. */
#include <stdio.h>
#include <string.h>

#include "formats/base/size.h"
#include "quant/stats/stats.h"
#include "quant/stats/sums.h"
#include "quant/team/team.h"

const char *sw_site_name(sw_site site)
{
    static const char *const names[SW_SITE_COUNT] = {
        [SW_SITE_ATTN_IN] = "attn_in",   [SW_SITE_Q_B_IN] = "q_b_in",
        [SW_SITE_KV_B_IN] = "kv_b_in",   [SW_SITE_O_IN] = "o_in",
        [SW_SITE_MIX_IN] = "mix_in",     [SW_SITE_MIX_OUT_IN] = "mix_out_in",
        [SW_SITE_MLP_IN] = "mlp_in",     [SW_SITE_SHARED_IN] = "shared_in",
        [SW_SITE_SHARED_DOWN_IN] = "shared_down_in",
        [SW_SITE_DOWN_IN] = "down_in"};
    return names[site];
}

/* Where tensors go: into the file, or to rank 0, which has it. */
typedef struct target {
    sw_zpack_writer *w; /* NULL: of another rank */
    sw_team *team;
} target;

/* Tensors of one place, "layers.3.mlp_in" for instance. */
typedef struct place {
    const target *to;
    char prefix[96];
} place;

/* What is said of a tensor before its data; an empty name ends what a rank sends. */
typedef struct tensor_head {
    char name[128];
    int64_t n;
    int32_t dtype;
} tensor_head;

static size_t data_bytes(const tensor_head *head)
{
    return (size_t)head->n * (size_t)sw_dtype_bits((sw_dtype)head->dtype) / 8;
}

static sw_code send_tensor(const target *to, const tensor_head *head, const void *data, sw_err *err)
{
    sw_code rc = sw_team_send(to->team, 0, head, sizeof *head, err);

    return rc == SW_OK ? sw_team_send(to->team, 0, data, data_bytes(head), err) : rc;
}

static sw_code write_tensor(const target *to, const tensor_head *head, const void *data,
                            sw_err *err)
{
    return sw_zpack_writer_put(to->w, head->name, (sw_dtype)head->dtype, 1, &head->n, data,
                               data_bytes(head), err);
}

/* At rank 0: what another one sends until it says that this was all. */
static sw_code take_tensors(const target *to, int from, sw_err *err)
{
    sw_code rc = SW_OK;

    while (rc == SW_OK) {
        tensor_head head = {0};
        char *data = NULL;
        if ((rc = sw_team_receive(to->team, from, &head, sizeof head, err)) != SW_OK) break;
        if (!head.name[0]) return SW_OK;
        rc = SW_MEM_GET(&data, (int64_t)data_bytes(&head), "statistics of another rank", err);
        if (rc == SW_OK) rc = sw_team_receive(to->team, from, data, data_bytes(&head), err);
        if (rc == SW_OK) rc = write_tensor(to, &head, data, err);
        sw_mem_put(data);
    }
    return rc;
}

static sw_code put(const place *p, const char *what, sw_dtype dtype, int64_t n, const void *data,
                   sw_err *err)
{
    tensor_head head = {.n = n, .dtype = (int32_t)dtype};

    (void)snprintf(head.name, sizeof head.name, "%s.%s", p->prefix, what);
    return (p->to->w ? write_tensor : send_tensor)(p->to, &head, data, err);
}

/* The upper triangle of the mean of one or two sums, wherever they are. */
static sw_code put_mean(const place *p, const char *what, const sw_hessian *a, const sw_hessian *b,
                        sw_err *err)
{
    int64_t k = a->k_in, at = 0, n_tokens = a->n_tokens + (b ? b->n_tokens : 0);
    double scale = n_tokens ? 1.0 / (double)n_tokens : 0.0, *own_a = NULL, *own_b = NULL;
    const double *h = NULL, *more = NULL;
    float *packed = NULL;
    sw_code rc = sw_hessian_read(&h, &own_a, a, err);

    if (rc == SW_OK && b) rc = sw_hessian_read(&more, &own_b, b, err);
    if (rc == SW_OK) rc = SW_MEM_GET(&packed, k * (k + 1) / 2, "packed Hessian", err);
    if (rc != SW_OK) goto done;
    for (int64_t i = 0; i < k; i++)
        for (int64_t j = i; j < k; j++)
            packed[at++] = (float)(scale * (h[i * k + j] + (more ? more[i * k + j] : 0.0)));
    rc = put(p, what, SW_DTYPE_F32, at, packed, err);
done:
    sw_mem_put(packed);
    sw_mem_put(own_a);
    sw_mem_put(own_b);
    return rc;
}

static sw_code put_sizes(const place *p, const sw_channels *c, sw_err *err)
{
    double scale = c->n_tokens ? 1.0 / (double)c->n_tokens : 0.0;
    float *mean = NULL;
    sw_code rc = SW_MEM_GET(&mean, c->k_in, "channel means", err);

    if (rc != SW_OK) return rc;
    for (int64_t j = 0; j < c->k_in; j++) mean[j] = (float)(scale * c->abs_sum[j]);
    rc = put(p, "abs_max", SW_DTYPE_F32, c->k_in, c->abs_max, err);
    if (rc == SW_OK) rc = put(p, "abs_mean", SW_DTYPE_F32, c->k_in, mean, err);
    sw_mem_put(mean);
    return rc;
}

static sw_code put_site(const place *p, const sw_hessian *h, const sw_channels *sizes, sw_err *err)
{
    sw_code rc;

    if ((rc = put_mean(p, "hessian", h, NULL, err)) != SW_OK) return rc;
    if (sizes->abs_max && (rc = put_sizes(p, sizes, err)) != SW_OK) return rc;
    return put(p, "tokens", SW_DTYPE_I64, 1, &h->n_tokens, err);
}

static sw_code put_expert(const place *p, const sw_expert_site *site, sw_err *err)
{
    sw_code rc;

    if (site->half[0].h) {
        if ((rc = put_mean(p, "hessian", &site->half[0], &site->half[1], err)) != SW_OK) return rc;
        if ((rc = put(p, "weight", SW_DTYPE_F64, 1, &site->weight, err)) != SW_OK) return rc;
    }
    if (site->sizes.abs_max && (rc = put_sizes(p, &site->sizes, err)) != SW_OK) return rc;
    if (!site->all.h) return SW_OK;
    if ((rc = put_mean(p, "all", &site->all, NULL, err)) != SW_OK) return rc;
    return put(p, "all_tokens", SW_DTYPE_I64, 1, &site->all.n_tokens, err);
}

static sw_code put_sites_of_expert(const target *to, const sw_expert_stats *x, int64_t layer,
                                 int64_t expert, sw_err *err)
{
    const long long at[] = {(long long)layer, (long long)expert};
    place p = {.to = to};
    sw_code rc;

    (void)snprintf(p.prefix, sizeof p.prefix, "layers.%lld.experts.%lld", at[0], at[1]);
    rc = put(&p, "tokens", SW_DTYPE_I64, 1, &x->n_tokens, err);
    (void)snprintf(p.prefix, sizeof p.prefix, "layers.%lld.experts.%lld.in", at[0], at[1]);
    if (rc == SW_OK) rc = put_expert(&p, &x->in, err);
    (void)snprintf(p.prefix, sizeof p.prefix, "layers.%lld.experts.%lld.down", at[0], at[1]);
    return rc == SW_OK ? put_expert(&p, &x->down, err) : rc;
}

static sw_code put_sites(const target *to, const sw_site_stats *stats, int64_t layer, sw_err *err)
{
    sw_code rc = SW_OK;

    for (int site = 0; site < SW_SITE_COUNT && rc == SW_OK; site++) {
        place p = {.to = to};
        if (!stats->site[site].h) continue;
        (void)snprintf(p.prefix, sizeof p.prefix, "layers.%lld.%s", (long long)layer,
                       sw_site_name((sw_site)site));
        rc = put_site(&p, &stats->site[site], &stats->sizes[site], err);
    }
    return rc;
}

static sw_code put_ranges(const target *to, const sw_site_stats *stats, int64_t layer, sw_err *err)
{
    float kv[2] = {stats->kv->k_amax, stats->kv->v_amax};
    place p = {.to = to};
    sw_code rc = SW_OK;

    (void)snprintf(p.prefix, sizeof p.prefix, "layers.%lld", (long long)layer);
    rc = put(&p, "kv_abs_max", SW_DTYPE_F32, 2, kv, err);
    for (int site = 0; site < SW_SITE_COUNT && rc == SW_OK; site++) {
        if (!stats->is_wanted[site]) continue;
        (void)snprintf(p.prefix, sizeof p.prefix, "layers.%lld.%s", (long long)layer,
                       sw_site_name((sw_site)site));
        rc = put(&p, "range", SW_DTYPE_I64, SW_RANGE_BINS, stats->ranges[site].counts, err);
    }
    return rc;
}

static sw_code sites_of_layer(bool is_used[SW_SITE_COUNT], const sw_model *model, int64_t layer,
                              sw_err *err)
{
    int64_t n = sw_model_linears(model, layer, NULL, 0);
    sw_linear_ref *refs = NULL;
    sw_code rc = SW_MEM_GET(&refs, n, "linears of a block", err);

    if (rc != SW_OK) return rc;
    (void)sw_model_linears(model, layer, refs, n);
    memset(is_used, 0, SW_SITE_COUNT * sizeof *is_used);
    for (int64_t i = 0; i < n; i++) is_used[refs[i].site] = true;
    sw_mem_put(refs);
    return SW_OK;
}

/* One expert after the other, each given back when it is written. Its owner makes the tensors, and
 * rank 0 puts them into the file. */
static sw_code write_experts(const target *to, sw_site_stats *part, int64_t layer, sw_err *err)
{
    const tensor_head end = {{0}, 0, SW_DTYPE_F32};
    const int me = sw_team_rank(to->team);
    sw_code rc = SW_OK;

    for (int64_t e = 0; e < part->n_experts && rc == SW_OK; e++) {
        const int64_t expert = part->expert_begin + e;
        const int owner = sw_sums_owner(expert, sw_team_size(to->team));
        if (me == owner) rc = put_sites_of_expert(to, &part->experts[e], layer, expert, err);
        if (me != 0 && me == owner && rc == SW_OK)
            rc = sw_team_send(to->team, 0, &end, sizeof end, err);
        if (me == 0 && me != owner) rc = take_tensors(to, owner, err);
        sw_expert_stats_free(&part->experts[e]);
    }
    return rc;
}

static sw_code collect_experts(const target *to, sw_streams *streams, const sw_block *block,
                               const sw_site_stats *all, const sw_quant_options *options,
                               const sw_progress *progress, sw_err *err)
{
    const sw_hessian *in_all = &all->site[SW_SITE_MLP_IN]; /* what the router reads */
    const sw_model *m = streams->model;
    sw_prior prior = {0};
    int64_t layer = block->layer, n_at_a_time;
    sw_code rc = SW_OK;

    n_at_a_time = sw_experts_at_a_time(m, layer, all->is_wanted, options->experts,
                                       sw_streams_sums_alive(streams, false),
                                       sw_team_size(to->team), &in_all->place);
    rc = sw_team_least(to->team, &n_at_a_time, err); /* all ranks take as many */
    for (int64_t begin = 0; begin < m->n_experts && rc == SW_OK; begin += n_at_a_time) {
        sw_site_stats part;
        rc = sw_site_stats_new_experts(&part, m, layer, all->is_wanted, options->experts, begin,
                                       sw_min_i64(begin + n_at_a_time, m->n_experts),
                                       &in_all->place, err);
        if (rc != SW_OK) break;
        part.ranges = all->ranges;
        rc = sw_site_stats_add_sizes(&part, err);
        if (rc == SW_OK) rc = sw_streams_observe(streams, &part, block, block, progress, err);
        if (rc == SW_OK)
            rc = sw_experts_weigh(part.experts, part.n_experts, in_all, &prior, err);
        if (rc == SW_OK) rc = write_experts(to, &part, layer, err);
        sw_site_stats_free(&part);
    }
    sw_prior_free(&prior);
    return rc;
}

/* Gives back what nobody asks for once it is written. */
static void drop_written(sw_site_stats *stats)
{
    for (int site = 0; site < SW_SITE_COUNT; site++)
        if (site != SW_SITE_MLP_IN) sw_hessian_free(&stats->site[site]);
}

/* The blocks, and what comes after them where there is such. */
static int64_t n_layers_of(const sw_model *model) { return model->n_layers + !model->is_tied; }

/* Ranges and cache of the whole text: only then are they known to be numbers. */
static sw_code write_ranges(const target *to, const sw_site_stats *stats, int64_t layer,
                            sw_err *err)
{
    sw_code rc = sw_ranges_gather(stats->ranges, to->team, err);

    if (rc == SW_OK) rc = sw_kv_range_gather(stats->kv, to->team, err);
    if (rc != SW_OK) return rc;
    if (stats->kv->is_broken)
        return SW_FAIL(err, SW_E_FORMAT, "layer %lld: a key or a value is not finite",
                       (long long)layer);
    return to->w ? put_ranges(to, stats, layer, err) : SW_OK;
}

static sw_code collect_layer(const target *to, sw_streams *streams, const sw_block *block,
                             const sw_quant_options *options, const sw_progress *progress,
                             sw_err *err)
{
    const sw_model *model = streams->model;
    bool is_used[SW_SITE_COUNT], is_sparse = sw_model_is_sparse(model, block->layer);
    sw_range *ranges = NULL;
    sw_kv_range kv = {0};
    sw_site_stats stats;
    sw_code rc = sites_of_layer(is_used, model, block->layer, err);

    if (rc != SW_OK) return rc;
    rc = sw_site_stats_new(&stats, model, block->layer, is_used, false, SW_EXPERTS_COUNT,
                           &streams->place, err);
    if (rc != SW_OK) return rc;
    if ((rc = SW_MEM_GET(&ranges, SW_SITE_COUNT, "input ranges", err)) == SW_OK)
        rc = sw_site_stats_add_sizes(&stats, err);
    stats.ranges = ranges;
    stats.kv = &kv;
    if (rc == SW_OK) rc = sw_streams_observe(streams, &stats, block, block, progress, err);
    if (rc == SW_OK && to->w) rc = put_sites(to, &stats, block->layer, err);
    drop_written(&stats);
    if (rc == SW_OK && is_sparse)
        rc = collect_experts(to, streams, block, &stats, options, progress, err);
    if (rc == SW_OK) rc = write_ranges(to, &stats, block->layer, err);
    sw_site_stats_free(&stats);
    sw_mem_put(ranges);
    if (rc != SW_OK || block->layer + 1 == n_layers_of(model)) return rc;
    return sw_streams_advance(streams, block, block, SW_HALF_BOTH, progress, err);
}

sw_code sw_stats_collect(sw_zpack_writer *w, const sw_model *model, const sw_st *st,
                         const sw_calib *calib, const sw_quant_options *options,
                         const sw_progress *progress, sw_err *err)
{
    const sw_place at = sw_options_place(options);
    const target to = {w, options->team};
    sw_streams streams = {0};
    sw_code rc = sw_streams_new_shared(&streams, &at, model, st, calib, false, NULL, options->team,
                                       err);

    if (rc != SW_OK) return rc;
    for (int64_t layer = 0; layer < n_layers_of(model) && rc == SW_OK; layer++) {
        sw_block block = {0};
        sw_progress_step(progress, "calibrate", layer, n_layers_of(model));
        if ((rc = sw_progress_check(progress, err)) != SW_OK) break;
        if ((rc = sw_block_load_from(&block, model, st, options->source, layer, err)) == SW_OK)
            rc = collect_layer(&to, &streams, &block, options, progress, err);
        sw_block_free(&block);
    }
    if (rc == SW_OK) sw_progress_step(progress, "calibrate", model->n_layers, model->n_layers);
    sw_streams_end(&streams, rc);
    return rc;
}
