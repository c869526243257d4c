/* watch.c - see watch.h. */
#include "formats/io/watch.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "formats/base/hash.h"
#include "formats/base/mem.h"
#include "formats/io/file.h"
#include "formats/io/file_content.h"

#define MAPS_MAX 1024

/* A signal handler can reach nothing but static objects, and takes no lock: a slot counts from the
 * moment its address is stored, which is the last step. */
typedef struct map_slot {
    atomic_bool is_taken;
    atomic_uintptr_t begin; /* 0: not in use */
    size_t size_bytes;
    char path[SW_PATH_BYTES];
} map_slot;

static map_slot maps[MAPS_MAX];

int sw_watch_map(const void *data, size_t size_bytes, const char *path)
{
    for (int i = 0; i < MAPS_MAX; i++) {
        map_slot *slot = &maps[i];
        if (atomic_load(&slot->is_taken) || atomic_exchange(&slot->is_taken, true)) continue;
        slot->size_bytes = size_bytes;
        (void)snprintf(slot->path, sizeof slot->path, "%s", path);
        atomic_store(&slot->begin, (uintptr_t)data);
        return i + 1;
    }
    return 0;
}

void sw_watch_unmap(int slot)
{
    if (!slot) return;
    atomic_store(&maps[slot - 1].begin, 0);
    atomic_store(&maps[slot - 1].is_taken, false);
}

bool sw_watch_find(const char **path, uint64_t *offset, uint64_t *size_bytes, const void *address)
{
    for (int i = 0; i < MAPS_MAX; i++) {
        uintptr_t begin = atomic_load(&maps[i].begin);
        if (!begin || (uintptr_t)address < begin ||
            (uintptr_t)address - begin >= maps[i].size_bytes)
            continue;
        *path = maps[i].path;
        *offset = (uintptr_t)address - begin;
        *size_bytes = maps[i].size_bytes;
        return true;
    }
    return false;
}

/* --- inputs --- */

typedef struct input {
    struct input *next;
    dev_t dev;
    ino_t ino;
    off_t size_bytes;
    struct timespec changed, status_changed;
    char sha256[SW_SHA256_HEX_BYTES]; /* "": nobody has asked */
    char path[];
} input;

static struct {
    pthread_mutex_t lock;
    bool is_on;
    input *first;
} watch = {.lock = PTHREAD_MUTEX_INITIALIZER};

void sw_watch_begin(void)
{
    sw_watch_end();
    watch.is_on = true;
}

void sw_watch_end(void)
{
    watch.is_on = false;
    while (watch.first) {
        input *one = watch.first;
        watch.first = one->next;
        sw_mem_put(one);
    }
}

static bool lies_in(const input *one, const char *path)
{
    const char *rest = one->path + strlen(path);

    if (strncmp(one->path, path, strlen(path)) != 0) return false;
    return !*rest || *rest == '/' || !strncmp(rest, ".partial", strlen(".partial"));
}

void sw_watch_forget(const char *path)
{
    (void)pthread_mutex_lock(&watch.lock);
    for (input **at = &watch.first; *at;) {
        input *one = *at;
        if (lies_in(one, path)) {
            *at = one->next;
            sw_mem_put(one);
        } else {
            at = &one->next;
        }
    }
    (void)pthread_mutex_unlock(&watch.lock);
}

static bool same_time(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

static bool is_same_file(const input *one, const struct stat *info)
{
    return one->dev == info->st_dev && one->ino == info->st_ino;
}

static bool looks_the_same(const input *one, const struct stat *info)
{
    return one->size_bytes == info->st_size && same_time(&one->changed, &info->st_mtim);
}

static bool is_this(const input *one, const char *path, const struct stat *info)
{
    return is_same_file(one, info) && looks_the_same(one, info) &&
           same_time(&one->status_changed, &info->st_ctim) && !strcmp(one->path, path);
}

static bool is_known(const char *path, const struct stat *info)
{
    for (const input *one = watch.first; one; one = one->next)
        if (is_this(one, path, info)) return true;
    return false;
}

static sw_code add_input(const char *path, const struct stat *info, sw_err *err)
{
    size_t n = strlen(path) + 1;
    input *one = NULL;
    sw_code rc = sw_mem_get((void **)&one, 1, sizeof *one + n, "list of inputs", err);

    if (rc != SW_OK) return rc;
    one->dev = info->st_dev;
    one->ino = info->st_ino;
    one->size_bytes = info->st_size;
    one->changed = info->st_mtim;
    one->status_changed = info->st_ctim;
    memcpy(one->path, path, n);
    one->next = watch.first;
    watch.first = one;
    return SW_OK;
}

sw_code sw_watch_input(const char *path, const struct stat *info, sw_err *err)
{
    sw_code rc = SW_OK;

    if (!watch.is_on) return SW_OK;
    (void)pthread_mutex_lock(&watch.lock);
    if (!is_known(path, info)) rc = add_input(path, info, err);
    (void)pthread_mutex_unlock(&watch.lock);
    return rc;
}

/* Of the file as it is now: one that was opened before a change does not have this digest. */
void sw_watch_digest(const char *path, const char *sha256)
{
    struct stat info;

    if (!watch.is_on || stat(path, &info) != 0) return;
    (void)pthread_mutex_lock(&watch.lock);
    for (input *one = watch.first; one; one = one->next)
        if (!one->sha256[0] && is_this(one, path, &info))
            memcpy(one->sha256, sha256, sizeof one->sha256);
    (void)pthread_mutex_unlock(&watch.lock);
}

bool sw_watch_reads(const struct stat *info)
{
    bool found = false;

    (void)pthread_mutex_lock(&watch.lock);
    for (const input *one = watch.first; one && !found; one = one->next)
        found = is_same_file(one, info);
    (void)pthread_mutex_unlock(&watch.lock);
    return found;
}

static sw_code changed(const input *one, const char *how, sw_err *err)
{
    return SW_FAIL(err, SW_E_IO, "%s: %s while this run read it, so nothing made from it is "
                   "published; run again once it stays as it is", one->path, how);
}

/* The file is opened, because a network file system asks its server only then. */
static int look(struct stat *info, const char *path)
{
    int fd, failed;

    do fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    while (fd < 0 && errno == EINTR);
    if (fd < 0) return -1;
    failed = fstat(fd, info);
    close(fd);
    return failed;
}

/* Modes, owners and links change the status as well as a write does whose time was set back. */
static sw_code check_bytes(input *one, const struct stat *info, sw_err *err)
{
    char now[SW_SHA256_HEX_BYTES];
    sw_code rc;

    if (!one->sha256[0]) return changed(one, "its status was changed", err);
    if ((rc = sw_sha256_file(now, one->path, err)) != SW_OK) return rc;
    if (strcmp(now, one->sha256) != 0) return changed(one, "it was changed", err);
    one->status_changed = info->st_ctim;
    return SW_OK;
}

static sw_code check_input(input *one, sw_err *err)
{
    bool is_same, has_same_status;
    struct stat info;

    if (look(&info, one->path) != 0) return changed(one, "it was removed", err);
    is_same = is_same_file(one, &info);
    has_same_status = same_time(&one->status_changed, &info.st_ctim);
    if (!is_same && !has_same_status) return changed(one, "it was replaced", err);
    if (!looks_the_same(one, &info)) return changed(one, "it was changed", err);
    /* some file systems number a file anew when it is opened anew */
    if (has_same_status && (is_same || !one->sha256[0])) return SW_OK;
    return check_bytes(one, &info, err);
}

/* New inputs come in front, so that the list may be walked without the lock. */
sw_code sw_watch_check(sw_err *err)
{
    sw_code rc = SW_OK;
    input *one;

    (void)pthread_mutex_lock(&watch.lock);
    one = watch.first;
    (void)pthread_mutex_unlock(&watch.lock);
    for (; one && rc == SW_OK; one = one->next) rc = check_input(one, err);
    return rc;
}
