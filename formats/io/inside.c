/* inside.c - a file of a directory must be in it: the part of file.h that deals with links. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/io/file.h"

/* Caches of the model hub keep each file once for all revisions, as a link to
 * "../../blobs/<digest>". */
#define HUB_BLOBS "../../blobs/"

/* What the user allows, set once before anything is opened. It is no argument, because every
 * function that opens a file of a model would have to pass it on. */
static bool follows_links;

void sw_path_follow_links(bool is_on) { follows_links = is_on; }

/* true for a link of that form whose target is a plain file by its own name. */
static bool is_hub_link(const char *path, const char *dir)
{
    char target[SW_PATH_BYTES], blob[SW_PATH_BYTES];
    ssize_t n = readlink(path, target, sizeof target - 1);
    struct stat info;

    if (n <= 0) return false;
    target[n] = '\0';
    return !strncmp(target, HUB_BLOBS, strlen(HUB_BLOBS)) &&
           sw_path_is_plain_name(target + strlen(HUB_BLOBS)) &&
           sw_path_join(blob, dir, target, NULL) == SW_OK && lstat(blob, &info) == 0 &&
           S_ISREG(info.st_mode);
}

/* *out stays empty when the link leads to nothing; opening the file then reports that. */
static sw_code resolve(char out[PATH_MAX], const char *path, sw_err *err)
{
    out[0] = '\0';
    if (realpath(path, out)) return SW_OK;
    out[0] = '\0';
    if (errno == ENOENT || errno == ELOOP) return SW_OK;
    return SW_FAIL(err, SW_E_IO, "%s: cannot be followed: %s", path, strerror(errno));
}

sw_code sw_path_join_inside(char out[SW_PATH_BYTES], const char *dir, const char *name, sw_err *err)
{
    char home[PATH_MAX], real[PATH_MAX];
    struct stat info;
    size_t n;
    sw_code rc = sw_path_join(out, dir, name, err);

    if (rc != SW_OK || follows_links || lstat(out, &info) != 0 || !S_ISLNK(info.st_mode) ||
        is_hub_link(out, dir))
        return rc;
    if ((rc = resolve(home, dir, err)) != SW_OK || (rc = resolve(real, out, err)) != SW_OK)
        return rc;
    n = strlen(home);
    if (!real[0] || !strcmp(home, "/") || (!strncmp(real, home, n) && real[n] == '/'))
        return SW_OK;
    return SW_FAIL(err, SW_E_IO, "%s: a link to %s, which is outside of the model's directory; "
                   "give --follow-links if you trust its links, or put the file there itself", out,
                   real);
}
