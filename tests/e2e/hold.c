/* hold.c - preloaded, it stops a process at a moment that a test has named, so that a run is met
 * there however fast or busy the machine is:
 *
 *   HOLD='CALL NAME N'   once the N-th CALL on a path that ends in NAME has been made, SIGSTOP
 *
 * CALL: open, mkdir, rename (by any function, to NAME), pwrite, fflush: those by which Swage makes
 * visible progress. Forked children go on counting for themselves. See hold() in lib.bash.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static atomic_long n_made;

/* The function behind the one of this library. */
#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static void made(const char *call, const char *path)
{
    const char *hold = getenv("HOLD");
    char want[16], name[256];
    size_t n_path = strlen(path), n_name;
    long n;

    if (!hold || sscanf(hold, "%15s %255s %ld", want, name, &n) != 3 || strcmp(want, call) != 0)
        return;
    n_name = strlen(name);
    if (n_path < n_name || strcmp(path + n_path - n_name, name) != 0) return;
    if (atomic_fetch_add(&n_made, 1) + 1 == n) (void)raise(SIGSTOP);
}

static void made_by(const char *call, int fd)
{
    char link[64], path[4096];
    ssize_t n;

    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if ((n = readlink(link, path, sizeof path - 1)) < 0) return;
    path[n] = '\0';
    made(call, path);
}

int open(const char *path, int flags, ...)
{
    mode_t mode = 0;
    va_list list;
    int fd;

    va_start(list, flags);
    if (flags & O_CREAT) mode = va_arg(list, mode_t);
    va_end(list);
    fd = NEXT(open)(path, flags, mode);
    if (fd >= 0) made("open", path);
    return fd;
}

int mkdir(const char *path, mode_t mode)
{
    int rc = NEXT(mkdir)(path, mode);

    if (rc == 0) made("mkdir", path);
    return rc;
}

int rename(const char *from, const char *to)
{
    int rc = NEXT(rename)(from, to);

    if (rc == 0) made("rename", to);
    return rc;
}

int renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned flags)
{
    int rc = NEXT(renameat2)(from_fd, from, to_fd, to, flags);

    if (rc == 0) made("rename", to);
    return rc;
}

ssize_t pwrite(int fd, const void *bytes, size_t n, off_t at)
{
    ssize_t rc = NEXT(pwrite)(fd, bytes, n, at);

    if (rc > 0) made_by("pwrite", fd);
    return rc;
}

int fflush(FILE *stream)
{
    int rc = NEXT(fflush)(stream);

    if (rc == 0 && stream) made_by("fflush", fileno(stream));
    return rc;
}
