/* scheme.c - see scheme.h. */
#include "quant/run/scheme.h"

#include <stdio.h>
#include <strings.h>

#define NO_ACT {0}
#define ACT(num_, scope_, group, scales) \
    {&sw_nums[SW_NUM_##num_], SW_ACT_##scope_, group, SW_DTYPE_##scales}

#define MODEL .scale_dtype = SW_DTYPE_F16
#define F32 .scale_dtype = SW_DTYPE_F32
#define POW2 .scale_dtype = SW_DTYPE_F32, .is_pow2_scale = true
#define E8M0 .scale_dtype = SW_DTYPE_F8_E8M0, .is_pow2_scale = true
#define E4M3 .scale_dtype = SW_DTYPE_F8_E4M3, .has_global = true

const sw_scheme sw_schemes[] = {
#define SW_SCHEME(name_, num_, symmetric, group, rows, scales, inputs, text)                    \
    {.name = name_,                                                                             \
     .spec = {.num = &sw_nums[SW_NUM_##num_], .is_symmetric = symmetric, .group_elems = group,  \
              .scale_rows = rows, scales, .act = inputs},                                       \
     .summary = text},
#include "quant/run/schemes.def"
#undef SW_SCHEME
};

const int sw_n_schemes = (int)(sizeof sw_schemes / sizeof sw_schemes[0]);

const sw_scheme *sw_scheme_find(const char *name)
{
    for (int i = 0; i < sw_n_schemes; i++)
        if (!strcasecmp(sw_schemes[i].name, name)) return &sw_schemes[i];
    return NULL;
}

sw_qspec sw_scheme_spec(const sw_scheme *scheme)
{
    sw_qspec spec = scheme->spec;

    spec.is_sign_free = !spec.num->values;
    return spec;
}

char *sw_act_text(char out[48], const sw_act *act)
{
    static const char *const scopes[SW_ACT_SCOPE_COUNT] = {
        [SW_ACT_TENSOR] = "tensor", [SW_ACT_TOKEN] = "token", [SW_ACT_GROUP] = "group of"};

    if (act->scope == SW_ACT_NONE)
        (void)snprintf(out, 48, "16 bit");
    else if (act->scope == SW_ACT_GROUP)
        (void)snprintf(out, 48, "%s per %lld", act->num->name, (long long)act->group_elems);
    else
        (void)snprintf(out, 48, "%s per %s", act->num->name, scopes[act->scope]);
    return out;
}
