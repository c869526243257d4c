/* w8a8_rounds.h - how the clusters of a persistent kernel go through the blocks of Y. */
#ifndef SW_KERNELS_CUDA_GEMM_QUANTIZED_INPUT_PERSISTENT_W8A8_ROUNDS_H
#define SW_KERNELS_CUDA_GEMM_QUANTIZED_INPUT_PERSISTENT_W8A8_ROUNDS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SW_W8A8_SHARED_STAGES_MIN 8 /* of a block that is shared: below, meeting costs what it saves */

typedef struct w8a8_rounds {
    int64_t n_whole;    /* blocks that a cluster does by itself */
    int64_t n_clusters; /* of the grid */
} w8a8_rounds;

/* Blocks come in rounds of one a cluster. Where the last round has a block for half of the clusters
 * at most, two take a block together: each half of its channels, and each of a cluster's two CTAs
 * half of the n_stages along k. So an odd number of these is not shared; 0: none may be. */
w8a8_rounds sw_w8a8_rounds_of(int64_t n_blocks, int64_t n_clusters, int64_t n_stages);

#ifdef __cplusplus
}
#endif
#endif
