/* inspect_linears.h - the linears of an opened checkpoint by scheme, and what is wrong with how
 * they are stored. */
#ifndef SW_TOOLS_INSPECT_INSPECT_LINEARS_H
#define SW_TOOLS_INSPECT_INSPECT_LINEARS_H

#include "formats/checkpoint/checkpoint.h"

#define SW_GROUPS_MAX 64
#define SW_LEAVES_BYTES 200

/* Linears that are stored alike. */
typedef struct sw_scheme_group {
    bool is_quantized;
    sw_qspec spec;        /* when quantized */
    sw_dtype dense_dtype; /* when not, or ... */
    const char *blocks;   /* ... the type of blocks that a GGUF has them in; NULL: none */
    int64_t n_linears, n_weights;
    uint64_t n_bytes;
    char leaves[SW_LEAVES_BYTES]; /* "q_proj, k_proj", cut with "..." */
} sw_scheme_group;

/* "int4 in groups of 128, symmetric", "BF16" or "Q4_K"; returns text. */
const char *sw_group_text(char text[160], const sw_scheme_group *group);

/* Called for each fault: the code stands in *problem. */
typedef void (*sw_problem_fn)(void *self, const sw_err *problem);

/* Fill groups[], the largest first. `report` hears of parts that are missing or of another dtype or
 * shape than the config gives them, and of scales that are no numbers or not above zero. */
sw_code sw_inspect_linears(sw_scheme_group groups[SW_GROUPS_MAX], int64_t *n_groups,
                           int64_t *n_quantized, const sw_checkpoint *ckpt, sw_problem_fn report,
                           void *self, sw_err *err) SW_MUST_USE;

/* How many tensors belong to nothing that the model or its dialect has; *first is one of them,
 * borrowed, or NULL. */
sw_code sw_inspect_unknown(int64_t *n, const char **first, const sw_checkpoint *ckpt,
                           sw_err *err) SW_MUST_USE;

#endif
