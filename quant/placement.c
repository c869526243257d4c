/* placement.c - see placement.h. */
#include "quant/placement.h"

#include "formats/base/size.h"

sw_solver *sw_place_solver(const sw_block_job *job, const bool wanted[SW_SITE_COUNT])
{
    bool is_sparse = sw_model_is_sparse(job->model, job->original.layer);
    bool can = job->options->solver != NULL;

    for (int64_t i = 0; i < job->n_linears && can; i++)
        if (wanted[job->linears[i].site])
            can = sw_solver_can(&job->specs[i]) &&
                  !(is_sparse && job->linears[i].site >= SW_SITE_MLP_IN);
    return can ? job->options->solver : NULL;
}

/* Why blocks cannot be run and solved on the device from end to end, or NULL. */
static const char *reason_against(const sw_model *model, const sw_quant_options *o,
                                  const sw_quant_sink *sink)
{
    if (o->spill_dir) return "their activations go to disk to keep to --memory";
    for (int64_t layer = 0; layer <= model->n_layers; layer++) {
        sw_linear_ref refs[SW_SLOT_COUNT];
        int64_t n;
        if (sw_model_is_sparse(model, layer)) return "the model has experts";
        n = sw_min_i64(sw_model_linears(model, layer, refs, SW_SLOT_COUNT), SW_SLOT_COUNT);
        for (int64_t i = 0; i < n; i++) {
            char path[256];
            const sw_qspec *spec = &o->spec;
            if (!sw_model_slot_path(path, model, layer, refs[i].slot, refs[i].expert) ||
                !sink->is_selected(sink->self, &refs[i], path))
                continue;
            if (sink->spec_of) spec = sink->spec_of(sink->self, &refs[i], path);
            if (!sw_solver_can(spec)) return "the scheme keeps outliers";
        }
    }
    return NULL;
}

sw_code sw_place_streams(sw_streams *out, const sw_model *model, const sw_st *st,
                         const sw_calib *calib, bool with_original, const sw_quant_options *o,
                         const sw_quant_sink *sink, const sw_progress *progress, sw_err *err)
{
    const char *against = o->solver ? reason_against(model, o, sink) : NULL;
    sw_err local = {0};
    sw_code rc;

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
