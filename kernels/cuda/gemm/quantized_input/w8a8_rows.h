/* w8a8_rows.h - what the rows of the table that take 8-bit inputs share. */
#ifndef SW_KERNELS_CUDA_GEMM_QUANTIZED_INPUT_W8A8_ROWS_H
#define SW_KERNELS_CUDA_GEMM_QUANTIZED_INPUT_W8A8_ROWS_H

#include "kernels/cuda/gemm/gemm_rows.h"
#include "kernels/cuda/gemm/quantized_input/w8a8_args.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SW_W8A8_STAGE_K 128
#define SW_W8A8_INTEGER_K_MAX 131072 /* sums of 128 * 127 that fit 32 bits */

w8a8_kind sw_w8a8_kind_of(const sw_cuda_gemm *p); /* KIND_COUNT: none that these kernels take */
/* The same, with int4 without zero points of its own as a kind apart. */
w8a8_kind sw_w8a8_instance_of(const sw_cuda_gemm *p);
bool sw_w8a8_is_grouped(const sw_cuda_gemm *p);   /* scales, of W or X, change along k */
/* What changes along k; blocks are known as such where codes are in columns. */
w8a8_mode sw_w8a8_mode_of(const sw_cuda_gemm *p);
w8a8_args sw_w8a8_args_of(const sw_cuda_gemm *p, int split);
/* Raise the kernel's shared memory and launch it. */
sw_code sw_w8a8_launch(const sw_cuda_gemm *p, const w8a8_kernel *kernel, const char *name,
                       int n_blocks, int cluster, bool overlap, const w8a8_args *args, int n_tokens,
                       void *stream, sw_err *err) SW_MUST_USE;
/* What the copy engine brings: X in boxes of so many tokens, weights and scales of so many tiles.
 */
sw_code sw_w8a8_map(w8a8_maps *maps, const sw_cuda_gemm *p, int box_tokens, int box_tiles,
                    sw_err *err) SW_MUST_USE;
sw_code sw_w8a8_map_x(CUtensorMap *map, const sw_cuda_gemm *p, int n_tokens,
                      sw_err *err) SW_MUST_USE; /* X alone */
sw_code sw_w8a8_map_weights(w8a8_maps *maps, const sw_cuda_gemm *p, int box_tiles,
                            bool has_records, sw_err *err) SW_MUST_USE; /* all but X */

int sw_w8a8_two_ctas_shared(int tile); /* by pairs: SW_A8P_X and so on */
bool sw_w8a8_two_ctas_has_rows(int tile); /* of tokens, for scales of blocks alone */

/* Of a block that is shared: with fewer, meeting costs what it saves. */
#define SW_W8A8_SHARED_STAGES_MIN 8

typedef struct w8a8_rounds {
    int64_t n_whole;    /* blocks that a cluster does by itself */
    int64_t n_clusters; /* of the grid */
} w8a8_rounds;

/* How the clusters of the persistent kernel go through blocks of Y: in rounds of one a cluster.
 * Where the last round has a block for half of the clusters at most, two take a block together:
 * each half of its channels, and each of a cluster's two CTAs half of the n_stages along k. So an
 * odd number of these is not shared; 0: none may be. */
w8a8_rounds sw_w8a8_rounds_of(int64_t n_blocks, int64_t n_clusters, int64_t n_stages);
/* Blocks of Y side by side of the persistent kernel, each of a cluster of so many CTAs and 128
 * channels a CTA, and how many clusters there are for them on a device of so many
 * multiprocessors. Stages that are shared: as above. */
typedef struct w8a8_blocks {
    int cluster;
    int64_t by_channel, by_token, n_clusters, shared_stages;
} w8a8_blocks;

w8a8_blocks sw_w8a8_persistent_blocks(const sw_cuda_gemm *p, int n_sms);
/* Raise the kernel's shared memory and launch it with these parameters. */
sw_code sw_w8a8_start(const w8a8_kernel *kernel, const char *name, int n_ctas, int cluster,
                      bool overlaps, void **params, void *stream, sw_err *err) SW_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
