/* stats_input.h - a statistics file as the input of a command, in the place of calibration text. */
#ifndef SW_TOOLS_CALIBRATE_STATS_INPUT_H
#define SW_TOOLS_CALIBRATE_STATS_INPUT_H

#include "formats/checkpoint/checkpoint.h"
#include "quant/stats/stats.h"
#include "tools/cli/cmd.h"

/* Open and check it against the model; hashes every tensor of the model, so it takes a while. */
sw_code sw_stats_input_open(sw_zpack **out, const char *path, const sw_checkpoint *source,
                            sw_experts policy, sw_err *err) SW_MUST_USE;

/* "calibration" of a manifest: which statistics, of what text, and that no block saw what
 * quantizing the blocks before it has changed. */
sw_code sw_stats_input_describe(cJSON *manifest, const sw_zpack *stats, sw_err *err) SW_MUST_USE;

#endif
