/* gemm_rows.h - what the rows of the device's kernel table share. */
#ifndef SW_KERNELS_CUDA_GEMM_GEMM_ROWS_H
#define SW_KERNELS_CUDA_GEMM_GEMM_ROWS_H

#include <string.h>

#include "kernels/cuda_gemm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How the codes of a weight are to be read. */
typedef enum sw_cuda_weights {
    SW_CUDA_W_INT4,
    SW_CUDA_W_INT8,
    SW_CUDA_W_E4M3,
    SW_CUDA_W_INT3, /* in containers of their own size */
    SW_CUDA_W_INT2,
    SW_CUDA_W_NONE
} sw_cuda_weights;

/* What the kernels multiply by them: X as it is, or its codes. */
typedef enum sw_cuda_inputs {
    SW_CUDA_X_FLOAT,
    SW_CUDA_X_INT8,
    SW_CUDA_X_E4M3,
    SW_CUDA_X_E4M3_GROUPS,
    SW_CUDA_X_NONE
} sw_cuda_inputs;

sw_cuda_weights sw_cuda_weights_of(const sw_tiles *tiles);
sw_cuda_inputs sw_cuda_inputs_of(const sw_act *act);

/* Does a block of Y of 128 channels, or of the first or last 64 of them, have one scale of W for
 * each 128 inputs? */
static inline bool sw_cuda_has_blocks(const sw_tiles *tiles)
{
    const sw_qspec *spec = &tiles->spec;

    return spec->group_elems == 128 &&
           (spec->scale_rows == SW_ROWS_ALL ||
            (spec->scale_rows > 0 && spec->scale_rows % 128 == 0));
}

static inline int64_t sw_cuda_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
/* Rows of a box of X: as many as a block has tokens, or as there are. */
static inline int sw_cuda_x_rows(const sw_cuda_gemm *p, const sw_cuda_tile *tile)
{
    return p->m < tile->n_tokens ? (int)p->m : tile->n_tokens;
}
/* Bytes of an array in a workspace, up to where the next one may begin. */
static inline size_t sw_cuda_line_up(int64_t n_bytes)
{
    return ((size_t)n_bytes + 255) & ~(size_t)255;
}

/* Measured best for a shape and up to m_max tokens, from the row before on. */
typedef struct sw_cuda_measured {
    int64_t k, n, m_max;
    const char *tile;
    int split;
} sw_cuda_measured;

/* The tile of that name among those of a row; the last one where none has it. */
static inline int sw_cuda_tile_named(const sw_cuda_tile *tiles, int n_tiles, const char *name)
{
    int tile = 0;

    while (tile + 1 < n_tiles && strcmp(tiles[tile].name, name) != 0) tile++;
    return tile;
}

/* SW_E_CUDA with the runtime's words when `e` (a cudaError_t) is not success. */
sw_code sw_cuda_check(int e, const char *what, sw_err *err) SW_MUST_USE;

/* Rows of the table; one set of functions each, called by the row's prefix. */
#define SW_CUDA_KERNEL(name, prefix, sm_min, sm_max, ops)                                          \
    extern const sw_cuda_tile prefix##_tiles[];                                                    \
    extern const int prefix##_n_tiles;                                                             \
    bool prefix##_can_run(const sw_cuda_gemm *p, int tile);                                        \
    bool prefix##_suits(const sw_cuda_gemm *p, const sw_cuda_device *device,                       \
                        sw_cuda_counted *counted);                                                 \
    void prefix##_plan(sw_cuda_plan *out, const sw_cuda_gemm *p, const sw_cuda_device *device,     \
                       sw_cuda_counted *counted);                                                  \
    size_t prefix##_workspace_bytes(const sw_cuda_gemm *p, const sw_cuda_plan *plan);              \
    sw_code prefix##_run(const sw_cuda_gemm *p, const sw_cuda_plan *plan, void *d_workspace,       \
                         void *stream, sw_err *err);
#include "kernels/cuda_kernels.def"
#undef SW_CUDA_KERNEL

#ifdef __cplusplus
}
#endif
#endif
