/* rescale.h - factors per channel that moved between a producer and its readers.
 *
 * A checkpoint may hold a norm divided by s and linears multiplied by s: the same model, easier to
 * quantize. The judge finds s by itself. For a norm it is the quotient of the original's
 * and the stored weight; for rows of a linear, which are stored quantized, it is each row's
 * best-fitting multiple where the readers' columns show the inverse of it (fold_rows.h). The
 * readers are then compared with the original times s, column by column, so that a producer that
 * was changed without its readers, or readers without their producer, is found.
 */
#ifndef SW_VERIFY_METRICS_RESCALE_H
#define SW_VERIFY_METRICS_RESCALE_H

#include "verify/base/report.h"
#include "verify/base/subject.h"
#include "verify/metrics/inputs.h"
#include "verify/metrics/linear_rows.h"

/* What a reader says for the factors of its norm. */
typedef struct sw_rescale_says {
    double evidence;    /* the squared deviations of its columns' multiples from what they would be
                         * without factors, less those from what they should be, in units of their
                         * noise; those that were never multiplied add up to less than nothing */
    double err2, want2; /* its squared error, and the original's square */
    double shrunk2;     /* the square of what all of it shrank by, times want2 */
} sw_rescale_says;

typedef struct sw_rescale_group {
    sw_fold fold;
    int64_t layer, expert, k;
    const double *scale; /* [k] what readers were multiplied by */
    const double *rows;  /* [n_rows] what the producer's were divided by, of SW_FOLD_ROWS */
    int64_t n_rows;
    sw_rescale_says says; /* of SW_FOLD_NORM: its readers, added up */
} sw_rescale_group;

typedef struct sw_rescale {
    sw_rescale_group *groups;
    int64_t n_groups;
    sw_subject_linear *linears; /* all of the model */
    int64_t n_linears;
    bool is_claimed; /* the manifest says that something was rescaled */
    sw_arena arena;
} sw_rescale;

/* Groups with a factor other than 1. Findings: "rescaled" for a norm whose change
 * is no sound factor. Memory: a linear in codes for each thread (linear_rows.h).
 * Freed by sw_rescale_free, which accepts a zeroed one. */
sw_code sw_rescale_new(sw_rescale *out, sw_report *report, const sw_subject *checkpoint,
                       const sw_subject *original, int n_threads,
                       sw_err *err) SW_MUST_USE;
void sw_rescale_free(sw_rescale *rescale);

/* What the inputs (resp. outputs) of a linear were multiplied (resp. divided) by, [k_in]
 * ([n_out]); NULL: nothing. */
const double *sw_rescale_columns(const sw_rescale *rescale, const sw_linear_ref *ref);
const double *sw_rescale_rows(const sw_rescale *rescale, const sw_linear_ref *ref);
/* The norm or linear whose change asks for those columns, by its module path; false: none. */
bool sw_rescale_producer(char path[256], const sw_rescale *rescale, const sw_model *model,
                         const sw_linear_ref *ref);

/* Row n of a weight of the checkpoint, w [k_in], becomes what the original holds. columns and rows
 * are what the two above say of the linear. */
void sw_rescale_back(float *w, const double *columns, const double *rows, int64_t n, int64_t k_in);

/* The column of a decoded linear whose best multiple of what is wanted is furthest from 1, as a
 * share of what rounding may do to it. `sums`: of the linear against the original times its
 * factors. */
typedef struct sw_rescale_column {
    int64_t at;
    double multiple, limit; /* limit: the largest |multiple - 1| that is sound */
} sw_rescale_column;
sw_rescale_column sw_rescale_worst_column(const sw_column_sums *sums);

/* Add what a reader says to *says. `sums`: of the reader against the original times its factors.
 * SW_E_NOMEM. */
sw_code sw_rescale_ask(sw_rescale_says *says, const sw_column_sums *sums, const double *scale,
                       sw_err *err) SW_MUST_USE;
void sw_rescale_add(sw_rescale_says *to, const sw_rescale_says *says);
/* Is the change of a norm, [k] what its channels were divided by, made good by its readers, or
 * smaller than they can show and than matters? */
bool sw_rescale_is_made_good(const sw_rescale_says *says, const double *scale, int64_t k);
/* The group of the norm before a linear; NULL: its norm is the original's. */
sw_rescale_group *sw_rescale_norm_before(const sw_rescale *rescale, const sw_linear_ref *ref);

/* true when a tensor that stays in floats differs from the original's just as a group says. */
bool sw_rescale_explains(const sw_rescale *rescale, const sw_subject *checkpoint, const char *name,
                         const sw_cview *have, const sw_cview *want);

#endif
