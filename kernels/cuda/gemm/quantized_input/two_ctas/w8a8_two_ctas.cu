/* w8a8_two_ctas.cu - plan and launch the kernels of 8-bit inputs by pairs of CTAs: a row of the
 * table. */
#include <cuda_runtime.h>

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
    if (!name) return -1;
    return sw_cuda_tile_named(sw_w8a8_two_ctas_tiles, sw_w8a8_two_ctas_n_tiles, name);
}

extern "C" bool sw_w8a8_two_ctas_can_run(const sw_cuda_gemm *p, int tile)
{
    return sw_w8a8_can_run(p, tile) && sw_w8a8_mode_of(p) != W8A8_X_GROUPS;
}

/* What is looked at to choose a tile. */
typedef struct shape {
    int64_t m, k, by_64, n_sms; /* by_64: blocks of 64 channels */
    bool has_blocks;            /* scales of both in blocks of 128 inputs */
    bool adds;                  /* sums of groups of 4 bits take longer than what is shared */
} shape;

/* Of 33 to 256 tokens and 8-bit weights, by times on an H100 (tests/bench/h100-few-tokens.txt): k
 * is shared where blocks of channels alone leave half of the multiprocessors idle. NULL: others. */
static const char *tile_of_bytes(const shape *s)
{
    bool leaves_half = s->by_64 * 2 <= s->n_sms, fills = s->by_64 * 3 >= s->n_sms * 2;
    bool pairs_fill = s->by_64 * 20 >= s->n_sms * 9; /* nine tenths */

    if (s->m <= 64) {
        if (s->by_64 > s->n_sms || (s->has_blocks && !pairs_fill && s->k > 4096)) return NULL;
        return "k64_c64";
    }
    if (s->m <= 128) {
        if (s->by_64 > s->n_sms) return "x128_c128";
        if (leaves_half) return "k128_c64";
        if (s->has_blocks && s->k > 4096 && s->by_64 * 5 >= s->n_sms * 4) return "k128_c128";
        return fills || s->k <= (s->has_blocks ? 4096 : 8192) ? "x128_c64" : NULL;
    }
    if (fills && s->by_64 <= s->n_sms) return "w128_c128";
    if (!leaves_half) return NULL;
    return s->has_blocks || s->k > 4096 ? "k128_c128" : "x128_c64";
}

/* Of 65 to 256 tokens and 4-bit weights, by times on an H200. Up to 128 tokens weights are read
 * once anyway, so pairs share X, and beyond that the weights. */
static const char *tile_of_nibbles(const shape *s)
{
    bool fills = s->by_64 * 3 >= s->n_sms * 2, is_short = s->k <= (s->adds ? 4096 : 8192);

    if (s->m <= 64) return NULL;
    if (s->m <= 128) {
        if (s->by_64 > s->n_sms) return "x128_c128";
        /* Others split k, which pays where two of these are not so. */
        return is_short + !s->adds + fills >= 2 ? "x128_c64" : NULL;
    }
    if (fills && s->by_64 <= s->n_sms) return "w128_c128";
    return is_short && s->by_64 * 3 >= s->n_sms && s->by_64 * 2 <= s->n_sms ? "x128_c64" : NULL;
}

/* -1: another kernel. */
static int tile_for(const sw_cuda_gemm *p, const sw_cuda_device *device)
{
    bool is_nibbles = p->tiles.container_bits == 4;
    shape s = {p->m, p->tiles.k_in, sw_cuda_up(p->tiles.n_out, 64), device->n_sms,
               sw_w8a8_mode_of(p) == W8A8_X_BLOCKS, is_nibbles && sw_w8a8_is_grouped(p)};

    if (s.m <= 32 || s.m > 256 || s.by_64 * 5 < s.n_sms * 2) return -1;
    return tile_named(is_nibbles ? tile_of_nibbles(&s) : tile_of_bytes(&s));
}

extern "C" bool sw_w8a8_two_ctas_suits(const sw_cuda_gemm *p, const sw_cuda_device *device)
{
    return tile_for(p, device) >= 0;
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

/* Starting before X has been quantized pays for 8-bit weights of few tokens or short k, whose CTAs
 * all find places. */
extern "C" void sw_w8a8_two_ctas_plan(sw_cuda_plan *out, const sw_cuda_gemm *p,
                                      const sw_cuda_device *device)
{
    int tile = tile_for(p, device), at = tile < 0 ? 0 : tile;
    int per_sm = sw_w8a8_two_ctas_tiles[at].n_tokens == 64 ? 2 : 1;
    bool is_short = p->m <= 128 || p->tiles.k_in <= 4096;

    *out = {0, at, 1, *device, true,
            p->tiles.container_bits == 8 && is_short && ctas_of(p, at) <= device->n_sms * per_sm};
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
    return sw_w8a8_start(kernel_of(p, plan->tile), tile->name, (int)ctas_of(p, plan->tile), 2,
                         p->may_overlap && plan->overlap, params, stream, err);
}
