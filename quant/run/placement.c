/* placement.c - see block_job.h. */
#include "quant/run/block_job.h"

#include "formats/base/mem.h"
#include "quant/team/team.h"

sw_place sw_place_sites(const sw_block_job *job, const bool wanted[SW_SITE_COUNT])
{
    sw_place at = sw_options_place(job->options);

    for (int64_t i = 0; i < job->n_linears; i++)
        if (wanted[job->linears[i].site]) at = sw_place_for(&at, &job->specs[i]);
    return at;
}

/* Can all linears of a layer that will be quantized be solved by the options' backend? */
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
        *can = o->backend->can_solve(spec);
    }
    sw_mem_put(refs);
    return SW_OK;
}

/* Streams at the options' place, if its backend can also solve every linear that reads them;
 * SW_E_UNSUPPORTED or SW_E_NOMEM: it cannot, and `local` says why. Other failures are in err. */
static sw_code try_place(sw_streams *out, const sw_model *model, const sw_st *st,
                         const sw_calib *calib, bool with_original, const sw_quant_options *o,
                         const sw_quant_sink *sink, sw_err *local, sw_err *err)
{
    const sw_place at = sw_options_place(o);
    bool can = true;
    sw_code rc = SW_OK;

    for (int64_t layer = 0; layer <= model->n_layers && rc == SW_OK && can; layer++)
        rc = can_solve(&can, model, layer, o, sink, err);
    if (rc != SW_OK) return rc;
    if (!can && !o->spill_dir)
        return SW_FAIL(local, SW_E_UNSUPPORTED, "the scheme keeps outliers");
    rc = sw_streams_new_shared(out, &at, model, st, calib, with_original, o->spill_dir, o->team,
                               local);
    if (rc != SW_OK && rc != SW_E_UNSUPPORTED && rc != SW_E_NOMEM)
        return SW_FAIL(err, rc, "%s", local->text);
    return rc;
}

/* Where one rank's streams do not go, nobody's do: the backends' last digits differ. */
static sw_code agree(sw_streams *out, sw_code rc, struct sw_team *team, sw_err *local)
{
    const sw_code all = sw_team_agree(team, rc, local);

    if (rc == SW_OK && all != SW_OK) sw_streams_free(out);
    return all;
}

sw_code sw_place_streams(sw_streams *out, const sw_model *model, const sw_st *st,
                         const sw_calib *calib, bool with_original, const sw_quant_options *o,
                         const sw_quant_sink *sink, const sw_progress *progress, sw_err *err)
{
    sw_place at = sw_options_place(o);
    sw_err local = {0};
    sw_code rc;

    if (sw_backend_of(&at)->fallback) {
        rc = try_place(out, model, st, calib, with_original, o, sink, &local, err);
        if (rc != SW_OK && (!local.text[0] || (rc != SW_E_UNSUPPORTED && rc != SW_E_NOMEM)))
            return rc;
        if ((rc = agree(out, rc, o->team, &local)) == SW_OK) return SW_OK;
        sw_progress_note(progress, "blocks run on the CPU, and the CUDA device does the other "
                         "steps: %s", local.text);
        at = (sw_place){.backend = at.backend->fallback, .n_threads = at.n_threads};
    }
    return sw_streams_new_shared(out, &at, model, st, calib, with_original, o->spill_dir, o->team,
                                 err);
}
