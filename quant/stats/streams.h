/* streams.h - the calibration activations of the quantized and of the original model.
 *
 * Both hold [n_tokens, hidden] floats at the input of the present block. Work goes chunk by
 * chunk of whole sequences, in order, so scratch stays small and sums stay reproducible. Once
 * the attention half of a block is settled they may move to the middle of the block, so that
 * what follows does not run it again.
 */
#ifndef SW_QUANT_STATS_STREAMS_H
#define SW_QUANT_STATS_STREAMS_H

#include "quant/carrier.h"
#include "quant/stats/pieces.h"
#include "quant/stats/site_stats.h"

#define SW_STREAM_CHUNK_TOKENS 4096
#define SW_STREAM_HELD_EVERY 8 /* one chunk in so many is kept back; at least one if there are 2 */

struct sw_team;

typedef struct sw_streams {
    const sw_model *model;
    int64_t n_seqs, seq_len, chunk_seqs; /* n_seqs: windows that are here, */
    int64_t first_seq, n_text_seqs;      /* from this one on, of those of the text, */
    int64_t n_pieces;                    /* which has so many pieces (pieces.h) */
    int64_t from, to; /* windows that are here and that a backend is to observe: of one piece */
    sw_carrier carrier; /* to the ranks that have the other windows; of no team: all are here */
    sw_place place;  /* where the streams are and blocks run, */
    void *own;       /* in what its backend keeps */
    bool has_original; /* there is a stream of the original model beside the quantized one's */
    sw_engine *engine; /* embeds */
    float *work;     /* [chunk tokens, hidden] what the engine runs on */
    float *side;     /* [n_tokens, side_width] what tokens of the quantized stream have besides, */
    float *side0;    /* and of the original one (sw_engine_side); NULL: nothing */
    int64_t side_width;
    sw_half ahead;   /* what is left of the present block */
    bool is_last_look; /* the caller moves the streams before it looks at the original one again:
                        * that one may move now */
    const uint8_t *parts; /* [n_text_seqs] what each window is for (windows.h), borrowed, or NULL */
} sw_streams;

/* Embeds the calibration tokens. spill_dir: both streams live in a file there, one chunk of each
 * in memory; NULL: at the place. SW_E_FORMAT for ids beyond the vocabulary. SW_E_UNSUPPORTED,
 * SW_E_NOMEM: the model is not for this place, or the place cannot spill; nothing was done. */
sw_code sw_streams_new(sw_streams *out, const sw_place *at, const sw_model *model, const sw_st *st,
                       const sw_calib *calib, bool with_original, const char *spill_dir,
                       sw_err *err) SW_MUST_USE;
/* The same for one of several ranks: of the text, its pieces alone. Every rank calls it. */
sw_code sw_streams_new_shared(sw_streams *out, const sw_place *at, const sw_model *model,
                              const sw_st *st, const sw_calib *calib, bool with_original,
                              const char *spill_dir, struct sw_team *team,
                              sw_err *err) SW_MUST_USE;
/* A transform has changed the quantized block that the streams are at. */
void sw_streams_forget(sw_streams *s);
/* Tokens of the text that go to one half of an expert's statistics, before as many to the other. */
int64_t sw_streams_stretch(const sw_streams *s);
/* For a prior one row in so many is run through every expert. */
int64_t sw_streams_all_every(const sw_streams *s, sw_experts policy);
/* Windows `seq` count from the first that is here. The token of the text that one begins with; is
 * the chunk that begins with it kept back? */
int64_t sw_streams_token_at(const sw_streams *s, int64_t seq);
bool sw_streams_is_held(const sw_streams *s, int64_t seq);
/* Sums of one kind that live at a time, at most, while they observe; goes_on: see pieces.h. */
int sw_streams_sums_alive(const sw_streams *s, bool goes_on);
/* Inputs of the model's widest linear. */
int64_t sw_streams_k_max(const sw_model *model);
/* The pieces (pieces.h) whose windows a rank has, and the window of the text that a piece begins
 * with; of the piece after the last, how many there are. */
sw_piece_run sw_streams_pieces(const sw_streams *s, int rank);
int64_t sw_streams_piece_seq(const sw_streams *s, int64_t piece);
/* The window behind the last one of the piece that `seq` is in. */
int64_t sw_streams_piece_end(const sw_streams *s, int64_t seq);
bool sw_streams_chunk_is_held(int64_t chunk, int64_t n_chunks); /* the same of a chunk */
/* Whole sequences of one chunk: no more than there are, and at least one; and those of the chunk
 * that begins with sequence `seq`. */
int64_t sw_streams_chunk_seqs(const sw_calib *calib);
int64_t sw_streams_seqs_at(const sw_streams *s, int64_t seq);
/* false: too few tokens for any to be kept back, so that no cross term will be used. */
bool sw_streams_hold_back(const sw_calib *calib);
/* What the tokens of windows [seq, seq + n_seqs) have besides, of the stream `side` or `side0`,
 * into the engine before it runs them, as the windows [at, at + n_seqs) of its batch. */
void sw_streams_give_side(const sw_streams *s, const float *side, int64_t seq, int64_t n_seqs,
                          int64_t at);
/* And out of the engine when it has run the windows [seq, seq + n_seqs). NULL `side`: nothing. */
void sw_streams_take_side(const sw_streams *s, float *side, int64_t seq, int64_t n_seqs);
void sw_streams_free(sw_streams *s);
/* The same at the end of a run of which every rank calls it; `code` is how it went here. */
void sw_streams_end(sw_streams *s, sw_code code);

/* Run both streams up to the last wanted site, with `quantized` and `original` weights, and sum
 * what the wanted sites see, piece by piece: of the original stream divided by stats->scale, which
 * is what `quantized` has beside it. Linears that read a wanted site are not quantized yet. The
 * streams do not move, but for a last look. `stats` is new. Of several
 * ranks each calls it and gets the sums over the whole text; those of an expert only its owner
 * (sums.h), the others' are empty then. */
sw_code sw_streams_observe(sw_streams *s, sw_site_stats *stats, const sw_block *quantized,
                           const sw_block *original, const sw_progress *progress,
                           sw_err *err) SW_MUST_USE;

/* Move both streams to the middle of the block (`to` SW_HALF_ATTENTION), or to its output
 * (SW_HALF_BOTH) from wherever they are. */
sw_code sw_streams_advance(sw_streams *s, const sw_block *quantized, const sw_block *original,
                           sw_half to, const sw_progress *progress, sw_err *err) SW_MUST_USE;

#endif
