/* cuda_experts_watch.h - what the experts of a sparse layer read, of streams on a CUDA device. For
 * cuda_observe.c alone; cpu_observe.c does the same in memory.
 */
#ifndef SW_QUANT_BACKEND_CUDA_CUDA_EXPERTS_WATCH_H
#define SW_QUANT_BACKEND_CUDA_CUDA_EXPERTS_WATCH_H

#include "quant/backend/cuda/cuda_watch.h"

/* Sizes of the channels of an expert's two sites. */
typedef struct sw_expert_sizes {
    sw_cuda_sizes in, down;
} sw_expert_sizes;

/* Rows on their way into a sum. A chunk holds few of an expert, and a sum is read and written as
 * a whole for however many. */
typedef struct sw_expert_rows {
    sw_hessian *sum; /* borrowed; NULL: of nothing */
    uint16_t *d_rows; /* [sw_cuda_expert_rows, k_in] */
    int64_t n;
} sw_expert_rows;

/* Of an expert: routed tokens of each half, and every token. */
#define SW_EXPERT_SUMS 5

/* Zero-initialise. */
typedef struct sw_cuda_experts {
    sw_solver *solver;
    sw_site_stats *stats;   /* with sums on the same device */
    uint16_t *d_rounded;    /* [chunk tokens, widest site], or NULL: inputs stay floats */
    sw_expert_sizes *sizes; /* [n_experts], where wanted */
    sw_expert_rows *rows;   /* [n_experts, SW_EXPERT_SUMS] in 0, 1, down 0, 1, all */
    sw_cuda_range range;  /* of what all downs read, where wanted */
    int64_t stretch, all_every;
} sw_cuda_experts;

sw_code sw_cuda_experts_new(sw_cuda_experts *out, const sw_streams *s, sw_site_stats *stats,
                             sw_err *err) SW_MUST_USE;
void sw_cuda_experts_free(sw_cuda_experts *w); /* accepts a zeroed one */
/* Let a tap show the experts of `w`: rows of either half of the text together, and what downs read
 * of all tokens to see_all, where it is wanted. */
void sw_cuda_experts_ask(sw_device_tap *tap, const sw_cuda_experts *w,
                          sw_code (*see_all)(void *self, int64_t expert, const void *d_x,
                                             int64_t n_tokens, int64_t k_in, int64_t stride,
                                             sw_err *err));
/* Rows of an expert, of a chunk that begins with token first_token of the text; and rows of all. */
sw_code sw_cuda_experts_see(sw_cuda_experts *w, sw_site site, int64_t expert, const void *d_x,
                             int64_t n_tokens, int64_t k_in, int64_t stride,
                             const int32_t *token_ids, int64_t first_token,
                             sw_err *err) SW_MUST_USE;
sw_code sw_cuda_experts_all(sw_cuda_experts *w, int64_t expert, const void *d_x,
                             int64_t n_tokens, int64_t k_in, int64_t stride,
                             sw_err *err) SW_MUST_USE;
/* After the last row: what is left of rows, sizes and ranges into the statistics. */
sw_code sw_cuda_experts_fetch(sw_cuda_experts *w, sw_err *err) SW_MUST_USE;

#endif
