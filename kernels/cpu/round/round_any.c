/* round_any.c - the rounding of inputs for every machine. */
#define ROUND_OPS sw_round_ops_any
#include "kernels/cpu/round/round_body.h"
