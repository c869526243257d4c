/* w4a16_persistent.cu - plan and launch the kernels of integer codes of 2, 3 and 4 bits for many
 * tokens: a row of the table. */
#include <cuda_runtime.h>

#include "kernels/cuda/gemm/tensor_map.cuh"
#include "kernels/cuda/gemm/weight_only/persistent/w4a16_persistent_args.h"
#include "kernels/cuda/gemm/weight_only/w4a16_many.h"
#include "kernels/cuda/gemm/weight_only/weight_only_kernels.h"

extern "C" const sw_cuda_tile sw_w4a16_persistent_tiles[] = {
#define SW_NWL_TILE(name, T, MT, NWG, ST, CTAS) {#name, T, 64 * MT * NWG, ST, 1, true},
#define SW_NWL_PLAIN SW_NWL_TILE
#include "kernels/cuda/gemm/weight_only/persistent/w4a16_persistent_tiles.def"
#undef SW_NWL_PLAIN
#undef SW_NWL_TILE
};
extern "C" const int sw_w4a16_persistent_n_tiles =
    (int)(sizeof sw_w4a16_persistent_tiles / sizeof *sw_w4a16_persistent_tiles);

/* CTAs of a cluster, which take blocks of the same tokens side by side. */
static const int ctas_of[] = {
#define SW_NWL_TILE(name, T, MT, NWG, ST, CTAS) CTAS,
#define SW_NWL_PLAIN SW_NWL_TILE
#include "kernels/cuda/gemm/weight_only/persistent/w4a16_persistent_tiles.def"
#undef SW_NWL_PLAIN
#undef SW_NWL_TILE
};

static const nwl_kernel *kernel_of(const sw_cuda_gemm *p, int tile)
{
    static const nwl_kernel *(*const of[][2])(int, int, bool) = {
        {sw_w4a16_persistent_bf16_2, sw_w4a16_persistent_f16_2},
        {sw_w4a16_persistent_bf16_3, sw_w4a16_persistent_f16_3},
        {sw_w4a16_persistent_bf16, sw_w4a16_persistent_f16},
    };

    const int cut = sw_weight_only_cut_of(&p->tiles);
    const nwl_kernel *fused =
        sw_weight_only_is_fused(p) ? sw_w4a16_persistent_bf16_fused(tile, cut, false) : NULL;

    if (fused && fused->entry) return fused;
    return of[sw_weight_only_bits_of(&p->tiles) - 2][p->dtype != SW_DTYPE_BF16](
        tile, cut, !p->tiles.spec.is_symmetric);
}

/* Weights are scaled in the type of X. */
extern "C" bool sw_w4a16_persistent_can_run(const sw_cuda_gemm *p, int tile)
{
    return sw_weight_only_bits_of(&p->tiles) && p->act.scope == SW_ACT_NONE &&
           sw_weight_only_cut_of(&p->tiles) >= 0 && p->tiles.spec.scale_dtype == p->dtype &&
           kernel_of(p, tile)->entry;
}

#define MANY_TOKENS 1024 /* from which on power is what limits */

/* The copy engine stores Y, in rows that start at multiples of 16 bytes. */
static bool y_is_aligned(const sw_cuda_gemm *p)
{
    return (uintptr_t)p->d_y % 16 == 0 && p->y_stride % 8 == 0;
}

extern "C" nwl_blocks sw_w4a16_persistent_blocks_of(const sw_cuda_gemm *p, int tile, int n_sms)
{
    const sw_cuda_tile *t = &sw_w4a16_persistent_tiles[tile];
    int64_t all = sw_cuda_up(p->tiles.n_out, t->n_channels * ctas_of[tile]) *
                  sw_cuda_up(p->m, t->n_tokens);
    int64_t slots = n_sms < ctas_of[tile] ? 1 : n_sms / ctas_of[tile], rest = all % slots;

    return {all, rest * 2 <= slots ? all - rest : all, slots, ctas_of[tile] > 1};
}

/* What the busiest multiprocessor does, in sixths of a block's channels: half a block takes two
 * thirds of a whole one. */
static int64_t cost_of(const sw_cuda_gemm *p, int tile, int n_sms)
{
    nwl_blocks b = sw_w4a16_persistent_blocks_of(p, tile, n_sms);

    return (sw_cuda_up(b.whole, b.slots) * 6 + (b.all > b.whole) * 4) *
           sw_w4a16_persistent_tiles[tile].n_channels;
}

/* A pair where it has no more to do: it takes less power, which is what limits many tokens. */
static bool is_paired(const sw_cuda_gemm *p, int tile, int n_sms)
{
    return p->m >= MANY_TOKENS && ctas_of[tile] > 1 && sw_w4a16_persistent_can_run(p, tile) &&
           cost_of(p, tile, n_sms) <= cost_of(p, 0, n_sms);
}

/* The pair of tile's blocks, where there is one that is better, or tile. */
static int pair_of(const sw_cuda_gemm *p, int tile, int n_sms)
{
    for (int t = 1; tile == 0 && t < sw_w4a16_persistent_n_tiles; t++)
        if (is_paired(p, t, n_sms)) return t;
    return tile;
}

/* The first, unless another is a tenth better: by as much the count of blocks misjudges them on an
 * H200 (tests/bench/h200-w4a16-large.csv). */
static int tile_for(const sw_cuda_gemm *p, int n_sms)
{
    int best = 0;

    for (int t = 1; t < sw_w4a16_persistent_n_tiles; t++)
        if (ctas_of[t] == 1 && sw_w4a16_persistent_can_run(p, t) &&
            cost_of(p, t, n_sms) * 10 <= cost_of(p, best, n_sms) * 9)
            best = t;
    return pair_of(p, best, n_sms);
}

/* Of up to 256 tokens: with more than one round of blocks, or where the weight-only kernels gain
 * nothing by splitting k, unless these have a tile that more of its tokens fill. */
static bool suits_few(const sw_cuda_gemm *p, const sw_cuda_device *device, nwl_blocks b)
{
    sw_cuda_counted counted = {};
    sw_cuda_plan other;

    sw_w4a16_plan(&other, p, device, &counted);
    if (sw_w4a16_tiles[other.tile].n_tokens != 128) return false;
    return b.all > device->n_sms || (other.split == 1 && b.whole * 4 >= device->n_sms * 3);
}

/* Of up to so many tokens the times of both rows are known well enough to be compared. */
static bool are_compared(const sw_cuda_gemm *p)
{
    return p->m <= MANY_TOKENS && sw_w4a16_are_many(p);
}

/* With a round of whole blocks that three quarters of the multiprocessors share, or more. */
extern "C" bool sw_w4a16_persistent_suits(const sw_cuda_gemm *p, const sw_cuda_device *device,
                                          sw_cuda_counted *counted)
{
    int tile = tile_for(p, device->n_sms);
    nwl_blocks b = sw_w4a16_persistent_blocks_of(p, tile, device->n_sms);

    if (p->m <= 128 || !y_is_aligned(p)) return false;
    if (are_compared(p)) return sw_w4a16_stays(counted, p, device);
    if (p->m <= 256) return suits_few(p, device, b);
    return b.whole * 4 >= b.slots * 3 ||
           (p->tiles.k_in <= 4096 && b.all * 2 * 4 >= b.slots * 3);
}

extern "C" void sw_w4a16_persistent_plan(sw_cuda_plan *out, const sw_cuda_gemm *p,
                                         const sw_cuda_device *device, sw_cuda_counted *counted)
{
    if (are_compared(p)) {
        sw_w4a16_plan_many(out, p, device, true, counted);
        if (!out->rest.from) out->tile = pair_of(p, out->tile, device->n_sms);
        return;
    }
    *out = {0, tile_for(p, device->n_sms), 1, *device, true};
}

extern "C" size_t sw_w4a16_persistent_workspace_bytes(const sw_cuda_gemm *p,
                                                      const sw_cuda_plan *plan)
{
    (void)plan;
    return sw_weight_only_workspace_bytes(p);
}

static nwl_args args_of(const sw_cuda_gemm *p, nwl_blocks b)
{
    return {sw_weight_only_args_of(p), (int)b.whole, (int)(b.whole + 2 * (b.all - b.whole))};
}

static sw_code launch(const sw_cuda_gemm *p, const sw_cuda_plan *plan, const nwl_kernel *k,
                      nwl_maps *maps, void *stream, sw_err *err)
{
    const sw_cuda_tile *tile = &sw_w4a16_persistent_tiles[plan->tile];
    const nwl_blocks b = sw_w4a16_persistent_blocks_of(p, plan->tile, plan->device.n_sms);
    const int n_ctas = ctas_of[plan->tile];
    nwl_args args = args_of(p, b);
    void *params[] = {maps, &args};
    cudaLaunchAttribute attrs[2] = {};
    cudaLaunchConfig_t config = {};
    sw_code rc = sw_cuda_check(cudaFuncSetAttribute(k->entry,
                                                    cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                    k->shared_bytes),
                               tile->name, err);

    if (rc) return rc;
    attrs[0].id = cudaLaunchAttributeClusterDimension;
    attrs[0].val.clusterDim.x = (unsigned)n_ctas;
    attrs[0].val.clusterDim.y = attrs[0].val.clusterDim.z = 1;
    attrs[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attrs[1].val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = dim3((unsigned)((args.n_units < b.slots ? args.n_units : b.slots) * n_ctas));
    config.blockDim = dim3((unsigned)k->n_threads);
    config.dynamicSmemBytes = (size_t)k->shared_bytes;
    config.stream = (cudaStream_t)stream;
    config.attrs = attrs;
    config.numAttrs = p->may_overlap && plan->overlap ? 2 : 1;
    return sw_cuda_check(cudaLaunchKernelExC(&config, k->entry, params), tile->name, err);
}

/* Y somewhere else than when the plan was made; these kernels store it anywhere, and need the same
 * workspace. */
static sw_code run_unaligned(const sw_cuda_gemm *p, const sw_cuda_plan *plan, void *d_workspace,
                             void *stream, sw_err *err)
{
    sw_cuda_counted counted = {};
    sw_cuda_plan other;

    sw_w4a16_plan(&other, p, &plan->device, &counted);
    return sw_w4a16_run(p, &other, d_workspace, stream, err);
}

extern "C" sw_code sw_w4a16_persistent_run(const sw_cuda_gemm *p, const sw_cuda_plan *plan,
                                           void *d_workspace, void *stream, sw_err *err)
{
    const nwl_kernel *k = kernel_of(p, plan->tile);
    nwl_maps maps = {};
    sw_code rc;

    if (!y_is_aligned(p)) return run_unaligned(p, plan, d_workspace, stream, err);
    rc = sw_weight_only_map_x(&maps.in, p, NWL_BOX_TOKENS, d_workspace, stream, err);
    if (!rc)
        rc = sw_weight_only_map_weights(&maps.in, p,
                                        sw_w4a16_persistent_tiles[plan->tile].n_channels / 64, err);
    if (!rc)
        rc = sw_tensor_map_2d(&maps.y, p->d_y, 2, p->tiles.n_out, p->m, p->y_stride, 64,
                              k->park_tokens, err);
    return rc ? rc : launch(p, plan, k, &maps, stream, err);
}
