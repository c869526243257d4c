/* not_emulated.c - what kernels that are not emulated say: that they cannot run, as on a device
 * older than Hopper, so that others are chosen. All is weak: what is emulated is there itself.
 */
#include "kernels/cuda/attention/attention_decode.h"
#include "kernels/cuda/attention/attention_wgmma.h"
#include "kernels/cuda/experts/routed.h"
#include "kernels/cuda/gemm/gemm_rows.h"
#include "kernels/cuda/ops/engine_ops.h"
#include "kernels/cuda/ops/mixers/mixers.h"

#define EMU_WEAK __attribute__((weak))

#define SW_CUDA_KERNEL(row, prefix, sm_min, sm_max, ops)                                      \
    EMU_WEAK const sw_cuda_tile prefix##_tiles[] = {{.name = row}};                           \
    EMU_WEAK const int prefix##_n_tiles = 1;                                                  \
    EMU_WEAK bool prefix##_can_run(const sw_cuda_gemm *p, int tile)                           \
    {                                                                                         \
        (void)p, (void)tile;                                                                  \
        return false;                                                                         \
    }                                                                                         \
    EMU_WEAK bool prefix##_suits(const sw_cuda_gemm *p, const sw_cuda_device *device,         \
                                 sw_cuda_counted *counted)                                    \
    {                                                                                         \
        (void)p, (void)device, (void)counted;                                                 \
        return false;                                                                         \
    }                                                                                         \
    EMU_WEAK void prefix##_plan(sw_cuda_plan *out, const sw_cuda_gemm *p,                     \
                                const sw_cuda_device *device, sw_cuda_counted *counted)       \
    {                                                                                         \
        (void)out, (void)p, (void)device, (void)counted;                                      \
    }                                                                                         \
    EMU_WEAK size_t prefix##_workspace_bytes(const sw_cuda_gemm *p, const sw_cuda_plan *plan) \
    {                                                                                         \
        (void)p, (void)plan;                                                                  \
        return 0;                                                                             \
    }                                                                                         \
    EMU_WEAK sw_code prefix##_run(const sw_cuda_gemm *p, const sw_cuda_plan *plan,            \
                                  void *d_workspace, void *stream, sw_err *err)               \
    {                                                                                         \
        (void)p, (void)plan, (void)d_workspace, (void)stream;                                 \
        return SW_FAIL(err, SW_E_UNSUPPORTED, "not emulated: %s", row);                       \
    }
#include "kernels/cuda_kernels.def"
#undef SW_CUDA_KERNEL

EMU_WEAK bool sw_attention_wgmma_can_run(const sw_attn_args *a, const float *slopes)
{
    (void)a, (void)slopes;
    return false;
}

EMU_WEAK int64_t sw_attention_wide_bytes(const sw_attn_args *a)
{
    (void)a;
    return 0;
}

EMU_WEAK sw_code sw_cuda_attention(const sw_attn_args *a, const float *slopes, sw_launch how,
                                   sw_err *err)
{
    return sw_cuda_attention_mma(a, slopes, how, err);
}

EMU_WEAK bool sw_attention_decode_can_run(const sw_attn_args *a)
{
    (void)a;
    return false;
}

EMU_WEAK sw_code sw_cuda_attention_decode_copied(const sw_attn_args *a, const sw_heads_args *heads,
                                                 sw_launch how, sw_err *err)
{
    return sw_cuda_attention_decode_any(a, heads, how, err);
}

EMU_WEAK sw_code sw_cuda_attention_decode(const sw_attn_args *a, const sw_heads_args *heads,
                                          sw_launch how, sw_err *err)
{
    return sw_cuda_attention_decode_any(a, heads, how, err);
}

EMU_WEAK sw_code sw_routed_plan_for(sw_routed_plan *out, const sw_routed *p,
                                    const sw_cuda_device *device, int rows, sw_err *err)
{
    (void)out, (void)p, (void)device, (void)rows;
    return SW_FAIL(err, SW_E_UNSUPPORTED, "not emulated: routed experts");
}

EMU_WEAK size_t sw_routed_workspace_bytes(const sw_routed *p, const sw_routed_plan *plan)
{
    (void)p, (void)plan;
    return 0;
}

EMU_WEAK size_t sw_routed_flags_bytes(const sw_cuda_device *device)
{
    (void)device;
    return 0;
}

EMU_WEAK sw_code sw_routed_run(const sw_routed *p, const sw_routed_plan *plan, void *d_workspace,
                               void *stream, sw_err *err)
{
    (void)p, (void)plan, (void)d_workspace, (void)stream;
    return SW_FAIL(err, SW_E_UNSUPPORTED, "not emulated: routed experts");
}

/* ---- what is emulated where it is linked: it takes long to compile ---- */

EMU_WEAK bool sw_cuda_one_can(const sw_fused_args *a)
{
    (void)a;
    return false;
}

EMU_WEAK sw_code sw_cuda_one(const sw_fused_args *a, sw_launch how, sw_err *err)
{
    (void)a, (void)how;
    return SW_FAIL(err, SW_E_UNSUPPORTED, "not emulated: products of one token");
}

EMU_WEAK int64_t sw_cuda_walk_state(int64_t n_heads, int64_t d_k, int64_t d_v)
{
    (void)n_heads, (void)d_k, (void)d_v;
    return 0;
}

#define EMU_MIXER(name)                                                              \
    EMU_WEAK sw_code name(const sw_walk_args *a, sw_launch how, sw_err *err)         \
    {                                                                                \
        (void)a, (void)how;                                                          \
        return SW_FAIL(err, SW_E_UNSUPPORTED, "not emulated: %s", #name);            \
    }                                                                                \
    EMU_WEAK int64_t name##_scratch(const sw_walk_args *a)                           \
    {                                                                                \
        (void)a;                                                                     \
        return 0;                                                                    \
    }
EMU_MIXER(sw_cuda_gated_delta)
EMU_MIXER(sw_cuda_ssd)
