/* engine_one.cu - products of one token with 4- and 8-bit tiles, and what stands around them.
 *
 *   one warp       a strip of 16 channels (with SW_LEAN_GLU 16 gates and their 16 ups) and every
 *                  n_slices-th unit of 128 inputs; all its weights come through a ring of its own
 *   one CTA        8 warps: 8 / n_slices strips; the grid is as many CTAs as the card holds at once
 *   A fragments    a lane's own bytes of a tile, 4-bit codes made BF16 on the way: m16n8k16; bytes
 *                  as they are: m16n8k32
 *   B fragments    the token in column 0, from shared memory in the order lanes read it
 *
 * Every lane copies what it alone reads, so nobody waits for anybody until the strip is summed up.
 * The ring is filled before the kernel ahead has ended. Inputs are quantized here, by each CTA for
 * itself: what sw_act_quantize defines. Sums of a strip's warps are added in their order.
 */
#include <math.h>

#include "kernels/cuda/engine_glu.cuh"
#include "kernels/cuda/engine_one_input.cuh"

/* ---- the output ---- */

/* A channel's own scale, where products have not taken it in. */
template <int KIND>
static __device__ float channel_scale(const one_args &p, const one_job &j, int64_t n)
{
    const int64_t at = n / 64 * 64 + 2 * (8 * (n % 64 / 16) + n % 8) + n % 16 / 8;

    if (kind_of<KIND>::has_groups) return 1.0f;
    if (p.a.tiles.spec.scale_dtype == SW_DTYPE_F32) return ((const float *)j.scales)[at];
    return scale16(((const uint16_t *)j.scales)[at],
                   p.a.tiles.spec.scale_dtype == SW_DTYPE_BF16);
}

/* A thread to a channel of the CTA's strips: what it will need, asked for early. */
template <int PARTS> struct outlet {
    int64_t n; /* channel, or -1: none */
    float scale[PARTS], bias[PARTS];
};

template <int KIND, int PARTS>
static __device__ void open_outlet(outlet<PARTS> &o, const one_args &p, const one_job &j)
{
    const int mine = threadIdx.x / N_CHANNELS;
    const int strip = blockIdx.x * (N_WARPS / p.n_slices) + mine;
    const int64_t half = (int64_t)p.up_strip * N_CHANNELS;

    o.n = -1;
    if (mine >= N_WARPS / p.n_slices || strip >= p.n_strips) return;
    o.n = (int64_t)strip * N_CHANNELS + threadIdx.x % N_CHANNELS;
#pragma unroll
    for (int part = 0; part < PARTS; part++) {
        o.scale[part] = channel_scale<KIND>(p, j, o.n + part * half);
        o.bias[part] = j.bias ? j.bias[o.n + part * half] : 0.0f;
    }
}

template <int PARTS>
static __device__ void store(const outlet<PARTS> &o, const one_args &p, const one_job &j,
                             const float *s_red, float x_scale, float before)
{
    const int channel = threadIdx.x % N_CHANNELS, mine = threadIdx.x / N_CHANNELS;
    float v[PARTS] = {};

    if (o.n < 0) return;
#pragma unroll
    for (int part = 0; part < PARTS; part++) {
        for (int w = mine * p.n_slices; w < (mine + 1) * p.n_slices; w++)
            v[part] += s_red[(w * PARTS + part) * N_CHANNELS + channel];
        v[part] = v[part] * (x_scale * o.scale[part]) + o.bias[part];
    }
    if (PARTS == 2) v[0] = sw_glu_of(p.a.act, v[0], v[PARTS - 1], p.a.limit);
    if (p.a.out == SW_LEAN_ADD) p.a.sum[o.n] = before + v[0];
    else j.y[o.n] = sw_round16(v[0]);
}

/* ---- the kernel ---- */

template <int KIND> static __host__ __device__ int x_words(int n_units)
{
    return n_units * 4 * kind_of<KIND>::x_words;
}

/* The sums of a warp's strips, for channels g and g + 8, in the lanes of column 0. */
template <int KIND, int PARTS>
static __device__ void multiply_all(float (&sums)[PARTS][2], const one_args &p,
                                    unit<KIND> *s_ring, const source (&from)[PARTS],
                                    const uint32_t *s_x, const float *s_units, uint32_t magic,
                                    int u, int next)
{
    using kind = kind_of<KIND>;
    constexpr int ahead = ring<KIND, PARTS>::ahead;
    const int lane = threadIdx.x % 32;
    const bool is_bf16 = p.a.tiles.spec.scale_dtype == SW_DTYPE_BF16;
    /* lanes without a token read zeros, which lie behind the last unit */
    const uint4 *x =
        (const uint4 *)(s_x + (lane < 4 ? lane * kind::x_words : x_words<KIND>(p.n_units)));
    const int x_step = lane < 4 ? kind::x_words : 0; /* uint4s of a unit: four lanes' words */
    int whole[PARTS][4] = {};

    for (int slot = 0; u < p.n_units; u += p.n_slices) {
        const uint4 *at = x + (int64_t)u * x_step;

        asm volatile("cp.async.wait_group %0;" ::"n"(ahead - 1) : "memory");
#pragma unroll
        for (int part = 0; part < PARTS; part++) {
            unit<KIND> &t = s_ring[slot * PARTS + part];

            if constexpr (kind::is_w4)
                add_w4<KIND>(sums[part], t, at, s_units[u], magic, is_bf16);
            else if constexpr (KIND == ONE_INT8)
                add_int8(whole[part], t, at);
            else
                add_e4m3<KIND>(sums[part], t, at, kind::has_groups ? s_units[u] : 1.0f);
            if (next < p.n_units) fetch<KIND>(t, p, from[part], next);
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
        next += p.n_slices;
        slot = slot + 1 == ahead ? 0 : slot + 1;
    }
    if constexpr (KIND == ONE_INT8)
#pragma unroll
        for (int part = 0; part < PARTS; part++) {
            sums[part][0] = (float)whole[part][0];
            sums[part][1] = (float)whole[part][2];
        }
}

/* grid (8 / n_slices strips a CTA, pairs of token and expert) */
template <int KIND, int PARTS, bool IS_EXPERT>
static __global__ void __launch_bounds__(N_THREADS, PER_SM)
    swk_one_token(one_args p, uint32_t magic)
{
    extern __shared__ __align__(16) char s_bytes[];
    __shared__ float s_part[32], s_red[N_WARPS * PARTS * N_CHANNELS];
    constexpr int ahead = ring<KIND, PARTS>::ahead;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int strip = min((int)blockIdx.x * (N_WARPS / p.n_slices) + warp / p.n_slices,
                          p.n_strips - 1); /* the last CTA may have warps to spare */
    unit<KIND> *s_ring = (unit<KIND> *)s_bytes + warp * ahead * PARTS;
    uint32_t *s_x = (uint32_t *)(s_bytes + ring<KIND, PARTS>::bytes);
    float *s_units = (float *)(s_x + x_words<KIND>(p.n_units) + 16);
    float sums[PARTS][2] = {}, x_scale, before = 0;
    source from[PARTS];
    outlet<PARTS> out;
    held_norm norm;
    int next = warp % p.n_slices;

#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
    const one_job job = job_of<IS_EXPERT>(p);

#pragma unroll
    for (int part = 0; part < PARTS; part++)
        from[part] = source_of<KIND>(p, job, strip + part * p.up_strip);
#pragma unroll 1
    for (int j = 0; j < ahead; j++, next += p.n_slices) {
#pragma unroll
        for (int part = 0; part < PARTS; part++)
            if (next < p.n_units) fetch<KIND>(s_ring[j * PARTS + part], p, from[part], next);
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
    open_outlet<KIND, PARTS>(out, p, job);
    if (p.a.x) hold_norm(norm, p);
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
    if (p.a.out == SW_LEAN_ADD && out.n >= 0) before = p.a.sum[out.n];
    if (threadIdx.x < 16) s_x[x_words<KIND>(p.n_units) + threadIdx.x] = 0;
    x_scale = p.a.x ? load_norm<KIND>(s_x, s_units, p, job, norm, s_part)
                    : load_rows<KIND>(s_x, s_units, p, job, s_part);
    __syncthreads();
    multiply_all<KIND, PARTS>(sums, p, s_ring, from, s_x, s_units, magic, warp % p.n_slices, next);
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
    return ring<KIND, PARTS>::bytes + 4 * (x_words<KIND>(n_units) + 16 + n_units);
}

static one_kind kind_for(const sw_lean_args *a)
{
    const sw_tiles *t = &a->tiles;
    const sw_act *act = &a->act_of_x;
    const bool has_groups = t->n_groups > 1, is_f32 = t->spec.scale_dtype == SW_DTYPE_F32;
    const bool is_one_scale = act->scope == SW_ACT_TOKEN || act->scope == SW_ACT_TENSOR;

    if (!t->codes || t->spec.has_global || t->spec.n_outliers) return ONE_COUNT;
    if (t->spec.num->kind == SW_NUM_INT && t->container_bits == 4 && act->scope == SW_ACT_NONE)
        return is_f32 ? ONE_COUNT : t->spec.is_symmetric ? ONE_W4 : ONE_W4_ZEROS;
    if (t->spec.num == &sw_nums[SW_NUM_INT8] && t->spec.is_symmetric && !has_groups &&
        is_one_scale && act->num == &sw_nums[SW_NUM_INT8])
        return ONE_INT8;
    if (t->spec.num != &sw_nums[SW_NUM_E4M3] || act->num != t->spec.num || a->sm < 89)
        return ONE_COUNT;
    if (is_one_scale && !has_groups) return ONE_E4M3;
    return act->scope == SW_ACT_GROUP && act->group_elems == UNIT_K &&
                   act->scale_dtype == SW_DTYPE_F32 && is_f32
               ? ONE_E4M3_GROUPS
               : ONE_COUNT;
}

static bool is_power(int64_t n) { return n > 0 && (n & (n - 1)) == 0; }

extern "C" bool sw_cuda_one_can(const sw_lean_args *a)
{
    const sw_tiles *t = &a->tiles;
    const int64_t group = t->spec.group_elems;
    const sw_dtype s = t->spec.scale_dtype;

    return a->n == 1 && kind_for(a) != ONE_COUNT &&
           (s == SW_DTYPE_F32 || s == SW_DTYPE_F16 || s == SW_DTYPE_BF16) &&
           (group == 0 || (group % UNIT_K == 0 && is_power(group / UNIT_K))) &&
           t->k_in % UNIT_K == 0 && t->k_in <= (a->x ? EIGHTS_MAX * 8 * N_THREADS : K_MAX) &&
           t->n_out % (a->out == SW_LEAN_GLU ? 32 : 16) == 0;
}

/* As many warps to a strip as one round of CTAs allows, as long as each has units to read. */
static int slices_of(const one_args *p, int64_t n_pairs)
{
    int n = N_WARPS;

    while (n > 1 && (p->n_strips * n_pairs * n > (int64_t)N_WARPS * PER_SM * p->a.n_sms ||
                     2 * n > p->n_units))
        n /= 2;
    return n;
}

template <int KIND, int PARTS, bool IS_EXPERT>
static sw_code run(one_args *p, sw_launch how, sw_err *err)
{
    const int64_t n_pairs = IS_EXPERT ? p->a.n_pairs : 1;
    const int size_bytes = shared_bytes<KIND, PARTS>(p->n_units);
    sw_code rc;

    rc = sw_gpu_check((int)cudaFuncSetAttribute(swk_one_token<KIND, PARTS, IS_EXPERT>,
                                                cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                size_bytes),
                      "product of one token", err);
    if (rc != SW_OK) return rc;
    p->n_slices = slices_of(p, n_pairs);
    return sw_start("product of one token", swk_one_token<KIND, PARTS, IS_EXPERT>,
                    dim3(sw_blocks(p->n_strips, N_WARPS / p->n_slices), (unsigned)n_pairs),
                    N_THREADS, (size_t)size_bytes, how, err, *p, 0x43004300u);
}

template <int KIND> static sw_code run_kind(one_args *p, sw_launch how, sw_err *err)
{
    const bool is_glu = p->a.out == SW_LEAN_GLU;

    if (p->a.experts)
        return is_glu ? run<KIND, 2, true>(p, how, err) : run<KIND, 1, true>(p, how, err);
    return is_glu ? run<KIND, 2, false>(p, how, err) : run<KIND, 1, false>(p, how, err);
}

extern "C" sw_code sw_cuda_one(const sw_lean_args *a, sw_launch how, sw_err *err)
{
    static sw_code (*const kinds[])(one_args *p, sw_launch how, sw_err *err) = {
        run_kind<ONE_W4>, run_kind<ONE_W4_ZEROS>, run_kind<ONE_INT8>, run_kind<ONE_E4M3>,
        run_kind<ONE_E4M3_GROUPS>,
    };
    const int64_t group = a->tiles.spec.group_elems;
    one_args p = {};

    if (!sw_cuda_one_can(a)) return SW_FAIL(err, SW_E_BUG, "a product that is not for one token");
    p.a = *a;
    p.n_units = (int)(a->tiles.k_in / UNIT_K);
    p.n_groups = (int)a->tiles.n_groups;
    p.group_shift = 30;
    if (group) p.group_shift = __builtin_ctzll((unsigned long long)(group / UNIT_K));
    p.n_strips = (int)(a->tiles.n_out / N_CHANNELS);
    if (a->out == SW_LEAN_GLU) p.up_strip = p.n_strips /= 2;
    p.top = a->act_of_x.scope == SW_ACT_NONE ? 0 : a->act_of_x.num->top;
    return kinds[kind_for(a)](&p, how, err);
}
