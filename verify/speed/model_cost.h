/* model_cost.h - what a model must read and multiply, whatever the kernels: the two sides of a
 * roofline (Williams, Waterman and Patterson, 2009).
 *
 * Every weight is read once a step; of routed experts, as many as n tokens reach if each of them is
 * equally likely. Keys and values are read once for each query. Norms, activations and the rows of
 * the embedding are left out, and so are caches: a model that fits one can be faster.
 */
#ifndef SW_VERIFY_SPEED_MODEL_COST_H
#define SW_VERIFY_SPEED_MODEL_COST_H

#include "kernels/engine/engine.h"

typedef struct sw_model_cost {
    double dense_bytes, expert_bytes; /* of weights that every token uses, and of all experts */
    double dense_weights, expert_weights; /* how many, likewise; a product has two flops each */
    double head_weights;              /* of dense_weights: prefill needs one row of its outputs */
    double kv_bytes;                  /* of a token, all layers */
    double key_flops;                 /* of attention between a query and a key, all layers */
    double n_experts, n_used;         /* of a layer */
} sw_model_cost;

typedef struct sw_work {
    double bytes, flops;
} sw_work;

/* Bytes of a weight as it lies in memory. */
double sw_weight_bytes(const sw_weight *w);
/* kv_elem_bytes: of a key's or value's element in the cache. */
sw_model_cost sw_model_cost_of(const sw_lm *lm, double kv_elem_bytes);
/* One step of `batch` sequences that hold `context` tokens each. */
sw_work sw_cost_of_step(const sw_model_cost *cost, int64_t batch, double context);
/* Prompts of n_tokens each; logits of the last token alone. */
sw_work sw_cost_of_prefill(const sw_model_cost *cost, int64_t n_seqs, int64_t n_tokens);
/* Microseconds that the work takes at least, at GB/s and GFLOP/s, and which of them decides. */
double sw_roof_us(const sw_work *work, double gb_s, double gflop_s, bool *is_by_bytes);

#endif
