/* block_job.h - a block on its way through the quantizer. For pipeline.c and its parts alone. */
#ifndef SW_QUANT_RUN_BLOCK_JOB_H
#define SW_QUANT_RUN_BLOCK_JOB_H

#include "quant/run/pipeline.h"
#include "quant/search/transform.h"
#include "quant/weight_rooms.h"

/* Everything that lives while one block is worked on. */
typedef struct sw_block_job {
    const sw_model *model;
    const sw_st *st;
    const sw_quant_options *options;
    const sw_quant_sink *sink;
    sw_streams *streams;        /* where experts are observed, with progress; or ... */
    const sw_progress *progress;
    const sw_zpack *stats_file; /* ... what they are read from */
    sw_site_scales scales;      /* what their inputs were divided by since */
    sw_block original, quantized;
    sw_block untouched;     /* as stored; loaded when a transform changes `original`, by which
                             * searches go; see sw_block_job_original */
    sw_linear_ref *linears; /* those selected */
    sw_qspec *specs;        /* [n_linears] what each becomes */
    int64_t n_linears;
    sw_weight_rooms *rooms; /* of all weights on their way, of this block and of those behind it */
    float **values;         /* [n_linears] decoded weights that `quantized` borrows; rooms */
    float **ahead;          /* [n_linears] weights that were read before they are solved; rooms, or
                             * NULL */
    float input_scale[SW_SITE_COUNT]; /* calibrated, for linears whose spec asks for one */
} sw_block_job;

/* job->model, options, sink and rooms are set. Free it with sw_block_job_free, also on failure. */
sw_code sw_block_job_new(sw_block_job *job, const sw_st *st, int64_t layer,
                         sw_err *err) SW_MUST_USE;
void sw_block_job_free(sw_block_job *job);
bool sw_block_job_uses_site(const sw_block_job *job, int site);
/* What the original stream is observed in and moves by: the block as stored, whatever a transform
 * does. A transformed one rounds otherwise, and a continued run, which does not search again, would
 * not get the same bytes. */
const sw_block *sw_block_job_original(const sw_block_job *job);
/* Nothing of the block is observed any more: what its streams move by may be loaded while the rest
 * is solved. Behind the last block they do not move. */
void sw_block_job_is_seen(const sw_block_job *job);

/* Blocks there are, and one more for the head (sw_model_linears) when it is selected. */
int64_t sw_quant_n_layers(const sw_model *model, const sw_quant_sink *sink);

/* Blocks that an earlier run put, as rank 0's sink has them; every rank calls it. */
sw_code sw_quant_blocks_done(int64_t *n, const sw_quant_sink *sink, const sw_quant_options *options,
                             sw_err *err) SW_MUST_USE;

/* SW_E_USAGE: the method does nothing for the scheme. SW_E_UNSUPPORTED: it does not run on several
 * ranks. */
sw_code sw_quant_check_method(const sw_quant_options *options, sw_err *err) SW_MUST_USE;

/* What a transform of the block gets: lends, does not own. */
sw_transform_job sw_block_job_transform(sw_block_job *job, sw_streams *streams);

/* Solve the linears of the wanted sites, hand them out, and let job->quantized use the result.
 * Merges and blends what `stats` holds in place. */
sw_code sw_solve_sites(sw_block_job *job, sw_site_stats *stats, sw_err *err) SW_MUST_USE;
/* Every linear, by a method that needs no statistics. */
sw_code sw_solve_without_stats(sw_block_job *job, sw_err *err) SW_MUST_USE;
/* The backend that runs job->quantized. */
const sw_backend *sw_block_job_runs_on(const sw_block_job *job);
/* Let the block run on values [n_out, k_in] of linear i, with inputs rounded as they will be. Takes
 * them over, in a room: floats, or what sw_block_job_runs_on decoded. */
void sw_block_job_use(sw_block_job *job, int64_t i, float *values);

/* Where the parts of a run are done: what the options' backend lacks falls back here.
 * For the pipelines alone. */

/* Where the linears that wait for these sites are solved: at the options' place, or where that
 * falls back to when its backend cannot solve one of them. */
sw_place sw_place_sites(const sw_block_job *job, const bool wanted[SW_SITE_COUNT]);

/* Streams at the options' place where everything can be; where that falls back to otherwise, and
 * `progress` says why. */
sw_code sw_place_streams(sw_streams *out, const sw_model *model, const sw_st *st,
                         const sw_calib *calib, bool with_original, const sw_quant_options *o,
                         const sw_quant_sink *sink, const sw_progress *progress,
                         sw_err *err) SW_MUST_USE;

#endif
