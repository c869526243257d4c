/* solver_pack.cu - codes, scales and zeros into Swage tiles on the device: the bytes of
 * sw_tiles_pack. See formats/pack/tiles.h for the order.
 */
#include "formats/pack/tiles.h"
#include "kernels/cuda/solver/solver_math.cuh"

typedef struct pack_args {
    const uint8_t *codes;
    const float *scales, *zeros;
    int64_t n_out, k_in, n_groups, group_elems;
    uint32_t sym_zero;
} pack_args;

/* Input K(c)[i] of a k-step. */
static __device__ int column_of(int c, int i) { return 2 * c + (i & 1) * 8 + i / 2; }

static __device__ uint32_t code_at(const pack_args *a, int64_t n, int64_t k)
{
    int64_t g = k / a->group_elems;

    if (n < a->n_out && k < a->k_in) return a->codes[n * a->k_in + k];
    if (!a->zeros || n >= a->n_out) return a->sym_zero;
    return (uint32_t)a->zeros[n * a->n_groups + (g < a->n_groups ? g : a->n_groups - 1)];
}

/* grid (k_tiles, n_tiles), 512 threads: a word each, of 4 codes of one channel and 4 of another. */
__global__ void swk_pack_4(uint32_t *tiles, pack_args a)
{
    int word = threadIdx.x, warp = word / 128, lane = word / 4 % 32, step = word % 4;
    int64_t tile = (int64_t)blockIdx.y * gridDim.x + blockIdx.x;
    int64_t n = (int64_t)blockIdx.y * 64 + 16 * warp + lane / 4;
    uint32_t v = 0;

    for (int i = 0; i < 4; i++) {
        int64_t k = (int64_t)blockIdx.x * 64 + 16 * step + column_of(lane % 4, i);
        v |= ((code_at(&a, n, k) & 15) | (code_at(&a, n + 8, k) << 4)) << (8 * i);
    }
    tiles[tile * 512 + word] = v;
}

/* grid (k_tiles, n_tiles), 1024 threads: a word each, of 4 codes of one channel. */
__global__ void swk_pack_8(uint32_t *tiles, pack_args a)
{
    int word = threadIdx.x, half = word / 512, warp = word / 128 % 4, lane = word / 4 % 32;
    int step = 2 * half + word / 2 % 2, upper = word % 2;
    int64_t tile = (int64_t)blockIdx.y * gridDim.x + blockIdx.x;
    int64_t n = (int64_t)blockIdx.y * 64 + 16 * warp + lane / 4 + 8 * upper;
    uint32_t v = 0;

    for (int i = 0; i < 4; i++) {
        int64_t k = (int64_t)blockIdx.x * 64 + 16 * step + column_of(lane % 4, i);
        v |= code_at(&a, n, k) << (8 * i);
    }
    tiles[tile * 1024 + word] = v;
}

/* grid (n_groups, n_tiles), 64 threads: a channel each. kind as in stored_scale. */
__global__ void swk_pack_scales(void *scales, uint8_t *zeros, pack_args a, int kind)
{
    int c = threadIdx.x, slot = 2 * (8 * (c / 16) + c % 8) + c % 16 / 8;
    int64_t n = (int64_t)blockIdx.y * 64 + c, g = blockIdx.x;
    int64_t at = ((int64_t)blockIdx.y * a.n_groups + g) * 64 + slot;
    float scale = n < a.n_out ? a.scales[n * a.n_groups + g] : 0.0f;

    if (kind == 0) ((float *)scales)[at] = scale;
    if (kind == 1) ((__half *)scales)[at] = __float2half_rn(scale);
    if (kind == 2) ((__nv_bfloat16 *)scales)[at] = __float2bfloat16_rn(scale);
    if (zeros)
        zeros[at] = (uint8_t)(n < a.n_out ? (uint32_t)a.zeros[n * a.n_groups + g] : a.sym_zero);
}

extern "C" sw_code sw_solver_pack(uint8_t *d_tiles, void *d_tile_scales, uint8_t *d_tile_zeros,
                                  sw_solver *s, const sw_qspec *spec, int64_t n_out, int64_t k_in,
                                  const uint8_t *d_codes, const float *d_scales,
                                  const float *d_zeros, sw_err *err)
{
    int64_t group = spec->group_elems ? spec->group_elems : k_in;
    pack_args a = {d_codes, d_scales, spec->is_symmetric ? NULL : d_zeros, n_out, k_in,
                   sw_qspec_groups(spec, k_in), group, (uint32_t)spec->num->sym_zero};
    dim3 tiles((unsigned)sw_tiles_k(k_in), (unsigned)sw_tiles_n(n_out));
    dim3 records((unsigned)a.n_groups, (unsigned)sw_tiles_n(n_out));
    int kind = sw_solver_scale_kind(spec);
    sw_code rc;

    if (group % 16 || kind < 0)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "tiles have groups of a multiple of 16 inputs, with "
                                              "scales in F32, F16 or BF16");
    if (sw_tiles_container_bits(spec->num) == 4)
        swk_pack_4<<<tiles, 512, 0, s->stream>>>((uint32_t *)d_tiles, a);
    else
        swk_pack_8<<<tiles, 1024, 0, s->stream>>>((uint32_t *)d_tiles, a);
    if ((rc = launched("swk_pack", err)) != SW_OK) return rc;
    swk_pack_scales<<<records, 64, 0, s->stream>>>(d_tile_scales,
                                                  spec->is_symmetric ? NULL : d_tile_zeros, a,
                                                  kind);
    return launched("swk_pack_scales", err);
}
