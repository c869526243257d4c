/* cuda_lm.h - a model on the device, shared by cuda_lm.c, cuda_spread.c and cuda_session.c; inside
 * cuda/.
 *
 * A model whose layers lie on several devices is a chain of parts, each a model of its layers
 * alone: the embedding is in the first, norm and head in the last. What a block computes does not
 * depend on the part that it lies in. A model on one device is a chain of one.
 */
#ifndef SW_KERNELS_CUDA_ENGINE_CUDA_LM_H
#define SW_KERNELS_CUDA_ENGINE_CUDA_LM_H

#include "kernels/cuda/engine/block_stream.h"
#include "kernels/cuda/engine/cuda_engine_internal.h"
#include "kernels/cuda/runtime/device_hop.h"

struct sw_device_lm {
    sw_device_engine *e;
    int64_t first, end;    /* the layers that lie here */
    sw_device_lm *next;    /* those from `end` on; NULL: there are none */
    sw_device_hop *hop;    /* to the device of `next` */
    sw_device_weight embed, head, positions;
    float *norm, *norm_bias;
    float *embed_norm, *embed_norm_bias; /* of the layer norm on embedding rows, or NULL */
    sw_device_weight side_table, side_projection, *copies_in; /* of cuda_side.c, dense */
    float *side_norm, *d_projected; /* d_projected: [max_tokens, n_layers * side_inputs] */
    sw_device_block **blocks; /* [n_resident] from `first` on */
    int64_t n_resident;    /* blocks that stay on the device; the others pass through it */
    sw_device_stream_blocks *streamed; /* NULL: there are none */
    sw_kv_form kv;         /* of all layers but for the scales, */
    sw_kv_form *forms;     /* [n_layers] and with them */
    sw_device_kv *passing; /* [n_layers] of codes what whole sequences keep: of a layer at
                            * a time, unless layers share it; else NULL */
    void *d_wide;          /* [wide_bytes] where attention of many tokens makes BF16 of the codes */
    int64_t wide_bytes;    /* of a layer; 0: it does not */
    uint32_t *d_ids;       /* [max_tokens] */
    float *d_x;            /* [max_tokens, hidden], of which n_rows are from the last forward */
    float *d_logits;       /* [head_rows, vocab] */
    sw_lm_score *d_scores; /* [head_rows] */
    uint32_t *d_targets;   /* [head_rows] */
    int64_t n_rows, head_rows;
    sw_device_store store;
};

/* The layers [first, end) of `from` on the device of `e`, and what comes before and behind them. */
sw_code sw_device_lm_part_new(sw_device_lm **out, sw_device_engine *e, const sw_lm *from,
                              int64_t first, int64_t end, sw_err *err) SW_MUST_USE;
/* Where the head is. */
sw_device_lm *sw_device_lm_last(sw_device_lm *lm);
/* What a part leaves for workspaces that grow, and how many rows of logits it holds at a time. */
#define SW_LM_RESERVE_BYTES ((int64_t)8 << 20)
int64_t sw_device_lm_head_rows(const sw_device_engine *e, int64_t vocab);
/* Whether a part keeps keys and values that `layer` makes: it lies there, or before it, and a layer
 * of this part or of one behind it reads them. */
bool sw_device_lm_keeps(const sw_device_lm *part, int64_t layer);
/* The part that layer l lies in. */
const sw_device_lm *sw_device_lm_part_of(const sw_device_lm *lm, int64_t l);
/* Before rows of a call are written into `part`: what is enqueued on it from here on waits until
 * the next part has taken the rows of the call before. Its device is current afterwards. */
sw_code sw_device_lm_enter(sw_device_lm *part, sw_err *err) SW_MUST_USE;
/* Rows of a call go from `part`, as `from` has them, to the next one, as `to` wants them: of the
 * residual stream, side rows, positions. To be ended by sw_device_hop_end(part->hop), when all has
 * been copied that goes with them. */
sw_code sw_device_lm_cross(sw_device_lm *part, const sw_device_run *from, const sw_device_run *to,
                           sw_err *err) SW_MUST_USE;

sw_code sw_device_lm_check_ids(const sw_device_lm *lm, const uint32_t *ids, int64_t n, int64_t end,
                               sw_err *err) SW_MUST_USE;
/* What cuda_side.c needs of the model's ends, the bytes of it, and the side rows of tokens whose
 * embedding rows are in run->d_x. Nothing for models without any. */
sw_code sw_device_side_load(sw_device_lm *lm, const sw_lm *from, sw_err *err) SW_MUST_USE;
int64_t sw_device_side_bytes(const sw_device_engine *e, const sw_lm *from);
sw_code sw_device_side_embed(sw_device_lm *lm, const sw_device_run *run, const uint32_t *d_ids,
                             sw_err *err) SW_MUST_USE;
/* What d_wide takes, of a part: the widest layer's keys and values in BF16, of a sequence of
 * max_positions or of max_tokens. */
int64_t sw_device_wide_bytes(const sw_device_engine *e, const sw_kv_form *kv);
/* Elements of a layer's keys and of its values for a token; 0 where it keeps none of its own. */
int64_t sw_device_k_width(const sw_model *m, int64_t layer);
int64_t sw_device_v_width(const sw_model *m, int64_t layer);
/* Embedding (of d_ids, in the first part) and the blocks of one part into run->d_x; kv [n_layers]
 * (or NULL: as part->passing has it) from sequence `seq` on. */
sw_code sw_device_lm_run(sw_device_lm *part, sw_device_run *run, const sw_device_kv *kv,
                         int64_t seq, const uint32_t *d_ids, sw_err *err) SW_MUST_USE;
/* d_logits [n, vocab] of hidden rows d_x, in the last part. */
sw_code sw_device_lm_logits(sw_device_lm *lm, float *d_logits, const float *d_x, int64_t n,
                            sw_err *err) SW_MUST_USE;

#endif
