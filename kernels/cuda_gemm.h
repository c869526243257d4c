/* cuda_gemm.h - matrix products on Swage tiles on the device: plan, workspace, run on the caller's
 * stream.
 *
 * Y[m, n] = sum_k X[m, k] * W[n, k], X and Y both BF16 or both F16 on the device, W in tiles whose
 * arrays lie on the device too. With `act` X is quantized first, as formats/num/act.h defines, and
 * its codes meet those of W in integer or small-float products:
 *
 *   weights              no act        int8 act, TENSOR or TOKEN    E4M3 act, TENSOR or TOKEN
 *   INT, 2- and 3-bit    W2A16, W3A16  -                            -
 *   INT, 4-bit tiles     W4A16         W4A8                         W4A8 (fp8)
 *   INT, 8-bit tiles     W8A16         W8A8                         -
 *   E4M3, 8-bit tiles    W8A16 (fp8)   -                            FP8; and GROUP of 128 inputs
 *
 * Groups of 32, 64 and multiples of 128 inputs or one a channel; scales in F16, BF16 or F32. Codes
 * of 2 and 3 bits are read as they are stored on sm_90, with scales in F16 or BF16; in tiles of 4
 * bits they come with zero points, symmetric or not. Symmetric W4A16 in BF16 with groups from 128
 * on is quicker where tiles.has_usual_scales; the plan is the same, and so are the bytes, but for
 * sums below 2^-78.
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

typedef struct sw_cuda_device {
    int sm;            /* 80, 89, 90, ...: compute capability */
    int n_sms;
} sw_cuda_device;

/* *out = what the runtime says of device number `device`. SW_E_CUDA: its error. */
sw_code sw_cuda_device_query(sw_cuda_device *out, int device, sw_err *err) SW_MUST_USE;

/* X quantized, as the integer and small-float products read it; written by sw_cuda_quantize. One
 * serves all weights that share the input. */
typedef struct sw_cuda_codes {
    uint8_t *d_codes;  /* [m, sw_cuda_codes_stride(k_in)], see sw_cuda_codes_stride */
    float *d_scales;   /* [m], with GROUP [n_groups, m]; value of a code = code * scale */
    int32_t *d_sums;   /* [m] sums of int8 codes, for weights with zero points */
} sw_cuda_codes;

/* Products of gates and their ups, for up to some ten tokens: the first half of the channels are
 * gates, Y is [m, n_out / 2] and has act(gate) * up, each of both rounded to the dtype first. */
typedef struct sw_cuda_glu {
    bool is_wanted;    /* only where sw_cuda_gemm_takes_glu says so */
    int act;           /* an sw_mlp_act, but not the square of relu */
    float limit;       /* of those that clamp */
} sw_cuda_glu;

typedef struct sw_cuda_gemm {
    int64_t m;
    const void *d_x;   /* [m, k_in], row stride x_stride elements */
    int64_t x_stride;
    void *d_y;         /* [m, n_out], row stride y_stride elements */
    int64_t y_stride;
    sw_dtype dtype;    /* of X and Y: BF16 or F16 */
    sw_tiles tiles;    /* codes, scales and zeros are device pointers */
    sw_act act;        /* usually tiles.spec.act; zeroed: X is not quantized */
    /* If d_codes is set: X, already quantized with `act`; d_x is not read. Otherwise
     * sw_cuda_gemm_run quantizes d_x into the workspace. */
    sw_cuda_codes x_codes;
    sw_cuda_glu glu;
    /* The previous kernel of the stream does not write the weights, so that this one may start
     * reading them while that one still runs (programmatic dependent launch). */
    bool may_overlap;
} sw_cuda_gemm;

typedef struct sw_cuda_plan {
    int kernel;        /* index into sw_cuda_kernels */
    int tile;          /* index into its tiles */
    int split;         /* CTAs of a cluster that share k, 1..8 */
    sw_cuda_device device; /* for which the plan was made */
    bool overlap;      /* start before the previous kernel has ended, if may_overlap allows it;
                          never before sm_90 */
    bool starts_early; /* start before the kernel that quantizes X has ended */
    /* The last channels by a second launch, which begins where CTAs of the first end: other tiles
     * may fill the device where whole rounds of the first's leave few blocks. */
    struct sw_cuda_rest {
        int64_t from;            /* the first of them, a multiple of 64, of 128 for scales of
                                    blocks; 0: there are none */
        int kernel, tile, split; /* as above */
    } rest;
} sw_cuda_plan;

/* Choose kernel, tile and split for a problem. A pure function: needs no device. `kernel` is a name
 * of sw_cuda_kernels that is used if it can run the problem, or NULL.
 * SW_E_UNSUPPORTED: no kernel runs this dtype, format, group size or device. */
sw_code sw_cuda_gemm_plan(sw_cuda_plan *out, const sw_cuda_gemm *p, const sw_cuda_device *device,
                          const char *kernel, sw_err *err) SW_MUST_USE;
/* Whether the kernel that was chosen for p can take the activation along that p->glu names. */
bool sw_cuda_gemm_takes_glu(const sw_cuda_gemm *p, const sw_cuda_plan *plan);
/* Bytes of workspace in device memory that sw_cuda_gemm_run needs, aligned to 256; any content. */
size_t sw_cuda_gemm_workspace_bytes(const sw_cuda_gemm *p, const sw_cuda_plan *plan);
/* Enqueue the product on `stream`, a cudaStream_t. m = 0 does nothing. SW_E_CUDA: the launch
 * failed. */
sw_code sw_cuda_gemm_run(const sw_cuda_gemm *p, const sw_cuda_plan *plan, void *d_workspace,
                         void *stream, sw_err *err) SW_MUST_USE;

/* ---- quantized activations ---- */

/* Bytes of a row of codes: k_in rounded up to 128, the rest zeros. Inputs stand in tile order:
 * byte 16 s + 4 c + i is input 16 s + {2c, 2c + 8, 2c + 1, 2c + 9}[i]. */
static inline int64_t sw_cuda_codes_stride(int64_t k_in) { return (k_in + 127) / 128 * 128; }
/* Bytes of device memory for all three arrays, each aligned to 256; the arrays in such a block. */
size_t sw_cuda_codes_bytes(int64_t m, int64_t k_in, const sw_act *act);
sw_cuda_codes sw_cuda_codes_at(void *d_block, int64_t m, int64_t k_in, const sw_act *act);
/* Enqueue: codes, scales and sums of X [m, k_in], bit for bit as sw_act_quantize defines them; a
 * token that holds a NaN, or an infinity that decides its scale, gets the scale NaN.
 * may_overlap: start while the previous kernel still runs (from sm_90 on); starts_next: let the
 * next kernel start at once. SW_E_UNSUPPORTED: `act` is not in the table above. */
sw_code sw_cuda_quantize(const sw_cuda_codes *out, const void *d_x, int64_t x_stride,
                         sw_dtype dtype, int64_t m, int64_t k_in, const sw_act *act,
                         float input_scale, bool may_overlap, bool starts_next, void *stream,
                         sw_err *err) SW_MUST_USE;

/* ---- the table of kernels, for tests and benches ---- */

typedef struct sw_cuda_tile {
    const char *name;
    int n_tokens, n_channels; /* of a CTA */
    int n_stages, per_sm;
    bool is_scaled; /* weights are scaled before the product: scales have the dtype of X */
    bool takes_gates; /* a CTA can have a tile of gates and that of their ups */
} sw_cuda_tile;

/* The best plan among rows that are counted together, kernel included, which the first one asked
 * about a problem leaves to those asked after it; {0} before. */
typedef struct sw_cuda_counted {
    bool is_there;
    sw_cuda_plan best; /* its kernel is -1 where none of the rows has a plan that was timed */
} sw_cuda_counted;

typedef struct sw_cuda_kernel {
    const char *name;
    int sm_min, sm_max;        /* compute capabilities that it runs on */
    const sw_cuda_tile *tiles;
    const int *n_tiles;
    bool (*can_run)(const sw_cuda_gemm *p, int tile);
    /* Is it the best known choice? The first row that says so is used, else the last that can. */
    bool (*suits)(const sw_cuda_gemm *p, const sw_cuda_device *device, sw_cuda_counted *counted);
    void (*plan)(sw_cuda_plan *out, const sw_cuda_gemm *p, const sw_cuda_device *device,
                 sw_cuda_counted *counted);
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
