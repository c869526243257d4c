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

/* What there is of the host's devices. */
typedef struct host_devices {
    sw_device_info there[SW_DEVICES_MAX];
    int n;
} host_devices;

/* A process that is a rank already, or forks none, may ask the driver itself; ranks that are still
 * to be forked from this one could not use a device if it had. */
static sw_code choose_devices(sw_device_list *devices, host_devices *host, const char *word,
                              bool forks, sw_err *err)
{
    host->n = 0;
    if (!devices->is_all && !devices->n) return SW_OK;
    host->n = forks ? sw_devices_look_apart(host->there) : sw_devices_look(host->there);
    return sw_device_list_choose(devices, word, host->there, host->n, err);
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

/* All of them for the layers of a model; the first is the device of the options. */
static sw_code keep_devices(sw_run *run, const sw_device_list *devices, sw_err *err)
{
    sw_device_list *kept = NULL;
    sw_code rc;

    if (devices->n < 2) return SW_OK;
    if ((rc = SW_ARENA_TAKE(&kept, run->arena, 1, err)) != SW_OK) return rc;
    *kept = *devices;
    run->devices = kept;
    return SW_OK;
}

static bool may_spread(const sw_cmd *cmd, const sw_cmd_common *common)
{
    return cmd->may_spread && cmd->may_spread(common);
}

/* --spread-layers where nothing can be spread. */
static sw_code check_spread(const sw_cmd *cmd, const sw_cmd_common *common, const char *word,
                            const sw_device_list *devices, sw_err *err)
{
    if (!common->spread_layers) return SW_OK;
    if (!may_spread(cmd, common))
        return SW_FAIL(err, SW_E_USAGE, "--spread-layers: swage %s uses one device with these "
                       "options", cmd->name);
    if (common->ranks)
        return SW_FAIL(err, SW_E_USAGE, "--spread-layers: one process has the layers of all "
                       "devices; leave --ranks out");
    if (devices->is_all || devices->n > 1) return SW_OK;
    return SW_FAIL(err, SW_E_USAGE, "--spread-layers takes several devices, such as --device cuda "
                   "or --device cuda:0,1, and here is --device %s", word ? word : "cpu");
}

/* Of a command that has no ranks. */
static sw_code take_several(const char **word, sw_device_list *devices, sw_run *run, sw_err *err)
{
    host_devices host;
    sw_code rc = choose_devices(devices, &host, *word, false, err);

    devices->left[0] = '\0'; /* nobody misses those that would not be needed */
    if (rc == SW_OK) rc = keep_devices(run, devices, err);
    return rc == SW_OK ? take_device(word, devices, run, err) : rc;
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

/* One process with the layers of all devices, or one for each? */
static bool is_for_one(const sw_run *run, const sw_cmd *cmd, const sw_cmd_common *common,
                       const sw_device_list *devices, const host_devices *host)
{
    int64_t n_bytes, cap_bytes = 0;

    if (!may_spread(cmd, common)) return false;
    if (common->spread_layers || (cmd->is_alone && cmd->is_alone(common))) return true;
    if (devices->n < 2 || !cmd->model_bytes) return false;
    n_bytes = cmd->model_bytes(&cap_bytes, common, run->args);
    return sw_device_list_spreads(devices, host->there, host->n, cap_bytes, n_bytes);
}

static sw_code find_team(sw_run *run, const sw_cmd *cmd, const sw_cmd_common *common,
                         sw_device_list *devices, const char *word, sw_err *err)
{
    host_devices host;
    sw_code rc = sw_team_join_mpi(&run->team, err);

    if (rc != SW_OK) {
        let_another_speak();
        return rc;
    }
    if (run->team && common->ranks && common->ranks != sw_team_size(run->team))
        return SW_FAIL(err, SW_E_USAGE, "--ranks %d: the launcher has started %d already; leave "
                       "--ranks out", (int)common->ranks, sw_team_size(run->team));
    if (run->team && common->spread_layers)
        return SW_FAIL(err, SW_E_USAGE, "--spread-layers: one process has the layers of all "
                       "devices, and the launcher has started %d", sw_team_size(run->team));
    if (!run->team && !common->ranks) {
        if ((rc = choose_devices(devices, &host, word, true, err)) != SW_OK) return rc;
        if (is_for_one(run, cmd, common, devices, &host)) return keep_devices(run, devices, err);
        return sw_team_fork_local(&run->team, devices->n > 1 ? devices->n : 1, err);
    }
    if (!run->team) rc = sw_team_fork_local(&run->team, (int)common->ranks, err);
    if (rc != SW_OK || !run->team) return rc;
    devices->is_all = devices->is_all || (word && !strcmp(word, "auto"));
    return choose_devices(devices, &host, word, !run->team, err);
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

    if ((rc = sw_device_list_parse(&devices, word, err)) != SW_OK ||
        (rc = check_spread(cmd, common, word, &devices, err)) != SW_OK)
        return rc;
    if (cmd->is_alone && cmd->is_alone(common) && !may_spread(cmd, common))
        devices.is_all = false; /* cuda is cuda:0 */
    if (!cmd->has_ranks && may_spread(cmd, common))
        return devices.is_all || devices.n ? take_several(device, &devices, run, err) : SW_OK;
    if (!cmd->has_ranks) /* with --ranks all the same it plans for all of a list */
        return devices.n && !row_of(cmd, "ranks") ? take_first(device, &devices, cmd, run, err)
                                                  : SW_OK;
    if ((rc = find_team(run, cmd, common, &devices, word, err)) != SW_OK) return rc;
    if (!run->team && !devices.n) return SW_OK;
    be_quiet(run, common);
    if ((rc = take_device(device, &devices, run, err)) != SW_OK) return rc;
    if (device && (rc = check_kind(*device, run->team, err)) != SW_OK) return rc;
    if (common->threads || (rc = count_sharers(&n_sharers, run->team, err)) != SW_OK) return rc;
    common->threads = sw_cpu_count() / n_sharers;
    if (common->threads < 1) common->threads = 1;
    return SW_OK;
}

int sw_ranks_threads_alone(const sw_team *team, int n_threads)
{
    const int n_all = n_threads * sw_team_host_size(team), n_there = sw_cpu_count();

    if (n_there <= n_threads) return n_threads; /* more than its own are not for it to use */
    return n_all < n_there ? n_all : n_there;
}

void sw_ranks_note(const sw_run *run, const sw_cmd_common *common)
{
    if (run->team)
        sw_progress_note(&run->term->progress, "%d ranks, %d of them on this host; threads of "
                         "each: %d", sw_team_size(run->team), sw_team_host_size(run->team),
                         (int)common->threads);
    if (run->note) sw_progress_note(&run->term->progress, "%s", run->note);
}
