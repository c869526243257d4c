/* backend.h - the steps of a run that a backend computes, and the place where it does.
 *
 * A run asks the backend of a place for each step and never asks which backend it is. There are
 * two: the CPU's, which can do everything, and CUDA's, which lacks some of it and names in
 * `fallback` who takes over (sw_place_for, block_job.h). Arrays that a step makes belong to the
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
struct sw_team;
struct sw_factor;
struct sw_row_sample;
struct sw_streams;
struct sw_site_stats;
struct sw_range;
struct sw_kv_range;
struct sw_solve_problem;
struct sw_solve_report;
struct sw_score_job;
struct sw_block_probe;
struct sw_sums;
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
    int64_t rows_together;             /* of a weight: cut at multiples of these, its rows get the
                                          bytes that they get as a whole */
    int n_lanes_most;                  /* lanes of a place, at most; 0: as many as threads */
    bool adds_pieces; /* a sum that holds pieces of the text takes one more as if that were summed
                       * by itself and merged (sums.h) */

    /* The steps, each with its contract. */
#define SW_STEP(name, args) sw_code(*name) args;
#define SW_STEP_OF(type, name, args) type(*name) args;
#include "quant/backend_steps.def"
#undef SW_STEP
#undef SW_STEP_OF

    /* What q's codes mean, as values_dtype, into w, which has room for floats; in memory. */
    void (*decode)(float *w, const sw_qtensor *q, int n_threads);
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
