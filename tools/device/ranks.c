/* ranks.c - see ranks.h. */
#include "tools/device/ranks.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/base/parallel.h"
#include "tools/device/device_list.h"
#include "tools/device/device_opt.h"

#define HOST_NAME_BYTES 65
#define LAUNCHED_PAUSE_S 10

static const sw_opt *row_of(const sw_cmd *cmd, const char *name)
{
    for (const sw_opt *row = cmd->options; row->name; row++)
        if (!strcmp(row->name, name)) return row;
    return NULL;
}

/* Where the command keeps the word of --device; NULL without such an option. */
static const char **device_of(const sw_cmd *cmd, sw_cmd_common *common)
{
    const sw_opt *row = row_of(cmd, "device");

    return row ? (const char **)(void *)((char *)common + row->offset) : NULL;
}

/* --- devices --- */

/* A process that is a rank already may ask the driver itself; ranks that are still to be forked
 * from this one could not use a device if it had. */
static sw_code choose_devices(sw_device_list *devices, const char *word, const sw_run *run,
                              sw_err *err)
{
    sw_device_info there[SW_DEVICES_MAX];
    int n;

    if (!devices->is_all && !devices->n) return SW_OK;
    n = run->team ? sw_devices_look(there) : sw_devices_look_apart(there);
    return sw_device_list_choose(devices, word, there, n, err);
}

/* The device of this rank: those of one host take the list in turn. */
static sw_code take_device(const char **word, const sw_device_list *devices, sw_run *run,
                           sw_err *err)
{
    char *text = NULL;
    sw_code rc;

    if (!devices->n) return SW_OK;
    if (devices->left[0] && sw_team_speaks(run->team)) {
        if ((rc = sw_arena_print(&text, run->arena, err, "devices left out: %s; a list such as "
                                 "--device cuda:0,1 takes any", devices->left)) != SW_OK)
            return rc;
        run->note = text;
    }
    rc = sw_arena_print(&text, run->arena, err, "cuda:%d",
                        devices->items[sw_team_host_rank(run->team) % devices->n]);
    if (rc == SW_OK) *word = text;
    return rc;
}

/* Of a list, for a command whose work is one process's. */
static sw_code take_first(const char **word, const sw_device_list *devices, const sw_cmd *cmd,
                          sw_run *run, sw_err *err)
{
    char *text = NULL;
    sw_code rc = sw_arena_print(&text, run->arena, err, "--device %s: swage %s uses one device, "
                                "cuda:%d", *word, cmd->name, devices->items[0]);

    if (rc != SW_OK) return rc;
    run->note = text;
    return take_device(word, devices, run, err);
}

/* Sums of processors and of devices differ in their last bits, so a run is on one kind of both. */
static sw_code check_kind(const char *word, sw_team *team, sw_err *err)
{
    int64_t index;
    bool is_cuda;
    sw_code rc = sw_device_option_index(&index, word, err);

    if (rc != SW_OK) return rc;
    is_cuda = index >= 0;
    return sw_team_check_same(team, "kind of device (--device)", &is_cuda, sizeof is_cuda, err);
}

/* --- threads --- */

/* Launchers bind ranks to processors of their own, or let all of a host use all of them. */
typedef struct seat {
    char host[HOST_NAME_BYTES];
    cpu_set_t processors;
} seat;

static bool overlaps(const seat *a, const seat *b)
{
    cpu_set_t both;

    if (strncmp(a->host, b->host, sizeof a->host) != 0) return false;
    CPU_AND(&both, &a->processors, &b->processors);
    return CPU_COUNT(&both) > 0;
}

/* How many ranks use the processors of this one. */
static sw_code count_sharers(int *n, sw_team *team, sw_err *err)
{
    seat mine, theirs;
    sw_code rc = SW_OK;

    memset(&mine, 0, sizeof mine);
    (void)gethostname(mine.host, sizeof mine.host - 1);
    if (sched_getaffinity(0, sizeof mine.processors, &mine.processors) != 0)
        memset(&mine.processors, 0xff, sizeof mine.processors); /* more than the set can hold */
    *n = 0;
    for (int r = 0; r < sw_team_size(team) && rc == SW_OK; r++) {
        theirs = mine;
        rc = sw_team_broadcast(team, r, &theirs, sizeof theirs, err);
        *n += overlaps(&mine, &theirs);
    }
    return rc;
}

/* --- ranks --- */

/* The launcher starts us once for each rank, before they know each other: of an error that all have
 * one rank speaks, and the others only if nobody has ended them since. */
static void let_another_speak(void)
{
    static const char *const ranks[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"};

    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
        const char *text = getenv(ranks[i]);
        if (!text) continue;
        if (strcmp(text, "0") != 0) (void)sleep(LAUNCHED_PAUSE_S);
        return;
    }
}

static sw_code find_team(sw_run *run, const sw_cmd_common *common, sw_device_list *devices,
                         const char *word, sw_err *err)
{
    sw_code rc = sw_team_join_mpi(&run->team, err);

    if (rc != SW_OK) {
        let_another_speak();
        return rc;
    }
    if (run->team && common->ranks && common->ranks != sw_team_size(run->team))
        return SW_FAIL(err, SW_E_USAGE, "--ranks %d: the launcher has started %d already; leave "
                       "--ranks out", (int)common->ranks, sw_team_size(run->team));
    if (!run->team && !common->ranks) {
        if ((rc = choose_devices(devices, word, run, err)) != SW_OK) return rc;
        return sw_team_fork_local(&run->team, devices->n > 1 ? devices->n : 1, err);
    }
    if (!run->team) rc = sw_team_fork_local(&run->team, (int)common->ranks, err);
    if (rc != SW_OK || !run->team) return rc;
    devices->is_all = devices->is_all || (word && !strcmp(word, "auto"));
    return choose_devices(devices, word, run, err);
}

/* What only one may do. */
static void be_quiet(sw_run *run, sw_cmd_common *common)
{
    if (sw_team_speaks(run->team)) return;
    common->quiet = 1;
    common->progress = "none";
    common->profile = NULL;
    run->term->is_quiet = true;
    if (!freopen("/dev/null", "w", stdout)) return;
}

sw_code sw_ranks_begin(sw_run *run, const sw_cmd *cmd, sw_cmd_common *common, sw_err *err)
{
    const char **device = device_of(cmd, common);
    const char *const word = device ? *device : NULL;
    sw_device_list devices;
    int n_sharers = 1;
    sw_code rc;

    if ((rc = sw_device_list_parse(&devices, word, err)) != SW_OK) return rc;
    if (cmd->is_alone && cmd->is_alone(common)) devices.is_all = false; /* cuda is cuda:0 */
    if (!cmd->has_ranks) /* with --ranks all the same it plans for all of a list */
        return devices.n && !row_of(cmd, "ranks") ? take_first(device, &devices, cmd, run, err)
                                                  : SW_OK;
    if ((rc = find_team(run, common, &devices, word, err)) != SW_OK) return rc;
    if (!run->team && !devices.n) return SW_OK;
    be_quiet(run, common);
    if ((rc = take_device(device, &devices, run, err)) != SW_OK) return rc;
    if (device && (rc = check_kind(*device, run->team, err)) != SW_OK) return rc;
    if (common->threads || (rc = count_sharers(&n_sharers, run->team, err)) != SW_OK) return rc;
    common->threads = sw_cpu_count() / n_sharers;
    if (common->threads < 1) common->threads = 1;
    return SW_OK;
}

void sw_ranks_note(const sw_run *run, const sw_cmd_common *common)
{
    if (run->team)
        sw_progress_note(&run->term->progress, "%d ranks, %d of them on this host; threads of "
                         "each: %d", sw_team_size(run->team), sw_team_host_size(run->team),
                         (int)common->threads);
    if (run->note) sw_progress_note(&run->term->progress, "%s", run->note);
}
