/* outfile.c - the writing half of file.h: temporary name, sync, rename. */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "formats/base/file.h"

#define WRITE_CHUNK_BYTES ((size_t)1 << 30) /* below the system's limit for one call */

static void parent_of(char out[SW_PATH_BYTES], const char *path)
{
    size_t n = strlen(path);

    while (n > 1 && path[n - 1] == '/') n--;
    while (n > 0 && path[n - 1] != '/') n--;
    if (n == 0) {
        memcpy(out, ".", 2);
        return;
    }
    memcpy(out, path, n);
    out[n] = '\0';
}

/* A rename is durable only once the directory that holds the name is synced. */
static sw_code sync_parent(const char *path, sw_err *err)
{
    char dir[SW_PATH_BYTES];
    int fd, failed;

    parent_of(dir, path);
    fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return SW_FAIL(err, SW_E_IO, "%s: cannot open: %s", dir, strerror(errno));
    failed = fsync(fd) != 0 && errno != EINVAL;
    if (failed) (void)SW_FAIL(err, SW_E_IO, "%s: cannot sync: %s", dir, strerror(errno));
    close(fd);
    return failed ? SW_E_IO : SW_OK;
}

sw_code sw_out_open(sw_out_file *out, const char *path, sw_err *err)
{
    int n = snprintf(out->temp_path, sizeof out->temp_path, "%s.tmp-%ld", path, (long)getpid());

    if (n < 0 || (size_t)n >= sizeof out->temp_path)
        return SW_FAIL(err, SW_E_IO, "%s: path too long", path);
    memcpy(out->path, path, strlen(path) + 1);
    out->fd = open(out->temp_path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (out->fd < 0)
        return SW_FAIL(err, SW_E_IO, "%s: cannot create: %s", path, strerror(errno));
    out->is_open = true;
    return SW_OK;
}

sw_code sw_out_reserve(sw_out_file *out, uint64_t size_bytes, sw_err *err)
{
    int failed = size_bytes ? posix_fallocate(out->fd, 0, (off_t)size_bytes) : 0;

    /* file systems without reservation say so; the writes will then find out */
    if (failed == 0 || failed == EINVAL || failed == EOPNOTSUPP) return SW_OK;
    return SW_FAIL(err, SW_E_IO, "%s: cannot reserve %llu bytes: %s", out->path,
                   (unsigned long long)size_bytes, strerror(failed));
}

sw_code sw_out_write_at(sw_out_file *out, uint64_t offset, const void *bytes, size_t n_bytes,
                        sw_err *err)
{
    const unsigned char *from = bytes;

    while (n_bytes) {
        size_t part = n_bytes < WRITE_CHUNK_BYTES ? n_bytes : WRITE_CHUNK_BYTES;
        ssize_t n = pwrite(out->fd, from, part, (off_t)offset);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0)
            return SW_FAIL(err, SW_E_IO, "%s: cannot write: %s", out->path,
                           n < 0 ? strerror(errno) : "no progress");
        from += n;
        offset += (uint64_t)n;
        n_bytes -= (size_t)n;
    }
    return SW_OK;
}

sw_code sw_out_commit(sw_out_file *out, sw_err *err)
{
    int failed;

    if (fsync(out->fd) != 0) {
        (void)SW_FAIL(err, SW_E_IO, "%s: cannot sync: %s", out->path, strerror(errno));
        sw_out_abandon(out);
        return SW_E_IO;
    }
    failed = close(out->fd) != 0;
    out->is_open = false;
    if (failed || rename(out->temp_path, out->path) != 0) {
        (void)SW_FAIL(err, SW_E_IO, "%s: cannot finish: %s", out->path, strerror(errno));
        (void)unlink(out->temp_path);
        return SW_E_IO;
    }
    return sync_parent(out->path, err);
}

void sw_out_abandon(sw_out_file *out)
{
    if (!out->is_open) return;
    close(out->fd);
    (void)unlink(out->temp_path);
    out->is_open = false;
}

sw_code sw_file_put(const char *path, const void *bytes, size_t n_bytes, sw_err *err)
{
    sw_out_file out = {0};
    sw_code rc;

    if ((rc = sw_out_open(&out, path, err)) != SW_OK) return rc;
    if ((rc = sw_out_write_at(&out, 0, bytes, n_bytes, err)) != SW_OK) {
        sw_out_abandon(&out);
        return rc;
    }
    return sw_out_commit(&out, err);
}

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *walk)
{
    (void)info;
    (void)kind;
    (void)walk;
    return remove(path);
}

static int remove_tree(const char *path)
{
    return nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

/* `path` without trailing slashes: the work directory must be its sibling, not its child. */
static void strip_slashes(char path[SW_PATH_BYTES])
{
    size_t n = strlen(path);

    while (n > 1 && path[n - 1] == '/') path[--n] = '\0';
}

sw_code sw_out_dir_open(sw_out_dir *out, const char *path, bool may_replace, sw_err *err)
{
    int n = snprintf(out->path, sizeof out->path, "%s", path);

    if (n <= 0 || (size_t)n >= sizeof out->path)
        return SW_FAIL(err, SW_E_USAGE, "output path is empty or too long");
    strip_slashes(out->path);
    if (!may_replace && sw_path_exists(out->path))
        return SW_FAIL(err, SW_E_USAGE, "%s: exists; give --force to replace it", out->path);
    n = snprintf(out->work_path, sizeof out->work_path, "%s.partial-%ld", out->path,
                 (long)getpid());
    if (n < 0 || (size_t)n >= sizeof out->work_path)
        return SW_FAIL(err, SW_E_IO, "%s: path too long", out->path);
    (void)remove_tree(out->work_path); /* left by a killed process that had our number */
    if (mkdir(out->work_path, 0755) != 0)
        return SW_FAIL(err, SW_E_IO, "%s: cannot create: %s", out->work_path, strerror(errno));
    out->may_replace = may_replace;
    out->is_open = true;
    return SW_OK;
}

/* The old output steps aside first and is removed last, so one of the two is always whole. */
static sw_code replace_old(const sw_out_dir *out, sw_err *err)
{
    char aside[SW_PATH_BYTES];
    int n = snprintf(aside, sizeof aside, "%s.old-%ld", out->path, (long)getpid());

    if (n < 0 || (size_t)n >= sizeof aside)
        return SW_FAIL(err, SW_E_IO, "%s: path too long", out->path);
    if (rename(out->path, aside) != 0)
        return SW_FAIL(err, SW_E_IO, "%s: cannot move aside: %s", out->path, strerror(errno));
    if (rename(out->work_path, out->path) != 0) {
        (void)SW_FAIL(err, SW_E_IO, "%s: cannot publish: %s", out->path, strerror(errno));
        (void)rename(aside, out->path);
        return SW_E_IO;
    }
    (void)remove_tree(aside);
    return SW_OK;
}

sw_code sw_out_dir_commit(sw_out_dir *out, sw_err *err)
{
    sw_code rc = SW_OK;

    if (out->may_replace && sw_path_exists(out->path))
        rc = replace_old(out, err);
    else if (rename(out->work_path, out->path) != 0)
        rc = SW_FAIL(err, SW_E_IO, "%s: cannot publish: %s", out->path, strerror(errno));
    if (rc != SW_OK) {
        sw_out_dir_abandon(out);
        return rc;
    }
    out->is_open = false;
    return sync_parent(out->path, err);
}

void sw_out_dir_abandon(sw_out_dir *out)
{
    if (!out->is_open) return;
    (void)remove_tree(out->work_path);
    out->is_open = false;
}

sw_code sw_disk_free_bytes(uint64_t *out, const char *path, sw_err *err)
{
    char at[SW_PATH_BYTES];
    struct statvfs info;
    int n = snprintf(at, sizeof at, "%s", path);

    if (n < 0 || (size_t)n >= sizeof at) return SW_FAIL(err, SW_E_IO, "%s: path too long", path);
    while (statvfs(at, &info) != 0) {
        char up[SW_PATH_BYTES];
        parent_of(up, at);
        if (errno != ENOENT || !strcmp(up, at))
            return SW_FAIL(err, SW_E_IO, "%s: no file system: %s", path, strerror(errno));
        memcpy(at, up, sizeof at);
        strip_slashes(at);
    }
    *out = (uint64_t)info.f_bavail * info.f_frsize;
    return SW_OK;
}
