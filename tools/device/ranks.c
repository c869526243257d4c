/* ranks.c - see ranks.h. */
#include "tools/device/ranks.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/base/parallel.h"
#include "kernels/device.h"
#include "tools/device/like_devices.h"

#define CUDA "cuda"
#define DEVICE_INDEX_MAX 1023
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

/* "cuda:0,2" as numbers; of "cuda" all of this host that are alike; none of any other word. */
typedef struct device_list {
    int64_t items[SW_TEAM_RANKS_MAX];
    int n;
    int n_other; /* unlike the first of the host, and left alone */
} device_list;

static sw_code parse_devices(device_list *list, const char *word, sw_err *err)
{
    char number[8];
    sw_code rc = SW_OK;

    *list = (device_list){.n = 0};
    if (!word || strncmp(word, CUDA ":", strlen(CUDA ":")) != 0 || !strchr(word, ',')) return SW_OK;
    for (const char *at = word + strlen(CUDA ":"); at && rc == SW_OK;) {
        const char *comma = strchr(at, ',');
        const size_t n = comma ? (size_t)(comma - at) : strlen(at);
        if (list->n == SW_TEAM_RANKS_MAX || n >= sizeof number)
            return SW_FAIL(err, SW_E_USAGE, "--device %s: a list of at most %d devices, such as "
                           "cuda:0,1", word, SW_TEAM_RANKS_MAX);
        memcpy(number, at, n);
        number[n] = '\0';
        rc = sw_opt_int(&list->items[list->n++], number, 0, DEVICE_INDEX_MAX, "--device cuda:N,...",
                        err);
        for (int i = 0; i + 1 < list->n && rc == SW_OK; i++)
            if (list->items[i] == list->items[list->n - 1])
                rc = SW_FAIL(err, SW_E_USAGE, "--device %s: device %s stands there twice", word,
                             number);
        at = comma ? comma + 1 : NULL;
    }
    return rc;
}

/* One device alone needs no ranks. */
static void find_devices(device_list *list, const char *word)
{
    int like[SW_TEAM_RANKS_MAX];

    if (!word || strcmp(word, CUDA) != 0) return;
    list->n = sw_like_devices_here(like, SW_TEAM_RANKS_MAX, &list->n_other);
    for (int i = 0; i < list->n; i++) list->items[i] = like[i];
    if (list->n < 2) list->n = 0;
}

/* Ranks of one host take its devices in turn, unless one device was named. */
static sw_code choose_device(const char **word, const device_list *list, const sw_run *run,
                             sw_err *err)
{
    const int at = sw_team_host_rank(run->team);
    int64_t index = 0;
    char *chosen = NULL;
    int n;
    sw_code rc;

    if (list->n) {
        index = list->items[at % list->n];
    } else {
        if (!*word || (strcmp(*word, CUDA) != 0 && strcmp(*word, "auto") != 0) ||
            (n = sw_device_count()) < 1)
            return SW_OK;
        index = at % n;
    }
    if ((rc = sw_arena_print(&chosen, run->arena, err, CUDA ":%d", (int)index)) != SW_OK) return rc;
    *word = chosen;
    return SW_OK;
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

static sw_code find_team(sw_run *run, const sw_cmd_common *common, device_list *devices,
                         const char *word, sw_err *err)
{
    sw_code rc = sw_team_join_mpi(&run->team, err);

    if (rc != SW_OK) {
        let_another_speak();
        return rc;
    }
    if (!run->team) {
        if (!common->ranks) find_devices(devices, word);
        return sw_team_fork_local(&run->team, common->ranks ? (int)common->ranks
                                              : devices->n  ? devices->n
                                                            : 1, err);
    }
    if (common->ranks && common->ranks != sw_team_size(run->team))
        return SW_FAIL(err, SW_E_USAGE, "--ranks %d: the launcher has started %d already; leave "
                       "--ranks out", (int)common->ranks, sw_team_size(run->team));
    return SW_OK;
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
    device_list devices;
    int n_sharers = 1;
    sw_code rc;

    if (!cmd->has_ranks) return SW_OK;
    if ((rc = parse_devices(&devices, device ? *device : NULL, err)) != SW_OK ||
        (rc = find_team(run, common, &devices, device ? *device : NULL, err)) != SW_OK)
        return rc;
    run->n_other_devices = devices.n_other;
    if (!run->team && !devices.n) return SW_OK;
    be_quiet(run, common);
    if (device && (rc = choose_device(device, &devices, run, err)) != SW_OK) return rc;
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
    if (run->n_other_devices)
        sw_progress_note(&run->term->progress, "CUDA devices that are unlike the first and are "
                         "left alone: %d; --device cuda:N takes one", run->n_other_devices);
}
