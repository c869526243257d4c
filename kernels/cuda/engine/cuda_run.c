/* cuda_run.c - runs blocks on a device: makes the plan of a block's launches and starts them one
 * after the other. See launch_plan.h for the plan, cuda_launches.c for the launches.
 */
#include "formats/base/size.h"
#include "kernels/cuda/engine/cuda_engine_internal.h"

static void look_at_weights(sw_launch_weights *w, const sw_device_run *run)
{
    const sw_device_block *b = run->block;

    *w = (sw_launch_weights){.is_qkv_joined = b->is_qkv_fused, .is_gate_joined = b->is_gate_fused};
    for (int s = 0; s < SW_SLOT_COUNT; s++) {
        w->has_norm_bias[s] = b->norm_bias[s] != NULL;
        if (run->is_fused && b->linear[s].n_out)
            w->fusable[s] = sw_device_fusable(run, (sw_slot)s);
        w->takes_glu[s] = run->is_decode && sw_launch_has_gates_and_ups(w, (sw_slot)s) &&
                          sw_device_takes_glu(run, (sw_slot)s);
        w->takes_codes[s] = run->is_decode && sw_device_takes_codes(run, (sw_slot)s);
    }
}

sw_code sw_device_run_block(sw_device_run *run, sw_err *err)
{
    const sw_launch_step step = {.half = run->half,
                                 .from = run->d_given ? run->from : SW_SITE_COUNT,
                                 .stop_at = run->stop_at,
                                 .is_for_experts = run->tap && run->tap->is_experts_only &&
                                                   run->stop_at == SW_SITE_DOWN_IN,
                                 .has_tap = run->tap != NULL,
                                 .shows_kv = run->tap && run->tap->see_kv,
                                 .has_cache = run->kv != NULL,
                                 .may_choose = sw_device_run_may_choose(run),
                                 .is_decode = run->is_decode,
                                 .is_fused = run->is_fused,
                                 .begins_with_sum = run->awaits_sum,
                                 .may_leave_sum = run->may_leave_sum};
    sw_launch_weights weights;
    sw_launch_plan plan;
    sw_code rc;

    run->has_chosen = false;
    look_at_weights(&weights, run);
    rc = sw_launch_plan_make(&plan, run->e->m, run->block->layer, &weights, &step, err);
    if (rc != SW_OK) return rc;
    for (int i = 0; i < plan.n_launches && rc == SW_OK; i++)
        rc = sw_device_launch(run, &plan.launch[i], err);
    run->awaits_sum = plan.leaves_sum;
    return rc;
}

sw_code sw_device_engine_block(sw_device_engine *e, const sw_device_block *block, float *d_x,
                               int64_t n_seqs, int64_t seq_len, const sw_device_tap *tap,
                               sw_site stop_at, sw_err *err)
{
    return sw_device_engine_half(e, block, d_x, n_seqs, seq_len, SW_HALF_BOTH, tap, stop_at, err);
}

static sw_code check_call(const sw_device_engine *e, int64_t n_seqs, int64_t seq_len, sw_err *err)
{
    if (n_seqs >= 1 && seq_len >= 1 && seq_len <= e->max_tokens / n_seqs) return SW_OK;
    return SW_FAIL(err, SW_E_USAGE, "%lld sequences of %lld tokens; at most %lld tokens fit",
                   (long long)n_seqs, (long long)seq_len, (long long)e->max_tokens);
}

sw_code sw_device_engine_embed(sw_device_engine *e, float *d_x, const uint16_t *d_table,
                               const uint32_t *d_ids, int64_t n, sw_err *err)
{
    const sw_embed_args args = {.x = d_x, .embed = d_table, .ids = d_ids, .n = n,
                                .hidden = e->m->hidden, .seq_len = n,
                                .scale = (float)e->m->embed_scale};

    return sw_cuda_embed(&args, e->how, err);
}

sw_code sw_device_engine_rest(sw_device_engine *e, const sw_device_block *block, float *d_x,
                              int64_t n_seqs, int64_t seq_len, sw_half half, sw_site site,
                              const void *d_rows, sw_err *err)
{
    sw_device_run run = {.e = e,
                         .block = block,
                         .d_x = d_x,
                         .n_seqs = n_seqs,
                         .seq_len = seq_len,
                         .n_tokens = n_seqs * seq_len,
                         .half = half,
                         .from = site,
                         .d_given = d_rows,
                         .stop_at = (sw_site)SW_RUN_ALL};
    sw_code rc = check_call(e, n_seqs, seq_len, err);

    return rc == SW_OK ? sw_device_run_block(&run, err) : rc;
}

sw_code sw_device_engine_half(sw_device_engine *e, const sw_device_block *block, float *d_x,
                              int64_t n_seqs, int64_t seq_len, sw_half half,
                              const sw_device_tap *tap, sw_site stop_at, sw_err *err)
{
    sw_device_run run = {.e = e,
                         .block = block,
                         .d_x = d_x,
                         .n_seqs = n_seqs,
                         .seq_len = seq_len,
                         .n_tokens = n_seqs * seq_len,
                         .half = half,
                         .tap = tap,
                         .stop_at = stop_at};
    sw_code rc;

    if ((rc = check_call(e, n_seqs, seq_len, err)) != SW_OK) return rc;
    if ((rc = sw_device_angles_fill(e, 0, seq_len, err)) != SW_OK) return rc;
    return sw_device_run_block(&run, err);
}
