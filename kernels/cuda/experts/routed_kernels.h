/* routed_kernels.h - the compiled kernels of routed experts, and what stands around them. */
#ifndef SW_KERNELS_CUDA_EXPERTS_ROUTED_KERNELS_H
#define SW_KERNELS_CUDA_EXPERTS_ROUTED_KERNELS_H

#include "kernels/cuda/experts/routed_args.h"
#include "kernels/cuda/gemm/quantized_input/w8a8_args.h"

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
    int cluster;           /* CTAs that take units of the same rows side by side; 0: one */
    int even_rows;         /* what the rows of a block are multiples of; 0: see routed_run.cu */
} rt_kernel;

/* By rows of a block and, of 4 bits, inputs of a scale: 0 for int4 in groups of 128 or more, else
 * E2M1 with 32 or 16. NULL: none. */
const rt_kernel *sw_routed_few(int rows, int scale_k);
const rt_kernel *sw_routed_many(int rows, int scale_k);
/* Of inputs of bytes: weights of int8; of E4M3; of int4. */
const rt_kernel *sw_routed_bytes_int8(int rows, w8a8_mode mode, bool in_columns);
const rt_kernel *sw_routed_bytes_e4m3(int rows, w8a8_mode mode, bool in_columns);
const rt_kernel *sw_routed_bytes_int4_e4m3(int rows, w8a8_mode mode, bool in_columns);
/* Of more than 128 rows, codes in columns: int8; E4M3, of scales of channels or of blocks. */
const rt_kernel *sw_routed_tall_int8(int rows, w8a8_mode mode);
const rt_kernel *sw_routed_tall_e4m3(int rows, w8a8_mode mode);

/* Sort the pairs, make the lists and gather the inputs. */
sw_code sw_routed_sort(const rt_sort_args *a, sw_launch how, sw_err *err) SW_MUST_USE;
/* to [n_tokens, width] = the sum of the top_k rows of each token, in their order. */
sw_code sw_routed_sum(sw_bf16_rows to, bool adds, const uint16_t *rows, int64_t n_tokens,
                      int top_k, int64_t width, sw_launch how, sw_err *err) SW_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
