/* streams_device.h - the streams of streams.h on a card, blocks and all. For streams.c alone.
 *
 * Weights of one block at a time come from the host, activations never go back there. A chunk of
 * tokens is run on a copy, so that observing a site does not move a stream.
 */
#ifndef SW_QUANT_DEVICE_STREAMS_DEVICE_H
#define SW_QUANT_DEVICE_STREAMS_DEVICE_H

#include "kernels/engine/device_engine.h"
#include "quant/stats/streams.h"

struct sw_device_streams {
    sw_solver *solver;
    sw_device *gpu;
    sw_device_engine *engine;
    float *d_x, *d_x0;      /* [n_tokens, hidden]; d_x0 NULL without the original */
    float *d_work;          /* [chunk tokens, hidden] what a chunk runs on */
    sw_device_block *original;   /* of the present block, once loaded from */
    const sw_block *original_of; /* this, */
    bool has_experts;            /* with its experts */
    uint16_t *d_kept, *d_kept0; /* [n_tokens, k_in] inputs of kept_at, of both models; or NULL */
    sw_site kept_at;
    const sw_block *kept_of;    /* the original block that they were made by */
    int64_t kept_width;         /* its k_in */
};

/* Room for the streams and an engine. SW_E_UNSUPPORTED: the card cannot run this architecture. */
sw_code sw_device_streams_new(sw_device_streams **out, const sw_streams *s, bool with_original,
                              sw_solver *solver, sw_err *err) SW_MUST_USE;
void sw_device_streams_free(sw_device_streams *on); /* accepts NULL */
/* Rows of the embedding, [chunk tokens, hidden], to where sequence `seq` begins. */
sw_code sw_device_streams_put(sw_streams *s, const float *x, int64_t seq, sw_err *err) SW_MUST_USE;
/* Show `tap` what the quantized stream brings, up to a site. It does not move. */
sw_code sw_device_streams_visit(sw_streams *s, const sw_block *quantized, const sw_device_tap *tap,
                                sw_site stop_at, const sw_progress *progress,
                                sw_err *err) SW_MUST_USE;
/* The original block has changed since it was loaded. */
void sw_device_streams_forget(sw_device_streams *on);
/* As sw_streams_observe, into statistics on the same device. */
sw_code sw_device_streams_observe(sw_streams *s, sw_site_stats *stats, const sw_block *quantized,
                                  const sw_block *original, const sw_progress *progress,
                                  sw_err *err) SW_MUST_USE;
/* Both streams through `half` of the block. */
sw_code sw_device_streams_advance(sw_streams *s, const sw_block *quantized,
                                  const sw_block *original, sw_half half,
                                  const sw_progress *progress, sw_err *err) SW_MUST_USE;

#endif
