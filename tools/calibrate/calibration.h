/* calibration.h - calibration input for a command: files to windows of token ids. */
#ifndef SW_TOOLS_CALIBRATE_CALIBRATION_H
#define SW_TOOLS_CALIBRATE_CALIBRATION_H

#include "formats/text/corpus.h"
#include "quant/run/pipeline.h"
#include "tools/cli/opt.h"

typedef struct sw_calibration {
    sw_corpus corpus;
    uint32_t *windows; /* [n_seqs * seq_len] when drawn; NULL: the corpus from its start */
    sw_calib calib;    /* borrows one of the two */
} sw_calibration;

typedef struct sw_calibration_options {
    const char *model_dir;      /* for tokenizer.json, opened when a file holds text */
    const sw_opt_list *files;
    int64_t n_samples, seq_len; /* 0: 128, and the shorter of 2048 and the model's context */
    int64_t seed;               /* 0: the first windows; else windows drawn from the whole text */
    const sw_progress *progress; /* for notes; may be NULL */
} sw_calibration_options;

/* SW_E_USAGE: too few tokens (says how many there are and what would fit), seq_len beyond the
 * context. SW_E_IO, SW_E_FORMAT: tokenizer or text; SW_E_FORMAT also for a tokenizer with more
 * tokens than the embedding has rows. */
sw_code sw_calibration_read(sw_calibration *out, const sw_model *model,
                            const sw_calibration_options *options, sw_err *err) SW_MUST_USE;
/* Only its measures, for foreseeing a run: ids stay NULL. SW_E_USAGE for seq_len. */
sw_code sw_calibration_assume(sw_calibration *out, const sw_model *model,
                              const sw_calibration_options *options, sw_err *err) SW_MUST_USE;
void sw_calibration_free(sw_calibration *calibration); /* accepts a zeroed one */

/* tokenizer.json of a model directory, checked against the model's embedding. */
sw_code sw_tokenizer_of_model(sw_tokenizer **out, const char *model_dir, int64_t vocab,
                              sw_err *err) SW_MUST_USE;

#endif
