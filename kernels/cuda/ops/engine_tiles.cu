/* engine_tiles.cu - Swage tiles to BF16 weights, for what no product of tiles serves; rows of the
 * tokens of experts. See engine_ops.h. */
#include "formats/pack/tiles.h"
#include "kernels/cuda/ops/engine_launch.cuh"

#define N_THREADS 256

/* ---- tiles ---- */

struct decode_args {
    sw_bf16 *dst;
    const uint8_t *codes, *zeros;
    const void *scales;
    int64_t n_out, k_in, n_groups, group_elems, k_tiles, n_words;
    int bits;
    bool is_e2m1_spread;
    sw_dtype scale_dtype;
    float global, sym_zero;
    float values[256]; /* what each code stands for, before the zero point */
};

static __device__ float e4m3_value(unsigned b)
{
    const float sign = b & 0x80 ? -1.0f : 1.0f;
    const int exponent = b >> 3 & 15, mantissa = b & 7;

    if (exponent == 0) return sign * (float)mantissa * 0x1p-9f;
    return sign * ldexpf((float)(8 + mantissa), exponent - 10);
}

static __device__ float scale_at(const decode_args &a, int64_t at)
{
    switch (a.scale_dtype) {
    case SW_DTYPE_F32: return ((const float *)a.scales)[at];
    case SW_DTYPE_BF16: return sw_float(((const sw_bf16 *)a.scales)[at]);
    case SW_DTYPE_F16: {
        uint32_t bits = ((const uint16_t *)a.scales)[at];
        float f;

        asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"((uint16_t)bits));
        return f;
    }
    case SW_DTYPE_F8_E8M0: {
        const unsigned e = ((const uint8_t *)a.scales)[at];

        return e ? __uint_as_float(e << 23) : 0x1p-127f;
    }
    default: return e4m3_value(((const uint8_t *)a.scales)[at]);
    }
}

/* Code j of a half of a word in the order of e2m1_tiles.h. */
static __device__ int spread_code(uint32_t word, int j, int half)
{
    const uint32_t own = word >> 16 * half, other = word >> 16 * (1 - half);

    if (j < 3) return own >> (12 - 3 * j) & 8 | own >> (6 - 3 * j) & 7;
    return other >> 8 & 12 | other >> 13 & 3;
}

/* Code i of four of a channel: nibble 2 i + half of the word at `at` in files. */
static __device__ int code_at(const decode_args &a, const uint8_t *at, int i, int half)
{
    if (a.bits != 4) return at[i];
    if (!a.is_e2m1_spread) return at[i] >> (4 * half) & 15;
    return spread_code(*(const uint32_t *)at, i % 2 * 2 + half, i / 2);
}

/* A thread to the four codes of one channel in one word (see formats/pack/tiles.h). */
static __global__ void swk_tiles_decode(decode_args a)
{
    const int64_t item = blockIdx.x * (int64_t)N_THREADS + threadIdx.x;

    sw_begin();
    if (item >= a.n_words) return;
    const int in_tile = (int)(item % 1024), half = in_tile % 2, step = in_tile / 2 % 4;
    const int lane = in_tile / 8 % 32, warp = in_tile / 256;
    const int64_t tile = item / 1024, n_tile = tile / a.k_tiles, k_tile = tile % a.k_tiles;
    const int64_t n = n_tile * 64 + 16 * warp + lane / 4 + 8 * half;
    const int64_t k0 = k_tile * 64 + 16 * step + lane % 4 * 2;
    const int slot = 2 * (8 * warp + lane / 4) + half;
    const uint8_t *at = a.codes + tile * (a.bits == 4 ? 2048 : 4096) +
                        (a.bits == 4 ? 512 * warp + 16 * lane + 4 * step
                                     : 2048 * (step / 2) + 512 * warp + 16 * lane +
                                           8 * (step % 2) + 4 * half);

    if (n >= a.n_out) return;
    for (int i = 0; i < 4; i++) {
        const int64_t k = k0 + (i % 2) * 8 + i / 2;

        if (k >= a.k_in) continue;
        const int64_t record = (n_tile * a.n_groups + k / a.group_elems) * 64 + slot;
        const int code = code_at(a, at, i, half);
        const float zero = a.zeros ? (float)a.zeros[record] : a.sym_zero;

        a.dst[n * a.k_in + k] =
            sw_round16(scale_at(a, record) * (a.values[code] - zero) * a.global);
    }
}

extern "C" sw_code sw_cuda_tiles_decode(sw_bf16 *dst, const sw_tiles *t, sw_launch how, sw_err *err)
{
    const sw_num *num = t->spec.num;
    decode_args a = {};

    a.dst = dst;
    a.codes = t->codes;
    a.zeros = t->spec.is_symmetric ? NULL : t->zeros;
    a.scales = t->scales;
    a.n_out = t->n_out;
    a.k_in = t->k_in;
    a.n_groups = t->n_groups;
    a.group_elems = t->spec.group_elems ? t->spec.group_elems : t->k_in;
    a.k_tiles = sw_tiles_k(t->k_in);
    a.n_words = sw_tiles_n(t->n_out) * a.k_tiles * 1024;
    a.bits = t->container_bits;
    a.is_e2m1_spread = t->is_e2m1_spread;
    a.scale_dtype = t->spec.scale_dtype;
    a.global = t->spec.has_global ? t->global_scale : 1.0f;
    a.sym_zero = num->kind == SW_NUM_INT ? (float)num->sym_zero : 0.0f;
    for (int c = 0; c <= num->code_max; c++) a.values[c] = num->values ? num->values[c] : (float)c;
    return sw_start("tiles", swk_tiles_decode, sw_blocks(a.n_words, N_THREADS), N_THREADS, 0, how,
                    err, a);
}

/* ---- rows of experts ---- */

static __device__ void copy8(sw_bf16 *to, const sw_bf16 *from, const float *share)
{
    if (!share) {
        *(uint4 *)to = *(const uint4 *)from;
        return;
    }
    sw_eight e = sw_load8(from);

#pragma unroll
    for (int i = 0; i < 8; i++) e.v[i] *= *share;
    sw_store8(to, e);
}

/* A thread to eight neighbours. */
static __global__ void swk_gather(sw_bf16_rows dst, sw_bf16_rows src, const int32_t *tokens,
                                  const float *share, int64_t n, int64_t width)
{
    const int64_t at = blockIdx.x * (int64_t)N_THREADS + threadIdx.x, per_row = width / 8;

    sw_begin();
    if (at >= n * per_row) return;
    const int64_t row = at / per_row, col = at % per_row * 8;

    copy8(dst.d + row * dst.stride + col, src.d + tokens[row] * src.stride + col,
          share ? share + row : NULL);
}

extern "C" sw_code sw_cuda_gather(sw_bf16_rows dst, sw_bf16_rows src, const int32_t *tokens,
                                  const float *share, int64_t n, int64_t width, sw_launch how,
                                  sw_err *err)
{
    return sw_start("gather", swk_gather, sw_blocks(n * (width / 8), N_THREADS), N_THREADS, 0, how,
                    err, dst, src, tokens, share, n, width);
}

/* Likewise. */
static __global__ void swk_spread(sw_bf16_rows dst, sw_bf16_rows src, const float *share,
                                  int n_used, int64_t n, int64_t width)
{
    const int64_t at = blockIdx.x * (int64_t)N_THREADS + threadIdx.x, per_row = width / 8;

    sw_begin();
    if (at >= n * n_used * per_row) return;
    const int64_t row = at / per_row, col = at % per_row * 8;

    copy8(dst.d + row * dst.stride + col, src.d + row / n_used * src.stride + col, share + row);
}

extern "C" sw_code sw_cuda_spread(sw_bf16_rows dst, sw_bf16_rows src, const float *share,
                                  int n_used, int64_t n, int64_t width, sw_launch how, sw_err *err)
{
    return sw_start("spread", swk_spread, sw_blocks(n * n_used * (width / 8), N_THREADS), N_THREADS,
                    0, how, err, dst, src, share, n_used, n, width);
}

/* Likewise. */
static __global__ void swk_scale_by_logit(sw_bf16_rows dst, sw_bf16_rows src, const float *logits,
                                          int64_t stride, int64_t n, int64_t width)
{
    const int64_t at = blockIdx.x * (int64_t)N_THREADS + threadIdx.x, per_row = width / 8;

    sw_begin();
    if (at >= n * per_row) return;
    const int64_t row = at / per_row, col = at % per_row * 8;
    const float share = 1.0f / (1.0f + expf(-logits[row * stride]));

    copy8(dst.d + row * dst.stride + col, src.d + row * src.stride + col, &share);
}

extern "C" sw_code sw_cuda_scale_by_logit(sw_bf16_rows dst, sw_bf16_rows src, const float *logits,
                                          int64_t stride, int64_t n, int64_t width, sw_launch how,
                                          sw_err *err)
{
    return sw_start("scale", swk_scale_by_logit, sw_blocks(n * (width / 8), N_THREADS), N_THREADS,
                    0, how, err, dst, src, logits, stride, n, width);
}

/* A token meets an expert once, so no two threads add to one place. */
static __global__ void swk_scatter(float *dst, sw_bf16_rows src, const int32_t *tokens,
                                   const float *share, int64_t n, int64_t width)
{
    const int64_t at = blockIdx.x * (int64_t)N_THREADS + threadIdx.x, per_row = width / 8;

    sw_begin();
    if (at >= n * per_row) return;
    const int64_t row = at / per_row, col = at % per_row * 8;
    const sw_eight e = sw_load8(src.d + row * src.stride + col);
    float *to = dst + tokens[row] * width + col;

#pragma unroll
    for (int i = 0; i < 8; i++) to[i] += share[row] * e.v[i];
}

extern "C" sw_code sw_cuda_scatter(float *dst, sw_bf16_rows src, const int32_t *tokens,
                                   const float *share, int64_t n, int64_t width, sw_launch how,
                                   sw_err *err)
{
    return sw_start("scatter", swk_scatter, sw_blocks(n * (width / 8), N_THREADS), N_THREADS, 0,
                    how, err, dst, src, tokens, share, n, width);
}
