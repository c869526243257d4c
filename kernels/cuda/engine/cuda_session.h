/* cuda_session.h - a session on one or several devices, shared by the files of it; inside cuda/. */
#ifndef SW_KERNELS_CUDA_ENGINE_CUDA_SESSION_H
#define SW_KERNELS_CUDA_ENGINE_CUDA_SESSION_H

#include <cuda_runtime_api.h>

#include "kernels/cuda/engine/cuda_lm.h"

/* Sequences up to which products take in what stands around them: from two on the products of
 * cuda_gemm.h are as fast (tests/bench/h200-decode.csv). */
#define SW_FUSED_SEQS_MAX 1
#define SW_LOG_CAPACITY 256 /* steps between two looks at what was drawn */

/* What a session has on the device of a part of the model. */
typedef struct sw_session_part {
    sw_device_lm *lm;
    sw_device_kv *kv;  /* [n_layers], of the layers that the part keeps */
    int32_t *d_first;  /* [n_seqs] position of the token fed last */
    int32_t *d_chunk_first;
    uint32_t *d_ids;   /* [n_seqs] tokens fed last, in the first part and where they are drawn */
    float *d_x;
    void *d_decode_scratch;
    cudaGraphExec_t graph;
    int64_t graph_generation; /* of the workspace it was captured with */
    sw_device_store store;
} sw_session_part;

struct sw_device_session {
    sw_device_lm *lm;
    sw_session_part *parts; /* [n_parts] */
    int n_parts;
    sw_device_hop *back; /* from where tokens are drawn to where they are fed; NULL: it is there */
    int64_t n_seqs, capacity;
    int64_t *n_fed;    /* [n_seqs] */
    sw_sampling sampling;
    uint32_t *log;     /* [n_seqs, LOG_CAPACITY] on the host */
    /* In the last part, where the logits are: */
    uint32_t *d_log;
    int32_t *d_n_logged, *d_not_finite;
    uint64_t *d_state;
    float *d_logits;
    bool is_warm;             /* a step has run outside a graph */
    bool has_graph;           /* or could: nothing in a step waits for the host */
    const sw_progress *progress; /* or NULL */
};

static inline sw_session_part *sw_session_last(const sw_device_session *s)
{
    return &s->parts[s->n_parts - 1];
}

/* A part's graph, to be captured anew; there need be none. */
void sw_session_drop_graph(sw_session_part *part);

#endif
