/* routed_kernels.h - the compiled kernels of routed experts, and what stands around them. */
#ifndef SW_KERNELS_CUDA_EXPERTS_ROUTED_KERNELS_H
#define SW_KERNELS_CUDA_EXPERTS_ROUTED_KERNELS_H

#include "kernels/cuda/experts/routed_args.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rt_kernel {
    int rows;              /* of a block */
    const void *entry[2];  /* gates and ups; downs */
    int shared_bytes, n_threads;
    int box_rows;          /* of a box of inputs */
    int per_sm;            /* CTAs of a multiprocessor */
    int partial_floats;    /* of a partial sum of a CTA; 0: it has none */
} rt_kernel;

/* By rows of a block; NULL: none. */
const rt_kernel *sw_routed_few(int rows);
const rt_kernel *sw_routed_many(int rows);
const rt_kernel *sw_routed_bytes(int rows, bool is_grouped);

/* Sort the pairs and make the lists; with a->x every CTA does so for itself, and gathers its part
 * of the inputs, else one does. */
sw_code sw_routed_sort(const rt_sort_args *a, int n_ctas, sw_launch how, sw_err *err) SW_MUST_USE;
/* x_sorted = the rows of x that the lists name, by all multiprocessors. */
sw_code sw_routed_gather(const rt_sort_args *a, int n_ctas, sw_launch how,
                         sw_err *err) SW_MUST_USE;
/* to [n_tokens, width] = the sum of the top_k rows of each token, in their order. */
sw_code sw_routed_sum(sw_bf16_rows to, bool adds, const uint16_t *rows, int64_t n_tokens,
                      int top_k, int64_t width, sw_launch how, sw_err *err) SW_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
