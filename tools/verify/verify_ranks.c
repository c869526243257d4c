/* verify_ranks.c - see verify_ranks.h. */
#include "tools/verify/verify_ranks.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "tools/calibrate/same_inputs.h"

#define PATH_BYTES 4096

/* sw_team_agree would end the team, and rank 0 may forgive. */
static sw_code meet(void *self, sw_code code, sw_err *err)
{
    const int rank = sw_team_rank(self);
    sw_err first = {.code = SW_OK};
    int first_rank = 0;

    for (int r = 0; r < sw_team_size(self); r++) {
        sw_err theirs = {.code = SW_OK};
        sw_code rc;

        if (r == rank && code != SW_OK) theirs = *err;
        theirs.code = r == rank ? code : SW_OK;
        if ((rc = sw_team_broadcast(self, r, &theirs, sizeof theirs, err)) != SW_OK) return rc;
        if (theirs.code == SW_OK || first.code != SW_OK) continue;
        first = theirs;
        first_rank = r;
    }
    if (first.code == SW_OK) return SW_OK;
    *err = (sw_err){.code = SW_OK}; /* of several that have failed all tell of the same */
    if (first_rank != rank)
        return SW_FAIL(err, first.code, "rank %d: %s", first_rank, first.text);
    *err = first;
    return first.code;
}

static sw_code broadcast(void *self, int from, void *data, size_t n_bytes, sw_err *err)
{
    return sw_team_broadcast(self, from, data, n_bytes, err);
}

static sw_code send(void *self, int to, const void *data, size_t n_bytes, sw_err *err)
{
    return sw_team_send(self, to, data, n_bytes, err);
}

static sw_code receive(void *self, int from, void *data, size_t n_bytes, sw_err *err)
{
    return sw_team_receive(self, from, data, n_bytes, err);
}

static sw_code check_same(void *self, const char *what, const void *data, size_t n_bytes,
                          sw_err *err)
{
    return sw_team_check_same(self, what, data, n_bytes, err);
}

const sw_judge_ranks *sw_verify_ranks_of(sw_judge_ranks *out, sw_team *team)
{
    *out = (sw_judge_ranks){.self = team, .rank = sw_team_rank(team), .size = sw_team_size(team),
                            .meet = meet, .broadcast = broadcast, .send = send,
                            .receive = receive, .check_same = check_same};
    return out->size > 1 ? out : NULL;
}

/* A model that a rank cannot open is the judge's to speak of, which says more. */
static sw_code check_model(sw_team *team, const char *dir, sw_err *err)
{
    sw_checkpoint model = {0};
    sw_err why = {0};
    int64_t is_open = sw_checkpoint_open(&model, dir, &why) == SW_OK;
    const bool is_mine = is_open;
    sw_code rc = sw_team_least(team, &is_open, err);

    if (rc == SW_OK && is_open) rc = sw_same_model(team, &model, err);
    if (is_mine) sw_checkpoint_close(&model);
    return rc;
}

sw_code sw_verify_ranks_check(sw_team *team, const char *const dirs[2], const char *kv_cache,
                              sw_err *err)
{
    sw_code rc;

    if (sw_team_size(team) == 1) return SW_OK;
    rc = sw_same_setting(team, "kv-cache", kv_cache, err);
    for (int i = 0; i < 2 && rc == SW_OK; i++)
        if (dirs[i]) rc = check_model(team, dirs[i], err);
    return rc;
}

static bool is_weights(const char *name)
{
    static const char ends[] = ".safetensors";
    const size_t n = strlen(name), n_ends = sizeof ends - 1;

    return n > n_ends && !strcmp(name + n - n_ends, ends);
}

int64_t sw_verify_files_bytes(const char *path)
{
    struct stat about;
    int64_t sum = 0;
    DIR *stream;

    if (stat(path, &about) != 0) return 0;
    if (!S_ISDIR(about.st_mode)) return (int64_t)about.st_size;
    if (!(stream = opendir(path))) return 0;
    for (const struct dirent *entry; (entry = readdir(stream)) != NULL;) {
        char file[PATH_BYTES];
        const int n = snprintf(file, sizeof file, "%s/%s", path, entry->d_name);

        if (n > 0 && n < (int)sizeof file && is_weights(entry->d_name) && stat(file, &about) == 0)
            sum += (int64_t)about.st_size;
    }
    (void)closedir(stream);
    return sum;
}
