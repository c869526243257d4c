/* spm_model.h - the parts of a sentencepiece model file that say how it encodes.
 *
 * The file is a protobuf message, ModelProto (sentencepiece_model.proto). Only the wire format is
 * read: varints, 32 and 64 bits, and lengths; unknown fields are skipped, groups are refused.
 */
#ifndef SW_FORMATS_TEXT_FILES_SPM_MODEL_H
#define SW_FORMATS_TEXT_FILES_SPM_MODEL_H

#include <stdbool.h>

#include "formats/base/mem.h"

typedef enum sw_spm_kind { /* of a piece, as the file numbers them */
    SW_SPM_NORMAL = 1, SW_SPM_UNKNOWN, SW_SPM_CONTROL, SW_SPM_USER, SW_SPM_UNUSED, SW_SPM_BYTE
} sw_spm_kind;

typedef enum sw_spm_type { SW_SPM_UNIGRAM = 1, SW_SPM_BPE, SW_SPM_WORD, SW_SPM_CHAR } sw_spm_type;

typedef struct sw_spm_bytes {
    const unsigned char *at; /* of the file */
    size_t n;
} sw_spm_bytes;

typedef struct sw_spm_piece {
    sw_spm_bytes text;
    float score;
    uint32_t kind; /* sw_spm_kind */
} sw_spm_piece;

typedef struct sw_spm_model {
    sw_spm_piece *pieces; /* [n] by id, of the arena */
    int64_t n;
    uint32_t type; /* sw_spm_type */
    bool has_byte_fallback, has_space_at_end;
    sw_spm_bytes bos, eos; /* pieces, as the trainer's specification names them */
    bool adds_prefix, drops_spaces, escapes_spaces;
    sw_spm_bytes charsmap, denormalizer; /* n is 0: none */
} sw_spm_model;

/* `out` borrows from the bytes. SW_E_FORMAT: cut off, a field that runs over its message, a score
 * that is no number, no pieces. */
sw_code sw_spm_read(sw_spm_model *out, const unsigned char *bytes, size_t n_bytes, sw_arena *arena,
                    sw_err *err) SW_MUST_USE;

#endif
