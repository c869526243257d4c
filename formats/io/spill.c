/* spill.c - see spill.h. */
#include "formats/io/spill.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "formats/io/file.h"
#include "formats/io/watch.h"

/* File systems without nameless files get a name that is taken away at once. */
static int open_nameless(const char *dir)
{
    char path[SW_PATH_BYTES];
    int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

    if (fd >= 0 || sw_path_join(path, dir, "spill-XXXXXX", NULL) != SW_OK) return fd;
    if ((fd = mkostemp(path, O_CLOEXEC)) >= 0) (void)unlink(path);
    return fd;
}

sw_code sw_spill_open(sw_spill *out, const char *dir, size_t size_bytes, sw_err *err)
{
    size_t n = size_bytes ? size_bytes : 1;
    int failed, fd = open_nameless(dir);
    void *data;

    if (fd < 0)
        return SW_FAIL(err, SW_E_IO, "%s: cannot make a file there: %s", dir, strerror(errno));
    do failed = posix_fallocate(fd, 0, (off_t)n);
    while (failed == EINTR);
    if (failed) {
        close(fd);
        return SW_FAIL(err, SW_E_IO, "%s: cannot reserve %zu bytes of working memory: %s", dir, n,
                       strerror(failed));
    }
    data = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    failed = errno;
    close(fd); /* the mapping holds the file */
    if (data == MAP_FAILED)
        return SW_FAIL(err, SW_E_IO, "%s: cannot map %zu bytes: %s", dir, n, strerror(failed));
    out->data = data;
    out->size_bytes = n;
    out->slot = sw_watch_map(data, n, dir); /* a file without a name */
    return SW_OK;
}

void sw_spill_close(sw_spill *spill)
{
    sw_watch_unmap(spill->slot);
    if (spill->data) (void)munmap(spill->data, spill->size_bytes);
    memset(spill, 0, sizeof *spill);
}

void sw_spill_release(const sw_spill *spill, const void *data, size_t size_bytes)
{
    if (spill->data) sw_map_forget(data, size_bytes); /* shared pages keep what was written */
}

const char *sw_spill_temp_dir(void)
{
    const char *dir = getenv("TMPDIR");

    return dir && dir[0] ? dir : "/var/tmp";
}
