/* window.h - a weight in windows of neighbouring output channels, so that one passes from dialect
 * to dialect through the cache instead of through memory.
 *
 * Every dialect stores a window of 256 channels (a multiple of any tile, word and block there is)
 * as a smaller weight of its own: the tensors of the window are cuts along one dimension of those
 * of the whole. Which dimension that is follows from what the dialect declares for both, so no
 * dialect knows of windows.
 */
#ifndef SW_FORMATS_CHECKPOINT_WINDOW_H
#define SW_FORMATS_CHECKPOINT_WINDOW_H

#include "formats/dialect/dialect.h"

#define SW_WINDOW_ROWS 256

/* Where the bytes of a window lie in a tensor of the whole. */
typedef struct sw_window_cut {
    bool is_whole; /* every window has all of the tensor: a g_idx, one scale for all */
    bool is_shape; /* the same, but it says how many channels there are */
    int64_t n_runs;
    uint64_t offset_bytes, run_bytes, step_bytes; /* the first run; each; from one to the next */
} sw_window_cut;

/* Windows that a weight goes in; 0: it has to go whole. */
int64_t sw_window_count(const sw_dialect *dialect, const sw_qspec *spec, int64_t n_out,
                        int64_t k_in);
static inline int64_t sw_window_rows(int64_t window, int64_t n_out)
{
    int64_t left = n_out - window * SW_WINDOW_ROWS;

    return left < SW_WINDOW_ROWS ? left : SW_WINDOW_ROWS;
}

/* The cuts of one window, in declare's order, and what it declares itself. Returns how many.
 * The weight must be one that sw_window_count knows. */
int sw_window_cuts(sw_window_cut cuts[SW_DIALECT_TENSORS_MAX],
                   sw_part parts[SW_DIALECT_TENSORS_MAX], const sw_dialect *dialect,
                   const sw_qspec *spec, int64_t n_out, int64_t k_in, int64_t window);

/* From the tensor of the whole into that of a window, and back. */
void sw_window_gather(void *dst, const void *whole, const sw_window_cut *cut);
void sw_window_scatter(void *whole, const void *src, const sw_window_cut *cut);
static inline uint64_t sw_window_bytes(const sw_window_cut *cut)
{
    return (uint64_t)cut->n_runs * cut->run_bytes;
}

#endif
