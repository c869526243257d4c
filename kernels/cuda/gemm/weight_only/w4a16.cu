/* w4a16.cu - plan and launch the kernels of integer codes of 2, 3 and 4 bits: one row of the table.
 */

#include "kernels/cuda/gemm/weight_only/w4a16_many.h"
#include "kernels/cuda/gemm/weight_only/weight_only_args.h"
#include "kernels/cuda/gemm/weight_only/weight_only_kernels.h"

extern "C" const sw_cuda_tile sw_w4a16_tiles[] = {
#define SW_NW4_TILE(name, T, MT, NWG, KW, ST, PER_SM, MODE) \
    {#name, T, 64 * MT * NWG, ST, PER_SM, MODE == NW_SCALED, MT * NWG == 2 && T <= 64},
#define SW_NW4_PLAIN SW_NW4_TILE
#define SW_NW4_USUAL SW_NW4_TILE
#define SW_NW4_NOT_2 SW_NW4_TILE
#include "kernels/cuda/gemm/weight_only/w4a16_tiles.def"
#undef SW_NW4_PLAIN
#undef SW_NW4_USUAL
#undef SW_NW4_NOT_2
#undef SW_NW4_TILE
};
extern "C" const int sw_w4a16_n_tiles = (int)(sizeof sw_w4a16_tiles / sizeof *sw_w4a16_tiles);

static const nw_kernel *kernel_of(const sw_cuda_gemm *p, int tile)
{
    static const nw_kernel *(*const of[][2])(int, int, bool) = {
        {sw_w4a16_bf16_2, sw_w4a16_f16_2},
        {sw_w4a16_bf16_3, sw_w4a16_f16_3},
        {sw_w4a16_bf16, sw_w4a16_f16},
    };

    const int cut = sw_weight_only_cut_of(&p->tiles);
    const nw_kernel *fused =
        sw_weight_only_is_fused(p) ? sw_w4a16_bf16_fused(tile, cut, false) : NULL;

    if (fused && fused->entry) return fused;
    return of[sw_weight_only_bits_of(&p->tiles) - 2][p->dtype != SW_DTYPE_BF16](
        tile, cut, !p->tiles.spec.is_symmetric);
}

/* Weights are scaled before a product in the type of X, after it in fp32. */
extern "C" bool sw_w4a16_can_run(const sw_cuda_gemm *p, int tile)
{
    sw_dtype scales = p->tiles.spec.scale_dtype;

    return sw_weight_only_bits_of(&p->tiles) && p->act.scope == SW_ACT_NONE &&
           sw_weight_only_cut_of(&p->tiles) >= 0 && scales != SW_DTYPE_F32 &&
           (!sw_w4a16_tiles[tile].is_scaled || scales == p->dtype) && kernel_of(p, tile)->entry;
}

/* Tiles for up to so many tokens, for weights of up to 8192 x 8192 and for larger ones: the first
 * that can run, of the best of those measured on an H200 (tests/bench/h200-narrow*.csv). */
static const struct {
    int64_t m_max;
    const char *small[3], *large[4];
} tiles_by_m[] = {
    {8, {"m8_c128"}, {"m8_c128"}},
    {16, {"m16_c128"}, {"m16_c128"}},
    {32, {"s32_c128", "t32_c128"}, {"s32_c128", "t32_c256", "t32_c128"}},
    {48, {"s48_c128", "s64_c128", "t64_c128"}, {"s48_c128", "s64_c128", "t64_c128"}},
    {64, {"s64_c128", "t64_c128"}, {"s64_c128", "t64_c128"}},
    {128, {"s128_c128", "t64_c128"}, {"s128_c256", "s128_c128", "t128_c256", "t64_c128"}},
    {INT64_MAX,
     {"s128_c128", "t128_c256", "t64_c128"},
     {"s128_c256", "s128_c128", "t128_c256", "t64_c128"}},
};

/* Where measuring found better than the rule below, in tests/bench/h200-narrow.csv and, of up to 16
 * tokens and of 2 and 3 bits, h200-narrow-codes.csv; 2048 x 4096 to 7168 x 4096 and what splits k
 * in five or more on an H100 (h100-few-tokens.txt); s32_c128, s48_c128 and s64_c192 in
 * w4a16-tokens.txt. A row that cannot run is passed by. */
static const sw_cuda_measured measured[] = {
    {2048, 4096, 8, "m8_c128", 4}, {2048, 4096, 16, "m8_c128", 2}, {2048, 4096, 32, "m16_c128", 2},
    {2048, 4096, 64, "s32_c128", 2}, {2048, 4096, 64, "t32_c128", 2},
    {2048, 4096, 128, "s64_c128", 2}, {2048, 4096, 128, "t64_c128", 2},
    {2048, 4096, 256, "s64_c128", 1}, {2048, 4096, 256, "t64_c128", 1},
    {4096, 4096, 8, "m8_c128", 4}, {4096, 4096, 16, "m16_c128k1", 8},
    {4096, 4096, 16, "m16_c128", 4}, {4096, 4096, 32, "m16_c128", 2},
    {4096, 4096, 64, "s32_c128", 2}, {4096, 4096, 64, "t32_c128", 2},
    {4096, 4096, 128, "s64_c128", 2}, {4096, 4096, 128, "t64_c128", 2},
    {4096, 4096, 256, "s128_c128", 2}, {4096, 6144, 8, "m8_c128", 4},
    {4096, 6144, 16, "m16_c128k1", 5}, {4096, 6144, 16, "m16_c128", 3},
    {4096, 6144, 32, "s32_c128", 4}, {4096, 6144, 32, "t32_c128", 4},
    {4096, 6144, 48, "s48_c128", 4}, {4096, 6144, 64, "s64_c128", 4},
    {4096, 6144, 64, "t64_c128", 4}, {4096, 6144, 128, "s128_c128", 2},
    {4096, 6144, 256, "s128_c256", 2}, {4096, 6144, 256, "s128_c128", 1},
    {7168, 4096, 8, "m8_c128x3", 7}, {7168, 4096, 8, "m8_c128", 5},
    {7168, 4096, 16, "m16_c128k1", 8}, {7168, 4096, 16, "m16_c128", 5},
    {7168, 4096, 32, "s32_c128", 6}, {7168, 4096, 32, "t32_c128", 6},
    {7168, 4096, 48, "s48_c128", 6}, {7168, 4096, 64, "s64_c128", 7},
    {7168, 4096, 64, "t64_c128", 7}, {7168, 4096, 128, "s64_c128", 2},
    {7168, 4096, 128, "t64_c128", 2}, {7168, 4096, 256, "s128_c128", 2},
    {4096, 28672, 8, "m8_c128", 1}, {4096, 28672, 16, "m16_c128", 1},
    {4096, 28672, 32, "s32_c128", 1}, {4096, 28672, 32, "t32_c128", 1},
    {4096, 28672, 48, "s48_c128", 1}, {4096, 28672, 64, "s64_c128", 1},
    {4096, 28672, 64, "t64_c128", 1}, {4096, 28672, 256, "s128_c256", 1},
    {14336, 4096, 8, "m8_c128x3", 8}, {14336, 4096, 8, "m8_c128", 6},
    {14336, 4096, 16, "m16_c128k1", 8}, {14336, 4096, 16, "m16_c128", 6},
    {14336, 4096, 32, "s32_c128", 7}, {14336, 4096, 32, "t32_c128", 7},
    {14336, 4096, 48, "s48_c128", 7}, {14336, 4096, 64, "s64_c128", 7},
    {14336, 4096, 64, "t64_c128", 7}, {14336, 4096, 128, "s64_c128", 2},
    {14336, 4096, 256, "s128_c128", 2}, {8192, 8192, 8, "m8_c128", 3},
    {8192, 8192, 16, "m16_c128", 2}, {8192, 8192, 32, "s32_c128", 2},
    {8192, 8192, 32, "t32_c128", 2}, {8192, 8192, 48, "s48_c128", 2},
    {8192, 8192, 64, "s64_c128", 2}, {8192, 8192, 64, "t64_c128", 2},
    {8192, 8192, 128, "s128_c128", 2}, {8192, 8192, 256, "s128_c256", 2},
    {8192, 8192, 256, "s128_c128", 1}, {8192, 10240, 8, "m8_c128x3", 4},
    {8192, 10240, 8, "m8_c128", 2}, {8192, 10240, 16, "m16_c128k1", 4},
    {8192, 10240, 16, "m16_c128", 2}, {8192, 10240, 32, "s32_c128", 2},
    {8192, 10240, 32, "t32_c256", 5}, {8192, 10240, 32, "t32_c128", 2},
    {8192, 10240, 64, "s64_c192", 2}, {8192, 10240, 64, "s64_c128", 2},
    {8192, 10240, 64, "t64_c128", 2}, {8192, 10240, 128, "s128_c256", 2},
    {8192, 10240, 256, "s128_c256", 1}, {8192, 57344, 8, "m8_c128", 1},
    {8192, 57344, 16, "m16_c128", 1}, {8192, 57344, 32, "s32_c128", 1},
    {8192, 57344, 32, "t32_c256", 1}, {8192, 57344, 32, "t32_c128", 1},
    {8192, 57344, 48, "s48_c128", 1}, {8192, 57344, 64, "s64_c128", 1},
    {8192, 57344, 64, "t64_c128", 1}, {8192, 57344, 256, "s128_c256", 1},
    {28672, 8192, 8, "m8_c128", 2}, {28672, 8192, 16, "m16_c128", 2},
    {28672, 8192, 32, "s32_c128", 2}, {28672, 8192, 32, "t32_c128", 2},
    {28672, 8192, 48, "s48_c128", 2}, {28672, 8192, 64, "s64_c128", 2},
    {28672, 8192, 64, "t64_c128", 2}, {28672, 8192, 128, "s128_c128", 2},
    {28672, 8192, 256, "s128_c256", 2},
};

static int tile_named(const char *name)
{
    return sw_cuda_tile_named(sw_w4a16_tiles, sw_w4a16_n_tiles, name);
}

/* Are there so few blocks of channels that half of the tokens at a time, and k in two or more, give
 * a multiprocessor no more than one CTA? Then no sum is long, and few CTAs add up. */
static bool is_narrow(const sw_cuda_gemm *p, const sw_cuda_device *device)
{
    return sw_cuda_up(p->tiles.n_out, 128) * 4 <= device->n_sms && p->m > 8 && p->m <= 128;
}

static int tile_for(const sw_cuda_gemm *p, int64_t m)
{
    bool is_large = p->tiles.n_out * p->tiles.k_in > 8192 * 8192;
    const char *const *names;
    int row = 0;

    while (m > tiles_by_m[row].m_max) row++;
    names = is_large ? tiles_by_m[row].large : tiles_by_m[row].small;
    while (!sw_w4a16_can_run(p, tile_named(*names))) names++;
    return tile_named(*names);
}

/* Into how many k is split where a multiprocessor gets one CTA at most. */
static int one_cta_each(const sw_cuda_tile *tile, const sw_cuda_gemm *p,
                        const sw_cuda_device *device)
{
    int64_t blocks = sw_cuda_up(p->tiles.n_out, tile->n_channels) *
                     sw_cuda_up(p->m, tile->n_tokens);
    int64_t most = sw_cuda_up(p->tiles.k_in, SW_WEIGHT_ONLY_STAGE_K), split;

    split = device->n_sms / blocks;
    if (split > 8) split = 8;
    return (int)(split > most ? most : split < 1 ? 1 : split);
}

/* The row of `measured` for p, or NULL: none for more tokens takes the place of one that cannot
 * run. */
static const sw_cuda_measured *measured_for(const sw_cuda_gemm *p)
{
    int64_t m_max = INT64_MAX;

    for (const sw_cuda_measured &e : measured) {
        if (e.k != p->tiles.k_in || e.n != p->tiles.n_out || p->m > e.m_max) continue;
        if (e.m_max > m_max) break;
        m_max = e.m_max;
        if (sw_w4a16_can_run(p, tile_named(e.tile))) return &e;
    }
    return NULL;
}

extern "C" bool sw_w4a16_suits(const sw_cuda_gemm *p, const sw_cuda_device *device,
                               sw_cuda_counted *counted)
{
    (void)p;
    (void)device;
    (void)counted;
    return true;
}

extern "C" void sw_w4a16_plan(sw_cuda_plan *out, const sw_cuda_gemm *p,
                              const sw_cuda_device *device, sw_cuda_counted *counted)
{
    const sw_cuda_measured *e = measured_for(p);
    bool narrow = is_narrow(p, device);

    if (sw_w4a16_are_many(p)) {
        sw_w4a16_plan_many(out, p, device, false, counted);
        return;
    }
    *out = {0, 0, 1, *device, true};
    out->tile = e ? tile_named(e->tile) : tile_for(p, narrow ? (p->m + 1) / 2 : p->m);
    if (e) out->split = e->split;
    else if (narrow) out->split = one_cta_each(&sw_w4a16_tiles[out->tile], p, device);
    else out->split = sw_weight_only_split_for(&sw_w4a16_tiles[out->tile], p, device);
}

extern "C" size_t sw_w4a16_workspace_bytes(const sw_cuda_gemm *p, const sw_cuda_plan *plan)
{
    (void)plan;
    return sw_weight_only_workspace_bytes(p);
}

extern "C" sw_code sw_w4a16_run(const sw_cuda_gemm *p, const sw_cuda_plan *plan, void *d_workspace,
                                void *stream, sw_err *err)
{
    return sw_weight_only_run(p, plan, &sw_w4a16_tiles[plan->tile], kernel_of(p, plan->tile),
                              d_workspace, stream, err);
}
