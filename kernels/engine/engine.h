/* engine.h - a decoder block and a whole model out of kernel calls, on the CPU.
 *
 * Activations are float. Weights are whatever sw_weight holds: mapped bf16 straight from the
 * checkpoint, floats, or Swage tiles; the engine runs the architecture's block program and lets
 * the kernel table choose. Used by the quantizer (block by block, with a tap on the inputs of
 * the linears) and by the verifier and `generate` (whole model, with a KV cache).
 */
#ifndef SW_KERNELS_ENGINE_ENGINE_H
#define SW_KERNELS_ENGINE_ENGINE_H

#include "formats/base/progress.h"
#include "formats/file/safetensors.h"
#include "formats/model/model.h"
#include "kernels/engine/kv_form.h"
#include "kernels/kernel.h"

/* How codes of a kind mean numbers; NULL for floats. */
const sw_num *sw_kv_num(sw_kv_kind kind);

/* The weights of one block. Linears borrow, unless the checkpoint stores them transposed or in
 * one tensor of all experts: then they are copies in `arena`. Norms, their biases, and the other
 * vectors (sinks, the router's shift) are floats owned by `arena`. */
typedef struct sw_block {
    int64_t layer;
    sw_weight linear[SW_SLOT_COUNT];  /* dense-layer linears, the router */
    sw_weight *experts[3];            /* gate (or NULL), up, down: [n_experts], sparse layers */
    sw_weight *copies_out;            /* [n_copies - 1] in the last block, where there are copies */
    float *merge[3];                  /* in the last block of a model with residual streams */
    int32_t *token_experts;           /* [vocab, n_experts_used], or NULL */
    float *norm[SW_SLOT_COUNT];
    float *norm_bias[SW_SLOT_COUNT];  /* of layer norms */
    sw_kv_form kv;
    sw_arena arena;
} sw_block;

/* Fill a block from a dense checkpoint: linears point into the mapping.
 * SW_E_FORMAT names a missing tensor or one whose shape or dtype does not fit the config. */
sw_code sw_block_load(sw_block *out, const sw_model *m, const sw_st *st, int64_t layer,
                      sw_err *err) SW_MUST_USE;
/* Where linears come from that a checkpoint does not store dense (see lm_open.h). */
typedef struct sw_linear_source {
    void *self;
    /* Set out's tiles, or dense and dense_dtype, for the linear at `path`; what it points to lives
     * in `arena` or longer. Leave both NULL for a linear that is stored dense after all. */
    sw_code (*get)(void *self, sw_weight *out, sw_arena *arena, const char *path, int64_t n_out,
                   int64_t k_in, sw_err *err);
} sw_linear_source;
/* The same with a source (or NULL) that is asked for each linear first, the router included. */
sw_code sw_block_load_from(sw_block *out, const sw_model *m, const sw_st *st,
                           const sw_linear_source *source, int64_t layer,
                           sw_err *err) SW_MUST_USE;
void sw_block_free(sw_block *block);
/* The weight behind a reference, for replacing it. */
sw_weight *sw_block_weight(sw_block *block, sw_slot slot, int64_t expert);

/* Called with the inputs of linears as the program reaches them, one call per site with expert -1
 * (in a sparse layer MLP_IN is what the router reads, and DOWN_IN has no such call), then in a
 * sparse layer MLP_IN and DOWN_IN of each expert that got tokens, in expert order:
 * x [n_tokens, k_in] dense rows. `residual` [n_tokens, hidden] is the residual stream as it is at
 * that moment (before what this site leads to is added), for the same tokens; NULL at expert
 * sites. token_ids [n_tokens] are the rows of the call's batch that were routed to an expert,
 * NULL when x holds every row. Runs on the calling thread. */
typedef struct sw_tap {
    void *self;
    sw_code (*see)(void *self, sw_site site, int64_t expert, const float *x, int64_t n_tokens,
                   int64_t k_in, const float *residual, const int32_t *token_ids, sw_err *err);
    /* Unless NULL: what `down` of each expert would read, had the router sent it rows 0, all_every,
     * 2 all_every, ... of the batch; in expert order, before the calls above. */
    sw_code (*see_all)(void *self, int64_t expert, const float *x, int64_t n_tokens, int64_t k_in,
                       sw_err *err);
    int64_t all_every;
    /* A run that stops at DOWN_IN runs and shows these experts alone; 0, 0: all of them. With
     * is_in_only it does not show, nor make, what their downs read. */
    int64_t expert_begin, expert_end;
    bool is_in_only;
    /* Such a run leaves out, and does not show, what the shared expert reads and makes. */
    bool is_experts_only;
    /* Unless NULL: the keys (already rotated) and values of the call, n_k and n_v floats. */
    void (*see_kv)(void *self, const float *k, int64_t n_k, const float *v, int64_t n_v);
} sw_tap;

typedef struct sw_engine sw_engine; /* scratch buffers, rope tables; no weights */

/* max_tokens: the most tokens one call will bring. Positions run to m->max_positions, or
 * max_seq when that is larger and positions are not learned. */
sw_code sw_engine_new(sw_engine **out, const sw_model *m, int64_t max_tokens, int64_t max_seq,
                      int n_threads, sw_err *err) SW_MUST_USE;
void sw_engine_free(sw_engine *e);

/* What one layer knows of one sequence: keys (already rotated) and values, [n_cached, n_kv_heads *
 * head_dim] each, and the state of a recurrent mixer. Zero-initialise. */
typedef struct sw_kv {
    float *k, *v;
    float *rows; /* [n_cached, sw_model_cache_width], of layers that choose their keys */
    float *state; /* [sw_model_state_elems] of a recurrent mixer, zeros before the first token */
    int64_t n_cached, capacity;
} sw_kv;
/* A layer without attention caches no keys, one without a recurrent mixer has no state. Room for at
 * least n_tokens in all, doubling; what is cached stays. */
sw_code sw_kv_reserve(sw_kv *kv, const sw_model *m, int64_t layer, int64_t n_tokens,
                      sw_err *err) SW_MUST_USE;
void sw_kv_free(sw_kv *kv); /* accepts a zeroed one */

/* How far to run the block program: everything, or up to a site whose input is tapped (the
 * linears reading that site are not run). In a sparse layer MLP_IN stops before the router and
 * DOWN_IN before each expert's down projection. */
#define SW_RUN_ALL SW_SITE_COUNT

/* x [n_seqs * seq_len, hidden] through one block, in place (x is untouched when stopping early).
 * Sequences are independent; positions start at kv->n_cached, or 0 without a cache. A cache
 * serves one sequence (n_seqs == 1), must have room, and grows by seq_len when everything ran.
 * `tap` may be NULL. SW_E_USAGE: more tokens or positions than the engine was made for, or a
 * full cache. The bytes do not depend on the thread count. */
sw_code sw_engine_block(sw_engine *e, const sw_block *block, float *x, int64_t n_seqs,
                        int64_t seq_len, sw_kv *kv, const sw_tap *tap, sw_site stop_at,
                        sw_err *err) SW_MUST_USE;

/* One token of each of n_seqs sequences through one block, in place: x [n_seqs, hidden]. Sequence i
 * has the cache kv[i]; all hold equally many tokens, have room, and grow by one. The linears see
 * all rows at once. SW_E_UNSUPPORTED: sw_engine_can_step says no; otherwise as sw_engine_block. */
sw_code sw_engine_step(sw_engine *e, const sw_block *block, float *x, int64_t n_seqs,
                       sw_kv *const *kv, sw_err *err) SW_MUST_USE;
/* Whether sequences can be decoded so: in models whose layers remember keys and values alone. */
bool sw_engine_can_step(const sw_model *m);

/* Some models have more to a token than its row of the residual stream: inputs of single layers,
 * keys and values that later layers share. It lies in [max_tokens, sw_model_side_width] of the
 * engine, written by sw_engine_embed and by blocks, for the tokens of the last call. Who runs other
 * tokens in between keeps it for each and puts it back before a block. NULL: there is none. */
float *sw_engine_side(sw_engine *e);

/* From now on every output of a linear that quantization may touch, but the head's, gets an error
 * as rounding would leave it: of random direction, `share` as large as the output itself, the same
 * for the same calls. 0: none. */
void sw_engine_set_noise(sw_engine *e, double share, uint64_t seed);

/* A block in two steps: x to x + o(attention(norm(x))), and from there to the output. */
typedef enum sw_half { SW_HALF_BOTH, SW_HALF_ATTENTION, SW_HALF_MLP } sw_half;
/* The half that a site is in; BOTH where attention and MLP run beside each other and the second
 * half is the whole block. */
sw_half sw_engine_half_of(const sw_model *m, int64_t layer, sw_site site);
/* How many ops are the attention half: up to and with the first addition to the residual stream; 0
 * where that comes after the MLP. */
int sw_ops_of_attention(const sw_op *ops, int n_ops);
/* sw_engine_block without a cache, for a half; a stop in the other half is never reached. */
sw_code sw_engine_half(sw_engine *e, const sw_block *block, float *x, int64_t n_seqs,
                       int64_t seq_len, sw_half half, const sw_tap *tap, sw_site stop_at,
                       sw_err *err) SW_MUST_USE;

/* A whole model: embedding, blocks, final norm, head. */
typedef struct sw_lm {
    const sw_model *model;
    sw_weight embed;     /* [vocab, hidden], dense */
    sw_weight head;      /* == embed when tied */
    sw_weight positions; /* [n_position_rows, hidden] where positions are learned, else empty */
    sw_weight side_table, side_projection; /* of what layers have for themselves, or empty */
    float *side_norm;
    sw_weight *copies_in; /* [n_copies - 1], or NULL */
    float *embed_norm, *embed_norm_bias; /* of the layer norm on embedding rows, or NULL */
    float *final_norm;
    float *final_norm_bias; /* NULL: an rms norm */
    sw_block *blocks;    /* [n_layers] */
    sw_arena arena;
} sw_lm;

/* All weights from a dense checkpoint; costs address space, not memory. */
sw_code sw_lm_load(sw_lm *out, const sw_model *m, const sw_st *st, sw_err *err) SW_MUST_USE;
/* Only the tables of tokens and positions, and the norm of what comes out of them. */
sw_code sw_lm_load_tables(sw_lm *out, const sw_model *m, const sw_st *st, sw_err *err) SW_MUST_USE;
/* Only embedding, final norm and head (blocks == NULL), which `source` (or NULL) is asked for. */
sw_code sw_lm_load_ends(sw_lm *out, const sw_model *m, const sw_st *st,
                        const sw_linear_source *source, sw_err *err) SW_MUST_USE;
void sw_lm_free(sw_lm *lm);

/* x [n_seqs * seq_len, hidden] = embedding rows, of sequences that start at position `first`.
 * SW_E_FORMAT for an id beyond the vocabulary; SW_E_USAGE for a position beyond those learned. */
sw_code sw_engine_embed(sw_engine *e, const sw_lm *lm, float *x, const uint32_t *ids,
                        int64_t n_seqs, int64_t seq_len, int64_t first, sw_err *err) SW_MUST_USE;
/* Is what it makes of a token a row of one table times a scale, and nothing else? */
bool sw_lm_only_looks_up(const sw_lm *lm);
/* logits [n, vocab] of hidden rows x [n, hidden]; x is normalized into scratch, not changed. */
sw_code sw_engine_head(sw_engine *e, const sw_lm *lm, float *logits, const float *x, int64_t n,
                       sw_err *err) SW_MUST_USE;
/* logits [n_seqs * seq_len, vocab] of whole sequences, no cache. */
sw_code sw_engine_logits(sw_engine *e, const sw_lm *lm, float *logits, const uint32_t *ids,
                         int64_t n_seqs, int64_t seq_len, sw_err *err) SW_MUST_USE;

/* Incremental decoding of one sequence. */
typedef struct sw_session sw_session;
sw_code sw_session_new(sw_session **out, sw_engine *e, const sw_lm *lm, int64_t capacity,
                       sw_err *err) SW_MUST_USE;
void sw_session_free(sw_session *s);
int64_t sw_session_length(const sw_session *s); /* tokens fed so far */
int64_t sw_session_room(const sw_session *s);   /* tokens it still takes */
/* From now on a feed of many tokens tells how many blocks have run (step "prompt"), and ends with
 * SW_E_CANCELLED when it is asked to. `progress` must outlive the session. */
void sw_session_watch(sw_session *s, const sw_progress *progress);
/* Feed n ids, get the logits [vocab] that follow the last one. SW_E_USAGE beyond capacity. After
 * a failure the session is as it was. */
sw_code sw_session_feed(sw_session *s, float *logits, const uint32_t *ids, int64_t n,
                        sw_err *err) SW_MUST_USE;
/* The same, for what follows each of the n ids: their rows after the last block into x [n, hidden],
 * for sw_engine_head. n is at most the engine's max_tokens. */
sw_code sw_session_feed_rows(sw_session *s, float *x, const uint32_t *ids, int64_t n,
                             sw_err *err) SW_MUST_USE;
/* The session as it was before the last feed: once after each. */
void sw_session_take_back(sw_session *s);

typedef struct sw_sampling {
    double temperature; /* 0: greedy */
    int64_t top_k;      /* 0: all */
    double top_p;       /* 1: all */
    uint64_t seed;
} sw_sampling;
/* Next id from logits [vocab]; draws advance *state (start it at sampling->seed). Same bytes on
 * every machine: ties go to the lower id, sums run in id order, the generator is SplitMix64. */
sw_code sw_sample(uint32_t *out, const float *logits, int64_t vocab, const sw_sampling *sampling,
                  uint64_t *state, sw_scratch *scratch, sw_err *err) SW_MUST_USE;

#endif
