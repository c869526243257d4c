/* tensor_look.h - one tensor, or one quantized linear, looked at closely: figures and histograms of
 * its values, codes, scales and zero points. */
#ifndef SW_TOOLS_INSPECT_TENSOR_LOOK_H
#define SW_TOOLS_INSPECT_TENSOR_LOOK_H

#include "formats/checkpoint/checkpoint.h"

#define SW_BINS 32

/* Bars over equal steps from low to high, or over powers of two (is_log). */
typedef struct sw_histogram {
    const char *what;  /* "codes"; NULL: there is none */
    bool is_log;
    double low, high;  /* of the first and beyond the last bin; exponents when is_log */
    int n_bins;
    int64_t n[SW_BINS];
    int64_t n_total, n_zero, n_bad; /* bad: no finite numbers; both are in no bin where is_log */
    double min, max, mean, rms;
} sw_histogram;

typedef struct sw_tensor_look {
    const char *name;           /* borrowed */
    const sw_st_tensor *tensor; /* NULL: a quantized linear */
    sw_qspec spec;              /* of it */
    int64_t n_out, k_in;
    float global_scale, input_scale;
    sw_histogram values, codes, scales, zeros;
    sw_histogram fine_scales;   /* the same scales in parts of octaves */
} sw_tensor_look;

/* `name` is a tensor's, or the module path of a quantized linear (ckpt not NULL). SW_E_USAGE:
 * neither; it suggests the nearest. SW_E_FORMAT: it does not decode. */
sw_code sw_tensor_look_at(sw_tensor_look *out, const sw_st *st, const sw_checkpoint *ckpt,
                          const char *name, sw_err *err) SW_MUST_USE;
void sw_tensor_look_print(const sw_tensor_look *look);
bool sw_tensor_look_json(cJSON *object, const sw_tensor_look *look);

#endif
