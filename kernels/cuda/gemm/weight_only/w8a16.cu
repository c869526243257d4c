/* w8a16.cu - plan and launch the W8A16 kernels: one row of the table. */

#include "kernels/cuda/gemm/weight_only/weight_only_kernels.h"
#include "kernels/cuda/gemm/weight_only/weight_only_wgmma.cuh"

static const nw_kernel kernels[] = {
#define SW_NW8_CUT(T, MT, NWG, KW, ST, PER_SM)                                                     \
    nw_cut<NW_INT8, T, MT, NWG, KW, 1, ST, PER_SM, NW_CHANNEL, true, false>
#define SW_NW8_TILE(name, ...)                                                                     \
    {(const void *)swk_weight_only_wgmma_sm90<SW_NW8_CUT(__VA_ARGS__)>,                            \
     SW_NW8_CUT(__VA_ARGS__)::shared_bytes, SW_NW8_CUT(__VA_ARGS__)::threads},
#include "kernels/cuda/gemm/weight_only/w8a16_tiles.def"
#undef SW_NW8_TILE
#undef SW_NW8_CUT
};

extern "C" const sw_cuda_tile sw_w8a16_tiles[] = {
#define SW_NW8_TILE(name, T, MT, NWG, KW, ST, PER_SM) {#name, T, 64 * MT * NWG, ST, PER_SM, false},
#include "kernels/cuda/gemm/weight_only/w8a16_tiles.def"
#undef SW_NW8_TILE
};
extern "C" const int sw_w8a16_n_tiles = (int)(sizeof sw_w8a16_tiles / sizeof *sw_w8a16_tiles);

#define STEP_N 256 /* of which the channels are a multiple */

/* What has been checked and measured on a device; the rest is mma_sync's. */
extern "C" bool sw_w8a16_can_run(const sw_cuda_gemm *p, int tile)
{
    const sw_tiles *t = &p->tiles;

    (void)tile;
    return sw_cuda_weights_of(t) == SW_CUDA_W_INT8 && p->act.scope == SW_ACT_NONE &&
           p->dtype == SW_DTYPE_BF16 && t->spec.is_symmetric && t->spec.group_elems == 0 &&
           t->spec.scale_dtype != SW_DTYPE_F32 && t->k_in % SW_WEIGHT_ONLY_STAGE_K == 0 &&
           t->n_out % STEP_N == 0;
}

extern "C" bool sw_w8a16_suits(const sw_cuda_gemm *p, const sw_cuda_device *device,
                               sw_cuda_counted *counted)
{
    (void)p;
    (void)device;
    (void)counted;
    return true;
}

/* Tiles for up to so many tokens: the best of those measured on an H200. */
static const struct {
    int64_t m_max;
    const char *tile;
} tile_by_m[] = {
    {16, "t16_c128"}, {32, "t32_c128"}, {64, "t64_c128"}, {128, "t128_c128"},
    {INT64_MAX, "t128_c256"},
};

static const sw_cuda_measured measured[] = {
    {4096, 4096, 16, "t16_c128", 5},    {4096, 4096, 32, "t32_c128", 6},
    {4096, 4096, 64, "t32_c128", 2},    {4096, 4096, 128, "t64_c128", 2},
    {4096, 4096, 256, "t128_c128", 2},  {4096, 28672, 16, "t16_c128", 1},
    {4096, 28672, 32, "t32_c128", 1},   {4096, 28672, 64, "t64_c128", 1},
    {4096, 28672, 256, "t128_c256", 1}, {8192, 8192, 16, "t16_c128", 2},
    {8192, 8192, 32, "t32_c128", 2},    {8192, 8192, 64, "t64_c128k2", 2},
    {8192, 8192, 128, "t128_c128", 2},  {8192, 8192, 256, "t128_c256", 2},
};

static int tile_named(const char *name)
{
    return sw_cuda_tile_named(sw_w8a16_tiles, sw_w8a16_n_tiles, name);
}

extern "C" void sw_w8a16_plan(sw_cuda_plan *out, const sw_cuda_gemm *p,
                              const sw_cuda_device *device, sw_cuda_counted *counted)
{
    int row = 0;

    (void)counted;
    for (const sw_cuda_measured &e : measured)
        if (e.k == p->tiles.k_in && e.n == p->tiles.n_out && p->m <= e.m_max) {
            *out = {0, tile_named(e.tile), e.split, *device, true};
            return;
        }
    while (p->m > tile_by_m[row].m_max) row++;
    *out = {0, tile_named(tile_by_m[row].tile), 1, *device, true};
    out->split = sw_weight_only_split_for(&sw_w8a16_tiles[out->tile], p, device);
}

extern "C" size_t sw_w8a16_workspace_bytes(const sw_cuda_gemm *p, const sw_cuda_plan *plan)
{
    (void)plan;
    return sw_weight_only_workspace_bytes(p);
}

extern "C" sw_code sw_w8a16_run(const sw_cuda_gemm *p, const sw_cuda_plan *plan, void *d_workspace,
                                void *stream, sw_err *err)
{
    return sw_weight_only_run(p, plan, &sw_w8a16_tiles[plan->tile], &kernels[plan->tile],
                              d_workspace, stream, err);
}
