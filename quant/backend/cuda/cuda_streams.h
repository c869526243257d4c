/* cuda_streams.h - streams (streams.h) on a CUDA device, blocks and all. For the CUDA backend
 * alone.
 *
 * Weights of one block at a time come from the host, activations never go back there. A batch of
 * tokens is run on a copy, so that observing a site does not move a stream. Of a sparse model it is
 * several chunks: an expert's share of one is too few rows for a product.
 */
#ifndef SW_QUANT_BACKEND_CUDA_CUDA_STREAMS_H
#define SW_QUANT_BACKEND_CUDA_CUDA_STREAMS_H

#include "kernels/engine/device_engine.h"
#include "quant/backend/cuda/cuda.h"

/* What a sw_streams on a device keeps. */
typedef struct sw_cuda_streams {
    sw_solver *solver;
    sw_device *gpu;
    sw_device_engine *engine;
    float *d_x, *d_x0;      /* [n_tokens, hidden]; d_x0 NULL without the original */
    int64_t batch_seqs;     /* windows that run at a time: chunks, one or several */
    float *d_work;          /* [batch tokens, hidden] what a batch runs on that must not change */
    const float *d_seen;    /* where the batch is that a tap is shown */
    float *d_side, *d_side0; /* [n_tokens, side_width] what tokens of both have besides, or NULL */
    sw_device_block *original;   /* of the present block, once loaded from */
    const sw_block *original_of; /* this, */
    bool has_experts;            /* with its experts */
    sw_device_block *held;       /* the quantized block, until the streams have passed it; loaded */
    const sw_block *held_of;     /* from this, */
    const void *held_values[SW_SLOT_COUNT]; /* with these values of its linears */
    const void **held_experts;   /* [3, n_experts] and of its experts, if it has them */
    bool held_has_experts;
    struct sw_cuda_ahead *ahead; /* the original with its experts, on its way (cuda_ahead.h) */
    struct sw_cuda_tried *tried; /* what searches run (cuda_tried.h), or NULL */
    uint16_t *d_kept;           /* [n_kept windows, k_in] inputs of kept_at of the quantized model,
                                 * of the first windows; or NULL */
    int64_t n_kept;
    sw_site kept_at;
    int64_t kept_width;         /* its k_in */
    bool is_original_ahead;     /* d_x0 has moved to the end of the half while it was observed */
} sw_cuda_streams;

/* Elements of one sequence. */
int64_t sw_cuda_row_elems(const sw_streams *s);
/* What tokens of a stream (d_x or d_x0) have besides: of windows [seq, seq + n_seqs) into the
 * engine before it runs them, as windows [at, at + n_seqs) of its batch. Nothing where there is
 * none. */
sw_code sw_cuda_give_side(const sw_streams *s, const float *d_stream, int64_t seq, int64_t n_seqs,
                          int64_t at, sw_err *err) SW_MUST_USE;
/* Windows of the batch that begins with `seq`: never of two pieces of the text, so that a cut into
 * ranks changes no product. */
int64_t sw_cuda_batch_at(const sw_streams *s, int64_t seq);
/* A batch of a stream of a block of that layer up to a site, copied where that would change it. */
sw_code sw_cuda_run_up_to(sw_streams *s, const sw_device_block *block, int64_t layer,
                          float *d_stream, int64_t seq, const sw_device_tap *tap, sw_site stop_at,
                          sw_err *err) SW_MUST_USE;
/* A batch of a stream, d_x or d_x0, through that half, where it lies. `tap` may be NULL. */
sw_code sw_cuda_move(sw_streams *s, float *d_stream, const sw_device_block *block, int64_t seq,
                     sw_half half, const sw_device_tap *tap, sw_err *err) SW_MUST_USE;
/* A block to the device, what it has in common with the original from there. Its experts may be
 * most of it: what does not run them does without. */
sw_code sw_cuda_load_block(sw_device_block **out, const sw_streams *s, const sw_block *block,
                           bool with_experts, sw_err *err) SW_MUST_USE;
/* The quantized block to on->held. What is there of it is not copied again: of linears and experts
 * without quantized inputs only those with other values are. */
sw_code sw_cuda_hold_quantized(sw_streams *s, const sw_block *quantized, bool with_experts,
                               sw_err *err) SW_MUST_USE;
void sw_cuda_drop_held(sw_cuda_streams *on);
/* The original block, unless it is there; nothing without a stream of the original model. */
sw_code sw_cuda_load_original(sw_streams *s, const sw_block *original, bool with_experts,
                              sw_err *err) SW_MUST_USE;
/* Gives back the inputs that were kept for moving the streams. */
void sw_cuda_drop_kept(sw_cuda_streams *on);
/* Show `tap` what the quantized stream brings, up to a site. It does not move. */
sw_code sw_cuda_streams_visit(sw_streams *s, const sw_block *quantized, const sw_device_tap *tap,
                              sw_site stop_at, const sw_progress *progress,
                              sw_err *err) SW_MUST_USE;

#endif
