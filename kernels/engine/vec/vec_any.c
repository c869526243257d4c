/* vec_any.c - vec_body.h for the baseline machine. */
#define SW_VEC_TABLE sw_vec_any
#include "kernels/engine/vec/vec_body.h"
