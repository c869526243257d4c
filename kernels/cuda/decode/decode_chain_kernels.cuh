/* decode_chain_kernels.cuh - the kernels of chains by kind of product. */
#ifndef SW_KERNELS_CUDA_DECODE_DECODE_CHAIN_KERNELS_CUH
#define SW_KERNELS_CUDA_DECODE_DECODE_CHAIN_KERNELS_CUH

#include "kernels/cuda/decode/decode_chain_kernel.cuh"

struct chain_row {
    int (*product_bytes)(int n_units);
    sw_code (*start)(const chain_steps *c, int n_ctas, int shared_bytes, sw_launch how,
                     sw_err *err);
};

/* By one_kind; where there is none `start` is NULL. */
extern const chain_row sw_decode_chain_rows[ONE_COUNT];

#endif
