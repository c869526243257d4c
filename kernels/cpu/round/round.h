/* round.h - quantized activations as floats, fast: what sw_act_round defines, bit for bit. */
#ifndef SW_KERNELS_CPU_ROUND_ROUND_H
#define SW_KERNELS_CPU_ROUND_ROUND_H

#include "kernels/rows.h"

/* dst f32 [m, k_in] = the inputs of `p` as its weight's activation quantization leaves them, on
 * p->n_threads threads. Where sw_act_round wants finite inputs: a group (or token) with a NaN, or
 * with an infinity that its scale would follow, becomes NaN. Scope NONE is not for this. */
void sw_round_inputs(float *dst, const sw_gemm *p);

/* The inner loops, one table per instruction set. */
typedef struct sw_round_ops {
    float (*abs_max)(const float *x, int64_t n); /* NaN when there is one */
    /* dst = divisor * (the value of num nearest to x / divisor); divisor above zero. */
    void (*round)(float *dst, const float *x, int64_t n, float divisor, const sw_num *num);
} sw_round_ops;

extern const sw_round_ops sw_round_ops_any;
#if SW_X86_SIMD
extern const sw_round_ops sw_round_ops_avx2, sw_round_ops_avx512;
#endif

#endif
