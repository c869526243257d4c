/* outdir.c - one output directory of file.h: complete or absent.
 *
 * Work happens in PATH.partial-PID.K, locked by flock: the kernel lets go of the lock when
 * the process dies however it dies, so a partial directory that can be locked is debris and
 * is removed by the next run. Process numbers would not do: containers share disks.
 *
 * An old output is exchanged for the new one in a single step where the file system can do
 * that (renameat2), so that PATH is whole at every instant; else it steps aside first, as
 * PATH.old-PID, and a kill at just that moment leaves it there.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/base/out_internal.h"

#define PARTIAL_MARK ".partial-"
#define WORK_ATTEMPTS 16

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *walk)
{
    (void)info;
    (void)kind;
    (void)walk;
    return remove(path);
}

void sw_remove_tree(const char *path)
{
    (void)nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

int sw_lock_dir(const char *path)
{
    struct stat opened, named;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    bool is_ours;

    if (fd < 0) return -1;
    /* without locks on this file system the directory is ours, and debris stays */
    is_ours = flock(fd, LOCK_EX | LOCK_NB) == 0 || errno == ENOTSUP || errno == ENOSYS ||
              errno == ENOLCK;
    /* between the open and the lock another run may have taken it for debris */
    is_ours = is_ours && fstat(fd, &opened) == 0 && stat(path, &named) == 0 &&
              opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
    if (is_ours) return fd;
    close(fd);
    return -1;
}

/* Remove PATH.partial-* beside `path` that no living process holds. */
static void sweep(const char *path)
{
    char dir[SW_PATH_BYTES], found[SW_PATH_BYTES];
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    size_t n_base = strlen(base), n_mark = strlen(PARTIAL_MARK);
    const struct dirent *entry;
    DIR *list;

    sw_path_parent(dir, path);
    if (!(list = opendir(dir))) return;
    while ((entry = readdir(list))) {
        const char *tail = entry->d_name + n_base;
        int fd;
        if (strncmp(entry->d_name, base, n_base) != 0 || strncmp(tail, PARTIAL_MARK, n_mark) != 0 ||
            strspn(tail + n_mark, "0123456789.") != strlen(tail + n_mark))
            continue;
        if (sw_path_join(found, dir, entry->d_name, NULL) != SW_OK) continue;
        fd = open(found, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        if (fd < 0) continue;
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) sw_remove_tree(found);
        close(fd);
    }
    closedir(list);
}

static bool has_directories(const char *path)
{
    const struct dirent *entry;
    char sub[SW_PATH_BYTES];
    struct stat info;
    bool found = false;
    DIR *list = opendir(path);

    if (!list) return true;
    while (!found && (entry = readdir(list))) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        found = sw_path_join(sub, path, entry->d_name, NULL) != SW_OK || lstat(sub, &info) != 0 ||
                S_ISDIR(info.st_mode);
    }
    closedir(list);
    return found;
}

/* --force is for replacing an output, not a home directory. */
static sw_code check_existing(const char *path, bool may_replace, sw_err *err)
{
    if (!sw_path_exists(path)) return SW_OK;
    if (!may_replace)
        return SW_FAIL(err, SW_E_USAGE, "%s: exists; give --force to replace it", path);
    if (!sw_path_is_dir(path))
        return SW_FAIL(err, SW_E_USAGE, "%s: is not a directory; remove it or choose another name",
                       path);
    if (has_directories(path))
        return SW_FAIL(err, SW_E_USAGE,
                       "%s: holds directories, so it is no output of ours and is not replaced; "
                       "remove it or choose another name",
                       path);
    return SW_OK;
}

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

/* Two outputs of one process, or two containers with the same number, take different K. */
static sw_code make_work_dir(sw_out_dir *out, sw_err *err)
{
    for (int k = 0; k < WORK_ATTEMPTS; k++) {
        int n = snprintf(out->work_path, sizeof out->work_path, "%s" PARTIAL_MARK "%ld.%d",
                         out->path, (long)getpid(), k);
        if (n < 0 || (size_t)n >= sizeof out->work_path)
            return SW_FAIL(err, SW_E_IO, "%s: path too long", out->path);
        if (mkdir(out->work_path, 0755) != 0) {
            if (errno == EEXIST) continue;
            return SW_FAIL(err, SW_E_IO, "%s: cannot create: %s", out->work_path, strerror(errno));
        }
        if ((out->lock_fd = sw_lock_dir(out->work_path)) >= 0) return SW_OK;
        (void)rmdir(out->work_path);
    }
    return SW_FAIL(err, SW_E_IO, "%s: cannot create and lock a work directory beside it",
                   out->path);
}

sw_code sw_out_dir_settle(sw_out_dir *out, const char *path, bool may_replace, sw_err *err)
{
    sw_code rc;

    if ((rc = settle_path(out, path, err)) != SW_OK) return rc;
    if ((rc = check_existing(out->path, may_replace, err)) != SW_OK) return rc;
    sweep(out->path);
    return SW_OK;
}

sw_code sw_out_dir_open(sw_out_dir *out, const char *path, bool may_replace, sw_err *err)
{
    sw_code rc;

    if ((rc = sw_out_dir_settle(out, path, may_replace, err)) != SW_OK) return rc;
    if ((rc = make_work_dir(out, err)) != SW_OK) return rc;
    out->may_replace = may_replace;
    out->is_open = true;
    return SW_OK;
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

/* The old output steps aside and back again if the new one cannot take its place. */
static int exchange_in_steps(const char *work, const char *path)
{
    char aside[SW_PATH_BYTES];
    int failed, n = snprintf(aside, sizeof aside, "%s.old-%ld", path, (long)getpid());

    if (n < 0 || (size_t)n >= sizeof aside) return ENAMETOOLONG;
    if (rename(path, aside) != 0) return errno;
    if (rename(work, path) != 0) {
        failed = errno;
        (void)rename(aside, path);
        return failed;
    }
    if (rename(aside, work) == 0) return 0;
    failed = errno;
    (void)rename(path, work);
    (void)rename(aside, path);
    return failed;
}

/* Swap the two directories; 0 or an errno, and then nothing has moved. */
static int exchange(const char *work, const char *path)
{
    if (renameat2(AT_FDCWD, work, AT_FDCWD, path, RENAME_EXCHANGE) == 0) return 0;
    if (errno != EINVAL && errno != ENOSYS && errno != ENOTSUP) return errno;
    return exchange_in_steps(work, path);
}

sw_code sw_out_dir_commit(sw_out_dir *out, sw_err *err)
{
    bool replaces;
    int failed;
    sw_code rc;

    if ((rc = sync_tree(out->work_path, err)) != SW_OK) goto done;
    replaces = sw_path_exists(out->path);
    if ((rc = check_existing(out->path, out->may_replace, err)) != SW_OK) goto done;
    if (replaces)
        failed = exchange(out->work_path, out->path);
    else
        failed = rename(out->work_path, out->path) == 0 ? 0 : errno;
    if (failed) {
        rc = SW_FAIL(err, SW_E_IO, "%s: cannot publish: %s", out->path, strerror(failed));
        goto done;
    }
    if ((rc = sw_sync_parent(out->path, err)) == SW_OK) goto done;
    if (replaces) /* not durable, so not done: put things back */
        (void)exchange(out->work_path, out->path);
    else
        (void)rename(out->path, out->work_path);
done:
    if (rc != SW_OK && out->hold_path[0])
        sw_out_dir_leave(out);
    else
        sw_out_dir_abandon(out); /* after an exchange this removes the old output */
    return rc;
}

void sw_out_dir_abandon(sw_out_dir *out)
{
    char journal[SW_PATH_BYTES];

    if (!out->is_open) return;
    if (out->hold_path[0] && /* first, so that half a removal is not taken for work */
        sw_path_join(journal, out->hold_path, SW_HOLD_JOURNAL, NULL) == SW_OK)
        (void)unlink(journal);
    sw_remove_tree(out->hold_path[0] ? out->hold_path : out->work_path);
    close(out->lock_fd);
    out->is_open = false;
}
