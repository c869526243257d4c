/* narrow4.cu - plan and launch the narrow kernels of int4 weights: one row of the table. */
#include <string.h>

#include "kernels/cuda/narrow_args.h"
#include "kernels/cuda/narrow_kernels.h"

extern "C" const sw_cuda_tile sw_narrow4_tiles[] = {
#define SW_NW4_TILE(name, T, MT, NWG, KW, ST, PER_SM, MODE) \
    {#name, T, 64 * MT * NWG, ST, PER_SM, MODE == NW_SCALED},
#include "kernels/cuda/narrow4_tiles.def"
#undef SW_NW4_TILE
};
extern "C" const int sw_narrow4_n_tiles = (int)(sizeof sw_narrow4_tiles / sizeof *sw_narrow4_tiles);

static bool suits_scales(const sw_cuda_gemm *p, int tile)
{
    return !sw_narrow4_tiles[tile].is_scaled || p->tiles.spec.scale_dtype == p->dtype;
}

/* What has been checked and measured on a card; the rest is w4a16_wgmma's. */
extern "C" bool sw_narrow4_can_run(const sw_cuda_gemm *p, int tile)
{
    return sw_cuda_weights_of(&p->tiles) == SW_CUDA_W_INT4 && sw_narrow_takes(p) &&
           p->tiles.spec.group_elems == SW_NARROW_STAGE_K && suits_scales(p, tile);
}

extern "C" bool sw_narrow4_suits(const sw_cuda_gemm *p, const sw_cuda_card *card)
{
    (void)p;
    (void)card;
    return true;
}

/* Tiles for up to so many tokens, for weights of up to 8192 x 8192 and for larger ones: the best of
 * those measured on an H200 (tests/bench/h200-gemm.csv). */
static const struct {
    int64_t m_max;
    const char *tile, *large, *scaled; /* `scaled`, or NULL, where scales are of the type of X */
} tile_by_m[] = {
    {16, "t16_c128", "t16_c256", NULL},
    {32, "t32_c128", "t32_c128", NULL},
    {64, "t64_c128", "t64_c128", "s64_c128"},
    {128, "t64_c128", "t128_c256", "s128_c128"},
    {256, "t128_c256", "t128_c256", "s128_c256"},
    {INT64_MAX, "t128_c256", "t128_c256", NULL},
};

/* Where measuring found better than the rule below; a row whose scales do not suit is passed by. */
static const sw_cuda_measured measured[] = {
    {4096, 4096, 16, "t16_c128", 5},    {4096, 4096, 32, "t16_c128", 2},
    {4096, 4096, 64, "t32_c128", 2},    {4096, 4096, 128, "s64_c128", 2},
    {4096, 4096, 128, "t64_c128", 2},   {4096, 4096, 256, "s128_c128", 2},
    {4096, 6144, 16, "t16_c128", 4},    {4096, 6144, 32, "t32_c128", 4},
    {4096, 6144, 64, "s64_c128", 4},    {4096, 6144, 128, "s128_c128", 2},
    {4096, 6144, 256, "s128_c128", 1},  {4096, 28672, 16, "t16_c256", 2},
    {4096, 28672, 32, "t32_c128", 1},   {4096, 28672, 64, "t64_c128", 1},
    {4096, 28672, 256, "s128_c256", 1}, {14336, 4096, 16, "t16_c128", 7},
    {14336, 4096, 32, "t32_c128", 7},   {14336, 4096, 64, "t64_c128", 7},
    {14336, 4096, 128, "s128_c128", 3}, {14336, 4096, 256, "s128_c128", 2},
    {8192, 8192, 16, "t16_c128", 2},    {8192, 8192, 32, "t32_c128", 2},
    {8192, 8192, 64, "s64_c128", 2},    {8192, 8192, 64, "t64_c128", 2},
    {8192, 8192, 128, "s128_c128", 2},  {8192, 8192, 256, "s128_c256", 2},
    {8192, 10240, 16, "t16_c256", 5},   {8192, 10240, 32, "t32_c128", 2},
    {8192, 10240, 64, "s64_c128", 2},   {8192, 10240, 128, "s128_c256", 2},
    {8192, 10240, 256, "s128_c256", 1}, {8192, 57344, 16, "t16_c256", 1},
    {8192, 57344, 32, "t32_c128", 1},   {8192, 57344, 64, "s64_c128", 1},
    {8192, 57344, 256, "s128_c256", 1}, {28672, 8192, 16, "t16_c256", 7},
    {28672, 8192, 32, "t32_c128", 2},   {28672, 8192, 64, "s64_c128", 2},
    {28672, 8192, 128, "s128_c128", 2}, {28672, 8192, 256, "s128_c256", 2},
};

static int tile_named(const char *name)
{
    int tile = 0;

    while (tile + 1 < sw_narrow4_n_tiles && strcmp(sw_narrow4_tiles[tile].name, name) != 0) tile++;
    return tile;
}

extern "C" void sw_narrow4_plan(sw_cuda_plan *out, const sw_cuda_gemm *p, const sw_cuda_card *card)
{
    int64_t n = p->tiles.n_out, k = p->tiles.k_in;
    int row = 0;

    for (const sw_cuda_measured &e : measured)
        if (e.k == k && e.n == n && p->m <= e.m_max && suits_scales(p, tile_named(e.tile))) {
            *out = {0, tile_named(e.tile), e.split, *card, true};
            return;
        }
    while (p->m > tile_by_m[row].m_max) row++;
    *out = {0, tile_named(n * k > 8192 * 8192 ? tile_by_m[row].large : tile_by_m[row].tile), 1,
            *card, true};
    if (tile_by_m[row].scaled && suits_scales(p, tile_named(tile_by_m[row].scaled)))
        out->tile = tile_named(tile_by_m[row].scaled);
    out->split = sw_narrow_split_for(&sw_narrow4_tiles[out->tile], p, card);
}

extern "C" size_t sw_narrow4_workspace_bytes(const sw_cuda_gemm *p, const sw_cuda_plan *plan)
{
    (void)plan;
    return sw_narrow_workspace_bytes(p);
}

extern "C" sw_code sw_narrow4_run(const sw_cuda_gemm *p, const sw_cuda_plan *plan,
                                  void *d_workspace, void *stream, sw_err *err)
{
    return sw_narrow_run(p, plan, &sw_narrow4_tiles[plan->tile], sw_narrow4_kernel(plan->tile),
                         d_workspace, stream, err);
}
