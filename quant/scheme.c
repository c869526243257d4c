/* scheme.c - see scheme.h. */
#include "quant/scheme.h"

#include <strings.h>

const sw_scheme sw_schemes[] = {
#define SW_SCHEME(name, bits, symmetric, group, acts, text) \
    {name, bits, symmetric, group, acts, text},
#include "quant/schemes.def"
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
    sw_qspec spec = {.num = sw_num_by_bits(scheme->bits), .is_symmetric = scheme->is_symmetric,
                     .group_elems = scheme->group_elems, .scale_dtype = SW_DTYPE_F16};
    return spec;
}
