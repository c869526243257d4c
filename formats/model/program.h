/* program.h - the block program of a decoder layer: slots of weights, buffers, operations.
 *
 * A layer is a list of operations on named buffers. The engines run it, the quantizer walks its
 * linears and the sites where their inputs are observed; none of them knows a family by name.
 */
#ifndef SW_FORMATS_MODEL_PROGRAM_H
#define SW_FORMATS_MODEL_PROGRAM_H

#include <stdbool.h>

/* Weight slots of a block. Linears come first: they are what quantization is about. */
typedef enum sw_slot {
    SW_SLOT_Q, SW_SLOT_K, SW_SLOT_V, SW_SLOT_O,
    SW_SLOT_GATE, SW_SLOT_UP, SW_SLOT_DOWN, /* per expert in a sparse layer */
    SW_SLOT_QKV, SW_SLOT_GATE_UP,           /* stored as one: rows q, k, v; rows gate, up */
    SW_SLOT_Q_A, SW_SLOT_Q_B, SW_SLOT_KV_A, SW_SLOT_KV_B, /* low-rank (latent) attention */
    SW_SLOT_SHARED_GATE, SW_SLOT_SHARED_UP, SW_SLOT_SHARED_DOWN, /* expert of every token */
    SW_SLOT_SHARED_GATE_UP,                 /* stored as one */
    SW_SLOT_MIX_IN, SW_SLOT_MIX_Z, SW_SLOT_MIX_OUT, /* recurrent mixer: input, gate, output */
    SW_SLOT_HEAD,                           /* hidden to logits; see sw_model_linears */
    SW_SLOT_ROUTER,                         /* linear, never quantized; nor are the next eight: */
    SW_SLOT_LATENT_IN, SW_SLOT_LATENT_OUT,  /* to and from the width that experts work in; */
    SW_SLOT_MIX_A, SW_SLOT_MIX_B, SW_SLOT_MIX_BA, /* which say how much a mixer keeps and takes */
    SW_SLOT_MIX_A_RANK, SW_SLOT_MIX_Z_RANK, /* first factors of low-rank MIX_A and of the gate, */
    SW_SLOT_MIX_Z_GATE,                     /* and the gate's second */
    SW_SLOT_NORM_ATTN, SW_SLOT_NORM_MLP,    /* before each half of the block */
    SW_SLOT_NORM_AFTER_ATTN, SW_SLOT_NORM_AFTER_MLP, /* on a half's output */
    SW_SLOT_NORM_Q, SW_SLOT_NORM_K,         /* per head */
    SW_SLOT_NORM_Q_ROW, SW_SLOT_NORM_K_ROW, /* over all heads */
    SW_SLOT_NORM_Q_A, SW_SLOT_NORM_KV_A,
    SW_SLOT_NORM_FINAL,                     /* before the head */
    SW_SLOT_SINKS,                          /* a score per head that takes weight, not value */
    SW_SLOT_ROUTER_SHIFT,                   /* added to scores for the choice alone */
    SW_SLOT_CONV, SW_SLOT_CONV_Q, SW_SLOT_CONV_K, SW_SLOT_CONV_V, /* short convolutions */
    SW_SLOT_A_LOG, SW_SLOT_D, SW_SLOT_DT_BIAS, /* vectors of a recurrent mixer */
    SW_SLOT_NORM_MIX,                       /* beside its gate, never stored less one */
    SW_SLOT_ROUTER_NORM, SW_SLOT_EXPERT_SCALE, /* on the router's input; on each expert's weight */
    SW_SLOT_SHARED_ROUTER,                  /* linear to one channel, a gate; never quantized */
    SW_SLOT_NORM_DENSE_OUT, SW_SLOT_NORM_EXPERTS, SW_SLOT_NORM_EXPERTS_OUT, /* of an MLP beside
                                             * experts: on its output; around the experts */
    SW_SLOT_NORM_BRANCH_ATTN, SW_SLOT_NORM_BRANCH_MLP, /* before branches beside each other */
    SW_SLOT_LAYER_SCALE,                    /* one number */
    SW_SLOT_SIDE_GATE, SW_SLOT_SIDE_OUT, SW_SLOT_NORM_SIDE, /* of an input that each layer has for
                                             * itself: linears never quantized, and a norm */
    SW_SLOT_LOW_RANK_A, SW_SLOT_LOW_RANK_B, SW_SLOT_NORM_LOW_RANK, /* a path beside attention */
    SW_SLOT_COPY_ROUTER, SW_SLOT_COPY_PREDICT, SW_SLOT_COPY_CORRECT, /* of copies of the residual */
    SW_SLOT_COPY_NORM, SW_SLOT_COPY_SCALE,  /* stream: linears never quantized, norm, vector */
    SW_SLOT_INDEX_Q, SW_SLOT_INDEX_K, SW_SLOT_INDEX_WEIGHT, /* of what chooses keys: linears never
                                             * quantized, */
    SW_SLOT_NORM_INDEX,                     /* and a norm */
    SW_SLOT_INDEX_KV, SW_SLOT_INDEX_GATE, SW_SLOT_INDEX_POSITIONS, /* keys that it compresses: */
    SW_SLOT_COMPRESS_KV, SW_SLOT_COMPRESS_GATE, SW_SLOT_COMPRESS_POSITIONS, /* linears never
                                             * quantized, a matrix */
    SW_SLOT_NORM_COMPRESS, SW_SLOT_O_A,     /* a norm; a linear in groups, never quantized */
    SW_SLOT_HYPER_ATTN, SW_SLOT_HYPER_ATTN_BASE, SW_SLOT_HYPER_ATTN_SCALE, /* how streams are */
    SW_SLOT_HYPER_MLP, SW_SLOT_HYPER_MLP_BASE, SW_SLOT_HYPER_MLP_SCALE, /* mixed: a matrix and two
                                             * vectors, one behind the other */
    SW_SLOT_TOKEN_EXPERTS,                  /* a table of integers */
    SW_SLOT_FOUND,                          /* a linear of a family without a row: "expert" counts
                                             * those of its layer */
    SW_SLOT_COUNT
} sw_slot;

/* Inputs that several linears share: one Hessian each. In program order, those of the attention
 * half before MLP_IN. */
typedef enum sw_site {
    SW_SITE_ATTN_IN, SW_SITE_Q_B_IN, SW_SITE_KV_B_IN, SW_SITE_O_IN,
    SW_SITE_MIX_IN, SW_SITE_MIX_OUT_IN, /* of a recurrent mixer */
    SW_SITE_MLP_IN,
    SW_SITE_SHARED_IN, /* where routed experts read something else than the shared one */
    SW_SITE_SHARED_DOWN_IN, SW_SITE_DOWN_IN, SW_SITE_COUNT
} sw_site;

/* Buffers of a block program; all are [n_tokens, width]. */
typedef enum sw_buf {
    SW_BUF_X, SW_BUF_N, SW_BUF_Q, SW_BUF_K, SW_BUF_V, SW_BUF_A, SW_BUF_G, SW_BUF_U, SW_BUF_T,
    SW_BUF_QKV, SW_BUF_GATE_UP,      /* outputs of fused linears */
    SW_BUF_Q_A, SW_BUF_KV_A,         /* outputs of the first low-rank factors */
    SW_BUF_LATENT, SW_BUF_K_ROPE,    /* KV_A in its two parts */
    SW_BUF_KV_B,                     /* per head: the key's unrotated part, then the value */
    SW_BUF_SHARED_G, SW_BUF_SHARED_U, SW_BUF_SHARED_GATE_UP,
    SW_BUF_Q_GATED, SW_BUF_Q_GATE,   /* heads of queries and gates in turns; the gates alone */
    SW_BUF_MIX, SW_BUF_MIX_Z,        /* a recurrent mixer's input and gate, */
    SW_BUF_MIX_B, SW_BUF_MIX_A,      /* what makes its step and decay, */
    SW_BUF_MIX_GROUPED, SW_BUF_MIX_BA, /* the first two and the second two by key head; */
    SW_BUF_MIX_A_RANK, SW_BUF_MIX_Z_RANK, /* low-rank factors; */
    SW_BUF_MIX_O,                    /* its output */
    SW_BUF_EXPERT_IN, SW_BUF_EXPERT_OUT, /* of experts that work in another width */
    SW_BUF_ATTN_N, SW_BUF_MIX_N, SW_BUF_MIX_T, /* beside attention: what each reads; T of a mixer */
    SW_BUF_M,                        /* a second branch, beside T */
    SW_BUF_R,                        /* what a router reads */
    SW_BUF_O_RANK,                   /* what the last linear of attention reads, by groups */
    SW_BUF_SIDE,                     /* the gate of a layer's own input */
    SW_BUF_COUNT
} sw_buf;

typedef enum sw_op_kind {
    SW_OP_RMS_NORM,   /* dst = norm(src) * slot; dst may be src */
    SW_OP_LAYER_NORM, /* dst = (src - mean) / deviation * slot + its bias */
    SW_OP_LINEAR,     /* dst = src * slot^T + bias; `site` is the site src is observed at */
    SW_OP_HEAD_NORM,  /* dst = per-head rms norm of dst with slot, or without a weight */
    SW_OP_HEAD_LAYER_NORM, /* dst = per-head layer norm; slot: weights of each head, no bias */
    SW_OP_SPLIT,      /* columns of src into dst and the buffers after it, until used up */
    SW_OP_SPLIT_GROUPS, /* QKV into Q, K, V; for each key head its query heads, key and value */
    SW_OP_ROPE,       /* rotate the last rope_dim of each head of dst, or the first */
    SW_OP_ATTENTION,  /* dst = attention(Q, K, V) with the cache; slot: sinks, or none */
    SW_OP_LATENT_KV,  /* K, V = KV_B by head, every head's key completed with K_ROPE */
    SW_OP_GLU,        /* dst = act(dst) * src */
    SW_OP_ACT,        /* dst = act(dst) */
    SW_OP_ADD,        /* dst += src; to X: residual_scale times src */
    SW_OP_COPY,       /* dst = src */
    SW_OP_CLIP,       /* dst within +-qkv_clip */
    SW_OP_TEMPER,     /* rows of dst times 1 + beta ln(1 + floor((position + shift) / every)) */
    SW_OP_SCALE,      /* dst times the number in slot */
    SW_OP_ROW_GATE,   /* rows of dst times sigmoid(src * slot^T) */
    SW_OP_ROUTE,      /* the router reads src, and not what the experts read */
    SW_OP_KEEP_KV,    /* K and V are kept beside the residual stream for layers that share them */
    SW_OP_TAKE_KV,    /* K and V = what the layer that this one shares them with has kept */
    SW_OP_LOW_RANK,   /* dst = (src * LOW_RANK_A^T) * LOW_RANK_B^T */
    SW_OP_PREDICT,    /* X and its copies become what the layer expects them to be after it */
    SW_OP_CORRECT,    /* the copies learn from what X has become since, and X from the first */
    SW_OP_ADD_COPIES, /* copies but the first += src */
    SW_OP_MERGE,      /* X = the mean of the copies, in the last layer alone */
    SW_OP_HALVE,      /* dst times 1 / sqrt(2) */
    SW_OP_MUL_VECTOR, /* dst times the vector in slot */
    SW_OP_CUT,        /* dst = max(0, dst - (mean + gate_cut deviations)), in layers that do so */
    SW_OP_SIDE_INPUT, /* dst = (act(src * SIDE_GATE^T) * the layer's own input) * SIDE_OUT^T */
    SW_OP_INDEX,      /* keys that attention sees are chosen, by Q_A and src, where many are */
    SW_OP_TAKE_INDEX, /* they are those that the layer before has chosen */
    SW_OP_NEAR_FAR,   /* dst = attention of Q over K nearby and over compressed keys of N; slot:
                       * sinks */
    SW_OP_GROUP_LINEAR, /* dst = groups of src times groups of the slot's rows; never quantized */
    SW_OP_MIX_STREAMS, /* dst = residual streams by their shares; slot: the first of three */
    SW_OP_ADD_STREAMS, /* streams are mixed as that has found, and each gets its share of src */
    SW_OP_MERGE_STREAMS, /* X = the streams by their shares, in the last layer alone */
    SW_OP_ROUTE_TOKENS, /* experts are chosen by the token's id */
    SW_OP_MOE,        /* dst = routed experts of src; only in sparse layers */
    SW_OP_MOE_ADD,    /* dst += the same */
    SW_OP_KEPT_LINEAR, /* as LINEAR, of one that is never quantized nor observed */
    SW_OP_SPLIT_HEADS, /* src holds pairs of heads: the first into dst, the second into Q_GATE */
    SW_OP_GATE,       /* dst *= sigmoid(src) */
    SW_OP_FACTOR,     /* dst = src times the model's factor of dst */
    SW_OP_UNGROUP,    /* parts of each key head's columns of src into dst and the buffer after it */
    /* Recurrent mixers, from the convolution to the gated norm, with the layer's state: */
    SW_OP_GATED_DELTA, /* dst = of src: q, k, v; MIX_Z, MIX_B, MIX_A */
    SW_OP_KIMI_DELTA, /* dst = of Q, K, V; MIX_Z, MIX_B, MIX_A by key channel */
    SW_OP_SSD,        /* dst = of src: gate, x, B, C, dt */
    SW_OP_SHORT_CONV, /* dst = of src: B, C, x */
    SW_OP_COUNT
} sw_op_kind;

typedef struct sw_op {
    sw_op_kind kind;
    sw_buf dst, src;
    sw_slot slot;
    sw_site site;
} sw_op;

/* Of the expert of every token: nothing that routed experts read comes of it. */
static inline bool sw_op_is_of_shared_expert(const sw_op *op)
{
    return op->dst == SW_BUF_SHARED_G || op->dst == SW_BUF_SHARED_U ||
           op->dst == SW_BUF_SHARED_GATE_UP || op->slot == SW_SLOT_SHARED_DOWN ||
           op->slot == SW_SLOT_SHARED_ROUTER;
}

/* What runs in a layer, in order; n_ops 0: the family has no such layer. */
typedef struct sw_program {
    const sw_op *ops;
    int n_ops;
} sw_program;

/* Layers of a family may differ in more than the weights: in their mixer of tokens, in whether
 * positions turn, in what they share. Each such kind has a program with a dense MLP and one with
 * routed experts. sw_model.kind says which kind a layer is of. */
#define SW_KINDS_MAX 8
typedef struct sw_layer_kind {
    sw_program dense, sparse;
} sw_layer_kind;
typedef struct sw_kinds {
    sw_layer_kind kind[SW_KINDS_MAX];
} sw_kinds;

#endif
