/* kv_scales.c - see kv_scales.h. */
#include "quant/stats/kv_scales.h"

#include <math.h>

#include "quant/team/team.h"

static void raise_to(float *amax, bool *is_broken, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(x[i])) *is_broken = true;
        *amax = fmaxf(*amax, fabsf(x[i]));
    }
}

void sw_kv_range_add(sw_kv_range *range, const float *k, int64_t n_k, const float *v, int64_t n_v)
{
    raise_to(&range->k_amax, &range->is_broken, k, n_k);
    raise_to(&range->v_amax, &range->is_broken, v, n_v);
}

float sw_kv_scale_of(float amax, const sw_num *num)
{
    return amax > 0 ? fmaxf(amax / num->top, 0x1p-126f) : 1.0f;
}

sw_code sw_kv_range_gather(sw_kv_range *range, sw_team *team, sw_err *err)
{
    sw_code rc = SW_OK;

    if (sw_team_rank(team) > 0) rc = sw_team_send(team, 0, range, sizeof *range, err);
    for (int rank = 1; sw_team_rank(team) == 0 && rank < sw_team_size(team) && rc == SW_OK;
         rank++) {
        sw_kv_range theirs = {0};

        rc = sw_team_receive(team, rank, &theirs, sizeof theirs, err);
        range->k_amax = fmaxf(range->k_amax, theirs.k_amax);
        range->v_amax = fmaxf(range->v_amax, theirs.v_amax);
        range->is_broken = range->is_broken || theirs.is_broken;
    }
    return rc == SW_OK ? sw_team_broadcast(team, 0, range, sizeof *range, err) : rc;
}

sw_code sw_kv_range_find(sw_kv_range *out, sw_streams *streams, const sw_block *block,
                         const sw_progress *progress, sw_err *err)
{
    sw_kv_range range = {0};
    sw_code rc = SW_OK;

    if (streams->n_seqs)
        rc = sw_backend_of(&streams->place)
                 ->find_kv_range(&range, streams, block, progress, err);
    if (rc == SW_OK) rc = sw_kv_range_gather(&range, streams->carrier.team, err);
    if (rc != SW_OK) return rc;
    if (range.is_broken)
        return SW_FAIL(err, SW_E_FORMAT, "layer %lld: a key or a value is not finite",
                       (long long)block->layer);
    *out = range;
    return SW_OK;
}

sw_code sw_kv_scales_find(float *k_scale, float *v_scale, sw_streams *streams,
                          const sw_num *num, const sw_block *quantized,
                          const sw_progress *progress, sw_err *err)
{
    sw_kv_range range = {0};
    sw_code rc = sw_kv_range_find(&range, streams, quantized, progress, err);

    if (rc != SW_OK) return rc;
    *k_scale = sw_kv_scale_of(range.k_amax, num);
    *v_scale = sw_kv_scale_of(range.v_amax, num);
    return SW_OK;
}
