/* w8a8_persistent.cu - plan and launch the kernels of 8-bit inputs for many tokens: a row of the
 * table. */
#include <cuda_runtime.h>

#include "kernels/cuda/gemm/quantized_input/w8a8_count.h"
#include "kernels/cuda/gemm/quantized_input/w8a8_rows.h"
#include "kernels/cuda/gemm/tensor_map.cuh"
#include "kernels/cuda/runtime/cuda_check.h"

#define N_TOKENS 256 /* of a block of Y, as w8a8_persistent.cuh has it */
#define N_CHANNELS 128

extern "C" const sw_cuda_tile sw_w8a8_persistent_tiles[] = {
    {"t256_c128", N_TOKENS, N_CHANNELS, 4, 1, false},
};
extern "C" const int sw_w8a8_persistent_n_tiles =
    (int)(sizeof sw_w8a8_persistent_tiles / sizeof *sw_w8a8_persistent_tiles);

/* E4M3 by channel, whose products go on from block to block, has an even number of whole stages and
 * Y in lines of 16 bytes; scales of blocks have whole stages, such lines and codes in columns.
 * Other problems are taken for such with scales that change along k. */
static w8a8_mode mode_of(const sw_cuda_gemm *p)
{
    bool is_aligned = ((uintptr_t)p->d_y | (uintptr_t)(p->y_stride * 2)) % 16 == 0;
    int64_t k_tiles = sw_tiles_k(p->tiles.k_in);
    w8a8_mode mode = sw_w8a8_mode_of(p);

    if (sw_w8a8_kind_of(p) != W8A8_E4M3) return mode;
    if (mode == W8A8_X_BLOCKS)
        return is_aligned && k_tiles % 2 == 0 ? mode : W8A8_X_GROUPS;
    return mode == W8A8_PLAIN && !(is_aligned && k_tiles % 4 == 0) ? W8A8_GROUPED : mode;
}

extern "C" w8a8_blocks sw_w8a8_persistent_blocks(const sw_cuda_gemm *p, int n_sms)
{
    const int cluster = SW_A8L_CTAS(sw_w8a8_kind_of(p), mode_of(p));
    w8a8_blocks b = {cluster};

    b.by_channel = sw_cuda_up(p->tiles.n_out, N_CHANNELS * cluster);
    b.by_token = sw_cuda_up(p->m, N_TOKENS);
    b.n_clusters = n_sms > cluster ? n_sms / cluster : 1;
    b.shared_stages = cluster == 1 ? 0 : sw_cuda_up(sw_tiles_k(p->tiles.k_in), 2);
    return b;
}

/* Of those the kernel's: int8 has tokens as rows where it has no zero points, whole stages and Y in
 * lines of 16 bytes. */
static w8a8_mode kernel_mode_of(const sw_cuda_gemm *p)
{
    bool is_aligned = ((uintptr_t)p->d_y | (uintptr_t)(p->y_stride * 2)) % 16 == 0;
    w8a8_mode mode = mode_of(p);

    return sw_w8a8_kind_of(p) == W8A8_INT8 && mode == W8A8_PLAIN && is_aligned &&
                   sw_tiles_k(p->tiles.k_in) % 2 == 0 && p->tiles.spec.is_symmetric
               ? W8A8_PLAIN_ROWS
               : mode;
}

static const w8a8_kernel *kernel_of(const sw_cuda_gemm *p, int tile)
{
    (void)tile;
    switch (sw_w8a8_instance_of(p)) {
#define SW_W8A8_KIND_ROW(kind, name)                                                               \
    case kind:                                                                                     \
        return sw_w8a8_persistent_##name(kernel_mode_of(p), p->dtype == SW_DTYPE_BF16);
#include "kernels/cuda/gemm/quantized_input/w8a8_kinds.def"
#undef SW_W8A8_KIND_ROW
    default: return NULL;
    }
}

extern "C" bool sw_w8a8_persistent_can_run(const sw_cuda_gemm *p, int tile)
{
    return sw_w8a8_can_run(p, 0) && kernel_of(p, tile);
}

extern "C" bool sw_w8a8_persistent_suits(const sw_cuda_gemm *p, const sw_cuda_device *device,
                                         sw_cuda_counted *counted)
{
    return sw_w8a8_count_suits(p, device, "w8a8_persistent", counted);
}

extern "C" void sw_w8a8_persistent_plan(sw_cuda_plan *out, const sw_cuda_gemm *p,
                                        const sw_cuda_device *device, sw_cuda_counted *counted)
{
    sw_w8a8_count_plan(out, p, device, "w8a8_persistent", counted);
}

extern "C" size_t sw_w8a8_persistent_workspace_bytes(const sw_cuda_gemm *p,
                                                     const sw_cuda_plan *plan)
{
    (void)p;
    (void)plan;
    return 0;
}

extern "C" w8a8_rounds sw_w8a8_rounds_of(int64_t n_blocks, int64_t n_clusters, int64_t n_stages)
{
    int64_t rest = n_blocks % n_clusters;
    bool shares = rest > 0 && 2 * rest <= n_clusters && n_stages % 2 == 0 &&
                  n_stages >= SW_W8A8_SHARED_STAGES_MIN;
    w8a8_rounds r;

    r.n_whole = n_blocks - (shares ? rest : 0);
    r.n_clusters = n_blocks + (shares ? rest : 0);
    if (r.n_clusters > n_clusters) r.n_clusters = n_clusters;
    return r;
}

/* Weights as the kernel's mode has them, which may have scales in groups of which there is one. */
static sw_code map_weights(a8l_maps *maps, const sw_cuda_gemm *p, const w8a8_args *args,
                           sw_err *err)
{
    w8a8_mode mode = kernel_mode_of(p);
    bool has_records = mode == W8A8_GROUPED || mode == W8A8_X_GROUPS;
    w8a8_maps boxes = {};
    sw_code rc;

    if (mode == W8A8_X_BLOCKS || mode == W8A8_PLAIN_ROWS)
        return sw_tensor_map_columns(&maps->w, args->codes, args->n_tiles, args->k_tiles,
                                     N_CHANNELS / 64, err);
    rc = sw_w8a8_map_weights(&boxes, p, N_CHANNELS / 64, has_records, err);
    maps->w = boxes.codes, maps->scales = boxes.scales, maps->zeros = boxes.zeros;
    return rc;
}

static sw_code map_all(a8l_maps *maps, const sw_cuda_gemm *p, const w8a8_args *args, int cluster,
                       sw_err *err)
{
    sw_code rc = sw_w8a8_map_x(&maps->x, p, args->x_rows / cluster, err);

    if (!rc) rc = map_weights(maps, p, args, err);
    if (rc || !args->y_is_aligned) return rc;
    return sw_tensor_map_2d(&maps->y, p->d_y, 2, args->n_out, p->m, p->y_stride, 64, 64, err);
}

extern "C" sw_code sw_w8a8_persistent_run(const sw_cuda_gemm *p, const sw_cuda_plan *plan,
                                          void *d_workspace, void *stream, sw_err *err)
{
    w8a8_args args = sw_w8a8_args_of(p, 1);
    const w8a8_blocks b = sw_w8a8_persistent_blocks(p, plan->device.n_sms);
    const int64_t n_blocks = b.by_channel * b.by_token;
    w8a8_rounds rounds = sw_w8a8_rounds_of(n_blocks, b.n_clusters, b.shared_stages);
    a8l_maps maps = {};
    void *params[] = {&maps, &args};
    sw_code rc;

    (void)d_workspace;
    args.x_rows = (int)sw_cuda_up(sw_cuda_x_rows(p, &sw_w8a8_persistent_tiles[0]), 16) * 16;
    args.record_bytes = 64 * args.scale_bytes; /* a box has no gaps */
    rc = map_all(&maps, p, &args, b.cluster, err);
    if (!rc && args.y_is_aligned)
        rc = sw_checked_fill(p->d_y, p->y_stride * 2, p->tiles.n_out * 2, p->m, stream, err);
    if (rc) return rc;
    args.grid = {(int)b.by_channel, (int)b.by_token, (int)rounds.n_whole,
                 (int)(rounds.n_whole + (n_blocks - rounds.n_whole) * b.cluster)};
    return sw_w8a8_start(kernel_of(p, plan->tile), sw_w8a8_persistent_tiles[plan->tile].name,
                         (int)rounds.n_clusters * b.cluster, b.cluster,
                         p->may_overlap && plan->overlap, params, stream, err);
}
