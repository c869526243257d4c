/* gemm_rows.h - what the rows of the device's kernel table share. */
#ifndef SW_KERNELS_CUDA_GEMM_ROWS_H
#define SW_KERNELS_CUDA_GEMM_ROWS_H

#include "kernels/cuda/cuda_gemm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How the codes of a weight are to be read. */
typedef enum sw_cuda_weights {
    SW_CUDA_W_INT4, SW_CUDA_W_INT8, SW_CUDA_W_E4M3, SW_CUDA_W_NONE
} sw_cuda_weights;

/* What the kernels multiply by them: X as it is, or its codes. */
typedef enum sw_cuda_inputs {
    SW_CUDA_X_FLOAT, SW_CUDA_X_INT8, SW_CUDA_X_E4M3, SW_CUDA_X_E4M3_GROUPS, SW_CUDA_X_NONE
} sw_cuda_inputs;

sw_cuda_weights sw_cuda_weights_of(const sw_tiles *tiles);
sw_cuda_inputs sw_cuda_inputs_of(const sw_act *act);

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

/* SW_E_CUDA with the runtime's words when `e` (a cudaError_t) is not success. */
sw_code sw_cuda_check(int e, const char *what, sw_err *err) SW_MUST_USE;

/* Rows of the table; one set of functions each. */
extern const sw_cuda_tile sw_w4a16_tiles[];
extern const int sw_w4a16_n_tiles;
bool sw_w4a16_can_run(const sw_cuda_gemm *p, int tile);
bool sw_w4a16_suits(const sw_cuda_gemm *p, const sw_cuda_card *card);
void sw_w4a16_plan(sw_cuda_plan *out, const sw_cuda_gemm *p, const sw_cuda_card *card);
size_t sw_w4a16_workspace_bytes(const sw_cuda_gemm *p, const sw_cuda_plan *plan);
sw_code sw_w4a16_run(const sw_cuda_gemm *p, const sw_cuda_plan *plan, void *d_workspace,
                     void *stream, sw_err *err);

extern const sw_cuda_tile sw_narrow4_tiles[];
extern const int sw_narrow4_n_tiles;
bool sw_narrow4_can_run(const sw_cuda_gemm *p, int tile);
bool sw_narrow4_suits(const sw_cuda_gemm *p, const sw_cuda_card *card);
void sw_narrow4_plan(sw_cuda_plan *out, const sw_cuda_gemm *p, const sw_cuda_card *card);
size_t sw_narrow4_workspace_bytes(const sw_cuda_gemm *p, const sw_cuda_plan *plan);
sw_code sw_narrow4_run(const sw_cuda_gemm *p, const sw_cuda_plan *plan, void *d_workspace,
                  void *stream, sw_err *err);

extern const sw_cuda_tile sw_narrow8_tiles[];
extern const int sw_narrow8_n_tiles;
bool sw_narrow8_can_run(const sw_cuda_gemm *p, int tile);
bool sw_narrow8_suits(const sw_cuda_gemm *p, const sw_cuda_card *card);
void sw_narrow8_plan(sw_cuda_plan *out, const sw_cuda_gemm *p, const sw_cuda_card *card);
size_t sw_narrow8_workspace_bytes(const sw_cuda_gemm *p, const sw_cuda_plan *plan);
sw_code sw_narrow8_run(const sw_cuda_gemm *p, const sw_cuda_plan *plan, void *d_workspace,
                  void *stream, sw_err *err);

extern const sw_cuda_tile sw_narrow_large_tiles[];
extern const int sw_narrow_large_n_tiles;
bool sw_narrow_large_can_run(const sw_cuda_gemm *p, int tile);
bool sw_narrow_large_suits(const sw_cuda_gemm *p, const sw_cuda_card *card);
void sw_narrow_large_plan(sw_cuda_plan *out, const sw_cuda_gemm *p, const sw_cuda_card *card);
size_t sw_narrow_large_workspace_bytes(const sw_cuda_gemm *p, const sw_cuda_plan *plan);
sw_code sw_narrow_large_run(const sw_cuda_gemm *p, const sw_cuda_plan *plan, void *d_workspace,
                  void *stream, sw_err *err);

extern const sw_cuda_tile sw_mma_tiles[];
extern const int sw_mma_n_tiles;
bool sw_mma_can_run(const sw_cuda_gemm *p, int tile);
bool sw_mma_suits(const sw_cuda_gemm *p, const sw_cuda_card *card);
void sw_mma_plan(sw_cuda_plan *out, const sw_cuda_gemm *p, const sw_cuda_card *card);
size_t sw_mma_workspace_bytes(const sw_cuda_gemm *p, const sw_cuda_plan *plan);
sw_code sw_mma_run(const sw_cuda_gemm *p, const sw_cuda_plan *plan, void *d_workspace,
                   void *stream, sw_err *err);

extern const sw_cuda_tile sw_a8_tiles[];
extern const int sw_a8_n_tiles;
bool sw_a8_can_run(const sw_cuda_gemm *p, int tile);
bool sw_a8_suits(const sw_cuda_gemm *p, const sw_cuda_card *card);
void sw_a8_plan(sw_cuda_plan *out, const sw_cuda_gemm *p, const sw_cuda_card *card);
size_t sw_a8_workspace_bytes(const sw_cuda_gemm *p, const sw_cuda_plan *plan);
sw_code sw_a8_run(const sw_cuda_gemm *p, const sw_cuda_plan *plan, void *d_workspace,
                  void *stream, sw_err *err);

extern const sw_cuda_tile sw_a8_pairs_tiles[];
extern const int sw_a8_pairs_n_tiles;
bool sw_a8_pairs_can_run(const sw_cuda_gemm *p, int tile);
bool sw_a8_pairs_suits(const sw_cuda_gemm *p, const sw_cuda_card *card);
void sw_a8_pairs_plan(sw_cuda_plan *out, const sw_cuda_gemm *p, const sw_cuda_card *card);
size_t sw_a8_pairs_workspace_bytes(const sw_cuda_gemm *p, const sw_cuda_plan *plan);
sw_code sw_a8_pairs_run(const sw_cuda_gemm *p, const sw_cuda_plan *plan, void *d_workspace,
                        void *stream, sw_err *err);

extern const sw_cuda_tile sw_lt_rows_tiles[];
extern const int sw_lt_rows_n_tiles;
bool sw_lt_rows_can_run(const sw_cuda_gemm *p, int tile);
bool sw_lt_rows_suits(const sw_cuda_gemm *p, const sw_cuda_card *card);
void sw_lt_rows_plan(sw_cuda_plan *out, const sw_cuda_gemm *p, const sw_cuda_card *card);
size_t sw_lt_rows_workspace_bytes(const sw_cuda_gemm *p, const sw_cuda_plan *plan);
sw_code sw_lt_rows_run(const sw_cuda_gemm *p, const sw_cuda_plan *plan, void *d_workspace,
                       void *stream, sw_err *err);

extern const sw_cuda_tile sw_a8_large_tiles[];
extern const int sw_a8_large_n_tiles;
bool sw_a8_large_can_run(const sw_cuda_gemm *p, int tile);
bool sw_a8_large_suits(const sw_cuda_gemm *p, const sw_cuda_card *card);
void sw_a8_large_plan(sw_cuda_plan *out, const sw_cuda_gemm *p, const sw_cuda_card *card);
size_t sw_a8_large_workspace_bytes(const sw_cuda_gemm *p, const sw_cuda_plan *plan);
sw_code sw_a8_large_run(const sw_cuda_gemm *p, const sw_cuda_plan *plan, void *d_workspace,
                        void *stream, sw_err *err);

#ifdef __cplusplus
}
#endif
#endif
