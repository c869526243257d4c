/* engine_one_mma.cuh - the weights of a product of one token on their way: what a lane copies, and
 * what it multiplies. See engine_one.cu. */
#ifndef SW_KERNELS_CUDA_DECODE_ENGINE_ONE_MMA_CUH
#define SW_KERNELS_CUDA_DECODE_ENGINE_ONE_MMA_CUH

#include "formats/model/model.h"
#include "kernels/cuda/gemm/column_tiles.cuh"
#include "kernels/cuda/ops/engine_launch.cuh"
#include "kernels/cuda/ptx/ptx_mma.cuh"

#define N_WARPS 8 /* that multiply */
#define N_THREADS (32 * N_WARPS)
#define N_CHANNELS 16
#define UNIT_K 128
#define PER_SM 2
#define NORMED_MAX 8192 /* inputs of a normed row, which threads keep */
#define K_MAX 16384
#define EIGHTS_MAX (NORMED_MAX / 8 / N_THREADS)
#define ROW_EIGHTS_MAX (K_MAX / 8 / N_THREADS)

typedef enum one_kind {
    ONE_W4, ONE_W4_ZEROS, ONE_INT8, ONE_E4M3, ONE_E4M3_GROUPS, ONE_COUNT
} one_kind;

struct one_args {
    sw_fused_args a;
    int n_units, n_groups, group_shift; /* log2 of the units of a group */
    int n_strips, n_slices, up_strip;   /* strips of this grid; where the ups begin */
    float top;                          /* the largest value of an input's code */
};

/* What a CTA works on: what the call says, or the expert that its pair has, and its rows. */
struct one_job {
    const uint8_t *codes, *scales, *zeros;
    const float *bias;
    const sw_bf16 *rows;
    sw_bf16 *y;
    float input_scale;
};

/* Which expert that is the kernels ahead decide. */
template <bool IS_EXPERT> static __device__ one_job job_of(const one_args &p)
{
    const sw_tiles &t = p.a.tiles;

    if (!IS_EXPERT)
        return {t.codes, (const uint8_t *)t.scales, t.zeros, p.a.bias, p.a.rows.d, p.a.y.d,
                p.a.input_scale};
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
    const int64_t pair = blockIdx.y;
    const sw_expert e = p.a.experts[p.a.chosen[pair]];

    return {(const uint8_t *)e.codes, (const uint8_t *)e.scales, (const uint8_t *)e.zeros, e.bias,
            p.a.rows.d + pair / p.a.pairs_per_row * p.a.rows.stride, p.a.y.d + pair * p.a.y.stride,
            e.input_scale};
}

template <int KIND> struct kind_of {
    static constexpr bool is_w4 = KIND == ONE_W4 || KIND == ONE_W4_ZEROS;
    static constexpr bool has_zeros = KIND == ONE_W4_ZEROS;
    static constexpr bool has_groups = is_w4 || KIND == ONE_E4M3_GROUPS;
    static constexpr int copies = is_w4 ? 2 : 4; /* of 16 bytes a lane and unit */
    /* The token's words of a unit; lanes that have some of them, the others read zeros. */
    static constexpr int x_words = is_w4 ? 96 : 32, x_lanes = is_w4 ? 12 : 4;
    static constexpr int zero_words = is_w4 ? 64 : 16, n_sums = has_zeros ? 6 : is_w4 ? 4 : 2;
};

/* Scales of channels g and g + 8: two halves of a word, or two words. */
template <bool IS_W4> struct scale_pair {
    uint32_t x;
};
template <> struct __align__(8) scale_pair<false> {
    uint32_t x, y;
};

/* Zero points of channels g and g + 8, where there are any. */
template <bool HAS_ZEROS> struct unit_zeros {
    uint32_t zeros[32];
};
template <> struct unit_zeros<false> {};

/* What a warp reads of one strip and unit. */
template <int KIND> struct unit : unit_zeros<kind_of<KIND>::has_zeros> {
    uint4 codes[kind_of<KIND>::copies][32];
    scale_pair<kind_of<KIND>::is_w4> scales[kind_of<KIND>::has_groups ? 32 : 1];

    /* What a lane reads: its codes, its two channels' scales (of 4 bits one below the other in the
     * first word) and zeros in the low half of a word. */
    __device__ uint4 code(int i) const { return codes[i][threadIdx.x % 32]; }
    /* The same of codes in the order of columns that the lanes of a warp have copied together. */
    __device__ uint4 column_code(int i) const
    {
        return sw_load_matrices((uint32_t)__cvta_generic_to_shared(codes[i]) +
                                sw_column_of_lane());
    }
    __device__ uint32_t scale(int i) const { return (&scales[threadIdx.x % 32].x)[i]; }
    __device__ uint32_t two_zeros() const
    {
        return this->zeros[threadIdx.x % 32] >> (threadIdx.x % 32 / 4 % 2 * 16);
    }
};

template <int KIND, int PARTS> struct ring {
    static constexpr int ahead = KIND == ONE_E4M3_GROUPS && PARTS == 2 ? 2
                                 : PARTS == 2                          ? 3
                                 : kind_of<KIND>::is_w4                ? 6
                                                                       : 4;
    static constexpr int bytes = N_WARPS * ahead * PARTS * (int)sizeof(unit<KIND>);
};

template <int BYTES> static __device__ void copy(void *s_to, const void *from)
{
    const uint32_t to = (uint32_t)__cvta_generic_to_shared(s_to);

    if (BYTES == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
    else if (BYTES == 8)
        asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(to), "l"(from) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
}

/* In the order of columns a lane reads 16 bytes of a channel, whose words its four lanes own. */
template <int KIND> static __device__ bool is_in_columns(const one_args &p)
{
    return KIND == ONE_E4M3_GROUPS && p.a.tiles.in_columns;
}

/* Where a lane finds a strip's weights: codes of the unit that it fetches next. */
struct source {
    const uint8_t *codes, *scales, *zeros;
};

template <int KIND>
static __device__ source source_of(const one_args &p, const one_job &j, int strip, int unit0)
{
    using kind = kind_of<KIND>;
    const int lane = threadIdx.x % 32, n_tile = strip / 4, row = strip % 4;
    const int64_t tile_bytes = kind::is_w4 ? 2048 : 4096;
    const int64_t record = (int64_t)n_tile * p.n_groups * 64 + 2 * (8 * row + lane / 4);
    source s;

    s.codes = j.codes + 2 * ((int64_t)n_tile * p.n_units + unit0) * tile_bytes + 512 * row +
              (is_in_columns<KIND>(p) ? sw_column_at(lane % 4, lane / 4) : 16 * lane);
    s.scales = j.scales + record * (kind::is_w4 ? 2 : 4);
    s.zeros = j.zeros + record - lane / 4 % 2 * 2;
    return s;
}

/* Unit u of it, where its codes are, whose group is u >> group_shift; the codes of the unit that is
 * n_slices further on come next. */
template <int KIND>
static __device__ void fetch(unit<KIND> &to, source &s, const one_args &p, int u)
{
    using kind = kind_of<KIND>;
    constexpr int bytes = kind::is_w4 ? 4096 : 8192;
    const int lane = threadIdx.x % 32;
    const int64_t record = (int64_t)(u >> p.group_shift) * 64;

#pragma unroll
    for (int i = 0; i < kind::copies; i++)
        copy<16>(&to.codes[i][lane], s.codes + i * 2048);
    s.codes += p.n_slices * bytes;
    if (kind::is_w4) copy<4>(&to.scales[lane], s.scales + record * 2);
    else if (kind::has_groups) copy<8>(&to.scales[lane], s.scales + record * 4);
    if constexpr (kind::has_zeros) copy<4>(&to.zeros[lane], s.zeros + record);
}

/* ---- products ---- */

static __device__ void multiply_e4m3(float (&d)[4], const uint4 &a, uint32_t b0, uint32_t b1)
{
#if __CUDA_ARCH__ >= 890
    asm volatile("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
#endif
}

static __device__ void multiply_int8(int (&d)[4], const uint4 &a, uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}

static __device__ float scale16(uint32_t bits, bool is_bf16)
{
    float f;

    if (is_bf16) return __uint_as_float(bits << 16);
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"((uint16_t)bits));
    return f;
}

#define MAGIC 12582912 /* 1.5 * 2^23: to it floats add integers exactly, in their low bits */
#define MAGIC_BITS 0x4b400000

/* A sum that began with MAGIC_BITS. */
static __device__ float less_magic(int sum) { return __int_as_float(sum) - (float)MAGIC; }

/* Four bit: bytes of weights times the three bytes of a fixed-point token, each a column of its own
 * (put_planes in engine_one_input.cuh): lane c of four has the sums of columns 2c and 2c + 1 for
 * both channels, so sums[0] and [2] of the first two, and [1] and [3]. An integer sum is at most
 * 2^21. `of_unit`: what a unit of the token is worth, sixteenths of it; with zero points n_units
 * behind it the sum of its inputs. */
template <int KIND, typename UNIT, int N>
static __device__ void add_w4(float (&sums)[N], const UNIT &t, const uint4 *x,
                              const float *of_unit, int n_units, bool is_bf16)
{
    const float scale0 = scale16(t.scale(0) & 0xffff, is_bf16);
    const float scale1 = scale16(t.scale(0) >> 16, is_bf16);
    const float one = scale0 * *of_unit, two = scale1 * *of_unit;
    int d[4] = {MAGIC_BITS, MAGIC_BITS, MAGIC_BITS, MAGIC_BITS};

#pragma unroll
    for (int half = 0; half < 2; half++) {
        const uint4 w = t.code(half), b = x[12 * half];

        multiply_int8(d, make_uint4(sw_upper_codes(w.x << 4), sw_upper_codes(w.x),
                                    sw_upper_codes(w.y << 4), sw_upper_codes(w.y)), b.x, b.y);
        multiply_int8(d, make_uint4(sw_upper_codes(w.z << 4), sw_upper_codes(w.z),
                                    sw_upper_codes(w.w << 4), sw_upper_codes(w.w)), b.z, b.w);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) sums[i] += (i < 2 ? one : two) * less_magic(d[i]);
    if constexpr (kind_of<KIND>::has_zeros) {
        const uint32_t zeros = t.two_zeros();

        sums[4] += scale0 * (of_unit[n_units] * (8.0f - (float)(zeros & 255)));
        sums[5] += scale1 * (of_unit[n_units] * (8.0f - (float)(zeros >> 8 & 255)));
    }
}

/* The sums of both channels, of which the first of four lanes is asked: its columns are twice the
 * highest byte and the middle one, those of its neighbour the lowest and nothing. */
template <int N>
static __device__ void join_planes(float (&to)[2], const float (&sums)[N])
{
    const float first = threadIdx.x % 4 ? 1.0f : 32768.0f;

#pragma unroll
    for (int i = 0; i < 2; i++) {
        const float mine = first * sums[2 * i] + 256.0f * sums[2 * i + 1];

        to[i] = mine + __shfl_xor_sync(~0u, mine, 1);
        if constexpr (N == 6) to[i] += sums[4 + i];
    }
}

/* Codes of weights in tiles are unsigned, 128 more than what they stand for: the top bit tells. */
static __device__ uint4 signed_bytes(uint4 v)
{
    return make_uint4(v.x ^ 0x80808080u, v.y ^ 0x80808080u, v.z ^ 0x80808080u, v.w ^ 0x80808080u);
}

/* In the order of columns they are bytes with a sign (column_tiles.h). */
template <typename UNIT>
static __device__ void add_int8(int (&d)[4], const UNIT &t, const uint4 *x, bool in_columns)
{
    const uint4 one = x[0], two = x[1];
    uint4 codes[4];

    if (in_columns)
#pragma unroll
        for (int i = 0; i < 4; i++) codes[i] = t.column_code(i);
    else
#pragma unroll
        for (int i = 0; i < 4; i++) codes[i] = signed_bytes(t.code(i));
    multiply_int8(d, codes[0], one.x, one.y);
    multiply_int8(d, codes[1], one.z, one.w);
    multiply_int8(d, codes[2], two.x, two.y);
    multiply_int8(d, codes[3], two.z, two.w);
}

/* The tensor cores cut sums off: FP32 takes over after 128 inputs. */
template <int KIND, typename UNIT>
static __device__ void add_e4m3(float (&sums)[2], const UNIT &t, const uint4 *x, float x_scale,
                                bool in_columns)
{
    const uint4 one = x[0], two = x[1];
    const uint32_t b[8] = {one.x, one.y, one.z, one.w, two.x, two.y, two.z, two.w};
    float d[4] = {};

#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint4 codes = t.code(i);

        multiply_e4m3(d, in_columns ? sw_exchange4(codes) : codes, b[2 * i], b[2 * i + 1]);
    }
    if constexpr (kind_of<KIND>::has_groups) {
        sums[0] += __uint_as_float(t.scale(0)) * x_scale * d[0];
        sums[1] += __uint_as_float(t.scale(1)) * x_scale * d[2];
    } else {
        sums[0] += d[0];
        sums[1] += d[2];
    }
}

#endif
