/* w4a16.cu - plan and launch the W4A16 kernels: one row of the table. */
#include <cuda_runtime.h>
#include <string.h>

#include "kernels/cuda/gemm_rows.h"
#include "kernels/cuda/narrow_kernels.h"
#include "kernels/cuda/tensor_map.cuh"
#include "kernels/cuda/w4a16_args.h"
#include "kernels/cuda/w4a16_kernels.h"

extern "C" const sw_cuda_tile sw_w4a16_tiles[] = {
#define SW_W4_TILE(name, T, MT, NWG, ST, PER_SM, SCALED) \
    {#name, T, 64 * MT * NWG, ST, PER_SM, SCALED},
#include "kernels/cuda/w4a16_tiles.def"
#undef SW_W4_TILE
};
extern "C" const int sw_w4a16_n_tiles = (int)(sizeof sw_w4a16_tiles / sizeof *sw_w4a16_tiles);

static bool suits_scales(const sw_cuda_gemm *p, int tile)
{
    return !sw_w4a16_tiles[tile].is_scaled || p->tiles.spec.scale_dtype == p->dtype;
}

extern "C" bool sw_w4a16_can_run(const sw_cuda_gemm *p, int tile)
{
    return sw_cuda_weights_of(&p->tiles) == SW_CUDA_W_INT4 && p->act.scope == SW_ACT_NONE &&
           sw_narrow_cut_of(&p->tiles) >= 0 && p->tiles.spec.scale_dtype != SW_DTYPE_F32 &&
           suits_scales(p, tile);
}

extern "C" bool sw_w4a16_suits(const sw_cuda_gemm *p, const sw_cuda_card *card)
{
    (void)p;
    (void)card;
    return true;
}

/* Tiles for up to so many tokens, for weights of up to 8192 x 8192 and for larger ones: the best of
 * those measured on an H200 (tests/bench/h200-w4a16.csv). */
static const struct {
    int64_t m_max;
    const char *tile, *large, *scaled; /* `scaled`, or NULL, where scales are of the type of X */
} tile_by_m[] = {
    {8, "t8_c256", "t8_c256", NULL},
    {16, "t16_c256", "t16_c256", NULL},
    {32, "t32_c128", "t32_c256", NULL},
    {64, "t64_c128", "t64_c128", NULL},
    {128, "t64_c128", "t128_c256", "s128_c128"},
    {256, "t128_c256", "t128_c256", "s128_c256"},
    {INT64_MAX, "t128_c256", "t128_c256", NULL},
};

/* Where measuring found better than the rule below. */
static const struct {
    int64_t k, n, m_min, m_max;
    const char *tile;
    int split;
    bool overlap;
} measured[] = {
    {8192, 8192, 33, 64, "t64_c128", 2, false},
    {8192, 8192, 65, 128, "s128_c128", 2, true},
    {8192, 8192, 129, 256, "s128_c256", 2, false},
    {4096, 4096, 9, 16, "t16_c256", 4, true},
    {4096, 4096, 17, 32, "t32_c128", 4, true},
    {4096, 4096, 33, 64, "t64_c128", 3, false},
    {4096, 4096, 65, 128, "t64_c128", 2, false},
    {14336, 4096, 9, 16, "t32_c128", 7, true},
};

static int tile_named(const char *name)
{
    int tile = 0;

    while (tile + 1 < sw_w4a16_n_tiles && strcmp(sw_w4a16_tiles[tile].name, name) != 0) tile++;
    return tile;
}

extern "C" void sw_w4a16_plan(sw_cuda_plan *out, const sw_cuda_gemm *p, const sw_cuda_card *card)
{
    int64_t n = p->tiles.n_out, k = p->tiles.k_in;
    int row = 0;

    for (const auto &e : measured)
        if (e.k == k && e.n == n && e.m_min <= p->m && p->m <= e.m_max &&
            suits_scales(p, tile_named(e.tile))) {
            *out = {0, tile_named(e.tile), e.split, *card, e.overlap};
            return;
        }
    while (p->m > tile_by_m[row].m_max) row++;
    out->tile = tile_named(n * k > 8192 * 8192 ? tile_by_m[row].large : tile_by_m[row].tile);
    if (tile_by_m[row].scaled && suits_scales(p, tile_named(tile_by_m[row].scaled)))
        out->tile = tile_named(tile_by_m[row].scaled);
    out->split = sw_narrow_split_for(&sw_w4a16_tiles[out->tile], p, card);
    out->card = *card;
    out->overlap = true;
}

/* The copy engine wants rows that start at multiples of 16 bytes. */
static bool x_is_aligned(const sw_cuda_gemm *p)
{
    return (uintptr_t)p->d_x % 16 == 0 && p->x_stride % 8 == 0;
}

static int64_t padded_k(const sw_cuda_gemm *p) { return sw_cuda_up(p->tiles.k_in, 8) * 8; }

extern "C" size_t sw_w4a16_workspace_bytes(const sw_cuda_gemm *p, const sw_cuda_plan *plan)
{
    (void)plan;
    return x_is_aligned(p) ? 0 : (size_t)(p->m * padded_k(p)) * 2;
}

/* grid (tokens), any block: one row of X to where its pitch is a multiple of 16 bytes. */
__global__ void swk_w4a16_realign_x(uint16_t *to, int64_t to_stride, const uint16_t *from,
                                    int64_t from_stride, int64_t k_in)
{
    int64_t row = blockIdx.x;

    for (int64_t k = threadIdx.x; k < to_stride; k += blockDim.x)
        to[row * to_stride + k] = k < k_in ? from[row * from_stride + k] : 0;
}

static w4_args args_of(const sw_cuda_gemm *p)
{
    const sw_tiles *t = &p->tiles;
    w4_args a = {};
    int64_t group = t->spec.group_elems;
    int64_t per_stage = group ? sw_cuda_up(SW_NARROW_STAGE_K, group) : 1;

    a.codes = t->codes;
    a.scales = (const uint16_t *)t->scales;
    a.zeros = t->spec.is_symmetric ? NULL : t->zeros;
    a.y = (uint16_t *)p->d_y;
    a.y_stride = p->y_stride;
    a.n_tokens = (int)p->m;
    a.n_out = (int)t->n_out;
    a.n_tiles = (int)sw_tiles_n(t->n_out);
    a.k_tiles = (int)sw_tiles_k(t->k_in);
    a.n_groups = (int)t->n_groups;
    a.group_stages = (int)(group / SW_NARROW_STAGE_K);
    a.scales_are_bf16 = t->spec.scale_dtype == SW_DTYPE_BF16;
    a.y_is_aligned = (uintptr_t)p->d_y % 16 == 0 && p->y_stride % 8 == 0;
    a.has_ragged_groups = t->n_groups % per_stage != 0;
    return a;
}

static sw_code launch(const sw_cuda_gemm *p, const sw_cuda_plan *plan, const CUtensorMap *map,
                      void *stream, sw_err *err)
{
    const sw_cuda_tile *tile = &sw_w4a16_tiles[plan->tile];
    int cut = sw_narrow_cut_of(&p->tiles);
    bool has_zeros = !p->tiles.spec.is_symmetric;
    const w4_kernel *k = p->dtype == SW_DTYPE_BF16
                             ? sw_w4a16_kernel_bf16(plan->tile, cut, has_zeros)
                             : sw_w4a16_kernel_f16(plan->tile, cut, has_zeros);
    int64_t blocks =
        sw_cuda_up(p->tiles.n_out, tile->n_channels) * sw_cuda_up(p->m, tile->n_tokens);
    w4_args args = args_of(p);
    void *params[] = {(void *)map, &args};
    cudaLaunchAttribute attrs[2] = {};
    cudaLaunchConfig_t config = {};
    sw_code rc;

    attrs[0].id = cudaLaunchAttributeClusterDimension;
    attrs[0].val.clusterDim.x = (unsigned)plan->split;
    attrs[0].val.clusterDim.y = attrs[0].val.clusterDim.z = 1;
    attrs[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attrs[1].val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = dim3((unsigned)(blocks * plan->split));
    config.blockDim = dim3((unsigned)k->n_threads);
    config.dynamicSmemBytes = (size_t)k->shared_bytes;
    config.stream = (cudaStream_t)stream;
    config.attrs = attrs;
    config.numAttrs = p->may_overlap && plan->overlap ? 2 : 1;
    rc = sw_cuda_check(cudaFuncSetAttribute(k->entry, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                         k->shared_bytes),
                    tile->name, err);
    if (rc) return rc;
    return sw_cuda_check(cudaLaunchKernelExC(&config, k->entry, params), tile->name, err);
}

extern "C" sw_code sw_w4a16_run(const sw_cuda_gemm *p, const sw_cuda_plan *plan, void *d_workspace,
                                void *stream, sw_err *err)
{
    sw_code rc = SW_OK;
    const void *d_x = p->d_x;
    int64_t x_stride = p->x_stride;
    CUtensorMap map;

    if (!x_is_aligned(p)) {
        x_stride = padded_k(p);
        swk_w4a16_realign_x<<<(unsigned)p->m, 256, 0, (cudaStream_t)stream>>>(
            (uint16_t *)d_workspace, x_stride, (const uint16_t *)p->d_x, p->x_stride,
            p->tiles.k_in);
        rc = sw_cuda_check(cudaGetLastError(), "swk_w4a16_realign_x", err);
        d_x = d_workspace;
    }
    if (!rc)
        rc = sw_tensor_map_2d(&map, d_x, 2, p->tiles.k_in, p->m, x_stride, 64,
                              sw_w4a16_tiles[plan->tile].n_tokens, err);
    return rc ? rc : launch(p, plan, &map, stream, err);
}
