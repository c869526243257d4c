/* dense_few.cu - products of one to four tokens with BF16 weights, and what stands around them.
 *
 *   one CTA        8 warps and a run of strips of 8 channels; the grid is as many CTAs as the
 *                  device holds at once, with strips so that multiprocessors have equally many
 *   one warp       every 8th unit of 64 inputs of each strip of the CTA, through a ring of its own
 *   A fragments    rows g: inputs 0 to 31 of a unit, rows g + 8: inputs 32 to 63 of the same
 *                  channels; a lane's own 16 bytes of a row, as they lie
 *   B fragments    tokens from shared memory as they lie: columns 2t and 2t + 1 have the two halves
 *                  of token t
 *
 * So a strip is as narrow as an instruction has columns to spare, and more tokens cost nothing but
 * their rows. Every lane copies what it alone reads, and the ring is filled before the kernel ahead
 * has ended. The sums of warps are added in their order, after each 8 strips.
 */
#include "kernels/cuda/decode/dense_few.h"
#include "kernels/cuda/decode/division.cuh"
#include "kernels/cuda/ptx/caches.cuh"
#include "kernels/cuda/ptx/ptx_mma.cuh"

#define N_WARPS 8
#define N_THREADS (32 * N_WARPS)
#define N_CHANNELS 8 /* of a strip */
#define UNIT_K 64
#define UNIT_EIGHTS (UNIT_K / 8)
#define ROUND N_WARPS /* strips that are summed up together, a warp to one */
#define PER_SM 2
#define AHEAD 8 /* units in a warp's ring */
#define NORMED_EIGHTS 2 /* of a normed row, that a thread keeps */
#define NORMED_MAX (8 * NORMED_EIGHTS * N_THREADS)
#define SHARED_MAX (113 << 10) /* of a CTA, so that a multiprocessor holds two */

struct dense_shared {
    uint4 ring[N_WARPS][AHEAD][2][32];
    float sums[ROUND][N_WARPS][32];
    float part[N_WARPS];
    uint4 rows[]; /* [n, k_in / 8] */
};

/* ---- weights ---- */

/* The next unit that a warp asks for. */
struct cursor {
    const uint4 *row; /* the lane's, in the strip */
    int unit, n_strips;
};

static __device__ void copy16(uint4 *s_to, const uint4 *from)
{
    const uint32_t to = (uint32_t)__cvta_generic_to_shared(s_to);

    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(from)
                 : "memory");
}

/* One unit, or nothing where there is none left; a group of copies in any case. */
static __device__ void fetch(uint4 (&to)[2][32], cursor &c, int n_units)
{
    const int lane = threadIdx.x % 32;

    if (c.n_strips > 0) {
        copy16(&to[0][lane], c.row + c.unit * UNIT_EIGHTS);
        copy16(&to[1][lane], c.row + c.unit * UNIT_EIGHTS + 4);
        c.unit += N_WARPS;
        if (c.unit >= n_units) {
            c.unit = threadIdx.x / 32;
            c.row += (int64_t)n_units * UNIT_EIGHTS * N_CHANNELS;
            c.n_strips--;
        }
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* ---- tokens ---- */

/* What a thread holds of the norm's weights, asked for before there is a row. */
static __device__ void hold_norm(sw_eight (&norm)[NORMED_EIGHTS], const sw_dense_args &p)
{
#pragma unroll
    for (int j = 0; j < NORMED_EIGHTS; j++) {
        const int at = 8 * (int)(threadIdx.x + j * N_THREADS);

        if (at < p.k_in) norm[j] = sw_load_floats(p.norm + at);
    }
}

static __device__ void load_normed(dense_shared &s, const sw_eight (&norm)[NORMED_EIGHTS],
                                   const sw_dense_args &p)
{
    sw_eight e[NORMED_EIGHTS];
    float sum = 0;

#pragma unroll
    for (int j = 0; j < NORMED_EIGHTS; j++) {
        const int at = 8 * (int)(threadIdx.x + j * N_THREADS);

        if (at >= p.k_in) break;
        e[j] = sw_load_floats(p.x + at);
#pragma unroll
        for (int i = 0; i < 8; i++) sum += e[j].v[i] * e[j].v[i];
    }
    sum = sw_warp_sum(sum);
    if (threadIdx.x % 32 == 0) s.part[threadIdx.x / 32] = sum;
    sum = sw_sum_of_parts<N_WARPS>(s.part);
    const float scale = 1.0f / sqrtf(sum / (float)p.k_in + p.eps);

#pragma unroll
    for (int j = 0; j < NORMED_EIGHTS; j++) {
        const int at = (int)threadIdx.x + j * N_THREADS;

        if (8 * at >= p.k_in) break;
#pragma unroll
        for (int i = 0; i < 8; i++) e[j].v[i] *= scale * norm[j].v[i];
        sw_store8((sw_bf16 *)(s.rows + at), e[j]);
    }
}

static __device__ void load_rows(dense_shared &s, const sw_dense_args &p)
{
    const int n_eights = (int)p.k_in / 8;

#pragma unroll 1
    for (int t = 0; t < p.n; t++)
#pragma unroll 2
        for (int at = (int)threadIdx.x; at < n_eights; at += N_THREADS)
            s.rows[t * n_eights + at] = *(const uint4 *)(p.rows.d + t * p.rows.stride + 8 * at);
}

/* ---- products ---- */

/* A warp's share of a strip: lane 4g + t has channel g of token t. */
static __device__ float multiply(dense_shared &s, int &slot, cursor &next, const uint4 *x,
                                 int n_units)
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    float sum = 0;

#pragma unroll 1
    for (int u = warp; u < n_units; u += N_WARPS) {
        uint4 (&unit)[2][32] = s.ring[warp][slot];
        float d[4] = {};

        asm volatile("cp.async.wait_group %0;" ::"n"(AHEAD - 1) : "memory");
        const uint4 low = unit[0][lane], high = unit[1][lane], b = x[u * UNIT_EIGHTS];
        const uint32_t a[2][4] = {{low.x, high.x, low.y, high.y}, {low.z, high.z, low.w, high.w}};

        sw_mma_bf16(d, a[0], b.x, b.y);
        sw_mma_bf16(d, a[1], b.z, b.w);
        sum += d[0] + d[3];
        fetch(unit, next, n_units);
        slot = slot + 1 == AHEAD ? 0 : slot + 1;
    }
    return sum;
}

/* ---- the output ---- */

/* What a lane puts out in a round: channel lane / 4 of its warp's strip, of token lane % 4. */
struct outlet {
    int64_t n; /* channel, or -1: none */
    float bias, before;
};

static __device__ void open_outlet(outlet &o, const sw_dense_args &p, int strip, int n_strips)
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

    o.n = warp < n_strips && lane % 4 < p.n ? (int64_t)(strip + warp) * N_CHANNELS + lane / 4 : -1;
    o.bias = o.n >= 0 && p.bias ? p.bias[o.n] : 0.0f;
}

static __device__ void put_out(const outlet &o, const sw_dense_args &p, const dense_shared &s)
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int64_t at = lane % 4 * p.y_stride + o.n;
    float v = 0;

    if (o.n < 0) return;
#pragma unroll
    for (int w = 0; w < N_WARPS; w++) v += s.sums[warp][w][lane];
    v += o.bias;
    if (p.sum) p.sum[o.n] = o.before + v;
    else if (p.y_is_f32) ((float *)p.y)[at] = v;
    else ((sw_bf16 *)p.y)[at] = sw_round16(v);
}

/* ---- the kernel ---- */

/* grid (CTAs that share out the strips) */
static __global__ void __launch_bounds__(N_THREADS, PER_SM)
    swk_dense_few(sw_dense_args p, division division, int n_strips)
{
    extern __shared__ __align__(16) char s_bytes[];
    dense_shared &s = *(dense_shared *)s_bytes;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int n_units = (int)p.k_in / UNIT_K, column = lane / 4;
    const int token = column / 2 < p.n ? column / 2 : (int)p.n - 1;
    const uint4 *x = s.rows + token * n_units * UNIT_EIGHTS + 4 * (column % 2) + lane % 4;
    const strips mine = strips_of(p.n_sms, division);
    int strip = mine.begin, left = min(mine.n, n_strips - strip), slot = 0;
    cursor next = {(const uint4 *)p.w + (strip * (int64_t)N_CHANNELS + lane / 4) * n_units *
                                            UNIT_EIGHTS + lane % 4, warp, left};
    sw_eight norm[NORMED_EIGHTS];
    outlet out;

    sw_let_next();
#pragma unroll 1
    for (int j = 0; j < AHEAD; j++) fetch(s.ring[warp][j], next, n_units);
    open_outlet(out, p, strip, left);
    if (p.x) hold_norm(norm, p);
    sw_await_ahead();
    if (p.x) load_normed(s, norm, p);
    else load_rows(s, p);
    __syncthreads();
#pragma unroll 1
    for (;;) {
        if (p.sum && out.n >= 0) out.before = p.sum[out.n];
#pragma unroll 1
        for (int i = 0; i < min(left, ROUND); i++)
            s.sums[i][warp][lane] = multiply(s, slot, next, x, n_units);
        __syncthreads();
        put_out(out, p, s);
        strip += ROUND;
        left -= ROUND;
        if (left <= 0) break;
        open_outlet(out, p, strip, left);
        __syncthreads(); /* sums are free again */
    }
}

/* ---- the host's side ---- */

static int64_t shared_bytes(const sw_dense_args *a)
{
    return (int64_t)sizeof(dense_shared) + 2 * a->n * a->k_in;
}

extern "C" bool sw_cuda_dense_can(const sw_dense_args *a)
{
    const bool is_even = a->rows.stride % 8 == 0 && (uintptr_t)a->rows.d % 16 == 0;

    return a->sm == 90 && a->n >= 1 && a->n <= SW_DENSE_TOKENS_MAX && a->n_out % N_CHANNELS == 0 &&
           a->n_out / N_CHANNELS >= a->n_sms && a->n_out <= INT32_MAX / 2 && is_even &&
           a->k_in % UNIT_K == 0 && a->k_in >= UNIT_K * N_WARPS && shared_bytes(a) <= SHARED_MAX &&
           (!a->x || (a->n == 1 && a->k_in <= NORMED_MAX));
}

extern "C" sw_code sw_cuda_dense(const sw_dense_args *a, sw_launch how, sw_err *err)
{
    const int n_strips = (int)(a->n_out / N_CHANNELS), size_bytes = (int)shared_bytes(a);
    const division d = divide(n_strips, a->n_sms);
    sw_code rc;

    if (!sw_cuda_dense_can(a)) return SW_FAIL(err, SW_E_BUG, "a dense product of other shapes");
    rc = sw_device_check((int)cudaFuncSetAttribute(swk_dense_few,
                                                   cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                   size_bytes),
                         "dense product", err);
    if (rc != SW_OK) return rc;
    sw_divide_as_products(swk_dense_few);
    return sw_start("dense product", swk_dense_few, ctas_of(n_strips, a->n_sms, d), N_THREADS,
                    (size_t)size_bytes, how, err, *a, d, n_strips);
}
