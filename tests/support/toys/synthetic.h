/* synthetic.h - which tensors a model of random weights has, and its config.json: the shapes of
 * well-known models by name, with any number of layers, to measure memory and time.
 */
#ifndef SW_TESTS_SUPPORT_TOYS_SYNTHETIC_H
#define SW_TESTS_SUPPORT_TOYS_SYNTHETIC_H

#include <stdint.h>

#include "formats/base/status.h"

/* What the sizes of tensors and the numbers of config.json are made of. */
typedef enum synthetic_size {
    SYN_NONE, /* as columns: a vector */
    SYN_HIDDEN,
    SYN_WIDTH,
    SYN_LAYERS,
    SYN_HEADS,
    SYN_KV_HEADS,
    SYN_HEAD,
    SYN_VOCAB,
    SYN_EXPERTS,
    SYN_TOP,
    SYN_EXPERT_WIDTH,
    SYN_Q_RANK, /* latent attention: what queries, and keys with values, are projected down to */
    SYN_KV_RANK,
    SYN_NOPE, /* parts of a head without and with positions, and of its values */
    SYN_ROPE,
    SYN_VALUE,
    SYN_GROUPS, /* of experts, and how many of them a token may use */
    SYN_TOP_GROUPS,
    SYN_GIVEN,
    SYN_Q = SYN_GIVEN, /* products and sums of those above: all heads */
    SYN_KV,
    SYN_Q_UP,
    SYN_KV_DOWN,
    SYN_KV_UP,
    SYN_O_IN,
    SYN_SIZES
} synthetic_size;

typedef struct synthetic_family synthetic_family;

typedef struct synthetic {
    const char *name; /* "8b" */
    const synthetic_family *family;
    int64_t size[SYN_SIZES];
} synthetic;

typedef struct synthetic_tensor {
    char name[120];
    int64_t rows, cols; /* cols 0: a vector */
    float value;        /* of a vector's elements */
} synthetic_tensor;

/* The row of that name. SW_E_USAGE lists the names. */
sw_code synthetic_find(synthetic *out, const char *name, sw_err *err) SW_MUST_USE;
/* A llama, or with experts a mixtral, of these sizes: hidden, intermediate, layers, heads, heads of
 * keys and values, vocabulary. */
synthetic synthetic_of(const int64_t sizes[6], int64_t experts);
/* All tensors in the order of the file; the caller frees them by sw_mem_put. */
sw_code synthetic_tensors(synthetic_tensor **out, int64_t *n_out, const synthetic *s,
                          sw_err *err) SW_MUST_USE;
/* config.json up to its last member, without the closing brace; the caller frees it. */
sw_code synthetic_config(char **out, const synthetic *s, sw_err *err) SW_MUST_USE;

#endif
