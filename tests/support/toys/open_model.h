/* open_model.h - a model directory, opened for a test. */
#ifndef SW_TESTS_SUPPORT_TOYS_OPEN_MODEL_H
#define SW_TESTS_SUPPORT_TOYS_OPEN_MODEL_H

#include <stdbool.h>

#include "kernels/engine/engine.h"

typedef struct open_model {
    sw_model model;
    sw_st *st;
    sw_lm lm;
} open_model;

/* Is there a model in `dir`? If not, stdout says that its tests are left out. */
bool open_model_is_there(const char *dir);
/* These fail the running cmocka test when anything goes wrong. */
void open_model_dir(open_model *out, const char *dir);
void open_model_close(open_model *m);
/* A fresh engine, freed by sw_engine_free. */
sw_engine *open_engine(const open_model *m, int64_t max_tokens, int n_threads);
/* The logits of whole sequences, freed by sw_mem_put. */
float *model_logits(const open_model *m, int n_threads, const uint32_t *ids, int64_t n_seqs,
                    int64_t seq_len);

/* input_ids and logits of a reference.safetensors; ids are freed by sw_mem_put, the logits live
 * as long as `st`, which sw_st_close frees. */
typedef struct reference_logits {
    sw_st *st;
    uint32_t *ids;
    const float *logits;
    int64_t n_seqs, seq_len, vocab;
} reference_logits;
void reference_open(reference_logits *out, const char *path);
void reference_close(reference_logits *r);

/* |a - b| / |b| in double. */
double relative_l2(const float *a, const float *b, int64_t n);
/* The relative error of the row in the middle of n_rows, by size of error. */
double relative_l2_median(const float *a, const float *b, int64_t n_rows, int64_t width);
double relative_l2_double(const float *a, const double *b, int64_t n);

/* The first n ids of a file of 16-bit ids; fails the running cmocka test if it has fewer. */
void read_ids(uint32_t *ids, const char *path, int64_t n);

#endif
