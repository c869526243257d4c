/* ops_any.c - the inner loops of the rows that run on every machine. */
#include "kernels/cpu/simd/vec_any.h"
/* the bodies are written in the words of the header above */
#include "kernels/cpu/tiles_body.h"
/* which needs the types of the one before it */
#include "kernels/cpu/dense_body.h"
