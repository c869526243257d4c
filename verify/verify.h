/* verify.h - the judge: does a checkpoint still compute what the original did?
 *
 * verify/ shares no code with quant/. It reads the finished directory, decodes it with a second
 * decoder written from the layout tables (decode_spec.h), compares every tensor with the
 * original, and runs both models over held-out text, the checkpoint through the integer kernels
 * that serve it. Config, tokenizer and what else lies beside the weights must be the original's.
 * Without an original only integrity and perplexity are judged, without a text only what is stored.
 * What is not quantized is compared in floats.
 */
#ifndef SW_VERIFY_VERIFY_H
#define SW_VERIFY_VERIFY_H

#include "formats/base/progress.h"
#include "kernels/gpu.h"
#include "verify/report.h"

typedef struct sw_verify_options {
    const char *checkpoint_dir;
    const char *original_dir;      /* --against; NULL: none */
    const char *const *text_paths; /* joined in this order; text or token files (corpus.h) */
    int64_t n_texts;               /* 0: no evaluation */
    int64_t window;                /* tokens; 0: min(2048, max positions) */
    int64_t max_windows;           /* 0: all */
    bool with_bos;                 /* each window begins with BOS */
    bool keeps_e4m3;               /* the checkpoint, not the original, caches in eight bits */
    int64_t gap_windows;           /* for the kernel gap; 0: the default of 4, below 0: none */
    sw_bootstrap bootstrap;        /* zeroes: seed 0, 1000 resamples, 95 % */
    bool has_gate[SW_GATE_COUNT];  /* --max-kl, --max-ppl-ratio, --min-top1 */
    double gate[SW_GATE_COUNT];
    int n_threads;
    const char *states_path;       /* hidden states of the original (hidden_file.h); NULL: none */
    sw_gpu *gpu;                   /* the models run over the text there; NULL: here */
    const sw_progress *progress;   /* stages "tensors", "hashes", "perplexity"; may be NULL */
} sw_verify_options;

/* Judge. SW_OK means that a report could be made, whatever it says: ask sw_report_verdict.
 * What is wrong with the quantized tensors becomes findings, not an error.
 * SW_E_USAGE: a gate without the input it needs, a text too short, no quantized checkpoint, states
 * of another original or text.
 * SW_E_FORMAT, SW_E_UNSUPPORTED, SW_E_IO: an input cannot be read; names file and remedy.
 * `out` is freed by sw_report_free; set on success only. */
sw_code sw_verify_run(sw_report *out, const sw_verify_options *options, sw_err *err) SW_MUST_USE;

#endif
