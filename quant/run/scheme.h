/* scheme.h - named schemes: number format, symmetry, grouping and inputs in one word. */
#ifndef SW_QUANT_RUN_SCHEME_H
#define SW_QUANT_RUN_SCHEME_H

#include "formats/num/num.h"

typedef struct sw_scheme {
    const char *name;
    sw_qspec spec;
    const char *summary;
} sw_scheme;

extern const sw_scheme sw_schemes[];
extern const int sw_n_schemes;
const sw_scheme *sw_scheme_find(const char *name); /* case ignored; NULL when unknown */

/* The scheme's spec, with scales of either sign where that helps; a scale_dtype of F16 stands for
 * the dialect's own (sw_dialect_scale_dtype). */
sw_qspec sw_scheme_spec(const sw_scheme *scheme);

/* "16 bit", "int8 per token", "e2m1 per 16": what becomes of the inputs; returns `out`. */
char *sw_act_text(char out[48], const sw_act *act);

#endif
