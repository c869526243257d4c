/* device_generate.c - sw_device_generate of device_engine.h; the same with and without CUDA. */
#include "kernels/engine/device_engine.h"

sw_code sw_device_generate(sw_device_session *s, const sw_model *m, const uint32_t *prompt,
                           int64_t n_prompt, const sw_generate_options *options,
                           const sw_token_sink *sink, sw_generate_result *result, sw_err *err)
{
    sw_generate_result r = {0};
    sw_code rc = sw_device_session_feed(s, 0, prompt, n_prompt, err);

    while (rc == SW_OK && r.n_new < options->max_new && sw_device_session_room(s)) {
        uint32_t id = 0;

        if ((rc = sw_device_session_step(s, &id, 1, err)) != SW_OK) break;
        if (sw_is_eos(m, id) && !options->ignores_eos) {
            r.met_eos = true;
            r.eos = id;
            break;
        }
        r.n_new++;
        rc = sink->take(sink->self, id, err);
    }
    if (result) *result = r;
    return rc;
}
