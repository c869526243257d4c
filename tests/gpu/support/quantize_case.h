/* quantize_case.h - X to be quantized on the device, and what must come out: formats/num/act.h. */
#ifndef SW_TESTS_GPU_SUPPORT_QUANTIZE_CASE_H
#define SW_TESTS_GPU_SUPPORT_QUANTIZE_CASE_H

#include "kernels/cuda/gemm/quantize.h"

#define QUANTIZE_GROUP 128
#define QUANTIZE_GUARD 1024 /* bytes on either side of what is written */

typedef struct quantize_format {
    const char *name;
    sw_act_scope scope;
    sw_num_id num;
    float input_scale;
} quantize_format;

typedef struct quantize_case {
    const quantize_format *f;
    sw_dtype dtype;
    int64_t m, k, gap; /* inputs between rows, NaNs */
    int shift;         /* inputs that X begins behind what an allocation gives */
    uint16_t *x;       /* [m, k + gap] */
    /* What is to come out, in the kernels' order; of groups [n_groups, m] scales. */
    uint8_t *codes;
    float *scales;
    int32_t *sums;
    uint8_t *d_x, *d_out; /* between guards */
    uint8_t *out;         /* what came, guards and all */
    size_t out_bytes;
} quantize_case;

sw_act quantize_case_act(const quantize_format *f);
/* Of a case whose format, type and sizes are set: memory, and X all NaNs. */
void quantize_case_new(quantize_case *p);
void quantize_case_free(quantize_case *p);
/* X to the device, and what is expected of it. */
void quantize_case_upload(quantize_case *p);
/* May rows be read 16 bytes at a time? */
bool quantize_case_is_aligned(const quantize_case *p);
/* Poison, quantize, fetch; by what is chosen where no cut is given. */
void quantize_case_run(quantize_case *p, const sw_quantize_cut *cut, bool may_overlap,
                       bool starts_next);
/* NULL: all is as expected; else what is not. */
const char *quantize_case_difference(const quantize_case *p);

/* Numbers of 16 bits, BF16 or F16. */
float half_value(uint16_t bits, sw_dtype dtype);
uint16_t half_bits(float v, sw_dtype dtype);

#endif
