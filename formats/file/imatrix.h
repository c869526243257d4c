/* imatrix.h - how much the inputs of each linear weigh: files of "importance matrices", as programs
 * around GGUF write and read them.
 *
 * Of a weight of a GGUF, by its name there, the mean square of every input over the calibration
 * tokens: the diagonal of the Hessian. Experts of a layer have one such row each. Two forms:
 *   a GGUF (FILE.gguf), general.type "imatrix", of each weight F32 NAME.in_sum2 [n_mats, width],
 *     sums of squares, and NAME.counts [n_mats, 1], tokens;
 *   the older .dat, little-endian: i32 n; n times i32 length, NAME, i32 calls, i32 n_values, F32
 *     [n_values], means times calls; then perhaps i32 chunks, i32 length, name of the text.
 */
#ifndef SW_FORMATS_FILE_IMATRIX_H
#define SW_FORMATS_FILE_IMATRIX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/status.h"

typedef struct sw_imatrix_entry {
    const char *name;    /* "blk.0.ffn_up.weight" */
    int64_t n_values;    /* of all experts, one behind the other */
    const float *means;  /* [n_values] mean squares; 1 for an expert without a token */
    double n_tokens;     /* that the first row is a mean of; writing: of all */
} sw_imatrix_entry;

typedef struct sw_imatrix sw_imatrix;

/* Either form, told by its first bytes. SW_E_IO; SW_E_FORMAT names the entry that is cut off,
 * doubled, negative or not finite. */
sw_code sw_imatrix_open(sw_imatrix **out, const char *path, sw_err *err) SW_MUST_USE;
/* Of bytes in memory, which need not outlive the call; `what` stands for the path. */
sw_code sw_imatrix_open_bytes(sw_imatrix **out, const void *bytes, size_t n_bytes,
                              const char *what, sw_err *err) SW_MUST_USE;
void sw_imatrix_free(sw_imatrix *im); /* accepts NULL */
int64_t sw_imatrix_count(const sw_imatrix *im);
const sw_imatrix_entry *sw_imatrix_at(const sw_imatrix *im, int64_t i); /* in name order */

/* *out [width] of matrix `mat` of n_mats of this weight, or NULL when the file has no such weight.
 * SW_E_FORMAT: it is of another model. */
sw_code sw_imatrix_weights(const float **out, const sw_imatrix *im, const char *name,
                           int64_t n_mats, int64_t mat, int64_t width, sw_err *err) SW_MUST_USE;

/* `entries` in the form that the path's ending says. n_mats[i] rows of entries[i], each a mean of
 * counts[i][m] tokens. `text`: what the calibration text is called. SW_E_USAGE: the ending is
 * neither .gguf nor .dat. */
typedef struct sw_imatrix_source {
    sw_imatrix_entry entry;
    int64_t n_mats;
    const float *counts; /* [n_mats] */
} sw_imatrix_source;
sw_code sw_imatrix_write(const char *path, const sw_imatrix_source *sources, int64_t n,
                         const char *text, int64_t n_chunks, int64_t chunk_tokens,
                         bool may_replace, sw_err *err) SW_MUST_USE;

#endif
