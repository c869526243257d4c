/* weight_only_run.cu - what the kernels of weights in 2 to 8 bits and 16-bit inputs share on the
 * host: how far k is split, X where the copy engine can take it, descriptions of the arrays, the
 * launch. */
#include <cuda_runtime.h>

#include "kernels/cuda/gemm/tensor_map.cuh"
#include "kernels/cuda/gemm/weight_only/weight_only_kernels.h"

extern "C" int sw_weight_only_bits_of(const sw_tiles *tiles)
{
    sw_cuda_weights w = sw_cuda_weights_of(tiles);

    return w == SW_CUDA_W_INT4 ? 4 : w == SW_CUDA_W_INT3 ? 3 : w == SW_CUDA_W_INT2 ? 2 : 0;
}

extern "C" int sw_weight_only_cut_of(const sw_tiles *tiles)
{
    int64_t group = tiles->spec.group_elems;

    if (group % SW_WEIGHT_ONLY_STAGE_K == 0) return 0;
    return group == 64 ? 1 : group == 32 ? 2 : -1;
}

extern "C" bool sw_weight_only_is_fused(const sw_cuda_gemm *p)
{
    const sw_tiles *t = &p->tiles;

    return sw_cuda_weights_of(t) == SW_CUDA_W_INT4 && t->spec.is_symmetric &&
           t->has_usual_scales && t->spec.scale_dtype == SW_DTYPE_BF16 &&
           p->dtype == SW_DTYPE_BF16;
}

/* A CTA costs some stages beside its own, more with more tokens to add up and store; of the slots,
 * clusters of more than two can use about 6 in 7, since each must lie in one GPC. */
extern "C" int sw_weight_only_split_for(const sw_cuda_tile *tile, const sw_cuda_gemm *p,
                                        const sw_cuda_device *device)
{
    int64_t best = INT64_MAX, slots = (int64_t)device->n_sms * tile->per_sm;
    int64_t n_stages = sw_cuda_up(p->tiles.k_in, SW_WEIGHT_ONLY_STAGE_K);
    int64_t n_blocks =
        sw_cuda_up(p->tiles.n_out, tile->n_channels) * sw_cuda_up(p->m, tile->n_tokens);
    int split = 1;

    for (int s = 1; s <= 8 && s <= n_stages; s++) {
        int64_t usable = s <= 2 ? slots : slots - slots / 7;
        int64_t cost = sw_cuda_up(n_blocks * s, usable) *
                       (sw_cuda_up(n_stages, s) + 4 + tile->n_tokens / 16);

        if (cost < best) best = cost, split = s;
    }
    return split;
}

/* The copy engine wants rows that start at multiples of 16 bytes. */
static bool x_is_aligned(const sw_cuda_gemm *p)
{
    return (uintptr_t)p->d_x % 16 == 0 && p->x_stride % 8 == 0;
}

static int64_t padded_k(const sw_cuda_gemm *p) { return sw_cuda_up(p->tiles.k_in, 8) * 8; }

extern "C" size_t sw_weight_only_workspace_bytes(const sw_cuda_gemm *p)
{
    return x_is_aligned(p) ? 0 : (size_t)(p->m * padded_k(p)) * 2;
}

/* grid (tokens), any block: one row of X to where its pitch is a multiple of 16 bytes. */
__global__ void swk_weight_only_realign_x(uint16_t *to, int64_t to_stride, const uint16_t *from,
                                          int64_t from_stride, int64_t k_in)
{
    int64_t row = blockIdx.x;

    for (int64_t k = threadIdx.x; k < to_stride; k += blockDim.x)
        to[row * to_stride + k] = k < k_in ? from[row * from_stride + k] : 0;
}

extern "C" nw_args sw_weight_only_args_of(const sw_cuda_gemm *p)
{
    const sw_tiles *t = &p->tiles;
    nw_args a = {};

    a.scales = (const uint8_t *)t->scales;
    a.y = (uint16_t *)p->d_y;
    a.y_stride = p->y_stride;
    a.n_tokens = (int)p->m;
    a.n_out = (int)t->n_out;
    a.n_tiles = (int)sw_tiles_n(t->n_out);
    a.k_tiles = (int)sw_tiles_k(t->k_in);
    a.group_stages = (int)(t->spec.group_elems / SW_WEIGHT_ONLY_STAGE_K);
    a.scale_bytes = t->spec.scale_dtype == SW_DTYPE_F32 ? 4 : 2;
    a.scales_are_bf16 = t->spec.scale_dtype == SW_DTYPE_BF16;
    a.has_gates = p->glu.is_wanted;
    a.glu_act = p->glu.act;
    a.glu_limit = p->glu.limit;
    a.y_is_aligned = (uintptr_t)p->d_y % 16 == 0 && p->y_stride % 8 == 0;
    return a;
}

extern "C" sw_code sw_weight_only_map_weights(nw_maps *maps, const sw_cuda_gemm *p, int box_tiles,
                                              sw_err *err)
{
    const sw_tiles *t = &p->tiles;
    int64_t n_tiles = sw_tiles_n(t->n_out), group = t->spec.group_elems;
    int tile_blocks = t->container_bits == 8 ? 2 : 1;
    int64_t block_bytes = sw_tile_bytes(t->container_bits) / tile_blocks;
    int scale_bytes = t->spec.scale_dtype == SW_DTYPE_F32 ? 4 : 2;
    int groups =
        group && group < SW_WEIGHT_ONLY_STAGE_K ? (int)(SW_WEIGHT_ONLY_STAGE_K / group) : 1;
    sw_code (*map)(CUtensorMap *map, const void *d_start, int elem_bytes, int64_t cols,
                   int64_t rows, int64_t planes, int box_rows, int box_planes, sw_err *err) =
        p->glu.is_wanted ? sw_tensor_map_halves : sw_tensor_map_3d;
    sw_code rc = map(&maps->codes, t->codes, 8, block_bytes / 8, sw_tiles_k(t->k_in) * tile_blocks,
                     n_tiles, SW_WEIGHT_ONLY_STAGE_K / 64 * tile_blocks, box_tiles, err);

    if (!rc)
        rc = map(&maps->scales, t->scales, scale_bytes, 64, t->n_groups, n_tiles, groups,
                 box_tiles, err);
    if (!rc && !t->spec.is_symmetric)
        rc = map(&maps->zeros, t->zeros, 1, 64, t->n_groups, n_tiles, groups, box_tiles, err);
    return rc;
}

/* CTAs in all. Where the next call may begin beside this one, and these would leave a few
 * multiprocessors empty, it would put two of its own on those, and wait for them: so there are as
 * many as there are multiprocessors, and those without work keep their places. */
static int64_t n_ctas_of(int64_t n_ctas, const sw_cuda_plan *plan, const sw_cuda_tile *tile,
                         bool overlaps)
{
    int64_t all = plan->device.n_sms / plan->split * plan->split;

    return overlaps && tile->per_sm > 1 && n_ctas < all && n_ctas * 4 > all * 3 ? all : n_ctas;
}

static sw_code launch(const sw_cuda_gemm *p, const sw_cuda_plan *plan, const sw_cuda_tile *tile,
                      const nw_kernel *k, nw_maps *maps, int x_rows, void *stream, sw_err *err)
{
    int64_t blocks =
        sw_cuda_up(p->tiles.n_out, tile->n_channels) * sw_cuda_up(p->m, tile->n_tokens);
    bool overlaps = p->may_overlap && plan->overlap;
    nw_args args = sw_weight_only_args_of(p);
    void *params[] = {maps, &args};
    cudaLaunchAttribute attrs[2] = {};
    cudaLaunchConfig_t config = {};
    sw_code rc;

    args.split = plan->split;
    args.x_rows = x_rows;
    attrs[0].id = cudaLaunchAttributeClusterDimension;
    attrs[0].val.clusterDim.x = (unsigned)plan->split;
    attrs[0].val.clusterDim.y = attrs[0].val.clusterDim.z = 1;
    attrs[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attrs[1].val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = dim3((unsigned)n_ctas_of(blocks * plan->split, plan, tile, overlaps));
    config.blockDim = dim3((unsigned)k->n_threads);
    config.dynamicSmemBytes = (size_t)k->shared_bytes;
    config.stream = (cudaStream_t)stream;
    config.attrs = attrs;
    config.numAttrs = overlaps ? 2 : 1;
    rc = sw_cuda_check(cudaFuncSetAttribute(k->entry, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                         k->shared_bytes),
                    tile->name, err);
    if (rc) return rc;
    return sw_cuda_check(cudaLaunchKernelExC(&config, k->entry, params), tile->name, err);
}

extern "C" sw_code sw_weight_only_map_x(nw_maps *maps, const sw_cuda_gemm *p, int box_tokens,
                                        void *d_workspace, void *stream, sw_err *err)
{
    sw_code rc = SW_OK;
    const void *d_x = p->d_x;
    int64_t x_stride = p->x_stride;

    if (!x_is_aligned(p)) {
        x_stride = padded_k(p);
        swk_weight_only_realign_x<<<(unsigned)p->m, 256, 0, (cudaStream_t)stream>>>(
            (uint16_t *)d_workspace, x_stride, (const uint16_t *)p->d_x, p->x_stride,
            p->tiles.k_in);
        rc = sw_cuda_check(cudaGetLastError(), "swk_weight_only_realign_x", err);
        d_x = d_workspace;
    }
    return rc ? rc
              : sw_tensor_map_2d(&maps->x, d_x, 2, p->tiles.k_in, p->m, x_stride, 64, box_tokens,
                                 err);
}

extern "C" sw_code sw_weight_only_run(const sw_cuda_gemm *p, const sw_cuda_plan *plan,
                                      const sw_cuda_tile *tile, const nw_kernel *kernel,
                                      void *d_workspace, void *stream, sw_err *err)
{
    nw_maps maps = {};
    int x_rows = sw_cuda_x_rows(p, tile);
    sw_code rc = sw_weight_only_map_x(&maps, p, x_rows, d_workspace, stream, err);

    if (!rc) rc = sw_weight_only_map_weights(&maps, p, tile->n_channels / 64, err);
    return rc ? rc : launch(p, plan, tile, kernel, &maps, x_rows, stream, err);
}
