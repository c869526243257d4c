/* w8a8_two_ctas.cu - plan and launch the kernels of 8-bit inputs by pairs of CTAs: a row of the
 * table. */
#include <cuda_runtime.h>
#include <string.h>

#include "kernels/cuda/gemm/quantized_input/two_ctas/w8a8_two_ctas.h"
#include "kernels/cuda/gemm/quantized_input/w8a8_rows.h"

extern "C" const sw_cuda_tile sw_w8a8_two_ctas_tiles[] = {
#define SW_A8P_TILE(name, T, NT, BY_T, RING, SHARED) {#name, T, 64 * NT, 0, 1, false},
#include "kernels/cuda/gemm/quantized_input/two_ctas/w8a8_two_ctas_tiles.def"
#undef SW_A8P_TILE
};
extern "C" const int sw_w8a8_two_ctas_n_tiles =
    (int)(sizeof sw_w8a8_two_ctas_tiles / sizeof *sw_w8a8_two_ctas_tiles);

static const int shared[] = { /* by pairs of each tile */
#define SW_A8P_TILE(name, T, NT, BY_T, RING, SHARED) SHARED,
#include "kernels/cuda/gemm/quantized_input/two_ctas/w8a8_two_ctas_tiles.def"
#undef SW_A8P_TILE
};

static const w8a8_kernel *kernel_of(const sw_cuda_gemm *p, int tile)
{
    switch (sw_w8a8_instance_of(p)) {
#define SW_W8A8_KIND_ROW(kind, name)                                                               \
    case kind:                                                                                     \
        return sw_w8a8_two_ctas_##name(tile, sw_w8a8_mode_of(p));
#include "kernels/cuda/gemm/quantized_input/w8a8_kinds.def"
#undef SW_W8A8_KIND_ROW
    default: return NULL;
    }
}

static int tile_named(const char *name)
{
    int tile = 0;

    while (tile + 1 < sw_w8a8_two_ctas_n_tiles &&
           strcmp(sw_w8a8_two_ctas_tiles[tile].name, name) != 0)
        tile++;
    return tile;
}

extern "C" bool sw_w8a8_two_ctas_can_run(const sw_cuda_gemm *p, int tile)
{
    return sw_w8a8_can_run(p, tile) && sw_w8a8_mode_of(p) != W8A8_X_GROUPS;
}

/* The tile by times measured on an H200, or -1: another kernel. Up to 128 tokens weights are read
 * once anyway, so pairs share X, and beyond that the weights. */
static int tile_for(const sw_cuda_gemm *p, const sw_cuda_device *device)
{
    int64_t most = device->n_sms, enough = most * 2 / 3, by_64 = sw_cuda_up(p->tiles.n_out, 64);
    /* Sums of groups of 4 bits take longer than the bytes that are shared. */
    bool adds = p->tiles.container_bits == 4 && sw_w8a8_is_grouped(p);
    /* Sums of FP8 by blocks too, but no longer than sharing saves where k is short. */
    bool is_short = p->tiles.k_in <= (adds || sw_w8a8_mode_of(p) == W8A8_X_BLOCKS ? 4096 : 8192);

    if (p->m <= 64 || p->m > 256 || by_64 * 5 < most * 2) return -1;
    if (p->m <= 128) {
        if (by_64 > most) return tile_named("x128_c128");
        /* Others split k, which pays where two of these are not so. */
        return is_short + !adds + (by_64 >= enough) >= 2 ? tile_named("x128_c64") : -1;
    }
    if (by_64 >= enough && by_64 <= most) return tile_named("w128_c128");
    return is_short && by_64 * 2 >= enough && by_64 * 2 <= most ? tile_named("x128_c64") : -1;
}

extern "C" bool sw_w8a8_two_ctas_suits(const sw_cuda_gemm *p, const sw_cuda_device *device)
{
    return tile_for(p, device) >= 0;
}

/* Starting before X has been quantized does not pay. */
extern "C" void sw_w8a8_two_ctas_plan(sw_cuda_plan *out, const sw_cuda_gemm *p,
                                      const sw_cuda_device *device)
{
    int tile = tile_for(p, device);

    *out = {0, tile < 0 ? 0 : tile, 1, *device, true, false};
}

extern "C" size_t sw_w8a8_two_ctas_workspace_bytes(const sw_cuda_gemm *p, const sw_cuda_plan *plan)
{
    (void)p;
    (void)plan;
    return 0;
}

extern "C" sw_code sw_w8a8_two_ctas_run(const sw_cuda_gemm *p, const sw_cuda_plan *plan,
                                        void *d_workspace, void *stream, sw_err *err)
{
    const sw_cuda_tile *tile = &sw_w8a8_two_ctas_tiles[plan->tile];
    bool shares_x = shared[plan->tile] == SW_A8P_X;
    int64_t by_channel = sw_cuda_up(p->tiles.n_out, tile->n_channels);
    int64_t by_token = sw_cuda_up(p->m, tile->n_tokens);
    int64_t pairs = shares_x ? sw_cuda_up(by_channel, 2) * by_token
                             : sw_cuda_up(by_token, 2) * by_channel;
    w8a8_args args = sw_w8a8_args_of(p, 1);
    w8a8_maps maps = {};
    void *params[] = {&maps, &args};
    sw_code rc;

    (void)d_workspace;
    args.x_rows = sw_cuda_x_rows(p, tile);
    /* Halves begin where the swizzle of shared memory does. */
    if (shares_x) args.x_rows = (args.x_rows + 15) / 16 * 16;
    rc =
        sw_w8a8_map(&maps, p, shares_x ? args.x_rows / 2 : args.x_rows, tile->n_channels / 64, err);
    if (rc) return rc;
    args.record_bytes = 64 * args.scale_bytes; /* a box has no gaps */
    return sw_w8a8_start(kernel_of(p, plan->tile), tile->name, (int)pairs * 2, 2,
                         p->may_overlap && plan->overlap, params, stream, err);
}
