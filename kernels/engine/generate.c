/* generate.c - see generate.h. */
#include "kernels/engine/generate.h"

bool sw_is_eos(const sw_model *m, uint32_t id)
{
    for (int64_t i = 0; i < m->n_eos; i++)
        if (m->eos_ids[i] == (int64_t)id) return true;
    return false;
}

sw_code sw_generate(sw_session *session, const sw_lm *lm, const uint32_t *prompt,
                    int64_t n_prompt, const sw_generate_options *options,
                    const sw_token_sink *sink, sw_generate_result *result, sw_err *err)
{
    uint64_t state = options->sampling.seed;
    sw_generate_result r = {0};
    sw_scratch scratch = {0};
    float *logits = NULL;
    sw_code rc;

    if ((rc = SW_MEM_GET(&logits, lm->head.n_out, "logits", err)) != SW_OK) goto done;
    if ((rc = sw_session_feed(session, logits, prompt, n_prompt, err)) != SW_OK) goto done;
    while (r.n_new < options->max_new) {
        uint32_t id;

        rc = sw_sample(&id, logits, lm->head.n_out, &options->sampling, &state, &scratch, err);
        if (rc != SW_OK) goto done;
        if (sw_is_eos(lm->model, id) && !options->ignores_eos) {
            r.met_eos = true;
            r.eos = id;
            break;
        }
        r.n_new++;
        if ((rc = sink->take(sink->self, id, err)) != SW_OK) goto done;
        if (r.n_new == options->max_new || !sw_session_room(session)) break;
        if ((rc = sw_session_feed(session, logits, &id, 1, err)) != SW_OK) goto done;
    }
done:
    if (result) *result = r;
    sw_scratch_free(&scratch);
    sw_mem_put(logits);
    return rc;
}
