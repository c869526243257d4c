/* cuda_sizes.c - see cuda_sizes.h. */
#include "quant/backend/cuda/cuda_sizes.h"

#include "formats/base/size.h"
#include "kernels/engine/engine.h"
#include "kernels/engine/launch_plan.h"
#include "kernels/solver.h"

#define LANE_ROOM_BYTES (2 * SW_LANE_BYTES) /* a solve, and what libraries take */
#define BATCH_CHUNKS_MAX 8
#define BATCH_SHARE 16 /* of the device, that what a batch of routed tokens needs may take */
/* What a site's solve takes: sums, factor and their scratch for every pair of inputs, and rows. */
#define SOLVE_BYTES_PER_ELEM 40
#define WIDE_SUM_INPUTS 2048
#define KEEP_SPARE_BYTES ((int64_t)12 << 30)
#define KEPT_PARTS 8 /* as a text has pieces, whose windows run together */

int sw_cuda_lanes_in(int64_t left_bytes, int64_t item_bytes)
{
    const int64_t n = left_bytes / (LANE_ROOM_BYTES + item_bytes);

    return (int)sw_max_i64(1, sw_min_i64(n, SW_SOLVER_LANES));
}

/* Chunks of a sparse model that run together, by what the device has, not by what is left of it:
 * a product of more rows may round otherwise. */
int64_t sw_cuda_batch_seqs(const sw_model *m, int64_t chunk_seqs, int64_t seq_len, int64_t n_seqs,
                           int64_t cap_bytes)
{
    const int64_t of_experts = m->n_experts_used * (4 * m->moe_hidden + 6 * m->moe_intermediate);
    const int64_t token_bytes = 2 * of_experts + 16 * m->hidden + 4 * m->n_experts;
    const int64_t chunk_tokens = chunk_seqs * seq_len;
    int64_t n_chunks = m->n_experts ? BATCH_CHUNKS_MAX : 1;

    while (n_chunks > 1 && n_chunks * chunk_tokens * token_bytes > cap_bytes / BATCH_SHARE)
        n_chunks /= 2;
    return sw_min_i64(n_chunks * chunk_seqs, sw_max_i64(chunk_seqs, n_seqs));
}

int64_t sw_cuda_look_up_bytes(int64_t n_rows, int64_t hidden, int64_t n_tokens)
{
    return 2 * n_rows * hidden + 4 * n_tokens;
}

bool sw_cuda_looks_up(int64_t left_bytes, int64_t n_rows, int64_t hidden, int64_t n_tokens)
{
    const int64_t bytes = sw_cuda_look_up_bytes(n_rows, hidden, n_tokens);

    return bytes <= left_bytes && bytes < 4 * n_tokens * hidden;
}

/* Bytes that all experts of a layer take on a device, in BF16. */
static int64_t weights_there(const sw_model *m)
{
    return 2 * 3 * m->n_experts * m->moe_hidden * m->moe_intermediate;
}

/* Of what a device has left two thirds, once the experts themselves lie there. A third of that is
 * floats under way, which are gone before solving. */
int64_t sw_cuda_sums_bytes_in(int64_t left_bytes, const sw_model *model)
{
    return (left_bytes - weights_there(model)) / 3 * 2;
}

int64_t sw_cuda_expert_rows(int64_t k) { return k > WIDE_SUM_INPUTS ? 2048 : 4096; }

int64_t sw_cuda_kept_windows(int64_t left_bytes, int64_t n_seqs, int64_t seq_bytes, int64_t k)
{
    const int64_t room = left_bytes - KEEP_SPARE_BYTES - SOLVE_BYTES_PER_ELEM * k * k;
    int64_t parts = KEPT_PARTS;

    while (parts > 0 && n_seqs * parts / KEPT_PARTS * seq_bytes > room) parts--;
    return n_seqs * parts / KEPT_PARTS;
}

bool sw_cuda_may_stay(int64_t left_bytes, int64_t n_bytes, int64_t k)
{
    return n_bytes + KEEP_SPARE_BYTES + SOLVE_BYTES_PER_ELEM * k * k <= left_bytes;
}

bool sw_cuda_may_keep(const sw_model *model, int64_t layer, sw_site site)
{
    const bool is_last =
        site == SW_SITE_O_IN || site == SW_SITE_MIX_OUT_IN || site == SW_SITE_DOWN_IN;

    return is_last && sw_launch_plan_can_begin(model, layer,
                                               sw_engine_half_of(model, layer, site), site);
}

sw_slot sw_cuda_only_slot(const sw_model *model, int64_t layer, sw_site site, int64_t k,
                          int64_t n_out_residual)
{
    sw_linear_ref refs[SW_SLOT_COUNT];
    int64_t n = sw_model_linears(model, layer, NULL, 0);
    sw_slot slot = SW_SLOT_COUNT;

    if (n_out_residual > k || !n_out_residual || n > SW_SLOT_COUNT) return SW_SLOT_COUNT;
    n = sw_model_linears(model, layer, refs, SW_SLOT_COUNT);
    for (int64_t i = 0; i < n; i++) {
        if (refs[i].site != site) continue;
        if (slot != SW_SLOT_COUNT || refs[i].expert >= 0 || refs[i].n_out != n_out_residual)
            return SW_SLOT_COUNT;
        slot = refs[i].slot;
    }
    return slot;
}

sw_slot sw_cuda_weighing_slot(const sw_model *model, int64_t layer, sw_site site, int64_t k,
                              int64_t n_out_residual)
{
    if (2 * n_out_residual >= k) return SW_SLOT_COUNT;
    return sw_cuda_only_slot(model, layer, site, k, n_out_residual);
}
