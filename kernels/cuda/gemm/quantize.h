/* quantize.h - how the tokens of X are dealt to CTAs while they are quantized (quantize.cu). */
#ifndef SW_KERNELS_CUDA_GEMM_QUANTIZE_H
#define SW_KERNELS_CUDA_GEMM_QUANTIZE_H

#include "kernels/cuda_gemm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A compiled way to quantize: how much of a token stays in registers between the scale and the
 * codes, in slices of 16 inputs a thread, and who works on it. */
typedef struct sw_quantize_way {
    const char *name;
    int held;     /* slices a thread; 0: rows of any alignment and length, read twice */
    bool is_wave; /* a CTA has a multiprocessor to itself and several tokens, and rows fit what is
                     held; else a CTA has several tokens only where each has one warp */
    int64_t tokens_min, inputs_min; /* of X, from which on it suits */
} sw_quantize_way;

extern const sw_quantize_way sw_quantize_ways[];
extern const int sw_quantize_n_ways;

typedef struct sw_quantize_cut {
    int way;    /* index into sw_quantize_ways */
    int tokens; /* of a CTA */
    int warps;  /* of a token */
} sw_quantize_cut;

/* What sw_cuda_quantize chooses. A pure function: needs no device. is_aligned: rows of X begin at
 * multiples of 16 bytes and have multiples of 8 inputs. */
sw_quantize_cut sw_quantize_cut_of(int64_t m, int64_t k_in, bool is_aligned, bool starts_next,
                                   int n_sms);
/* Can this cut quantize rows of k_in inputs? */
bool sw_quantize_can(const sw_quantize_cut *cut, int64_t k_in, bool is_aligned);
/* sw_cuda_quantize by a given cut. SW_E_UNSUPPORTED also: the cut cannot. */
sw_code sw_cuda_quantize_by(const sw_quantize_cut *cut, const sw_cuda_codes *out, const void *d_x,
                            int64_t x_stride, sw_dtype dtype, int64_t m, int64_t k_in,
                            const sw_act *act, float input_scale, bool may_overlap,
                            bool starts_next, void *stream, sw_err *err) SW_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
