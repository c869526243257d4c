/* chunk_form.cuh - recurrent mixers over many tokens at once: chunks of 64 tokens as products of
 * matrices. See mixers.h for what they compute.
 *
 * With G_t the sum of the logarithms of decays from a chunk's first token to token t, and S the
 * state before the chunk, the delta rule's corrections d_t of a chunk follow from each other:
 *
 *   d_t = step_t * (v_t - exp(G_t) S^T k_t - sum over i < t of exp(G_t - G_i) (k_i . k_t) d_i)
 *
 * which is (I + L) D = steps (V - exp(G) K S) with L strictly lower triangular. So
 *
 *   D   = U - W S             U = (I + L)^-1 steps V,  W = (I + L)^-1 steps exp(G) K
 *   out = exp(G) Q S + P D    P_ti = exp(G_t - G_i) (q_t . k_i) for i <= t, else 0
 *   S'  = exp(G_last) S + K^T (exp(G_last - G) D)
 *
 * Exponents are never above 0, so nothing overflows. Where each channel of keys decays by itself,
 * queries and keys take the decays along (chunk_channels.cuh), and rows of S have their own exp(G).
 * Three kernels: one makes U, W and P of all chunks side by side (chunk_make.cuh), one goes from
 * chunk to chunk with S in registers (chunk_states.cuh), and one norms and gates what came out
 * (chunk_norm.cuh). Mamba-2 has no W, its D is steps V: U is V, and the steps are in P and beside
 * exp(G_last - G).
 *
 * Operands of products are BF16, sums, states, the inverse, U and what comes out FP32.
 *
 * Sources: Yang, Kautz and Hatamizadeh, Gated Delta Networks (2024), section 3.3; Yang et al.,
 * Parallelizing Linear Transformers with the Delta Rule over Sequence Length (2024), section 3, for
 * the products of I + L; Dao and Gu, Transformers are SSMs (2024), section 6, for Mamba-2.
 */
#ifndef SW_KERNELS_CUDA_OPS_MIXERS_CHUNK_FORM_CUH
#define SW_KERNELS_CUDA_OPS_MIXERS_CHUNK_FORM_CUH

#include "kernels/cuda/ops/mixers/mixer_decay.cuh"
#include "kernels/cuda/ops/mixers/mixer_gate.cuh"
#include "kernels/cuda/ptx/ptx.cuh"
#include "kernels/cuda/ptx/ptx_mma.cuh"

#define SW_FORM_TOKENS 64
#define SW_FORM_COLUMNS 16    /* of values, a warp's */
#define SW_FORM_GATES 144     /* floats: exp(G), what D is taken to S' with, exp(G_last); or (by
                               * channel) exp(G_last) of each */
#define SW_FORM_CARRY 128     /* the place of the last one */
#define SW_LOG_KEEP_MIN -100.0f /* of a token: its exponential is 0, and sums stay finite */

/* A call of the three kernels: some sequences, some tokens of each. */
typedef struct sw_form_args {
    sw_walk_args walk;
    char *keys;               /* [n_seqs, n_chunks, n_groups] of sw_form_keys_bytes: Q, K^T */
    char *heads;              /* [n_seqs, n_chunks, n_heads] of sw_form_head_bytes: P, gates, W */
    char *values;             /* [n_seqs, n_chunks, n_heads, n_tiles] of sw_form_tile_bytes: U, then
                               * what comes out */
    float *state;             /* of the first of these sequences, or NULL */
    int64_t state_seq;        /* floats from one to the next */
    int seq, n_seqs, token, n_tokens, n_chunks;
    int n_tiles;              /* of SW_FORM_COLUMNS columns of a head */
    int n_splits;             /* blocks of chunk_make.cuh to a head of keys */
} sw_form_args;

/* An operand [n, k] of a product, k the sum's index: as lanes read it, 16 bytes for 8 of n and 32
 * of k. So it needs no place of its own for each lane to look for, nor padding. */
static inline __host__ __device__ int sw_form_operand_bytes(int n, int k) { return 2 * n * k; }

static inline __host__ __device__ int sw_form_keys_bytes(int d_k)
{
    return 2 * sw_form_operand_bytes(SW_FORM_TOKENS, d_k);
}

static inline __host__ __device__ int sw_form_head_bytes(int d_k, bool corrects)
{
    return sw_form_operand_bytes(SW_FORM_TOKENS, SW_FORM_TOKENS) + 4 * SW_FORM_GATES +
           (corrects ? sw_form_operand_bytes(SW_FORM_TOKENS, d_k) : 0);
}

/* Sums as the lanes have them: [8 tiles of 8 tokens][lane][4], columns the rows of the product. */
static inline __host__ __device__ int sw_form_tile_bytes(void)
{
    return 4 * SW_FORM_TOKENS * SW_FORM_COLUMNS;
}

static __device__ __forceinline__ int64_t sw_form_chunk_of(const sw_form_args &a, int seq,
                                                           int chunk)
{
    return (int64_t)seq * a.n_chunks + chunk;
}

static __device__ __forceinline__ char *sw_form_values_at(const sw_form_args &a, int64_t chunk,
                                                          int head, int tile)
{
    return a.values +
           ((chunk * a.walk.n_heads + head) * a.n_tiles + tile) * (int64_t)sw_form_tile_bytes();
}

#endif
