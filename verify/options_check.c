/* options_check.c - see options_check.h. */
#include "verify/options_check.h"

#include <math.h>

#include "verify/speed/checkpoint_speed.h"

/* What a gate is about must be measured. */
static sw_code check_gate(const sw_verify_options *o, sw_gate_id id, sw_err *err)
{
    bool needs_original;
    const sw_gate_topic topic = sw_gate_is_about(id, &needs_original);
    const bool lacks_original = needs_original && !o->original_dir;

    if (topic == SW_GATE_OF_SPEED && (!o->speed || lacks_original))
        return SW_FAIL(err, SW_E_USAGE, "gate %s is about speed%s: give --speed%s",
                       sw_gate_name(id), needs_original ? " of two models" : "",
                       needs_original ? " and the original" : "");
    if (topic == SW_GATE_OF_TASKS && (!o->n_tasks || lacks_original))
        return SW_FAIL(err, SW_E_USAGE, "gate %s is about tasks%s: give --task FILE%s",
                       sw_gate_name(id), needs_original ? " and two models" : "",
                       needs_original ? " and the original" : "");
    if (topic == SW_GATE_OF_TEXT && (!o->original_dir || !o->n_texts))
        return SW_FAIL(err, SW_E_USAGE, "gate %s compares two models on a text: give the "
                       "original and a text", sw_gate_name(id));
    if (!isfinite(o->gate[id]) || o->gate[id] < 0)
        return SW_FAIL(err, SW_E_USAGE, "gate %s: %g is no limit", sw_gate_name(id), o->gate[id]);
    return SW_OK;
}

/* What one process alone can do. */
static sw_code check_ranks(const sw_verify_options *o, sw_err *err)
{
    if (sw_judge_size(o->ranks) == 1) return SW_OK;
    if (o->speed)
        return SW_FAIL(err, SW_E_USAGE, "--speed times one process, and ranks share the "
                       "processors: give it to a run of its own, on one device and without "
                       "--ranks");
    if (o->states_path)
        return SW_FAIL(err, SW_E_USAGE, "%s: states of an original are read and written by one "
                       "process: leave out --original-states or --ranks", o->states_path);
    return SW_OK;
}

sw_code sw_verify_check_options(const sw_verify_options *o, sw_err *err)
{
    sw_code rc = o->speed ? sw_speed_request_check(o->speed, err) : SW_OK;

    for (int g = 0; g < SW_GATE_COUNT && rc == SW_OK; g++)
        if (o->has_gate[g]) rc = check_gate(o, (sw_gate_id)g, err);
    if (rc == SW_OK) rc = check_ranks(o, err);
    if (rc == SW_OK && o->states_path && (!o->original_dir || !o->n_texts || o->gpu))
        return SW_FAIL(err, SW_E_USAGE, "%s: states of an original need the original and a text, "
                       "and are of the CPU", o->states_path);
    return rc;
}
