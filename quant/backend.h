/* backend.h - the steps of a run that a backend computes, and the place where it does.
 *
 * A run asks the backend of a place for each step and never asks which backend it is. There are
 * two: the CPU's, which can do everything, and CUDA's, which lacks some of it and names in
 * `fallback` who takes over (sw_place_for, placement.h). Arrays that a step makes belong to the
 * place: only steps of the same backend may read them. Both follow the same recipe; what sums
 * leave in the last digits may differ.
 *
 * Structs are named only: who calls a step includes the header that defines what it takes.
 * Functions that return sw_code fail with what the device or the memory says (SW_E_NOMEM,
 * SW_E_CUDA) and with what is named beside them; nothing is left to free then.
 */
#ifndef SW_QUANT_BACKEND_H
#define SW_QUANT_BACKEND_H

#include "formats/base/progress.h"
#include "quant/options.h"
#include "quant/windows.h"

struct sw_hessian;
struct sw_factor;
struct sw_streams;
struct sw_site_stats;
struct sw_range;
struct sw_kv_range;
struct sw_solve_problem;
struct sw_solve_report;
struct sw_score_job;
struct sw_block_probe;
struct sw_probe_rows;
struct sw_trial_block;

/* Where a step computes. Zeroed: in memory, by the CPU. */
typedef struct sw_place {
    const struct sw_backend *backend; /* NULL: sw_backend_cpu */
    void *device;  /* that the backend was opened on, borrowed: sw_solver for sw_backend_cuda */
    int n_threads; /* of the CPU, for what is done there */
} sw_place;

/* How the rows of a weight are solved. */
typedef enum sw_solve_kind {
    SW_SOLVE_RTN,  /* plain rounding (rtn.c) */
    SW_SOLVE_CLIP, /* rounding on searched ranges (clip.c) */
    SW_SOLVE_GPTQ, /* gptq.c with refine.c */
    SW_SOLVE_KINDS
} sw_solve_kind;

typedef struct sw_backend {
    const char *name;
    const struct sw_backend *fallback; /* does what this one cannot; NULL: it can do everything */
    sw_dtype values_dtype;             /* of decoded weights that its streams run on */

    /* ---- arrays of a place ---- */

    /* n elements of unknown content; `what` names them in an error. */
    sw_code (*take)(void **out, const sw_place *at, int64_t n, int64_t elem_bytes,
                    const char *what, sw_err *err);
    void (*put)(const sw_place *at, void *values); /* accepts NULL */
    /* n floats of memory, for reading at the place until they are unlent: the array itself where
     * that will do. */
    sw_code (*lend)(float **out, const sw_place *at, float *from, int64_t n, const char *what,
                    sw_err *err);
    void (*unlend)(const sw_place *at, float *values); /* accepts NULL */
    /* to [n, k] = from with column j times (or divided by) scale [k], in memory, as a double; a
     * NULL scale changes nothing. `to` may be `from`. */
    sw_code (*scale)(const sw_place *at, float *to, const float *from, const double *scale,
                     int64_t n, int64_t k, bool divides, sw_err *err);
    /* by_row [n], in memory, += the squared distance of the rows of have and want [n, width]; want
     * NULL: from 0. */
    sw_code (*errors)(const sw_place *at, double *by_row, const float *have, const float *want,
                      int64_t n, int64_t width, sw_err *err);
    /* y [n, w->n_out] = x [n, w->k_in] w^T, dense floats, x rounded as w->act says. */
    sw_code (*multiply)(const sw_place *at, float *y, const float *x, int64_t n,
                        const sw_weight *w, sw_scratch *scratch, sw_err *err);

    /* ---- sums of products: hessian.h, whose functions say what these do ---- */

    sw_code (*hessian_new)(struct sw_hessian *hess, bool with_cross, sw_err *err);
    void (*hessian_free)(struct sw_hessian *hess);
    sw_code (*hessian_add)(struct sw_hessian *hess, const float *x, const float *dx,
                           const float *dr, int64_t n_tokens, sw_err *err);
    sw_code (*hessian_settle)(struct sw_hessian *hess, sw_err *err);
    sw_code (*hessian_diagonal)(double *diagonal, const struct sw_hessian *hess, sw_err *err);
    /* out, which is new and of the same width, gets H divided by scale [k_in] (NULL: 1). */
    sw_code (*hessian_scale)(struct sw_hessian *out, const struct sw_hessian *hess,
                             const double *scale, sw_err *err);
    /* out, which is new, gets h [k_in, k_in] of memory. */
    sw_code (*hessian_fill)(struct sw_hessian *out, const double *h, sw_err *err);
    /* *h: H in memory, borrowed; or in *own, which is then the caller's to free. */
    sw_code (*hessian_read)(const double **h, double **own, const struct sw_hessian *hess,
                            sw_err *err);
    sw_code (*hessian_merge_inputs)(struct sw_hessian *into, const struct sw_hessian *from,
                                    sw_err *err);
    sw_code (*hessian_merge_cross)(struct sw_hessian *into, const struct sw_hessian *from,
                                   sw_err *err);
    /* half [2]: half[0] <- own (half[0] + half[1]) + every all; half[1] may be empty. */
    sw_code (*hessian_blend)(struct sw_hessian *half, const struct sw_hessian *all, double own,
                             double every, sw_err *err);
    /* Bytes that the sums of experts may take at a time, and that one over k inputs takes. */
    int64_t (*sums_bytes_max)(const sw_place *at, const sw_model *model);
    int64_t (*sum_bytes)(int64_t k);
    /* See sw_prior: *state is freed by prior_free. SW_E_FORMAT: `all` is indefinite. */
    sw_code (*prior_new)(void **state, const struct sw_hessian *all, sw_err *err);
    void (*prior_free)(void *state, const struct sw_hessian *all); /* accepts NULL */
    /* half [2]: |A|^2, |B|^2 and <A, B> of the halves' differences from `all`, where that is the
     * identity, all times one number. */
    sw_code (*prior_compare)(double form[3], const void *state, const struct sw_hessian *all,
                             const struct sw_hessian *half, sw_err *err);

    /* ---- factorization: factor.h ---- */

    /* Room for the factor, and H of `hess` with this diagonal [k] in the place of its own. */
    sw_code (*factor_new)(struct sw_factor *f, const struct sw_hessian *hess,
                          const double *diagonal, sw_err *err);
    void (*factor_free)(struct sw_factor *f);
    /* Does H + lambda have a Cholesky factor, in the order of f->perm? */
    sw_code (*factor_try)(bool *is_definite, struct sw_factor *f, double lambda, sw_err *err);
    /* After a try that succeeded. SW_E_FORMAT: a zero on the factor's diagonal. */
    sw_code (*factor_finish)(struct sw_factor *f, double lambda, sw_err *err);
    /* The damped diagonal [k] in stored order and the pivots [k] in the order of steps. */
    sw_code (*factor_costs)(double *diagonal, double *by_step, const struct sw_factor *f,
                            sw_err *err);
    /* dd, dr, rr, d and r of the held-out error (target.h) over all rows of w [n_out, k_in], which
     * is in memory, in the scale of the factor: the quadratic ones times scale^2, else scale. */
    sw_code (*target_form)(double form[5], const struct sw_factor *f,
                           const struct sw_hessian *seen, const struct sw_hessian *held,
                           const float *w, int64_t n_out, double scale, bool with_residual,
                           sw_err *err);
    sw_code (*target_shift)(double *shift, const struct sw_factor *f,
                            const struct sw_hessian *hess, const float *w, int64_t n_out,
                            sw_strengths strengths, bool with_residual, sw_err *err);

    /* ---- weights ---- */

    bool (*can_solve)(const sw_qspec *spec);
    /* Codes, scales and zeros of q, or p->values; with a factor the report gets its errors. */
    sw_code (*solve)(sw_qtensor *q, const struct sw_solve_problem *p, sw_solve_kind kind,
                     struct sw_solve_report *report, sw_err *err);
    /* loss [job->n]: what each of the job's scales costs on its sampled rows (transform.h). */
    sw_code (*score)(double *loss, const sw_place *at, const struct sw_score_job *job,
                     sw_err *err);
    /* What q's codes mean, as values_dtype, into w, which has room for floats; in memory. */
    void (*decode)(float *w, const sw_qtensor *q, int n_threads);

    /* ---- activations: streams.h, ranges.h and kv_scales.h ---- */

    /* Room for one or both streams, in a file in spill_dir or (NULL) not, and an engine that
     * embeds. SW_E_UNSUPPORTED: the place cannot run this architecture, or cannot spill. */
    sw_code (*streams_new)(struct sw_streams *s, bool with_original, const char *spill_dir,
                           sw_err *err);
    void (*streams_free)(struct sw_streams *s);
    /* Embedded rows x [chunk tokens, hidden], in memory, to where sequence `seq` begins. */
    sw_code (*streams_fill)(struct sw_streams *s, const float *x, int64_t seq, sw_err *err);
    void (*streams_forget)(struct sw_streams *s);
    sw_code (*streams_observe)(struct sw_streams *s, struct sw_site_stats *stats,
                               const sw_block *quantized, const sw_block *original,
                               const sw_progress *progress, sw_err *err);
    sw_code (*streams_advance)(struct sw_streams *s, const sw_block *quantized,
                               const sw_block *original, sw_half half,
                               const sw_progress *progress, sw_err *err);
    sw_code (*find_ranges)(struct sw_range *ranges, struct sw_streams *s, const bool *is_wanted,
                           const sw_block *block, const sw_progress *progress, sw_err *err);
    sw_code (*find_kv_range)(struct sw_kv_range *out, struct sw_streams *s, const sw_block *block,
                             const sw_progress *progress, sw_err *err);

    /* ---- windows that searches run: block_probe.h and transform.h ---- */

    sw_code (*probe_output)(float *y, const struct sw_block_probe *probe, sw_block_probe_part part,
                            const sw_block *block, sw_site site, sw_err *err);
    sw_code (*probe_hessians)(struct sw_hessian *hess, int64_t n_hess,
                              const struct sw_block_probe *probe, sw_block_probe_part part,
                              const sw_block *block, sw_site site, sw_err *err);
    sw_code (*probe_rows)(struct sw_probe_rows *rows, const struct sw_block_probe *probe,
                          sw_block_probe_part part, const sw_block *block, sw_err *err);
    sw_code (*trial_new)(struct sw_trial_block *block, sw_err *err);
    void (*trial_free)(struct sw_trial_block *block);
    sw_code (*trial_lend)(struct sw_trial_block *block, float *const *values, sw_err *err);
    sw_code (*trial_output)(float *y, const struct sw_trial_block *block, sw_block_probe_part part,
                            sw_err *err);
} sw_backend;

/* sw_backend_cuda wants an opened sw_solver (kernels/solver.h) as its places' device. */
extern const sw_backend sw_backend_cpu, sw_backend_cuda;

/* The steps of a place. */
static inline const sw_backend *sw_backend_of(const sw_place *at)
{
    return at->backend ? at->backend : &sw_backend_cpu;
}

/* Room for n elements of a typed pointer: SW_PLACE_TAKE(&rows, &at, n, "rows", err). */
#define SW_PLACE_TAKE(out_ptr, at, n, what, err)                                                   \
    sw_backend_of(at)->take((void **)(out_ptr), (at), (n), (int64_t)sizeof **(out_ptr), (what),    \
                            (err))

/* In memory. */
static inline sw_place sw_place_cpu(int n_threads)
{
    return (sw_place){.backend = &sw_backend_cpu, .n_threads = n_threads};
}

/* The place that the options name. */
static inline sw_place sw_options_place(const sw_quant_options *o)
{
    return (sw_place){.backend = o->backend, .device = o->device, .n_threads = o->n_threads};
}

/* The place, or the one that takes over because its backend does not solve weights of this spec:
 * the one rule by which single steps fall back. */
static inline sw_place sw_place_for(const sw_place *at, const sw_qspec *spec)
{
    sw_place place = *at;

    while (!sw_backend_of(&place)->can_solve(spec))
        place = (sw_place){.backend = place.backend->fallback, .n_threads = at->n_threads};
    return place;
}

#endif
