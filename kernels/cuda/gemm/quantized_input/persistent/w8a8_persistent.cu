/* w8a8_persistent.cu - plan and launch the kernels of 8-bit inputs for many tokens: a row of the
 * table. */
#include <cuda_runtime.h>

#include "kernels/cuda/gemm/quantized_input/w8a8_rows.h"

#define N_TOKENS 256 /* of a block of Y, as w8a8_persistent.cuh has it */
#define N_CHANNELS 128

extern "C" const sw_cuda_tile sw_w8a8_persistent_tiles[] = {
    {"t256_c128", N_TOKENS, N_CHANNELS, 4, 1, false},
};
extern "C" const int sw_w8a8_persistent_n_tiles =
    (int)(sizeof sw_w8a8_persistent_tiles / sizeof *sw_w8a8_persistent_tiles);

/* What changes along k: 0 nothing, 1 scales of W, 2 those of X too. */
static int mode_of(const sw_cuda_gemm *p)
{
    return p->act.scope == SW_ACT_GROUP ? 2 : sw_w8a8_is_grouped(p);
}

static const w8a8_kernel *kernel_of(const sw_cuda_gemm *p, int tile)
{
    (void)tile;
    switch (sw_w8a8_instance_of(p)) {
#define SW_W8A8_KIND_ROW(kind, name)                                                               \
    case kind:                                                                                     \
        return sw_w8a8_persistent_##name(mode_of(p));
#include "kernels/cuda/gemm/quantized_input/w8a8_kinds.def"
#undef SW_W8A8_KIND_ROW
    default: return NULL;
    }
}

extern "C" bool sw_w8a8_persistent_can_run(const sw_cuda_gemm *p, int tile)
{
    return sw_w8a8_can_run(p, 0) && kernel_of(p, tile);
}

static int64_t blocks_of(const sw_cuda_gemm *p)
{
    return sw_cuda_up(p->tiles.n_out, N_CHANNELS) * sw_cuda_up(p->m, N_TOKENS);
}

/* Measured: ahead wherever there is a block for each multiprocessor, or nearly. Of 256 tokens where
 * there are more blocks than that, of 8-bit weights where nothing changes along k: copies for one
 * block go on while the one before is stored. Fewer have not been measured: rows of X that are not
 * there are slow to bring. */
extern "C" bool sw_w8a8_persistent_suits(const sw_cuda_gemm *p, const sw_cuda_device *device)
{
    if (p->m == N_TOKENS && SW_A8L_CTAS(sw_w8a8_kind_of(p), mode_of(p)) > 1)
        return blocks_of(p) > device->n_sms;
    return p->m > N_TOKENS && blocks_of(p) * 8 >= (int64_t)device->n_sms * 7;
}

extern "C" void sw_w8a8_persistent_plan(sw_cuda_plan *out, const sw_cuda_gemm *p,
                                        const sw_cuda_device *device)
{
    (void)p;
    *out = {0, 0, 1, *device, true};
}

extern "C" size_t sw_w8a8_persistent_workspace_bytes(const sw_cuda_gemm *p,
                                                     const sw_cuda_plan *plan)
{
    (void)p;
    (void)plan;
    return 0;
}

extern "C" sw_code sw_w8a8_persistent_run(const sw_cuda_gemm *p, const sw_cuda_plan *plan,
                                          void *d_workspace, void *stream, sw_err *err)
{
    w8a8_args args = sw_w8a8_args_of(p, 1);
    int cluster = SW_A8L_CTAS(sw_w8a8_kind_of(p), mode_of(p)), n_sms = plan->device.n_sms;
    int64_t blocks = sw_cuda_up(blocks_of(p), cluster) * cluster;
    int most = n_sms > cluster ? n_sms / cluster * cluster : cluster;

    (void)d_workspace;
    return sw_w8a8_launch(p, kernel_of(p, plan->tile), sw_w8a8_persistent_tiles[plan->tile].name,
                          (int)(blocks < most ? blocks : most), cluster, plan->overlap, &args,
                          N_TOKENS / cluster, stream, err);
}
