/* partial_dir.c - an output directory whose work survives the process, see file.h.
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

#include "formats/io/out_internal.h"

static sw_code take_up(sw_out_dir *out, bool is_restart, sw_err *err)
{
    char journal[SW_PATH_BYTES];
    sw_code rc;

    if ((rc = sw_work_claim(out->hold_path, err)) != SW_OK ||
        (rc = sw_path_join(out->work_path, out->hold_path, SW_WORK_TREE, err)) != SW_OK ||
        (rc = sw_path_join(journal, out->hold_path, SW_HOLD_JOURNAL, err)) != SW_OK)
        return rc;
    /* a journal alone is what stays when a run is killed after its last step */
    out->is_resumed = !is_restart && sw_path_exists(journal) && sw_path_is_dir(out->work_path);
    if (!out->is_resumed) sw_work_empty(out->hold_path);
    if (mkdir(out->work_path, 0755) == 0 || errno == EEXIST) return SW_OK;
    return SW_FAIL(err, SW_E_IO, "%s: cannot create: %s", out->work_path, strerror(errno));
}

static sw_code lock_hold(sw_out_dir *out, bool *is_made, sw_err *err)
{
    *is_made = mkdir(out->hold_path, 0755) == 0;
    if (!*is_made && errno != EEXIST)
        return sw_work_cannot_make(out->hold_path, errno, err);
    return sw_work_lock(&out->lock_fd, out->hold_path, err);
}

sw_code sw_out_dir_open_kept(sw_out_dir *out, const char *path, bool may_replace, bool is_restart,
                             sw_err *err)
{
    bool is_made = false;
    sw_code rc;
    int n;

    if ((rc = sw_out_dir_settle(out, path, may_replace, err)) != SW_OK) return rc;
    n = snprintf(out->hold_path, sizeof out->hold_path, "%s" SW_WORK_SUFFIX, out->path);
    if (n < 0 || (size_t)n >= sizeof out->hold_path)
        return SW_FAIL(err, SW_E_IO, "%s: path too long", out->path);
    memcpy(out->home_path, out->hold_path, sizeof out->home_path);
    if ((rc = lock_hold(out, &is_made, err)) != SW_OK) return rc;
    if (sw_work_bring_back(out->hold_path, out->path))
        rc = sw_out_dir_check_path(out, may_replace, err);
    if (rc == SW_OK) rc = take_up(out, is_restart, err);
    if (rc == SW_OK) {
        out->may_replace = may_replace;
        out->is_open = true;
        return SW_OK;
    }
    if (is_made) {
        sw_work_remove(out->hold_path);
        (void)rmdir(out->hold_path); /* where it never got its mark */
    }
    close(out->lock_fd);
    return rc;
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
