/* engine_lean.cu - products of 4-bit tiles with one to four tokens, and what stands around them.
 *
 *   one CTA of 8 warps     16 channels (with SW_LEAN_GLU 16 gates and their 16 ups), all of k
 *   one warp               every eighth k-tile of 64: a lane's 16 bytes are the A fragments of four
 *                          mma.sync m16n8k16, its scales are those of channels g and g + 8
 *   B fragments            the tokens, from shared memory in the order lanes read them
 *
 * Each lane copies the weights it will read, some tiles ahead, also into the next item of channels;
 * the first ones are asked for before the kernel ahead has ended, so that launch and norm cost no
 * time on the memory bus. Sums of the warps are added in their order.
 */
#include <math.h>

#include "formats/model/model.h"
#include "kernels/cuda/engine_launch.cuh"

#define N_WARPS 8
#define N_THREADS (32 * N_WARPS)
#define N_CHANNELS 16
#define TOKENS_MAX 4
#define SHARED_MAX (160 << 10)

struct lean_args {
    sw_lean_args a;
    int k_tiles, n_groups, group_shift; /* log2 of the tiles of a group */
    int n_items, up_strip;              /* strips of 16; where the ups begin */
    bool scales_are_bf16;
};

template <int PARTS> struct cut {
    static constexpr int ahead = PARTS == 2 ? 6 : 8; /* tiles that a warp has in flight */
    static constexpr int red_floats = N_WARPS * N_CHANNELS * TOKENS_MAX * PARTS;
};

/* One tile of a strip on its way through shared memory. A lane copies what it alone reads, so that
 * nobody waits for anybody. */
template <bool HAS_ZEROS> struct lane_tile {
    uint4 codes[32];
    uint32_t scales[32];                 /* of channels g and g + 8, 16 bits each */
    uint32_t zeros[HAS_ZEROS ? 32 : 4];  /* 8 bits each, and those of a neighbour */
};

/* A warp's way through its tiles: those of one item after those of the other. */
struct cursor {
    int item, tile;
    const uint8_t *codes; /* of this lane, in tile 0 of the item's strip */
    const uint16_t *scales;
    const uint8_t *zeros;
};

static __device__ void enter_item(cursor &at, const lean_args &p)
{
    const int lane = threadIdx.x % 32, n_tile = at.item / 4, strip = at.item % 4;
    const int64_t record = (int64_t)n_tile * p.n_groups * 64 + 2 * (8 * strip + lane / 4);

    at.tile = threadIdx.x / 32;
    at.codes = p.a.tiles.codes + (int64_t)n_tile * p.k_tiles * 2048 + 512 * strip + 16 * lane;
    at.scales = (const uint16_t *)p.a.tiles.scales + record;
    at.zeros = p.a.tiles.zeros + record;
}

/* The strip of ups that goes with this one of gates. */
static __device__ cursor ups_of(const cursor &gates, const lean_args &p)
{
    cursor ups = gates;

    ups.item += p.up_strip;
    enter_item(ups, p);
    return ups;
}

template <int BYTES> static __device__ void copy(void *s_to, const void *from)
{
    const uint32_t to = (uint32_t)__cvta_generic_to_shared(s_to);

    if (BYTES == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
}

template <bool HAS_ZEROS>
static __device__ void load(lane_tile<HAS_ZEROS> &t, const lean_args &p, const cursor &at,
                            int tile)
{
    const int record = (tile >> p.group_shift) * 64, lane = threadIdx.x % 32;

    copy<16>(&t.codes[lane], at.codes + tile * 2048);
    copy<4>(&t.scales[lane], at.scales + record);
    if (HAS_ZEROS) copy<4>(&t.zeros[lane], at.zeros + record - lane / 4 % 2 * 2);
}

static __device__ void multiply(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* (a & mask) | b in one instruction; the compiler makes two when mask and b are both constants. */
static __device__ uint32_t and_or(uint32_t a, uint32_t mask, uint32_t b)
{
    uint32_t v;

    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(v) : "r"(a), "r"(mask), "r"(b));
    return v;
}

/* 16-bit scale to float. */
static __device__ float scale_of(uint32_t bits, bool is_bf16)
{
    float f;

    if (is_bf16) return __uint_as_float(bits << 16);
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"((uint16_t)bits));
    return f;
}

/* sums += this tile. 128 + code is a bf16 whose low bits are the code; what that is too much,
 * 128 + zero point times the sum of the inputs, is taken off the product: it is some hundred times
 * larger at most, which FP32 carries. */
template <bool HAS_ZEROS>
static __device__ void add_tile(float (&sums)[4], const lane_tile<HAS_ZEROS> &t,
                                const uint32_t (&b)[8], float2 x_sums, uint32_t magic,
                                bool scales_are_bf16)
{
    const int lane = threadIdx.x % 32;
    const uint4 codes = t.codes[lane];
    const uint32_t words[4] = {codes.x, codes.y, codes.z, codes.w}, scales = t.scales[lane];
    const uint32_t zeros = HAS_ZEROS ? t.zeros[lane] >> (lane / 4 % 2 * 16) : 0;
    const float zero0 = HAS_ZEROS ? -128.0f - (float)(zeros & 255) : -136.0f;
    const float zero1 = HAS_ZEROS ? -128.0f - (float)(zeros >> 8 & 255) : -136.0f;
    const float s0 = scale_of(scales & 0xffff, scales_are_bf16);
    const float s1 = scale_of(scales >> 16, scales_are_bf16);
    float d[4] = {zero0 * x_sums.x, zero0 * x_sums.y, zero1 * x_sums.x, zero1 * x_sums.y};

#pragma unroll
    for (int s = 0; s < 4; s++) {
        const uint32_t a[4] = {and_or(words[s], 0x000f000fu, magic),
                               and_or(words[s] >> 4, 0x000f000fu, magic),
                               and_or(words[s] >> 8, 0x000f000fu, magic),
                               and_or(words[s] >> 12, 0x000f000fu, magic)};

        multiply(d, a, b[2 * s], b[2 * s + 1]);
    }
    sums[0] += s0 * d[0];
    sums[1] += s0 * d[1];
    sums[2] += s1 * d[2];
    sums[3] += s1 * d[3];
}

/* ---- the input ---- */

/* Two neighbouring inputs (k even) of a token to where lanes look for them. */
static __device__ void put_pair(uint32_t *s_x, int n, int token, int k, uint32_t pair)
{
    const int tile = k / 64, step = k % 64 / 16, r = k % 16;

    s_x[((tile * n + token) * 4 + r % 8 / 2) * 8 + 2 * step + r / 8] = pair;
}

static __device__ float sum_of(uint32_t pair)
{
    return __uint_as_float(pair << 16) + __uint_as_float(pair & 0xffff0000u);
}

/* The sum of a tile, of which N_LANES neighbours hold a part each, to where products look. */
template <int N_LANES>
static __device__ void put_sum(float *s_sums, int tile, int token, float sum)
{
    const int lane = threadIdx.x % 32;
    const uint32_t mask = (uint32_t)((1ull << N_LANES) - 1) << (lane / N_LANES * N_LANES);

#pragma unroll
    for (int step = N_LANES / 2; step; step /= 2) sum += __shfl_xor_sync(mask, sum, step);
    if (lane % N_LANES == 0) s_sums[tile * TOKENS_MAX + token] = sum;
}

/* The input is a whole number of tiles long: zeros behind its end. */
static __device__ void load_norm(uint32_t *s_x, float *s_sums, const lean_args &p, float *s_part)
{
    const int k_in = (int)p.a.tiles.k_in, n = (int)p.a.n;

    for (int token = 0; token < n; token++) {
        const float *x = p.a.x + (int64_t)token * k_in;
        float sum = 0;

#pragma unroll 4
        for (int k = (int)threadIdx.x * 4; k < k_in; k += 4 * N_THREADS) {
            const float4 v = *(const float4 *)(x + k);

            sum += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
        }
        const float scale = 1.0f / sqrtf(sw_block_sum(sum, s_part) / (float)k_in + p.a.eps);

#pragma unroll 4
        for (int k = (int)threadIdx.x * 4; k < p.k_tiles * 64; k += 4 * N_THREADS) {
            uint32_t one = 0, two = 0;

            if (k < k_in) {
                const float4 v = *(const float4 *)(x + k), w = *(const float4 *)(p.a.norm + k);

                one = sw_pack2(v.x * scale * w.x, v.y * scale * w.y);
                two = sw_pack2(v.z * scale * w.z, v.w * scale * w.w);
            }
            put_pair(s_x, n, token, k, one);
            put_pair(s_x, n, token, k + 2, two);
            put_sum<16>(s_sums, k / 64, token, sum_of(one) + sum_of(two));
        }
    }
}

static __device__ void load_rows(uint32_t *s_x, float *s_sums, const lean_args &p)
{
    const int k_in = (int)p.a.tiles.k_in, n = (int)p.a.n;

    for (int token = 0; token < n; token++)
#pragma unroll 2
        for (int k = (int)threadIdx.x * 8; k < p.k_tiles * 64; k += 8 * N_THREADS) {
            uint4 v = {};

            if (k < k_in) v = *(const uint4 *)(p.a.rows.d + token * p.a.rows.stride + k);
            put_pair(s_x, n, token, k, v.x);
            put_pair(s_x, n, token, k + 2, v.y);
            put_pair(s_x, n, token, k + 4, v.z);
            put_pair(s_x, n, token, k + 6, v.w);
            put_sum<8>(s_sums, k / 64, token,
                       sum_of(v.x) + sum_of(v.y) + sum_of(v.z) + sum_of(v.w));
        }
}

static __device__ void load_input(uint32_t *s_x, float *s_sums, const lean_args &p, float *s_part)
{
    if (threadIdx.x < 8) /* for lanes without a token */
        s_x[p.k_tiles * 32 * (int)p.a.n + threadIdx.x] = 0;
    if (p.a.x) load_norm(s_x, s_sums, p, s_part);
    else load_rows(s_x, s_sums, p);
    __syncthreads();
}

/* ---- the output ---- */

static __device__ float act_of(int act, float g, float limit)
{
    const float tanh_in = 0.7978845608028654f * (g + 0.044715f * g * g * g);

    if (act == SW_MLP_SILU) return g / (1.0f + expf(-g));
    if (act == SW_MLP_GELU) return 0.5f * g * (1.0f + erff(g * 0.7071067811865476f));
    if (act == SW_MLP_GELU_TANH) return 0.5f * g * (1.0f + tanhf(tanh_in));
    if (act == SW_MLP_RELU) return g > 0.0f ? g : 0.0f;
    g = fminf(g, limit);
    return g / (1.0f + expf(-1.702f * g));
}

/* The sum of the warps for one channel and token. */
static __device__ float total(const float *s_red, int part, int parts, int channel, int token)
{
    float sum = 0;

    for (int w = 0; w < N_WARPS; w++)
        sum += s_red[((w * parts + part) * N_CHANNELS + channel) * TOKENS_MAX + token];
    return sum;
}

template <int PARTS>
static __device__ void store(const lean_args &p, const float *s_red, int item)
{
    const int channel = threadIdx.x % N_CHANNELS, token = threadIdx.x / N_CHANNELS;
    const int64_t n = (int64_t)item * N_CHANNELS + channel;
    const int64_t n_out = PARTS == 2 ? (int64_t)p.up_strip * N_CHANNELS : p.a.tiles.n_out;

    if (token >= p.a.n || n >= n_out) return;
    float v = total(s_red, 0, PARTS, channel, token) + (p.a.bias ? p.a.bias[n] : 0.0f);

    if (PARTS == 2) {
        float u = total(s_red, 1, PARTS, channel, token);

        if (p.a.bias) u += p.a.bias[n_out + n];
        if (p.a.act == SW_MLP_SWIGLU_CLAMPED)
            u = fminf(fmaxf(u, -p.a.limit), p.a.limit) + 1.0f;
        v = act_of(p.a.act, v, p.a.limit) * u;
    }
    if (p.a.out == SW_LEAN_ADD)
        p.a.sum[token * n_out + n] += v;
    else
        p.a.y.d[token * p.a.y.stride + n] = sw_round16(v);
}

template <int PARTS>
static __device__ void put_sums(float *s_red, const float (&sums)[PARTS][4])
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, column = lane % 4 * 2;

    if (column >= TOKENS_MAX) return;
#pragma unroll
    for (int part = 0; part < PARTS; part++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            s_red[((warp * PARTS + part) * N_CHANNELS + lane / 4 + i / 2 * 8) * TOKENS_MAX +
                  column + i % 2] = sums[part][i];
}

/* ---- the kernel ---- */

/* In shared memory before the rings: tokens as fragments, zeros for lanes without one, the sums of
 * each tile; a multiple of 16 bytes. */
static __host__ __device__ int input_words(int k_tiles, int n)
{
    return (k_tiles * (32 * n + TOKENS_MAX) + 8 + 3) / 4 * 4;
}

/* The B fragments of a tile and the sums of its inputs, for the two tokens of this lane. */
static __device__ float2 load_tokens(uint32_t (&b)[8], const uint32_t *s_from, const float *s_sums,
                                     int tile, int stride)
{
    const uint4 *from = (const uint4 *)(s_from + tile * stride);
    const uint4 one = from[0], two = from[1];

    b[0] = one.x, b[1] = one.y, b[2] = one.z, b[3] = one.w;
    b[4] = two.x, b[5] = two.y, b[6] = two.z, b[7] = two.w;
    return *(const float2 *)(s_sums + tile * TOKENS_MAX + threadIdx.x % 2 * 2);
}

/* Ask for the next tile; a group of copies even if there is none, so that counting them tells
 * which have come. */
template <int PARTS, bool HAS_ZEROS>
static __device__ void fetch(lane_tile<HAS_ZEROS> *t, cursor &gates, cursor &ups,
                             const lean_args &p)
{
    if (gates.item < p.n_items) {
        load<HAS_ZEROS>(t[0], p, gates, gates.tile);
        if (PARTS == 2) load<HAS_ZEROS>(t[1], p, ups, gates.tile);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
    if (gates.item >= p.n_items) return;
    gates.tile += N_WARPS;
    if (gates.tile < p.k_tiles) return;
    gates.item += gridDim.x;
    if (gates.item >= p.n_items) return;
    enter_item(gates, p);
    if (PARTS == 2) ups = ups_of(gates, p);
}

/* grid: as many CTAs as the card holds; items blockIdx.x, + gridDim.x, ... */
template <int PARTS, bool HAS_ZEROS>
static __global__ void __launch_bounds__(N_THREADS, 3)
    swk_w4a16_lean(lean_args p, uint32_t magic)
{
    extern __shared__ __align__(16) uint32_t s_x[];
    __shared__ float s_part[32], s_red[2][cut<PARTS>::red_floats];
    constexpr int ahead = cut<PARTS>::ahead;
    const int lane = threadIdx.x % 32, n = (int)p.a.n, n_words = p.k_tiles * 32 * n;
    const bool has_token = lane / 4 < n;
    lane_tile<HAS_ZEROS> *ring = (lane_tile<HAS_ZEROS> *)(s_x + input_words(p.k_tiles, n)) +
                                 threadIdx.x / 32 * (ahead * PARTS);
    const uint32_t *s_from = s_x + (has_token ? lane * 8 : n_words);
    const int stride = has_token ? n * 32 : 0;
    float *s_sums = (float *)(s_x + n_words + 8);
    float sums[PARTS][4] = {};
    cursor next = {(int)blockIdx.x}, ups = next;
    int tile = threadIdx.x / 32, turn = 0, slot = 0;

#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
    enter_item(next, p);
    if (PARTS == 2) ups = ups_of(next, p);
#pragma unroll 1
    for (int j = 0; j < ahead; j++) fetch<PARTS, HAS_ZEROS>(ring + j * PARTS, next, ups, p);
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
    load_input(s_x, s_sums, p, s_part);
    for (int item = (int)blockIdx.x; item < p.n_items;) {
        uint32_t b[8];
        const float2 x_sums = load_tokens(b, s_from, s_sums, tile, stride);

        asm volatile("cp.async.wait_group %0;" ::"n"(ahead - 1) : "memory");
#pragma unroll
        for (int part = 0; part < PARTS; part++)
            add_tile<HAS_ZEROS>(sums[part], ring[slot * PARTS + part], b, x_sums, magic,
                                p.scales_are_bf16);
        fetch<PARTS, HAS_ZEROS>(ring + slot * PARTS, next, ups, p);
        slot = slot + 1 == ahead ? 0 : slot + 1;
        tile += N_WARPS;
        if (tile < p.k_tiles) continue;
        put_sums<PARTS>(s_red[turn], sums);
        __syncthreads();
        store<PARTS>(p, s_red[turn], item);
        turn ^= 1;
        tile = threadIdx.x / 32;
        item += gridDim.x;
#pragma unroll
        for (int part = 0; part < PARTS; part++)
#pragma unroll
            for (int i = 0; i < 4; i++) sums[part][i] = 0;
    }
}

static int shared_bytes(const sw_lean_args *a)
{
    const int parts = a->out == SW_LEAN_GLU ? 2 : 1;
    const int ahead = parts == 2 ? cut<2>::ahead : cut<1>::ahead;

    return 4 * input_words((int)sw_tiles_k(a->tiles.k_in), (int)a->n) +
           N_WARPS * ahead * parts * (a->tiles.spec.is_symmetric
                                          ? (int)sizeof(lane_tile<false>)
                                          : (int)sizeof(lane_tile<true>));
}

static bool is_power(int64_t n) { return n > 0 && (n & (n - 1)) == 0; }

extern "C" bool sw_cuda_lean_can(const sw_lean_args *a)
{
    const sw_tiles *t = &a->tiles;
    const sw_dtype s = t->spec.scale_dtype;
    const int64_t group = t->spec.group_elems;

    return a->n >= 1 && a->n <= TOKENS_MAX && t->codes && t->container_bits == 4 &&
           t->spec.num->kind == SW_NUM_INT &&
           (t->spec.num->bits == 4 || !t->spec.is_symmetric) &&
           (group == 0 || (group % 64 == 0 && is_power(group / 64))) &&
           (s == SW_DTYPE_BF16 || s == SW_DTYPE_F16) && t->k_in % 8 == 0 &&
           t->n_out % (a->out == SW_LEAN_GLU ? 32 : 16) == 0 && shared_bytes(a) <= SHARED_MAX &&
           sw_tiles_k(t->k_in) >= N_WARPS;
}

template <int PARTS, bool HAS_ZEROS>
static sw_code run(const lean_args *p, sw_launch how, sw_err *err)
{
    const int size_bytes = shared_bytes(&p->a);
    int per_sm = 0;
    sw_code rc = sw_gpu_check((int)cudaFuncSetAttribute(swk_w4a16_lean<PARTS, HAS_ZEROS>,
                                                        cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                        SHARED_MAX),
                              "small product", err);

    if (rc != SW_OK) return rc;
    rc = sw_gpu_check((int)cudaOccupancyMaxActiveBlocksPerMultiprocessor(
                          &per_sm, swk_w4a16_lean<PARTS, HAS_ZEROS>, N_THREADS, (size_t)size_bytes),
                      "small product", err);
    if (rc != SW_OK) return rc;
    const int most = per_sm * p->a.n_sms;

    return sw_start("small product", swk_w4a16_lean<PARTS, HAS_ZEROS>,
                    (unsigned)(p->n_items < most ? p->n_items : most), N_THREADS,
                    (size_t)size_bytes, how, err, *p, 0x43004300u);
}

extern "C" sw_code sw_cuda_lean(const sw_lean_args *a, sw_launch how, sw_err *err)
{
    const int64_t group = a->tiles.spec.group_elems;
    lean_args p = {};

    if (!sw_cuda_lean_can(a)) return SW_FAIL(err, SW_E_BUG, "a product that is not for few tokens");
    p.a = *a;
    p.k_tiles = (int)sw_tiles_k(a->tiles.k_in);
    p.n_groups = (int)a->tiles.n_groups;
    p.group_shift = 30;
    if (group) p.group_shift = __builtin_ctzll((unsigned long long)(group / 64));
    p.n_items = (int)(a->tiles.n_out / N_CHANNELS);
    if (a->out == SW_LEAN_GLU) p.up_strip = p.n_items /= 2;
    p.scales_are_bf16 = a->tiles.spec.scale_dtype == SW_DTYPE_BF16;
    if (a->out == SW_LEAN_GLU)
        return a->tiles.spec.is_symmetric ? run<2, false>(&p, how, err)
                                          : run<2, true>(&p, how, err);
    return a->tiles.spec.is_symmetric ? run<1, false>(&p, how, err) : run<1, true>(&p, how, err);
}
