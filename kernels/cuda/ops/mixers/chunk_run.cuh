/* chunk_run.cuh - when a recurrent mixer goes by chunks, and the launches of it. See
 * chunk_form.cuh.
 *
 * Long calls are cut into parts of SW_FORM_ROWS tokens of all sequences together, so that what the
 * kernels leave to each other stays in the second cache and memory for it is bounded.
 */
#ifndef SW_KERNELS_CUDA_OPS_MIXERS_CHUNK_RUN_CUH
#define SW_KERNELS_CUDA_OPS_MIXERS_CHUNK_RUN_CUH

#include "kernels/cuda/ops/mixers/chunk_channels.cuh"
#include "kernels/cuda/ops/mixers/chunk_norm.cuh"
#include "kernels/cuda/ops/mixers/chunk_states.cuh"

#ifndef SW_FORM_ROWS
#define SW_FORM_ROWS 2048
#endif
#define SW_FORM_MIN 64 /* tokens of a sequence; 48 took as long by chunks as walked, 128 half */

/* How a call is cut, and the bytes that its parts share. */
typedef struct sw_form_cut {
    int n_seqs, n_tokens, n_chunks; /* of a part, at most */
    int d_k, n_tiles;
    int64_t keys_bytes, heads_bytes, values_bytes, state_floats; /* state: 0 unless there is none */
} sw_form_cut;

static inline int sw_form_min(int64_t a, int64_t b) { return (int)(a < b ? a : b); }

static inline sw_form_cut sw_form_cut_of(const sw_walk_args *a, bool corrects)
{
    const int64_t n_seqs = sw_form_min(a->conv.n_seqs, SW_FORM_ROWS / SW_FORM_TOKENS);
    const int64_t all = (a->conv.seq_len + SW_FORM_TOKENS - 1) / SW_FORM_TOKENS;
    sw_form_cut c;

    c.n_seqs = (int)n_seqs;
    c.n_chunks = sw_form_min(all, SW_FORM_ROWS / SW_FORM_TOKENS / n_seqs);
    c.n_tokens = c.n_chunks * SW_FORM_TOKENS;
    c.d_k = a->d_k <= 64 ? 64 : a->d_k <= 128 ? 128 : 256;
    c.n_tiles = (a->d_v + SW_FORM_COLUMNS - 1) / SW_FORM_COLUMNS;
    const int64_t n = n_seqs * c.n_chunks;

    c.keys_bytes = n * a->n_groups * sw_form_keys_bytes(c.d_k);
    c.heads_bytes = n * a->n_heads * sw_form_head_bytes(c.d_k, corrects);
    c.values_bytes = n * a->n_heads * c.n_tiles * sw_form_tile_bytes();
    c.state_floats = a->state || c.n_chunks == all
                         ? 0
                         : n_seqs * sw_cuda_walk_state(a->n_heads, a->d_k, a->d_v);
    return c;
}

static inline int64_t sw_form_scratch_bytes(const sw_form_cut *c)
{
    return c->keys_bytes + c->heads_bytes + c->values_bytes + 4 * c->state_floats;
}

/* Whether the form serves: norms of whole heads, tokens enough, and a stage of a chunk that fits
 * in shared memory twice. */
static inline bool sw_form_suits(const sw_walk_args *a, bool corrects)
{
    const bool has_kernel =
        !a->is_by_channel ||
        (a->n_groups == a->n_heads && a->d_k == SW_CHANNEL_KEYS);

    return has_kernel && a->conv.seq_len >= SW_FORM_MIN &&
           a->d_k <= (corrects ? 128 : SW_MIXER_KEYS_MAX) &&
           (!a->gate.w || (a->gate.group % a->d_v == 0 &&
                           (a->gate.w_width == a->d_v ||
                            a->gate.w_width == (int64_t)a->n_heads * a->d_v)));
}

/* Shared memory that a block can have on the current device. */
static inline int sw_form_shared_bytes(void)
{
    int device = 0, n_bytes = 0;

    if (cudaGetDevice(&device) != cudaSuccess ||
        cudaDeviceGetAttribute(&n_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) !=
            cudaSuccess)
        return 0;
    return n_bytes;
}

/* A block of the second kernel: as many tiles as share what comes, or fewer where that leaves the
 * device idle, and as many stages as there is room for. n_stages 0: there is none for two. */
typedef struct sw_form_ring {
    int n_tiles, n_stages, n_bytes;
} sw_form_ring;

static inline sw_form_ring sw_form_ring_of(int n_tiles, int n_heads, int n_sms, int d_k,
                                           bool corrects)
{
    const int shared_bytes = sw_form_shared_bytes() - 64; /* what is not asked for beside */
    sw_form_ring r = {sw_form_min(n_tiles, SW_STATES_TILES_MAX), SW_STATES_STAGES_MAX, 0};

    while (r.n_tiles > 2 && n_heads * ((n_tiles + r.n_tiles - 1) / r.n_tiles) < n_sms)
        r.n_tiles = (r.n_tiles + 1) / 2;
    while (r.n_stages && sw_states_bytes(d_k, corrects, r.n_tiles, r.n_stages) > shared_bytes)
        r.n_stages--;
    if (r.n_stages < 2 && n_tiles > 2 && r.n_tiles > 2)
        return sw_form_ring_of(2, n_heads, n_sms, d_k, corrects);
    if (r.n_stages < 2) r.n_stages = 0;
    r.n_bytes = sw_states_bytes(d_k, corrects, r.n_tiles, r.n_stages);
    return r;
}

/* Blocks of the first kernel that share a chunk's head of keys: two blocks a multiprocessor. */
static inline int sw_form_splits(const sw_form_args *a)
{
    const int n_blocks = a->n_seqs * a->n_chunks * a->walk.n_groups;
    const int most = a->walk.n_heads / a->walk.n_groups;
    int n = 1;

    while (n < most && n_blocks * n < 2 * a->walk.n_sms) n *= 2;
    return n < most ? n : most;
}

/* Warps of the last kernel that share the pieces of a norm. */
static inline int sw_form_shares(int n_pieces)
{
    int n = 1;

    while (n < SW_NORM_WARPS && n * SW_NORM_PIECES < n_pieces) n *= 2;
    return n;
}

template <typename... P>
static sw_code sw_form_allow(void (*kernel)(P...), int shared_bytes, sw_err *err)
{
    return sw_device_check((int)cudaFuncSetAttribute(
                               kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes),
                           "recurrent mixer by chunks", err);
}

/* The first kernel. */
template <class RULE, int DK>
static sw_code sw_form_make(const sw_form_args *a, unsigned n_blocks, sw_launch how, sw_err *err)
{
    void (*kernel)(sw_form_args);
    int n_bytes = sw_make_shared<DK>::bytes;
    sw_code rc;

    if constexpr (RULE::by_channel) {
        kernel = swk_chunk_channels<RULE, DK>;
        n_bytes = sw_channel_shared<DK>::bytes;
    } else {
        kernel = swk_chunk_make<RULE, DK>;
    }
    if ((rc = sw_form_allow(kernel, n_bytes, err)) != SW_OK) return rc;
    return sw_start("chunks", kernel, n_blocks, SW_MAKE_THREADS, (size_t)n_bytes, how, err, *a);
}

/* The kernels on one part. */
template <class RULE, int DK>
static sw_code sw_form_part(sw_form_args *a, sw_launch how, sw_err *err)
{
    const sw_form_ring ring = sw_form_ring_of(a->n_tiles, a->n_seqs * a->walk.n_heads,
                                              a->walk.n_sms, DK, RULE::corrects);
    const int n_parts = (a->n_tiles + ring.n_tiles - 1) / ring.n_tiles;
    const int n_heads = a->walk.gate.w ? (int)(a->walk.gate.group / a->walk.d_v) : 1;
    const int n_shares = sw_form_shares(n_heads * a->n_tiles);
    const unsigned n_chunks = (unsigned)(a->n_seqs * a->n_chunks);
    sw_code rc;

    a->n_splits = sw_form_splits(a);
    if ((rc = sw_form_allow(swk_chunk_states<RULE, DK>, ring.n_bytes, err)) != SW_OK) return rc;
    rc = sw_form_make<RULE, DK>(a, n_chunks * (unsigned)(a->walk.n_groups * a->n_splits), how, err);
    if (rc == SW_OK)
        rc = sw_start("states of chunks", swk_chunk_states<RULE, DK>,
                      (unsigned)(a->n_seqs * a->walk.n_heads * n_parts),
                      (unsigned)ring.n_tiles * 64, (size_t)ring.n_bytes, how, err, *a,
                      ring.n_stages);
    if (rc == SW_OK)
        rc = sw_start("norms of chunks", swk_chunk_norm,
                      dim3(n_chunks * SW_NORM_SLICES * (unsigned)n_shares / SW_NORM_WARPS,
                           (unsigned)(a->walk.n_heads / n_heads)),
                      SW_NORM_WARPS * 32, 0, how, err, *a, n_heads, n_shares);
    return rc;
}

static inline sw_form_args sw_form_args_of(const sw_walk_args *a, const sw_form_cut *c)
{
    char *at = (char *)a->scratch;
    sw_form_args f = {};

    f.walk = *a;
    f.keys = at;
    f.heads = at + c->keys_bytes;
    f.values = f.heads + c->heads_bytes;
    f.n_tiles = c->n_tiles;
    f.state = a->state;
    f.state_seq = a->conv.state_seq;
    if (c->state_floats) {
        f.state = (float *)(f.values + c->values_bytes);
        f.state_seq = c->state_floats / c->n_seqs;
    }
    return f;
}

/* All parts of a call, sequences by sequences. */
template <class RULE, int DK>
static sw_code sw_form_parts(const sw_walk_args *a, const sw_form_cut *c, sw_launch how,
                             sw_err *err)
{
    const int64_t len = a->conv.seq_len;
    sw_form_args f = sw_form_args_of(a, c);
    sw_code rc = SW_OK;

    for (int64_t seq = 0; seq < a->conv.n_seqs && rc == SW_OK; seq += c->n_seqs) {
        f.seq = (int)seq;
        f.n_seqs = sw_form_min(a->conv.n_seqs - seq, c->n_seqs);
        if (a->state) f.state = a->state + seq * a->conv.state_seq;
        for (int64_t t = 0; t < len && rc == SW_OK; t += c->n_tokens) {
            f.token = (int)t;
            f.n_tokens = sw_form_min(len - t, c->n_tokens);
            f.n_chunks = (f.n_tokens + SW_FORM_TOKENS - 1) / SW_FORM_TOKENS;
            rc = sw_form_part<RULE, DK>(&f, how, err);
        }
    }
    return rc == SW_OK ? sw_cuda_conv_keep(&a->conv, how, err) : rc;
}

template <class RULE>
static sw_code sw_form_run(const sw_walk_args *a, const sw_form_cut *c, sw_launch how, sw_err *err)
{
    if (c->d_k == 64) return sw_form_parts<RULE, RULE::by_channel ? 128 : 64>(a, c, how, err);
    if (c->d_k == 128) return sw_form_parts<RULE, 128>(a, c, how, err);
    return sw_form_parts<RULE, RULE::corrects ? 128 : 256>(a, c, how, err);
}

/* Whether the device has the shared memory that a block needs at least. */
static inline bool sw_form_fits(const sw_form_cut *c, bool corrects, bool by_channel)
{
    const int make = by_channel      ? sw_channel_shared<SW_CHANNEL_KEYS>::bytes
                     : c->d_k == 64  ? sw_make_shared<64>::bytes
                     : c->d_k == 128 ? sw_make_shared<128>::bytes
                                     : sw_make_shared<256>::bytes;

    return sw_form_ring_of(sw_form_min(c->n_tiles, 2), 1, 1, c->d_k, corrects).n_stages &&
           make <= sw_form_shared_bytes();
}

/* Bytes of scratch memory that a call would use; 0: it walks. */
static inline int64_t sw_form_bytes(const sw_walk_args *a, bool corrects)
{
    if (!sw_form_suits(a, corrects)) return 0;
    const sw_form_cut c = sw_form_cut_of(a, corrects);

    return sw_form_fits(&c, corrects, a->is_by_channel) ? sw_form_scratch_bytes(&c) : 0;
}

/* By chunks where that suits and the caller has given memory for it; else *done stays false. */
template <class RULE>
static sw_code sw_form_try(bool *done, const sw_walk_args *a, sw_launch how, sw_err *err)
{
    const int64_t n_bytes = a->scratch ? sw_form_bytes(a, RULE::corrects) : 0;

    *done = n_bytes > 0 && n_bytes <= a->scratch_bytes;
    if (!*done) return SW_OK;
    const sw_form_cut c = sw_form_cut_of(a, RULE::corrects);

    return sw_form_run<RULE>(a, &c, how, err);
}

#endif
