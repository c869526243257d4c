/* vec_avx2.c - vec_body.h for processors with AVX2, by this file's compiler flags. */
#define SW_VEC_TABLE sw_vec_avx2
#include "kernels/engine/vec/vec_body.h"
