/* w4a16_persistent_kernels.h - the compiled kernels of int4 weights and many tokens. */
#ifndef SW_KERNELS_CUDA_GEMM_WEIGHT_ONLY_PERSISTENT_W4A16_PERSISTENT_KERNELS_H
#define SW_KERNELS_CUDA_GEMM_WEIGHT_ONLY_PERSISTENT_W4A16_PERSISTENT_KERNELS_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct nwl_kernel {
    const void *entry; /* NULL: not compiled */
    int shared_bytes, n_threads;
    int park_tokens;   /* of a box of Y */
} nwl_kernel;

/* tile: a row of w4a16_persistent_tiles.def; cut: 0, 1, 2 for groups of at least 128, of 64, of 32.
 */
const nwl_kernel *sw_w4a16_persistent_bf16(int tile, int cut, bool has_zeros);
const nwl_kernel *sw_w4a16_persistent_f16(int tile, int cut, bool has_zeros);

#ifdef __cplusplus
}
#endif
#endif
