/* routed.h - the routed experts of a feed-forward layer on the device: plan, workspace, run on the
 * caller's stream.
 *
 *   h[m, e] = act(gate_e x_m) * (up_e x_m)          for the top_k experts e that token m chose
 *   y[m]    = sum over them of share[m, e] * down_e h[m, e]
 *
 * Four kernels: the pairs of a token and one of its experts are sorted by expert and their inputs
 * gathered; gates and ups with the activation; downs with the shares; the sum over a token's
 * experts, in the order of its list. One token needs no sorting, and has three.
 *
 * Weights are Swage tiles (formats/pack/tiles.h), each expert's gates and ups one weight
 * [2 * wide, hidden], gates first:
 *
 *   int4   symmetric, groups of multiples of 128 inputs or one a channel, BF16 scales below
 *          SW_ROUTED_SCALE_END; inputs of 16 bits
 *   E2M1   with an E8M0 scale for 32 inputs (MXFP4), of 2^-61 to 2^65, or an E4M3 one without a
 *          sign for 16 and one for all (NVFP4); inputs of 16 bits; the hidden size a multiple of
 *          64. Codes are in the order of gemm/e2m1_tiles.h. Smaller scales of E8M0 lose bits of
 *          what is below 2^-63
 *   E4M3   inputs in E4M3 with a scale a token, weights with one a channel; or both in groups of
 *          128 inputs. X, and h after it, is quantized as formats/num/act.h defines, by a kernel
 *          of its own each. In columns (gemm/column_tiles.h) too, those of groups with scales of
 *          blocks, which is faster where an expert has hundreds of rows
 *   int8   inputs in int8 with a scale a token, weights with one a channel
 *   int4   with inputs in E4M3 with a scale a token (W4AFP8), symmetric, groups of multiples of
 *          128 inputs, which a row must be then, or one a channel
 *
 * Weights with inputs of bytes have rows of multiples of 64 inputs.
 *
 * How rows are dealt to the multiprocessors follows from the plan and from how many rows each
 * expert has, so the same call gives the same bytes. Nothing here allocates or waits: calls may be
 * captured in a graph, and calls on different streams run side by side if their workspaces and
 * flags differ.
 */
#ifndef SW_KERNELS_CUDA_EXPERTS_ROUTED_H
#define SW_KERNELS_CUDA_EXPERTS_ROUTED_H

#include "kernels/cuda/ops/engine_ops.h"
#include "kernels/cuda_gemm.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SW_ROUTED_SCALE_END SW_USUAL_SCALE_END

/* All pointers are the caller's and lie on the device, but for what tiles name. */
typedef struct sw_routed {
    int64_t n_tokens;
    int n_experts, top_k;     /* 1024 experts at most */
    sw_bf16_rows x;           /* [n_tokens, hidden]; rows start at multiples of 16 bytes */
    sw_bf16_rows y;           /* [n_tokens, hidden], likewise */
    bool adds;                /* y += instead of y = */
    const int32_t *chosen;    /* [n_tokens, top_k], each 0 .. n_experts - 1 */
    const float *share;       /* [n_tokens, top_k] */
    sw_act act_of_x;          /* usually up.spec.act; zeroed: X and h as they are */
    sw_tiles up, down;        /* shape and format of every expert's [2 * wide, hidden] and
                                 [hidden, wide]; the arrays they point to are not read */
    const sw_expert *ups, *downs; /* [n_experts] */
    int act;                  /* SW_MLP_SILU or SW_MLP_SWIGLU_CLAMPED */
    float limit;              /* of the latter */
    int32_t *flags;           /* sw_routed_flags_bytes, zero before the first run, which leaves
                                 them so; of one stream */
    bool may_overlap;         /* nothing that the kernel ahead in the stream writes is read but x,
                                 chosen, share and y */
} sw_routed;

typedef struct sw_routed_plan {
    int rows;                 /* of a block: rows of one expert that are multiplied together */
    int kind, scale_k;        /* of kernel, inside */
    sw_cuda_device device;
} sw_routed_plan;

/* The plan for a device; pure, needs no device. rows 0: the best known, else that of a kernel.
 * SW_E_UNSUPPORTED: a format, shape, activation or device that these kernels do not have; rows that
 * no kernel has. */
sw_code sw_routed_plan_for(sw_routed_plan *out, const sw_routed *p, const sw_cuda_device *device,
                           int rows, sw_err *err) SW_MUST_USE;
/* Device bytes that run needs, aligned to 256; what they hold does not matter. */
size_t sw_routed_workspace_bytes(const sw_routed *p, const sw_routed_plan *plan);
/* Bytes of p->flags, whatever the problem. */
size_t sw_routed_flags_bytes(const sw_cuda_device *device);
/* Enqueue on `stream` (a cudaStream_t). SW_E_CUDA: what the runtime said. No tokens: nothing. */
sw_code sw_routed_run(const sw_routed *p, const sw_routed_plan *plan, void *d_workspace,
                      void *stream, sw_err *err) SW_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
