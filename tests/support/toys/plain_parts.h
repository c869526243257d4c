/* plain_parts.h - what the two files of the plain decoder share. */
#ifndef SW_TESTS_SUPPORT_TOYS_PLAIN_PARTS_H
#define SW_TESTS_SUPPORT_TOYS_PLAIN_PARTS_H

#include "tests/support/toys/plain_decoder.h"

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
