/* launch_plan.h - what a decoder block launches on a device, as a list that is made beforehand.
 *
 * A device runs the block program of formats/model/program.h with fewer kernels than it has
 * operations. A norm can add the output of the half before it to the residual stream. A product of
 * one token can take the norm before it and the activation or the addition behind it. Attention of
 * one query takes head norms and rotations with it. Which operations go together is decided here
 * from the program, from the weights and from the kind of step; whoever runs the list decides
 * nothing. No function here needs a device.
 *
 * Buffers keep their names from the program: X is the residual stream, N what a norm makes of it,
 * T the output of a half that is to be added to X. Additions to X take the model's factor on them.
 * Operations that only some families have are launches of their own.
 */
#ifndef SW_KERNELS_ENGINE_LAUNCH_PLAN_H
#define SW_KERNELS_ENGINE_LAUNCH_PLAN_H

#include "kernels/engine/engine.h"

typedef enum sw_launch_kind {
    SW_LAUNCH_SUM,       /* X += src */
    SW_LAUNCH_NORM,      /* dst = norm of src by the weight in slot; with `adds`, X += T first */
    SW_LAUNCH_TO_BF16,   /* dst = X rounded to BF16 */
    SW_LAUNCH_SHOW,      /* no kernel: the tap sees src, which the linear in slot reads, at site */
    SW_LAUNCH_SHOW_KV,   /* no kernel: the tap sees keys and values */
    SW_LAUNCH_LINEAR,    /* dst = src times the weight in slot, plus its bias; `after`: GLU */
    SW_LAUNCH_FUSED,     /* the same of one token, with the norm before it and what `after` says */
    SW_LAUNCH_HEADS,     /* head norms and rotations of Q and K; K and V into the cache */
    SW_LAUNCH_ROPE,      /* rotate dst alone, where it is */
    SW_LAUNCH_LATENT_KV, /* K and V out of KV_B and K_ROPE */
    SW_LAUNCH_ATTENTION, /* dst = attention of src over K and V, sinks in slot */
    SW_LAUNCH_DECODE,    /* the same of one query a sequence, after what SW_LAUNCH_HEADS does */
    SW_LAUNCH_GLU,       /* dst = act(dst) * src */
    SW_LAUNCH_ACT,       /* dst = act(dst) */
    SW_LAUNCH_GATED_DELTA, /* dst = a recurrent mixer of src, with the state of its layer */
    SW_LAUNCH_KIMI_DELTA,
    SW_LAUNCH_SSD,
    SW_LAUNCH_SHORT_CONV,
    SW_LAUNCH_EXPERTS,   /* dst = routed experts of src, router in slot; with `adds`, dst += them */
    SW_LAUNCH_OP,        /* operation `op` as the program has it, by a kernel of its own */
    SW_LAUNCH_COUNT
} sw_launch_kind;

/* What a product does with its output; that of several tokens does not add. */
typedef enum sw_launch_after {
    SW_AFTER_STORE, /* dst = product */
    SW_AFTER_ADD,   /* X += product */
    SW_AFTER_GLU,   /* dst = act(first half of the channels) * second half */
    SW_AFTER_COUNT
} sw_launch_after;

/* What is done to the heads of Q and K before attention reads them. */
typedef struct sw_launch_heads {
    sw_slot q_norm, k_norm; /* weights of head norms; SW_SLOT_COUNT: none */
    bool turns_q, turns_k;
} sw_launch_heads;

typedef struct sw_planned_launch {
    sw_launch_kind kind;
    sw_buf dst, src;
    sw_slot slot;           /* SW_SLOT_COUNT: none */
    sw_site site;           /* SHOW */
    bool adds;              /* NORM, EXPERTS */
    bool is_given;          /* SHOW, LINEAR: the caller's rows stand in for src */
    bool is_kv_taken;       /* HEADS, ATTENTION, DECODE: keys and values are another layer's */
    bool is_routed;         /* EXPERTS: the router has read something of its own */
    sw_slot coded_for;      /* NORM, GLU: the linear in this slot, which comes next and alone reads
                             * dst, gets its codes instead; SW_SLOT_COUNT: none */
    bool has_codes;         /* LINEAR: src has been left so */
    sw_op_kind op;          /* OP */
    sw_slot norm;           /* FUSED: src is norm(X) by this slot; SW_SLOT_COUNT: src as it is */
    sw_launch_after after;  /* FUSED, LINEAR */
    sw_launch_heads heads;  /* HEADS, DECODE */
} sw_planned_launch;

#define SW_LAUNCH_DECODE_DIM 256 /* widest head of the kernel for one query a sequence */
#define SW_LAUNCHES_MAX 96
typedef struct sw_launch_plan {
    sw_planned_launch launch[SW_LAUNCHES_MAX];
    int n_launches;
    bool leaves_sum;        /* X += T is left to the block that runs next */
} sw_launch_plan;

/* What the weights of a block allow. */
typedef struct sw_launch_weights {
    bool is_qkv_joined;     /* slot Q holds the rows of q, k and v */
    bool is_gate_joined;    /* slot GATE holds the rows of gate and up */
    bool has_norm_bias[SW_SLOT_COUNT];
    /* Products of one token that there are kernels for, as SW_LAUNCH_FUSABLE bits. */
    uint8_t fusable[SW_SLOT_COUNT];
    /* Products of gates and ups that leave what GLU makes of them. */
    bool takes_glu[SW_SLOT_COUNT];
    /* Products whose inputs are quantized, by codes that a norm or a gate can leave. */
    bool takes_codes[SW_SLOT_COUNT];
} sw_launch_weights;
/* Whether a slot holds gates and their ups: its product could leave what GLU makes of both. */
bool sw_launch_has_gates_and_ups(const sw_launch_weights *weights, sw_slot slot);
#define SW_LAUNCH_FUSABLE(after, has_norm) (1u << (2 * (after) + ((has_norm) ? 1 : 0)))

/* What is asked of a block. */
typedef struct sw_launch_step {
    sw_half half;
    sw_site from;           /* begin at the linear that reads this site, with rows that the caller
                             * gives; SW_SITE_COUNT: at the beginning */
    sw_site stop_at;        /* or SW_RUN_ALL */
    bool is_for_experts;    /* which is DOWN_IN, and nothing but routed experts is looked at */
    bool has_tap;           /* somebody sees the inputs of linears, */
    bool shows_kv;          /* and keys and values */
    bool has_cache;         /* keys and values go into a cache */
    bool may_choose;        /* sequences may have more keys than are seen: keys are chosen */
    bool is_decode;         /* one query a sequence, against the cache */
    bool is_fused;          /* one token: products take in what stands around them */
    bool begins_with_sum;   /* the block before has left X += T */
    bool may_leave_sum;     /* another block follows, which begins with it */
} sw_launch_step;

/* Whether devices have launches for an operation. */
bool sw_launch_plan_knows(sw_op_kind kind);
/* Whether a run of that half can begin at the linear that reads `site`, with nothing but the
 * rows that it reads and the residual stream as it is before the half: what comes before that
 * linear changes neither the stream nor what lies beside it, nor makes what is read after it. */
bool sw_launch_plan_can_begin(const sw_model *m, int64_t layer, sw_half half, sw_site site);

/* The launches of a layer in their order.
 * SW_E_BUG: an operation that devices do not have (sw_device_supports refuses such models). */
sw_code sw_launch_plan_make(sw_launch_plan *out, const sw_model *m, int64_t layer,
                            const sw_launch_weights *weights, const sw_launch_step *step,
                            sw_err *err) SW_MUST_USE;
/* Of a plan that is made otherwise: norms and gates before a product that takes codes leave them,
 * where nobody else reads what they would have stored. A part of sw_launch_plan_make. */
void sw_launch_plan_codes(sw_launch_plan *plan, const sw_launch_weights *weights,
                          const sw_launch_step *step);

#endif
