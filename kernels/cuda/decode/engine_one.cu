/* engine_one.cu - products of one token with 4- and 8-bit tiles, and what stands around them.
 *
 *   one warp       a strip of 16 channels (with SW_FUSED_GLU 16 gates and their 16 ups) and every
 *                  n_slices-th unit of 128 inputs; all its weights come through a ring of its own
 *   one CTA        8 warps: at most 8 / n_slices strips; the grid is as many CTAs as the device
 *                  holds at once, with strips so that multiprocessors have equally many
 *   A fragments    a lane's own bytes of a tile: m16n8k32; 4-bit codes are made bytes on the way
 *   B fragments    the token in column 0, from shared memory in the order lanes read it; for 4-bit
 *                  codes in fixed point, its three bytes in columns 0 to 2
 *
 * Every lane copies what it alone reads, so nobody waits for anybody until the strip is summed up;
 * of int8 in the order of columns the lanes of a warp read what they have copied together.
 * The ring is filled before the kernel ahead has ended; where not all of a warp's units have room
 * in it, a part of it, and the rest behind x. Inputs are quantized here, by each CTA for itself:
 * what sw_act_quantize defines. Sums of a strip's warps are added in their order.
 */
#include <math.h>

#include "kernels/cuda/decode/division.cuh"
#include "kernels/cuda/decode/engine_one_args.cuh"
#include "kernels/cuda/decode/engine_one_input.cuh"
#include "kernels/cuda/decode/engine_one_output.cuh"
#include "kernels/cuda/ptx/caches.cuh"

/* ---- the output ---- */

/* Of a thread to a channel of the CTA's strips. */
static __device__ int strip_to_store(const strips &s)
{
    const int mine = (int)threadIdx.x / N_CHANNELS;

    return mine < s.n ? s.begin + mine : -1;
}

template <int PARTS>
static __device__ void store(const outlet<PARTS> &o, const one_args &p, const one_job &j,
                             const float *s_red, float x_scale, float before)
{
    const int channel = threadIdx.x % N_CHANNELS, mine = threadIdx.x / N_CHANNELS;
    float v[PARTS] = {};

    if (o.n < 0) return;
#pragma unroll
    for (int part = 0; part < PARTS; part++)
        for (int w = mine * p.n_slices; w < (mine + 1) * p.n_slices; w++)
            v[part] += s_red[(w * PARTS + part) * N_CHANNELS + channel];
    put_out<PARTS>(o, p, j, v, x_scale, before);
}

/* ---- the kernel ---- */

template <int KIND> static __host__ __device__ int x_words(int n_units)
{
    return n_units * kind_of<KIND>::x_words;
}

/* The sums of a warp's strips, for channels g and g + 8, in the lanes of column 0. */
template <int KIND, int PARTS>
static __device__ void multiply_all(float (&sums)[PARTS][2], const one_args &p,
                                    unit<KIND> *s_ring, source (&from)[PARTS],
                                    const uint32_t *s_x, const float *s_units, int u, int next)
{
    using kind = kind_of<KIND>;
    constexpr int ahead = ring<KIND, PARTS>::ahead;
    const int lane = threadIdx.x % 32;
    const bool is_bf16 = p.a.tiles.spec.scale_dtype == SW_DTYPE_BF16;
    const bool are_shared = KIND == ONE_INT8 && p.a.tiles.in_columns; /* codes, by the warp */
    /* lanes without a token read zeros, which lie behind the last unit */
    const bool has_x = lane < kind::x_lanes;
    const uint4 *x = (const uint4 *)(s_x + (has_x ? lane * (kind::is_w4 ? 4 : 8)
                                                  : x_words<KIND>(p.n_units)));
    const int x_step = has_x ? kind::x_words / 4 : 0;
    const float *of_unit = s_units + u;
    float own[PARTS][kind::n_sums] = {};
    int whole[PARTS][4] = {};

    x += u * x_step;
    for (int slot = 0; u < p.n_units; u += p.n_slices) {
        asm volatile("cp.async.wait_group %0;" ::"n"(ahead - 1) : "memory");
#pragma unroll
        for (int part = 0; part < PARTS; part++) {
            unit<KIND> &t = s_ring[slot * PARTS + part];

            if constexpr (kind::is_w4)
                add_w4<KIND>(own[part], t, x, of_unit, p.n_units, is_bf16);
            else if constexpr (KIND == ONE_INT8) {
                if (are_shared) __syncwarp();
                add_int8(whole[part], t, x, are_shared);
                if (are_shared) __syncwarp(); /* all have read what is copied over next */
            } else
                add_e4m3<KIND>(sums[part], t, x, kind::has_groups ? *of_unit : 1.0f,
                               is_in_columns<KIND>(p));
            if (next < p.n_units) fetch<KIND>(t, from[part], p, next);
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
        next += p.n_slices;
        x += p.n_slices * x_step;
        of_unit += p.n_slices;
        slot = slot + 1 == ahead ? 0 : slot + 1;
    }
#pragma unroll
    for (int part = 0; part < PARTS; part++)
        if constexpr (KIND == ONE_INT8) {
            sums[part][0] = (float)whole[part][0];
            sums[part][1] = (float)whole[part][2];
        } else if constexpr (kind::is_w4) {
            join_planes(sums[part], own[part]);
        }
}

/* Ask for units `begin` to `end` of a warp's ring, of which the first is unit `next` of a strip. */
template <int KIND, int PARTS>
static __device__ __forceinline__ void fill(unit<KIND> *s_ring, source (&from)[PARTS],
                                            const one_args &p, int begin, int end, int &next)
{
#pragma unroll 1
    for (int j = begin; j < end; j++, next += p.n_slices) {
#pragma unroll
        for (int part = 0; part < PARTS; part++)
            if (next < p.n_units)
                fetch<KIND>(s_ring[j * PARTS + part], from[part], p, next);
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
}

/* x into the lanes' order; the ring's units from `early` on are asked for behind it. Returns the
 * scale of its codes. */
template <int KIND, int PARTS>
static __device__ __forceinline__ float take_x(uint32_t *s_x, float *s_units, const one_args &p,
                                               const one_job &job, const held_norm &norm,
                                               float *s_part, unit<KIND> *s_ring,
                                               source (&from)[PARTS], int early, int &next)
{
    constexpr int ahead = ring<KIND, PARTS>::ahead;

    if (p.a.x) {
        sw_eight stream[EIGHTS_MAX];

        load_stream<KIND>(stream, p);
        asm volatile("" ::: "memory");
        fill(s_ring, from, p, early, ahead, next);
        return load_norm<KIND>(s_x, s_units, p, job, norm, s_part, stream);
    }
    uint4 raw[ROW_EIGHTS_MAX] = {};

    plain_row<KIND>(raw, p, job);
    asm volatile("" ::: "memory");
    fill(s_ring, from, p, early, ahead, next);
    return lay_out_all<KIND>(s_x, s_units, p, job, raw, s_part);
}

/* grid (CTAs that share out the strips, pairs of token and expert) */
template <int KIND, int PARTS, bool IS_EXPERT>
static __global__ void __launch_bounds__(N_THREADS, PER_SM)
    swk_one_token(one_args p, division division, int early)
{
    extern __shared__ __align__(16) char s_bytes[];
    __shared__ float s_part[32], s_red[N_WARPS * PARTS * N_CHANNELS];
    constexpr int ahead = ring<KIND, PARTS>::ahead;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const strips mine = strips_of(p.a.n_sms, division);
    const int strip = mine.begin + warp / p.n_slices; /* there may be warps to spare */
    const int unit0 = warp / p.n_slices < mine.n && strip < p.n_strips ? warp % p.n_slices
                                                                          : p.n_units;
    unit<KIND> *s_ring = (unit<KIND> *)s_bytes + warp * ahead * PARTS;
    uint32_t *s_x = (uint32_t *)(s_bytes + ring<KIND, PARTS>::bytes);
    float *s_units = (float *)(s_x + x_words<KIND>(p.n_units) + kind_of<KIND>::zero_words);
    float sums[PARTS][2] = {}, x_scale, before = 0;
    source from[PARTS];
    outlet<PARTS> out;
    held_norm norm;
    int next = unit0;

#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
    const one_job job = job_of<IS_EXPERT>(p);

#pragma unroll
    for (int part = 0; part < PARTS; part++)
        from[part] = source_of<KIND>(p, job, strip + part * p.up_strip, unit0);
    if (p.a.x) hold_norm<KIND>(norm, p);
    open_outlet<KIND, PARTS>(out, p, job, strip_to_store(mine));
    fill(s_ring, from, p, 0, early, next);
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
    if (p.a.out == SW_FUSED_ADD && out.n >= 0) before = p.a.sum[out.n];
    if (threadIdx.x < kind_of<KIND>::zero_words) s_x[x_words<KIND>(p.n_units) + threadIdx.x] = 0;
    x_scale = take_x<KIND>(s_x, s_units, p, job, norm, s_part, s_ring, from, early, next);
    __syncthreads();
    multiply_all<KIND, PARTS>(sums, p, s_ring, from, s_x, s_units, unit0, next);
    if (lane % 4 == 0)
#pragma unroll
        for (int part = 0; part < PARTS; part++) {
            s_red[(warp * PARTS + part) * N_CHANNELS + lane / 4] = sums[part][0];
            s_red[(warp * PARTS + part) * N_CHANNELS + lane / 4 + 8] = sums[part][1];
        }
    __syncthreads();
    store<PARTS>(out, p, job, s_red, x_scale, before);
}

/* ---- the host's side ---- */

template <int KIND, int PARTS> static int shared_bytes(int n_units)
{
    const int of_units = kind_of<KIND>::has_zeros ? 2 : 1;

    return ring<KIND, PARTS>::bytes +
           4 * (x_words<KIND>(n_units) + kind_of<KIND>::zero_words + of_units * n_units);
}

extern "C" bool sw_cuda_one_can(const sw_fused_args *a) { return one_can(a); }

/* As many warps to a strip as one round of CTAs allows, as long as each has units to read. */
static int slices_of(const one_args *p, int64_t n_pairs)
{
    int n = N_WARPS;

    while (n > 1 && (p->n_strips * n_pairs * n > (int64_t)N_WARPS * PER_SM * p->a.n_sms ||
                     2 * n > p->n_units))
        n /= 2;
    return n;
}

/* CTAs of as many strips as they have warps for where there is more than a round of them. Several
 * pairs of token and expert are as many grids. */
static division division_of(const one_args *p, bool is_expert)
{
    const int most = N_WARPS / p->n_slices;

    if (is_expert || p->n_strips > PER_SM * most * (int64_t)p->a.n_sms) return {most, most};
    return divide(p->n_strips, p->a.n_sms);
}

/* Units of a warp's ring to ask for before x, which comes behind them: few, as CTAs that begin late
 * would wait for x until all rings are full. Where all of a warp's units have room, nothing else
 * is asked for. */
template <int KIND, int PARTS> static int early_of(const one_args *p)
{
    constexpr int ahead = ring<KIND, PARTS>::ahead;

    if ((p->n_units + p->n_slices - 1) / p->n_slices <= ahead) return ahead;
    if (PARTS == 2) return 1;
    return p->a.x ? ahead / 2 : 2;
}

template <int KIND, int PARTS, bool IS_EXPERT>
static sw_code run(one_args *p, sw_launch how, sw_err *err)
{
    const int64_t n_pairs = IS_EXPERT ? p->a.n_pairs : 1;
    const int size_bytes = shared_bytes<KIND, PARTS>(p->n_units);
    sw_code rc;

    rc = sw_device_check((int)cudaFuncSetAttribute(swk_one_token<KIND, PARTS, IS_EXPERT>,
                                                   cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                   size_bytes),
                         "product of one token", err);
    if (rc != SW_OK) return rc;
    sw_divide_as_products(swk_one_token<KIND, PARTS, IS_EXPERT>);
    p->n_slices = slices_of(p, n_pairs);
    const division d = division_of(p, IS_EXPERT);

    return sw_start("product of one token", swk_one_token<KIND, PARTS, IS_EXPERT>,
                    dim3(ctas_of(p->n_strips, p->a.n_sms, d), (unsigned)n_pairs), N_THREADS,
                    (size_t)size_bytes, how, err, *p, d, early_of<KIND, PARTS>(p));
}

template <int KIND> static sw_code run_kind(one_args *p, sw_launch how, sw_err *err)
{
    const bool is_glu = p->a.out == SW_FUSED_GLU;

    if (p->a.experts)
        return is_glu ? run<KIND, 2, true>(p, how, err) : run<KIND, 1, true>(p, how, err);
    return is_glu ? run<KIND, 2, false>(p, how, err) : run<KIND, 1, false>(p, how, err);
}

extern "C" sw_code sw_cuda_one(const sw_fused_args *a, sw_launch how, sw_err *err)
{
    static sw_code (*const kinds[])(one_args *p, sw_launch how, sw_err *err) = {
        run_kind<ONE_W4>, run_kind<ONE_W4_ZEROS>, run_kind<ONE_INT8>, run_kind<ONE_E4M3>,
        run_kind<ONE_E4M3_GROUPS>,
    };
    one_args p;

    if (!sw_cuda_one_can(a)) return SW_FAIL(err, SW_E_BUG, "a product that is not for one token");
    p = one_args_of(a);
    return kinds[one_kind_of(a)](&p, how, err);
}
