/* outdir.c - one output directory of file.h: complete or absent.
 *
 * Work happens in a marked directory beside it (workdir.c), locked by flock: the kernel
 * releases the lock when the process ends in whatever way, so a directory that can be locked is
 * left over and the next run removes it. Process numbers would not do: containers share disks.
 *
 * An old output is exchanged for the new one in a single step where the file system can do
 * that (renameat2), so that PATH is whole at every instant; else it steps aside first, into the
 * work directory, and after a kill at just that moment the next run brings it back.
 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/io/leftovers.h"
#include "formats/io/out_internal.h"
#include "formats/io/watch.h"

/* out->path from the caller's; a link to a directory stands for that directory. */
static sw_code settle_path(sw_out_dir *out, const char *path, sw_err *err)
{
    char resolved[PATH_MAX];
    struct stat info;
    int n = snprintf(out->path, sizeof out->path, "%s", path);

    if (n <= 0 || (size_t)n >= sizeof out->path)
        return SW_FAIL(err, SW_E_USAGE, "output path is empty or too long");
    sw_path_strip(out->path);
    if (lstat(out->path, &info) != 0 || !S_ISLNK(info.st_mode)) return SW_OK;
    if (!realpath(out->path, resolved))
        return SW_FAIL(err, SW_E_USAGE, "%s: a link that leads nowhere: %s", out->path,
                       strerror(errno));
    n = snprintf(out->path, sizeof out->path, "%s", resolved);
    return n > 0 && (size_t)n < sizeof out->path ? SW_OK
                                                 : SW_FAIL(err, SW_E_IO, "%s: path too long", path);
}

/* --force is for replacing an output, not a home directory. */
sw_code sw_out_dir_check_path(const sw_out_dir *out, bool may_replace, sw_err *err)
{
    if (!sw_path_exists(out->path)) return SW_OK;
    if (!may_replace)
        return SW_FAIL(err, SW_E_USAGE, "%s: exists; give --force to replace it", out->path);
    if (!sw_path_is_dir(out->path))
        return SW_FAIL(err, SW_E_USAGE, "%s: is not a directory; remove it or choose another name",
                       out->path);
    return sw_replaced_check(out->path, err);
}

sw_code sw_out_dir_settle(sw_out_dir *out, const char *path, bool may_replace, sw_err *err)
{
    sw_code rc;

    if ((rc = settle_path(out, path, err)) != SW_OK ||
        (rc = sw_work_clear_way(out->path, may_replace, err)) != SW_OK)
        return rc;
    return sw_out_dir_check_path(out, may_replace, err);
}

static sw_code make_tree(sw_out_dir *out, sw_err *err)
{
    sw_code rc = sw_path_join(out->work_path, out->home_path, SW_WORK_TREE, err);

    if (rc != SW_OK || mkdir(out->work_path, 0755) == 0) return rc;
    return SW_FAIL(err, SW_E_IO, "%s: cannot create: %s", out->work_path, strerror(errno));
}

sw_code sw_out_dir_open(sw_out_dir *out, const char *path, bool may_replace, sw_err *err)
{
    sw_code rc;

    if ((rc = sw_out_dir_settle(out, path, may_replace, err)) != SW_OK ||
        (rc = sw_work_make(out->home_path, &out->lock_fd, out->path, err)) != SW_OK)
        return rc;
    out->hold_path[0] = '\0';
    out->may_replace = may_replace;
    out->is_open = true;
    out->left = sw_leftovers_enter(SW_LEFT_WORK, out->home_path);
    if ((rc = make_tree(out, err)) != SW_OK) sw_out_dir_abandon(out);
    return rc;
}

bool sw_out_dir_owns(const sw_out_dir *out, const char *name)
{
    return sw_work_owns(out->home_path, name);
}

/* Returns an errno, which stops the walk. */
static int sync_entry(const char *path, const struct stat *info, int kind, struct FTW *walk)
{
    (void)walk;
    return kind == FTW_DP || S_ISREG(info->st_mode) ? sw_sync_path(path) : 0;
}

static sw_code sync_tree(const char *path, sw_err *err)
{
    int failed = nftw(path, sync_entry, 16, FTW_DEPTH | FTW_PHYS);

    if (failed == 0) return SW_OK;
    return SW_FAIL(err, SW_E_IO, "%s: cannot sync: %s", path,
                   strerror(failed > 0 ? failed : errno));
}

/* How the output came to its place, and so how it goes back. */
typedef enum publication { PUBLISHED_NEW, PUBLISHED_EXCHANGED, PUBLISHED_IN_STEPS } publication;

/* The old output steps aside and back again if the new one cannot take its place. */
static int publish_in_steps(const sw_out_dir *out, const char *old)
{
    int failed = sw_rename_new(out->path, old);

    if (failed) return failed;
    if ((failed = sw_rename_new(out->work_path, out->path)) != 0)
        (void)sw_rename_new(old, out->path);
    return failed;
}

/* 0 or an errno, and then nothing has moved. */
static int publish(publication *how, const sw_out_dir *out, bool replaces, const char *old)
{
    *how = PUBLISHED_NEW;
    if (!replaces) return sw_rename_new(out->work_path, out->path);
    *how = PUBLISHED_EXCHANGED;
    if (renameat2(AT_FDCWD, out->work_path, AT_FDCWD, out->path, RENAME_EXCHANGE) == 0) return 0;
    if (errno != EINVAL && errno != ENOSYS && errno != ENOTSUP) return errno;
    *how = PUBLISHED_IN_STEPS;
    return publish_in_steps(out, old);
}

static void take_back(publication how, const sw_out_dir *out, const char *old)
{
    if (how == PUBLISHED_EXCHANGED)
        (void)renameat2(AT_FDCWD, out->work_path, AT_FDCWD, out->path, RENAME_EXCHANGE);
    else if (sw_rename_new(out->path, out->work_path) == 0 && how == PUBLISHED_IN_STEPS)
        (void)sw_rename_new(old, out->path);
}

/* Everything that can forbid publishing; asked when all data is on the disk. */
static sw_code check_publishing(const sw_out_dir *out, bool *replaces, sw_err *err)
{
    sw_code rc;

    if ((rc = sync_tree(out->work_path, err)) != SW_OK || (rc = sw_watch_check(err)) != SW_OK ||
        (rc = sw_work_check(out->home_path, err)) != SW_OK)
        return rc;
    /* what comes after the look is not replaced; what is noted will be ours to remove, if the check
     * that follows finds nothing else, and what comes after that is not noted */
    *replaces = sw_path_exists(out->path);
    if (*replaces && out->may_replace && sw_path_is_dir(out->path) &&
        (rc = sw_work_note_all(out->home_path, out->path, err)) != SW_OK)
        return rc;
    return sw_out_dir_check_path(out, out->may_replace, err);
}

sw_code sw_out_dir_commit(sw_out_dir *out, sw_err *err)
{
    char old[SW_PATH_BYTES];
    bool replaces = false;
    publication how;
    int failed;
    sw_code rc;

    if ((rc = check_publishing(out, &replaces, err)) != SW_OK ||
        (rc = sw_path_join(old, out->home_path, SW_WORK_OLD, err)) != SW_OK)
        goto done;
    failed = publish(&how, out, replaces, old);
    if (failed == EEXIST)
        rc = SW_FAIL(err, SW_E_USAGE, "%s: exists; it came while this run worked and is not "
                     "replaced without --force", out->path);
    else if (failed)
        rc = SW_FAIL(err, SW_E_IO, "%s: cannot publish: %s", out->path, strerror(failed));
    if (rc == SW_OK && (rc = sw_sync_parent(out->path, err)) != SW_OK)
        take_back(how, out, old); /* not durable, so not done */
done:
    if (rc != SW_OK && out->hold_path[0])
        sw_out_dir_leave(out);
    else
        sw_out_dir_abandon(out); /* after an exchange this removes the old output */
    return rc;
}

void sw_out_dir_abandon(sw_out_dir *out)
{
    if (!out->is_open) return;
    sw_work_remove(out->home_path);
    sw_leftovers_leave(out->left);
    out->left = 0;
    close(out->lock_fd);
    out->is_open = false;
}
