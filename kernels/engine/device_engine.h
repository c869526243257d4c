/* device_engine.h - a decoder block and a whole model on a CUDA device.
 *
 * The same block programs as the CPU engine (engine.h), in BF16 with sums in FP32 and a residual
 * stream in FP32. Weights are copied to the device: dense ones as BF16, Swage tiles as they are
 * where a product of kernels/cuda takes them, their inputs quantized first if they say so; where
 * none does, as BF16 with inputs quantized and brought back. Everything is enqueued
 * on the device's one stream; the same calls give the same bytes. In a build without CUDA all of
 * these answer SW_E_CUDA.
 */
#ifndef SW_KERNELS_ENGINE_DEVICE_ENGINE_H
#define SW_KERNELS_ENGINE_DEVICE_ENGINE_H

#include "kernels/device.h"
#include "kernels/engine/generate.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sw_device_engine sw_device_engine; /* scratch, rope tables, handles; no weights */

/* SW_E_UNSUPPORTED: the CUDA engine lacks an operation of this model; the message names it and the
 * remedy. Needs no device. */
sw_code sw_device_supports(const sw_model *m, sw_err *err) SW_MUST_USE;
/* Whether it chooses single keys of this model, where a sequence has more than are seen. */
bool sw_device_chooses_keys(const sw_model *m);

/* max_tokens: the most tokens of one call; max_seq: the most positions of a sequence (at least the
 * model's, unless those are learned). SW_E_UNSUPPORTED: as sw_device_supports; widths that are no
 * multiples of 8, heads wider than 512. SW_E_NOMEM: the scratch does not fit. */
sw_code sw_device_engine_new(sw_device_engine **out, sw_device *gpu, const sw_model *m,
                             int64_t max_tokens, int64_t max_seq, sw_err *err) SW_MUST_USE;
void sw_device_engine_free(sw_device_engine *e); /* accepts NULL; free blocks and models first */

/* As sw_engine_side, floats on the device: what the tokens of the last call have beside their rows
 * of the residual stream. NULL: there is none. */
float *sw_device_engine_side(sw_device_engine *e);

/* d_x FP32 [n, hidden] = rows of a table of tokens in BF16, scaled as the model says: for models
 * whose embedding is no more (sw_lm_only_looks_up). Ids [n] below its rows; all on the device. */
sw_code sw_device_engine_embed(sw_device_engine *e, float *d_x, const uint16_t *d_table,
                               const uint32_t *d_ids, int64_t n, sw_err *err) SW_MUST_USE;

/* ---- one block: for calibration, and for models that do not fit ---- */

typedef struct sw_device_block sw_device_block;

/* Copy the weights of a block; `block` is not needed afterwards. */
sw_code sw_device_block_load(sw_device_block **out, sw_device_engine *e, const sw_block *block,
                             sw_err *err) SW_MUST_USE;
/* The same of a block without tiles from another thread, while the engine's stream is busy or idle:
 * copied on the stream of a branch of its device, which may be closed afterwards. */
sw_code sw_device_block_load_beside(sw_device_block **out, sw_device_engine *e, sw_device *branch,
                                    const sw_block *block, sw_err *err) SW_MUST_USE;
/* The same beside a block that was loaded from `like_of`, whose memory is still there: dense
 * linears with the same values in memory are copied on the device. */
sw_code sw_device_block_load_like(sw_device_block **out, sw_device_engine *e, const sw_block *block,
                                  const sw_device_block *like, const sw_block *like_of,
                                  sw_err *err) SW_MUST_USE;
void sw_device_block_free(sw_device_block *block); /* accepts NULL */

/* Give a loaded dense linear other values, rounded to BF16: d_values [n_out, k_in] floats on the
 * device, with the rows of the block's linear of that slot, or of that expert (-1: none). */
sw_code sw_device_block_put(sw_device_block *block, sw_slot slot, int64_t expert,
                            const float *d_values, sw_err *err) SW_MUST_USE;

/* The same with the values of a dense linear of that slot, or of that expert, of `from`, in
 * memory, which is not read any more when it returns. */
sw_code sw_device_block_take(sw_device_block *block, sw_slot slot, int64_t expert,
                             const sw_block *from, sw_err *err) SW_MUST_USE;

/* d_y BF16 [n, n_out], dense, = rows of d_x BF16, `stride` elements apart, times a loaded dense
 * linear as it is: without its bias, whatever its inputs are rounded to. */
sw_code sw_device_block_times(const sw_device_block *block, sw_slot slot, void *d_y,
                              const void *d_x, int64_t stride, int64_t n, sw_err *err) SW_MUST_USE;

/* The values BF16 [n_out, k_in] of a loaded dense linear, on the device. */
const uint16_t *sw_device_block_values(const sw_device_block *block, sw_slot slot);

/* As sw_tap, with BF16 rows on the device, `stride` elements apart, valid until the call returns:
 * what is enqueued on the device's stream may read them. Experts are shown with their tokens only:
 * token_ids [n_tokens], in memory, are rows of the batch. The residual stream is in the call's d_x
 * then, for reading, as sw_tap has it. */
typedef struct sw_device_tap {
    void *self;
    sw_code (*see)(void *self, sw_site site, int64_t expert, const void *d_x, int64_t n_tokens,
                   int64_t k_in, int64_t stride, const int32_t *token_ids, sw_err *err);
    /* These six as sw_tap has them. */
    sw_code (*see_all)(void *self, int64_t expert, const void *d_x, int64_t n_tokens, int64_t k_in,
                       int64_t stride, sw_err *err);
    int64_t all_every;
    int64_t expert_begin, expert_end;
    bool is_in_only, is_experts_only;
    /* Unless 0: row t of the batch lies in stretch (first_token + t) / stretch of the text, and of
     * an expert's rows those of even stretches come first, then those of odd ones. */
    int64_t stretch, first_token;
    /* Unless NULL: keys as they would be cached, and values, before attention reads them. */
    sw_code (*see_kv)(void *self, const void *d_k, int64_t k_stride, int64_t k_width,
                      const void *d_v, int64_t v_stride, int64_t v_width, int64_t n_tokens,
                      sw_err *err);
} sw_device_tap;

/* d_x FP32 [n_seqs * seq_len, hidden] through the block, in place; sequences begin at position 0.
 * A run that stops at a site leaves d_x undefined. `tap` may be NULL. */
sw_code sw_device_engine_block(sw_device_engine *e, const sw_device_block *block, float *d_x,
                               int64_t n_seqs, int64_t seq_len, const sw_device_tap *tap,
                               sw_site stop_at, sw_err *err) SW_MUST_USE;

/* The same for one half of the block, as sw_engine_half. */
sw_code sw_device_engine_half(sw_device_engine *e, const sw_device_block *block, float *d_x,
                              int64_t n_seqs, int64_t seq_len, sw_half half,
                              const sw_device_tap *tap, sw_site stop_at, sw_err *err) SW_MUST_USE;

/* The rest of that half from the one linear that reads `site` (O_IN or DOWN_IN): d_rows BF16
 * [n_seqs * seq_len, its k_in], dense, as a tap was shown them, and d_x as it was then. */
sw_code sw_device_engine_rest(sw_device_engine *e, const sw_device_block *block, float *d_x,
                              int64_t n_seqs, int64_t seq_len, sw_half half, sw_site site,
                              const void *d_rows, sw_err *err) SW_MUST_USE;

/* ---- a whole model ---- */

typedef struct sw_device_lm sw_device_lm;

/* Device memory that sw_device_lm_new will take for the weights of `lm`, in bytes. */
int64_t sw_device_lm_bytes(const sw_device_engine *e, const sw_lm *lm);
/* What of them routed experts are. */
int64_t sw_device_lm_expert_bytes(const sw_device_engine *e, const sw_lm *lm);
/* What has to find room on several (spread/spread_plan.h): need->layer_bytes [n_layers] is there to
 * be filled, with what a session of one sequence keeps of max_seq tokens. */
struct sw_spread_need;
void sw_device_lm_need(struct sw_spread_need *need, const sw_device_engine *e, const sw_lm *lm);
/* Copy all weights; `lm` must live as long. Blocks that do not fit into device memory beside a
 * session of one sequence stay in pinned host memory, and each is copied while the block before it
 * runs: slower, same results. SW_E_NOMEM: not even two blocks fit, or the host has too little. */
sw_code sw_device_lm_new(sw_device_lm **out, sw_device_engine *e, const sw_lm *lm,
                         sw_err *err) SW_MUST_USE;
void sw_device_lm_free(sw_device_lm *lm); /* accepts NULL */

/* The same with layers on several devices: engine i, which is of a device of its own (or of the
 * same card, opened once more), runs layers from ends[i - 1] (of the first: 0) up to ends[i], which
 * rise to the number of layers. All engines are of one model, with the same max_tokens and max_seq.
 * The embedding lies on the first device, norm and head on the last, a layer's part of a cache with
 * the layer; between devices go the rows of the tokens. Every call that takes a model takes such a
 * one, and gives the same bytes as on one device: what a block computes does not depend on where it
 * lies. What does not fit a device streams there. SW_E_BUG: no such parts. */
sw_code sw_device_lm_spread(sw_device_lm **out, sw_device_engine *const *engines,
                            const int64_t *ends, int n_parts, const sw_lm *lm,
                            sw_err *err) SW_MUST_USE;

/* How the device runs quantized linears: counts of them. */
typedef struct sw_device_lm_linears {
    int64_t n_coded;   /* multiplied as codes, inputs quantized as the scheme says */
    int64_t n_decoded; /* decoded to BF16, for there is no CUDA kernel for their format; */
    int64_t n_rounded; /* of these: with inputs rounded as the scheme says */
    int64_t n_streamed_blocks; /* that stay in host memory and are copied when they run */
    int64_t n_devices;         /* that the layers lie on */
} sw_device_lm_linears;
void sw_device_lm_count(sw_device_lm_linears *out, const sw_device_lm *lm);

/* Whole sequences through all blocks; the hidden rows stay on the device for sw_device_lm_head.
 * Errors as sw_engine_embed and sw_engine_block. */
sw_code sw_device_lm_forward(sw_device_lm *lm, const uint32_t *ids, int64_t n_seqs, int64_t seq_len,
                             sw_err *err) SW_MUST_USE;
/* logits [n, vocab], on the host, of rows row0 .. row0 + n - 1 of the last forward. */
sw_code sw_device_lm_head(sw_device_lm *lm, float *logits, int64_t row0, int64_t n,
                          sw_err *err) SW_MUST_USE;

/* scores [n], on the host, of rows row0 .. row0 + n - 1 of the last forward of both models, without
 * their logits leaving the device. targets [n]: the tokens that follow. ref: NULL, or a model of as
 * many tokens whose head lies on the same device (sw_device_lm_scores_with).
 * SW_E_BUG: no such rows, targets or reference. */
sw_code sw_device_lm_scores(sw_device_lm *lm, sw_device_lm *ref, sw_lm_score *scores,
                            const uint32_t *targets, int64_t row0, int64_t n,
                            sw_err *err) SW_MUST_USE;
bool sw_device_lm_scores_with(sw_device_lm *lm, sw_device_lm *ref);

/* ---- decoding ---- */

/* Sequences that are decoded together, each with its part of the cache (BF16, or what the blocks'
 * sw_kv_form says). A step of all of them is one graph, sampling included. */
typedef struct sw_device_session sw_device_session;

/* capacity: tokens of each sequence. Sequence i draws with seed sampling->seed + i. */
sw_code sw_device_session_new(sw_device_session **out, sw_device_lm *lm, int64_t n_seqs,
                              int64_t capacity, const sw_sampling *sampling,
                              sw_err *err) SW_MUST_USE;
void sw_device_session_free(sw_device_session *s); /* accepts NULL */
/* From now on a feed of many tokens tells how many blocks have run (step "prompt"), after every
 * max_tokens of the engine, and ends with SW_E_CANCELLED when it is asked to; such a session is
 * good for nothing but to be freed. `progress` must outlive the session. */
void sw_device_session_watch(sw_device_session *s, const sw_progress *progress);
/* Tokens into sequence `seq`, after what it holds. */
sw_code sw_device_session_feed(sw_device_session *s, int64_t seq, const uint32_t *ids, int64_t n,
                               sw_err *err) SW_MUST_USE;
/* Draw n_steps tokens for every sequence, each fed again: ids [n_steps, n_seqs]. All sequences
 * must hold something. SW_E_FORMAT: logits that are not finite. */
sw_code sw_device_session_step(sw_device_session *s, uint32_t *ids, int64_t n_steps,
                               sw_err *err) SW_MUST_USE;
/* The logits [n_seqs, vocab] that follow what each sequence holds, on the host. */
sw_code sw_device_session_logits(sw_device_session *s, float *logits, sw_err *err) SW_MUST_USE;
int64_t sw_device_session_room(const sw_device_session *s); /* steps that fit all of them */

/* sw_generate on a device, for a session of one sequence; sampling is the session's. The room must
 * take the prompt and max_new. */
sw_code sw_device_generate(sw_device_session *s, const sw_model *m, const uint32_t *prompt,
                           int64_t n_prompt, const sw_generate_options *options,
                           const sw_token_sink *sink, sw_generate_result *result,
                           sw_err *err) SW_MUST_USE;

/* ---- linears by themselves, for timing ---- */

typedef struct sw_device_linears sw_device_linears;

/* Copies of n weights of one shape and what they multiply, x [m, k_in] rounded to BF16, as they are
 * multiplied in sw_device_lm_forward; a graph of one product after the other, a weight more than
 * once if there are few. Neither weights nor x are needed afterwards. */
sw_code sw_device_linears_new(sw_device_linears **out, sw_device_engine *e,
                              const sw_weight *const *weights, int64_t n, const float *x,
                              int64_t m, sw_err *err) SW_MUST_USE;
void sw_device_linears_free(sw_device_linears *l); /* accepts NULL */
int64_t sw_device_linears_per_pass(const sw_device_linears *l); /* products in the graph */
/* A name of cuda_kernels.def, or "cuBLASLt", or "decoded, cuBLASLt"; NULL without CUDA. */
const char *sw_device_linears_kernel(const sw_device_linears *l);
/* The graph n_passes times; returns when they have ended. */
sw_code sw_device_linears_run(sw_device_linears *l, int64_t n_passes, sw_err *err) SW_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
