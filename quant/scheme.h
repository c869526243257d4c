/* scheme.h - named schemes: number format, symmetry and grouping in one word. */
#ifndef SW_QUANT_SCHEME_H
#define SW_QUANT_SCHEME_H

#include "formats/num/num.h"

typedef struct sw_scheme {
    const char *name;
    int bits;
    bool is_symmetric;
    int64_t group_elems; /* 0: per output channel */
    const char *activations;
    const char *summary;
} sw_scheme;

extern const sw_scheme sw_schemes[];
extern const int sw_n_schemes;
const sw_scheme *sw_scheme_find(const char *name); /* case ignored; NULL when unknown */

/* The scheme's spec; scale_dtype is F16 until a dialect decides. */
sw_qspec sw_scheme_spec(const sw_scheme *scheme);

#endif
