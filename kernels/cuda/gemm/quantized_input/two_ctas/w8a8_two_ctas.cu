/* w8a8_two_ctas.cu - plan and launch the kernels of 8-bit inputs by pairs of CTAs: a row of the
 * table. */
#include <cuda_runtime.h>

#include "kernels/cuda/gemm/quantized_input/two_ctas/w8a8_two_ctas.h"
#include "kernels/cuda/gemm/quantized_input/w8a8_count.h"
#include "kernels/cuda/gemm/quantized_input/w8a8_rows.h"
#include "kernels/cuda/gemm/tensor_map.cuh"

extern "C" const sw_cuda_tile sw_w8a8_two_ctas_tiles[] = {
#define SW_A8P_TILE(name, T, NT, BY_T, RING, SHARED)                                               \
    {#name, T, 64 * NT, 0, (RING) <= 104 ? 2 : 1, false},
#include "kernels/cuda/gemm/quantized_input/two_ctas/w8a8_two_ctas_tiles.def"
#undef SW_A8P_TILE
#define SW_A8C_TILE(name, T, C, PARTS, SHARED) {#name, T, C, 0, 1, false},
#include "kernels/cuda/gemm/quantized_input/two_ctas/w8a8_two_ctas_rows.def"
#undef SW_A8C_TILE
};
extern "C" const int sw_w8a8_two_ctas_n_tiles =
    (int)(sizeof sw_w8a8_two_ctas_tiles / sizeof *sw_w8a8_two_ctas_tiles);

static const int shared[] = { /* by pairs of each tile */
#define SW_A8P_TILE(name, T, NT, BY_T, RING, SHARED) SHARED,
#include "kernels/cuda/gemm/quantized_input/two_ctas/w8a8_two_ctas_tiles.def"
#undef SW_A8P_TILE
#define SW_A8C_TILE(name, T, C, PARTS, SHARED) SHARED,
#include "kernels/cuda/gemm/quantized_input/two_ctas/w8a8_two_ctas_rows.def"
#undef SW_A8C_TILE
};

enum { /* tiles whose products have channels as rows, which come first */
#define SW_A8P_TILE(name, T, NT, BY_T, RING, SHARED) TILE_##name,
#include "kernels/cuda/gemm/quantized_input/two_ctas/w8a8_two_ctas_tiles.def"
#undef SW_A8P_TILE
    N_BY_CHANNEL
};

static const w8a8_kernel *kernel_of(const sw_cuda_gemm *p, int tile)
{
    if (tile >= N_BY_CHANNEL) return sw_w8a8_two_ctas_rows(tile - N_BY_CHANNEL);
    switch (sw_w8a8_instance_of(p)) {
#define SW_W8A8_KIND_ROW(kind, name)                                                               \
    case kind:                                                                                     \
        return sw_w8a8_two_ctas_##name(tile, sw_w8a8_mode_of(p));
#include "kernels/cuda/gemm/quantized_input/w8a8_kinds.def"
#undef SW_W8A8_KIND_ROW
    default: return NULL;
    }
}

extern "C" int sw_w8a8_two_ctas_shared(int tile) { return shared[tile]; }
extern "C" bool sw_w8a8_two_ctas_has_rows(int tile) { return tile >= N_BY_CHANNEL; }

extern "C" bool sw_w8a8_two_ctas_can_run(const sw_cuda_gemm *p, int tile)
{
    w8a8_mode mode = sw_w8a8_mode_of(p);

    if (sw_w8a8_two_ctas_has_rows(tile) && (mode != W8A8_X_BLOCKS || sw_tiles_k(p->tiles.k_in) % 2))
        return false;
    return sw_w8a8_can_run(p, tile) && mode != W8A8_X_GROUPS;
}

extern "C" bool sw_w8a8_two_ctas_suits(const sw_cuda_gemm *p, const sw_cuda_device *device,
                                       sw_cuda_counted *counted)
{
    return sw_w8a8_count_suits(p, device, "w8a8_two_ctas", counted);
}

/* CTAs of a tile, two of each pair. */
static int64_t ctas_of(const sw_cuda_gemm *p, int tile)
{
    const sw_cuda_tile *t = &sw_w8a8_two_ctas_tiles[tile];
    int64_t by_channel = sw_cuda_up(p->tiles.n_out, t->n_channels);
    int64_t by_token = sw_cuda_up(p->m, t->n_tokens);

    switch (shared[tile]) {
    case SW_A8P_X: return 2 * sw_cuda_up(by_channel, 2) * by_token;
    case SW_A8P_W: return 2 * sw_cuda_up(by_token, 2) * by_channel;
    default: return 2 * by_channel * by_token;
    }
}

extern "C" void sw_w8a8_two_ctas_plan(sw_cuda_plan *out, const sw_cuda_gemm *p,
                                      const sw_cuda_device *device, sw_cuda_counted *counted)
{
    sw_w8a8_count_plan(out, p, device, "w8a8_two_ctas", counted);
}

extern "C" size_t sw_w8a8_two_ctas_workspace_bytes(const sw_cuda_gemm *p, const sw_cuda_plan *plan)
{
    (void)p;
    (void)plan;
    return 0;
}

/* Of tiles that have tokens as rows: codes in boxes of whole tiles, and of what is left of them. */
static sw_code map_columns(a8c_maps *maps, const sw_cuda_gemm *p, int tile, int box_tokens,
                           sw_err *err)
{
    const int channels = sw_w8a8_two_ctas_tiles[tile].n_channels;
    const int box = channels % 32 == 0 ? channels / 64 * 64 : 32, rest = channels % box;
    const int steps = shared[tile] == SW_A8P_W ? 2 : 4; /* each of a pair brings half */
    const int64_t n_tiles = sw_tiles_n(p->tiles.n_out), k_tiles = sw_tiles_k(p->tiles.k_in);
    sw_code rc = sw_w8a8_map_x(&maps->x, p, box_tokens, err);

    if (!rc)
        rc = sw_tensor_map_eights(&maps->tiles, p->tiles.codes, n_tiles, k_tiles, box, steps, err);
    if (!rc && rest)
        rc = sw_tensor_map_eights(&maps->rest, p->tiles.codes, n_tiles, k_tiles, rest, steps, err);
    return rc;
}

extern "C" sw_code sw_w8a8_two_ctas_run(const sw_cuda_gemm *p, const sw_cuda_plan *plan,
                                        void *d_workspace, void *stream, sw_err *err)
{
    const sw_cuda_tile *tile = &sw_w8a8_two_ctas_tiles[plan->tile];
    bool shares_x = shared[plan->tile] == SW_A8P_X;
    w8a8_args args = sw_w8a8_args_of(p, 1);
    const bool has_rows = sw_w8a8_two_ctas_has_rows(plan->tile);
    w8a8_maps maps = {};
    a8c_maps of_rows = {};
    void *params[] = {has_rows ? (void *)&of_rows : &maps, &args};
    int box_tokens;
    sw_code rc;

    (void)d_workspace;
    args.x_rows = sw_cuda_x_rows(p, tile);
    /* Halves begin where the swizzle of shared memory does. */
    if (shares_x) args.x_rows = (args.x_rows + 15) / 16 * 16;
    box_tokens = shares_x ? args.x_rows / 2 : args.x_rows;
    rc = has_rows ? map_columns(&of_rows, p, plan->tile, box_tokens, err)
                  : sw_w8a8_map(&maps, p, box_tokens, tile->n_channels / 64, err);
    if (rc) return rc;
    args.record_bytes = 64 * args.scale_bytes; /* a box has no gaps */
    return sw_w8a8_start(kernel_of(p, plan->tile), tile->name, (int)ctas_of(p, plan->tile), 2,
                         p->may_overlap && plan->overlap, params, stream, err);
}
