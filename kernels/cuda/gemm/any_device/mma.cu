/* mma.cu - plan and launch the mma.sync kernels: the row of the table that takes every format on
 * every device, and few tokens on all. */
#include <cuda_runtime.h>

#include "kernels/cuda/gemm/any_device/mma_args.h"
#include "kernels/cuda/gemm/gemm_rows.h"

typedef struct mma_shape {
    int t, ct, depth, warps, tiles;
} mma_shape;

static const mma_shape shapes[] = {
#define SW_MMA_TILE(name, T, CT, DEPTH, WARPS, TILES) {T, CT, DEPTH, WARPS, TILES},
#include "kernels/cuda/gemm/any_device/mma_tiles.def"
#undef SW_MMA_TILE
};
extern "C" const sw_cuda_tile sw_mma_tiles[] = {
#define SW_MMA_TILE(name, T, CT, DEPTH, WARPS, TILES) {#name, T, 64 * TILES, DEPTH, 2, false},
#include "kernels/cuda/gemm/any_device/mma_tiles.def"
#undef SW_MMA_TILE
};
extern "C" const int sw_mma_n_tiles = (int)(sizeof sw_mma_tiles / sizeof *sw_mma_tiles);

#define X_BYTES_MAX (72 << 10) /* of X in shared memory at a time */
#define X_BYTES_MIN (16 << 10)
#define INTEGER_K_MAX 131072   /* sums of 128 * 127 that fit 32 bits */

static mma_kind kind_of(const sw_cuda_gemm *p)
{
    static const mma_kind by_weights[][2] = {
        {MMA_INT4_FLOAT, MMA_INT4_INT8},
        {MMA_INT8_FLOAT, MMA_INT8_INT8},
        {MMA_E4M3_FLOAT, MMA_KIND_COUNT},
    };
    sw_cuda_weights w = sw_cuda_weights_of(&p->tiles);

    if (w > SW_CUDA_W_E4M3) return MMA_KIND_COUNT;
    return by_weights[w][sw_cuda_inputs_of(&p->act) == SW_CUDA_X_INT8];
}

static int unit_k_of(const sw_cuda_gemm *p) { return p->tiles.container_bits == 4 ? 128 : 64; }

/* Bytes of an input where the products read it. */
static int input_bytes(mma_kind kind)
{
    return kind == MMA_INT4_INT8 || kind == MMA_INT8_INT8 ? 1 : 2;
}

extern "C" bool sw_mma_can_run(const sw_cuda_gemm *p, int tile)
{
    mma_kind kind = kind_of(p);
    bool is_asymmetric = !p->tiles.spec.is_symmetric, has_groups = p->tiles.n_groups > 1;

    (void)tile;
    if (p->tiles.in_columns || p->tiles.is_sign_magnitude || kind == MMA_KIND_COUNT ||
        sw_cuda_inputs_of(&p->act) == SW_CUDA_X_NONE)
        return false;
    if (kind == MMA_INT8_INT8 && is_asymmetric && has_groups) return false;
    return input_bytes(kind) == 2 || has_groups || p->tiles.k_in <= INTEGER_K_MAX;
}

/* Clusters and early starts are in the code for sm_90 alone. */
static bool has_clusters(const sw_cuda_device *device) { return device->sm == 90; }

/* Above so many tokens the wgmma kernels are faster where they run (tests/bench/h200-*.csv). */
extern "C" bool sw_mma_suits(const sw_cuda_gemm *p, const sw_cuda_device *device,
                             sw_cuda_counted *counted)
{
    (void)counted;
    return !has_clusters(device) || p->m <= 8;
}

/* What a CTA can have of shared memory. */
static int shared_max(const sw_cuda_device *device)
{
    if (device->sm >= 90) return 227 << 10;
    return device->sm == 80 || device->sm == 87 ? 163 << 10 : 99 << 10;
}

typedef struct layout {
    int64_t blocks, token_blocks;
    int warps, chunk_units, x_pitch, x_bytes, slot_bytes, unit_groups, shared_bytes;
} layout;

static int slot_bytes_of(const sw_cuda_gemm *p, int ct, int unit_groups)
{
    const sw_qspec *spec = &p->tiles.spec;
    int per_group = (spec->scale_dtype == SW_DTYPE_F32 ? 256 : 128) +
                    (spec->is_symmetric ? 0 : 128);

    return ct * (1024 + (p->tiles.n_groups > 1 ? unit_groups * per_group : 0));
}

static int64_t blocks_of(const sw_cuda_gemm *p, const mma_shape *s, int64_t clusters)
{
    int64_t n_tiles = sw_tiles_n(p->tiles.n_out), blocks = sw_cuda_up(n_tiles, s->tiles);

    if (blocks >= clusters) return blocks;
    return n_tiles < clusters ? n_tiles : clusters; /* all multiprocessors, if there are tiles */
}

static layout layout_of(const sw_cuda_gemm *p, int tile, int split, const sw_cuda_device *device)
{
    const mma_shape *s = &shapes[tile];
    int64_t rows = p->m < s->t ? p->m : s->t, group = p->tiles.spec.group_elems, run, most;
    int unit_k = unit_k_of(p), unit_x = unit_k * input_bytes(kind_of(p)), slices, partial, ring, x;
    layout l = {};

    l.blocks = blocks_of(p, s, device->n_sms / split);
    l.token_blocks = sw_cuda_up(p->m, s->t);
    l.warps = s->warps;
    l.unit_groups = group && group < unit_k ? (int)(unit_k / group) : 1;
    l.slot_bytes = slot_bytes_of(p, s->ct, l.unit_groups);
    ring = s->depth * l.warps * l.slot_bytes;
    while (ring + X_BYTES_MIN > shared_max(device) && l.warps / 2 >= 4 * s->tiles / s->ct)
        ring = s->depth * (l.warps /= 2) * l.slot_bytes;
    slices = l.warps * s->ct / (4 * s->tiles);
    partial = l.warps * s->ct * 16 * s->t * 4;
    if (ring < partial) ring = partial;
    x = shared_max(device) - ring - 1024 < X_BYTES_MAX
        ? shared_max(device) - ring - 1024 : X_BYTES_MAX;
    run = sw_cuda_up(sw_cuda_up(p->tiles.k_in, unit_k), split);
    most = (x / rows - 64) / unit_x / slices * slices;
    if (most < slices) most = slices;
    l.chunk_units = (int)(run < most ? run : most);
    l.x_pitch = l.chunk_units * unit_x;
    if (l.x_pitch % 128 == 0) l.x_pitch += 64;
    l.x_bytes = ((int)rows * l.x_pitch + 127) / 128 * 128;
    l.shared_bytes = ring + l.x_bytes;
    return l;
}

/* The best of those measured on an H200 (tests/bench/h200-*.csv): tiles for up to so many tokens,
 * and how many CTAs a multiprocessor is to have. */
static const struct {
    int64_t m_max;
    const char *w4a16, *other, *old_device;
    int per_sm_w4a16, per_sm_other;
} tile_by_m[] = {
    {4, "t8_c128", "t8_c64", "t8_c64", 1, 2},
    {8, "t8_c128", "t8_c256", "t8_c64", 1, 2},
    {16, "t16_c256", "t16_c256", "t16_c64", 2, 2},
    {INT64_MAX, "t32_c128", "t32_c128", "t32_c128", 1, 1},
};

/* Where measuring found better than the rule below, of 4-bit weights and 16-bit inputs. */
static const sw_cuda_measured measured[] = {
    {4096, 4096, 4, "t8_c128", 2},  {4096, 4096, 8, "t8_c128", 6},
    {4096, 6144, 8, "t8_c128", 2},  {4096, 28672, 4, "t8_c256", 1},
    {4096, 28672, 8, "t8_c256", 2}, {14336, 4096, 8, "t8_c128", 7},
    {8192, 10240, 4, "t8_c256", 2}, {8192, 10240, 8, "t8_c256", 5},
    {8192, 57344, 4, "t8_c64", 1},  {8192, 57344, 8, "t8_c256", 1},
    {28672, 8192, 4, "t8_c256", 2}, {28672, 8192, 8, "t8_c128", 2},
};

static int tile_named(const char *name)
{
    return sw_cuda_tile_named(sw_mma_tiles, sw_mma_n_tiles, name);
}

/* Share k among as many CTAs as it takes to fill the device; clusters of 3 to 8 can use about 6
 * places in 7, since each must lie in one GPC. */
extern "C" void sw_mma_plan(sw_cuda_plan *out, const sw_cuda_gemm *p, const sw_cuda_device *device,
                            sw_cuda_counted *counted)
{
    bool is_w4a16 = kind_of(p) == MMA_INT4_FLOAT;
    int64_t places, blocks, split;
    int row = 0;

    (void)counted;
    while (p->m > tile_by_m[row].m_max) row++;
    *out = {0, tile_named(tile_by_m[row].old_device), 1, *device, false};
    if (!has_clusters(device)) return;
    for (const sw_cuda_measured &e : measured)
        if (is_w4a16 && e.k == p->tiles.k_in && e.n == p->tiles.n_out && p->m <= e.m_max) {
            *out = {0, tile_named(e.tile), e.split, *device, true};
            return;
        }
    out->tile = tile_named(is_w4a16 ? tile_by_m[row].w4a16 : tile_by_m[row].other);
    out->overlap = true;
    places = device->n_sms * (is_w4a16 ? tile_by_m[row].per_sm_w4a16 : tile_by_m[row].per_sm_other);
    blocks = sw_cuda_up(sw_tiles_n(p->tiles.n_out), shapes[out->tile].tiles) *
             sw_cuda_up(p->m, shapes[out->tile].t);
    split = places / blocks;
    if (split > 2) split = places * 6 / 7 / blocks;
    out->split = split < 1 ? 1 : split > 8 ? 8 : (int)split;
}

extern "C" size_t sw_mma_workspace_bytes(const sw_cuda_gemm *p, const sw_cuda_plan *plan)
{
    (void)p;
    (void)plan;
    return 0;
}

static void fill_weights(mma_args *a, const sw_cuda_gemm *p, const layout *l)
{
    const sw_tiles *t = &p->tiles;
    mma_kind kind = kind_of(p);
    int64_t units = t->spec.group_elems / unit_k_of(p);
    bool is_integer = input_bytes(kind) == 1;

    a->codes = t->codes;
    a->scales = (const uint8_t *)t->scales;
    a->zeros = t->spec.is_symmetric ? NULL : t->zeros;
    a->n_out = (int)t->n_out;
    a->k_in = (int)t->k_in;
    a->n_tiles = (int)sw_tiles_n(t->n_out);
    a->k_tiles = (int)sw_tiles_k(t->k_in);
    a->tile_bytes = (int)sw_tile_bytes(t->container_bits);
    a->n_groups = (int)t->n_groups;
    a->unit_groups = l->unit_groups;
    a->whole_units = (int)(a->k_tiles * sw_tile_bytes(t->container_bits) / 4096);
    a->has_groups = t->n_groups > 1;
    a->group_magic = units > 1 ? (uint32_t)(((1ull << 32) + (uint64_t)units - 1) / (uint64_t)units)
                               : 0;
    a->zero_none = t->spec.num->sym_zero;
    a->closes_units = a->has_groups || p->act.scope == SW_ACT_GROUP || kind == MMA_INT4_FLOAT ||
                      (a->zeros && !is_integer);
    a->is_plain = !a->zeros && a->whole_units * unit_k_of(p) == a->k_tiles * 64 &&
                  p->act.scope != SW_ACT_GROUP &&
                  (!a->has_groups || (t->spec.group_elems == unit_k_of(p) &&
                                      t->spec.scale_dtype != SW_DTYPE_F32));
    a->scale_bytes = t->spec.scale_dtype == SW_DTYPE_F32 ? 4 : 2;
    a->scales_are_bf16 = t->spec.scale_dtype == SW_DTYPE_BF16;
}

static mma_args args_of(const sw_cuda_gemm *p, const layout *l, int tile, bool is_bf16)
{
    mma_args a = {};
    bool is_float = input_bytes(kind_of(p)) == 2;

    fill_weights(&a, p, l);
    a.x_is_codes = p->act.scope != SW_ACT_NONE;
    a.x = a.x_is_codes ? p->x_codes.d_codes : (const uint8_t *)p->d_x;
    a.x_stride = a.x_is_codes ? sw_cuda_codes_stride(p->tiles.k_in) : p->x_stride * 2;
    a.x_is_aligned = ((uintptr_t)a.x | (uintptr_t)a.x_stride) % 16 == 0;
    a.x_scales = a.x_is_codes ? p->x_codes.d_scales : NULL;
    a.x_sums = p->x_codes.d_sums;
    a.has_x_groups = p->act.scope == SW_ACT_GROUP;
    a.y = (uint16_t *)p->d_y;
    a.y_stride = p->y_stride;
    a.y_is_aligned = ((uintptr_t)p->d_y | (uintptr_t)(p->y_stride * 2)) % 4 == 0;
    a.y_is_bf16 = p->dtype == SW_DTYPE_BF16;
    a.m = (int)p->m;
    a.chunk_units = l->chunk_units;
    a.x_pitch = l->x_pitch;
    a.x_bytes = l->x_bytes;
    a.slot_bytes = l->slot_bytes;
    a.fold = (is_float && a.x_is_codes ? 256.0f : 1.0f) *
             (kind_of(p) == MMA_E4M3_FLOAT && !is_bf16 ? 256.0f : 1.0f);
    return a;
}

static const mma_kernel *kernel_of(const sw_cuda_gemm *p, int tile, bool is_bf16)
{
    switch (kind_of(p)) {
    case MMA_INT4_FLOAT: return sw_mma_kernel_int4(tile, is_bf16);
    case MMA_INT8_FLOAT: return sw_mma_kernel_int8(tile, is_bf16);
    case MMA_E4M3_FLOAT: return sw_mma_kernel_e4m3(tile, is_bf16);
    default: return sw_mma_kernel_integer(tile, kind_of(p) == MMA_INT8_INT8);
    }
}

extern "C" sw_code sw_mma_run(const sw_cuda_gemm *p, const sw_cuda_plan *plan, void *d_workspace,
                              void *stream, sw_err *err)
{
    /* codes of E4M3 are f16 to the products */
    bool is_bf16 = p->dtype == SW_DTYPE_BF16 && p->act.scope == SW_ACT_NONE;
    layout l = layout_of(p, plan->tile, plan->split, &plan->device);
    const mma_kernel *k = kernel_of(p, plan->tile, is_bf16);
    mma_args args = args_of(p, &l, plan->tile, is_bf16);
    void *params[] = {&args};
    cudaLaunchAttribute attrs[2] = {};
    cudaLaunchConfig_t config = {};
    sw_code rc;

    (void)d_workspace;
    config.gridDim = dim3((unsigned)(l.blocks * plan->split), (unsigned)l.token_blocks);
    config.blockDim = dim3((unsigned)l.warps * 32);
    config.dynamicSmemBytes = (size_t)l.shared_bytes;
    config.stream = (cudaStream_t)stream;
    config.attrs = attrs;
    if (plan->split > 1) {
        attrs[config.numAttrs].id = cudaLaunchAttributeClusterDimension;
        attrs[config.numAttrs++].val.clusterDim = {(unsigned)plan->split, 1, 1};
    }
    if (p->may_overlap && plan->overlap) {
        attrs[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attrs[config.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
    }
    rc = sw_cuda_check(cudaFuncSetAttribute(k->entry, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                            l.shared_bytes),
                       sw_mma_tiles[plan->tile].name, err);
    if (rc) return rc;
    return sw_cuda_check(cudaLaunchKernelExC(&config, k->entry, params),
                         sw_mma_tiles[plan->tile].name, err);
}
