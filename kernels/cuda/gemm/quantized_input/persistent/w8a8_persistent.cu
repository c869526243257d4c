/* w8a8_persistent.cu - plan and launch the kernels of 8-bit inputs for many tokens: a row of the
 * table. */
#include <cuda_runtime.h>

#include "kernels/cuda/gemm/quantized_input/w8a8_rows.h"
#include "kernels/cuda/gemm/tensor_map.cuh"
#include "kernels/cuda/runtime/cuda_check.h"

#define N_TOKENS 256 /* of a block of Y, as w8a8_persistent.cuh has it */
#define N_CHANNELS 128

extern "C" const sw_cuda_tile sw_w8a8_persistent_tiles[] = {
    {"t256_c128", N_TOKENS, N_CHANNELS, 4, 1, false},
};
extern "C" const int sw_w8a8_persistent_n_tiles =
    (int)(sizeof sw_w8a8_persistent_tiles / sizeof *sw_w8a8_persistent_tiles);

/* E4M3 by channel, whose products go on from block to block, has an even number of whole stages and
 * Y in lines of 16 bytes; scales of blocks have whole stages, such lines and codes in columns.
 * Other problems are taken for such with scales that change along k. */
static w8a8_mode mode_of(const sw_cuda_gemm *p)
{
    bool is_aligned = ((uintptr_t)p->d_y | (uintptr_t)(p->y_stride * 2)) % 16 == 0;
    int64_t k_tiles = sw_tiles_k(p->tiles.k_in);
    w8a8_mode mode = sw_w8a8_mode_of(p);

    if (sw_w8a8_kind_of(p) != W8A8_E4M3) return mode;
    if (mode == W8A8_X_BLOCKS)
        return is_aligned && k_tiles % 2 == 0 ? mode : W8A8_X_GROUPS;
    return mode == W8A8_PLAIN && !(is_aligned && k_tiles % 4 == 0) ? W8A8_GROUPED : mode;
}

/* Stages of a block that two clusters may share, or 0: none may be. */
static int64_t shared_stages(const sw_cuda_gemm *p)
{
    if (SW_A8L_CTAS(sw_w8a8_kind_of(p), mode_of(p)) == 1) return 0;
    return sw_cuda_up(sw_tiles_k(p->tiles.k_in), 2);
}

static const w8a8_kernel *kernel_of(const sw_cuda_gemm *p, int tile)
{
    (void)tile;
    switch (sw_w8a8_instance_of(p)) {
#define SW_W8A8_KIND_ROW(kind, name)                                                               \
    case kind:                                                                                     \
        return sw_w8a8_persistent_##name(mode_of(p), p->dtype == SW_DTYPE_BF16);
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

/* Measured: ahead wherever there is a block for each multiprocessor, or nearly. Pairs, which share
 * blocks, are ahead with half of that, up to 256 tokens where there are more than they share: at 64
 * blocks of 132 multiprocessors two CTAs a block of Y are 1 to 6 % faster. */
extern "C" bool sw_w8a8_persistent_suits(const sw_cuda_gemm *p, const sw_cuda_device *device)
{
    int64_t blocks = blocks_of(p);

    if (SW_A8L_CTAS(sw_w8a8_kind_of(p), mode_of(p)) == 1)
        return p->m > N_TOKENS && blocks * 8 >= (int64_t)device->n_sms * 7;
    if (p->m <= N_TOKENS) return p->m > N_TOKENS / 2 && blocks * 2 > device->n_sms;
    return blocks * 16 >= (int64_t)device->n_sms * 7;
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

extern "C" w8a8_rounds sw_w8a8_rounds_of(int64_t n_blocks, int64_t n_clusters, int64_t n_stages)
{
    int64_t rest = n_blocks % n_clusters;
    bool shares = rest > 0 && 2 * rest <= n_clusters && n_stages % 2 == 0 &&
                  n_stages >= SW_W8A8_SHARED_STAGES_MIN;
    w8a8_rounds r;

    r.n_whole = n_blocks - (shares ? rest : 0);
    r.n_clusters = n_blocks + (shares ? rest : 0);
    if (r.n_clusters > n_clusters) r.n_clusters = n_clusters;
    return r;
}

static sw_code map_all(a8l_maps *maps, const sw_cuda_gemm *p, const w8a8_args *args, int cluster,
                       sw_err *err)
{
    int64_t stride = sw_cuda_codes_stride(p->tiles.k_in);
    sw_code rc = sw_tensor_map_2d(&maps->x, p->x_codes.d_codes, 1, stride, p->m, stride, 128,
                                  args->x_rows / cluster, err);

    if (rc || !args->y_is_aligned) return rc;
    return sw_tensor_map_2d(&maps->y, p->d_y, 2, args->n_out, p->m, p->y_stride, 64, 64, err);
}

extern "C" sw_code sw_w8a8_persistent_run(const sw_cuda_gemm *p, const sw_cuda_plan *plan,
                                          void *d_workspace, void *stream, sw_err *err)
{
    w8a8_args args = sw_w8a8_args_of(p, 1);
    int cluster = SW_A8L_CTAS(sw_w8a8_kind_of(p), mode_of(p));
    int64_t by_channel = sw_cuda_up(p->tiles.n_out, N_CHANNELS * cluster);
    int64_t by_token = sw_cuda_up(p->m, N_TOKENS);
    int64_t clusters = plan->device.n_sms > cluster ? plan->device.n_sms / cluster : 1;
    w8a8_rounds rounds = sw_w8a8_rounds_of(by_channel * by_token, clusters, shared_stages(p));
    a8l_maps maps = {};
    void *params[] = {&maps, &args};
    sw_code rc;

    (void)d_workspace;
    args.x_rows = (int)sw_cuda_up(sw_cuda_x_rows(p, &sw_w8a8_persistent_tiles[0]), 16) * 16;
    rc = map_all(&maps, p, &args, cluster, err);
    if (!rc && args.y_is_aligned)
        rc = sw_checked_fill(p->d_y, p->y_stride * 2, p->tiles.n_out * 2, p->m, stream, err);
    if (rc) return rc;
    args.grid = {(int)by_channel, (int)by_token, (int)rounds.n_whole,
                 (int)(rounds.n_whole + (by_channel * by_token - rounds.n_whole) * cluster)};
    return sw_w8a8_start(kernel_of(p, plan->tile), sw_w8a8_persistent_tiles[plan->tile].name,
                         (int)rounds.n_clusters * cluster, cluster,
                         p->may_overlap && plan->overlap, params, stream, err);
}
