/* vec_avx512.c - vec_body.h for processors with AVX512, by this file's compiler flags. */
#define SW_VEC_TABLE sw_vec_avx512
#include "kernels/engine/vec/vec_body.h"
