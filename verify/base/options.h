/* options.h - what the judge is asked: `swage verify` with its options. */
#ifndef SW_VERIFY_BASE_OPTIONS_H
#define SW_VERIFY_BASE_OPTIONS_H

#include "formats/base/progress.h"
#include "formats/file/safetensors.h"
#include "kernels/engine/spread/device_spread.h"
#include "verify/base/ranks.h"
#include "verify/base/report.h"

struct sw_kept_states; /* metrics/kept_states.h */

typedef struct sw_verify_options {
    const char *checkpoint_dir;
    const char *original_dir;      /* --against; NULL: none */
    const char *const *text_paths; /* joined in this order; text or token files (corpus.h) */
    int64_t n_texts;               /* 0: no evaluation */
    const char *const *task_paths; /* questions (task_file.h) */
    int64_t n_tasks;
    int64_t window;                /* tokens; 0: min(2048, max positions) */
    int64_t max_windows;           /* 0: all */
    bool with_bos;                 /* each window begins with BOS */
    sw_kv_kind kv_kind;            /* of the checkpoint; the original keeps floats */
    int64_t gap_windows;           /* for the kernel gap; 0: the default of 4, below 0: none */
    sw_bootstrap bootstrap;        /* zeroes: seed 0, 1000 resamples, 95 % */
    bool has_gate[SW_GATE_COUNT];  /* --max-kl, ...: sw_gate_id */
    double gate[SW_GATE_COUNT];
    const sw_speed_request *speed; /* --speed; NULL: nothing is timed */
    const sw_st_writer *written; /* who wrote the checkpoint in this very run; NULL: nobody. Its
                                  * digests let all threads read a file again */
    sw_digest_back *back;        /* what has read those files while they grew; NULL: nothing */
    int n_threads;
    int n_threads_alone;         /* of rank 0 while the others wait for it; 0: n_threads */
    const char *states_path;     /* hidden states of the original (hidden_file.h); NULL: none */
    struct sw_kept_states *kept;       /* of an earlier judgement, or for a later one; NULL: none */
    const sw_judge_ranks *ranks; /* every one of them asks the same; NULL: one process */
    sw_device *gpu;              /* the models run over the text there; NULL: here */
    sw_device_set *gpus;         /* and on others of these, where they have no room there; NULL */
    const sw_progress *progress; /* stages "tensors", "hashes", "perplexity"; may be NULL */
} sw_verify_options;

#endif
