/* outfile.c - one output file of file.h: temporary name, sync, rename. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "formats/io/leftovers.h"
#include "formats/io/out_internal.h"
#include "formats/io/watch.h"

#define WRITE_BEHIND_BYTES ((size_t)1 << 20)
#define WRITE_CHUNK_BYTES ((size_t)1 << 30) /* below the system's limit for one call */
#define DIRECT_BYTES ((size_t)64 << 10) /* fewer bytes go through the page cache */

void sw_path_parent(char out[SW_PATH_BYTES], const char *path)
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

void sw_path_strip(char path[SW_PATH_BYTES])
{
    size_t n = strlen(path);

    while (n > 1 && path[n - 1] == '/') path[--n] = '\0';
}

const char *sw_path_base(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

int sw_sync_fd(int fd)
{
    while (fsync(fd) != 0) {
        if (errno == EINVAL || errno == ENOTSUP) return 0; /* nothing there to sync */
        if (errno != EINTR) return errno;
    }
    return 0;
}

int sw_sync_path(const char *path)
{
    int failed, fd;

    do fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    while (fd < 0 && errno == EINTR);
    if (fd < 0) return errno;
    failed = sw_sync_fd(fd);
    close(fd);
    return failed;
}

sw_code sw_sync_parent(const char *path, sw_err *err)
{
    char dir[SW_PATH_BYTES];
    int failed, fd;

    sw_path_parent(dir, path);
    do fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    while (fd < 0 && errno == EINTR);
    if (fd < 0) return SW_FAIL(err, SW_E_IO, "%s: cannot open: %s", dir, strerror(errno));
    failed = sw_sync_fd(fd);
    close(fd);
    if (failed) return SW_FAIL(err, SW_E_IO, "%s: cannot sync: %s", dir, strerror(failed));
    return SW_OK;
}

/* Where the file system supports neither call, an empty file or directory of ours takes the name
 * first, and the rename replaces that. */
static int rename_over_claim(const char *from, const char *to, bool is_dir)
{
    int failed, fd;

    if (is_dir) {
        if (mkdir(to, 0755) != 0) return errno;
    } else {
        do fd = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
        while (fd < 0 && errno == EINTR);
        if (fd < 0) return errno;
        close(fd);
    }
    if (rename(from, to) == 0) return 0;
    failed = errno;
    (void)(is_dir ? rmdir(to) : unlink(to));
    return failed;
}

int sw_rename_new(const char *from, const char *to)
{
    bool is_dir = sw_path_is_dir(from);

    if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0) return 0;
    if (errno != EINVAL && errno != ENOSYS && errno != ENOTSUP) return errno;
    if (is_dir) return rename_over_claim(from, to, true);
    if (link(from, to) == 0) return unlink(from) == 0 ? 0 : errno;
    if (errno != EPERM && errno != ENOSYS && errno != ENOTSUP && errno != EMLINK) return errno;
    return rename_over_claim(from, to, false);
}

/* Removes the work directory with what is in it. */
static void close_work(sw_out_file *out)
{
    if (!out->work_path[0]) return;
    sw_work_remove(out->work_path);
    sw_leftovers_leave(out->work_left);
    close(out->lock_fd);
    out->work_path[0] = '\0';
}

static sw_code create_temp(sw_out_file *out, sw_err *err)
{
    do out->fd = open(out->temp_path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
    while (out->fd < 0 && errno == EINTR);
    if (out->fd < 0)
        return SW_FAIL(err, SW_E_IO, "%s: cannot create: %s", out->path, strerror(errno));
    out->is_open = true;
    out->left = sw_leftovers_enter(SW_LEFT_FILE, out->temp_path);
    return SW_OK;
}

/* What a path becomes with `end` behind it. */
static sw_code set_paths(sw_out_file *out, const char *path, const char *end, sw_err *err)
{
    int n = snprintf(out->temp_path, sizeof out->temp_path, "%s%s", path, end);

    if (n < 0 || (size_t)n >= sizeof out->temp_path)
        return SW_FAIL(err, SW_E_IO, "%s: path too long", path);
    memcpy(out->path, path, strlen(path) + 1);
    return SW_OK;
}

sw_code sw_out_open(sw_out_file *out, const char *path, sw_err *err)
{
    char end[32];
    sw_code rc;

    (void)snprintf(end, sizeof end, SW_OUT_TEMP "%ld", (long)getpid());
    out->may_replace = true;
    if ((rc = set_paths(out, path, end, err)) != SW_OK || (rc = sw_work_note(path, err)) != SW_OK)
        return rc;
    /* a killed process with the same number may have left a file; a link must not be followed */
    (void)unlink(out->temp_path);
    return create_temp(out, err);
}

/* What stands at the path of an output file: nothing, or a file that may be replaced. */
static sw_code check_target(const char *path, bool may_replace, sw_err *err)
{
    struct stat info;

    if (lstat(path, &info) != 0) return SW_OK; /* or nothing can be made there, as is seen then */
    if (!may_replace)
        return SW_FAIL(err, SW_E_USAGE, "%s: exists; give --force to replace it", path);
    if (stat(path, &info) != 0) return SW_OK; /* a link to nothing */
    if (S_ISDIR(info.st_mode))
        return SW_FAIL(err, SW_E_USAGE, "%s: is a directory; name a file", path);
    if (!S_ISREG(info.st_mode))
        return SW_FAIL(err, SW_E_USAGE, "%s: is not a regular file; name another", path);
    if (sw_watch_reads(&info))
        return SW_FAIL(err, SW_E_USAGE, "%s: is an input of this run and cannot be its output; "
                       "name another file", path);
    return SW_OK;
}

sw_code sw_out_open_new(sw_out_file *out, const char *path, bool may_replace, sw_err *err)
{
    char work_path[SW_PATH_BYTES];
    sw_code rc;

    if ((rc = sw_work_clear_way(path, may_replace, err)) != SW_OK ||
        (rc = check_target(path, may_replace, err)) != SW_OK ||
        (rc = set_paths(out, path, "", err)) != SW_OK ||
        (rc = sw_work_make(work_path, &out->lock_fd, path, err)) != SW_OK)
        return rc;
    out->may_replace = may_replace;
    memcpy(out->work_path, work_path, sizeof work_path);
    out->work_left = sw_leftovers_enter(SW_LEFT_WORK, work_path);
    if ((rc = sw_path_join(out->temp_path, work_path, SW_WORK_FILE, err)) == SW_OK)
        rc = create_temp(out, err);
    if (rc != SW_OK) close_work(out);
    return rc;
}

sw_code sw_out_open_kept(sw_out_file *out, const char *path, sw_err *err)
{
    sw_code rc;

    out->may_replace = true;
    if ((rc = set_paths(out, path, SW_OUT_PART, err)) != SW_OK ||
        (rc = sw_work_note(path, err)) != SW_OK)
        return rc;
    if (!sw_path_exists(out->temp_path) && sw_path_exists(path) &&
        rename(path, out->temp_path) != 0)
        return SW_FAIL(err, SW_E_IO, "%s: cannot rename: %s", path, strerror(errno));
    do out->fd = open(out->temp_path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
    while (out->fd < 0 && errno == EINTR);
    if (out->fd < 0)
        return SW_FAIL(err, SW_E_IO, "%s: cannot create: %s", out->temp_path, strerror(errno));
    out->is_open = out->is_kept = true;
    return SW_OK;
}

sw_code sw_out_reserve(sw_out_file *out, uint64_t size_bytes, sw_err *err)
{
    int failed;

    if (size_bytes == 0) return SW_OK;
    if (size_bytes > INT64_MAX)
        return SW_FAIL(err, SW_E_IO, "%s: %llu bytes exceed any file", out->path,
                       (unsigned long long)size_bytes);
    do failed = posix_fallocate(out->fd, 0, (off_t)size_bytes);
    while (failed == EINTR);
    /* where the file system cannot reserve, a full disk shows when data is written */
    if (failed == 0 || failed == EINVAL || failed == EOPNOTSUPP) return SW_OK;
    return SW_FAIL(err, SW_E_IO, "%s: cannot reserve %llu bytes: %s", out->path,
                   (unsigned long long)size_bytes, strerror(failed));
}

void sw_out_go_direct(sw_out_file *out)
{
    do out->direct_fd = open(out->temp_path, O_WRONLY | O_DIRECT | O_NOFOLLOW | O_CLOEXEC);
    while (out->direct_fd < 0 && errno == EINTR);
    out->is_direct = out->direct_fd >= 0;
}

/* Only whole pages bypass the cache. A page written both ways would be overwritten by the cached
 * copy. */
static ssize_t write_past(const sw_out_file *out, const unsigned char *from, size_t n_bytes,
                          uint64_t offset)
{
    const size_t page = SW_OUT_PAGE_BYTES, inside = (size_t)(offset % page);
    const size_t head = inside ? page - inside : 0;
    ssize_t n;

    if ((uintptr_t)from % page != inside || n_bytes < head + DIRECT_BYTES)
        return pwrite(out->fd, from, n_bytes, (off_t)offset);
    if (head) return pwrite(out->fd, from, head, (off_t)offset);
    n_bytes -= n_bytes % page;
    n = pwrite(out->direct_fd, from, n_bytes, (off_t)offset);
    /* a file system may open such a file and refuse this all the same */
    return n < 0 && errno == EINVAL ? pwrite(out->fd, from, n_bytes, (off_t)offset) : n;
}

/* The system reads the mapped bytes itself, and of an input that was cut short it reports only that
 * it could not. */
static sw_code lost_source(const sw_out_file *out, const void *from, sw_err *err)
{
    uint64_t offset = 0, size_bytes = 0;
    const char *path = NULL;

    if (!sw_watch_find(&path, &offset, &size_bytes, from))
        return SW_FAIL(err, SW_E_IO, "%s: cannot write: %s", out->path, strerror(EFAULT));
    return SW_FAIL(err, SW_E_IO, "%s: cannot be read at offset %llu of %llu: it was cut short "
                   "while this run read it, or its disk failed", path, (unsigned long long)offset,
                   (unsigned long long)size_bytes);
}

static sw_code write_all(sw_out_file *out, uint64_t offset, const void *bytes, size_t n_bytes,
                         bool is_past, sw_err *err)
{
    const unsigned char *from = bytes;

    while (n_bytes) {
        size_t part = n_bytes < WRITE_CHUNK_BYTES ? n_bytes : WRITE_CHUNK_BYTES;
        ssize_t n = is_past ? write_past(out, from, part, offset)
                            : pwrite(out->fd, from, part, (off_t)offset);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EFAULT) return lost_source(out, from, err);
        if (n <= 0)
            return SW_FAIL(err, SW_E_IO, "%s: cannot write: %s", out->path,
                           n < 0 ? strerror(errno) : "no progress");
        from += n;
        offset += (uint64_t)n;
        n_bytes -= (size_t)n;
    }
    return SW_OK;
}

sw_code sw_out_write_at(sw_out_file *out, uint64_t offset, const void *bytes, size_t n_bytes,
                        sw_err *err)
{
    sw_code rc = write_all(out, offset, bytes, n_bytes, false, err);

    if (rc == SW_OK && n_bytes >= WRITE_BEHIND_BYTES) sw_out_start_writing(out, offset, n_bytes);
    return rc;
}

sw_code sw_out_write_past(sw_out_file *out, uint64_t offset, const void *bytes, size_t n_bytes,
                          sw_err *err)
{
    if (!out->is_direct) return sw_out_write_at(out, offset, bytes, n_bytes, err);
    return write_all(out, offset, bytes, n_bytes, true, err);
}

void sw_out_start_writing(const sw_out_file *out, uint64_t offset, uint64_t n_bytes)
{
    (void)sync_file_range(out->fd, (off_t)offset, (off_t)n_bytes, SYNC_FILE_RANGE_WRITE);
}

sw_code sw_out_read_at(const sw_out_file *out, uint64_t offset, void *bytes, size_t n_bytes,
                       sw_err *err)
{
    unsigned char *to = bytes;

    while (n_bytes) {
        size_t part = n_bytes < WRITE_CHUNK_BYTES ? n_bytes : WRITE_CHUNK_BYTES;
        ssize_t n = pread(out->fd, to, part, (off_t)offset);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0)
            return SW_FAIL(err, SW_E_IO, "%s: cannot read: %s", out->temp_path,
                           n < 0 ? strerror(errno) : "it ends too early");
        to += n;
        offset += (uint64_t)n;
        n_bytes -= (size_t)n;
    }
    return SW_OK;
}

sw_code sw_out_sync(const sw_out_file *out, sw_err *err)
{
    int failed = sw_sync_fd(out->fd);

    if (!failed) return SW_OK;
    return SW_FAIL(err, SW_E_IO, "%s: cannot sync: %s", out->path, strerror(failed));
}

static void close_direct(sw_out_file *out)
{
    if (out->is_direct) close(out->direct_fd);
    out->is_direct = false;
}

static void drop_temp(sw_out_file *out)
{
    if (!out->is_kept) (void)unlink(out->temp_path);
    sw_leftovers_leave(out->left);
    out->left = 0;
    close_work(out);
}

/* Sync and close; the temporary name then holds the whole file. Nothing of one that went past the
 * cache stays in it: who reads it back asks the disk, and not the memory that it came from. */
static sw_code finish(sw_out_file *out, sw_err *err)
{
    sw_code rc = sw_out_sync(out, err);

    if (rc != SW_OK) return rc;
    if (out->is_direct && !out->is_read_back)
        (void)posix_fadvise(out->fd, 0, 0, POSIX_FADV_DONTNEED);
    close_direct(out); /* nothing waits there that could still fail */
    out->is_open = false;
    if (close(out->fd) == 0 || errno == EINTR) return SW_OK;
    (void)SW_FAIL(err, SW_E_IO, "%s: cannot close: %s", out->path, strerror(errno));
    drop_temp(out);
    return SW_E_IO;
}

/* 0 or an errno. */
static int move_in(const sw_out_file *out)
{
    if (!out->may_replace) return sw_rename_new(out->temp_path, out->path);
    return rename(out->temp_path, out->path) == 0 ? 0 : errno;
}

/* An output that the user has named, and not a file within one. */
static sw_code check_publishing(const sw_out_file *out, sw_err *err)
{
    sw_code rc;

    if (!out->work_path[0]) return SW_OK;
    rc = sw_watch_check(err);
    return rc == SW_OK ? check_target(out->path, out->may_replace, err) : rc;
}

sw_code sw_out_commit(sw_out_file *out, sw_err *err)
{
    bool is_new;
    int failed;
    sw_code rc;

    if ((rc = finish(out, err)) != SW_OK) {
        sw_out_abandon(out);
        return rc;
    }
    if ((rc = check_publishing(out, err)) != SW_OK) goto done;
    is_new = !sw_path_exists(out->path);
    failed = move_in(out);
    if (failed == EEXIST)
        rc = SW_FAIL(err, SW_E_USAGE, "%s: exists; it came while this run worked and is not "
                     "replaced without --force", out->path);
    else if (failed)
        rc = SW_FAIL(err, SW_E_IO, "%s: cannot rename into place: %s", out->path, strerror(failed));
    if (rc != SW_OK) goto done;
    rc = sw_sync_parent(out->path, err);
    if (rc != SW_OK && is_new && !out->is_kept) (void)unlink(out->path);
    sw_leftovers_leave(out->left);
    out->left = 0;
    close_work(out);
    return rc;
done:
    drop_temp(out);
    return rc;
}

void sw_out_abandon(sw_out_file *out)
{
    if (!out->is_open) return;
    close_direct(out);
    close(out->fd);
    drop_temp(out);
    out->is_open = false;
}

static sw_code put_bytes(sw_out_file *out, const void *bytes, size_t n_bytes, sw_err *err)
{
    sw_code rc = sw_out_write_at(out, 0, bytes, n_bytes, err);

    if (rc == SW_OK) return sw_out_commit(out, err);
    sw_out_abandon(out);
    return rc;
}

sw_code sw_file_put(const char *path, const void *bytes, size_t n_bytes, sw_err *err)
{
    sw_out_file out = {0};
    sw_code rc;

    if ((rc = sw_out_open(&out, path, err)) != SW_OK) return rc;
    return put_bytes(&out, bytes, n_bytes, err);
}

sw_code sw_file_put_new(const char *path, const void *bytes, size_t n_bytes, bool may_replace,
                        sw_err *err)
{
    sw_out_file out = {0};
    sw_code rc;

    if ((rc = sw_out_open_new(&out, path, may_replace, err)) != SW_OK) return rc;
    return put_bytes(&out, bytes, n_bytes, err);
}

sw_code sw_disk_free_bytes(uint64_t *out, const char *path, sw_err *err)
{
    char at[SW_PATH_BYTES], up[SW_PATH_BYTES];
    struct statvfs info;
    int n = snprintf(at, sizeof at, "%s", path);

    if (n < 0 || (size_t)n >= sizeof at) return SW_FAIL(err, SW_E_IO, "%s: path too long", path);
    while (statvfs(at, &info) != 0) {
        int failed = errno;
        if (failed == EINTR) continue;
        sw_path_parent(up, at);
        if (failed != ENOENT || !strcmp(up, at))
            return SW_FAIL(err, SW_E_IO, "%s: no file system: %s", path, strerror(failed));
        memcpy(at, up, strlen(up) + 1);
        sw_path_strip(at);
    }
    *out = (uint64_t)info.f_bavail * info.f_frsize;
    return SW_OK;
}
