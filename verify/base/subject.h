/* subject.h - a model directory as the judge opens it: on its own, without the dialects. */
#ifndef SW_VERIFY_BASE_SUBJECT_H
#define SW_VERIFY_BASE_SUBJECT_H

#include "formats/checkpoint/checkpoint.h"
#include "formats/model/model.h"
#include "verify/decoders/decode_spec.h"

typedef struct sw_subject {
    char dir[SW_PATH_BYTES]; /* or the path of a GGUF ... */
    bool is_gguf;            /* ... then */
    cJSON *config;
    sw_model model;
    sw_st *st;
    bool is_quantized;
    sw_spec_scheme scheme; /* when quantized */
    sw_arena arena;
    sw_checkpoint shapes;  /* of one in codes whose family has no row: says their shapes */
} sw_subject;

/* config.json, its description, the tensors and the scheme. A GGUF (or a directory with nothing but
 * one) is that of its floats, or, when it is the judged one, has its blocks beside them. */
sw_code sw_subject_open(sw_subject *out, const char *dir, bool is_judged, sw_err *err) SW_MUST_USE;
/* The same; the tensors of a GGUF, which has names of its own, are called as in `like`. */
sw_code sw_subject_open_like(sw_subject *out, const char *dir, bool is_judged,
                             const sw_subject *like, sw_err *err) SW_MUST_USE;
/* Of a family without a row (sw_arch_unknown): the linears of its layers, by names and shapes;
 * where `like` has some, these, so that both are asked for the same. Nothing for other families. */
sw_code sw_subject_find_linears(sw_subject *s, const sw_subject *like, sw_err *err) SW_MUST_USE;
void sw_subject_close(sw_subject *s); /* accepts a zeroed one */

/* A linear that quantization may touch. */
typedef struct sw_subject_linear {
    sw_linear_ref ref;
    const char *path; /* module path, in the arena */
} sw_subject_linear;

/* All linears of all blocks, in block order; taken from the arena. */
sw_code sw_subject_linears(sw_subject_linear **out, int64_t *n_out, const sw_model *model,
                           sw_arena *arena, sw_err *err) SW_MUST_USE;
/* true when both describe a model of the same architecture. */
bool sw_subject_is_alike(const sw_subject *checkpoint, const sw_subject *original);

#endif
