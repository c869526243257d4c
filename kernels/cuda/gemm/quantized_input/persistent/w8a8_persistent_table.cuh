/* w8a8_persistent_table.cuh - an entry of a table of the kernels for many tokens. */
#ifndef SW_KERNELS_CUDA_GEMM_QUANTIZED_INPUT_PERSISTENT_W8A8_PERSISTENT_TABLE_CUH
#define SW_KERNELS_CUDA_GEMM_QUANTIZED_INPUT_PERSISTENT_W8A8_PERSISTENT_TABLE_CUH

#include "kernels/cuda/gemm/quantized_input/persistent/w8a8_persistent.cuh"

#define SW_A8L_ENTRY(KIND, MODE, STAGES)                                                           \
    {                                                                                              \
        (const void *)swk_w8a8_persistent_sm90<KIND, MODE, STAGES>,                                \
            a8l_shared_bytes<KIND, MODE, STAGES>(), SW_A8L_THREADS                                 \
    }

#endif
