/* ranks.h - several processes on one run: --ranks, a list of devices, or a launcher such as mpirun.
 *
 * A command that has_ranks, and the row SW_RANKS_ROW, is run by every rank, with `run->team`.
 * Rank 0 alone prints; the others are quiet, and write no trace and nothing on stdout.
 */
#ifndef SW_TOOLS_DEVICE_RANKS_H
#define SW_TOOLS_DEVICE_RANKS_H

#include "tools/cli/cmd.h"

#define SW_RANKS_ROW                                                                               \
    {.name = "ranks", .group = SW_OPT_RESOURCES, .kind = SW_OPT_INT,                               \
     .offset = offsetof(sw_cmd_common, ranks), .arg = "N", .min = 1, .max = SW_TEAM_RANKS_MAX,     \
     .help = "processes on this machine that share the work (default: one for each device that "   \
             "--device takes); on several machines they come from mpirun or srun. The result does "\
             "not depend on it"}

#define SW_SPREAD_ROW                                                                              \
    {.name = "spread-layers", .group = SW_OPT_EXPERT, .kind = SW_OPT_FLAG,                         \
     .offset = offsetof(sw_cmd_common, spread_layers), .set_to = 1,                                \
     .help = "lay the layers of a model over all devices of --device, also where it has room on "  \
             "the first alone; the result does not depend on it"}

/* Several ranks where the options or the environment ask for them, and run->team among them; else
 * that stays NULL. To be called before any thread exists; returns in every rank, with the threads
 * and the device that are its own in `common` and in the options' row "device". A command without
 * has_ranks takes the first of a list of devices, or has all of them in run->devices, over which a
 * model that has no room on one may be spread; so has one whose ranks would each hold models that
 * no device has room for. run->args are the words of the line. SW_E_USAGE, SW_E_CUDA: no such
 * devices, or none that layers could be spread over. */
sw_code sw_ranks_begin(sw_run *run, const sw_cmd *cmd, sw_cmd_common *common,
                       sw_err *err) SW_MUST_USE;
/* Threads of rank 0 while the others, which have n_threads each as it has, wait for it. */
int sw_ranks_threads_alone(const sw_team *team, int n_threads);
/* How many there are, and which devices are left out, to be said by rank 0. */
void sw_ranks_note(const sw_run *run, const sw_cmd_common *common);

#endif
