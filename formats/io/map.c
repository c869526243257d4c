/* map.c - the reading half of file.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/io/file.h"
#include "formats/io/watch.h"

#define LFS_POINTER_MAX_BYTES 1024

static const unsigned char empty_file[1];

static sw_code map_fd(sw_map *out, int fd, const char *path, bool is_input, sw_err *err)
{
    struct stat info;
    void *data;
    sw_code rc;

    if (fstat(fd, &info) != 0)
        return SW_FAIL(err, SW_E_IO, "%s: cannot stat: %s", path, strerror(errno));
    if (S_ISDIR(info.st_mode))
        return SW_FAIL(err, SW_E_IO, "%s: not a regular file, but a directory", path);
    if (!S_ISREG(info.st_mode))
        return SW_FAIL(err, SW_E_IO, "%s: not a regular file; what a pipe or a device gives can be "
                       "read only once: write it into a file first", path);
    if (is_input && (rc = sw_watch_input(path, &info, err)) != SW_OK) return rc;
    if (info.st_size == 0) {
        out->data = empty_file;
        out->size_bytes = 0;
        out->is_mapped = false;
        return SW_OK;
    }
    data = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED)
        return SW_FAIL(err, errno == ENOMEM ? SW_E_NOMEM : SW_E_IO, "%s: cannot map %lld bytes: %s",
                       path, (long long)info.st_size, strerror(errno));
    out->data = data;
    out->size_bytes = (size_t)info.st_size;
    out->is_mapped = true;
    out->slot = sw_watch_map(data, out->size_bytes, path);
    return SW_OK;
}

static sw_code open_map(sw_map *out, const char *path, bool is_input, sw_err *err)
{
    sw_code rc;
    int fd;

    /* a pipe would block until someone writes; below, everything but plain files is refused */
    do fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    while (fd < 0 && errno == EINTR);

    if (fd < 0) return SW_FAIL(err, SW_E_IO, "%s: cannot open: %s", path, strerror(errno));
    rc = map_fd(out, fd, path, is_input, err);
    close(fd);
    return rc;
}

sw_code sw_map_open_any(sw_map *out, const char *path, sw_err *err)
{
    return open_map(out, path, true, err);
}

sw_code sw_map_open_own(sw_map *out, const char *path, sw_err *err)
{
    return open_map(out, path, false, err);
}

/* What Git leaves in place of a large file until that is fetched: a few lines of text. */
static bool is_lfs_pointer(const sw_map *map)
{
    static const char begin[] = "version https://git-lfs.github.com/spec/";

    return map->size_bytes < LFS_POINTER_MAX_BYTES && map->size_bytes >= sizeof begin &&
           !memcmp(map->data, begin, sizeof begin - 1);
}

sw_code sw_map_open(sw_map *out, const char *path, sw_err *err)
{
    sw_code rc = sw_map_open_any(out, path, err);

    if (rc != SW_OK || !is_lfs_pointer(out)) return rc;
    sw_map_close(out);
    return SW_FAIL(err, SW_E_FORMAT, "%s: a pointer of Git LFS, not the file itself; run \"git lfs "
                   "pull\" in its repository", path);
}

void sw_map_close(sw_map *map)
{
    sw_watch_unmap(map->slot);
    if (map->is_mapped) munmap((void *)(uintptr_t)map->data, map->size_bytes);
    memset(map, 0, sizeof *map);
}

void sw_map_forget(const void *data, size_t size_bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t begin = ((uintptr_t)data + page - 1) & ~(page - 1);
    uintptr_t end = ((uintptr_t)data + size_bytes) & ~(page - 1);

    if (data && end > begin) (void)madvise((void *)begin, end - begin, MADV_DONTNEED);
}

void sw_map_want(const void *data, size_t size_bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t begin = (uintptr_t)data & ~(page - 1);

    if (data) (void)madvise((void *)begin, (uintptr_t)data + size_bytes - begin, MADV_WILLNEED);
}

bool sw_path_exists(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0;
}

bool sw_path_is_dir(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

sw_code sw_path_join(char out[SW_PATH_BYTES], const char *dir, const char *name, sw_err *err)
{
    size_t dir_bytes = strlen(dir);
    const char *slash = dir_bytes && dir[dir_bytes - 1] == '/' ? "" : "/";
    int n = snprintf(out, SW_PATH_BYTES, "%s%s%s", dir, slash, name);

    if (n < 0 || n >= SW_PATH_BYTES)
        return SW_FAIL(err, SW_E_IO, "path of %d bytes is longer than %d", n, SW_PATH_BYTES - 1);
    return SW_OK;
}

bool sw_path_is_plain_name(const char *name)
{
    if (!name[0] || !strcmp(name, ".") || !strcmp(name, "..")) return false;
    for (const char *p = name; *p; p++)
        if (*p == '/' || *p == '\\' || (unsigned char)*p < 0x20) return false;
    return true;
}
