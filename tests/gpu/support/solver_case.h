/* solver_case.h - activations and both sides' factors, for tests of the solver. */
#ifndef SW_TESTS_GPU_SUPPORT_SOLVER_CASE_H
#define SW_TESTS_GPU_SUPPORT_SOLVER_CASE_H

#include "kernels/solver.h"
#include "quant/method/algo.h"

typedef struct solver_case {
    sw_device *gpu;
    sw_solver *solver;
    int64_t k_in, n_tokens;
    float *x;            /* [n_tokens, k_in], every value a BF16 */
    uint16_t *d_x;       /* the same on the device */
    sw_hessian hess;     /* on the host, finished */
    sw_factor factor;
    sw_device_factor device;
} solver_case;

/* The first device and a solver on it, for a group of tests; 0, or the test has failed. */
int solver_pair_open(sw_device **gpu, sw_solver **solver);
/* Nothing of any test may be left on the device. */
int solver_pair_close(sw_device *gpu, sw_solver *solver);

struct CMUnitTest;

/* What main returns: of n tests those whose names match `pattern` (NULL: all), with the pair in
 * *gpu and *solver; 77 where there is no device. */
int solver_tests_run(const struct CMUnitTest *tests, size_t n, const char *pattern,
                     sw_device **gpu, sw_solver **solver);

/* Activations whose channels differ widely in size and depend on each other; channel 3 is dead. */
void solver_case_new(solver_case *c, sw_device *gpu, sw_solver *solver, int64_t k_in,
                     int64_t n_tokens, uint64_t seed);
/* Factorize the host's Hessian on both sides. */
void solver_case_factor(solver_case *c, sw_order order, int64_t group_elems);
void solver_case_free(solver_case *c);

/* n doubles of the device; the caller frees them. */
double *solver_fetch(sw_device *gpu, const double *d, int64_t n);
/* Of the difference, relative to what is wanted, in root mean square;
 * infinite where one is not finite. */
double solver_distance(const double *have, const double *want, int64_t n);

#endif
