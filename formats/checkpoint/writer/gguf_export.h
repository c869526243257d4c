/* gguf_export.h - a model as one GGUF file.
 *
 * A GGUF written again keeps its keys as they are, and every tensor whose type does not change
 * keeps its bytes. Otherwise weights of blocks (and the embedding) are written in one type; where a
 * row is no whole number of its blocks, in the nearest type that fits, and routers, norms and
 * biases as F32. Dense sources are encoded from their values; quantized ones are carried over where
 * the type is the same thing in other bytes (sw_gguf_carries) and decoded otherwise. Row by row,
 * tensor by tensor: memory is that of the largest tensor.
 */
#ifndef SW_FORMATS_CHECKPOINT_WRITER_GGUF_EXPORT_H
#define SW_FORMATS_CHECKPOINT_WRITER_GGUF_EXPORT_H

#include "formats/base/block_type.h"
#include "formats/checkpoint/checkpoint.h"
#include "formats/file/imatrix.h"
#include "formats/gguf/gguf_vocab.h"
#include "formats/num/blocks.h"

#define SW_GGUF_AS_STORED SW_BLOCK_TYPE_COUNT /* the type that each tensor has; of a GGUF alone */

/* What `convert --to` calls it, beside the names of the dialects. */
#define SW_GGUF_TARGET "gguf"

typedef struct sw_gguf_options {
    sw_block_type type;       /* of the linears */
    sw_block_type embed_type; /* of embedding and head */
    sw_block_how how;
    const sw_imatrix *imatrix; /* what an error in each input of a weight weighs; NULL: evenly */
    bool may_requantize;      /* weights that are quantized already may be rounded again */
    bool may_replace;         /* a file that is there; else SW_E_USAGE */
    const char *name;         /* general.name */
    const sw_gguf_vocab_source *vocab; /* or NULL: without a tokenizer; not for a GGUF, which */
    bool drop_tokenizer;               /* ... keeps its own, unless this */
    int n_threads;
    const sw_progress *progress;       /* or NULL */
} sw_gguf_options;

typedef struct sw_gguf_report {
    int64_t n_exact;       /* tensors carried over or of floats that lost nothing */
    int64_t n_rounded;     /* encoded from floats */
    int64_t n_requantized; /* decoded from codes and rounded again */
    int64_t n_fallback;    /* linears whose rows do not fit the type */
    int64_t n_unweighted;  /* rounded linears that the imatrix says nothing of */
    uint64_t data_bytes;
    sw_block_type types[2]; /* of most weights of linears, and of the embedding */
} sw_gguf_report;

/* true when blocks of `type` say exactly what a weight of this scheme and of k_in inputs does, its
 * scales and zero points permitting: they have to be F16 values, as blocks store them. */
bool sw_gguf_carries(sw_block_type type, const sw_qspec *spec, int64_t k_in);

/* `path` ends in .gguf and is complete or absent. SW_E_UNSUPPORTED names the tensor or the rule of
 * the model that has no form as GGUF, or a weight that would be rounded twice. */
sw_code sw_gguf_export(sw_gguf_report *report, const sw_checkpoint *source, const char *path,
                       const sw_gguf_options *options, sw_err *err) SW_MUST_USE;

#endif
