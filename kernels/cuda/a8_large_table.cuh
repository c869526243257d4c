/* a8_large_table.cuh - an entry of a table of the kernels for many tokens. */
#ifndef SW_KERNELS_CUDA_A8_LARGE_TABLE_CUH
#define SW_KERNELS_CUDA_A8_LARGE_TABLE_CUH

#include "kernels/cuda/a8_large.cuh"

#define SW_A8L_ENTRY(KIND, MODE, STAGES)                  \
    {(const void *)swk_a8_large_sm90<KIND, MODE, STAGES>, \
     a8l_shared_bytes<KIND, MODE, STAGES>(), SW_A8L_THREADS}

#endif
