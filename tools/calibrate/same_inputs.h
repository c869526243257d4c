/* same_inputs.h - before ranks share a run: do they see the same?
 *
 * Ranks of several hosts may have other files under the same names. What one of them computes from
 * another model, text or setting would end up in what rank 0 writes. Every rank makes the same
 * calls, and gets SW_E_USAGE that names what differs and where; a team of NULL is one rank.
 */
#ifndef SW_TOOLS_CALIBRATE_SAME_INPUTS_H
#define SW_TOOLS_CALIBRATE_SAME_INPUTS_H

#include "formats/base/json.h"
#include "formats/checkpoint/checkpoint.h"
#include "quant/options.h"
#include "quant/team/team.h"

/* The program's version, config.json, and the weights by file. Of weights, names, types, shapes and
 * some bytes of every tensor are compared, since a digest of everything would take as long as
 * reading the model once more. */
sw_code sw_same_model(sw_team *team, const sw_checkpoint *source, sw_err *err) SW_MUST_USE;
/* The token ids of the windows; none are the same too. */
sw_code sw_same_text(sw_team *team, const sw_calib *calib, sw_err *err) SW_MUST_USE;
/* Members of an object, one by one, so that the refusal names one: 'setting "damp"'. */
sw_code sw_same_settings(sw_team *team, const cJSON *object, sw_err *err) SW_MUST_USE;
/* One setting as a text; NULL, not given, is another than any. */
sw_code sw_same_setting(sw_team *team, const char *name, const char *text,
                        sw_err *err) SW_MUST_USE;

#endif
