/* site_stats.h - what calibration sums of the inputs of a block's sites and experts. */
#ifndef SW_QUANT_STATS_SITE_STATS_H
#define SW_QUANT_STATS_SITE_STATS_H

#include "quant/stats/experts.h"

/* Hessians of a block's sites; in a sparse layer also per expert, as `policy` wants them. */
typedef struct sw_site_stats {
    sw_hessian site[SW_SITE_COUNT]; /* tokens seen; all of them once merged */
    sw_hessian held[SW_SITE_COUNT]; /* tokens kept back for choosing strengths (target.h) */
    sw_channels sizes[SW_SITE_COUNT]; /* where wanted */
    bool is_wanted[SW_SITE_COUNT];
    sw_act act[SW_SITE_COUNT];      /* how linears will round their inputs; set before observing */
    float input_scale[SW_SITE_COUNT];
    const double *scale[SW_SITE_COUNT]; /* [k_in] that the quantized model's inputs are divided by
                                         * and the original's are not, or NULL; borrowed */
    struct sw_range *ranges;        /* [SW_SITE_COUNT] to count |x| into, or NULL; borrowed */
    struct sw_kv_range *kv;         /* to note keys and values in, or NULL; borrowed */
    int64_t layer;
    sw_expert_stats *experts; /* [n_experts] of a sparse layer from expert_begin on, or NULL */
    int64_t expert_begin, n_experts;
    sw_experts policy;
    bool is_weighed; /* the experts' weights are known */
} sw_site_stats;

/* Allocate at a place for the sites wanted in this layer; in a sparse one for all its experts too,
 * unless policy is SW_EXPERTS_COUNT. */
sw_code sw_site_stats_new(sw_site_stats *out, const sw_model *model, int64_t layer,
                          const bool is_wanted[SW_SITE_COUNT], bool with_cross, sw_experts policy,
                          const sw_place *at, sw_err *err) SW_MUST_USE;
/* Also keep the sizes of every channel, of all sites and experts that have Hessians. */
sw_code sw_site_stats_add_sizes(sw_site_stats *stats, sw_err *err) SW_MUST_USE;
/* The same for experts [begin, end) of a sparse layer, and nothing but them. */
sw_code sw_site_stats_new_experts(sw_site_stats *out, const sw_model *model, int64_t layer,
                                  const bool is_wanted[SW_SITE_COUNT], sw_experts policy,
                                  int64_t begin, int64_t end, const sw_place *at,
                                  sw_err *err) SW_MUST_USE;
/* Experts whose statistics of these sites should be held at a time at a place: at least 1. n_alive:
 * sums of each that live at a time while the text is observed (sw_streams_sums_alive). n_ranks
 * share them out, each over its lanes. It
 * bounds what a layer of many experts holds, at the price of passes over the tokens; what comes out
 * is the same. */
int64_t sw_experts_at_a_time(const sw_model *model, int64_t layer,
                             const bool is_wanted[SW_SITE_COUNT], sw_experts policy,
                             int n_alive, int n_ranks, const sw_place *at);
/* The same of a backend whose sums may take so many bytes. */
int64_t sw_experts_within(const sw_model *model, int64_t layer,
                          const bool is_wanted[SW_SITE_COUNT], sw_experts policy, int n_alive,
                          int n_ranks, const sw_backend *backend, int64_t sums_bytes);
/* Does a piece of the text usually go into the sums of experts that are there, so that none of its
 * own live beside them? It fits a chunk (sw_gram) but where an expert gets most tokens; of all
 * tokens it never does. */
bool sw_experts_go_on(sw_experts policy, const sw_backend *backend);
void sw_site_stats_free(sw_site_stats *stats);

/* Have they sums of what all tokens read, besides those of experts? */
bool sw_site_stats_has_sites(const sw_site_stats *stats);
/* Empty sums of the same sites, experts and places, which note ranges, keys and values in the same
 * arrays. */
sw_code sw_site_stats_like(sw_site_stats *out, const sw_site_stats *like,
                           sw_err *err) SW_MUST_USE;
/* sw_hessian_settle of all that they hold. */
sw_code sw_site_stats_settle(sw_site_stats *stats, sw_err *err) SW_MUST_USE;
/* into += from, both alike and summed, settled or not. */
sw_code sw_site_stats_merge(sw_site_stats *into, const sw_site_stats *from,
                            sw_err *err) SW_MUST_USE;
/* Room for sums that stats have, in one order for all that are alike; number i, which may be empty;
 * and the expert that it is of, or -1. */
int64_t sw_site_stats_n_sums(const sw_site_stats *stats);
sw_hessian *sw_site_stats_sum(sw_site_stats *stats, int64_t i);
int64_t sw_site_stats_sum_expert(const sw_site_stats *stats, int64_t i);
/* The same of the sizes of channels. */
int64_t sw_site_stats_n_sizes(const sw_site_stats *stats);
sw_channels *sw_site_stats_sizes(sw_site_stats *stats, int64_t i);
int64_t sw_site_stats_sizes_expert(const sw_site_stats *stats, int64_t i);

#endif
