/* convert_library.c - converting a checkpoint through the C interface. */
#include <string.h>

#include "tools/convert/convert_job.h"
#include "tools/library/library.h"

#define SHARD_BYTES ((uint64_t)5 << 30)

static sw_code read_settings(sw_convert_options *out, const sw_convert_settings *s,
                             const char *format, sw_err *err)
{
    if (!out->source_dir || !*out->source_dir || !out->out_dir || !*out->out_dir || !format)
        return SW_FAIL(err, SW_E_USAGE, "a conversion wants a source, an output and a format");
    if (s->scheme && !s->may_requantize)
        return SW_FAIL(err, SW_E_USAGE, "a scheme is for rounding again: set may_requantize");
    out->scheme = s->scheme ? sw_scheme_find(s->scheme) : NULL;
    if (s->scheme && !out->scheme)
        return SW_FAIL(err, SW_E_USAGE, "no scheme \"%.64s\"", s->scheme);
    out->may_requantize = s->may_requantize != 0;
    out->may_replace = s->may_replace != 0;
    out->weights_only = s->weights_only != 0;
    out->no_card = true; /* which would name a command that nobody gave */
    out->shard_bytes = s->shard_bytes ? s->shard_bytes : SHARD_BYTES;
    out->n_threads = sw_library_threads(s->n_threads);
    out->target = sw_dense_find(format);
    return out->target ? SW_OK : sw_library_dialect(&out->target, format, err);
}

int sw_convert(sw_convert_result *result, const char *source, const char *out, const char *format,
               const sw_convert_settings *settings, sw_error *error)
{
    static const sw_convert_settings defaults = SW_CONVERT_SETTINGS_INIT;
    const sw_convert_settings *given = settings ? settings : &defaults;
    sw_convert_options options = {.source_dir = source, .out_dir = out};
    sw_convert_settings s;
    sw_convert_job job = {.n_linears = 0};
    sw_err err = {0};
    sw_code rc = sw_library_options(&s, sizeof s, given, given->size_bytes, &err);

    if (rc == SW_OK) rc = read_settings(&options, &s, format, &err);
    if (rc == SW_OK) rc = sw_convert_plan(&job, &options, NULL, &err);
    if (rc == SW_OK) rc = sw_convert_run(&job, &err);
    if (rc == SW_OK && result)
        *result = (sw_convert_result){.n_exact = job.n_of[SW_FATE_EXACT],
                                      .n_decoded = job.n_of[SW_FATE_DECODED],
                                      .n_requantized = job.n_of[SW_FATE_REQUANTIZED],
                                      .source_bytes = job.source_bytes,
                                      .out_bytes = job.out_bytes};
    sw_convert_free(&job);
    return sw_library_end(error, rc, &err);
}
