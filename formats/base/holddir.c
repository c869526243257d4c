/* holddir.c - an output directory whose work survives the process, see file.h.
 *
 * PATH.partial holds "journal", which says what has been finished and from which inputs, and
 * "checkpoint", which becomes PATH. The journal stays outside what is published, so that the
 * last step is one rename and whatever is left behind after it can be told from work in progress.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/base/out_internal.h"

#define HOLD_MARK ".partial"
#define HOLD_WORK "checkpoint"

/* Only what we write there: a name of ours, or the temporary of one. */
static bool is_ours(const char *name)
{
    static const char *const names[] = {SW_HOLD_JOURNAL, HOLD_WORK, "spill"};
    bool found = !strcmp(name, ".") || !strcmp(name, "..");

    for (size_t i = 0; i < sizeof names / sizeof *names && !found; i++)
        found = !strncmp(name, names[i], strlen(names[i]));
    return found;
}

static sw_code check_hold(const sw_out_dir *out, sw_err *err)
{
    DIR *list = opendir(out->hold_path);
    const struct dirent *entry;
    sw_code rc = SW_OK;

    if (!list)
        return SW_FAIL(err, SW_E_IO, "%s: cannot list: %s", out->hold_path, strerror(errno));
    while (rc == SW_OK && (entry = readdir(list)))
        if (!is_ours(entry->d_name))
            rc = SW_FAIL(err, SW_E_USAGE,
                         "%s: holds %s, so it is no unfinished run of ours; remove it or choose "
                         "another output",
                         out->hold_path, entry->d_name);
    closedir(list);
    return rc;
}

/* The journal goes first: without one, the rest is worth nothing and says so. */
static sw_code empty_hold(const sw_out_dir *out, sw_err *err)
{
    char path[SW_PATH_BYTES];
    sw_code rc;

    if ((rc = sw_path_join(path, out->hold_path, SW_HOLD_JOURNAL, err)) != SW_OK) return rc;
    (void)unlink(path);
    sw_remove_tree(out->work_path);
    return SW_OK;
}

static sw_code lock_hold(sw_out_dir *out, sw_err *err)
{
    if (mkdir(out->hold_path, 0755) != 0 && errno != EEXIST)
        return SW_FAIL(err, SW_E_IO, "%s: cannot create: %s", out->hold_path, strerror(errno));
    if (!sw_path_is_dir(out->hold_path))
        return SW_FAIL(err, SW_E_USAGE, "%s: is in the way; remove it or choose another output",
                       out->hold_path);
    if ((out->lock_fd = sw_lock_dir(out->hold_path)) >= 0) return SW_OK;
    return SW_FAIL(err, SW_E_USAGE, "%s: another run is at work on it", out->hold_path);
}

static sw_code take_up(sw_out_dir *out, bool is_restart, sw_err *err)
{
    char journal[SW_PATH_BYTES];
    sw_code rc;

    if ((rc = check_hold(out, err)) != SW_OK ||
        (rc = sw_path_join(out->work_path, out->hold_path, HOLD_WORK, err)) != SW_OK ||
        (rc = sw_path_join(journal, out->hold_path, SW_HOLD_JOURNAL, err)) != SW_OK)
        return rc;
    /* a journal alone is what stays when a run is killed after its last step */
    out->is_resumed = !is_restart && sw_path_exists(journal) && sw_path_is_dir(out->work_path);
    if (!out->is_resumed && (rc = empty_hold(out, err)) != SW_OK) return rc;
    if (mkdir(out->work_path, 0755) == 0 || errno == EEXIST) return SW_OK;
    return SW_FAIL(err, SW_E_IO, "%s: cannot create: %s", out->work_path, strerror(errno));
}

sw_code sw_out_dir_open_kept(sw_out_dir *out, const char *path, bool may_replace, bool is_restart,
                             sw_err *err)
{
    sw_code rc;
    int n;

    if ((rc = sw_out_dir_settle(out, path, may_replace, err)) != SW_OK) return rc;
    n = snprintf(out->hold_path, sizeof out->hold_path, "%s" HOLD_MARK, out->path);
    if (n < 0 || (size_t)n >= sizeof out->hold_path)
        return SW_FAIL(err, SW_E_IO, "%s: path too long", out->path);
    if ((rc = lock_hold(out, err)) != SW_OK) return rc;
    if ((rc = take_up(out, is_restart, err)) != SW_OK) {
        (void)rmdir(out->work_path); /* not if there is anything in them */
        (void)rmdir(out->hold_path);
        close(out->lock_fd);
        return rc;
    }
    out->may_replace = may_replace;
    out->is_open = true;
    return SW_OK;
}

void sw_out_dir_leave(sw_out_dir *out)
{
    if (!out->is_open) return;
    close(out->lock_fd);
    out->is_open = false;
}

uint64_t sw_dir_used_bytes(const char *path)
{
    char file[SW_PATH_BYTES];
    const struct dirent *entry;
    struct stat info;
    uint64_t n_bytes = 0;
    DIR *list = opendir(path);

    while (list && (entry = readdir(list)))
        if (sw_path_join(file, path, entry->d_name, NULL) == SW_OK && lstat(file, &info) == 0 &&
            S_ISREG(info.st_mode))
            n_bytes += (uint64_t)info.st_blocks * 512;
    if (list) closedir(list);
    return n_bytes;
}
