/* inspection.h - what a checkpoint holds, gathered without giving up at the first problem. */
#ifndef SW_TOOLS_INSPECT_INSPECTION_H
#define SW_TOOLS_INSPECT_INSPECTION_H

#include "formats/base/block_type.h"
#include "formats/base/progress.h"
#include "formats/dialect/dialect.h"
#include "formats/file/safetensors.h"
#include "formats/model/model.h"
#include "tools/inspect/inspect_linears.h"
#include "verify/loaders/loaders.h"

#define SW_PROBLEMS_MAX 64
#define SW_NOTES_MAX 8
#define SW_NOTE_BYTES 400

typedef struct sw_dtype_total {
    int64_t n_tensors, n_elems;
    uint64_t n_bytes;
} sw_dtype_total;

typedef struct sw_inspection {
    const char *path;
    bool is_open;              /* ckpt is, and the three below are its own */
    sw_checkpoint ckpt;
    sw_st *st;
    cJSON *config;             /* NULL for a lone container */
    bool has_model;
    sw_model model;            /* when has_model */
    const sw_dialect *dialect; /* NULL: dense, or not one of ours */
    sw_qconfig qconfig;        /* when dialect */
    char version[64];          /* of the dialect or of what wrote it; may be empty */
    int64_t n_quantized;       /* linears stored quantized */
    sw_scheme_group groups[SW_GROUPS_MAX];
    int64_t n_groups;
    sw_load_findings loaders;
    char notes[SW_NOTES_MAX][SW_NOTE_BYTES]; /* what is odd and no fault */
    int n_notes;
    int64_t tokenizer_vocab;   /* 0: none */
    sw_dtype_total by_dtype[SW_DTYPE_COUNT];
    sw_dtype_total by_block[SW_BLOCK_TYPE_COUNT]; /* of a GGUF, instead: what the file has */
    sw_dtype_total total;
    sw_err problems[SW_PROBLEMS_MAX]; /* the first ones, in the order found */
    int64_t n_problems;               /* all */
    sw_arena arena;
} sw_inspection;

/* Open `path`, a model directory or one .safetensors file, and look at everything. with_values
 * also reads every float weight and counts what is not finite. Fails only when there is nothing
 * to look at: SW_E_IO, SW_E_FORMAT of a container or of config.json. */
sw_code sw_inspection_open(sw_inspection *out, const char *path, bool with_values,
                           const sw_progress *progress, sw_err *err) SW_MUST_USE;
void sw_inspection_close(sw_inspection *in); /* accepts a zeroed one */

#endif
