/* round_avx2.c - the rounding of inputs with AVX2. */
#include "kernels/rows.h"

#if SW_X86_SIMD
#define ROUND_OPS sw_round_ops_avx2
#include "kernels/cpu/round/round_body.h"
#endif
