/* cuda_gemm.h - matrix products on Swage tiles on the device: plan, workspace, run on the caller's
 * stream.
 *
 * Y[m, n] = sum_k X[m, k] * W[n, k], X and Y both BF16 or both F16 on the device, W in tiles whose
 * arrays lie on the device too. With `act` X is quantized first, as formats/num/act.h defines, and
 * its codes meet those of W in integer or small-float products:
 *
 *   weights              no act        int8 act, TENSOR or TOKEN    E4M3 act, TENSOR or TOKEN
 *   INT, 4-bit tiles     W4A16         W4A8                         W4A8 (fp8)
 *   INT, 8-bit tiles     W8A16         W8A8                         -
 *   E4M3, 8-bit tiles    W8A16 (fp8)   -                            FP8; and GROUP of 128 inputs
 *
 * Groups of 32, 64 and multiples of 128 inputs or one a channel; scales in F16, BF16 or F32. Codes
 * of 2 and 3 bits come with zero points, symmetric or not.
 * Sums are in fp32, or in int32 inside a group, in an order that depends on the plan alone: the
 * same plan gives the same bytes. Nothing here allocates or waits: calls may be captured in a
 * graph, and calls on different streams run side by side if their workspaces differ.
 */
#ifndef SW_KERNELS_CUDA_GEMM_H
#define SW_KERNELS_CUDA_GEMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/status.h"
#include "formats/pack/tiles.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sw_cuda_card {
    int sm;            /* 80, 89, 90, ...: compute capability */
    int n_sms;
} sw_cuda_card;

/* What the runtime says about a device. SW_E_CUDA: what it said instead. */
sw_code sw_cuda_card_query(sw_cuda_card *out, int device, sw_err *err) SW_MUST_USE;

/* X as the integer and small-float products read it; sw_cuda_quantize makes it. One serves all
 * weights that share the input. */
typedef struct sw_cuda_codes {
    uint8_t *d_codes;  /* [m, sw_cuda_codes_stride(k_in)], in the order of tiles (see there) */
    float *d_scales;   /* [m], or of GROUP [n_groups, m]; what a code is to be multiplied by */
    int32_t *d_sums;   /* [m] sums of int8 codes, for weights with zero points */
} sw_cuda_codes;

typedef struct sw_cuda_gemm {
    int64_t m;
    const void *d_x;   /* [m, k_in], row stride x_stride elements */
    int64_t x_stride;
    void *d_y;         /* [m, n_out], row stride y_stride elements */
    int64_t y_stride;
    sw_dtype dtype;    /* of X and Y: BF16 or F16 */
    sw_tiles tiles;    /* codes, scales and zeros are device pointers */
    sw_act act;        /* usually tiles.spec.act; zeroed: X as it is */
    /* X quantized with `act` before, when its d_codes is set: d_x is not read then. Otherwise run
     * quantizes d_x into the workspace. */
    sw_cuda_codes x_codes;
    /* The weights were not written by the kernel before this one in the stream, so it may start
     * fetching them while that one still runs (programmatic dependent launch). */
    bool may_overlap;
} sw_cuda_gemm;

typedef struct sw_cuda_plan {
    int kernel;        /* index into sw_cuda_kernels */
    int tile;          /* index into its tiles */
    int split;         /* CTAs of a cluster that share k, 1..8 */
    sw_cuda_card card; /* that the plan is for */
    bool overlap;      /* starting before the kernel ahead has ended pays, if allowed; never
                          before sm_90 */
    bool starts_early; /* pays before X has been quantized too: where a CTA fills a
                          multiprocessor, so that it can only follow one that has ended */
} sw_cuda_plan;

/* The plan for a card; pure, needs no device. `kernel` (a name of sw_cuda_kernels, or NULL) is
 * taken when it can run the problem.
 * SW_E_UNSUPPORTED: a dtype, format, group size or card that no kernel here has. */
sw_code sw_cuda_gemm_plan(sw_cuda_plan *out, const sw_cuda_gemm *p, const sw_cuda_card *card,
                          const char *kernel, sw_err *err) SW_MUST_USE;
/* Device bytes that run needs, aligned to 256; what they hold does not matter. */
size_t sw_cuda_gemm_workspace_bytes(const sw_cuda_gemm *p, const sw_cuda_plan *plan);
/* Enqueue on `stream` (a cudaStream_t). SW_E_CUDA: what the runtime said. m = 0 does nothing. */
sw_code sw_cuda_gemm_run(const sw_cuda_gemm *p, const sw_cuda_plan *plan, void *d_workspace,
                         void *stream, sw_err *err) SW_MUST_USE;

/* ---- quantized activations ---- */

/* Bytes of a row of codes: k_in rounded up to 128, the rest zeros. Inputs stand in tile order:
 * byte 16 s + 4 c + i is input 16 s + {2c, 2c + 8, 2c + 1, 2c + 9}[i]. */
static inline int64_t sw_cuda_codes_stride(int64_t k_in) { return (k_in + 127) / 128 * 128; }
/* Device bytes of all three arrays, each aligned to 256; and where they lie in such a block. */
size_t sw_cuda_codes_bytes(int64_t m, int64_t k_in, const sw_act *act);
sw_cuda_codes sw_cuda_codes_at(void *d_block, int64_t m, int64_t k_in, const sw_act *act);
/* Enqueue: codes, scales and sums of X [m, k_in] as sw_act_quantize defines them, bit for bit; a
 * token that holds a NaN, or an infinity that its scale would follow, has the scale NaN.
 * may_overlap: start early beside the kernel ahead (cards from sm_90 on only); starts_next: let the
 * kernel behind start at once.
 * SW_E_UNSUPPORTED: other activations than in the table above. */
sw_code sw_cuda_quantize(const sw_cuda_codes *out, const void *d_x, int64_t x_stride,
                         sw_dtype dtype, int64_t m, int64_t k_in, const sw_act *act,
                         float input_scale, bool may_overlap, bool starts_next, void *stream,
                         sw_err *err) SW_MUST_USE;

/* ---- the table of kernels, for tests and benches ---- */

typedef struct sw_cuda_tile {
    const char *name;
    int n_tokens, n_channels; /* of a CTA */
    int n_stages, per_sm;
    bool is_scaled; /* weights are scaled before the product: scales must be of the type of X */
} sw_cuda_tile;

typedef struct sw_cuda_kernel {
    const char *name;
    int sm_min, sm_max;        /* cards that it runs on */
    const sw_cuda_tile *tiles;
    const int *n_tiles;
    bool (*can_run)(const sw_cuda_gemm *p, int tile);
    /* Is it the best known choice? The first row that says so is taken, else the last that can. */
    bool (*suits)(const sw_cuda_gemm *p, const sw_cuda_card *card);
    void (*plan)(sw_cuda_plan *out, const sw_cuda_gemm *p, const sw_cuda_card *card);
    size_t (*workspace_bytes)(const sw_cuda_gemm *p, const sw_cuda_plan *plan);
    sw_code (*run)(const sw_cuda_gemm *p, const sw_cuda_plan *plan, void *d_workspace,
                   void *stream, sw_err *err);
} sw_cuda_kernel;

extern const sw_cuda_kernel sw_cuda_kernels[];
extern const int sw_cuda_n_kernels;
int sw_cuda_kernel_find(const char *name); /* -1 when unknown */

#ifdef __cplusplus
}
#endif
#endif
