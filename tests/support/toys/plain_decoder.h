/* plain_decoder.h - a decoder written a second time, in double precision and without any speed.
 *
 * Takes sizes from sw_model and tensors by their published names; shares no program, no rope code
 * and no kernel with the engine, so that agreement means something.
 */
#ifndef SW_TESTS_SUPPORT_TOYS_PLAIN_DECODER_H
#define SW_TESTS_SUPPORT_TOYS_PLAIN_DECODER_H

#include "formats/file/safetensors.h"
#include "formats/model/model.h"

/* logits [n, vocab] of one sequence. Fails the running cmocka test when a tensor is missing. */
void plain_logits(double *logits, const sw_model *m, const sw_st *st, const uint32_t *ids,
                  int64_t n);
/* Angle frequency of pair i when `n_positions` are in use, by the published formulas. */
double plain_frequency(const sw_model *m, int64_t i, int64_t n_positions);
/* The factor that yarn puts on cosines and sines, 1 for the others. */
double plain_rope_scale(const sw_model *m);

/* What the two files of the plain decoder share. */

typedef struct matrix {
    double *v;
    int64_t rows, cols; /* of more dimensions all but the last are rows */
} matrix;

matrix plain_tensor(const sw_st *st, const char *name); /* v is freed by free() */
/* y [n, w->cols] = rms norm of x; y may be x */
void plain_norm(double *y, const double *x, const matrix *w, int64_t n, double eps);
double plain_dot(const double *a, const double *b, int64_t n);
/* plain_logits for the families that are not built like llama; false: this is none of them. */
bool plain_family_logits(double *logits, const sw_model *m, const sw_st *st, const uint32_t *ids,
                         int64_t n);

#endif
