/* ranks_case.c - see ranks_case.h. */
#include "tests/support/cases/ranks_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static void be_rank(int n_ranks, ranks_work *work, const void *ctx)
{
    sw_team *team = NULL;
    sw_err err = {0};
    sw_code rc = sw_team_fork_local(&team, n_ranks, &err);

    if (rc == SW_OK) rc = work(team, ctx, &err);
    if (rc != SW_OK) (void)fprintf(stderr, "rank %d: %s\n", sw_team_rank(team), err.text);
    rc = sw_team_end(team, rc, &err);
    sw_team_close(team, rc);
    _exit((int)rc);
}

void ranks_check(int n_ranks, ranks_work *work, const void *ctx, const char *what)
{
    int status = 0;
    const pid_t first = fork();

    assert_true(first >= 0);
    if (first == 0) be_rank(n_ranks, work, ctx);
    assert_int_equal(waitpid(first, &status, 0), first);
    if (!WIFEXITED(status) || WEXITSTATUS(status))
        fail_msg("%s, %d ranks: status %d", what, n_ranks, status);
}

sw_code pieces_sum(sw_sums *sums, int64_t begin, int64_t end, pieces_fill *fill, sw_err *err)
{
    sw_code rc = SW_OK;

    for (int64_t piece = begin; piece < end && rc == SW_OK; piece++) {
        sw_site_stats *part = NULL;
        if ((rc = sw_sums_begin(&part, sums, piece, err)) != SW_OK) break;
        fill(part, piece);
        rc = sw_sums_end(sums, err);
    }
    return rc;
}
