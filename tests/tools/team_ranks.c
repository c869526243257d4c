/* team_ranks.c - what ranks of a launcher do to each other, for tests/e2e/mpi.sh.
 *
 * team_ranks WHAT: circle, agree, differ, fail, stall, early. Rank 0 prints what it was told;
 * the exit code is that of the run.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "quant/team/team.h"
#include "tests/support/toys/message.h"

#define LARGE ((size_t)150 << 20) /* more than two pieces */

static sw_code pass(sw_team *team, uint8_t *out, uint8_t *in, size_t n, int message, sw_err *err)
{
    const int rank = sw_team_rank(team), size = sw_team_size(team);
    const int next = (rank + 1) % size, before = (rank + size - 1) % size;
    sw_code rc;

    message_fill(out, n, rank, message);
    if ((rc = sw_team_exchange(team, next, out, n, before, in, n, err)) != SW_OK) return rc;
    if (!message_is_whole(in, n, before, message))
        return SW_FAIL(err, SW_E_BUG, "message %d of rank %d has other bytes", message, before);
    if (rank == message % size) memcpy(in, out, n);
    if ((rc = sw_team_broadcast(team, message % size, in, n, err)) != SW_OK) return rc;
    if (message_is_whole(in, n, message % size, message)) return SW_OK;
    return SW_FAIL(err, SW_E_BUG, "broadcast %d has other bytes", message);
}

static sw_code circle(sw_team *team, sw_err *err)
{
    static const size_t sizes[] = {0, 1, 4097, (size_t)64 << 20, LARGE, 3};
    uint8_t *out = malloc(LARGE), *in = malloc(LARGE);
    sw_code rc = out && in ? SW_OK : SW_E_NOMEM;

    for (int i = 0; i < 6 && rc == SW_OK; i++) rc = pass(team, out, in, sizes[i], i, err);
    for (int i = 0; i < 200 && rc == SW_OK; i++) rc = pass(team, out, in, 10 * (size_t)i, i, err);
    free(out);
    free(in);
    return rc;
}

static sw_code agree(sw_team *team, sw_err *err)
{
    sw_code mine = SW_OK;

    if (sw_team_rank(team) == 1) mine = SW_FAIL(err, SW_E_CUDA, "the device fell off the bus");
    return sw_team_agree(team, mine, err);
}

static sw_code differ(sw_team *team, sw_err *err)
{
    const int digest = sw_team_rank(team) == 1;

    return sw_team_check_same(team, "config.json", &digest, sizeof digest, err);
}

/* Alone: the others wait for this rank, or are at work. */
static sw_code fail(sw_team *team, sw_err *err)
{
    char byte = 0;

    if (sw_team_rank(team) == 1) return SW_FAIL(err, SW_E_NOMEM, "no memory for a Hessian");
    if (sw_team_rank(team) == 2) (void)sleep(1);
    return sw_team_receive(team, 1, &byte, 1, err);
}

static sw_code stall(sw_team *team, sw_err *err)
{
    char byte = 0;

    if (sw_team_rank(team) == 1)
        for (;;) (void)pause();
    return sw_team_receive(team, 1, &byte, 1, err);
}

static sw_code mix_up(sw_team *team, sw_err *err)
{
    char bytes[8] = {0};

    if (sw_team_rank(team) == 1) return sw_team_send(team, 0, bytes, 8, err);
    return sw_team_rank(team) == 0 ? sw_team_receive(team, 1, bytes, 4, err) : SW_OK;
}

static const struct {
    const char *name;
    sw_code (*run)(sw_team *team, sw_err *err);
} rows[] = {{"circle", circle}, {"agree", agree}, {"differ", differ},
            {"fail", fail},     {"stall", stall}, {"mix_up", mix_up}};

int main(int argc, char *argv[])
{
    sw_team *team = NULL;
    sw_err err = {0};
    sw_code rc = sw_team_join_mpi(&team, &err);

    for (size_t i = 0; i < sizeof rows / sizeof *rows && rc == SW_OK; i++)
        if (argc == 2 && !strcmp(argv[1], rows[i].name)) rc = rows[i].run(team, &err);
    rc = sw_team_end(team, rc, &err);
    if (sw_team_speaks(team))
        (void)fprintf(rc == SW_OK ? stdout : stderr, "rank %d of %d, %d on its host: %s\n",
                      sw_team_rank(team), sw_team_size(team), sw_team_host_size(team),
                      rc == SW_OK ? "well" : err.text);
    (void)fflush(NULL);
    sw_team_close(team, rc);
    return (int)rc;
}
