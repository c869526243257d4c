/* decode_chain_kernel.cuh - the kernel of a chain. See decode_chain.h.
 *
 *   one CTA        of 16 warps a multiprocessor
 *   a product      a CTA has neighbouring strips of 16 channels, as many as any other. What 32
 *                  inputs have of those in one tile lies in one piece of up to 2 KB: they are
 *                  multiplied together, by a warp every 16th unit of such pieces; sums of warps are
 *                  added in their order
 *   the ring       of a warp holds what it multiplies next, over the ends of strips and steps; the
 *                  copy engine fills it, so that a queue of weights holds up no other load. Slots
 *                  lie at multiples of 128 bytes: elsewhere a step took a fifth longer
 *   arguments      go to shared memory first: read where they come in, each first look at a step's
 *                  is a miss of the constant cache, and they are looked at one after the other
 *   attention      a CTA has a part of the keys of up to four heads, as in engine_decode.cu
 *
 * All CTAs must be on the device at once: the launch is a cooperative one.
 */
#ifndef SW_KERNELS_CUDA_DECODE_DECODE_CHAIN_KERNEL_CUH
#define SW_KERNELS_CUDA_DECODE_DECODE_CHAIN_KERNEL_CUH

#define N_WARPS 16
#define N_HEADS_MAX 4
#include "kernels/cuda/decode/decode_chain.h"
#include "kernels/cuda/decode/engine_one_args.cuh"
#include "kernels/cuda/decode/engine_one_input.cuh"
#include "kernels/cuda/decode/engine_one_output.cuh"
#include "kernels/cuda/ops/engine_decode.cuh"
#include "kernels/cuda/ptx/ptx_warp.cuh"

#define CHAIN_PRODUCTS 64
#define CHAIN_ATTENTIONS 16
#define CHAIN_STEPS (CHAIN_PRODUCTS + CHAIN_ATTENTIONS)
#define SUMMED 8 /* strips of a CTA between two sums over its warps */
#define SHARED_MAX 229000 /* bytes of a CTA from compute capability 9.0 on, less what is static */

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
    int each[CHAIN_PRODUCTS];  /* strips of a CTA */
    int n_steps, n_products, n_attentions;
    int splits, n_jobs;        /* of keys; groups of heads times that */
    int64_t counters;          /* bytes of them in the scratch of attention */
    unsigned *meeting;         /* what all CTAs count up; its top bit turns when all have come */
};
static_assert(sizeof(chain_steps) <= 32764 - 8, "arguments of a kernel");
static_assert(sizeof(chain_steps) % 16 == 0, "copied by 16 bytes");

#define STRIPS 4  /* of a tile */
#define PIECE 512 /* bytes of a strip and 32 inputs; a tile's four lie one behind the other */
#define SLOT (STRIPS * PIECE)
#define AHEAD 5   /* slots of a ring */
#define RING_BYTES (N_WARPS * AHEAD * SLOT)
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

/* Strips [begin, end) of this CTA, if any. */
struct span {
    int begin, end;
};

static __device__ span strips_of(const chain_steps &c, int product)
{
    const int begin = (int)blockIdx.x * c.each[product];

    return {begin, min(begin + c.each[product], c.products[product].n_strips)};
}

/* How many of them from `strip` on are of one tile; the product has them up_strip further on. */
static __device__ int together(int strip, int end, int up_strip)
{
    return min(end - strip, STRIPS - (strip + up_strip) % STRIPS);
}

/* A unit of n strips has four, two or one times 32 inputs, which fill a slot, or three quarters of
 * it. log2 of how many such units UNIT_K makes. */
static __device__ int units_log2(int n) { return min(n - 1, 2); }

/* Where a warp is with what it asks for; in shared memory, as it is seldom looked at. */
struct outlook {
    int product, part; /* 1: ups */
    span now;          /* strips between two sums over warps */
    int end;           /* of this CTA's */
    int behind;        /* those that are asked for */
};

static __device__ outlook &outlook_of_warp(void)
{
    __shared__ outlook s_ahead[N_WARPS];

    return s_ahead[threadIdx.x / 32];
}

/* What a warp has between steps: its ring, and what it asks for next. */
struct hand {
    char *ring;
    uint32_t full;       /* barriers of its slots */
    int slot, parity;    /* that it reads next */
    uint64_t policy;
    int n, next, n_next; /* strips together, or none at the end; units of these */
    const uint8_t *from; /* the next */
};

/* The strips behind. */
static __device__ void open_strips(hand &h, outlook &to, const one_args &p)
{
    const int up_strip = to.part * p.up_strip, strip = to.behind + up_strip;

    h.n = together(to.behind, to.now.end, up_strip);
    to.behind += h.n;
    h.next = (int)threadIdx.x / 32;
    h.n_next = p.n_units << units_log2(h.n);
    h.from = p.a.tiles.codes + (int64_t)(strip / STRIPS) * p.n_units * (STRIPS * SLOT) +
             PIECE * (strip % STRIPS) + h.next * (STRIPS >> units_log2(h.n)) * SLOT;
}

/* Strips that are summed next: of this product or one behind it; false: none. */
static __device__ bool open_span(outlook &to, const chain_steps &c)
{
    to.now.begin = to.now.end;
    while (to.now.begin >= to.end) {
        if (++to.product >= c.n_products) return false;
        const span all = strips_of(c, to.product);

        to.now.begin = all.begin;
        to.end = all.end;
    }
    to.now.end = min(to.now.begin + SUMMED, to.end);
    return true;
}

/* On to what there is for this warp behind the strips that it has asked for. */
static __device__ void go_on(hand &h, const chain_steps &c)
{
    outlook to = outlook_of_warp();

    do {
        if (to.behind == to.now.end) {
            const bool has_ups = to.part == 0 && c.products[to.product].a.out == SW_FUSED_GLU;

            to.part = has_ups;
            if (!has_ups && !open_span(to, c)) {
                h.n = 0;
                return;
            }
            to.behind = to.now.begin;
        }
        open_strips(h, to, c.products[to.product]);
    } while (h.next >= h.n_next);
    __syncwarp();
    outlook_of_warp() = to; /* all lanes the same */
    __syncwarp();
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
    if (!h.n) return;
    const int n_pieces = STRIPS >> units_log2(h.n), n_bytes = PIECE * h.n;
    const uint32_t bar = h.full + 8 * slot;
    uint32_t to = sw_smem_addr(h.ring + slot * SLOT);

    __syncwarp();
    sw_warp_expect(bar, n_pieces * n_bytes);
#pragma unroll 1
    for (int i = 0; i < n_pieces; i++, to += n_bytes, h.from += SLOT)
        sw_warp_load(to, h.from, n_bytes, bar, h.policy);
    h.from += (N_WARPS - 1) * n_pieces * SLOT;
    h.next += N_WARPS;
    if (h.next >= h.n_next) go_on(h, c);
}

/* ---- between two steps ---- */

static __device__ unsigned look(const unsigned *at)
{
    unsigned v;

    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(at) : "memory");
    return v;
}

/* This CTA is done with the step ahead, and what it wrote may be read. All CTAs count one word up:
 * what they add makes 2^31, whatever there was, so that its top bit turns when all have. */
static __device__ void tell(const chain_steps &c)
{
    sw_meet<N_THREADS>();
    if (threadIdx.x == 0)
        asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(c.meeting),
                     "r"(blockIdx.x ? 1u : 0x80000001u - gridDim.x)
                     : "memory");
}

/* So are all others: the bit is no longer as it `was`. */
static __device__ void await(const chain_steps &c, unsigned &was)
{
    if (threadIdx.x == 0)
        for (unsigned looks = 0; !((look(c.meeting) ^ was) >> 31); looks++)
            if (looks >> 24) __trap(); /* seconds: a CTA is lost */
    was ^= 0x80000000u;
    sw_meet<N_THREADS>();
}

/* ---- a product ---- */

/* What a warp adds up: of channels g and g + 8 in the lanes of column 0. */
struct tally {
    float sums[STRIPS][2];
    int whole[STRIPS][4]; /* int8 */
};

/* Keeps what is read of a slot ahead of what is put there next: sums have been made of it. */
static __device__ void hold(tally &t)
{
#pragma unroll
    for (int s = 0; s < STRIPS; s++)
        asm volatile("" : "+f"(t.sums[s][0]), "+f"(t.sums[s][1]), "+r"(t.whole[s][0]),
                     "+r"(t.whole[s][2])::"memory");
}

/* A unit of N strips. The tensor cores cut sums off: FP32 takes over after 128 inputs at most. */
template <int KIND, int N>
static __device__ void add_unit(tally &t, const uint4 *codes, const uint32_t *x)
{
    constexpr int n_pieces = N == 1 ? 4 : N == 2 ? 2 : 1;
    float d[N][4] = {};

#pragma unroll
    for (int i = 0; i < n_pieces; i++) {
        const uint2 b = ((const uint2 *)x)[i];

#pragma unroll
        for (int s = 0; s < N; s++) {
            const uint4 a = codes[32 * (N * i + s)];

            if constexpr (KIND == ONE_INT8)
                multiply_int8(t.whole[s], signed_bytes(a), b.x, b.y);
            else
                multiply_e4m3(d[s], a, b.x, b.y);
        }
    }
#pragma unroll
    for (int s = 0; s < N && KIND != ONE_INT8; s++) {
        t.sums[s][0] += d[s][0];
        t.sums[s][1] += d[s][2];
    }
}

/* Where lanes find the inputs: those without a token read zeros, which lie behind the last unit. */
struct token {
    const uint32_t *x;
    unsigned mask;
};

/* The warp's share of n strips of a tile. */
template <int KIND>
static __device__ void multiply_together(tally &t, hand &h, const chain_steps &c, int n,
                                         int n_units, const token &token)
{
    const int n_pieces = STRIPS >> units_log2(n);

#pragma unroll 1
    for (int at = (int)threadIdx.x / 32 * n_pieces; at < STRIPS * n_units;
         at += N_WARPS * n_pieces) {
        const uint4 *codes = (const uint4 *)(h.ring + h.slot * SLOT) + threadIdx.x % 32;
        const uint32_t *x = token.x + ((at / STRIPS * 32 + at % STRIPS * 2) & token.mask);

        sw_mbar_wait(h.full + 8 * h.slot, h.parity);
        if (n == 4) add_unit<KIND, 4>(t, codes, x);
        else if (n == 3) add_unit<KIND, 3>(t, codes, x);
        else if (n == 2) add_unit<KIND, 2>(t, codes, x);
        else add_unit<KIND, 1>(t, codes, x);
        hold(t);
        leave(h);
        ask(h, h.slot, c);
        if (++h.slot == AHEAD) h.slot = 0, h.parity ^= 1;
    }
    if constexpr (KIND == ONE_INT8)
#pragma unroll
        for (int s = 0; s < STRIPS; s++) {
            t.sums[s][0] = (float)t.whole[s][0];
            t.sums[s][1] = (float)t.whole[s][2];
        }
}

/* Shared memory of a product: see product_bytes. */
struct workplace {
    float *red; /* [strip, gate and up, warp, channel] */
    uint32_t *x;
};

/* Sums of each warp, of strips that are summed together. */
template <int KIND>
static __device__ void multiply_span(hand &h, const chain_steps &c, const one_args &p,
                                     const span &now, const workplace &s)
{
    const int lane = threadIdx.x % 32, n_parts = p.a.out == SW_FUSED_GLU ? 2 : 1;
    const token token = {
        s.x + (lane < 4 ? lane * kind_of<KIND>::x_words : chain_x_words<KIND>(p.n_units)),
        lane < 4 ? ~0u : 0};

#pragma unroll 1
    for (int part = 0; part < n_parts; part++)
#pragma unroll 1
        for (int strip = now.begin, n; strip < now.end; strip += n) {
            float *to = s.red + ((strip - now.begin) * n_parts + part) * (N_WARPS * N_CHANNELS) +
                        (int)threadIdx.x / 32 * N_CHANNELS + lane / 4;
            tally t = {};

            n = together(strip, now.end, part * p.up_strip);
            multiply_together<KIND>(t, h, c, n, p.n_units, token);
#pragma unroll
            for (int i = 0; i < STRIPS; i++, to += n_parts * (N_WARPS * N_CHANNELS))
                if (lane % 4 == 0 && i < n) {
                    to[0] = t.sums[i][0];
                    to[8] = t.sums[i][1];
                }
        }
}

/* The channel of this thread: sums of warps, and where they go. */
template <int PARTS>
static __device__ void finish(const outlet<2> &out, const one_args &p, const float *red,
                              float x_scale, float before)
{
    const int strip = (int)threadIdx.x / N_CHANNELS;
    float v[PARTS] = {};

#pragma unroll
    for (int part = 0; part < PARTS; part++)
#pragma unroll
        for (int w = 0; w < N_WARPS; w++)
            v[part] += red[((strip * PARTS + part) * N_WARPS + w) * N_CHANNELS +
                           threadIdx.x % N_CHANNELS];
    put_out<PARTS>(out, p, job_of<false>(p), v, x_scale, before);
}

/* A thread to a channel of so many strips. */
template <int KIND>
static __device__ void open_channel(outlet<2> &out, const one_args &p, const span &now)
{
    const int strip = now.begin + (int)threadIdx.x / N_CHANNELS;

    open_outlet<KIND, 2>(out, p, job_of<false>(p), strip < now.end ? strip : -1);
}

template <int KIND>
static __device__ void run_product(hand &h, const chain_steps &c, int product, unsigned &was,
                                   bool is_first, const workplace &s, float *s_part)
{
    const one_args &p = c.products[product];
    const span all = strips_of(c, product);
    span now = {all.begin, min(all.begin + SUMMED, all.end)};
    outlet<2> out;
    held_norm norm = {}; /* else registers keep it over all steps, as if it were used again */
    uint4 raw[ROW_EIGHTS_MAX] = {};
    float before = 0, x_scale;

    if (!is_first) tell(c);
    open_channel<KIND>(out, p, now);
    if (p.a.x) hold_norm(norm, p);
    if (!is_first) await(c, was);
    if (all.begin >= all.end) return;
    if (p.a.out == SW_FUSED_ADD && out.n >= 0) before = p.a.sum[out.n];
    if (threadIdx.x < 16) s.x[chain_x_words<KIND>(p.n_units) + threadIdx.x] = 0;
    if (p.a.x) norm_row(raw, p, norm, s_part);
    else plain_row(raw, p, job_of<false>(p));
    x_scale = lay_out_all<KIND>(s.x, NULL, p, job_of<false>(p), raw, s_part);
    sw_meet<N_THREADS>();
    for (;;) {
        multiply_span<KIND>(h, c, p, now, s);
        sw_meet<N_THREADS>();
        if (out.n >= 0 && p.a.out == SW_FUSED_GLU) finish<2>(out, p, s.red, x_scale, before);
        else if (out.n >= 0) finish<1>(out, p, s.red, x_scale, before);
        if (now.end == all.end) return;
        now = {now.end, min(now.end + SUMMED, all.end)};
        open_channel<KIND>(out, p, now);
        if (p.a.out == SW_FUSED_ADD && out.n >= 0) before = p.a.sum[out.n];
        sw_meet<N_THREADS>();
    }
}

/* ---- attention ---- */

/* `job`: the first of this CTA, if it has one. The keys that are there, and how far the new one
 * turns, are on their way while others still make the query. */
template <typename T>
static __device__ void run_attention(const chain_steps &c, const chain_attention &p,
                                     const attn_job &job, unsigned &was, char *s_own)
{
    shared_state<N_HEADS_MAX> &s = *(shared_state<N_HEADS_MAX> *)s_own;
    __shared__ attn_job s_job; /* beyond the first */
    early_tile<T> early = {};
    sw_turns turns = {};

    tell(c);
    if ((int)blockIdx.x < c.n_jobs) {
        hold_tile(early, p.a, job);
        if (p.heads.q.d) sw_hold_turns(turns, p.heads, job.there - 1);
    }
    await(c, was);
    for (int at = (int)blockIdx.x; at < c.n_jobs; at += (int)gridDim.x) {
        const attn_job &j = at == (int)blockIdx.x ? job : s_job;

        if (at != (int)blockIdx.x) {
            sw_meet<N_THREADS>();
            if (threadIdx.x == 0)
                s_job = attention_job(p.a, c.splits, at % c.splits, at / c.splits);
            sw_meet<N_THREADS>();
            hold_tile(early, p.a, j);
        }
        if (j.split < j.n_parts)
            attend<N_HEADS_MAX, T>(s, p.a, p.heads, c.splits, j, c.counters, turns, early);
    }
}

/* The first job of this CTA in each attention: how many keys there are does not change on the
 * way. */
static __device__ void plan_attention(attn_job *s_jobs, const chain_steps &c)
{
    const int at = (int)blockIdx.x, i = (int)threadIdx.x;

    if (i < c.n_attentions && at < c.n_jobs)
        s_jobs[i] = attention_job(c.attention[i].a, c.splits, at % c.splits, at / c.splits);
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
    __shared__ attn_job s_jobs[CHAIN_ATTENTIONS];
    const workplace s = {(float *)s_own, (uint32_t *)s_own + RED_FLOATS};
    unsigned was = threadIdx.x ? 0 : look(c.meeting);

    for (int j = 0; j < AHEAD; j++) ask(h, j, c);
    plan_attention(s_jobs, c);
#pragma unroll 1
    for (int i = 0; i < c.n_steps; i++) {
        const int step = c.step[i];

        if (step >= CHAIN_PRODUCTS) {
            const chain_attention &p = c.attention[step - CHAIN_PRODUCTS];
            const attn_job &job = s_jobs[step - CHAIN_PRODUCTS];

            if (p.a.kv.kind == SW_KV_E4M3) run_attention<uint8_t>(c, p, job, was, s_own);
            else run_attention<sw_bf16>(c, p, job, was, s_own);
            continue;
        }
        run_product<KIND>(h, c, step, was, i == 0, s, s_part);
    }
}

/* grid: the multiprocessors of the device */
template <int KIND>
static __global__ void __launch_bounds__(N_THREADS, 1)
    swk_decode_chain(const __grid_constant__ chain_steps arguments)
{
    extern __shared__ __align__(128) char s_bytes[];
    __shared__ uint64_t s_full[BARRIERS * N_WARPS * AHEAD];
    const int warp = (int)threadIdx.x / 32;
    chain_steps *c = (chain_steps *)(s_bytes + RING_BYTES);
    hand h = {s_bytes + warp * AHEAD * SLOT, sw_smem_addr(s_full + warp * AHEAD), 0, 0,
              sw_policy_evict_first()};

    if (threadIdx.x % 32 == 0) {
        for (int j = 0; j < AHEAD; j++) sw_mbar_init(h.full + 8 * j, 1);
        for (int j = 0; BARRIERS > 1 && j < AHEAD; j++)
            sw_mbar_init(h.full + 8 * (N_WARPS * AHEAD + j), 32);
        sw_mbar_init_fence();
        outlook_of_warp() = {-1, 1};
    }
    copy_steps(c, arguments);
    go_on(h, *c);
    walk<KIND>(h, *c, (char *)(c + 1));
}

/* ---- launching ---- */

template <int KIND>
static sw_code start_chain(const chain_steps *c, int n_ctas, int shared_bytes, sw_launch how,
                           sw_err *err)
{
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attr = {};
    sw_code rc =
        sw_device_check((int)cudaFuncSetAttribute(swk_decode_chain<KIND>,
                                                  cudaFuncAttributeMaxDynamicSharedMemorySize,
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
    return sw_device_check((int)cudaLaunchKernelEx(&config, swk_decode_chain<KIND>, *c), "chain",
                           err);
}

#endif
