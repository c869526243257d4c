/* placement.c - see placement.h. */
#include "quant/run/placement.h"

#include "formats/base/mem.h"

sw_solver *sw_place_solver(const sw_block_job *job, const bool wanted[SW_SITE_COUNT])
{
    bool can = job->options->solver != NULL;

    for (int64_t i = 0; i < job->n_linears && can; i++)
        if (wanted[job->linears[i].site]) can = sw_solver_can(&job->specs[i]);
    return can ? job->options->solver : NULL;
}

/* Can all linears of a layer that will be quantized be solved on a device? */
static sw_code can_solve(bool *can, const sw_model *model, int64_t layer,
                         const sw_quant_options *o, const sw_quant_sink *sink, sw_err *err)
{
    int64_t n = sw_model_linears(model, layer, NULL, 0);
    sw_linear_ref *refs = NULL;
    sw_code rc = SW_MEM_GET(&refs, n, "linears of a block", err);

    if (rc != SW_OK) return rc;
    (void)sw_model_linears(model, layer, refs, n);
    for (int64_t i = 0; i < n && *can; i++) {
        char path[256];
        const sw_qspec *spec = &o->spec;
        if (!sw_model_slot_path(path, model, layer, refs[i].slot, refs[i].expert) ||
            !sink->is_selected(sink->self, &refs[i], path))
            continue;
        if (sink->spec_of) spec = sink->spec_of(sink->self, &refs[i], path);
        *can = sw_solver_can(spec);
    }
    sw_mem_put(refs);
    return SW_OK;
}

/* *why: blocks cannot be run and solved on the device from end to end, or NULL: they can. */
static sw_code reason_against(const char **why, const sw_model *model, const sw_quant_options *o,
                              const sw_quant_sink *sink, sw_err *err)
{
    bool can = true;
    sw_code rc = SW_OK;

    for (int64_t layer = 0; layer <= model->n_layers && rc == SW_OK && can; layer++)
        rc = can_solve(&can, model, layer, o, sink, err);
    if (rc != SW_OK) return rc;
    *why = o->spill_dir ? "their activations go to disk to keep to --memory"
           : can        ? NULL
                        : "the scheme keeps outliers";
    return SW_OK;
}

sw_code sw_place_streams(sw_streams *out, const sw_model *model, const sw_st *st,
                         const sw_calib *calib, bool with_original, const sw_quant_options *o,
                         const sw_quant_sink *sink, const sw_progress *progress, sw_err *err)
{
    const char *against = NULL;
    sw_err local = {0};
    sw_code rc = o->solver ? reason_against(&against, model, o, sink, err) : SW_OK;

    if (rc != SW_OK) return rc;
    if (o->solver && !against) {
        rc = sw_streams_new_device(out, model, st, calib, with_original, o->solver, &local);
        if (rc == SW_OK) return SW_OK;
        if (rc != SW_E_UNSUPPORTED && rc != SW_E_NOMEM) return SW_FAIL(err, rc, "%s", local.text);
        against = local.text;
    }
    if (against)
        sw_progress_note(progress, "blocks run on the CPU, and the card solves what it can: %s",
                         against);
    return sw_streams_new(out, model, st, calib, with_original, o->spill_dir, o->n_threads, err);
}
