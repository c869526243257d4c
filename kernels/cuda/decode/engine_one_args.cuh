/* engine_one_args.cuh - which products of one token there are kernels for, and how they are told.
 * See engine_one.cu. */
#ifndef SW_KERNELS_CUDA_DECODE_ENGINE_ONE_ARGS_CUH
#define SW_KERNELS_CUDA_DECODE_ENGINE_ONE_ARGS_CUH

#include "formats/model/model.h"
#include "kernels/cuda/decode/engine_one_mma.cuh"

/* ONE_COUNT: none. */
static one_kind one_kind_of(const sw_fused_args *a)
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
    if (is_one_scale && !has_groups) return t->in_columns ? ONE_COUNT : ONE_E4M3;
    return act->scope == SW_ACT_GROUP && act->group_elems == UNIT_K &&
                   act->scale_dtype == SW_DTYPE_F32 && is_f32
               ? ONE_E4M3_GROUPS
               : ONE_COUNT;
}

static bool is_power(int64_t n) { return n > 0 && (n & (n - 1)) == 0; }

static bool one_can(const sw_fused_args *a)
{
    const sw_tiles *t = &a->tiles;
    const int64_t group = t->spec.group_elems;
    const sw_dtype s = t->spec.scale_dtype;

    return a->n == 1 && one_kind_of(a) != ONE_COUNT &&
           (s == SW_DTYPE_F32 || s == SW_DTYPE_F16 || s == SW_DTYPE_BF16) &&
           (group == 0 || (group % UNIT_K == 0 && is_power(group / UNIT_K))) &&
           t->k_in % UNIT_K == 0 && t->k_in <= (a->x ? NORMED_MAX : K_MAX) &&
           t->n_out % (a->out == SW_FUSED_GLU ? 32 : 16) == 0 &&
           (a->out != SW_FUSED_GLU || a->act != SW_MLP_RELU_SQUARED);
}

/* Of one that can. */
static one_args one_args_of(const sw_fused_args *a)
{
    const int64_t group = a->tiles.spec.group_elems;
    one_args p = {};

    p.a = *a;
    p.n_units = (int)(a->tiles.k_in / UNIT_K);
    p.n_groups = (int)a->tiles.n_groups;
    p.group_shift = 30;
    if (group) p.group_shift = __builtin_ctzll((unsigned long long)(group / UNIT_K));
    p.n_strips = (int)(a->tiles.n_out / N_CHANNELS);
    if (a->out == SW_FUSED_GLU) p.up_strip = p.n_strips /= 2;
    p.top = a->act_of_x.scope == SW_ACT_NONE ? 0 : a->act_of_x.num->top;
    return p;
}

#endif
