/* routed_args.h - what the host tells the kernels of routed experts; passed by value. */
#ifndef SW_KERNELS_CUDA_EXPERTS_ROUTED_ARGS_H
#define SW_KERNELS_CUDA_EXPERTS_ROUTED_ARGS_H

#include "kernels/cuda/gemm/weight_only/weight_only_args.h"
#include "kernels/cuda/ops/engine_ops.h"

#define RT_BAND 8          /* blocks of an expert that are walked side by side, at most */
#define RT_FEW_BOX 8       /* rows of a box of inputs, for few rows and for many: what a block
                              does not have is not brought */
#define RT_MANY_BOX 32
#define RT_FEW_CTAS 2      /* of a multiprocessor, of the kernels for few rows, at most */
#define RT_EXPERTS_MAX 1024

/* A run of sorted rows that one expert multiplies at once, and where its weights lie: of gates and
 * ups, of downs. */
typedef struct rt_block {
    const void *codes[2], *scales[2];
    const float *bias[2];
    float global_scale[2];
    int row0, n_rows;
    int band0, band_n; /* the blocks of the same expert that share its weights in the L2 */
} rt_block;

/* The lists that sorting makes. */
typedef struct rt_lists {
    int *n_blocks;     /* [1] */
    rt_block *blocks;  /* [at most rt_blocks_max] */
    int *pair_of_row;  /* [n_pairs]: sorted row to pair token * top_k + place */
    float *share_of_row;
} rt_lists;

typedef struct rt_sort_args {
    rt_lists to;
    const int32_t *chosen; /* [n_pairs] */
    const float *share;    /* [n_pairs] */
    bool has_choices;      /* they are there when this begins: the kernel ahead makes codes of X,
                              and lets others start only after it has waited itself */
    const sw_expert *ups, *downs;
    int n_pairs, n_experts;
    int rows;              /* of a block, at most */
    int even;              /* 0, or: an expert's blocks are alike, in multiples of so many rows */
    int top_k;
    int n_runs, run_pairs; /* of pairs that a CTA places; set where it is launched */
    const uint8_t *x;      /* rows of tokens */
    int64_t x_stride;      /* bytes */
    uint8_t *x_sorted;     /* [n_pairs, width] */
    int width;             /* bytes, a multiple of 16 */
    const float *scales;   /* of groups of X [n_groups, n_pairs / top_k], where these are sorted */
    float *scales_sorted;  /* [n_groups, n_pairs]; NULL: they are not */
    int n_groups;
} rt_sort_args;

/* A product of all blocks with their experts' weights. */
typedef struct rt_args {
    nw_args nw;            /* scale_bytes and scales_are_bf16 alone */
    rt_lists lists;        /* blocks NULL: a block is a pair of one token */
    const int32_t *chosen; /* for that */
    int n_pairs;
    const float *share;    /* [n_pairs], for that */
    const sw_expert *experts; /* for that */
    uint16_t *y;           /* [n_pairs, n_out], in sorted rows with GLU, in pairs without */
    int64_t n_out;
    int n_tiles;           /* of 64 channels, of gates alone with GLU */
    int n_units;           /* units of channels in a block */
    int k_tiles, k_stages, group_stages;
    int tile_bytes;        /* of codes */
    int record_bytes;      /* of the scales of a tile and group, or of all groups of a stage */
    int scale_bytes;       /* of the scales of a tile, all along k */
    float factor;          /* of what is multiplied, in all experts */
    /* Inputs of bytes: what their codes are to be multiplied by, of rows or of groups of 128 inputs
     * and rows, and of how many rows: sorted ones, but of one token its only one with GLU. */
    const float *x_scales;
    int x_rows;
    float *partials;       /* [CTAs], see routed_few.cuh */
    int *flags;            /* [CTAs], zero before and after: a partial sum is there */
    float slope, limit, shift; /* g = min(g, limit): g / (1 + exp(-slope g)) (u + shift), u within
                                  +-limit */
} rt_args;

#endif
