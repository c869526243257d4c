/* w4a16_kernels.h - the compiled W4A16 kernels, by tile and by how a stage is cut into groups. */
#ifndef SW_KERNELS_CUDA_W4A16_KERNELS_H
#define SW_KERNELS_CUDA_W4A16_KERNELS_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct w4_kernel {
    const void *entry;
    int shared_bytes, n_threads;
} w4_kernel;

/* tile: a row of w4a16_tiles.def; cut: 0, 1, 2 for 1, 2, 4 groups in a stage of 128 inputs. */
const w4_kernel *sw_w4a16_kernel_bf16(int tile, int cut, bool has_zeros);
const w4_kernel *sw_w4a16_kernel_f16(int tile, int cut, bool has_zeros);

#ifdef __cplusplus
}
#endif
#endif
