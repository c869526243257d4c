/* w8a8_split_k.cu - plan and launch the kernels of 8-bit inputs: one row of the table. */
#include <cuda_runtime.h>

#include "kernels/cuda/gemm/column_tiles.h"
#include "kernels/cuda/gemm/quantized_input/w8a8_count.h"
#include "kernels/cuda/gemm/quantized_input/w8a8_rows.h"
#include "kernels/cuda/gemm/tensor_map.cuh"

extern "C" const sw_cuda_tile sw_w8a8_tiles[] = {
#define SW_W8A8_TILE(name, T, MT, NWG, ST, PER_SM, COPIERS)                                        \
    {#name, T, 64 * MT * NWG, ST, PER_SM, false, MT * NWG == 2 && T <= 64},
#include "kernels/cuda/gemm/quantized_input/split_k/w8a8_split_k_tiles.def"
#undef SW_W8A8_TILE
};
extern "C" const int sw_w8a8_n_tiles = (int)(sizeof sw_w8a8_tiles / sizeof *sw_w8a8_tiles);

extern "C" w8a8_kind sw_w8a8_kind_of(const sw_cuda_gemm *p)
{
    sw_cuda_inputs x = sw_cuda_inputs_of(&p->act);
    bool is_e4m3 = x == SW_CUDA_X_E4M3 || x == SW_CUDA_X_E4M3_GROUPS;

    switch (sw_cuda_weights_of(&p->tiles)) {
    case SW_CUDA_W_INT4:
        if (p->tiles.is_sign_magnitude)
            return x == SW_CUDA_X_E4M3 ? W8A8_INT4_E4M3 : W8A8_KIND_COUNT;
        return x == SW_CUDA_X_INT8 ? W8A8_INT4 : W8A8_KIND_COUNT;
    case SW_CUDA_W_INT8: return x == SW_CUDA_X_INT8 ? W8A8_INT8 : W8A8_KIND_COUNT;
    case SW_CUDA_W_E4M3: return is_e4m3 ? W8A8_E4M3 : W8A8_KIND_COUNT;
    default: return W8A8_KIND_COUNT;
    }
}

extern "C" w8a8_kind sw_w8a8_instance_of(const sw_cuda_gemm *p)
{
    w8a8_kind kind = sw_w8a8_kind_of(p);

    return kind == W8A8_INT4 && p->tiles.spec.is_symmetric ? W8A8_INT4_SYM : kind;
}

extern "C" bool sw_w8a8_is_grouped(const sw_cuda_gemm *p)
{
    return p->tiles.n_groups > 1 || p->act.scope == SW_ACT_GROUP;
}

extern "C" w8a8_mode sw_w8a8_mode_of(const sw_cuda_gemm *p)
{
    if (p->act.scope == SW_ACT_GROUP)
        return p->tiles.in_columns && sw_cuda_has_blocks(&p->tiles) ? W8A8_X_BLOCKS : W8A8_X_GROUPS;
    return sw_w8a8_is_grouped(p) || (sw_w8a8_kind_of(p) == W8A8_INT8 && !p->tiles.in_columns)
               ? W8A8_GROUPED
               : W8A8_PLAIN;
}

static const w8a8_kernel *kernel_of(const sw_cuda_gemm *p, int tile)
{
    switch (sw_w8a8_instance_of(p)) {
#define SW_W8A8_KIND_ROW(kind, name)                                                               \
    case kind:                                                                                     \
        return sw_w8a8_split_k_##name(tile, sw_w8a8_mode_of(p));
#include "kernels/cuda/gemm/quantized_input/w8a8_kinds.def"
#undef SW_W8A8_KIND_ROW
    default: return NULL;
    }
}

extern "C" bool sw_w8a8_can_run(const sw_cuda_gemm *p, int tile)
{
    w8a8_kind kind = sw_w8a8_kind_of(p);

    (void)tile;
    if (kind == W8A8_KIND_COUNT || p->tiles.spec.group_elems % SW_W8A8_STAGE_K) return false;
    if (sw_column_tiles_are_experts(&p->tiles)) return false;
    if (kind == W8A8_E4M3 || kind == W8A8_INT4_E4M3) return true;
    if (sw_w8a8_mode_of(p) == W8A8_PLAIN) return p->tiles.k_in <= SW_W8A8_INTEGER_K_MAX;
    return kind == W8A8_INT4 || p->tiles.spec.is_symmetric;
}

#define MANY_WEIGHTS (1ll << 26)

/* Of int4 with inputs in int8 mma_sync is ahead for one token, where k is long and there are many
 * weights, by 6 to 14 % of four products on an H200; of 4 tokens and more it is not. */
extern "C" bool sw_w8a8_suits(const sw_cuda_gemm *p, const sw_cuda_device *device,
                              sw_cuda_counted *counted)
{
    (void)device;
    (void)counted;
    return p->m > 1 || sw_w8a8_kind_of(p) != W8A8_INT4 || p->tiles.k_in < 8192 ||
           p->tiles.k_in * p->tiles.n_out < MANY_WEIGHTS;
}

static int64_t blocks_of(const sw_cuda_gemm *p, int tile)
{
    const sw_cuda_tile *t = &sw_w8a8_tiles[tile];

    return sw_cuda_up(p->tiles.n_out, t->n_channels) * sw_cuda_up(p->m, t->n_tokens);
}

/* Of up to 32 tokens, the best of those measured on an H200: all of a CTA's shared memory for one,
 * or for two where there are more blocks of channels than multiprocessors. */
static int tile_of_few(const sw_cuda_gemm *p, const sw_cuda_device *device)
{
    static const char *const names[][2] = {{"t16_deep", "t16_c128"}, {"t32_deep", "t32_c128"}};
    const char *const *name = names[p->m > 16];
    int deep = sw_cuda_tile_named(sw_w8a8_tiles, sw_w8a8_n_tiles, name[0]);

    if (blocks_of(p, deep) <= device->n_sms) return deep;
    return sw_cuda_tile_named(sw_w8a8_tiles, sw_w8a8_n_tiles, name[1]);
}

/* Of few tokens k is split as long as it shortens the longest run of stages on a multiprocessor;
 * clusters of more than two cost some stages more to add up. */
extern "C" void sw_w8a8_plan(sw_cuda_plan *out, const sw_cuda_gemm *p, const sw_cuda_device *device,
                             sw_cuda_counted *counted)
{
    int64_t best = INT64_MAX, stages = sw_cuda_up(p->tiles.k_in, SW_W8A8_STAGE_K);

    if (sw_w8a8_is_counted(p)) {
        sw_w8a8_count_plan(out, p, device, "w8a8_split_k", counted);
        return;
    }
    *out = {0, tile_of_few(p, device), 1, *device, true, true};
    for (int s = 1; s <= 8 && s <= stages; s++) {
        int64_t slots = s <= 2 ? device->n_sms : device->n_sms - device->n_sms / 7;
        int64_t waves = sw_cuda_up(blocks_of(p, out->tile) * s, slots);
        int64_t cost =
            waves * (sw_cuda_up(stages, s) + 6 + sw_w8a8_tiles[out->tile].n_tokens / 16) +
            (s > 2 ? 6 : 0);

        if (cost < best) best = cost, out->split = s;
    }
}

extern "C" size_t sw_w8a8_workspace_bytes(const sw_cuda_gemm *p, const sw_cuda_plan *plan)
{
    (void)p;
    (void)plan;
    return 0;
}

extern "C" w8a8_args sw_w8a8_args_of(const sw_cuda_gemm *p, int split)
{
    const sw_tiles *t = &p->tiles;
    w8a8_args a = {};

    a.codes = t->codes;
    a.scales = (const uint8_t *)t->scales;
    a.zeros = t->spec.is_symmetric ? NULL : t->zeros;
    a.x_scales = p->x_codes.d_scales;
    a.x_sums = p->x_codes.d_sums;
    a.y = (uint16_t *)p->d_y;
    a.y_stride = p->y_stride;
    a.m = (int)p->m;
    a.n_out = (int)t->n_out;
    a.n_tiles = (int)sw_tiles_n(t->n_out);
    a.k_tiles = (int)sw_tiles_k(t->k_in);
    a.n_groups = (int)t->n_groups;
    a.group_stages = t->n_groups > 1 ? (int)(t->spec.group_elems / SW_W8A8_STAGE_K) : 0;
    a.scale_bytes = t->spec.scale_dtype == SW_DTYPE_F32 ? 4 : 2;
    a.record_bytes = SW_W8A8_RECORD_BYTES;
    a.zero_none = t->spec.num->sym_zero;
    a.split = split;
    a.gate_tiles = p->glu.is_wanted ? a.n_tiles / 2 : 0;
    a.glu_act = p->glu.act;
    a.glu_limit = p->glu.limit;
    a.scales_are_bf16 = t->spec.scale_dtype == SW_DTYPE_BF16;
    a.y_is_bf16 = p->dtype == SW_DTYPE_BF16;
    a.y_is_aligned = ((uintptr_t)p->d_y | (uintptr_t)(p->y_stride * 2)) % 16 == 0;
    a.has_x_groups = p->act.scope == SW_ACT_GROUP;
    a.in_columns = t->in_columns;
    return a;
}

extern "C" sw_code sw_w8a8_map_x(CUtensorMap *map, const sw_cuda_gemm *p, int n_tokens, sw_err *err)
{
    int64_t stride = sw_cuda_codes_stride(p->tiles.k_in);

    return sw_tensor_map_2d(map, p->x_codes.d_codes, 1, stride, p->m, stride, 128, n_tokens, err);
}

extern "C" sw_code sw_w8a8_map_weights(w8a8_maps *maps, const sw_cuda_gemm *p, int box_tiles,
                                       bool has_records, sw_err *err)
{
    const sw_tiles *t = &p->tiles;
    int64_t n_tiles = sw_tiles_n(t->n_out);
    int blocks = t->container_bits / 4;
    int scale_bytes = t->spec.scale_dtype == SW_DTYPE_F32 ? 4 : 2;
    sw_code rc = sw_tensor_map_3d(&maps->codes, t->codes, 8, SW_W8A8_BLOCK_BYTES / 8,
                                  sw_tiles_k(t->k_in) * blocks, n_tiles, 2 * blocks, box_tiles,
                                  err);

    if (!rc && has_records)
        rc = sw_tensor_map_3d(&maps->scales, t->scales, scale_bytes, 64, t->n_groups, n_tiles, 1,
                              box_tiles, err);
    if (!rc && has_records && !t->spec.is_symmetric)
        rc = sw_tensor_map_3d(&maps->zeros, t->zeros, 1, 64, t->n_groups, n_tiles, 1, box_tiles,
                              err);
    return rc;
}

extern "C" sw_code sw_w8a8_map(w8a8_maps *maps, const sw_cuda_gemm *p, int box_tokens,
                               int box_tiles, sw_err *err)
{
    bool has_records = sw_w8a8_mode_of(p) != W8A8_PLAIN;
    sw_code rc = sw_w8a8_map_x(&maps->x, p, box_tokens, err);

    return rc ? rc : sw_w8a8_map_weights(maps, p, box_tiles, has_records, err);
}

extern "C" sw_code sw_w8a8_start(const w8a8_kernel *kernel, const char *name, int n_ctas,
                                 int cluster, bool overlaps, void **params, void *stream,
                                 sw_err *err)
{
    cudaLaunchAttribute attrs[2] = {};
    cudaLaunchConfig_t config = {};
    sw_code rc = sw_cuda_check(cudaFuncSetAttribute(kernel->entry,
                                                    cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                    kernel->shared_bytes), name, err);

    if (rc) return rc;
    attrs[0].id = cudaLaunchAttributeClusterDimension;
    attrs[0].val.clusterDim = {(unsigned)cluster, 1, 1};
    attrs[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attrs[1].val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = dim3((unsigned)n_ctas);
    config.blockDim = dim3((unsigned)kernel->n_threads);
    config.dynamicSmemBytes = (size_t)kernel->shared_bytes;
    config.stream = (cudaStream_t)stream;
    config.attrs = attrs;
    config.numAttrs = overlaps ? 2 : 1;
    return sw_cuda_check(cudaLaunchKernelExC(&config, kernel->entry, params), name, err);
}

extern "C" sw_code sw_w8a8_launch(const sw_cuda_gemm *p, const w8a8_kernel *kernel,
                                  const char *name, int n_blocks, int cluster, bool overlap,
                                  const w8a8_args *args, int n_tokens, void *stream, sw_err *err)
{
    CUtensorMap map;
    void *params[] = {&map, (void *)args};
    sw_code rc = sw_w8a8_map_x(&map, p, n_tokens, err);

    if (rc) return rc;
    return sw_w8a8_start(kernel, name, n_blocks, cluster, p->may_overlap && overlap, params, stream,
                         err);
}

/* CTAs in all. Where two fit a multiprocessor and the next call may begin beside this one, as many
 * as there are multiprocessors: on those left empty it would put two of its own, and wait for them.
 */
static int n_ctas_of(const sw_cuda_gemm *p, const sw_cuda_plan *plan)
{
    int64_t n = blocks_of(p, plan->tile) * plan->split;
    int64_t all = plan->device.n_sms / plan->split * plan->split;

    if (p->may_overlap && plan->overlap && sw_w8a8_tiles[plan->tile].per_sm > 1 && n < all &&
        n * 4 > all * 3)
        n = all;
    return (int)n;
}

extern "C" sw_code sw_w8a8_run(const sw_cuda_gemm *p, const sw_cuda_plan *plan, void *d_workspace,
                               void *stream, sw_err *err)
{
    const sw_cuda_tile *tile = &sw_w8a8_tiles[plan->tile];
    w8a8_args args = sw_w8a8_args_of(p, plan->split);
    w8a8_maps maps = {};
    void *params[] = {&maps, &args};
    sw_code rc;

    (void)d_workspace;
    args.x_rows = sw_cuda_x_rows(p, tile);
    rc = sw_w8a8_map(&maps, p, args.x_rows, tile->n_channels / 64, err);
    if (rc) return rc;
    args.record_bytes = 64 * args.scale_bytes; /* a box has no gaps */
    return sw_w8a8_start(kernel_of(p, plan->tile), tile->name, n_ctas_of(p, plan), plan->split,
                         p->may_overlap && plan->overlap, params, stream, err);
}
