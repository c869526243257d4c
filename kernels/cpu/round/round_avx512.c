/* round_avx512.c - the rounding of inputs with AVX-512. */
#include "kernels/rows.h"

#if SW_X86_SIMD
#define ROUND_OPS sw_round_ops_avx512
#include "kernels/cpu/round/round_body.h"
#endif
