/* chain_kernel.cuh - the kernel of a chain. See chain.h.
 *
 *   one CTA        of 16 warps a multiprocessor
 *   a product      of strips of 16 channels a CTA takes every n-th, n CTAs in all, and a warp of
 *                  it every 16th unit of 128 inputs; sums of warps are added in their order
 *   the ring       of a warp holds what it multiplies next, over the ends of strips and steps; the
 *                  copy engine fills it, so that a queue of weights holds up no other load
 *   arguments      go to shared memory first: read where they come in, each first look at a step's
 *                  is a miss of the constant cache, and they are looked at one after the other
 *   attention      a CTA has a part of the keys of up to four heads, as in engine_decode.cu
 *
 * All CTAs must be on the card at once: the launch is a cooperative one.
 */
#ifndef SW_KERNELS_CUDA_CHAIN_KERNEL_CUH
#define SW_KERNELS_CUDA_CHAIN_KERNEL_CUH

#define N_WARPS 16
#define N_HEADS_MAX 4
#include "kernels/cuda/chain.h"
#include "kernels/cuda/engine_one_args.cuh"
#include "kernels/cuda/engine_one_input.cuh"
#include "kernels/cuda/engine_one_output.cuh"
#include "kernels/cuda/engine_decode.cuh"
#include "kernels/cuda/ptx.cuh"

#define CHAIN_PRODUCTS 64
#define CHAIN_ATTENTIONS 16
#define CHAIN_STEPS (CHAIN_PRODUCTS + CHAIN_ATTENTIONS)
#define SUMMED 8 /* strips of a CTA between two sums over its warps */
#define SHARED_MAX 231000 /* bytes of a CTA from compute capability 9.0 on, less what is static */

/* Attention that a chain has: the same for all its steps but for a few pointers. */
struct chain_attention {
    sw_attn_args a;
    sw_heads_args heads;
};

/* All that the kernel is told: 32 KB of arguments at most. */
struct __align__(16) chain_steps {
    one_args products[CHAIN_PRODUCTS];
    chain_attention attention[CHAIN_ATTENTIONS];
    uint8_t step[CHAIN_STEPS]; /* a product, or CHAIN_PRODUCTS + an attention */
    int n_steps, n_products, n_attentions;
    int splits;                /* of keys */
    int64_t counters;          /* bytes of them in the scratch of attention */
    unsigned *meeting;         /* what all CTAs count up; its top bit turns when all have come */
};
static_assert(sizeof(chain_steps) <= 32764 - 8, "arguments of a kernel");
static_assert(sizeof(chain_steps) % 16 == 0, "copied by 16 bytes");

/* What a warp reads of a strip and 128 inputs, as it lies in a slot of its ring. */
struct chain_unit {
    static constexpr int piece_bytes = 512, n_pieces = 4, bytes = n_pieces * piece_bytes;
    const char *at;

    __device__ uint4 code(int i) const { return ((const uint4 *)at)[32 * i + threadIdx.x % 32]; }
    __device__ uint32_t scale(int) const { return 0; } /* one a channel: not here */
};

#define AHEAD 5 /* slots of a ring */
#define RING_BYTES (N_WARPS * AHEAD * chain_unit::bytes)
#ifdef SW_CHECKED
#define BARRIERS 2 /* of a slot: see leave */
#else
#define BARRIERS 1
#endif

/* ---- shared memory: the ring, the arguments, then a step's own ---- */

#define RED_FLOATS (SUMMED * 2 * N_WARPS * N_CHANNELS)

template <int KIND> static __host__ __device__ int chain_x_words(int n_units)
{
    return n_units * 4 * kind_of<KIND>::x_words;
}

/* A product's: sums of warps, the input, 16 words of zeros. */
template <int KIND> static int product_bytes(int n_units)
{
    return 4 * (RED_FLOATS + chain_x_words<KIND>(n_units) + 16);
}

static constexpr int attention_bytes = (int)sizeof(shared_state<N_HEADS_MAX>);

/* ---- the weights to come ---- */

/* Where a strip's codes begin. */
static __device__ const uint8_t *strip_of(const one_args &p, int strip)
{
    return p.a.tiles.codes + (int64_t)(strip / 4) * p.n_units * (4 * chain_unit::bytes) +
           chain_unit::piece_bytes * (strip % 4);
}

/* What a warp has between steps: its ring, and what it asks for next. */
struct hand {
    char *ring;
    uint32_t full;       /* barriers of its slots */
    int slot, parity;    /* that it reads next */
    uint64_t policy;
    int product, strip, next, part;
    int n_units, n_parts, n_strips; /* of that product */
    const uint8_t *one, *two;       /* the strip; with gates that of their ups */
};

static __device__ void open_strip(hand &h, const chain_steps &c)
{
    const one_args &p = c.products[h.product];

    h.part = 0;
    h.next = (int)threadIdx.x / 32;
    h.one = strip_of(p, h.strip);
    if (h.n_parts == 2) h.two = strip_of(p, h.strip + p.up_strip);
}

/* The first product from h.product on that has something for this warp. */
static __device__ void open_product(hand &h, const chain_steps &c)
{
    for (; h.product < c.n_products; h.product++) {
        const one_args &p = c.products[h.product];

        h.strip = (int)blockIdx.x;
        h.n_units = p.n_units;
        h.n_strips = p.n_strips;
        h.n_parts = p.a.out == SW_LEAN_GLU ? 2 : 1;
        if (h.strip >= h.n_strips || (int)threadIdx.x / 32 >= h.n_units) continue;
        open_strip(h, c);
        return;
    }
}

/* A unit into a slot, by one lane. */
static __device__ void bring(const hand &h, int slot, const uint8_t *from)
{
    const uint32_t to = sw_smem_addr(h.ring + slot * chain_unit::bytes), bar = h.full + 8 * slot;
    const uint8_t *codes = from + (int64_t)h.next * 4 * chain_unit::bytes;

    sw_mbar_expect(bar, chain_unit::bytes);
#pragma unroll
    for (int i = 0; i < chain_unit::n_pieces; i++)
        sw_bulk_load(to + chain_unit::piece_bytes * i, codes + chain_unit::bytes * i,
                     chain_unit::piece_bytes, bar, h.policy);
}

/* The warp has read a slot. What orders the copy that replaces it is that the lanes meet in
 * `ask`. racecheck follows barriers alone: checked builds have one, behind those of the slots. */
static __device__ __forceinline__ void leave(const hand &h)
{
#ifdef SW_CHECKED
    const uint32_t bar = h.full + 8 * (N_WARPS * AHEAD + h.slot);

    sw_mbar_arrive(bar);
    sw_mbar_wait(bar, h.parity);
#endif
}

/* Ask for the next unit, into a slot that the whole warp has read, and go on to the one behind. */
static __device__ void ask(hand &h, int slot, const chain_steps &c)
{
    if (h.product >= c.n_products) return;
    __syncwarp();
    if (threadIdx.x % 32 == 0) bring(h, slot, h.part ? h.two : h.one);
    if (++h.part == h.n_parts) {
        h.part = 0;
        h.next += N_WARPS;
    }
    if (h.next < h.n_units) return;
    h.strip += (int)gridDim.x;
    if (h.strip < h.n_strips) open_strip(h, c);
    else h.product++, open_product(h, c);
}

/* ---- between two steps ---- */

/* All CTAs count one word up: what they add makes 2^31, whatever there was, so that its top bit
 * turns when all have. `turned`: what the bit is then. */
struct meeting {
    unsigned *at, mine, turned;
};

static __device__ unsigned look(const unsigned *at)
{
    unsigned v;

    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(at) : "memory");
    return v;
}

/* This CTA is done with the step ahead, and what it wrote may be read. */
static __device__ void tell(const meeting &m)
{
    sw_meet<N_THREADS>();
    if (threadIdx.x == 0)
        asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(m.at), "r"(m.mine)
                     : "memory");
}

/* So are all others. */
static __device__ void await(const meeting &m)
{
    if (threadIdx.x == 0)
        for (unsigned looks = 0; (look(m.at) ^ m.turned) >> 31; looks++)
            if (looks >> 24) __trap(); /* seconds: a CTA is lost */
    sw_meet<N_THREADS>();
}

/* ---- a product ---- */

/* Keeps what is read of a slot ahead of what is put there next: sums have been made of it. */
static __device__ void hold(float (&sums)[2], int (&whole)[4])
{
    asm volatile("" : "+f"(sums[0]), "+f"(sums[1]), "+r"(whole[0]), "+r"(whole[2])::"memory");
}

/* The warp's share of a strip: sums of channels g and g + 8, in the lanes of column 0. */
template <int KIND, int PARTS>
static __device__ void multiply_strip(float (&sums)[PARTS][2], hand &h, const chain_steps &c,
                                      int n_units, const uint4 *x, int x_step)
{
    int whole[PARTS][4] = {};

#pragma unroll 1
    for (int u = (int)threadIdx.x / 32; u < n_units; u += N_WARPS) {
        const uint4 *at = x + (int64_t)u * x_step;

#pragma unroll
        for (int part = 0; part < PARTS; part++) {
            const chain_unit t = {h.ring + h.slot * chain_unit::bytes};

            sw_mbar_wait(h.full + 8 * h.slot, h.parity);
            if constexpr (KIND == ONE_INT8) add_int8(whole[part], t, at);
            else add_e4m3<KIND>(sums[part], t, at, 1.0f);
            hold(sums[part], whole[part]);
            leave(h);
            ask(h, h.slot, c);
            if (++h.slot == AHEAD) h.slot = 0, h.parity ^= 1;
        }
    }
    if constexpr (KIND == ONE_INT8)
#pragma unroll
        for (int part = 0; part < PARTS; part++) {
            sums[part][0] = (float)whole[part][0];
            sums[part][1] = (float)whole[part][2];
        }
}

/* Shared memory of a product: see product_bytes. */
struct workplace {
    float *red;
    uint32_t *x;
};

/* The strips of a CTA, SUMMED at a time: the sums of each warp, then a thread to a channel. */
template <int KIND, int PARTS>
static __device__ void multiply(hand &h, const chain_steps &c, const one_args &p,
                                const one_job &job, outlet<2> &out, float before,
                                const workplace &s, float x_scale)
{
    using kind = kind_of<KIND>;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, n_units = p.n_units;
    const int n_ctas = (int)gridDim.x, mine = (int)threadIdx.x / N_CHANNELS;
    /* lanes without a token read zeros, which lie behind the last unit */
    const uint4 *x =
        (const uint4 *)(s.x + (lane < 4 ? lane * kind::x_words : chain_x_words<KIND>(n_units)));
    const int x_step = lane < 4 ? kind::x_words : 0;

    for (int first = (int)blockIdx.x;; first += SUMMED * n_ctas) {
        for (int i = 0; i < SUMMED && first + i * n_ctas < p.n_strips; i++) {
            float sums[PARTS][2] = {};

            multiply_strip<KIND, PARTS>(sums, h, c, n_units, x, x_step);
            if (lane % 4 == 0)
#pragma unroll
                for (int part = 0; part < PARTS; part++) {
                    float *to = s.red + ((i * PARTS + part) * N_WARPS + warp) * N_CHANNELS;

                    to[lane / 4] = sums[part][0];
                    to[lane / 4 + 8] = sums[part][1];
                }
        }
        sw_meet<N_THREADS>();
        if (out.n >= 0) {
            float v[PARTS] = {};

#pragma unroll
            for (int part = 0; part < PARTS; part++)
#pragma unroll
                for (int w = 0; w < N_WARPS; w++)
                    v[part] += s.red[((mine * PARTS + part) * N_WARPS + w) * N_CHANNELS +
                                     threadIdx.x % N_CHANNELS];
            put_out<PARTS>(out, p, job, v, x_scale, before);
        }
        if (first + SUMMED * n_ctas >= p.n_strips) return;
        open_outlet<KIND, 2>(out, p, job,
                             mine < SUMMED ? first + (SUMMED + mine) * n_ctas : -1);
        if (p.a.out == SW_LEAN_ADD && out.n >= 0) before = p.a.sum[out.n];
        sw_meet<N_THREADS>();
    }
}

template <int KIND>
static __device__ void run_product(hand &h, const chain_steps &c, const one_args &p,
                                   const meeting *others, const workplace &s, float *s_part)
{
    const one_job job = job_of<false>(p);
    const int mine = (int)threadIdx.x / N_CHANNELS;
    outlet<2> out;
    held_norm norm;
    float before = 0, x_scale;

    if (others) tell(*others);
    open_outlet<KIND, 2>(out, p, job,
                         mine < SUMMED ? (int)(blockIdx.x + mine * gridDim.x) : -1);
    if (p.a.x) hold_norm(norm, p);
    if (others) await(*others);
    if ((int)blockIdx.x >= p.n_strips) return;
    if (p.a.out == SW_LEAN_ADD && out.n >= 0) before = p.a.sum[out.n];
    if (threadIdx.x < 16) s.x[chain_x_words<KIND>(p.n_units) + threadIdx.x] = 0;
    x_scale = p.a.x ? load_norm<KIND>(s.x, NULL, p, job, norm, s_part)
                    : load_rows<KIND>(s.x, NULL, p, job, s_part);
    sw_meet<N_THREADS>();
    if (p.a.out == SW_LEAN_GLU)
        multiply<KIND, 2>(h, c, p, job, out, before, s, x_scale);
    else
        multiply<KIND, 1>(h, c, p, job, out, before, s, x_scale);
}

/* ---- attention ---- */

/* Have the L2 fetch the keys and values of this CTA while others still make the queries. */
template <typename T>
static __device__ void announce(const sw_attn_args &a, const attn_job &j)
{
    const int64_t key = j.begin + threadIdx.x / 8;
    const int part = threadIdx.x % 4 * 128, is_value = threadIdx.x / 4 % 2;
    const char *k = (const char *)((const T *)a.k.d + key * a.k.stride + j.kv_head * a.head_dim);
    const char *v = (const char *)((const T *)a.v.d + key * a.v.stride + j.kv_head * a.v_head_dim);

    if (key + 1 >= j.end || part >= (is_value ? a.v_head_dim : a.head_dim) * (int)sizeof(T)) return;
    asm volatile("prefetch.global.L2 [%0];" ::"l"((is_value ? v : k) + part));
}

template <typename T>
static __device__ void run_attention(const chain_steps &c, const chain_attention &p,
                                     const meeting &others, char *s_own)
{
    shared_state<N_HEADS_MAX> &s = *(shared_state<N_HEADS_MAX> *)s_own;
    const int n_groups = p.a.n_kv_heads * head_tiles(&p.a);

    tell(others);
    for (int at = (int)blockIdx.x; at < n_groups * c.splits; at += (int)gridDim.x) {
        const attn_job j = attention_job(p.a, c.splits, at % c.splits, at / c.splits);

        if (at % c.splits < j.n_parts) announce<T>(p.a, j);
    }
    await(others);
    for (int at = (int)blockIdx.x; at < n_groups * c.splits; at += (int)gridDim.x) {
        sw_meet<N_THREADS>();
        attend<N_HEADS_MAX, T>(s, p.a, p.heads, c.splits, at % c.splits, at / c.splits,
                               c.counters);
    }
}

/* ---- the kernel ---- */

/* The arguments, read as memory is: not through the constant cache. */
static __device__ void copy_steps(chain_steps *s_to, const chain_steps &c)
{
    const uint4 *from = (const uint4 *)&c;

    asm volatile("" : "+l"(from));
    for (int i = (int)threadIdx.x; i < (int)(sizeof c / 16); i += N_THREADS)
        ((uint4 *)s_to)[i] = from[i];
    sw_meet<N_THREADS>();
}

template <int KIND>
static __device__ void walk(hand &h, const chain_steps &c, char *s_own)
{
    __shared__ float s_part[32];
    const workplace s = {(float *)s_own, (uint32_t *)s_own + RED_FLOATS};
    meeting others = {c.meeting, blockIdx.x ? 1u : 0x80000001u - gridDim.x,
                      threadIdx.x ? 0 : look(c.meeting)};

    for (int j = 0; j < AHEAD; j++) ask(h, j, c);
#pragma unroll 1
    for (int i = 0; i < c.n_steps; i++, others.turned ^= 0x80000000u) {
        const int step = c.step[i];

        if (step >= CHAIN_PRODUCTS) {
            const chain_attention &p = c.attention[step - CHAIN_PRODUCTS];

            if (p.a.kv.is_e4m3) run_attention<uint8_t>(c, p, others, s_own);
            else run_attention<sw_bf16>(c, p, others, s_own);
            continue;
        }
        const one_args &p = c.products[step];

        run_product<KIND>(h, c, p, i ? &others : NULL, s, s_part);
    }
}

/* grid: the multiprocessors of the card */
template <int KIND>
static __global__ void __launch_bounds__(N_THREADS, 1)
    swk_chain(const __grid_constant__ chain_steps arguments)
{
    extern __shared__ __align__(16) char s_bytes[];
    __shared__ uint64_t s_full[BARRIERS * N_WARPS * AHEAD];
    const int warp = (int)threadIdx.x / 32;
    chain_steps *c = (chain_steps *)(s_bytes + RING_BYTES);
    hand h = {s_bytes + warp * AHEAD * chain_unit::bytes, sw_smem_addr(s_full + warp * AHEAD), 0,
              0, sw_policy_evict_first()};

    if (threadIdx.x % 32 == 0) {
        for (int j = 0; j < AHEAD; j++) sw_mbar_init(h.full + 8 * j, 1);
        for (int j = 0; BARRIERS > 1 && j < AHEAD; j++)
            sw_mbar_init(h.full + 8 * (N_WARPS * AHEAD + j), 32);
        sw_mbar_init_fence();
    }
    copy_steps(c, arguments);
    open_product(h, *c);
    walk<KIND>(h, *c, (char *)(c + 1));
}

/* ---- launching ---- */

template <int KIND>
static sw_code start_chain(const chain_steps *c, int n_ctas, int shared_bytes, sw_launch how,
                           sw_err *err)
{
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attr = {};
    sw_code rc = sw_gpu_check((int)cudaFuncSetAttribute(
                                  swk_chain<KIND>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  shared_bytes),
                              "chain", err);

    if (rc != SW_OK) return rc;
    attr.id = cudaLaunchAttributeCooperative;
    attr.val.cooperative = 1;
    config.gridDim = dim3((unsigned)n_ctas);
    config.blockDim = dim3(N_THREADS);
    config.dynamicSmemBytes = (size_t)shared_bytes;
    config.stream = (cudaStream_t)how.stream;
    config.attrs = &attr;
    config.numAttrs = 1;
    return sw_gpu_check((int)cudaLaunchKernelEx(&config, swk_chain<KIND>, *c),
                        "chain", err);
}

#endif
