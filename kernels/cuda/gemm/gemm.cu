/* gemm.cu - the table of the device's kernels, the choice of a row, and how one is run. */
#include <cuda_runtime.h>
#include <string.h>

#include "formats/model/model.h"
#include "kernels/cuda/gemm/gemm_rows.h"

extern "C" const sw_cuda_kernel sw_cuda_kernels[] = {
#define SW_CUDA_KERNEL(name, prefix, sm_min, sm_max, ops)                                        \
    {name, sm_min, sm_max, prefix##_tiles, &prefix##_n_tiles, prefix##_can_run, prefix##_suits, \
     prefix##_plan, prefix##_workspace_bytes, prefix##_run},
#include "kernels/cuda_kernels.def"
#undef SW_CUDA_KERNEL
};
extern "C" const int sw_cuda_n_kernels = (int)(sizeof sw_cuda_kernels / sizeof *sw_cuda_kernels);

extern "C" sw_code sw_cuda_check(int e, const char *what, sw_err *err)
{
    if (e == cudaSuccess) return SW_OK;
    return SW_FAIL(err, SW_E_CUDA, "%s: %s", what, cudaGetErrorString((cudaError_t)e));
}

extern "C" sw_code sw_cuda_device_query(sw_cuda_device *out, int device, sw_err *err)
{
    static const cudaDeviceAttr wanted[] = {cudaDevAttrComputeCapabilityMajor,
                                            cudaDevAttrComputeCapabilityMinor,
                                            cudaDevAttrMultiProcessorCount};
    int found[3];

    for (int i = 0; i < 3; i++) {
        sw_code rc = sw_cuda_check(cudaDeviceGetAttribute(&found[i], wanted[i], device),
                                   "cudaDeviceGetAttribute", err);

        if (rc) return rc;
    }
    *out = {found[0] * 10 + found[1], found[2]};
    return SW_OK;
}

extern "C" sw_cuda_weights sw_cuda_weights_of(const sw_tiles *t)
{
    static const sw_cuda_weights ints[] = {
        SW_CUDA_W_NONE, SW_CUDA_W_NONE, SW_CUDA_W_INT2, SW_CUDA_W_INT3, SW_CUDA_W_INT4,
        SW_CUDA_W_NONE, SW_CUDA_W_NONE, SW_CUDA_W_NONE, SW_CUDA_W_INT8,
    };

    if (t->spec.has_global || t->spec.n_outliers) return SW_CUDA_W_NONE;
    /* Symmetric codes of 2 and 3 bits have another zero point than a container of 4. */
    if (t->spec.num->kind == SW_NUM_INT && t->spec.is_symmetric &&
        t->spec.num->sym_zero != 1 << (t->container_bits - 1))
        return SW_CUDA_W_NONE;
    if (t->spec.num->kind == SW_NUM_INT) return ints[t->container_bits];
    return t->spec.num == &sw_nums[SW_NUM_E4M3] ? SW_CUDA_W_E4M3 : SW_CUDA_W_NONE;
}

extern "C" sw_cuda_inputs sw_cuda_inputs_of(const sw_act *act)
{
    bool is_f32 = act->scale_dtype == SW_DTYPE_F32 || act->scope == SW_ACT_TENSOR;

    if (act->scope == SW_ACT_NONE) return SW_CUDA_X_FLOAT;
    if (act->scope == SW_ACT_GROUP)
        return act->num == &sw_nums[SW_NUM_E4M3] && is_f32 && act->group_elems == 128
                   ? SW_CUDA_X_E4M3_GROUPS
                   : SW_CUDA_X_NONE;
    if (!is_f32) return SW_CUDA_X_NONE;
    if (act->num == &sw_nums[SW_NUM_INT8]) return SW_CUDA_X_INT8;
    return act->num == &sw_nums[SW_NUM_E4M3] ? SW_CUDA_X_E4M3 : SW_CUDA_X_NONE;
}

extern "C" int sw_cuda_kernel_find(const char *name)
{
    for (int i = 0; i < sw_cuda_n_kernels; i++)
        if (strcmp(sw_cuda_kernels[i].name, name) == 0) return i;
    return -1;
}

/* What no kernel takes. */
static sw_code check(const sw_cuda_gemm *p, sw_err *err)
{
    const sw_tiles *t = &p->tiles;
    int64_t group = t->spec.group_elems;
    sw_dtype s = t->spec.scale_dtype;

    if (p->dtype != SW_DTYPE_BF16 && p->dtype != SW_DTYPE_F16)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "X and Y must be BF16 or F16");
    if (t->is_marlin)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "weights in Marlin's order; sw_marlin_retile makes "
                       "tiles of them");
    /* the kernels take 8 for the zero point of 4 bits */
    if (t->spec.is_symmetric && t->spec.num->bits < 4 && t->container_bits >= 4)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "%s without zero points in 4 bits; give all of them "
                       "as %d", t->spec.num->name, t->spec.num->sym_zero);
    if (sw_cuda_weights_of(t) == SW_CUDA_W_NONE)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "no device kernel for weights in %s%s%s",
                       t->spec.num->name, t->spec.has_global ? " with a global scale" : "",
                       t->spec.n_outliers ? " beside outlier channels" : "");
    if (s != SW_DTYPE_F16 && s != SW_DTYPE_BF16 && s != SW_DTYPE_F32)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "scales must be F16, BF16 or F32 on the device");
    if (group % 128 && group != 32 && group != 64)
        return SW_FAIL(err, SW_E_UNSUPPORTED,
                       "groups of %lld inputs; the device kernels take 32, 64 and multiples of 128",
                       (long long)group);
    if (sw_cuda_inputs_of(&p->act) == SW_CUDA_X_NONE)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "no device kernel for these activations");
    if (p->m > INT32_MAX || t->n_out > INT32_MAX - 64 || t->k_in > INT32_MAX - 64)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "a dimension beyond 2^31");
    return SW_OK;
}

static bool can_run(const sw_cuda_kernel *k, const sw_cuda_gemm *p, const sw_cuda_device *device)
{
    bool can = false;

    if (device->sm < k->sm_min || device->sm > k->sm_max) return false;
    for (int t = 0; t < *k->n_tiles && !can; t++) can = k->can_run(p, t);
    return can;
}

extern "C" sw_code sw_cuda_gemm_plan(sw_cuda_plan *out, const sw_cuda_gemm *p,
                                     const sw_cuda_device *device, const char *kernel, sw_err *err)
{
    sw_code rc = check(p, err);
    sw_cuda_counted counted = {};
    int found = -1, forced = kernel ? sw_cuda_kernel_find(kernel) : -1;
    bool suits = false;

    if (rc) return rc;
    for (int i = 0; i < sw_cuda_n_kernels && !suits; i++)
        if (can_run(&sw_cuda_kernels[i], p, device)) {
            found = i;
            suits = sw_cuda_kernels[i].suits(p, device, &counted);
        }
    if (forced >= 0 && can_run(&sw_cuda_kernels[forced], p, device)) found = forced;
    if (found < 0)
        return SW_FAIL(err, SW_E_UNSUPPORTED,
                       "no kernel for %d-bit %s weights with such activations on a device of "
                       "compute capability %d.%d",
                       p->tiles.container_bits, p->tiles.spec.num->name, device->sm / 10,
                       device->sm % 10);
    sw_cuda_kernels[found].plan(out, p, device, &counted);
    out->kernel = found;
    return SW_OK;
}

/* Of quantized inputs only with one scale a channel and a token, and bytes in whole stages. Gates
 * and their ups lie in different parts of a product. */
extern "C" bool sw_cuda_gemm_takes_glu(const sw_cuda_gemm *p, const sw_cuda_plan *plan)
{
    const sw_tiles *t = &p->tiles;
    const bool is_plain = t->container_bits == 8 && t->n_groups == 1 && t->k_in % 128 == 0 &&
                          p->act.scope != SW_ACT_GROUP &&
                          (t->in_columns || sw_cuda_weights_of(t) != SW_CUDA_W_INT8);

    return sw_cuda_kernels[plan->kernel].tiles[plan->tile].takes_gates && !plan->rest.from &&
           p->dtype == SW_DTYPE_BF16 && t->n_out % 128 == 0 &&
           (p->act.scope == SW_ACT_NONE || is_plain) && p->glu.act != SW_MLP_RELU_SQUARED;
}

static bool quantizes(const sw_cuda_gemm *p)
{
    return p->act.scope != SW_ACT_NONE && !p->x_codes.d_codes;
}

/* The plan of the last channels as one of all of them. */
static sw_cuda_plan rest_of(const sw_cuda_plan *plan)
{
    sw_cuda_plan rest = *plan;

    rest.kernel = plan->rest.kernel;
    rest.tile = plan->rest.tile;
    rest.split = plan->rest.split;
    rest.rest.from = 0;
    return rest;
}

/* Channels `from` to `to` of p: their tiles, scales and zero points lie together. */
static sw_cuda_gemm channels_of(const sw_cuda_gemm *p, int64_t from, int64_t to)
{
    const sw_tiles *t = &p->tiles;
    const int64_t tile = from / SW_TILE_N;
    sw_cuda_gemm part = *p;

    part.tiles.n_out = to - from;
    part.tiles.codes = t->codes + tile * sw_tiles_k(t->k_in) * sw_tile_bytes(t->container_bits);
    part.tiles.scales = (const uint8_t *)t->scales +
                        sw_tiles_scales_bytes(t->spec.scale_dtype, from, t->n_groups);
    if (t->zeros) part.tiles.zeros = t->zeros + sw_tiles_zeros_bytes(from, t->n_groups);
    part.d_y = (uint16_t *)p->d_y + from;
    return part;
}

extern "C" size_t sw_cuda_gemm_workspace_bytes(const sw_cuda_gemm *p, const sw_cuda_plan *plan)
{
    size_t codes = quantizes(p) ? sw_cuda_codes_bytes(p->m, p->tiles.k_in, &p->act) : 0;
    size_t behind = sw_cuda_kernels[plan->kernel].workspace_bytes(p, plan);

    if (plan->rest.from) {
        const sw_cuda_plan rest = rest_of(plan);
        size_t more = sw_cuda_kernels[rest.kernel].workspace_bytes(p, &rest);

        if (more > behind) behind = more;
    }
    return codes + behind;
}

static bool can_run_plan(const sw_cuda_gemm *p, const sw_cuda_plan *plan)
{
    const sw_cuda_kernel *kernel = &sw_cuda_kernels[plan->kernel];

    return plan->tile < *kernel->n_tiles && kernel->can_run(p, plan->tile);
}

/* In one launch or two. The second writes what the first does not, and no weights. */
static sw_code run_parts(const sw_cuda_gemm *p, const sw_cuda_plan *plan, void *d_workspace,
                         void *stream, sw_err *err)
{
    const sw_cuda_plan last = rest_of(plan);
    sw_cuda_gemm part = channels_of(p, 0, plan->rest.from ? plan->rest.from : p->tiles.n_out);
    sw_code rc = sw_cuda_kernels[plan->kernel].run(&part, plan, d_workspace, stream, err);

    if (rc || !plan->rest.from) return rc;
    part = channels_of(p, plan->rest.from, p->tiles.n_out);
    part.may_overlap = true;
    return sw_cuda_kernels[last.kernel].run(&part, &last, d_workspace, stream, err);
}

extern "C" sw_code sw_cuda_gemm_run(const sw_cuda_gemm *p, const sw_cuda_plan *plan,
                                    void *d_workspace, void *stream, sw_err *err)
{
    const sw_cuda_plan rest = rest_of(plan);
    int64_t k_in = p->tiles.k_in;
    sw_cuda_gemm with_codes = *p;
    sw_code rc = check(p, err);

    if (rc || p->m == 0) return rc;
    if (!can_run_plan(p, plan) || (plan->rest.from && !can_run_plan(p, &rest)))
        return SW_FAIL(err, SW_E_UNSUPPORTED, "%s cannot run this problem",
                       sw_cuda_kernels[plan->kernel].name);
    if (p->glu.is_wanted && !sw_cuda_gemm_takes_glu(p, plan))
        return SW_FAIL(err, SW_E_BUG, "%s of gates and ups", sw_cuda_kernels[plan->kernel].name);
    if (quantizes(p)) {
        with_codes.x_codes = sw_cuda_codes_at(d_workspace, p->m, k_in, &p->act);
        rc = sw_cuda_quantize(&with_codes.x_codes, p->d_x, p->x_stride, p->dtype, p->m, k_in,
                              &p->act, p->tiles.input_scale, p->may_overlap && plan->overlap,
                              plan->starts_early, stream, err);
        if (rc) return rc;
        d_workspace = (uint8_t *)d_workspace + sw_cuda_codes_bytes(p->m, k_in, &p->act);
    }
    return run_parts(&with_codes, plan, d_workspace, stream, err);
}
