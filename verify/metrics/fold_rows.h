/* fold_rows.h - what a fold into the rows of a linear multiplied, told from the weights alone.
 *
 * Rows of a producer (v, up) may have been divided by s while the inputs of its consumer (o, down)
 * were multiplied by it. The judge measures s twice: as the least-squares multiple of each stored
 * row and as that of each stored input. A fold is there when both sides say the same; a producer
 * that was scaled alone, or a consumer, is no fold but damage.
 */
#ifndef SW_VERIFY_METRICS_FOLD_ROWS_H
#define SW_VERIFY_METRICS_FOLD_ROWS_H

#include "verify/metrics/rescale.h"

/* One possible fold: a producer and the linears that read what it makes. */
typedef struct sw_fold_rows {
    const sw_fold *fold; /* of SW_FOLD_ROWS */
    int64_t layer, expert;
    double *scale;       /* [n_rows] what the producer's rows were divided by, 1 of other rows;
                          * NULL: no fold. Freed by sw_mem_put */
    int64_t n_rows;
    sw_err err;
} sw_fold_rows;

/* Fill scale and n_rows. `so_far` has the norms, which change the producer's inputs. Memory: one
 * linear in codes, or in f32 where it is not stored row by row. Weights that do not decode have no
 * fold. An error is left in ->err: no memory. */
void sw_fold_rows_find(sw_fold_rows *out, const sw_rescale *so_far, const sw_subject *checkpoint,
                       const sw_subject *original);

/* The two measurements made into one, a pure function. rows[n] and columns[n] are the factors that
 * producer and consumers show, 0 where one shows none; noise[n] the variance of columns. True, and
 * the factors in rows[], when they are a fold. is_exact: the consumer is stored in floats, so that
 * its factors are the better ones. */
bool sw_fold_rows_agree(double *rows, const double *columns, const double *noise, int64_t n,
                        bool is_exact, double *scratch);

#endif
