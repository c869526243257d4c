/* streams.h - the calibration activations of the quantized and of the original model.
 *
 * Both hold [n_tokens, hidden] floats at the input of the present block. Work goes chunk by
 * chunk of whole sequences, in order, so scratch stays small and sums stay reproducible. Once
 * the attention half of a block is settled they may move to the middle of the block, so that
 * what follows does not run it again.
 */
#ifndef SW_QUANT_STATS_STREAMS_H
#define SW_QUANT_STATS_STREAMS_H

#include "formats/io/spill.h"
#include "kernels/engine/engine.h"
#include "quant/stats/experts.h"
#include "quant/run/pipeline.h"

#define SW_STREAM_CHUNK_TOKENS 4096
#define SW_EXPERT_ROWS 2048 /* of an expert that a card gathers before it sums their products */
#define SW_STREAM_HELD_EVERY 8 /* one chunk in so many is kept back; at least one if there are 2 */

typedef struct sw_device_streams sw_device_streams; /* streams_device.h */

typedef struct sw_streams {
    const sw_model *model;
    int64_t n_seqs, seq_len, chunk_seqs;
    sw_spill spill, spill0; /* behind x and x0 when they do not live in memory */
    float *x;        /* quantized stream */
    float *x0;       /* original stream, or NULL when no cross term is wanted */
    sw_engine *engine;
    float *work;     /* [chunk tokens, hidden] what the engine runs on */
    sw_half ahead;   /* what is left of the present block */
    const uint8_t *parts; /* [n_seqs] what each window is for (block_probe.h), borrowed, or NULL */
    sw_device_streams *on; /* NULL, or where the streams live instead of x and x0 */
} sw_streams;

/* Embeds the calibration tokens. spill_dir: both streams live in a file there, one chunk of each
 * in memory; NULL: in memory. SW_E_FORMAT for ids beyond the vocabulary. */
sw_code sw_streams_new(sw_streams *out, const sw_model *model, const sw_st *st,
                       const sw_calib *calib, bool with_original, const char *spill_dir,
                       int n_threads, sw_err *err) SW_MUST_USE;
/* The same on a card, with blocks run there: for statistics on the same solver; visits are not for
 * these. SW_E_UNSUPPORTED, SW_E_NOMEM: the model is not for
 * this card, and nothing was done. */
sw_code sw_streams_new_device(sw_streams *out, const sw_model *model, const sw_st *st,
                              const sw_calib *calib, bool with_original, sw_solver *solver,
                              sw_err *err) SW_MUST_USE;
/* A transform has changed the block that the streams are at. */
void sw_streams_forget(sw_streams *s);
bool sw_streams_have_original(const sw_streams *s);
/* Tokens of the text that go to one half of an expert's statistics, before as many to the other. */
int64_t sw_streams_stretch(const sw_streams *s);
/* For a prior one row in so many is run through every expert. */
int64_t sw_streams_all_every(const sw_streams *s, sw_experts policy);
/* Is the chunk that begins with sequence `seq` kept back? */
bool sw_streams_is_held(const sw_streams *s, int64_t seq);
/* Whole sequences of one chunk: no more than there are, and at least one. */
int64_t sw_streams_chunk_seqs(const sw_calib *calib);
/* false: too few tokens for any to be kept back, so that no cross term will be used. */
bool sw_streams_hold_back(const sw_calib *calib);
void sw_streams_free(sw_streams *s);

/* Hessians of a block's sites; in a sparse layer also per expert, as `policy` wants them. */
typedef struct sw_site_stats {
    sw_hessian site[SW_SITE_COUNT]; /* tokens seen; all of them once merged */
    sw_hessian held[SW_SITE_COUNT]; /* tokens kept back for choosing strengths (target.h) */
    sw_channels sizes[SW_SITE_COUNT]; /* where wanted */
    bool is_wanted[SW_SITE_COUNT];
    sw_act act[SW_SITE_COUNT];      /* how linears will round their inputs; set before observing */
    float input_scale[SW_SITE_COUNT];
    struct sw_range *ranges;        /* [SW_SITE_COUNT] to count |x| into, or NULL; borrowed */
    struct sw_kv_range *kv;         /* to note keys and values in, or NULL; borrowed */
    int64_t layer;
    sw_expert_stats *experts; /* [n_experts] of a sparse layer from expert_begin on, or NULL */
    int64_t expert_begin, n_experts;
    sw_experts policy;
    bool is_weighed; /* the experts' weights are known */
} sw_site_stats;

/* Allocate for the sites wanted in this layer; in a sparse one for all its experts too, unless
 * policy is SW_EXPERTS_COUNT. */
sw_code sw_site_stats_new(sw_site_stats *out, const sw_model *model, int64_t layer,
                          const bool is_wanted[SW_SITE_COUNT], bool with_cross, sw_experts policy,
                          int n_threads, sw_err *err) SW_MUST_USE;
/* The same on a device, without experts. */
sw_code sw_site_stats_new_device(sw_site_stats *out, const sw_model *model, int64_t layer,
                                 const bool is_wanted[SW_SITE_COUNT], bool with_cross,
                                 sw_solver *solver, sw_err *err) SW_MUST_USE;
/* Also keep the sizes of every channel, of all sites and experts that have Hessians. */
sw_code sw_site_stats_add_sizes(sw_site_stats *stats, sw_err *err) SW_MUST_USE;
/* The same for experts [begin, end) of a sparse layer, and nothing but them; on a device, or (NULL)
 * in memory. */
sw_code sw_site_stats_new_experts(sw_site_stats *out, const sw_model *model, int64_t layer,
                                  const bool is_wanted[SW_SITE_COUNT], sw_experts policy,
                                  int64_t begin, int64_t end, sw_solver *solver, int n_threads,
                                  sw_err *err) SW_MUST_USE;
/* Experts whose statistics of these sites should be held at a time, on a device or (NULL) in
 * memory: at least 1. It bounds what a layer of many experts holds, at the price of passes over
 * the tokens; what comes out is the same. */
int64_t sw_experts_at_a_time(const sw_model *model, int64_t layer,
                             const bool is_wanted[SW_SITE_COUNT], sw_experts policy,
                             const sw_solver *solver);
void sw_site_stats_free(sw_site_stats *stats);

/* Run both streams up to the last wanted site, with `quantized` and `original` weights, and sum
 * what the wanted sites see. The streams do not move. */
sw_code sw_streams_observe(sw_streams *s, sw_site_stats *stats, const sw_block *quantized,
                           const sw_block *original, const sw_progress *progress,
                           sw_err *err) SW_MUST_USE;

/* Run the quantized stream with a tap, up to the last wanted site. It does not move. */
sw_code sw_streams_visit(sw_streams *s, const sw_block *quantized, const sw_tap *tap,
                         const bool is_wanted[SW_SITE_COUNT], const sw_progress *progress,
                         sw_err *err) SW_MUST_USE;

/* Move both streams to the middle of the block (`to` SW_HALF_ATTENTION), or to its output
 * (SW_HALF_BOTH) from wherever they are. */
sw_code sw_streams_advance(sw_streams *s, const sw_block *quantized, const sw_block *original,
                           sw_half to, const sw_progress *progress, sw_err *err) SW_MUST_USE;

#endif
