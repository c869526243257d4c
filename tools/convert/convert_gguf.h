/* convert_gguf.h - `convert --to gguf`: a model directory, or a GGUF, as one GGUF file. */
#ifndef SW_TOOLS_CONVERT_CONVERT_GGUF_H
#define SW_TOOLS_CONVERT_CONVERT_GGUF_H

#include "formats/checkpoint/writer/gguf_export.h"

typedef struct sw_gguf_job {
    const char *source, *out;       /* out: FILE.gguf */
    const char *type, *embed_type;  /* names, or NULL: what the source suggests */
    const char *imatrix;            /* a file (imatrix.h) that weighs errors, or NULL */
    bool may_replace, may_requantize, plain_rule, no_tokenizer;
    int n_threads;
    const sw_progress *progress;
    sw_block_type types[2];         /* used, once it has run: of most linears, of the embedding */
    bool is_as_stored;              /* then: a GGUF whose linears kept their types */
    sw_gguf_report report;
} sw_gguf_job;

/* SW_E_USAGE: no type can be told from the source; otherwise as sw_gguf_export. */
sw_code sw_gguf_job_run(sw_gguf_job *job, sw_err *err) SW_MUST_USE;

/* Types that can be written; NULL behind the last. For options. */
const char *sw_name_of_block_type(int i);

#endif
