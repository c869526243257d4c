/* routed_case.h - a layer of routed experts on the device: weights, routing, the result wanted. */
#ifndef SW_TESTS_GPU_SUPPORT_ROUTED_CASE_H
#define SW_TESTS_GPU_SUPPORT_ROUTED_CASE_H

#include "kernels/cuda/experts/routed.h"

typedef enum routing {
    ROUTING_RANDOM,
    ROUTING_ONE, /* all tokens choose the first experts */
    ROUTING_ODD, /* experts of even number have no token */
    ROUTING_SKEW /* one expert has every token, the others few */
} routing;

typedef enum routed_scheme {
    ROUTED_INT4,      /* with inputs of 16 bits */
    ROUTED_FP8,       /* a scale a token and a channel */
    ROUTED_FP8_BLOCK, /* groups of 128 inputs of both */
    ROUTED_W8A8,      /* int8, a scale a token and a channel */
    ROUTED_W4AFP8,    /* int4 with inputs in E4M3, a scale a token */
    ROUTED_MXFP4,     /* E2M1 in groups of 32, */
    ROUTED_NVFP4      /* and of 16 */
} routed_scheme;

typedef struct routed_shape {
    routed_scheme scheme;
    int64_t n_tokens, hidden, wide, group_elems; /* group_elems 0: per channel */
    int64_t scale_rows; /* channels of E4M3 that share their scales; 0: none */
    bool keeps_order;   /* of codes of 8 bits (kernels/cuda/gemm/column_tiles.h) */
    int n_experts, top_k;
    routing routing;
    int act;
    bool has_bias, adds;
    /* Of int4. Inputs and weights are such that all of it is exact but for the rounding of a pair's
     * result and of the sum of those. */
    bool is_exact;
    uint64_t seed;
} routed_shape;

typedef struct routed_case {
    routed_shape shape;
    sw_qtensor *up, *down;     /* [n_experts], on the host */
    float *x, *bias, *before;  /* on the host; bias [n_experts][2 wide + hidden]; before: Y */
    int32_t *chosen;
    float *share;
    sw_routed problem;
    sw_expert *experts;        /* [2][n_experts], what is on the device */
    void *d_work;
    size_t work_bytes, y_bytes;
    float *y;                  /* last result */
    double *want;              /* [n_tokens, hidden] */
} routed_case;

/* Inputs are quantized to bytes. */
bool routed_shape_has_bytes(const routed_shape *s);

void routed_case_new(routed_case *c, const routed_shape *shape);
void routed_case_free(routed_case *c);
void routed_case_expect(routed_case *c);
/* Poison, run, fetch. False: something around Y was written, or what must be zero is not. */
bool routed_case_run(routed_case *c, int rows);
/* ||y - want|| / ||want||; infinity when something is not finite. */
double routed_case_error(const routed_case *c);
/* Elements that are not the wanted one; of exact cases. */
int64_t routed_case_differing(const routed_case *c);

#endif
