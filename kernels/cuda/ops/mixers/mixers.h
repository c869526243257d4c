/* mixers.h - recurrent mixers of tokens on a device, as C functions; inside cuda/.
 *
 * The formulas are those of kernels/engine/mixers/. A launch takes a mixer from its convolution to
 * its gated norm over whole sequences: a block of threads keeps some columns of one head's state in
 * registers and walks the tokens in order, in FP32. Many tokens go by chunks in three launches,
 * with products of BF16 operands. What comes in and goes out is BF16.
 *
 * Channels of a mixer lie in runs, one for each head of keys: channel c is column
 * c / run * run_stride + c % run, so that rows which hold queries, keys and values by head of keys
 * are read where they are.
 *
 * What a sequence remembers is [n_taps, channels] floats of each convolution, position p in row
 * p % n_taps, and a matrix for each head in an order of its own. A sequence begins at position 0:
 * nothing needs to be cleared between two of them.
 */
#ifndef SW_KERNELS_CUDA_OPS_MIXERS_MIXERS_H
#define SW_KERNELS_CUDA_OPS_MIXERS_MIXERS_H

#include "kernels/cuda/ops/engine_ops.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SW_MIXER_KEYS_MAX 256 /* rows of a head's state */
#define SW_MIXER_COUNTERS 4096

typedef struct sw_mixer_columns {
    sw_bf16_rows rows;
    int64_t run, run_stride;
    float scale; /* on every element */
} sw_mixer_columns;

/* Channels that one run of a convolution makes, see kernels/engine/mixers/short_conv.h. */
typedef struct sw_conv_part {
    sw_mixer_columns x;
    const sw_bf16 *before;    /* a gate on x, with the columns and rows of x, or NULL */
    const float *taps, *bias; /* rows of `width` floats, from the first channel on; bias or NULL */
    float *kept;              /* of sequence 0, from the first channel on; NULL: starts from zeros
                               * and nothing is remembered */
    int64_t n;
} sw_conv_part;

typedef struct sw_conv_args {
    sw_conv_part part[3];
    int n_parts, n_taps;
    bool has_silu;
    int64_t width;            /* floats of a row of taps, and of `kept` */
    int64_t n_seqs, seq_len;
    int64_t state_seq;        /* floats from one sequence's state to the next one's */
    const int32_t *first;     /* position of each sequence's first token, NULL: 0 */
} sw_conv_args;

/* The norm and the gate behind a mixer, see kernels/engine/mixers/gated_norm.h. */
typedef struct sw_gate_args {
    sw_mixer_columns z;
    const float *w;           /* NULL: no norm */
    int64_t group, w_width;
    float eps;
    bool is_sigmoid, gates_first;
} sw_gate_args;

/* A mixer that keeps a matrix a head: the gated delta rules, and the state space of Mamba-2 with B
 * for keys, C for queries and x for values. */
typedef struct sw_walk_args {
    sw_conv_args conv;        /* parts: queries, keys, values */
    sw_mixer_columns step;    /* what makes beta, or dt */
    sw_mixer_columns decay;   /* delta rules: what makes g, of a head or (by channel) of its keys */
    const float *a_log, *dt_bias, *d; /* by head, dt_bias as decay; d: Mamba-2's alone */
    float dt_min, dt_max;
    bool is_by_channel;
    sw_gate_args gate;
    float *state;             /* matrices of sequence 0, or NULL as `kept` */
    sw_bf16_rows out;         /* [n_seqs * seq_len, n_heads * d_v], dense or not */
    uint32_t *counters;       /* [SW_MIXER_COUNTERS], zeros between calls */
    void *scratch;            /* of scratch_bytes, for calls of many tokens; NULL: all are walked */
    int64_t scratch_bytes;
    int n_heads, n_groups, d_k, d_v, n_sms;
} sw_walk_args;

/* Floats of the matrices of one sequence. */
int64_t sw_cuda_walk_state(int64_t n_heads, int64_t d_k, int64_t d_v);
/* SW_E_UNSUPPORTED: d_k above SW_MIXER_KEYS_MAX. One launch when seq_len is 1. Many tokens go by
 * chunks (chunk_form.cuh) when there is scratch memory for it. */
sw_code sw_cuda_gated_delta(const sw_walk_args *a, sw_launch how, sw_err *err) SW_MUST_USE;
sw_code sw_cuda_ssd(const sw_walk_args *a, sw_launch how, sw_err *err) SW_MUST_USE;
/* Bytes of scratch memory for a call, on the current device; 0: it is walked, with or without. */
int64_t sw_cuda_gated_delta_scratch(const sw_walk_args *a);
int64_t sw_cuda_ssd_scratch(const sw_walk_args *a);

/* out = the convolution of part 0, times `after` (with the columns and rows of x) unless NULL. */
typedef struct sw_short_conv_args {
    sw_conv_args conv;
    const sw_bf16 *after;
    sw_bf16_rows out;
} sw_short_conv_args;
sw_code sw_cuda_short_conv(const sw_short_conv_args *a, sw_launch how, sw_err *err) SW_MUST_USE;
/* What sequences of several tokens leave for the tokens after them; nothing where parts keep
 * nothing. After everything that reads what was kept. */
sw_code sw_cuda_conv_keep(const sw_conv_args *a, sw_launch how, sw_err *err) SW_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
