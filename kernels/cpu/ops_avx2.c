/* ops_avx2.c - the inner loops of the fast rows with AVX2. */
#include "kernels/rows.h"

#if SW_X86_SIMD
#include "kernels/cpu/simd/vec_avx2.h"
/* the bodies are written in the words of the header above */
#include "kernels/cpu/tiles_body.h"
/* which needs the types of the one before it */
#include "kernels/cpu/dense_body.h"
#endif
